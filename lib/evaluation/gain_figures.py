"""Figures of arms and gains: what a receiver does alone, with everything and with a message, and what the message was worth.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, one message each, colours of the colour-blind palette with
markers that repeat them, labels from data shown literally. An arm keeps its colour and marker in every figure of coordination;
blue is a gain and orange red a loss.

Not covered: how the numbers come about (`lib.evaluation.paired_gain`); budgets and forms (`lib.evaluation.form_figures`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, SIGNS, plain_text, theme
from lib.evaluation.panels import finished, panel_row, shared_legend
from lib.evaluation.team_looks import legend_below

__all__ = ["ARM_LOOKS", "arm_accuracies", "gain_intervals"]

ARM_LOOKS: dict[str, tuple[str, Any, str]] = {
    "RO": ("alone (RO)", "0.45", "s"),
    "SF": ("full context (SF)", PALETTE[2], "D"),
    "MA": ("with a message (MA)", PALETTE[0], "o"),
}
_SENDERS = ("o", "^", "v", "P", "X", "h")  # markers of MA, by sender in order of appearance


def arm_accuracies(
    table: pd.DataFrame, *, panel: str = "receiver_model", row: str = "benchmark", sender: str = "sender_model"
) -> Figure:
    """Draw the accuracy of every arm, a line for each family, a panel for each receiver (paper, Fig. 3).

    Parameters
    ----------
    table : ``arm``, `row`, `panel`, `sender` (null but for MA), ``accuracy``, ``low``, ``high``; from
        `lib.evaluation.paired_gain.accuracy_by`

    Notes
    -----
    A thin line leads from RO to each MA: blue where the message helped, red where it harmed, grey where both are equal. Bars
    are the intervals of the table; a mark without a bar has none.
    """
    need_columns(table, ["arm", row, panel, sender, "accuracy", "low", "high"])
    panels, names = list(dict.fromkeys(table[panel])), list(dict.fromkeys(table[row]))
    senders = list(dict.fromkeys(table.loc[table["arm"] == "MA", sender].dropna()))
    lines = 1 + max(1, len(senders)) + 1  # RO, each MA and SF have a height of their own
    with theme():
        width = 3.3 if len(panels) > 1 else 5.0
        figure, axes = panel_row(len(panels), width=width, margin=1.2, height=0.24 * lines * max(1, len(names)) + 1.35)
        for axis, title in zip(axes, panels, strict=False):
            for place, name in enumerate(names):
                here = table[(table[panel] == title) & (table[row] == name)]
                _family(axis, here, place, senders, sender)
            _rows(axis, names, first=axis is axes[0])
            axis.set_xlim(-0.03, 1.03)
            axis.set_xlabel("Joint accuracy")
            axis.set_title(plain_text(title, 34))
        shared_legend(figure, axes)
    return finished(figure)


def gain_intervals(
    table: pd.DataFrame,
    *,
    panel: str = "contrast",
    row: str = "benchmark",
    series: str = "receiver_model",
    xlabel: str = "Difference in joint accuracy",
    published: pd.DataFrame | None = None,
) -> Figure:
    """Draw differences with their intervals around zero, families below each other, series beside each other in a family.

    Parameters
    ----------
    table : `row`, `panel`, `series`, ``gain``, ``low``, ``high`` (from `lib.evaluation.paired_gain.gain_table`)
    published : `row`, `panel`, ``gain``, and ``low``, ``high`` where known: the paper's, drawn as open diamonds above the family

    Notes
    -----
    Blue marks are gains and red ones losses whose interval leaves out zero; grey ones could be either. No bar: no interval.
    """
    need_columns(table, [row, panel, series, "gain", "low", "high"])
    panels, names = list(dict.fromkeys(table[panel])), list(dict.fromkeys(table[row]))
    order = list(dict.fromkeys(table[series]))
    lines = len(order) + (published is not None)
    with theme():
        width = 3.3 if len(panels) > 1 else 5.0
        figure, axes = panel_row(len(panels), width=width, margin=1.2, height=0.22 * lines * max(1, len(names)) + 1.45)
        for axis, title in zip(axes, panels, strict=False):
            axis.axvline(0, color="0.3", linewidth=0.9, zorder=1)
            for place, name in enumerate(names):
                heights = place + _spread(lines)
                here = table[(table[panel] == title) & (table[row] == name)]
                for height, one in zip(heights[lines - len(order) :], order, strict=True):
                    for entry in here[here[series] == one].to_dict("records"):
                        _difference(axis, entry, float(height), _SENDERS[order.index(one) % len(_SENDERS)], one)
                if published is not None:
                    theirs = published[(published[panel] == title) & (published[row] == name)]
                    for entry in theirs.to_dict("records"):
                        _bar(axis, entry, float(heights[0]), "0.2", "D", "paper", value="gain", fill="white")
            _rows(axis, names, first=axis is axes[0])
            axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            axis.set_xlabel(xlabel)
            axis.set_title(plain_text(title, 38))
        legend_below(figure, axes, columns=2)
        for handle in figure.legends[0].legend_handles if figure.legends else []:
            _grey(handle)
    return finished(figure)


def _family(axis: Axes, here: pd.DataFrame, place: int, senders: list[object], sender: str) -> None:
    lines = [("RO", None), *(("MA", one) for one in senders), ("SF", None)]
    heights = dict(zip(lines, place + _spread(len(lines)), strict=True))
    alone = here.loc[here["arm"] == "RO", "accuracy"].dropna()
    for (arm, one), height in heights.items():
        rows = here[here["arm"] == arm]
        rows = rows if one is None else rows[rows[sender] == one]
        words, colour, marker = ARM_LOOKS[arm]
        if one is not None:
            marker = _SENDERS[senders.index(one) % len(_SENDERS)]
            words = f"message of {plain_text(one, 24)}"
        for entry in rows.to_dict("records"):
            if arm == "MA" and len(alone) and not pd.isna(entry["accuracy"]):
                start = float(alone.iloc[0])
                moved = entry["accuracy"] - start
                colour_of_line: Any = SIGNS["positive" if moved > 0 else "negative"] if moved else "0.55"
                axis.plot(
                    [start, entry["accuracy"]],
                    [heights["RO", None], height],
                    color=colour_of_line,
                    linewidth=1.1,
                    zorder=1.5,
                )
            _bar(axis, entry, float(height), colour, marker, words, value="accuracy")


def _difference(axis: Axes, entry: dict[Any, Any], height: float, marker: str, name: object) -> None:
    clear = not pd.isna(entry["low"]) and (entry["low"] > 0 or entry["high"] < 0)
    colour: Any = SIGNS["positive" if entry["gain"] > 0 else "negative"] if clear else "0.55"
    _bar(axis, entry, height, colour, marker, plain_text(name, 48), value="gain")


def _bar(
    axis: Axes,
    entry: dict[Any, Any],
    height: float,
    colour: Any,
    marker: str,
    label: str,
    *,
    value: str,
    fill: Any = None,
) -> None:
    """Draw one mark with its interval; nothing for a null."""
    if pd.isna(entry[value]):
        return
    if not (pd.isna(entry["low"]) or pd.isna(entry["high"])):
        axis.plot([entry["low"], entry["high"]], [height, height], color=colour, linewidth=1.4, zorder=2)
    look = {"markersize": 6.2, "markerfacecolor": colour if fill is None else fill, "markeredgecolor": colour}
    axis.plot([entry[value]], [height], marker, label=label, zorder=3, **look)


def _spread(lines: int) -> np.ndarray:
    """Return the heights of so many lines within a row, from top to bottom (the axis points down)."""
    return np.linspace(-0.36, 0.36, lines) if lines > 1 else np.zeros(1)


def _rows(axis: Axes, names: list[object], *, first: bool) -> None:
    axis.set_ylim(max(1, len(names)) - 0.45, -0.55)
    axis.set_yticks(range(len(names)), [plain_text(name, 30) if first else "" for name in names])
    for place in range(1, len(names)):
        axis.axhline(place - 0.5, color="0.85", linewidth=0.8, zorder=0.5)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)


def _grey(handle: Any) -> None:
    """Let a legend entry speak of the marker alone: in the figure its colour says something else."""
    if handle.get_markerfacecolor() != "white":
        handle.set_markerfacecolor("0.55")
        handle.set_markeredgecolor("0.55")
