"""The figure of a benchmark of replay engines: how long one replay takes, and how that grows.

Not covered: measuring (the runner's business).
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from lib.evaluation.looks import PALETTE, plain_text, theme
from lib.evaluation.panels import finished, legend_entries

OWN = "prefix tree"  # drawn in the accent colour, last and thickest
_MARKERS = ("o", "s", "D", "^", "v", "P", "X")


def engine_figure(
    table: pd.DataFrame, packets: pd.DataFrame | None = None, tasks: pd.DataFrame | None = None
) -> Figure:
    """Draw the seconds of one replay by contender, and replays a second against packets and tasks.

    Parameters
    ----------
    table : rows of `lib.runs.bench.compare.compare`: ``contender``, ``seconds``, ``least``, ``most``, ``times_faster``, ``prompts``,
        ``new_tokens``, and ``model``, ``dtype``, ``device``, ``packets``
    packets, tasks : the same rows for several numbers of ``packets`` and of ``tasks``; a panel each, None for no panel

    Notes
    -----
    Bars are medians over rounds, whiskers the least and the most. Lines are the medians of their points; a contender without a time at a
    point (left out for length) has no mark there. Axes of the growth panels are logarithmic.
    """
    curves = [(frame, column) for frame, column in ((packets, "packets"), (tasks, "tasks")) if frame is not None]
    with theme():
        figure, axes = plt.subplots(
            1,
            1 + len(curves),
            figsize=(4.6 + 3.4 * len(curves), 3.2),
            squeeze=False,
            layout="constrained",
            gridspec_kw={"width_ratios": [1.25, *(1 for _ in curves)]},
        )
        names = list(table["contender"])
        _bars(axes[0][0], table, names)
        for axis, (frame, column) in zip(axes[0][1:], curves, strict=True):
            _growth(axis, frame, column, names)
        if curves:
            entries = legend_entries(axes[0][1:])
            axes[0][-1].legend(
                entries.values(), entries.keys(), loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False
            )
    return finished(figure)


def _look(names: list[str], name: str) -> tuple[object, str, float]:
    """Return colour, marker and line width of a contender."""
    place = names.index(name)
    if name == OWN:
        return PALETTE[3], "*", 2.2
    return PALETTE[(place + (place >= 3)) % len(PALETTE)], _MARKERS[place % len(_MARKERS)], 1.2


def _bars(axis: Axes, table: pd.DataFrame, names: list[str]) -> None:
    rows = table.dropna(subset=["seconds"]).sort_values("seconds", ascending=False)
    places = np.arange(len(rows))[::-1]
    whiskers = np.abs(np.vstack([rows["seconds"] - rows["least"], rows["most"] - rows["seconds"]]))
    colours = [_look(names, name)[0] for name in rows["contender"]]
    axis.barh(places, rows["seconds"], xerr=whiskers, color=colours, height=0.66, ecolor="0.25", capsize=2)
    numbers = rows[["seconds", "most", "times_faster"]].to_numpy(float)
    for place, (seconds, most, times) in zip(places, numbers, strict=True):
        text = f"{seconds:.1f} s" + ("" if np.isnan(times) else f"  ({times:.1f}x)")
        axis.annotate(text, (most, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axis.set_yticks(places, [plain_text(name, 28) for name in rows["contender"]])
    axis.set_xlim(0, float(rows["most"].max()) * 1.32)
    axis.set_xlabel("Seconds (and times as fast as one at a time)")
    first = table.iloc[0]
    axis.set_title(
        plain_text(
            f"{first['prompts']} replays, {first['new_tokens']} new tokens, {first['model']} {first['dtype']}", 70
        ),
        fontsize=9,
    )
    axis.grid(axis="y", visible=False)


def _growth(axis: Axes, frame: pd.DataFrame, column: str, names: list[str]) -> None:
    for name in names:
        rows = frame[frame["contender"] == name].dropna(subset=["seconds"]).sort_values(column)
        if rows.empty:
            continue
        colour, marker, width = _look(names, name)
        axis.plot(
            rows[column],
            rows["replays_per_second"],
            color=colour,
            marker=marker,
            ms=9 if name == OWN else 5,
            lw=width,
            label=plain_text(name, 28),
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(sorted(frame[column].unique()))
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for which in (axis.xaxis, axis.yaxis):
        which.set_major_formatter(ScalarFormatter())
        which.set_minor_formatter(NullFormatter())
    axis.set_xlabel("Packets of the task" if column == "packets" else "Tasks asked together")
    axis.set_ylabel("Replays a second")
