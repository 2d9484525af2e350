"""What figures are set in: a row of panels, one legend for all of them, and a figure that is handed over.

Not covered: colours, names and fonts (`lib.evaluation.looks`), what is drawn (`lib.evaluation.figures`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def panel_row(
    panels: int, *, width: float = 3.4, margin: float = 0.4, height: float = 3.3
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a row of so many panels, at least one.

    Parameters
    ----------
    width, margin, height : inches; the figure is `margin` wider than its panels
    """
    count = max(1, panels)
    size = (width * count + margin, height)
    figure, axes = plt.subplots(1, count, figsize=size, squeeze=False, layout="constrained")
    return figure, list(axes[0])


def legend_entries(axes: Iterable[Axes]) -> dict[str, Any]:
    """Return label -> handle of everything that is named in any of the panels, each label once."""
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return found


def shared_legend(figure: Figure, axes: Iterable[Axes]) -> None:
    """Put one legend for all panels below them, in rows of about equal length."""
    entries = legend_entries(axes)
    if entries:
        fit = max(2, int(figure.get_figwidth() / 1.7))  # entries that one line has room for
        rows = -(-len(entries) // fit)
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=-(-len(entries) // rows))


def finished(figure: Figure) -> Figure:
    """Take a figure out of the plotting library's care, so that a notebook shows it once and memory is freed with it."""
    plt.close(figure)
    return figure
