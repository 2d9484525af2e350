"""Figures of a lie in a team: who adopts it, by arm and by how far a reader stands from the one who tells it.

Same rules as `lib.evaluation.moc_figures`.

Not covered: how adoption is told (the frames are described by their columns alone), the graphs (`lib.evaluation.graph_figures`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, PercentFormatter

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import plain_text, theme
from lib.evaluation.panels import finished, panel_row
from lib.evaluation.team_looks import Series, legend_below, series_of

__all__ = ["spread_bars"]


def spread_bars(
    table: pd.DataFrame,
    *,
    control: pd.DataFrame | None = None,
    panel: str | None = None,
    ylabel: str = "Share that adopts the wrong answer",
) -> Figure:
    """Draw how many readers adopt a lie, by arm and by how far they stand from the one who tells it.

    Parameters
    ----------
    table : one row an arm, K and ``reach`` (``hop 1``, ``hop 2``, ..., ``unreached``, ``decision``; named as by
        `lib.moc.poison.spread_summary`), with ``share``, ``low``, ``high``, ``hits`` and ``known`` (from
        `lib.evaluation.accuracy.share_table`)
    control : the same columns of runs without attack: how many came to the same answer by themselves, drawn as black lines
    panel : column with one panel a value, e.g. the kind of attack

    Notes
    -----
    Numbers above the bars are readers who adopted it, of those who could. Bars of intervals are what ``low`` and ``high`` hold. On
    grey ground stand readers that the attacker cannot reach: whatever they do is no effect of the lie.
    """
    keys = [panel] if panel else []
    for frame in (table, control) if control is not None else (table,):
        need_columns(frame, [*keys, "arm", "k", "reach", "share", "low", "high", "hits", "known"])
    titles: list[Any] = list(dict.fromkeys(table[panel])) if panel else [None]
    reaches = sorted(dict.fromkeys(table["reach"]), key=_reach_place)
    series = series_of(table)
    width = 0.84 / max(1, len(series))
    with theme():
        across = max(3.6, len(reaches) * max(0.75, 0.42 * len(series)) + 0.5)
        figure, axes = panel_row(len(titles), width=across, margin=0.5, height=3.5)
        for axis, title in zip(axes, titles, strict=True):
            rows = table if title is None else table[table[panel] == title]
            noise = control if control is None or title is None else control[control[panel] == title]
            if "unreached" in reaches:
                middle = reaches.index("unreached")
                axis.axvspan(middle - 0.5, middle + 0.5, color="0.93", linewidth=0, zorder=0)
            for place, one in enumerate(series):
                shift = width * (place - (len(series) - 1) / 2)
                _adopted(axis, one.rows(rows), reaches, one, shift, width)
                if noise is not None:
                    _noise(axis, one.rows(noise), reaches, shift, width)
            axis.set_xticks(range(len(reaches)), [_reach_name(reach) for reach in reaches])
            axis.set_xlim(-0.5, max(1, len(reaches)) - 0.5)
            axis.set_ylim(0, 1.12)  # room for the numbers above a bar that ends at 100 %
            axis.yaxis.set_major_locator(FixedLocator([0, 0.2, 0.4, 0.6, 0.8, 1]))
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
            axis.grid(visible=False, axis="x")
            axis.set_title("" if title is None else plain_text(title))
        axes[0].set_ylabel(ylabel)
        legend_below(figure, axes, columns=max(2, int(figure.get_figwidth() / 1.9)))
    return finished(figure)


def _reach_place(reach: str) -> tuple[int, str]:
    """Return where a reach stands: hops by number, the decision, at last those that nothing reaches."""
    word, _, number = str(reach).partition(" ")
    if word == "hop" and number.isdigit():
        return int(number), ""
    return {"decision": 1_000_000, "unreached": 1_000_002}.get(str(reach), 1_000_001), str(reach)


def _reach_name(reach: str) -> str:
    return {"decision": "decision\nagent", "unreached": "not reached\n(control)"}.get(reach, plain_text(reach, 14))


def _adopted(axis: Axes, rows: pd.DataFrame, reaches: list[str], one: Series, shift: float, width: float) -> None:
    known = rows[rows["share"].notna()]
    across = np.array([reaches.index(reach) + shift for reach in known["reach"]])
    share = known["share"].to_numpy(float)
    reach = np.array([share - known["low"], known["high"] - share], dtype=float)
    axis.bar(
        across,
        share,
        width=0.9 * width,
        yerr=np.clip(np.nan_to_num(reach), 0, None),
        color=one.colour,
        edgecolor="0.3",
        linewidth=0.5,
        error_kw={"elinewidth": 0.9, "capsize": 2, "ecolor": "0.25"},
        label=one.name,
        zorder=2,
    )
    for place, row in zip(across, known.to_dict("records"), strict=True):
        top = max(row["share"], 0.0 if pd.isna(row["high"]) else row["high"])
        axis.annotate(
            f"{row['hits']:g}/{row['known']:g}",
            (place, top),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=6.5,
            color="0.25",
        )


def _noise(axis: Axes, rows: pd.DataFrame, reaches: list[str], shift: float, width: float) -> None:
    for row in rows[rows["share"].notna()].to_dict("records"):
        if row["reach"] in reaches:
            middle = reaches.index(row["reach"]) + shift
            ends = [middle - 0.42 * width, middle + 0.42 * width]
            axis.plot(ends, [row["share"]] * 2, color="black", linewidth=2, zorder=4, label="without attack")
