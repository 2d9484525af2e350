"""Tests of lib/evaluation/load_figures.py: the data are drawn, labels are literal, repeated runs are equal."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from lib.evaluation.figures import policy_colour
from lib.evaluation.load_figures import load_curves, price_paths
from lib.evaluation.load_summary import load_table
from tests.evaluation.drawing import draws_equally_twice
from tests.evaluation.loads import POLICIES, RHOS, arrivals
from tests.evaluation.test_figures import HOSTILE, texts

FRAME = arrivals(["worlds_bridge", HOSTILE], tasks=6)
TABLE = load_table(FRAME, resamples=100)
ALL = {
    "curves": lambda: load_curves(TABLE, deadline=2.5),
    "prices": lambda: price_paths(FRAME[FRAME["seed"] == 0]),
}


@pytest.mark.parametrize("name", ALL)
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, name: str) -> None:
    before = plt.get_fignums()
    draws_equally_twice(ALL[name], tmp_path, name)
    assert isinstance(ALL[name](), Figure) and plt.get_fignums() == before


def test_every_curve_is_its_rows() -> None:
    figure = load_curves(TABLE, deadline=2.5)
    axes = np.array(figure.axes).reshape(3, 2)
    for column, workload in enumerate(dict.fromkeys(TABLE["workload"])):
        for axis, value in zip(axes[:, column], ("task_utility", "p95_s", "miss_rate"), strict=True):
            for policy in POLICIES:
                rows = TABLE[(TABLE["workload"] == workload) & (TABLE["policy"] == policy)].sort_values("rho")
                drawn = [line.get_ydata() for line in axis.lines if len(line.get_xdata()) == len(RHOS)]
                assert any(np.array_equal(data, rows[value]) for data in drawn), (workload, value, policy)
            intervals = axis.containers if value == "task_utility" else axis.collections
            assert len(intervals) == len(POLICIES), "an interval for each policy"
    assert axes[1, 0].get_yscale() == "log"
    assert any(line.get_ydata()[0] == 2.5 for line in axes[1, 0].lines), "the deadline"
    assert any(list(line.get_xdata()) == [1.0, 1.0] for line in axes[0, 0].lines), "a load of one"


def test_policies_keep_their_colours_and_static_is_named_beside_adaptive() -> None:
    figure = load_curves(TABLE, deadline=2.5)
    shown = {}
    for bars, label in zip(*figure.axes[0].get_legend_handles_labels(), strict=True):
        shown[label] = (to_rgb(bars[0].get_color()), bars[0].get_marker())
    names = ["Full communication", "BANDMAS causal, static", "BANDMAS causal, adaptive", "Semantic relevance"]
    assert list(shown) == names
    assert [shown[name][0] for name in names] == [
        to_rgb(policy_colour(policy)) for policy in ("full", "causal", "adaptive", "semantic")
    ]
    assert len({colour for colour, _ in shown.values()}) == len({marker for _, marker in shown.values()}) == 4
    assert {*names, "latency, p95", "latency, p50", "deadline, 2.5 s"} <= set(texts(figure))


def test_price_paths_are_the_prices_of_one_seed() -> None:
    figure = price_paths(FRAME[FRAME["seed"] == 1], rhos=[0.5, 1.5])
    axes = np.array(figure.axes).reshape(2, 2)
    rows = FRAME.query("seed == 1 and rho == 1.5 and policy == 'adaptive' and workload == 'worlds_bridge'")
    assert [line.get_ydata().tolist() for line in axes[0, 1].lines] == [
        rows[name].tolist() for name in ("price_bytes", "price_latency", "price_context")
    ]
    assert [axis.get_title(loc="left") for axis in axes[0]] == ["Load 0.5", "Load 1.5"]
    with pytest.raises(ValueError, match="prices of 3 seeds: each has its own path; pass one"):
        price_paths(FRAME)


def test_missing_columns_are_named() -> None:
    with pytest.raises(ValueError, match="p50_s"):
        load_curves(TABLE.drop(columns="p50_s"), deadline=2.5)
    with pytest.raises(ValueError, match="price_latency"):
        price_paths(FRAME.drop(columns="price_latency"))
