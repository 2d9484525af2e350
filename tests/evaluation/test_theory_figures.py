"""Figures of the theory: what is drawn is the data, wrong symbols are ringed, bounds and thresholds stand where they belong."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from lib.evaluation.looks import SIGNS
from lib.evaluation.theory_figures import (
    balance,
    bottleneck_bars,
    bound_by_critic,
    clipped_propagation,
    cut_errors,
    least_errors,
    regret_against_bound,
    sender_crossing,
)
from tests.evaluation.drawing import draws_equally_twice
from tests.evaluation.test_figures import HOSTILE, texts

MARKS = pd.DataFrame({"gain": [0.3, 0.1, 0.2, np.nan], "tax": [0.1, 0.2, 0.2, 0.1]})
NAMES = {"xlabel": "Gain", "ylabel": "Tax", "wins": "helps", "loses": HOSTILE}
POINTS = pd.DataFrame({"axis": HOSTILE, "place": [0, 1, 2, 3], "label": [0, 1, 0, 1]})
CUTS = pd.DataFrame(
    {
        "axis": HOSTILE,
        "cut": [-0.5, 0.5, 1.5, 2.5, 3.5] * 2,
        "ones": ["above"] * 5 + ["below"] * 5,
        "error": [0.5, 0.25, 0.5, 0.25, 0.5, 0.5, 0.75, 0.5, 0.75, 0.5],
    }
)
LEAST = pd.DataFrame({"groups": [1, 2, 5], "enumerated": [0, 0.25, 0.4], "formula": [0, 0.25, 0.4]})
LOSSES = pd.DataFrame(
    {"receiver": ["one", HOSTILE], "externalization": [0.25, 0.25], "absorption": [0.1, 0.0], "closure": [0.2, 0.05]}
)
CURVE = pd.DataFrame({"burden": [0.0, 0.5, 1.0], "extra_gain": [0.0, 0.25, 0.5], "extra_tax": [0.3, 0.2, 0.1]})
RUNS = pd.DataFrame(
    {
        "step": range(5),
        "base": [0.2, 0.11, 0.038, 0, 0],
        "perturbed": [0.5, 0.35, 0.23, 0.134, 0.0572],
        "gap": [0.3, 0.24, 0.192, 0.134, 0.0572],
        "carried": [np.nan, 0.24, 0.192, 0.1536, 0.1072],
        "unclipped": [0.3, 0.24, 0.192, 0.1536, 0.12288],
    }
)
DRAWS = pd.DataFrame(
    {"errors": ["random", HOSTILE] * 20, "bound": np.linspace(0.1, 0.9, 40), "regret": [0.0, 0.05] * 20}
)
CRITICS = pd.DataFrame({"limit": [0.5, 1, 2], "bound": [0.1, 0.18, 0.2]})
ALL = {
    "balance": lambda: balance(MARKS, "gain", "tax", **NAMES),
    "cuts": lambda: cut_errors(POINTS, CUTS),
    "least": lambda: least_errors(LEAST),
    "bars": lambda: bottleneck_bars(LOSSES),
    "crossing": lambda: sender_crossing(CURVE, 3 / 7),
    "runs": lambda: clipped_propagation(RUNS),
    "regret": lambda: regret_against_bound(DRAWS, (0.2, 0.2)),
    "critics": lambda: bound_by_critic(CRITICS, 0.2),
}


@pytest.mark.parametrize("name", ALL)
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, name: str) -> None:
    before = plt.get_fignums()
    draws_equally_twice(ALL[name], tmp_path, name)
    assert isinstance(ALL[name](), Figure) and plt.get_fignums() == before


def line(figure: Figure, label: str) -> np.ndarray:
    """Return the (x, y) data of the one line with this label, (2, n)."""
    (found,) = [one for axis in figure.axes for one in axis.lines if one.get_label() == label]
    return np.array(found.get_data(), dtype=float)


def test_marks_lie_on_their_side_of_the_diagonal_and_are_counted() -> None:
    figure = ALL["balance"]()
    axis = figure.axes[0]
    groups = {label.split(":")[0]: marks for marks in axis.collections if (label := str(marks.get_label()))}
    assert groups["helps"].get_offsets().tolist() == [[0.3, 0.1]]
    assert to_rgb(groups["helps"].get_facecolors()[0]) == to_rgb(SIGNS["positive"])
    assert groups["neither"].get_offsets().tolist() == [[0.2, 0.2]], "equal within rounding is neither"
    assert {"helps: 1", "neither: 1"} <= set(texts(figure)), "a row without a value is not counted"
    assert axis.get_aspect() == 1.0


def test_best_cut_and_its_wrong_symbols() -> None:
    figure = ALL["cuts"]()
    above = figure.axes[0]
    rings = [one for one in above.lines if one.get_markerfacecolor() == "none" and len(one.get_xdata())]
    assert sorted(x for one in rings for x in one.get_xdata()) == [2.0], "cut at 0.5, ones above: the 0 at place 2"
    assert "best cut: error 0.25" in texts(figure)
    assert line(figure, "1 is predicted above the cut").tolist() == [
        CUTS["cut"][:5].tolist(),
        CUTS["error"][:5].tolist(),
    ]


def test_wrong_symbols_of_a_cut_that_predicts_ones_below() -> None:
    points = pd.DataFrame({"axis": "a", "place": [0, 1, 2], "label": [1, 0, 1]})
    cuts = pd.DataFrame({"axis": "a", "cut": [0.5, 0.5], "ones": ["above", "below"], "error": [2 / 3, 1 / 3]})
    rings = [one for one in cut_errors(points, cuts).axes[0].lines if one.get_markerfacecolor() == "none"]
    assert sorted(float(x) for one in rings for x in one.get_xdata()) == [2.0]


def test_bars_are_stacked_in_order_and_named_by_their_total() -> None:
    figure = ALL["bars"]()
    bars = [(round(one.get_x(), 6), round(one.get_width(), 6)) for one in figure.axes[0].patches]
    assert bars == [(0, 0.25), (0, 0.25), (0.25, 0.1), (0.25, 0), (0.35, 0.2), (0.25, 0.05)]
    assert {"0.55", "0.30"} <= set(texts(figure))


def test_threshold_stands_on_both_curves() -> None:
    figure = ALL["crossing"]()
    (point,) = [one for one in figure.axes[0].lines if one.get_marker() == "o"]
    x, y = (float(value[0]) for value in point.get_data())
    assert (x, y) == pytest.approx((3 / 7, 3 / 14))
    assert np.interp(x, CURVE["burden"], CURVE["extra_tax"]) == pytest.approx(y)
    assert "β* = 0.4286" in texts(figure)


def test_steps_are_shaded_where_the_gap_falls_below_the_carry() -> None:
    figure = ALL["runs"]()
    spans = sorted(one.get_x() for one in figure.axes[1].patches)
    assert spans == [2, 3], "steps 3 and 4"
    assert line(figure, "gap")[1].tolist() == RUNS["gap"].tolist()
    assert line(figure, "perturbed run")[1].tolist() == RUNS["perturbed"].tolist()


def test_regret_panels_hold_their_draws_and_the_worst_case() -> None:
    figure = ALL["regret"]()
    first, second = figure.axes[:2]
    for axis, name in ((first, "random"), (second, HOSTILE)):
        (dots,) = [one for one in axis.collections if one.get_label() == "a draw"]
        rows = DRAWS[DRAWS["errors"] == name]
        assert np.allclose(dots.get_offsets(), rows[["bound", "regret"]])
        assert [one.get_data()[1][0] for one in axis.lines if one.get_marker() == "*"] == [0.2]
    assert {"100% of the draws without regret", "0% of the draws without regret"} <= set(texts(figure))
    few = regret_against_bound(DRAWS, (0.2, 0.2), most=5).axes[0]
    assert [len(one.get_offsets()) for one in few.collections if one.get_label() == "a draw"] == [5]


def test_curves_are_their_tables() -> None:
    assert line(ALL["critics"](), "best critic within the limit").tolist() == CRITICS.to_numpy().T.tolist()
    assert line(ALL["least"](), "best of all cuts, enumerated").tolist() == [[1, 2, 5], [0, 0.25, 0.4]]


def test_missing_columns_are_named() -> None:
    with pytest.raises(ValueError, match=r"lacks the columns \['closure'\]"):
        bottleneck_bars(LOSSES.drop(columns="closure"))
