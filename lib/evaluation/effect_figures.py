"""Figures that explain packet effects: which packets act together, what two contexts miss, whether predictions hold.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, one message each, colours of the colour-blind
palette with markers that repeat them, labels from data shown literally. Blue is above zero and orange below, as in
every figure of signs.

Not covered: how the numbers come about; the frames are described by their columns alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from lib.evaluation.frames import filled_bins, need_columns
from lib.evaluation.inference import task_cluster_bootstrap
from lib.evaluation.looks import PALETTE, SIGNS, plain_text, theme, type_look, types_in_order
from lib.evaluation.panels import finished, panel_row, shared_legend

__all__ = ["calibration", "interaction_map", "rce_against_shapley"]

_MOST_NUMBERS = 14  # packets up to which a cell has room for its number


def interaction_map(
    pairs: pd.DataFrame,
    types: Mapping[str, str] | None = None,
    *,
    value: str = "index",
    label: str = "Interaction (utility)",
    title: str = "",
) -> Figure:
    """Draw how every two packets of one task act together, as a triangle of cells coloured around zero.

    Parameters
    ----------
    pairs : rows of one task from `lib.bandmas.interactions.pair_interactions`: ``task_id``, ``first``, ``second`` and
        the `value` column; a missing value is hatched
    types : packet id -> type, shown behind the short id
    value, label : column to draw, e.g. ``index``, ``at_empty`` or ``at_full``, and what the colour bar calls it
    title : plain text, e.g. the question

    Notes
    -----
    White lines part the messages. The colour scale reaches equally far to both sides of zero.

    Raises
    ------
    ValueError
        If the pairs belong to several tasks, or a pair occurs twice.
    """
    need_columns(pairs, ["task_id", "first", "second", value])
    if pairs["task_id"].nunique() > 1:
        raise ValueError(
            f"pairs of {pairs['task_id'].nunique()} tasks; an interaction map shows one, filter by task_id"
        )
    if pairs.duplicated(["first", "second"]).any():
        raise ValueError("a pair occurs twice; give each pair of packets once")
    ids = sorted({*pairs["first"], *pairs["second"]})
    n = len(ids)
    place = {packet_id: index for index, packet_id in enumerate(ids)}
    cells = np.full((max(n, 1), max(n, 1)), np.nan)
    for first, second, number in zip(pairs["first"], pairs["second"], pairs[value], strict=True):
        low, high = sorted((place[first], place[second]))
        cells[high, low] = number
    largest = float(np.nanmax(np.abs(cells), initial=0.0))
    reach = largest if largest >= 1e-9 else 0.1  # where nothing acts together, a scale that a reader can compare
    side = max(2.6, 0.46 * n + 0.4)
    with theme():
        figure, axis = plt.subplots(figsize=(side + 2.2, side + 0.9), layout="constrained")
        norm = TwoSlopeNorm(0.0, -reach, reach)
        mesh = axis.imshow(cells, cmap=_diverging(), norm=norm, aspect="equal", interpolation="none")
        for row in range(n):
            for column in range(row):
                _cell(axis, row, column, cells[row, column], reach, numbered=n <= _MOST_NUMBERS)
        for edge in _message_edges(ids):
            gap = {"color": "white", "linewidth": 3.2, "solid_capstyle": "butt", "clip_on": False}
            axis.plot([-0.54, edge], [edge, edge], **gap)
            axis.plot([edge, edge], [edge, n - 0.46], **gap)
        axis.set_xlim(-0.5, max(n - 1.5, 0.5))
        axis.set_ylim(max(n - 0.5, 1.5), 0.5)
        axis.set_xticks(range(max(0, n - 1)), [_short_id(one) for one in ids[:-1]], rotation=90)
        axis.set_xlabel("Packet (message/segment)")
        names = [_short_id(one) + (f"  {plain_text(types[one], 12)}" if types and one in types else "") for one in ids]
        axis.set_yticks(range(1, n), names[1:])
        axis.grid(visible=False)
        axis.tick_params(length=0)
        sns.despine(ax=axis, left=True, bottom=True)
        bar = figure.colorbar(mesh, ax=axis, shrink=0.7, aspect=20, pad=0.09)
        bar.set_label(label)
        bar.outline.set_visible(False)
        bar.locator = MaxNLocator(4, steps=[1, 2, 5, 10], symmetric=True)
        bar.update_ticks()
        bar.ax.set_title("complements", fontsize=8.5, fontweight="normal", loc="center", pad=6)
        bar.ax.set_xlabel("substitutes", fontsize=8.5, labelpad=6)
        if title:
            figure.suptitle(
                plain_text(title, int(12 * figure.get_figwidth())), x=0.01, ha="left", fontsize=10, fontweight="bold"
            )
    return finished(figure)


def rce_against_shapley(
    frame: pd.DataFrame, *, panel: str = "workload", facts: Mapping[str, str] | None = None
) -> Figure:
    """Draw the replay effect of every packet against its Shapley value, one panel a workload.

    Parameters
    ----------
    frame : rows of `lib.bandmas.interactions.compare_rce` with the `panel` column: ``shapley``, ``low``, ``high``,
        ``rce``, ``type``, ``method``
    facts : panel -> a short line under its name, e.g. the rank correlation

    Notes
    -----
    On the dashed line both agree. In the shaded quadrants they have opposite signs. Filled marks are exact values, open
    ones sampled, with their interval as a bar. Each panel has its own scale. Marks are shifted by at most 0.6 % of the
    axis to part ties.
    """
    need_columns(frame, [panel, "shapley", "low", "high", "rce", "type", "method"])
    rows = frame.dropna(subset=["shapley", "rce"])
    panels = list(dict.fromkeys(frame[panel]))
    shift = np.random.default_rng(0).uniform(-0.006, 0.006, (len(rows), 2))  # seeded: repeated runs draw the same marks
    with theme():
        figure, axes = panel_row(len(panels), width=3.1, margin=0.6, height=3.7)
        for axis, name in zip(axes, panels, strict=False):
            mine = (rows[panel] == name).to_numpy()
            here = rows[mine]
            low, high = _common_range(here[["shapley", "rce", "low", "high"]].to_numpy(float))
            for left, bottom, wide, tall in ((low, 0.0, -low, high), (0.0, low, high, -low)):
                axis.add_patch(Rectangle((left, bottom), wide, tall, color=SIGNS["negative"], alpha=0.09, lw=0))
            axis.axhline(0, color="0.55", linewidth=0.8)
            axis.axvline(0, color="0.55", linewidth=0.8)
            axis.plot([low, high], [low, high], color="0.25", linewidth=1, linestyle="--", zorder=1.5)
            moved = here[["shapley", "rce"]].to_numpy(float) + shift[mine] * (high - low)
            here = here.assign(_x=moved[:, 0], _y=moved[:, 1])
            for kind in types_in_order(here["type"]):
                _type_marks(axis, here[here["type"] == kind], kind)
            told = plain_text(facts[name], 48) if facts and name in facts else ""
            axis.set_title(plain_text(name), pad=18 if told else 6)
            axis.annotate(told, (0, 1), (0, 5), "axes fraction", "offset points", fontsize=8, color="0.25")
            axis.text(0.965, 0.04, "opposite signs", transform=axis.transAxes, ha="right", fontsize=8, color="0.45")
            axis.set_xlabel("Shapley value (utility)")
            axis.set_xlim(low, high)
            axis.set_ylim(low, high)
            axis.set_aspect("equal")
            axis.xaxis.set_major_locator(MaxNLocator(5))
            axis.yaxis.set_major_locator(MaxNLocator(5))
        axes[0].set_ylabel("RCE (utility)")
        shared_legend(figure, axes)
    return finished(figure)


def calibration(
    frame: pd.DataFrame, *, panel: str = "workload", bins: int = 5, alpha: float | None = None, resamples: int = 2_000
) -> Figure:
    """Draw whether a predicted effect of 0.2 is 0.2 on average, and how much support stands behind it.

    Parameters
    ----------
    frame : held-out packets with ``task_id``, ``predicted``, ``rce``, ``cell`` (name of the predictor's cell), ``support``
        (labelled packets in it when the predictor was fitted) and the `panel` column
    bins : bins of the prediction, about equally filled; fewer where predictions tie
    alpha : shrinkage strength, drawn as a line through the supports: above it a cell decides more than its prior

    Notes
    -----
    Above: the dashed line is perfect calibration; open circles are cells at their mean prediction and mean effect, with
    areas that grow with the held-out packets in them; black dots are bin means with 95 % intervals that resample whole
    tasks. A bin whose packets come from fewer than two tasks has no interval. Below: the support of each cell.
    """
    need_columns(frame, [panel, "task_id", "predicted", "rce", "cell", "support"])
    rows = frame.dropna(subset=["predicted", "rce"])
    panels = list(dict.fromkeys(frame[panel]))
    width = max(1, len(panels))
    top = float(rows["support"].max()) if len(rows) else 1.0
    with theme():
        figure, axes = plt.subplots(
            2,
            width,
            figsize=(3.1 * width + 0.5, 4.9),
            squeeze=False,
            sharex="col",
            sharey="row",
            height_ratios=(3, 1.25),
            layout="constrained",
        )
        for column, name in enumerate(panels):
            above, below = axes[0][column], axes[1][column]
            here = rows[rows[panel] == name]
            cells = _cells(here)
            above.axhline(0, color="0.55", linewidth=0.8)
            ends = [float(here["predicted"].min()), float(here["predicted"].max())] if len(here) else [0.0, 0.1]
            above.plot(ends, ends, color="0.25", linewidth=1, linestyle="--", label="predicted = measured", zorder=1.5)
            above.scatter(
                cells["predicted"],
                cells["rce"],
                s=10 + 9 * cells["packets"],
                facecolors="none",
                edgecolors=[PALETTE[0]],
                linewidths=1.0,
                alpha=0.75,
                label="cell (area: packets)",
            )
            means = _bin_means(here, bins, resamples)
            above.errorbar(
                means["predicted"],
                means["rce"],
                yerr=means[["below", "above"]].to_numpy(float).T,
                color="black",
                marker="o",
                ms=4.5,
                lw=1.2,
                capsize=2.5,
                label="bin mean, 95 % over tasks",
                zorder=3,
            )
            above.set_title(plain_text(name))
            below.scatter(cells["predicted"], cells["support"], s=18, color=PALETTE[0], alpha=0.75, linewidths=0)
            if alpha is not None:
                below.axhline(
                    alpha, color=PALETTE[3], linewidth=1, linestyle=":", label=f"shrinkage strength ({alpha:g})"
                )
            below.set_yscale("symlog", linthresh=1)
            below.set_ylim(-0.25, 1.6 * max(top, 1.0, alpha or 0.0))
            below.set_yticks(ticks := _support_ticks(top), [f"{tick:g}" for tick in ticks])
            below.yaxis.set_minor_locator(plt.NullLocator())
            below.set_xlabel("Predicted effect (held-out tasks)")
            below.xaxis.set_major_locator(MaxNLocator(4))
        axes[0][0].set_ylabel("Measured replay effect")
        axes[1][0].set_ylabel("Cell support\n(packets)")
        figure.align_ylabels(axes[:, 0])
        shared_legend(figure, [*axes[0], *axes[1]])
    return finished(figure)


def _cell(axis: Axes, row: int, column: int, number: float, reach: float, *, numbered: bool) -> None:
    """Write a cell's number, or hatch it where there is none."""
    if math.isnan(number):
        box = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch="////", edgecolor="0.75", linewidth=0)
        axis.add_patch(box)
    elif numbered:
        shown = f"{number:.2f}".replace("-", "\u2212")
        shown = "0" if shown.strip("\u2212") == "0.00" else shown
        dark = abs(number) > 0.55 * reach
        colour = "white" if dark else "0.25" if shown != "0" else "0.6"
        axis.text(column, row, shown, ha="center", va="center", fontsize=7.5, color=colour)


