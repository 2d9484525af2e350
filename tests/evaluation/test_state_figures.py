"""Figures of a shared state: measured marks, predicted lines, nulls left out, hostile labels."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from lib.evaluation.state_figures import bought_hits, gap_paths, residual_paths
from tests.evaluation.drawing import draws_equally_twice
from tests.evaluation.test_figures import HOSTILE

NONE = float("nan")


def runs(name: str = "fresh") -> pd.DataFrame:
    rows = [
        ("control", 0, 0.1, 0.1),
        ("control", 1, 0.2, 0.15),
        ("perturbed", 0, 1.0, NONE),
        ("perturbed", 1, 0.8, NONE),
    ]
    return pd.DataFrame(rows, columns=["run", "step", "residual", "predicted"]).assign(observation=name)


def gaps(name: str = "fresh") -> pd.DataFrame:
    rows = [
        ("perturbed", 1, 0.7, 0.5, 0.9, 0.6),
        ("perturbed", 2, 0.3, NONE, NONE, 0.4),
        ("repaired", 1, -0.2, -0.4, 0.1, NONE),
    ]
    return pd.DataFrame(rows, columns=["run", "step", "gap", "low", "high", "predicted"]).assign(observation=name)


def bought(name: str = "toy") -> pd.DataFrame:
    rows = [("mend", 4.0, 1.5, 0.5, 2.5), ("look", 400.0, 0.5, NONE, NONE), (name, 404.0, 2.0, 1.0, 3.0)]
    return pd.DataFrame(rows, columns=["intervention", "tokens", "gain", "low", "high"]).assign(family=name)


ALL = {
    "residuals": lambda: residual_paths(pd.concat([runs(), runs(HOSTILE)])),
    "gaps": lambda: gap_paths(pd.concat([gaps(), gaps(HOSTILE)])),
    "bought": lambda: bought_hits(pd.concat([bought(), bought(HOSTILE)])),
}


@pytest.mark.parametrize("name", ALL)
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, name: str) -> None:
    draws_equally_twice(ALL[name], tmp_path, name)


def test_marks_are_measured_and_dashes_are_the_law() -> None:
    axis = residual_paths(runs()).axes[0]
    solid = {line.get_label(): list(line.get_ydata()) for line in axis.lines if line.get_linestyle() == "None"}
    assert solid == {"control": [0.1, 0.2], "perturbed": [1.0, 0.8]}
    dashed = [list(line.get_ydata()) for line in axis.lines if line.get_linestyle() == "--" and len(line.get_ydata())]
    assert dashed == [[0.1, 0.15]], "a run without a law has no dashes"


def test_a_gap_has_its_interval_and_all_panels_one_scale() -> None:
    figure = gap_paths(pd.concat([gaps(), gaps("stale").assign(gap=0.0, low=NONE, high=NONE)]))
    one, two = figure.axes
    assert one.get_ylim() == two.get_ylim() and one.get_ylim()[0] < -0.4
    bars = [part[:, 1].tolist() for drawn in one.collections for part in drawn.get_segments() if len(part)]
    assert [0.5, 0.9] in bars and [-0.4, 0.1] in bars


def test_what_was_bought_stands_at_its_price() -> None:
    axis = bought_hits(bought()).axes[0]
    marks = {line.get_label(): line for line in axis.lines if len(line.get_xdata()) == 1}
    assert marks["mend"].get_ydata()[0] == 1.5 and 3 < marks["mend"].get_xdata()[0] < 5
    assert axis.get_xscale() == "log" and sum(len(line.get_xdata()) == 2 for line in axis.lines) == 2 + 1, (
        "intervals, zero"
    )


def test_no_rows_and_missing_columns() -> None:
    assert (
        residual_paths(runs().iloc[:0]).axes and gap_paths(gaps().iloc[:0]).axes and bought_hits(bought().iloc[:0]).axes
    )
    for draw, frame, column in (
        (residual_paths, runs(), "residual"),
        (gap_paths, gaps(), "low"),
        (bought_hits, bought(), "gain"),
    ):
        with pytest.raises(ValueError, match="lacks the columns"):
            draw(frame.drop(columns=column))
