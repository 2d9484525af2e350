"""Figures of receivers beside each other: who answers best by which policy, with whose predictor, and where they disagree.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, one message each, labels from data shown
literally. In every matrix a row is the receiver that a predictor was trained on (or who wrote a message), a column the receiver
that answers, and the framed diagonal is a receiver with its own. Blue is above zero and orange below, as in every figure of signs.

Not covered: how the numbers come about; the frames are described by their columns alone.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, SIGNS, in_order, long_name, look_of, plain_text, theme
from lib.evaluation.panels import finished, panel_row, shared_legend

__all__ = ["policy_points", "receiver_map", "sign_map"]

_LONGEST = 20  # characters of a receiver's name on an axis
_WORDS = ("helpful", "idle", "harmful")


def receiver_map(
    cells: pd.DataFrame,
    value: str,
    *,
    main: str,
    detail: str | None = None,
    label: str = "",
    limits: tuple[float, float] | None = None,
    panel: str = "workload",
    sides: tuple[str, str] = ("trained_on", "answered_by"),
    axes_named: tuple[str, str] = ("Predictor trained on", "Answered by"),
) -> Figure:
    """Draw one matrix a panel: rows by whose predictor, columns by who answers, or two other sides of the same models.

    Parameters
    ----------
    cells : the two `sides`, the `panel` column, `value`, and texts in `main` and `detail`
    value : what colours a cell; a missing value is hatched on white
    main, detail : columns of text written into a cell, the first in bold, line breaks kept
    label : of the colour bar, with unit
    limits : ends of the colour scale. From below zero it runs from orange to blue, else from white to blue. Without them it
        reaches equally far to both sides of zero, 0.1 at least.
    sides, axes_named : columns that hold row and column of a cell, and what the axes are called

    Raises
    ------
    ValueError
        If a cell occurs twice in a panel.
    """
    need_columns(cells, [panel, *sides, value, main, *([detail] if detail else [])])
    if cells.duplicated([panel, *sides]).any():
        raise ValueError("a cell occurs twice; give each pair of receivers once a panel")
    names = list(dict.fromkeys([*cells[sides[0]], *cells[sides[1]]]))
    panels = list(dict.fromkeys(cells[panel]))
    norm, colours = _scale(cells[value], limits)
    side = max(1.0, len(names))
    with theme():
        figure, axes = panel_row(len(panels), width=1.25 * side + 0.3, margin=2.2, height=0.85 * side + 1.5)
        for axis, name in zip(axes, panels, strict=False):
            rows = cells[cells[panel] == name]
            found = {(row[sides[0]], row[sides[1]]): row for row in rows.to_dict("records")}
            grid = np.full((max(1, len(names)), max(1, len(names))), np.nan)
            for (i, source), (j, target) in itertools.product(enumerate(names), repeat=2):
                row = found.get((source, target))
                if row is not None:
                    grid[i, j] = row[value]
                _cell(axis, i, j, grid[i, j], row and row[main], row and detail and row[detail], norm, colours)
            _ground(axis, grid, norm, colours)
            _ticks(axis, names, names, rows_named=axis is axes[0])
            axis.set_title(plain_text(name))
            axis.set_xlabel(axes_named[1])
        axes[0].set_ylabel(axes_named[0])
        bar = figure.colorbar(plt.cm.ScalarMappable(norm, colours), ax=axes, shrink=0.85, aspect=18, pad=0.02)
        bar.set_label(label)
        bar.outline.set_visible(False)
        bar.locator = MaxNLocator(4, symmetric=limits is None or limits[0] < 0)
        bar.update_ticks()
    return finished(figure)


def sign_map(counts: pd.DataFrame, *, panel: str = "workload") -> Figure:
    """Draw how often two receivers find the same packet helpful, idle or harmful: a matrix for each pair and panel.

    Parameters
    ----------
    counts : ``first``, ``second``, ``sign_first``, ``sign_second``, ``packets``, ``share`` and the `panel` column, nine
        rows a pair

    Notes
    -----
    On the framed diagonal both say the same. Each matrix sums to 100 %, to the rounding.
    """
    need_columns(counts, [panel, "first", "second", "sign_first", "sign_second", "packets", "share"])
    pairs = list(dict.fromkeys(zip(counts["first"], counts["second"], strict=True))) or [("", "")]
    panels = list(dict.fromkeys(counts[panel])) or [""]
    colours, norm = _from_white(), Normalize(0.0, 1.0)
    with theme():
        size = (2.7 * len(panels) + 0.3, 2.35 * len(pairs) + 0.2)
        figure, axes = plt.subplots(len(pairs), len(panels), figsize=size, squeeze=False, layout="constrained")
        for (i, (first, second)), (j, name) in itertools.product(enumerate(pairs), enumerate(panels)):
            axis = axes[i][j]
            here = counts[(counts[panel] == name) & (counts["first"] == first) & (counts["second"] == second)]
            found = {(row["sign_first"], row["sign_second"]): row for row in here.to_dict("records")}
            grid = np.full((3, 3), np.nan)
            for (row, one), (column, other) in itertools.product(enumerate(_WORDS), repeat=2):
                known = found.get((one, other))
                if known is not None:
                    grid[row, column] = known["share"]
                told = (f"{known['share']:.0%}", f"n = {known['packets']}") if known else ("", "")
                _cell(axis, row, column, grid[row, column], *told, norm, colours)
            _ground(axis, grid, norm, colours)
            _ticks(axis, _WORDS, _WORDS, rows_named=True)
            axis.set_title(plain_text(name))
            axis.set_ylabel(plain_text(first, _LONGEST))
            axis.set_xlabel(plain_text(second, _LONGEST))
    return finished(figure)


def policy_points(
    table: pd.DataFrame, *, value: str = "task_utility", panel: str = "workload", ylabel: str = "Task utility"
) -> Figure:
    """Draw what each policy reaches with each receiver, one panel a workload.

    Parameters
    ----------
    table : means over seeds with ``answered_by``, ``policy``, the `panel` column, ``_mean`` and ``_sd`` of `value`

    Notes
    -----
    Bars are one sample standard deviation over split seeds, cut just below zero. Places beside a receiver keep the marks
    apart.
    """
    need_columns(table, ["answered_by", "policy", panel, f"{value}_mean", f"{value}_sd"])
    panels = list(dict.fromkeys(table[panel]))
    names = list(dict.fromkeys(table["answered_by"]))
    policies = in_order(table["policy"])
    step = min(0.16, 0.8 / max(1, len(policies)))
    with theme():
        figure, axes = panel_row(len(panels), width=max(2.6, 1.25 * len(names)), margin=0.6, height=3.3)
        for axis, name in zip(axes, panels, strict=False):
            rows = table[table[panel] == name]
            for place, policy in enumerate(policies):
                own = rows[rows["policy"] == policy]
                colour, marker = look_of(policy)
                across = [names.index(one) + step * (place - (len(policies) - 1) / 2) for one in own["answered_by"]]
                axis.errorbar(
                    across,
                    own[f"{value}_mean"],
                    yerr=own[f"{value}_sd"].fillna(0),
                    linestyle="none",
                    color=colour,
                    marker=marker,
                    markersize=6.5,
                    markeredgecolor="white",
                    markeredgewidth=0.7,
                    elinewidth=0.9,
                    capsize=2,
                    label=long_name(policy),
                )
            axis.set_title(plain_text(name))
            axis.set_xticks(range(len(names)), [plain_text(one, _LONGEST) for one in names])
            axis.set_xlim(-0.55, max(1, len(names)) - 0.45)
            axis.grid(visible=False, axis="x")
            top = max(axis.get_ylim()[1], 0.1)
            axis.set_ylim(-0.03 * top, top)  # a utility lies in [0, 1], its bars need not
        axes[0].set_ylabel(ylabel)
        shared_legend(figure, axes)
    return finished(figure)


def _scale(values: pd.Series, limits: tuple[float, float] | None) -> tuple[Normalize, Colormap]:
    if limits is None:
        # a small difference keeps a pale colour, and where nothing differs the scale can be compared
        reach = max(0.1, float(values.abs().max()) if values.notna().any() else 0.0)
        limits = (-reach, reach)
    if limits[0] >= 0:
        return Normalize(*limits, clip=True), _from_white()
    colours = LinearSegmentedColormap.from_list("signs", [SIGNS["negative"], "0.96", SIGNS["positive"]])
    return Normalize(*limits, clip=True), colours.with_extremes(bad="white")


def _ground(axis: Axes, grid: np.ndarray, norm: Normalize, colours: Colormap) -> None:
    """Colour the cells, part them by white lines and frame the diagonal."""
    axis.imshow(grid, cmap=colours, norm=norm, aspect="auto", interpolation="none")
    for edge in np.arange(0.5, len(grid) - 1):
        axis.axhline(edge, color="white", linewidth=3)
        axis.axvline(edge, color="white", linewidth=3)
    for place in range(len(grid)):
        frame = Rectangle((place - 0.5, place - 0.5), 1, 1, fill=False, edgecolor="0.2", linewidth=1.6, zorder=3)
        frame.set_clip_on(False)
        axis.add_patch(frame)


def _from_white() -> Colormap:
    return LinearSegmentedColormap.from_list("share", ["0.97", PALETTE[0]]).with_extremes(bad="white")


def _cell(
    axis: Axes,
    row: int,
    column: int,
    number: float,
    main: object,
    detail: object,
    norm: Normalize,
    colours: Colormap,
) -> None:
    """Write a cell's texts in a colour that can be read on its ground, or hatch it where there is no value."""
    if math.isnan(number):
        box = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch="////", edgecolor="0.85", linewidth=0)
        axis.add_patch(box)
    red, green, blue, _ = colours(norm(number)) if not math.isnan(number) else (1.0, 1.0, 1.0, 1.0)
    ink = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "0.15"
    lines = [_signed(plain_text(line, 24)) for line in str(detail or "").split("\n") if line]
    rise = 0.08 + 0.06 * len(lines) if lines else 0.0
    text = _signed(plain_text(main or "", 14))
    axis.text(column, row - rise, text, ha="center", va="center", fontweight="bold", color=ink)
    small: dict[str, Any] = {"fontsize": 7.5, "linespacing": 1.2, "color": ink}
    axis.text(column, row + 0.13, "\n".join(lines), ha="center", va="center", **small)


def _signed(text: str) -> str:
    """Return the text with a minus sign before numbers, as on the axes."""
    return re.sub(r"-(?=[\d.])", "\u2212", text)


def _ticks(axis: Axes, rows: Sequence[str], columns: Sequence[str], *, rows_named: bool) -> None:
    axis.set_xticks(range(len(columns)), [plain_text(one, _LONGEST) for one in columns])
    axis.set_yticks(range(len(rows)), [plain_text(one, _LONGEST) for one in rows] if rows_named else [""] * len(rows))
    axis.grid(visible=False)
    axis.tick_params(length=0)
    sns.despine(ax=axis, left=True, bottom=True)
