"""Figures of what happens inside a team: similarities and merges, edge probabilities, tokens by hop, two arms on one graph.

Same rules as `lib.evaluation.figures`: one message each, colours of the colour-blind palette with numbers or hatches that repeat
them, labels from data shown literally.

Not covered: graphs as pictures (`lib.evaluation.graph_figures`); how the numbers come about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, plain_text, theme
from lib.evaluation.panels import finished, shared_legend
from lib.evaluation.team_looks import series_of

__all__ = ["hop_bars", "pair_maps", "similarity_map", "two_measures"]

_MOST_NUMBERS = 14  # items up to which a cell has room for its number
_HOPS = (0, 1, 2, 4, 8)  # places of the palette for hops 1, 2, ..., as in pictures of graphs
_HOP_HATCHES = ("", "///", "\\\\\\", "xxx", "++")
_PART_LOOKS: tuple[tuple[tuple[float, float, float] | str, str], ...] = (
    ("0.82", ""),
    ("0.6", ""),
    (PALETTE[7], "..."),
    (PALETTE[6], "xx"),
)
_MARKED = (PALETTE[5], "++")
_ARM_HATCHES = ("///", "", "...", "xx")


def similarity_map(
    similarity: np.ndarray,
    labels: Sequence[str],
    merged: Sequence[tuple[int, int]] = (),
    *,
    threshold: float | None = None,
) -> Figure:
    """Draw how similar every two messages are, and which pairs are merged.

    Parameters
    ----------
    similarity : (n, n) symmetric; the half below the diagonal is drawn
    labels : (n,) of the messages, in the order in which they are read
    merged : pairs of positions that are merged, framed
    threshold : similarity from which on a pair may be merged, marked on the colour bar

    Raises
    ------
    ValueError
        If the matrix is not (n, n) for n labels of at least two messages.
    """
    n = len(labels)
    if similarity.shape != (n, n) or n < 2:
        raise ValueError(f"similarity: shape {similarity.shape} does not fit {n} labels, at least two are needed")
    cells = np.where(np.tri(n, k=-1, dtype=bool), similarity, np.nan)
    side = max(2.8, 0.55 * n)
    with theme():
        figure, axis = plt.subplots(figsize=(side + 3.4, side + 0.9), layout="constrained")
        lowest = min(0.0, float(np.nanmin(cells)))
        norm = Normalize(lowest, 1.0)
        mesh = axis.imshow(cells, cmap=_from_white(), norm=norm, aspect="equal", interpolation="none")
        for row in range(n):
            for column in range(row):
                _number(axis, row, column, cells[row, column], norm, numbered=n <= _MOST_NUMBERS)
        for pair in merged:
            low, high = sorted(pair)
            box = Rectangle((low - 0.46, high - 0.46), 0.92, 0.92, fill=False, edgecolor=PALETTE[3], linewidth=2.2)
            axis.add_patch(box)
        axis.set_xlim(-0.5, n - 1.5)
        axis.set_ylim(n - 0.5, 0.5)
        axis.set_xticks(range(n - 1), [plain_text(label, 32) for label in labels[:-1]], rotation=35, ha="right")
        axis.set_yticks(range(1, n), [plain_text(label, 32) for label in labels[1:]])
        _bare(axis)
        bar = figure.colorbar(mesh, ax=axis, shrink=0.75, aspect=20, label="Cosine similarity")
        bar.outline.set_visible(False)
        if threshold is not None and lowest <= threshold <= 1.0:
            bar.ax.axhline(threshold, color=PALETTE[3], linewidth=1.6)
            bar.ax.annotate(
                "merged from here",
                (0, threshold),
                (-3, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=7.5,
            )
    return finished(figure)


def pair_maps(
    panels: Mapping[str, np.ndarray],
    names: Sequence[str],
    *,
    label: str,
    limits: tuple[float, float] = (0.0, 1.0),
) -> Figure:
    """Draw a number for every ordered pair of agents, one panel each, on one scale.

    Parameters
    ----------
    panels : title -> (n, n); row i, column j belongs to "i feeds j"; NaN is hatched
    names : (n,) of the agents
    label : what the numbers are, for the colour bar
    limits : ends of the scale

    Raises
    ------
    ValueError
        Without a panel, or where a matrix is not (n, n).
    """
    n = len(names)
    if not panels or any(matrix.shape != (n, n) for matrix in panels.values()):
        raise ValueError(f"panels: need at least one, each of shape ({n}, {n}) for {n} names")
    side = max(2.2, 0.4 * n)
    count = len(panels)
    with theme():
        figure, axes = plt.subplots(
            1,
            count,
            figsize=((side + 0.35) * count + 2.2, side + 1.3),
            squeeze=False,
            sharey=True,
            layout="constrained",
        )
        norm = Normalize(*limits)
        for axis, (title, matrix) in zip(axes[0], panels.items(), strict=True):
            mesh = axis.imshow(matrix, cmap=_from_white(), norm=norm, aspect="equal", interpolation="none")
            for row in range(n):
                for column in range(n):
                    _number(axis, row, column, matrix[row, column], norm, numbered=n <= _MOST_NUMBERS)
            axis.set_title(plain_text(title, int(12 * side)))
            axis.set_xticks(range(n), [str(agent) for agent in range(n)])
            axis.set_xlabel("is fed")
            _bare(axis)
        axes[0][0].set_yticks(range(n), [f"{plain_text(name, 22)}  {agent}" for agent, name in enumerate(names)])
        axes[0][0].set_ylabel("feeds")
        bar = figure.colorbar(mesh, ax=list(axes[0]), shrink=0.8, aspect=20, label=label)
        bar.outline.set_visible(False)
    return finished(figure)


def hop_bars(
    frame: pd.DataFrame, parts: Sequence[str], *, by: str = "arm", xlabel: str = "Tokens a question", marked: str = ""
) -> Figure:
    """Draw how many tokens each arm reads and from where, one bar an arm.

    Parameters
    ----------
    frame : one row a bar: column `by` and a number for each of `parts`; a missing number is left out and marked with a dash
    parts : columns in drawing order; their names are the legend. Those called "hop 1", "hop 2" and so on have the colours that hops
        have in `lib.evaluation.graph_figures`; there are at most four others
    marked : a part of another kind, drawn as a bar of its own below the stack, such as what merging costs

    Raises
    ------
    ValueError
        For more parts than looks, or a column that is missing.
    """
    need_columns(frame, [by, *parts, *([marked] if marked else [])])
    others = [part for part in parts if not part.startswith("hop ")]
    if len(others) > len(_PART_LOOKS):
        raise ValueError(f"parts: at most {len(_PART_LOOKS)} beside hops can be told apart, not {len(others)}")
    looks = dict(zip(others, _PART_LOOKS, strict=False))
    looks |= {part: _hop_look(int(part.removeprefix("hop "))) for part in parts if part not in looks}
    tall = 0.56 if marked else 0.4
    with theme():
        figure, axis = plt.subplots(figsize=(7.0, 1.3 + tall * len(frame)), layout="constrained")
        places, thick = np.arange(len(frame), dtype=float), 0.5 if marked else 0.66
        left = np.zeros(len(frame))
        for part in parts:
            colour, hatch = looks[part]
            width = frame[part].to_numpy(float, na_value=math.nan)
            look = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
            axis.barh(places, np.nan_to_num(width), thick, left=left, label=plain_text(part, 40), **look)
            left += np.nan_to_num(width)
        for place, end in zip(places, left, strict=True):
            axis.annotate(f"{end:,.0f}", (end, place), (3, 0), textcoords="offset points", va="center", fontsize=8)
        if marked:
            width = frame[marked].to_numpy(float, na_value=math.nan)
            colour, hatch = _MARKED
            below = places + thick / 2 + 0.13
            axis.barh(below, np.nan_to_num(width), 0.2, color=colour, hatch=hatch, edgecolor="white", label=marked)
            for place, end in zip(below, width, strict=True):
                told = "\u2013" if math.isnan(end) else f"{end:,.0f}" if end else ""
                at = (0.0 if math.isnan(end) else end, place)
                axis.annotate(told, at, (3, 0), textcoords="offset points", va="center", fontsize=7.5, color="0.35")
        axis.set_yticks(places, [plain_text(name, 30) for name in frame[by]])
        axis.invert_yaxis()
        axis.set_xlabel(xlabel)
        axis.set_xlim(
            0,
            1.12
            * max(1.0, float(left.max(initial=0.0)), *(frame[marked].fillna(0).astype(float) if marked else [0.0])),
        )
        axis.xaxis.set_major_locator(MaxNLocator(6))
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.grid(axis="y", visible=False)
        entries = axis.get_legend_handles_labels()
        figure.legend(*entries, loc="outside lower center", ncols=min(6, len(entries[0])))
    return finished(figure)


def _hop_look(hop: int) -> tuple[tuple[float, float, float], str]:
    """Return colour and hatch of a hop, the same in every figure; beyond five they repeat."""
    return PALETTE[_HOPS[(hop - 1) % len(_HOPS)]], _HOP_HATCHES[(hop - 1) % len(_HOP_HATCHES)]


def two_measures(
    table: pd.DataFrame,
    *,
    by: str = "group",
    value: str = "accuracy",
    cost: str = "agent_prompt_tokens_mean",
    labels: tuple[str, str] = ("Accuracy", "Input tokens a question"),
) -> Figure:
    """Draw what each arm gets right and what it reads, as bars beside each other (form of the MOC paper's Figure 4).

    Parameters
    ----------
    table : one row a `by` group, ``arm`` and ``k``: `value` with ``low`` and ``high`` (from `lib.evaluation.accuracy.accuracy_table`),
        `cost` with ``<cost without _mean>_low`` and ``_high`` (from `lib.evaluation.accuracy.token_means`)
    labels : what the two are, with units

    Notes
    -----
    Bars of intervals are what the columns hold: by these tables 95 %, Wilson for accuracy, whole questions resampled for tokens. A
    missing number has no bar.
    """
    stem = cost.removesuffix("_mean")
    need_columns(table, [by, "arm", "k", value, "low", "high", cost, f"{stem}_low", f"{stem}_high"])
    groups, series = list(dict.fromkeys(table[by])), series_of(table)
    width = 0.76 / max(1, len(series))
    with theme():
        figure, axes = plt.subplots(1, 2, figsize=(2.6 + 2.4 * max(1, len(groups)), 3.3), layout="constrained")
        for axis, name, ends, label in (
            (axes[0], value, ("low", "high"), labels[0]),
            (axes[1], cost, (f"{stem}_low", f"{stem}_high"), labels[1]),
        ):
            tops = []
            for place, one in enumerate(series):
                rows = one.rows(table).set_index(by).reindex(groups)
                numbers = rows[[name, *ends]].astype("Float64").to_numpy(float, na_value=math.nan)
                at = np.arange(len(groups)) + width * (place - (len(series) - 1) / 2)
                look = {"color": one.colour, "hatch": _ARM_HATCHES[place % 4], "edgecolor": "white"}
                axis.bar(at, numbers[:, 0], 0.92 * width, label=one.name, **look)
                reach = np.abs(numbers[:, 1:] - numbers[:, :1]).T
                axis.errorbar(at, numbers[:, 0], yerr=reach, fmt="none", ecolor="0.2", elinewidth=1, capsize=3)
                tops += [*numbers[:, 0], *numbers[:, 2]]
            axis.set_xticks(range(len(groups)), [plain_text(group, 30) for group in groups])
            axis.set_ylabel(label)
            axis.set_ylim(0, 1.0 if name == value else 1.08 * float(np.nanmax([1.0, *tops])))
            axis.grid(axis="x", visible=False)
        axes[1].yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        shared_legend(figure, axes)
    return finished(figure)


def _number(axis: Axes, row: int, column: int, value: float, norm: Normalize, *, numbered: bool) -> None:
    """Write a cell's number; hatch the cell where there is none."""
    if math.isnan(value):
        box = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch="////", edgecolor="0.8", linewidth=0)
        axis.add_patch(box)
    elif numbered:
        colour = "white" if norm(value) > 0.6 else "0.25"
        axis.text(
            column, row, f"{value:.2f}".replace("-", "\u2212"), ha="center", va="center", fontsize=7.5, color=colour
        )


def _bare(axis: Axes) -> None:
    axis.grid(visible=False)
    axis.tick_params(length=0)
    sns.despine(ax=axis, left=True, bottom=True)


def _from_white() -> Colormap:
    """Return a scale from near white to the palette's blue; missing stays white."""
    return LinearSegmentedColormap.from_list("share", ["0.97", PALETTE[0]]).with_extremes(bad="white")