def _message_edges(ids: Sequence[str]) -> list[float]:
    """Return the places between packets of different messages."""
    messages = [packet_id.rsplit("|", 1)[0] for packet_id in ids]
    return [place + 0.5 for place in range(len(ids) - 1) if messages[place] != messages[place + 1]]


def _short_id(packet_id: str) -> str:
    return plain_text("/".join(packet_id.split("|")[-2:]), 14)


def _diverging() -> Colormap:
    """Return the suite's sign colours with a light grey zero; missing stays white."""
    colours = LinearSegmentedColormap.from_list("signs", [SIGNS["negative"], "0.95", SIGNS["positive"]])
    return colours.with_extremes(bad="white")


def _common_range(values: np.ndarray) -> tuple[float, float]:
    """Return limits for both axes that hold all values, zero on both sides of which there is room to see a sign."""
    low, high = float(np.nanmin(values, initial=0.0)), float(np.nanmax(values, initial=0.0))
    span = max(high - low, 0.02)
    return min(low, -0.25 * span) - 0.06 * span, max(high, 0.25 * span) + 0.06 * span


def _type_marks(axis: Axes, rows: pd.DataFrame, kind: str) -> None:
    colour, marker = type_look(kind)
    for exact in (True, False):
        part = rows[(rows["method"] == "exact") == exact]
        if part.empty:
            continue
        if not exact:
            reach = part[["low", "high"]].sub(part["shapley"], axis=0).abs().to_numpy(float).T
            axis.errorbar(part["_x"], part["_y"], xerr=reach, fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.5)
        axis.scatter(
            part["_x"],
            part["_y"],
            s=22,
            marker=marker,
            facecolors=[colour] if exact else "none",
            edgecolors=[colour],
            linewidths=0.9,
            alpha=0.75,
            zorder=2,
            label=plain_text(kind, 20) + ("" if exact else " (sampled)"),
        )


