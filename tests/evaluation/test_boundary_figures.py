"""Figures of the packetization ablation: every arm is drawn from its own rows, Full belongs to its boundary."""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from lib.evaluation.boundary_figures import ARM_NAMES, boundary_frontier, record_fit
from lib.evaluation.figures import plain_text
from tests.evaluation.drawing import draws_equally_twice
from tests.evaluation.test_figures import HOSTILE, texts

FULL_BYTES = {"typed": 1000.0, "sentence": 1300.0, "message": 750.0}


def table() -> pd.DataFrame:
    rows = []
    for workload in ("worlds", HOSTILE):
        rows.append((workload, "none", "empty", 0.0, 0.1, 0.0))
        for place, ((boundary, policy), beta) in enumerate(itertools.product(ARM_NAMES, (0.75, 0.25, 0.5))):
            rows.append((workload, boundary, policy, beta, 0.3 + 0.01 * place, 900 * beta))
        rows += [(workload, boundary, "full", 1.0, 0.7, size) for boundary, size in FULL_BYTES.items()]
    columns = ["workload", "boundary", "policy", "beta", "task_utility_mean", "bytes_mean"]
    return pd.DataFrame(rows, columns=columns).assign(task_utility_sd=0.02, bytes_sd=9.0)


def fits() -> pd.DataFrame:
    shares = {"typed": [0.2, 0.4, 0.4, 1.2], "sentence": [0.1, 0.3], "message": [0.9, 1.6]}
    rows = [
        (name, boundary, share)
        for name in ("worlds", HOSTILE)
        for boundary, own in shares.items()
        for share in [*own, np.nan]
    ]
    return pd.DataFrame(rows, columns=["workload", "boundary", "share_of_cap"])


ALL = {"frontier": lambda: boundary_frontier(table()), "fit": lambda: record_fit(fits())}


@pytest.mark.parametrize("name", ALL)
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, name: str) -> None:
    draws_equally_twice(ALL[name], tmp_path, name)
    assert not any("$5\n" in text or "\x00" in text for text in texts(ALL[name]()))


@pytest.mark.parametrize("name", ALL)
def test_figures_are_released_to_the_caller(name: str) -> None:
    before = plt.get_fignums()
    assert isinstance(ALL[name](), Figure)
    assert plt.get_fignums() == before


def test_a_line_runs_over_its_own_caps_to_the_full_of_its_boundary() -> None:
    figure = boundary_frontier(table())
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["worlds", plain_text(HOSTILE)]
    rows = table().query("workload == 'worlds'")
    lines = {bar.get_label(): bar.lines[0] for bar in figure.axes[0].containers}
    assert set(lines) == set(ARM_NAMES.values())
    for (boundary, policy), label in ARM_NAMES.items():
        own = rows[(rows["boundary"] == boundary) & (rows["policy"] == policy)].sort_values("beta")
        assert lines[label].get_xdata().tolist() == [*own["bytes_mean"], FULL_BYTES[boundary]]
        assert lines[label].get_ydata().tolist() == [*own["task_utility_mean"], 0.7]
    open_points = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert sorted(float(line.get_xdata()[0]) for line in open_points) == sorted(FULL_BYTES.values())
    (empty,) = [line for line in figure.axes[0].lines if line.get_label() == "Empty"]
    assert set(empty.get_ydata()) == {0.1}


def test_one_seed_and_absent_arms_are_drawn_as_they_are() -> None:
    some = table().query("boundary == 'message'").assign(task_utility_sd=np.nan, bytes_sd=np.nan)
    figure = boundary_frontier(some)
    assert [bar.get_label() for bar in figure.axes[0].containers] == ["Whole messages"]
    only_full = boundary_frontier(table().query("policy == 'full'"))
    assert all(not axis.containers for axis in only_full.axes)


def test_record_sizes_accumulate_and_null_shares_are_left_out() -> None:
    axis = record_fit(fits()).axes[0]
    curves = {line.get_label(): line for line in axis.lines}
    assert list(curves) == ["The cap", "Typed fields", "Sentences", "Whole messages"]
    places, heights = curves["Typed fields"].get_data()
    assert heights[np.flatnonzero(np.asarray(places) <= 1)[-1]] == 0.75, "three of four records fit the cap"
    assert heights[-1] == 1.0 and set(curves["The cap"].get_xdata()) == {1}
    assert axis.get_xlim()[1] > 1.6


def test_no_record_and_no_row_are_drawn() -> None:
    assert record_fit(fits().iloc[:0]).axes and boundary_frontier(table().iloc[:0]).axes
    assert record_fit(fits().assign(share_of_cap=np.nan)).axes[0].get_xlim() == (0, 1.1)


@pytest.mark.parametrize(
    ("draw", "source", "column"),
    [
        (boundary_frontier, table, "boundary"),
        (boundary_frontier, table, "bytes_sd"),
        (record_fit, fits, "share_of_cap"),
    ],
)
def test_missing_columns_are_named(draw: object, source: object, column: str) -> None:
    with pytest.raises(ValueError, match=column):
        draw(source().drop(columns=column))
