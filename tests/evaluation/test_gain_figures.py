"""Figures of arms and gains: marks and bars stand where the table says, lines say who helped, the paper stands beside."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from lib.evaluation.gain_figures import arm_accuracies, gain_intervals
from lib.evaluation.looks import SIGNS
from tests.evaluation.drawing import draws_equally_twice
from tests.evaluation.test_figures import HOSTILE, texts

NONE = float("nan")


def arms(family: str = "bfcl", receiver: str = "small") -> pd.DataFrame:
    rows = [
        ("RO", None, 0.5, 0.4, 0.6),
        ("MA", "strong", 0.7, 0.6, 0.8),
        ("MA", "weak", 0.3, NONE, NONE),
        ("SF", None, NONE, NONE, NONE),
    ]
    table = pd.DataFrame(rows, columns=["arm", "sender_model", "accuracy", "low", "high"])
    return table.assign(benchmark=family, receiver_model=receiver)


def gains(family: str = "bfcl", contrast: str = "MA - RO") -> pd.DataFrame:
    rows = [("a", 0.2, 0.1, 0.3), ("b", -0.2, -0.3, -0.1), ("c", 0.1, -0.1, 0.3), ("d", 0.4, NONE, NONE)]
    table = pd.DataFrame(rows, columns=["receiver_model", "gain", "low", "high"])
    return table.assign(benchmark=family, contrast=contrast)


PAPER = pd.DataFrame({"benchmark": ["bfcl"], "contrast": ["MA - RO"], "gain": [0.17], "low": [0.14], "high": [0.2]})
ALL = {
    "arms": lambda: arm_accuracies(pd.concat([arms(), arms(HOSTILE), arms("bfcl", HOSTILE)])),
    "gains": lambda: gain_intervals(pd.concat([gains(), gains(HOSTILE), gains("bfcl", HOSTILE)]), published=PAPER),
}


def marks(axis: Axes) -> dict[str, list[tuple[float, str]]]:
    """Place and colour of every mark, by label."""
    found: dict[str, list[tuple[float, str]]] = {}
    for line in axis.lines:
        if line.get_marker() not in ("None", "none", None) and len(line.get_xdata()) == 1:
            found.setdefault(str(line.get_label()), []).append(
                (float(line.get_xdata()[0]), to_hex(line.get_markerfacecolor()))
            )
    return found


@pytest.mark.parametrize("name", ALL)
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, name: str) -> None:
    draws_equally_twice(ALL[name], tmp_path, name)


def test_arms_stand_at_their_accuracy_and_lines_lead_from_alone_to_each_message() -> None:
    axis = arm_accuracies(arms()).axes[0]
    assert {name: at[0][0] for name, at in marks(axis).items()} == {
        "alone (RO)": 0.5,
        "message of strong": 0.7,
        "message of weak": 0.3,
    }, "a null has no mark"
    leads = {
        tuple(map(float, line.get_xdata())): to_hex(line.get_color())
        for line in axis.lines
        if len(line.get_xdata()) == 2
    }
    assert leads[0.5, 0.7] == to_hex(SIGNS["positive"]) and leads[0.5, 0.3] == to_hex(SIGNS["negative"])
    assert (0.6, 0.8) in leads and (0.4, 0.6) in leads, "intervals"
    level = arms()
    level["accuracy"] = 0.5
    flat = [line for line in arm_accuracies(level).axes[0].lines if list(line.get_xdata()) == [0.5, 0.5]]
    assert flat and all(to_hex(line.get_color()) == to_hex("0.55") for line in flat)


def test_a_gain_is_coloured_only_where_its_interval_leaves_out_zero() -> None:
    figure = gain_intervals(gains(), published=PAPER)
    found = marks(figure.axes[0])
    grey = to_hex("0.55")
    assert [found[name][0][1] for name in "abcd"] == [to_hex(SIGNS["positive"]), to_hex(SIGNS["negative"]), grey, grey]
    assert found["paper"][0][0] == 0.17
    assert {"a", "b", "c", "d", "paper"} <= set(texts(figure))
    handles = figure.legends[0].legend_handles
    assert {to_hex(one.get_markerfacecolor()) for one in handles} == {grey, "#ffffff"}, (
        "a legend names marks, not signs"
    )


def test_no_rows_and_missing_columns() -> None:
    assert arm_accuracies(arms().iloc[:0]).axes and gain_intervals(gains().iloc[:0]).axes
    with pytest.raises(ValueError, match="lacks the columns"):
        gain_intervals(gains().drop(columns="low"))
    with pytest.raises(ValueError, match="lacks the columns"):
        arm_accuracies(arms().drop(columns="arm"))
