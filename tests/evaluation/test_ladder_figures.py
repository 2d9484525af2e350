"""The figure of sender swaps: anchors at their places, curves and crossings as given, the paper's numbers over them."""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from lib.evaluation.ladder_figures import sender_threshold
from lib.evaluation.saving import save_figure
from tests.evaluation.test_figures import HOSTILE, texts

ANCHORS = pd.DataFrame(
    {
        "benchmark": ["near", "near", "far", HOSTILE],
        "receiver_only": [0.2, 0.2, 0.5, 0.9],
        "gap": [0.3, 0.1, 0.0, -0.2],
        "low": [0.2, 0.0, np.nan, -0.4],
        "high": [0.45, 0.2, np.nan, 0.1],
    }
)
X = np.linspace(0, 1, 11)
CURVES = pd.concat(
    [pd.DataFrame({"model": name, "x": X, "y": y}) for name, y in (("linear", 0.3 - 0.5 * X), ("constant", 0 * X))]
)
CROSSINGS = pd.DataFrame(
    [("this run", 0.6, 0.4, 0.9), ("none", np.nan, np.nan, np.nan), ("far off", 3.0, -1.0, 4.0)],
    columns=["name", "crossing", "low", "high"],
)
PAPER = pd.DataFrame(
    [("ContextBench", 0.633, 0.21), ("SWE-Lite", np.nan, 0.52)], columns=["label", "receiver_only", "gap"]
)


def whole() -> plt.Figure:
    return sender_threshold(ANCHORS, CURVES, CROSSINGS, PAPER)


def line(axis: Axes, label: str) -> np.ndarray:
    (found,) = [one for one in axis.lines if one.get_label() == label]
    return np.array(found.get_data(), dtype=float).T


def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path) -> None:
    before = plt.get_fignums()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (save_figure(whole(), tmp_path / folder, "threshold") for folder in "ab")
    for ending in ("png", "svg"):
        assert one[ending].read_bytes() == two[ending].read_bytes()
    assert not any("$5\n" in text or "\x00" in text for text in texts(whole()))
    assert plt.get_fignums() == before


def test_anchors_stand_at_their_gaps_and_twins_are_moved_apart() -> None:
    axis = whole().axes[0]
    near, far, _ = [container.lines[0].get_xydata() for container in axis.containers]
    assert near[:, 1] == pytest.approx([0.3, 0.1]) and near[:, 0] == pytest.approx([0.2, 0.2], abs=0.02)
    assert near[0, 0] < 0.2 < near[1, 0], "two anchors of one receiver can both be seen"
    assert far[0] == pytest.approx([0.5, 0.0])
    ends = [segment[:, 1].tolist() for segment in axis.containers[0].lines[2][0].get_segments()]
    assert np.array(ends) == pytest.approx(np.array([[0.2, 0.45], [0.0, 0.2]]))


def test_curves_crossings_and_published_points_are_drawn_as_given() -> None:
    axis = whole().axes[0]
    assert line(axis, "line") == pytest.approx(np.column_stack([X, 0.3 - 0.5 * X]))
    low = [one for one in axis.lines if one.get_linewidth() == 3]
    assert [one.get_xdata().tolist() for one in low] == [[0.4, 0.9], [0.0, 1.0]], "intervals are cut at 0 and 1"
    marks = [one.get_xdata()[0] for one in axis.lines if one.get_marker() == "|"]
    assert marks == [0.6], "a crossing outside the scale has no mark"
    diamonds = [one.get_xydata()[0].tolist() for one in axis.lines if one.get_marker() == "D"]
    assert diamonds[0] == [0.633, 0.21] and diamonds[1][0] > 1 and diamonds[1][1] == 0.52
    told = [text.get_text() for text in axis.texts]
    assert {"ContextBench", "SWE-Lite", "this run", "none", "accuracy\nnot given"} <= set(told)
    assert axis.get_ylim()[1] >= 0.52 and min(axis.get_yticks()) >= -axis.get_ylim()[1]


def test_anchors_alone_and_no_anchor_draw_too() -> None:
    axis = sender_threshold(ANCHORS).axes[0]
    assert len(axis.containers) == 3 and axis.get_xlim()[1] < 1.1
    assert sender_threshold(ANCHORS.iloc[:0], published=PAPER).axes
    unknown = ANCHORS.assign(gap=[0.3, np.nan, 0.0, -0.2])
    assert len(sender_threshold(unknown).axes[0].containers[0].lines[0].get_xdata()) == 1
    everywhere = sender_threshold(ANCHORS, published=PAPER.iloc[:1]).axes[0]
    assert "accuracy\nnot given" not in [text.get_text() for text in everywhere.texts]


def test_missing_columns_are_named() -> None:
    with pytest.raises(ValueError, match="gap"):
        sender_threshold(ANCHORS.drop(columns="gap"))
    for place, (frame, column) in enumerate(((CURVES, "y"), (CROSSINGS, "low"), (PAPER, "label"))):
        given = [None, None, None]
        given[place] = frame.drop(columns=column)
        with pytest.raises(ValueError, match=column):
            sender_threshold(ANCHORS, *given)
