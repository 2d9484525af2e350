"""Tests of lib/evaluation/panels.py: rows of panels, one legend, and a figure that is the caller's."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from lib.evaluation.panels import finished, legend_entries, panel_row, shared_legend


def test_a_row_has_its_panels_and_size() -> None:
    figure, axes = panel_row(3, width=2.0, margin=0.5, height=3.0)
    assert len(axes) == 3 and figure.get_size_inches() == pytest.approx([6.5, 3.0])
    assert len(panel_row(0)[1]) == 1
    plt.close("all")


def test_a_shared_legend_names_each_label_once() -> None:
    figure, axes = panel_row(2)
    for axis, labels in zip(axes, [("a", "b"), ("b", "c", "_hidden")], strict=True):
        for label in labels:
            axis.plot([0, 1], label=label)
    assert list(legend_entries(axes)) == ["a", "b", "c"]
    shared_legend(figure, axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]
    before = plt.get_fignums()
    assert finished(figure) is figure and len(plt.get_fignums()) == len(before) - 1


def test_nothing_named_has_no_legend() -> None:
    figure, axes = panel_row(1)
    shared_legend(figure, axes)
    assert finished(figure).legends == []
