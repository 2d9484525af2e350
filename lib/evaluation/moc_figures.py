"""Figures of teams: accuracy against tokens, who spends them, and order against density.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, one message each, labels from data shown literally. An
arm has one name, colour and marker in all of them; several K of one arm are told apart by text and shade.

Not covered: how the numbers come about (`lib.evaluation.accuracy`), pictures of graphs (`lib.evaluation.graph_figures`), lies that
spread (`lib.evaluation.spread_figures`).
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
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator

from lib.evaluation.accuracy import pareto_front
from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, plain_text, theme
from lib.evaluation.panels import finished
from lib.evaluation.team_looks import Colour, Series, count_tick, legend_below, series_of, short_count

__all__ = ["accuracy_against_tokens", "order_density_maps", "token_bars"]

_PARTS: dict[str, tuple[str, Colour]] = {
    "worker": ("workers", PALETTE[0]),
    "decision": ("decision agent", PALETTE[2]),
    "distiller": ("distiller", PALETTE[1]),
}
_KINDS = {"prompt": ("read", ""), "new": ("written", "////")}


def accuracy_against_tokens(
    table: pd.DataFrame,
    *,
    panel: str = "question_set",
    value: str = "accuracy",
    note: str | None = None,
    xlabel: str = "tokens a question",
) -> Figure:
    """Draw accuracy against tokens twice: with the tokens of agents alone, as the paper counts them, and with those of the distiller.

    Parameters
    ----------
    table : one row an arm, K and panel: ``arm``, ``k``, the `panel` column, `value` with ``low`` and ``high`` (from
        `lib.evaluation.accuracy.accuracy_table`), ``agent_tokens_mean`` and ``distiller_tokens_mean`` (from `token_means`)
    panel : column with one row of panels a value
    note : column of text written at the marks on the right, e.g. a density

    Notes
    -----
    Bars are what ``low`` and ``high`` hold, by `accuracy_table` 95 % Wilson intervals. The stepped line joins the marks that no
    other beats in both directions; from left to right it is what more accuracy costs. On the right, a thin line leads from
    an arm's place on the left to where the distiller's tokens put it. Rows without a number are not drawn.
    """
    tokens = ["agent_tokens_mean", "distiller_tokens_mean"]
    need_columns(table, ["arm", "k", panel, value, "low", "high", *tokens, *([note] if note else [])])
    rows = table.assign(**{name: table[name].astype("Float64").to_numpy(float, na_value=np.nan) for name in tokens})
    rows["total_tokens_mean"] = rows[tokens].sum(axis=1, skipna=False)
    series = series_of(table)
    titles = list(dict.fromkeys(rows[panel])) or [""]
    with theme():
        size = (8.2, 2.75 * len(titles) + 0.7)
        figure, axes = plt.subplots(len(titles), 2, figsize=size, squeeze=False, sharey="row", layout="constrained")
        for across, title in zip(axes, titles, strict=True):
            here = rows[rows[panel] == title]
            highest = float(np.nanmax([0.0, *here["agent_tokens_mean"], *here["total_tokens_mean"]]))
            for axis, cost in zip(across, ("agent_tokens_mean", "total_tokens_mean"), strict=True):
                drawn = here.dropna(subset=[cost, value])
                if cost == "total_tokens_mean":
                    for row in drawn.to_dict("records"):
                        ends = [row["agent_tokens_mean"], row["total_tokens_mean"]]
                        axis.plot(ends, [row[value]] * 2, color="0.55", linewidth=0.9, linestyle=":", zorder=1.5)
                for one in series:
                    _marks(axis, one.rows(drawn), one, cost, value, note if axis is across[1] else None)
                _front(axis, drawn, cost, value)
                axis.set_xlim(0, 1.12 * highest or 1.0)
                axis.xaxis.set_major_locator(MaxNLocator(5))
                axis.xaxis.set_major_formatter(FuncFormatter(count_tick))
            across[0].set_ylabel(value.capitalize().replace("_", " "))
            across[0].set_title(f"{plain_text(title, 24)}: agents alone" if title else "Agents alone")
            across[1].set_title("With the distiller")
        for axis, words in zip(axes[-1], ("Agents'", "All"), strict=True):
            axis.set_xlabel(f"{words} {xlabel}")
        legend_below(figure, axes.flat, columns=4)
    return finished(figure)


def token_bars(table: pd.DataFrame, *, panel: str = "question_set", note: str | None = None) -> Figure:
    """Draw who read and wrote how many tokens a question, one stacked bar an arm and K.

    Parameters
    ----------
    table : ``arm``, ``k``, the `panel` column, and ``<part>_prompt_tokens_mean``, ``<part>_new_tokens_mean`` of worker, decision and
        distiller (from `lib.evaluation.accuracy.token_means`)
    note : column of text after a bar's name, e.g. a density

    Notes
    -----
    The number at the end is the whole bar. Where a part is unknown the bar ends in a question mark: it is longer than drawn.
    """
    parts = {(part, kind): f"{part}_{kind}_tokens_mean" for part, kind in itertools.product(_PARTS, _KINDS)}
    need_columns(table, ["arm", "k", panel, *parts.values(), *([note] if note else [])])
    titles = list(dict.fromkeys(table[panel])) or [""]
    series = series_of(table)
    counts = [max(1, int((table[panel] == title).sum())) for title in titles]
    with theme():
        figure, axes = plt.subplots(
            len(titles),
            1,
            figsize=(8.0, 0.36 * sum(counts) + 0.55 * len(titles) + 1.0),
            squeeze=False,
            sharex=True,
            height_ratios=[count + 0.8 for count in counts],
            layout="constrained",
        )
        longest = 0.0
        for axis, title in zip(axes[:, 0], titles, strict=True):
            here = table[table[panel] == title]
            bars = [(one, row) for one in series for row in one.rows(here).to_dict("records")]
            places = np.arange(len(bars))[::-1]
            for place, (_, row) in zip(places, bars, strict=True):
                longest = max(longest, _stack(axis, int(place), row, parts))
            names = [one.name + (f", {plain_text(row[note], 20)}" if note else "") for one, row in bars]
            axis.set_yticks(places, names)
            axis.set_ylim(-0.6, max(1, len(bars)) - 0.4)
            axis.set_title(plain_text(title))
            axis.grid(visible=False, axis="y")
            axis.tick_params(left=False)
            sns.despine(ax=axis, left=True)
        axes[-1][0].set_xlim(0, 1.13 * longest or 1.0)
        axes[-1][0].xaxis.set_major_formatter(FuncFormatter(count_tick))
        axes[-1][0].set_xlabel("Tokens a question (mean)")
        figure.legend(
            handles=[
                Patch(facecolor=colour, edgecolor="white", hatch=hatch, label=f"{word}: {verb}")
                for (word, colour), (verb, hatch) in itertools.product(_PARTS.values(), _KINDS.values())
            ],
            loc="outside lower center",
            ncols=3,
        )
    return finished(figure)


def order_density_maps(
    table: pd.DataFrame,
    *,
    value: str = "accuracy",
    cost: str = "total_tokens_mean",
    count: str = "asked",
    panel: str = "question_set",
    row: str = "requested_density",
    column: str = "k",
    labels: tuple[str, str] = ("Accuracy", "Tokens a question"),
) -> Figure:
    """Draw accuracy and tokens for every density and K, as two matrices beside each other.

    Parameters
    ----------
    table : one row a density, K and panel, with `value`, `cost` and `count` (questions behind them)
    row, column : what rows and columns are
    labels : what the two matrices show

    Raises
    ------
    ValueError
        If a cell occurs twice in a panel.

    Notes
    -----
    Cells that were not run, or have no number, are hatched. Colours span the numbers shown in all panels, so pale and dark are
    no judgement: with n questions an accuracy has the interval of `accuracy_table`, often wider than the whole scale.
    """
    need_columns(table, [row, column, panel, value, cost, count])
    if table.duplicated([panel, row, column]).any():
        raise ValueError(f"a cell occurs twice; give each {row} and {column} once a {panel}")
    titles = list(dict.fromkeys(table[panel])) or [""]
    rows, columns = sorted(table[row].dropna().unique()), sorted(table[column].dropna().unique())
    shades = (("0.97", PALETTE[0]), ("0.97", PALETTE[1]))
    with theme():
        size = (2 * (0.92 * max(2, len(columns)) + 1.5), (0.52 * max(2, len(rows)) + 0.75) * len(titles) + 0.15)
        figure, axes = plt.subplots(len(titles), 2, figsize=size, squeeze=False, layout="constrained")
        for place, (name, shade) in enumerate(zip((value, cost), shades, strict=True)):
            colours = LinearSegmentedColormap.from_list("shade", shade).with_extremes(bad="white")
            numbers = table[name].astype("Float64").to_numpy(float, na_value=np.nan)
            norm = _span(numbers)
            for across, title in zip(axes, titles, strict=True):
                here = table[table[panel] == title].set_index([row, column])
                for (i, one), (j, other) in itertools.product(enumerate(rows), enumerate(columns)):
                    known = (one, other) in here.index
                    number = here.loc[(one, other), name] if known else math.nan
                    text = "" if pd.isna(number) else f"{number:.3f}" if name == value else short_count(number)
                    small = f"n = {here.loc[(one, other), count]:g}" if text else ""
                    _cell(
                        across[place],
                        (i, j),
                        math.nan if pd.isna(number) else float(number),
                        text,
                        small,
                        norm,
                        colours,
                    )
                _axes_of_map(across[place], _even(rows), _even(columns))
                across[place].set_title(f"{plain_text(title, 24)}: {labels[place].lower()}" if title else labels[place])
                across[place].set_xlabel("K" if column == "k" else plain_text(column.replace("_", " ")))
        for across in axes:
            across[0].set_ylabel("Density ρ" if row == "requested_density" else plain_text(row.replace("_", " ")))
    return finished(figure)


# ----------------------------------------------------------------------------------------------------------------------- marks


def _front(axis: Axes, rows: pd.DataFrame, cost: str, value: str) -> None:
    best = rows[pareto_front(rows, cost, value)].sort_values([cost, value])
    axis.step(
        best[cost],
        best[value],
        where="post",
        color="0.25",
        linewidth=1.1,
        linestyle="--",
        zorder=1.6,
        label="Pareto front",
    )


def _marks(axis: Axes, rows: pd.DataFrame, one: Series, cost: str, value: str, note: str | None) -> None:
    if rows.empty:
        return
    reach = np.array([rows[value] - rows["low"], rows["high"] - rows[value]], dtype=float)
    bars: dict[str, Any] = {"yerr": np.clip(np.nan_to_num(reach), 0, None), "elinewidth": 1.0, "capsize": 2.2}
    axis.errorbar(rows[cost], rows[value], linestyle="none", color=one.colour, zorder=2, **bars)
    rim: dict[str, Any] = {"markersize": 7, "markeredgecolor": "0.25", "markeredgewidth": 0.7}
    # Marks lie above all bars, which cross where arms cost about the same.
    axis.plot(rows[cost], rows[value], one.marker, color=one.colour, label=one.name, zorder=3, **rim)
    for row in rows.to_dict("records") if note else []:
        place: dict[str, Any] = {"xytext": (5, 4), "textcoords": "offset points", "fontsize": 7.5, "color": "0.25"}
        halo = [withStroke(linewidth=2, foreground="white")]
        axis.annotate(plain_text(row[note], 16), (row[cost], row[value]), path_effects=halo, zorder=2.5, **place)


def _stack(axis: Axes, place: int, row: dict[Any, Any], parts: dict[tuple[str, str], str]) -> float:
    """Draw one stacked bar with its sum, and return the sum of what is known."""
    left, unknown = 0.0, False
    for (part, kind), column in parts.items():
        number = row[column]
        if pd.isna(number):
            unknown = True
            continue
        look: dict[str, Any] = {
            "color": _PARTS[part][1],
            "hatch": _KINDS[kind][1],
            "edgecolor": "white",
            "linewidth": 0.6,
        }
        axis.barh(place, float(number), left=left, height=0.72, **look)
        left += float(number)
    text = f"{short_count(left)}{' + ?' if unknown else ''}"
    axis.annotate(text, (left, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color="0.2")
    return left


def _span(numbers: np.ndarray) -> Normalize:
    known = numbers[~np.isnan(numbers)]
    if not len(known):
        return Normalize(0, 1)
    low, high = float(known.min()), float(known.max())
    # Equal numbers share one pale shade; a little room below keeps the lowest from looking like none.
    return Normalize(low - 0.15 * (high - low or 1.0), high if high > low else low + 1.0)


def _cell(
    axis: Axes, at: tuple[int, int], number: float, text: str, small: str, norm: Normalize, colours: Colormap
) -> None:
    row, column = at
    if math.isnan(number):
        look: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.85", "hatch": "////", "linewidth": 0}
        axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **look))
        return
    ground = colours(norm(number))
    axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=ground, edgecolor="white", linewidth=2))
    ink = "white" if np.dot((0.299, 0.587, 0.114), ground[:3]) < 0.55 else "0.15"
    axis.text(column, row - 0.14, text, ha="center", va="center", fontweight="bold", fontsize=9, color=ink)
    axis.text(column, row + 0.24, small, ha="center", va="center", fontsize=7.5, color=ink)


def _even(numbers: Sequence[float]) -> list[str]:
    """Return numbers with the same count of decimals."""
    digits = max((len(f"{number:g}".partition(".")[2]) for number in numbers), default=0)
    return [f"{number:.{digits}f}" for number in numbers]


def _axes_of_map(axis: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    axis.set_xlim(-0.5, max(1, len(columns)) - 0.5)
    axis.set_ylim(max(1, len(rows)) - 0.5, -0.5)
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.grid(visible=False)
    axis.tick_params(length=0)
    sns.despine(ax=axis, left=True, bottom=True)