def _cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean prediction, mean effect, mean support and count of each cell."""
    groups = rows.groupby("cell", sort=True)
    means = groups[["predicted", "rce", "support"]].mean()
    return means.assign(packets=groups.size()).reset_index()


def _bin_means(rows: pd.DataFrame, bins: int, resamples: int) -> pd.DataFrame:
    """Return, in bins of the prediction, the mean prediction and effect with the reach of a task-cluster interval."""
    columns = ["predicted", "rce", "below", "above"]
    if rows.empty:
        return pd.DataFrame(columns=columns, dtype=float)
    found = []
    for _, group in rows.groupby(filled_bins(rows["predicted"], bins), observed=True):
        mean = float(group["rce"].mean())
        below = above = math.nan
        if group["task_id"].nunique() >= 2:
            interval = task_cluster_bootstrap(group["rce"], group["task_id"], weights="row", resamples=resamples)
            below, above = max(0.0, mean - interval.low), max(0.0, interval.high - mean)
        found.append((float(group["predicted"].mean()), mean, below, above))
    return pd.DataFrame(found, columns=columns)


def _support_ticks(top: float) -> list[float]:
    steps = (first * 10.0**power for power in range(7) for first in (1, 3))
    return [0.0, *(step for step in steps if step <= max(top, 1.0))]
