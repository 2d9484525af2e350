"""Figures of a message's form: budgets in their order, whole messages last, bars at their accuracy, the paper beside."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from lib.evaluation.form_figures import budget_curves, form_bars
from tests.evaluation.drawing import draws_equally_twice
from tests.evaluation.test_figures import HOSTILE, texts

NONE = float("nan")


def curve(family: str = "bfcl") -> pd.DataFrame:
    rows = [("a", 8, 0.4), ("a", None, 0.7), ("a", 0, 0.2), ("b", 8, 0.6), ("b", 0, NONE)]
    table = pd.DataFrame(rows, columns=["receiver_model", "budget_tokens", "accuracy"]).astype(
        {"budget_tokens": "Int64"}
    )
    return table.assign(benchmark=family, low=table["accuracy"] - 0.1, high=table["accuracy"] + 0.1)


def alone(family: str = "bfcl") -> pd.DataFrame:
    return pd.DataFrame({"receiver_model": ["a", "b"], "accuracy": [0.3, NONE], "benchmark": family})


def forms(family: str = "bfcl") -> pd.DataFrame:
    rows = [("a", "json", 0.7), ("b", "json", 0.5), ("a", "prose", 0.6), ("b", "prose", NONE)]
    table = pd.DataFrame(rows, columns=["receiver_model", "form", "accuracy"]).assign(benchmark=family)
    return table.assign(low=[0.6, NONE, 0.5, NONE], high=[0.8, NONE, 0.7, NONE])


PAPER = pd.DataFrame({"benchmark": ["bfcl"] * 2, "form": ["prose", "poem"], "accuracy": [0.556, 0.1]})
ALL = {
    "budgets": lambda: budget_curves(
        pd.concat([curve(), curve(HOSTILE)]).assign(receiver_model=HOSTILE),
        pd.concat([alone(), alone(HOSTILE)]).assign(receiver_model=HOSTILE),
    ),
    "forms": lambda: form_bars(pd.concat([forms(), forms(HOSTILE)]).assign(form=HOSTILE), form="form", published=PAPER),
}


@pytest.mark.parametrize("name", ALL)
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, name: str) -> None:
    draws_equally_twice(ALL[name], tmp_path, name)


def test_budgets_rise_and_the_whole_message_stands_last() -> None:
    figure = budget_curves(curve(), alone())
    axis = figure.axes[0]
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["0", "8", "whole"]
    lines = {line.get_label(): line for line in axis.lines if line.get_marker() not in ("None", None)}
    assert list(lines["a"].get_xdata()) == [0, 1, 2] and list(lines["a"].get_ydata()) == [0.2, 0.4, 0.7]
    assert list(lines["b"].get_xdata()) == [0, 1]
    dashed = [line for line in axis.lines if line.get_linestyle() == "--" and len(line.get_ydata())]
    assert [list(line.get_ydata()) for line in dashed] == [[0.3, 0.3]] and dashed[0].get_color() == lines[
        "a"
    ].get_color()
    assert len(axis.collections) == 2 and "without a message (RO)" in texts(figure)
    assert [
        tick.get_text()
        for tick in budget_curves(curve().dropna(subset=["budget_tokens"]), alone()).axes[0].get_xticklabels()
    ] == ["0", "8"]


def test_bars_stand_beside_each_other_with_their_intervals_and_the_paper() -> None:
    figure = form_bars(forms(), form="form", names={"json": "JSON"}, published=PAPER)
    axis = figure.axes[0]
    heights = sorted((round(bar.get_x() + bar.get_width() / 2, 6), bar.get_height()) for bar in axis.patches)
    assert heights == [(-0.2, 0.7), (0.2, 0.5), (0.8, 0.6)], "a null has no bar"
    intervals = [list(line.get_ydata()) for line in axis.lines if len(line.get_ydata()) == 2]
    assert intervals == [[0.6, 0.8], [0.5, 0.7]]
    paper = [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in axis.lines if line.get_marker() == "D"
    ]
    assert paper == [(1.0, 0.556)], "a form of the paper that this run does not have is left out"
    assert {"JSON", "prose", "paper"} <= set(texts(figure))


def test_no_rows_and_missing_columns() -> None:
    assert budget_curves(curve().iloc[:0], alone().iloc[:0]).axes and form_bars(forms().iloc[:0], form="form").axes
    with pytest.raises(ValueError, match="lacks the columns"):
        form_bars(forms(), form="encoding_format")
    with pytest.raises(ValueError, match="lacks the columns"):
        budget_curves(curve(), alone().drop(columns="accuracy"))
