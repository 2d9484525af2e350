"""Figures of policies under load.

The same rules as in `lib.evaluation.figures`: one message each, a colour-blind palette whose colours stay with their
policy, markers that repeat what colour says, labels from data shown literally. Adaptive admission is drawn as a thin dark
line over static causal admission.

Not covered: intervals (`lib.evaluation.load_summary` made them), captions (each docstring says what bands are).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, POLICY_NAMES, in_order, long_name, look_of, plain_text, theme
from lib.evaluation.panels import finished, legend_entries

LOAD_NAMES = POLICY_NAMES | {"causal": "BANDMAS causal, static"}  # beside adaptive admission
_P50 = (0, (4, 2))
_MARKS: dict[str, Any] = {"markersize": 5, "markeredgecolor": "white", "markeredgewidth": 0.6}
_GREY: dict[str, Any] = {"color": "0.25"}
_PRICES = {
    "price_bytes": ("bytes", 0, "-"),
    "price_latency": ("latency", 3, "--"),
    "price_context": ("context", 2, ":"),
}


def load_curves(table: pd.DataFrame, *, deadline: float, ylabel: str = "Task utility") -> Figure:
    """Draw utility, latency and misses against offered load, one column a workload (paper, Figure 5).

    Parameters
    ----------
    table : rows of `lib.evaluation.load_summary.load_table`
    deadline : seconds, the dashed line in the middle row
    ylabel : of the upper row

    Notes
    -----
    Bars in the upper row, set side by side, and bands below are 95 % hierarchical-bootstrap intervals over seeds and
    tasks. The middle row is logarithmic; solid lines with a band are p95, dashed ones without are p50. The dotted
    vertical line marks a load of one.
    """
    needed = [f"{name}{end}" for name in ("task_utility", "p95_s", "miss_rate") for end in ("", "_low", "_high")]
    need_columns(table, ["workload", "policy", "rho", "p50_s", *needed])
    panels = list(dict.fromkeys(table["workload"]))
    width = max(1, len(panels))
    with theme():
        figure, axes = plt.subplots(
            3, width, figsize=(2.9 * width + 0.9, 7.0), squeeze=False, sharex=True, sharey="row", layout="constrained"
        )
        for column, name in zip(axes.T, panels, strict=False):
            rows = table[table["workload"] == name]
            policies = in_order(rows["policy"])
            for place, policy in enumerate(policies):
                line = rows[rows["policy"] == policy].sort_values("rho")
                _bars(column[0], line, policy, shift=0.016 * (place - (len(policies) - 1) / 2))
                _curve(column[1], line, "p95_s", policy)
                _curve(column[2], line, "miss_rate", policy)
                column[1].plot(line["rho"], line["p50_s"], color=look_of(policy)[0], linewidth=1.1, linestyle=_P50)
            column[1].axhline(deadline, color="0.25", linewidth=0.9, linestyle="-.", zorder=1)
            for axis in column:
                axis.axvline(1.0, color="0.25", linewidth=0.9, linestyle=":", zorder=1)
                axis.set_xticks(sorted(set(table["rho"])))
                axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            column[0].set_title(plain_text(name, 28))
            column[2].set_xlabel("Offered load \u03c1")
        if panels:
            _finish(figure, axes[:, 0], table, deadline, ylabel)
    return finished(figure)


def price_paths(arrivals: pd.DataFrame, *, rhos: Sequence[float] | None = None) -> Figure:
    """Draw the prices at which adaptive decisions were made, one column a load and one row a workload.

    Parameters
    ----------
    arrivals : rows of one split seed of `lib.bandmas.load_study.load_sweep`, warm-up included
    rhos : loads to show; default all

    Notes
    -----
    Prices are in units of packet value: what a packet loses for a mean task's bytes or tokens, or for a deadline's
    length of delay. The shaded part is the warm-up.
    """
    need_columns(arrivals, ["workload", "policy", "rho", "seed", "place", "warm_up", *_PRICES])
    rows = arrivals[arrivals["policy"] == "adaptive"]
    if rows["seed"].nunique() > 1:
        raise ValueError(f"prices of {rows['seed'].nunique()} seeds: each has its own path; pass one")
    panels, loads = list(dict.fromkeys(rows["workload"])), sorted(set(rows["rho"])) if rhos is None else list(rhos)
    height, width = max(1, len(panels)), max(1, len(loads))
    with theme():
        figure, axes = plt.subplots(
            height,
            width,
            figsize=(2.2 * width + 1.0, 1.7 * height + 0.9),
            squeeze=False,
            sharex=True,
            sharey="row",
            layout="constrained",
        )
        for across, name in zip(axes, panels, strict=False):
            for axis, rho in zip(across, loads, strict=False):
                path = rows[(rows["workload"] == name) & (rows["rho"] == rho)].sort_values("place")
                axis.axvspan(0, int(path["warm_up"].sum()), color="0.92", zorder=0, linewidth=0)
                for column, (label, place, style) in _PRICES.items():
                    axis.step(
                        path["place"], path[column], where="post", color=PALETTE[place], linestyle=style, label=label
                    )
            shown = rows.loc[(rows["workload"] == name) & rows["rho"].isin(loads), list(_PRICES)]
            highest = float(shown.to_numpy(float).max(initial=0.0))
            across[0].set_ylim(-0.03 * max(highest, 0.01), 1.06 * max(highest, 0.01))
            across[0].set_ylabel(f"{plain_text(name, 22)}\nPrice")
        for axis, rho in zip(axes[0], loads, strict=False):
            axis.set_title(f"Load {rho:g}")
        for axis in axes[-1]:
            axis.set_xlabel("Arrival")
        handles, labels = axes[0][0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), title="Price on")
    return finished(figure)


def _bars(axis: Axes, line: pd.DataFrame, policy: str, shift: float) -> None:
    """Draw utilities with intervals side by side: those of many policies overlap, and bands would hide each other."""
    colour, marker = look_of(policy)
    reach = [line["task_utility"] - line["task_utility_low"], line["task_utility_high"] - line["task_utility"]]
    axis.errorbar(
        line["rho"] + shift,
        line["task_utility"],
        yerr=np.clip(np.array(reach, dtype=float), 0, None),
        color=colour,
        elinewidth=0.9,
        capsize=1.8,
        label=LOAD_NAMES.get(policy, long_name(policy)),
        marker=marker,
        zorder=3 if policy == "adaptive" else 2,
        linewidth=_width(policy),
        **_MARKS,
    )


def _curve(axis: Axes, line: pd.DataFrame, value: str, policy: str) -> None:
    colour, marker = look_of(policy)
    front = 3 if policy == "adaptive" else 2
    low, high = line[f"{value}_low"], line[f"{value}_high"]
    axis.fill_between(line["rho"], low, high, color=colour, alpha=0.15, linewidth=0, zorder=front)
    axis.plot(
        line["rho"],
        line[value],
        color=colour,
        marker=marker,
        zorder=front + 1,
        linewidth=_width(policy),
        **_MARKS,
    )


def _finish(figure: Figure, first: np.ndarray, table: pd.DataFrame, deadline: float, ylabel: str) -> None:
    """Name the rows, scale them, and put policies and line styles into one legend."""
    for axis, label in zip(first, (ylabel, "Latency (s), log scale", "Deadline misses"), strict=True):
        axis.set_ylabel(label)
    figure.align_ylabels(list(first))
    highest = float(table["task_utility_high"].max())
    first[0].set_ylim(-0.03, min(1.03, 1.1 * highest + 0.02))
    first[1].set_yscale("log")
    first[1].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    first[1].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    first[1].yaxis.set_minor_formatter(NullFormatter())
    first[2].set_ylim(-0.03, 1.03)
    first[2].yaxis.set_major_formatter(PercentFormatter(1.0))
    entries = legend_entries(figure.axes)
    entries["latency, p95"] = Line2D([], [], linewidth=1.6, **_GREY)
    entries["latency, p50"] = Line2D([], [], linewidth=1.1, linestyle=_P50, **_GREY)
    entries[f"deadline, {deadline:g} s"] = Line2D([], [], linewidth=0.9, linestyle="-.", **_GREY)
    columns = max(1, min(4, int(figure.get_figwidth() / 1.9)))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, handlelength=2.4)


def _width(policy: str) -> float:
    """Return the line width: adaptive is drawn over static, which must still be seen where the two agree."""
    return {"causal": 2.6, "adaptive": 1.2}.get(policy, 1.6)
