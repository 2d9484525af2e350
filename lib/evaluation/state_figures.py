"""Figures of a shared state: how errors live on in it, how far a wrong entry reaches, and what it buys to mend it.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, one message each, colours of the colour-blind palette with
markers that repeat them, labels from data shown literally. A run keeps its colour in every figure.

Not covered: the law behind a predicted line and intervals, which are columns of the frames.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, plain_text, theme
from lib.evaluation.panels import finished, panel_row, shared_legend

__all__ = ["bought_hits", "gap_paths", "residual_paths"]

RUN_LOOKS: dict[str, tuple[Any, str]] = {
    "control": ("0.45", "s"),
    "perturbed": (PALETTE[3], "o"),
    "repaired": (PALETTE[0], "^"),
}
_MARKS = ("o", "^", "s", "D", "v", "P", "X", "h")


def residual_paths(runs: pd.DataFrame, *, panel: str = "observation") -> Figure:
    """Draw the share of wrong decisions by step for every run, measured as marks and the fitted law as dashed lines.

    Parameters
    ----------
    runs : ``run``, ``step``, ``residual``, ``predicted`` (null where nothing was fitted) and `panel`
    """
    need_columns(runs, ["run", "step", "residual", "predicted", panel])
    panels = list(dict.fromkeys(runs[panel]))
    with theme():
        figure, axes = panel_row(len(panels), width=3.1 if len(panels) > 1 else 4.6, margin=0.5, height=3.4)
        for axis, title in zip(axes, panels, strict=False):
            here = runs[runs[panel] == title]
            for place, (name, own) in enumerate(here.groupby("run", sort=False)):
                colour, marker = _run_look(str(name), place)
                own = own.sort_values("step")
                axis.plot(own["step"], own["residual"], marker, color=colour, markersize=6, label=plain_text(name, 24))
                if own["predicted"].notna().any():
                    axis.plot(own["step"], own["predicted"], "--", color=colour, linewidth=1.3, zorder=1.5)
            _steps(axis, "Share of wrong decisions" if axis is axes[0] else "", title)
            axis.set_ylim(-0.04, 1.04)
        axes[0].plot([], [], "--", color="0.3", label="fitted law")
        shared_legend(figure, axes)
    return finished(figure)


def gap_paths(table: pd.DataFrame, *, panel: str = "observation") -> Figure:
    """Draw how many more decisions are wrong than in the control, step by step, with intervals and the predicted gap.

    Parameters
    ----------
    table : ``run``, ``step``, ``gap`` (above zero: the run is worse), ``low``, ``high``, ``predicted`` (null: none), `panel`
    """
    need_columns(table, ["run", "step", "gap", "low", "high", "predicted", panel])
    panels = list(dict.fromkeys(table[panel]))
    names = list(dict.fromkeys(table["run"]))
    ends = table[["gap", "low", "high", "predicted"]].astype(float)
    lowest, highest = min(0.0, ends.min().min()), max(0.0, ends.max().max())
    with theme():
        figure, axes = panel_row(len(panels), width=3.1 if len(panels) > 1 else 4.6, margin=0.5, height=3.4)
        for axis, title in zip(axes, panels, strict=False):
            axis.axhline(0, color="0.3", linewidth=0.9, zorder=1)
            for place, name in enumerate(names):
                own = table[(table[panel] == title) & (table["run"] == name)].sort_values("step")
                colour, marker = _run_look(str(name), place)
                at = own["step"] + 0.1 * (place - (len(names) - 1) / 2)  # so that bars of one step stand apart
                axis.plot(at, own["gap"], marker, color=colour, markersize=6, label=plain_text(name, 24))
                axis.vlines(at, own["low"], own["high"], color=colour, linewidth=1.2)
                axis.plot(own["step"], own["predicted"], "--", color=colour, linewidth=1.3, zorder=1.5)
            _steps(axis, "More wrong than the control" if axis is axes[0] else "", title)
            if pd.notna(lowest) and pd.notna(highest):
                axis.set_ylim(lowest - 0.06, highest + 0.06)  # one scale for all panels
        axes[0].plot([], [], "--", color="0.3", label="fitted law")
        shared_legend(figure, axes)
    return finished(figure)


def bought_hits(table: pd.DataFrame, *, panel: str = "family") -> Figure:
    """Draw the hits that interventions gain in an episode against the tokens they take, with intervals.

    Parameters
    ----------
    table : ``intervention``, ``tokens`` (mean of an episode), ``gain`` (hits), ``low``, ``high`` (null: none) and `panel`
    """
    need_columns(table, ["intervention", "tokens", "gain", "low", "high", panel])
    panels = list(dict.fromkeys(table[panel]))
    names = list(dict.fromkeys(table["intervention"]))
    with theme():
        figure, axes = panel_row(len(panels), width=3.1 if len(panels) > 1 else 5.0, margin=0.5, height=3.7)
        for axis, title in zip(axes, panels, strict=False):
            axis.axhline(0, color="0.3", linewidth=0.9, zorder=1)
            for row in table[table[panel] == title].to_dict("records"):
                place = names.index(row["intervention"])
                colour, marker = PALETTE[(0, 2, 1, 4, 5, 9)[place % 6]], _MARKS[place % len(_MARKS)]
                # Interventions that take the same tokens are drawn beside each other.
                at = row["tokens"] * 1.14 ** (place - (len(names) - 1) / 2)
                if not (pd.isna(row["low"]) or pd.isna(row["high"])):
                    axis.plot([at, at], [row["low"], row["high"]], color=colour, linewidth=1.3, zorder=2)
                axis.plot(
                    [at], [row["gain"]], marker, color=colour, markersize=7, label=plain_text(row["intervention"], 30)
                )
            axis.set_xscale("log")
            axis.set_xlabel("Tokens an episode")
            axis.set_ylabel("Hits gained an episode" if axis is axes[0] else "")
            _title(axis, title)
        shared_legend(figure, axes)
    return finished(figure)


def _title(axis: Axes, title: object) -> None:
    text = plain_text(title, 40)
    axis.set_title(text, fontsize=10 if len(text) <= 30 else 8)


def _steps(axis: Axes, ylabel: str, title: object) -> None:
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axis.set_xlabel("Step")
    axis.set_ylabel(ylabel)
    _title(axis, title)


def _run_look(name: str, place: int) -> tuple[Any, str]:
    return RUN_LOOKS.get(name, (PALETTE[(4, 8, 9, 5)[place % 4]], _MARKS[place % len(_MARKS)]))
