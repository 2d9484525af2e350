"""Figures over many runs: a headline number against a parameter, and over two parameters as a map.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, one message each, labels from data shown literally.

Not covered: picking runs and averaging over seeds (`lib.evaluation.run_summary`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, plain_text, theme
from lib.evaluation.panels import finished
from lib.evaluation.run_summary import as_number, in_value_order, numbers_of, value_text

_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">")
_CELL = "0.93"  # ground of the lowest number; white is for cells without one


def run_lines(
    table: pd.DataFrame, runs: pd.DataFrame, x: str, *, value: str, colour: str | None = None, ylabel: str = ""
) -> Figure:
    """Draw a number against a parameter: a line a group where the parameter is a number, else bars.

    Parameters
    ----------
    table : rows of `lib.evaluation.run_summary.over_runs` with `x` (and `colour`) among its cells
    runs : the runs themselves with the same columns and `value`: each is a small open mark
    x, colour : parameter columns, `p.<name>`

    Notes
    -----
    Marks and bars are means; whiskers are the intervals ``low`` to ``high`` of the table, none where a cell has fewer than two runs.
    """
    need_columns(table, [x, "mean", "low", "high", *([colour] if colour else [])])
    need_columns(runs, [x, value, *([colour] if colour else [])])
    places = in_value_order(table[x])
    groups = in_value_order(table[colour]) if colour else [""]
    as_line = len(places) > 1 and all(as_number(place) is not None for place in places)
    at = {place: float(place) if as_line else float(number) for number, place in enumerate(places)}
    step = min(np.diff(sorted(at.values()))) if len(at) > 1 else 1.0
    width = 0.72 * step / max(1, len(groups))
    with theme():
        size = (max(4.6, 1.2 * len(places) * (1 if as_line else len(groups) ** 0.5)) + (1.6 if colour else 0), 3.4)
        figure, axis = plt.subplots(figsize=size, layout="constrained")
        for number, group in enumerate(groups):
            here = table if colour is None else table[table[colour] == group]
            own = runs if colour is None else runs[runs[colour].map(value_text) == group]
            # side by side, so that whiskers of two groups do not cover each other
            shift = (number - (len(groups) - 1) / 2) * (0.12 * step / len(groups) if as_line else width)
            _group(axis, here, own, x, value, at, shift, None if as_line else width, number, plain_text(group, 28))
        low, high = axis.get_ylim()
        if low < 0 < high or not as_line:
            axis.axhline(0, color="0.4", linewidth=0.8, zorder=1)
        axis.set_xticks(list(at.values()), [plain_text(place, 22) for place in places])
        if not as_line:
            axis.grid(axis="x", visible=False)
            if max((len(place) for place in places), default=0) > 12 and len(places) > 3:
                axis.tick_params(axis="x", rotation=25)
        axis.set_xlabel(plain_text(x.removeprefix("p.")))
        axis.set_ylabel(plain_text(ylabel or value.removeprefix("h.").replace("_", " "), 48))
        if colour and groups:
            title = plain_text(colour.removeprefix("p."))
            axis.legend(title=title, loc="center left", bbox_to_anchor=(1.0, 0.5), alignment="left")
    return finished(figure)


def run_map(table: pd.DataFrame, row: str, column: str, *, label: str = "", digits: int = 3) -> Figure:
    """Draw the mean of a number over two parameters as a matrix, each cell with its mean and its number of runs.

    Parameters
    ----------
    table : rows of `lib.evaluation.run_summary.over_runs` by `row` and `column`

    Raises
    ------
    ValueError
        If a cell occurs twice.

    Notes
    -----
    Cells without a run, or whose runs lack the number, are hatched. Where the numbers have both signs, blue is above zero and
    red below, equally strong at equal distance; else dark is the largest shown.
    """
    need_columns(table, [row, column, "mean", "counted"])
    if table.duplicated([row, column]).any():
        raise ValueError(f"a cell occurs twice; average over all but {row} and {column} first")
    rows, columns = in_value_order(table[row]), in_value_order(table[column])
    cells = {(one[row], one[column]): (float(one["mean"]), int(one["counted"])) for one in table.to_dict("records")}
    colours, norm = _shades(table["mean"].to_numpy(float))
    with theme():
        wide = max(0.95, 0.08 * max((min(len(text), 20) for text in columns), default=0))
        size = (wide * max(2, len(columns)) + 2.0, 0.56 * max(2, len(rows)) + 1.3)
        figure, axis = plt.subplots(figsize=size, layout="constrained")
        for (i, one), (j, other) in itertools.product(enumerate(rows), enumerate(columns)):
            mean, counted = cells.get((one, other), (math.nan, 0))
            if math.isnan(mean):
                look: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.85", "hatch": "////", "linewidth": 0}
                axis.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, **look))
                continue
            ground = colours(norm(mean))
            axis.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=ground, edgecolor="white", linewidth=2))
            ink = "white" if np.dot((0.299, 0.587, 0.114), ground[:3]) < 0.55 else "0.15"
            axis.text(j, i - 0.14, f"{mean:.{digits}f}", ha="center", va="center", fontweight="bold", color=ink)
            axis.text(j, i + 0.24, f"n = {counted}", ha="center", va="center", fontsize=7.5, color=ink)
        _matrix(axis, rows, columns)
        axis.set_xlabel(plain_text(column.removeprefix("p.")))
        axis.set_ylabel(plain_text(row.removeprefix("p.")))
        axis.set_title(plain_text(label.removeprefix("h.").replace("_", " "), 52))
    return finished(figure)


def _group(
    axis: Axes,
    table: pd.DataFrame,
    runs: pd.DataFrame,
    x: str,
    value: str,
    at: dict[str, float],
    shift: float,
    width: float | None,
    number: int,
    label: str,
) -> None:
    """Draw one group's means with whiskers, and its runs: as a line, or as bars of a width."""
    shade, marker = PALETTE[number % len(PALETTE)], _MARKERS[number % len(_MARKERS)]
    rows = table.dropna(subset=["mean"])
    where = np.array([at[text] + shift for text in rows[x]])
    means = rows["mean"].to_numpy(float)
    reach = np.nan_to_num(np.vstack([means - rows["low"], rows["high"] - means]).astype(float))
    reach[:, rows["low"].isna()] = np.nan  # no whisker is not a whisker of length zero
    if width is None:
        axis.errorbar(
            where, means, yerr=reach, color=shade, marker=marker, ms=6, lw=1.6, elinewidth=1, capsize=3, label=label
        )
    else:
        look = {"elinewidth": 1.1, "capsize": 3, "ecolor": "0.2"}
        axis.bar(where, means, width=0.9 * width, yerr=reach, color=shade, label=label, error_kw=look)
    spots = [at[text] + shift for text in runs[x].map(value_text)]
    each = numbers_of(runs[value]).to_numpy(float)
    dots: dict[str, Any] = {"facecolors": "none", "edgecolors": shade if width is None else "0.15", "linewidths": 0.8}
    axis.scatter(spots, each, s=16, marker=marker, alpha=0.75, zorder=3, **dots)


def _shades(numbers: np.ndarray) -> tuple[LinearSegmentedColormap, Normalize]:
    known = numbers[~np.isnan(numbers)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if low < 0 < high:
        most = max(-low, high)
        return LinearSegmentedColormap.from_list("signs", [PALETTE[3], "0.96", PALETTE[0]]), Normalize(-most, most)
    span = (high - low) or 1.0
    ends = [_CELL, PALETTE[0]] if low >= 0 else [PALETTE[3], _CELL]
    return LinearSegmentedColormap.from_list("shade", ends), Normalize(low, low + span)


def _matrix(axis: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    axis.set_xlim(-0.5, max(1, len(columns)) - 0.5)
    axis.set_ylim(max(1, len(rows)) - 0.5, -0.5)
    axis.set_xticks(range(len(columns)), [plain_text(text, 20) for text in columns])
    axis.set_yticks(range(len(rows)), [plain_text(text, 24) for text in rows])
    axis.grid(visible=False)
    axis.tick_params(length=0)
    sns.despine(ax=axis, left=True, bottom=True)
