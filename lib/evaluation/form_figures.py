"""Figures of a message's form: how much of it is shown, in which encoding, and with or without the name of its target.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, one message each, colours of the colour-blind palette with
markers that repeat them, labels from data shown literally. A receiver keeps its look within a figure.

Not covered: how the numbers come about (`lib.evaluation.paired_gain`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, plain_text, theme
from lib.evaluation.panels import finished, panel_row, shared_legend

__all__ = ["budget_curves", "form_bars"]

_LOOKS = tuple(
    zip((0, 1, 2, 4, 5, 8), ("o", "^", "s", "D", "v", "P"), ("", "///", "...", "xxx", "\\\\\\", "+++"), strict=True)
)
WHOLE = "whole"


def budget_curves(
    table: pd.DataFrame,
    alone: pd.DataFrame,
    *,
    panel: str = "benchmark",
    series: str = "receiver_model",
    budget: str = "budget_tokens",
) -> Figure:
    """Draw accuracy against the tokens that are shown of stored messages, a line for each receiver.

    Parameters
    ----------
    table : `panel`, `series`, `budget` (null: the whole message), ``accuracy``, ``low``, ``high``
    alone : `panel`, `series`, ``accuracy`` without any message, drawn as a dashed line of the receiver's colour

    Notes
    -----
    Budgets stand at equal distances, 0 and whole at the ends. A budget of 0 is an empty message, which is not the same as none.
    Shaded are the intervals of the table.
    """
    need_columns(table, [panel, series, budget, "accuracy", "low", "high"])
    need_columns(alone, [panel, series, "accuracy"])
    panels, order = list(dict.fromkeys(table[panel])), list(dict.fromkeys(table[series]))
    budgets: list[Any] = sorted({int(one) for one in table[budget].dropna()})
    ticks = [*budgets, *([WHOLE] if table[budget].isna().any() else [])]
    with theme():
        figure, axes = panel_row(len(panels), width=3.6, height=3.2)
        for axis, title in zip(axes, panels, strict=False):
            for place, one in enumerate(order):
                colour, marker, _ = _look(place)
                own = table[(table[panel] == title) & (table[series] == one)]
                at = [len(budgets) if pd.isna(value) else budgets.index(int(value)) for value in own[budget]]
                line = own.assign(at=at).sort_values("at")
                axis.plot(
                    line["at"], line["accuracy"], color=colour, marker=marker, label=plain_text(one, 28), zorder=3
                )
                known = line.dropna(subset=["low", "high"])
                axis.fill_between(
                    known["at"],
                    known["low"].astype(float),
                    known["high"].astype(float),
                    color=colour,
                    alpha=0.15,
                    linewidth=0,
                )
                for level in alone.loc[(alone[panel] == title) & (alone[series] == one), "accuracy"].dropna():
                    axis.axhline(level, color=colour, linestyle="--", linewidth=1.1, zorder=1.5)
            axis.plot([], [], color="0.3", linestyle="--", linewidth=1.1, label="without a message (RO)")
            axis.set_xticks(range(len(ticks)), [str(one) for one in ticks])
            axis.set_ylim(-0.03, 1.03)
            axis.set_xlabel("Tokens shown of the message")
            axis.set_title(plain_text(title, 34))
        axes[0].set_ylabel("Joint accuracy")
        shared_legend(figure, axes)
    return finished(figure)


def form_bars(
    table: pd.DataFrame,
    *,
    form: str,
    panel: str = "benchmark",
    series: str = "receiver_model",
    names: dict[str, str] | None = None,
    published: pd.DataFrame | None = None,
) -> Figure:
    """Draw accuracy by the form of the same content, bars of the receivers beside each other.

    Parameters
    ----------
    table : `panel`, `series`, `form`, ``accuracy``, ``low``, ``high``
    form : column of what varies, in the order of its first appearance
    names : words for its values
    published : `panel`, `form`, ``accuracy`` of the paper, an open diamond across the group

    Notes
    -----
    Thin lines are the intervals of the table.
    """
    need_columns(table, [panel, series, form, "accuracy", "low", "high"])
    panels, order, forms = (list(dict.fromkeys(table[name])) for name in (panel, series, form))
    width = 0.8 / max(1, len(order))
    with theme():
        figure, axes = panel_row(len(panels), width=max(2.6, 0.75 * len(forms)), height=3.3)
        for axis, title in zip(axes, panels, strict=False):
            for place, one in enumerate(order):
                colour, _, hatch = _look(place)
                own = table[(table[panel] == title) & (table[series] == one)].dropna(subset=["accuracy"])
                at = np.array([forms.index(value) for value in own[form]], dtype=float)
                at += (place - (len(order) - 1) / 2) * width
                look = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.6}
                axis.bar(at, own["accuracy"], width=0.92 * width, label=plain_text(one, 28), **look)
                for x, low, high in zip(at, own["low"], own["high"], strict=True):
                    if not (pd.isna(low) or pd.isna(high)):
                        axis.plot([x, x], [low, high], color="0.25", linewidth=1.1, zorder=3)
            for entry in published[published[panel] == title].to_dict("records") if published is not None else []:
                if entry[form] in forms:
                    spot: dict[str, Any] = {
                        "markerfacecolor": "white",
                        "markeredgecolor": "0.15",
                        "zorder": 4,
                        "label": "paper",
                    }
                    axis.plot([forms.index(entry[form])], [entry["accuracy"]], "D", **spot)
            words = [plain_text((names or {}).get(value, value), 18) for value in forms]
            axis.set_xticks(
                range(len(forms)),
                words,
                rotation=25 if len(forms) > 3 else 0,
                ha="right" if len(forms) > 3 else "center",
            )
            axis.set_ylim(0, 1.03)
            axis.grid(visible=False, axis="x")
            axis.set_title(plain_text(title, 34))
        axes[0].set_ylabel("Joint accuracy")
        shared_legend(figure, axes)
    return finished(figure)


def _look(place: int) -> tuple[Any, str, str]:
    """Return colour, marker and hatch of a receiver by its place in the figure."""
    colour, marker, hatch = _LOOKS[place % len(_LOOKS)]
    return PALETTE[colour], marker, hatch
