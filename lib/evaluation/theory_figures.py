"""Figures of the theory of receiver-relative coordination: balances, an alternating axis, losses, thresholds, decay.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, one message each, colours of the colour-blind
palette with markers, line styles or hatches that repeat them, labels from data shown literally. Blue is above zero and
orange below, as in every figure of signs. Everything drawn is exact or enumerated; there are no error bars.

Not covered: how the numbers come about; the frames are described by their columns alone.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, SIGNS, plain_text, theme
from lib.evaluation.panels import finished, panel_row, shared_legend

__all__ = [
    "balance",
    "bottleneck_bars",
    "bound_by_critic",
    "clipped_propagation",
    "cut_errors",
    "least_errors",
    "regret_against_bound",
    "sender_crossing",
]

_LABELS = {0: (PALETTE[1], "o"), 1: (PALETTE[0], "s")}  # colour and marker of the target's two values
_PARTS = {
    "externalization": ("externalization: not in the message", PALETTE[7], ""),
    "absorption": ("absorption: lost while reading", PALETTE[9], "///"),
    "closure": ("closure: known, not acted on", PALETTE[4], "..."),
}
_TINY = 1e-9  # a sign nearer to zero than this is none


def balance(
    frame: pd.DataFrame, benefit: str, burden: str, *, xlabel: str, ylabel: str, wins: str, loses: str
) -> Figure:
    """Draw what speaks for something against what speaks against it, one mark a row; on the diagonal they balance.

    Parameters
    ----------
    frame : numeric columns `benefit` and `burden` in one unit
    xlabel, ylabel : what the columns are, with the unit
    wins, loses : what it means to lie below the diagonal (benefit larger) and above it

    Notes
    -----
    Rows on the diagonal are grey and counted as neither. A unit is equally long on both axes.
    """
    need_columns(frame, [benefit, burden])
    rows = frame.dropna(subset=[benefit, burden])
    net = (rows[benefit] - rows[burden]).to_numpy(float)
    signs = np.where(np.abs(net) < _TINY, 0, np.sign(net))
    across, up = (_reach(rows[name].to_numpy(float)) for name in (benefit, burden))
    ends = [min(across[0], up[0]), max(across[1], up[1])]
    looks = {1: (wins, SIGNS["positive"], "o"), -1: (loses, SIGNS["negative"], "v"), 0: ("neither", "0.6", "x")}
    with theme():
        tall = 3.6 * (up[1] - up[0]) / (across[1] - across[0])
        figure, axis = plt.subplots(figsize=(6.1, min(max(tall, 1.6), 4.0) + 0.7), layout="constrained")
        axis.axhline(0, color="0.6", linewidth=0.8)
        axis.axvline(0, color="0.6", linewidth=0.8)
        axis.plot(ends, ends, color="0.25", linewidth=1, linestyle="--", zorder=1.5, label="balance")
        for sign, (name, colour, marker) in looks.items():
            here = rows[signs == sign]
            if sign == 0 and here.empty:
                continue
            look = {
                "color": colour,
                "marker": marker,
                "alpha": 0.6,
                "linewidths": 0.9 if marker == "x" else 0,
                "rasterized": True,
            }
            axis.scatter(here[benefit], here[burden], s=18, label=f"{plain_text(name)}: {len(here)}", **look)
        axis.set_xlim(across)
        axis.set_ylim(up)
        axis.set_aspect("equal")
        for one in (axis.xaxis, axis.yaxis):
            one.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axis.set_xlabel(xlabel)
        axis.set_ylabel(ylabel)
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return finished(figure)


def cut_errors(points: pd.DataFrame, errors: pd.DataFrame, *, axis: str = "axis") -> Figure:
    """Draw the labels along one or more scalar axes and, below, the error of every single cut.

    Parameters
    ----------
    points : ``place`` and ``label`` (0 or 1) of every symbol, with the `axis` column, one panel a value
    errors : ``cut``, ``ones`` (``above`` or ``below``: where 1 is predicted), ``error``, with the `axis` column

    Notes
    -----
    The dashed line is the best cut; symbols that it gets wrong have a black ring.
    """
    need_columns(points, [axis, "place", "label"])
    need_columns(errors, [axis, "cut", "ones", "error"])
    panels = list(dict.fromkeys(points[axis]))
    width = max(1, len(panels))
    with theme():
        figure, axes = plt.subplots(
            2,
            width,
            figsize=(3.7 * width + 0.6, 3.5),
            squeeze=False,
            sharex="col",
            sharey="row",
            height_ratios=(1, 2.4),
            layout="constrained",
        )
        for column, name in enumerate(panels):
            above, below = axes[0][column], axes[1][column]
            curves = errors[errors[axis] == name]
            best = curves.loc[curves["error"].idxmin()]
            _symbols(above, points[points[axis] == name], best)
            for ones, style in (("above", "-"), ("below", ":")):
                curve = curves[curves["ones"] == ones].sort_values("cut")
                look = {"color": "0.3", "linestyle": style, "markersize": 3}
                below.plot(curve["cut"], curve["error"], marker="o", label=f"1 is predicted {ones} the cut", **look)
            for one in (above, below):
                one.axvline(best["cut"], color=PALETTE[3], linewidth=1.2, linestyle="--", zorder=1.5)
            told = {"xytext": (6, 0), "textcoords": "offset points", "fontsize": 8.5, "color": PALETTE[3]}
            above.annotate(f"best cut: error {best['error']:.3g}", (best["cut"], 0.78), va="center", **told)
            above.set_title(plain_text(name))
            above.set_yticks([])
            above.set_ylim(-1, 1)
            above.grid(visible=False)
            above.spines[["left", "bottom"]].set_visible(False)
            above.tick_params(bottom=False)
            below.set_ylim(-0.04, 1.04)
            below.set_xlabel("Place on the axis")
            below.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes[1][0].set_ylabel("Error of the cut")
        shared_legend(figure, [*axes[0], *axes[1]])
    return finished(figure)


def least_errors(table: pd.DataFrame) -> Figure:
    """Draw the least error of a threshold receiver against the groups of the alternating axis.

    Parameters
    ----------
    table : ``groups``, ``enumerated`` (least error over all cuts) and ``formula``

    Notes
    -----
    Marks are enumerated, the line is the formula; dotted is chance. The horizontal scale is logarithmic.
    """
    need_columns(table, ["groups", "enumerated", "formula"])
    rows = table.sort_values("groups")
    with theme():
        figure, axis = plt.subplots(figsize=(5.2, 2.9), layout="constrained")
        axis.axhline(0.5, color="0.4", linestyle=":", linewidth=1.2, label="chance")
        axis.plot(rows["groups"], rows["formula"], color=PALETTE[0], linewidth=1.4, label="(m \u2212 1) / 2m")
        axis.plot(
            rows["groups"],
            rows["enumerated"],
            linestyle="",
            marker="o",
            color=PALETTE[3],
            markersize=5.5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            label="best of all cuts, enumerated",
        )
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(FixedLocator(rows["groups"].tolist()))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_ylim(-0.02, 0.54)
        axis.set_xlabel("Groups m along the compressed axis")
        axis.set_ylabel("Least error")
        axis.legend(loc="lower right")
    return finished(figure)


def bottleneck_bars(table: pd.DataFrame, *, by: str = "receiver") -> Figure:
    """Draw the loss after the message as one stacked bar a receiver, in the order in which it arises.

    Parameters
    ----------
    table : ``externalization``, ``absorption``, ``closure`` (all >= 0, in units of the loss) and the column `by`
    """
    need_columns(table, [by, *_PARTS])
    with theme():
        figure, axis = plt.subplots(figsize=(6.6, 0.46 * len(table) + 1.5), layout="constrained")
        places = np.arange(len(table))[::-1]
        left = np.zeros(len(table))
        for part, (name, colour, hatch) in _PARTS.items():
            size = table[part].to_numpy(float)
            look = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.8, "height": 0.66}
            axis.barh(places, size, left=left, label=name, **look)
            left = left + size
        for place, total in zip(places, left, strict=True):
            axis.annotate(f"{total:.2f}", (total, place), (5, 0), textcoords="offset points", va="center", fontsize=8.5)
        axis.set_yticks(places, [plain_text(name, 40) for name in table[by]])
        axis.set_xlim(0, 1.12 * max(float(left.max(initial=0.0)), 0.01))
        axis.set_xlabel("Loss after the message (error rate)")
        axis.grid(axis="y", visible=False)
        axis.spines["left"].set_visible(False)
        axis.tick_params(left=False)
        figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2, handleheight=1.2)
    return finished(figure)


def sender_crossing(curve: pd.DataFrame, crossing: float) -> Figure:
    """Draw the extra gain and the extra tax of a stronger sender against the receiver's burden.

    Parameters
    ----------
    curve : ``burden`` (0..1), ``extra_gain``, ``extra_tax`` (units of the loss)
    crossing : the burden at which they balance
    """
    need_columns(curve, ["burden", "extra_gain", "extra_tax"])
    rows = curve.sort_values("burden")
    x, gain, tax = (rows[name].to_numpy(float) for name in ("burden", "extra_gain", "extra_tax"))
    with theme():
        figure, axis = plt.subplots(figsize=(6.2, 3.2), layout="constrained")
        shade = {"alpha": 0.18, "linewidth": 0, "interpolate": True}
        axis.fill_between(x, gain, tax, where=gain > tax, color=SIGNS["positive"], label="stronger helps", **shade)
        axis.fill_between(x, gain, tax, where=gain < tax, color=SIGNS["negative"], label="stronger harms", **shade)
        axis.plot(x, gain, color=SIGNS["positive"], linewidth=1.8, label="extra gain")
        axis.plot(x, tax, color=SIGNS["negative"], linewidth=1.8, linestyle="--", label="extra tax")
        level = float(np.interp(crossing, x, gain))
        axis.plot([crossing, crossing], [0, level], color="0.25", linewidth=1, linestyle=":", zorder=3)
        axis.plot([crossing], [level], "o", color="black", ms=5, zorder=4)
        told = {"textcoords": "offset points", "ha": "left", "va": "center", "fontsize": 9}
        axis.annotate(f"\u03b2* = {crossing:.4g}", (crossing, 0.12 * level), (6, 0), **told)
        axis.axhline(0, color="0.55", linewidth=0.8)
        axis.set_xlim(float(x[0]), float(x[-1]))
        axis.set_xlabel("Receiver burden \u03b2 (1 \u2212 accuracy without a message)")
        axis.set_ylabel("Difference of error rates")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return finished(figure)


def clipped_propagation(table: pd.DataFrame) -> Figure:
    """Draw a run and its perturbed twin, and below them how their gap dies.

    Parameters
    ----------
    table : rows of `lib.coordination.propagation.compare_paths` (``step``, ``base``, ``perturbed``, ``gap``,
        ``carried``) and ``unclipped``: the gap if neither run had ever been clipped

    Notes
    -----
    The shaded steps are those after which the gap is smaller than g times the last one: a run was clipped.
    """
    need_columns(table, ["step", "base", "perturbed", "gap", "carried", "unclipped"])
    with theme():
        figure, axes = plt.subplots(
            2, 1, figsize=(6.6, 4.2), sharex=True, height_ratios=(1.15, 1), layout="constrained"
        )
        runs, gaps = axes
        shown = "clipping shrinks the gap"
        for step in table.loc[table["gap"].abs() < table["carried"].abs() - _TINY, "step"]:
            for axis in axes:
                axis.axvspan(step - 1, step, color="0.92", zorder=0, linewidth=0, label=shown if axis is runs else "")
            shown = "_nolegend_"
        runs.plot(table["step"], table["perturbed"], "o-", color=PALETTE[3], ms=5, label="perturbed run")
        runs.plot(table["step"], table["base"], "s--", color=PALETTE[0], ms=4.5, label="same run, unperturbed")
        runs.set_ylabel("Residual r")
        gaps.plot(table["step"], table["unclipped"], ":", color="0.35", linewidth=1.4, label="product of g alone")
        gaps.plot(
            table["step"],
            table["carried"],
            linestyle="",
            marker="_",
            color="0.15",
            ms=13,
            mew=1.4,
            label="g times last gap: the bound",
        )
        gaps.plot(table["step"], table["gap"], "D-", color=PALETTE[2], ms=4.5, label="gap")
        gaps.set_ylabel("Gap")
        gaps.set_xlabel("Step")
        gaps.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axis in axes:
            axis.set_ylim(bottom=-0.015)
            axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.align_ylabels(list(axes))
    return finished(figure)


def regret_against_bound(draws: pd.DataFrame, tight: tuple[float, float], *, most: int = 4_000) -> Figure:
    """Draw the regret of choices by estimates against its bound, one panel a kind of errors.

    Parameters
    ----------
    draws : rows of `lib.coordination.protocol.regret_draws`: ``errors``, ``bound``, ``regret``
    tight : bound and regret of the worst case
    most : marks a panel, the first rows; more would hide each other

    Notes
    -----
    No mark can lie above the diagonal. Below each title: the share of all draws without regret.
    """
    need_columns(draws, ["errors", "bound", "regret"])
    panels = list(dict.fromkeys(draws["errors"]))
    top = 1.06 * max(float(draws[["bound", "regret"]].to_numpy(float).max(initial=0.0)), *tight)
    names = {"random": "Errors at random", "against": "Errors against the best action"}
    with theme():
        figure, axes = panel_row(len(panels), width=3.3, margin=0.5, height=3.7)
        for place, (axis, name) in enumerate(zip(axes, panels, strict=False)):
            rows = draws[draws["errors"] == name]
            axis.fill_between([0, top], [0, top], top, color="0.93", linewidth=0, zorder=0)
            axis.plot([0, top], [0, top], color="0.25", linewidth=1, linestyle="--", label="regret = bound")
            look = {"s": 9, "alpha": 0.35, "linewidths": 0, "color": PALETTE[0], "rasterized": True}
            axis.scatter(rows["bound"].head(most), rows["regret"].head(most), label="a draw", **look)
            axis.plot(*tight, "*", color=PALETTE[3], ms=11, mec="black", mew=0.6, label="worst case", zorder=4)
            axis.text(0.05 * top, 0.88 * top, "impossible", fontsize=8.5, color="0.4")
            axis.set_title(names.get(name, plain_text(name)), pad=18)
            told = f"{(rows['regret'] < _TINY).mean():.0%} of the draws without regret"
            axis.annotate(told, (0, 1), (0, 5), "axes fraction", "offset points", fontsize=8.5, color="0.25")
            axis.set_xlim(0, top)
            axis.set_ylim(-0.02 * top, top)
            axis.set_xlabel("Bound: twice the largest error")
            axis.xaxis.set_major_locator(MaxNLocator(5))
            axis.yaxis.set_major_locator(MaxNLocator(5))
            if place:
                axis.tick_params(labelleft=False)
        figure.set_layout_engine("constrained", wspace=0.05)  # the panels' last and first tick label keep apart
        axes[0].set_ylabel("Regret (units of the loss)")
        shared_legend(figure, axes)
    return finished(figure)


def bound_by_critic(table: pd.DataFrame, gain: float) -> Figure:
    """Draw how near a bounded critic comes to the gain.

    Parameters
    ----------
    table : ``limit`` (largest |T|, nats) and ``bound`` (the best variational bound with it, nats)
    gain : I(Z; M | X), nats
    """
    need_columns(table, ["limit", "bound"])
    rows = table.sort_values("limit")
    with theme():
        figure, axis = plt.subplots(figsize=(5.4, 2.9), layout="constrained")
        axis.axhline(gain, color="0.25", linewidth=1.1, linestyle="--", label="gain = I(Z; M | X)")
        axis.plot(rows["limit"], rows["bound"], "o-", color=PALETTE[0], ms=5, label="best critic within the limit")
        axis.fill_between(
            rows["limit"], rows["bound"], gain, color="0.92", linewidth=0, label="not certified", zorder=0
        )
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(FixedLocator(rows["limit"].tolist()))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_ylim(0, 1.12 * max(gain, 0.01))
        axis.set_xlabel("Limit of the critic, |T| \u2264 B (nats)")
        axis.set_ylabel("Lower bound (nats)")
        axis.legend(loc="lower right")
    return finished(figure)


def _symbols(axis: Axes, points: pd.DataFrame, best: pd.Series) -> None:
    """Draw a mark for every symbol; a black ring says that the best cut gets it wrong."""
    places, labels = points["place"].to_numpy(float), points["label"].to_numpy(int)
    predicted = (places > best["cut"]) == (best["ones"] == "above")
    size = min(8.0, 180 / max(1, len(places)))  # points; neighbours keep apart
    for label, (colour, marker) in _LABELS.items():
        mine = labels == label
        wrong = mine & (predicted != bool(label))
        axis.plot(places[mine], np.zeros(mine.sum()), marker, color=colour, ms=size, ls="", label=f"target {label}")
        axis.plot(places[wrong], np.zeros(wrong.sum()), marker, mfc="none", mec="black", mew=1.5, ms=size + 1.5, ls="")
    axis.plot([], [], "o", mfc="none", mec="black", mew=1.5, ms=9, ls="", label="wrong under the best cut")


def _reach(values: np.ndarray) -> tuple[float, float]:
    """Return limits of an axis that hold all values and zero."""
    low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0))
    room = 0.05 * max(high - low, 0.02)
    return low - room, high + room
