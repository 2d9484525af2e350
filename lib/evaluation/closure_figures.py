"""Figures of lost decisions: what became of every step, and how often the right content led to the wrong action.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, one message each, colours of the colour-blind palette with
hatches or markers that repeat them, labels from data shown literally. A stage keeps the colour that it has in the theory
(`lib.evaluation.theory_figures`).

Not covered: how the numbers come about; the frames are described by their columns alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MultipleLocator, PercentFormatter

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, plain_text, theme
from lib.evaluation.panels import finished, panel_row, shared_legend

__all__ = ["STAGES", "outcome_bars", "wrong_action_points"]

STAGES: dict[str, tuple[str, Any, str]] = {
    "hit_joint": ("hit", PALETTE[0], ""),
    "closure": ("closure: right artifact, wrong action", PALETTE[4], "..."),
    "absorption": ("absorption: named, not taken up", PALETTE[9], "///"),
    "externalisation": ("externalisation: not named", PALETTE[7], ""),
    "unreadable": ("unreadable", "0.88", "xx"),
}
_DEFINITIONS: dict[str, tuple[str, str, Any]] = {
    "wrong_action_rate": ("of readable replies", "o", PALETTE[4]),
    "wrong_action_rate_with_invalid": ("unreadable ones are failures too", "^", "0.35"),
}
_SMALL = 0.07  # a share below this has no room for its number


def outcome_bars(table: pd.DataFrame, *, row: str = "receiver_model", panel: str = "benchmark") -> Figure:
    """Draw what became of every step as one stacked bar a row, in the order of the stages; one panel a family.

    Parameters
    ----------
    table : `row`, `panel`, ``steps``, ``failed`` and the shares of `STAGES`, which sum to 1 (from a closure table); a null share is none

    Notes
    -----
    Behind each bar stands the number of answered steps. A row without answered steps is left empty.

    Raises
    ------
    ValueError
        If a column is missing or a row occurs twice in a panel.
    """
    need_columns(table, [row, panel, "steps", "failed", *STAGES])
    if table.duplicated([row, panel]).any():
        raise ValueError(f"{row}: a row occurs twice in a panel; give each one once")
    panels, names = list(dict.fromkeys(table[panel])) or [""], list(dict.fromkeys(table[row]))
    with theme():
        figure, axes = panel_row(len(panels), width=3.1, margin=1.3, height=0.42 * max(1, len(names)) + 1.55)
        for axis, title in zip(axes, panels, strict=True):
            for entry in table[table[panel] == title].to_dict("records"):
                _bar(axis, names.index(entry[row]), entry)
            axis.set_title(plain_text(title, 34))
            axis.set_xlim(0, 1.14)
            axis.set_ylim(max(1, len(names)) - 0.5, -0.5)
            axis.xaxis.set_major_locator(MultipleLocator(0.25))
            axis.xaxis.set_major_formatter(PercentFormatter(1.0))
            axis.set_xlabel("Share of answered steps")
            axis.grid(visible=False, axis="y")
            axis.spines["left"].set_visible(False)
            shown = [plain_text(name, 26) for name in names] if axis is axes[0] else []
            axis.set_yticks(range(len(shown)), shown)
            axis.tick_params(left=False)
        for name, colour, hatch in STAGES.values():
            axes[0].add_patch(Rectangle((0, 0), 0, 0, facecolor=colour, hatch=hatch, edgecolor="white", label=name))
        shared_legend(figure, axes)
    return finished(figure)


def wrong_action_points(
    table: pd.DataFrame, *, row: str = "receiver_model", panel: str = "benchmark", published: pd.DataFrame | None = None
) -> Figure:
    """Draw the wrong-action rate by both definitions, a line a receiver, one panel a family; the paper's receivers in a panel of their own.

    Parameters
    ----------
    table : `row`, `panel`, the two rates, and ``<rate>_low``, ``<rate>_high``; null where no reply had the right artifact
    published : ``subject``, ``wrong_action_rate`` and ``one_minus_conversion`` (shares), from the paper

    Notes
    -----
    Bars are what the table's ends hold. The two marks of a paper's receiver are its two published numbers, which should be
    one; where they part, unreadable replies are a possible reason.
    """
    ends = [f"{name}_{end}" for name in _DEFINITIONS for end in ("low", "high")]
    need_columns(table, [row, panel, *_DEFINITIONS, *ends])
    if published is not None:
        need_columns(published, ["subject", "wrong_action_rate", "one_minus_conversion"])
    panels, names = list(dict.fromkeys(table[panel])) or [""], list(dict.fromkeys(table[row]))
    beside = published is not None and len(published) > 0
    lines = max(len(names), len(published) if beside and published is not None else 0, 1)
    with theme():
        figure, axes = panel_row(len(panels) + beside, width=2.9, margin=1.2, height=0.46 * lines + 1.5)
        for axis, title in zip(axes, panels, strict=False):
            here = table[table[panel] == title]
            for shift, (column, (name, marker, colour)) in zip((-0.13, 0.13), _DEFINITIONS.items(), strict=True):
                known = here[here[column].notna()]
                middle = known[column].to_numpy(float)
                reach = np.array([middle - known[f"{column}_low"], known[f"{column}_high"] - middle], dtype=float)
                places = [names.index(one) + shift for one in known[row]]
                look: dict[str, Any] = {"marker": marker, "color": colour, "linestyle": "none", "markersize": 6}
                bars: dict[str, Any] = {"xerr": np.clip(np.nan_to_num(reach), 0, None), "elinewidth": 1, "capsize": 2}
                axis.errorbar(middle, places, label=name, **look, **bars)
            _rates(axis, title, names if axis is axes[0] else [], lines)
        if beside and published is not None:
            _published(axes[-1], published, lines)
        shared_legend(figure, axes)
    return finished(figure)


def _bar(axis: Axes, place: int, entry: dict[Any, Any]) -> None:
    left = 0.0
    for column, (_, colour, hatch) in STAGES.items():
        share = 0.0 if pd.isna(entry[column]) else float(entry[column])
        if share <= 0:
            continue
        axis.barh(place, share, left=left, height=0.68, color=colour, hatch=hatch, edgecolor="white", linewidth=0.6)
        if share >= _SMALL:
            ground = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.82}
            told: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.5, "color": "0.1", "bbox": ground}
            axis.text(left + share / 2, place, f"{100 * share:.0f}", **told)
        left += share
    answered = int(entry["steps"]) - int(entry["failed"])
    axis.annotate(f"{answered}", (max(left, 0.0), place), (4, 0), textcoords="offset points", va="center", fontsize=8)


def _rates(axis: Axes, title: object, names: list[Any], lines: int) -> None:
    axis.set_title(plain_text(title, 34))
    axis.set_xlim(-0.03, 1.03)
    axis.set_ylim(lines - 0.5, -0.5)
    axis.xaxis.set_major_locator(MultipleLocator(0.25))
    axis.xaxis.set_major_formatter(PercentFormatter(1.0))
    axis.set_xlabel("Wrong-action rate")
    axis.set_yticks(range(len(names)), [plain_text(name, 26) for name in names])
    axis.tick_params(left=False)


def _published(axis: Axes, published: pd.DataFrame, lines: int) -> None:
    places = np.arange(len(published))
    look: dict[str, Any] = {"linestyle": "none", "markersize": 7, "markerfacecolor": "white", "color": "black"}
    axis.plot(published["wrong_action_rate"], places - 0.13, "D", label="paper: wrong-action rate", **look)
    axis.plot(published["one_minus_conversion"], places + 0.13, "s", label="paper: 1 − conversion", **look)
    _rates(axis, "Paper", [], lines)
    axis.set_yticks(places, [plain_text(name, 20) for name in published["subject"]])
