"""Figures, one message each.

Every function takes a tidy frame and returns a `Figure` that notebooks show and `save_figure` writes. Colours come
from a colour-blind palette and stay with their policy in every figure; markers and positions repeat what colour says.
Error bars are what the axis label or the caller's caption names. Labels from data are shown literally: dollar signs
start no mathematics, line breaks and characters that the font lacks are replaced.

Not covered: choosing what to show, captions (each function's docstring says what its error bars are), interactive
figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lib.evaluation.frames import filled_bins, need_columns
from lib.evaluation.looks import (
    SIGNS,
    in_order,
    long_name,
    look_of,
    plain_text,
    policy_colour,
    short_name,
    theme,
    type_look,
    types_in_order,
)
from lib.evaluation.panels import finished, panel_row, shared_legend
from lib.evaluation.saving import save_figure

__all__ = [
    "effect_waterfall",
    "frontier",
    "kib_bars",
    "label_bars",
    "plain_text",
    "policy_colour",
    "predicted_vs_measured",
    "save_figure",
]


def frontier(
    table: pd.DataFrame,
    *,
    value: str = "task_utility",
    size: str = "bytes",
    panel: str = "workload",
    marked: Mapping[str, float] | None = None,
    ylabel: str = "Task utility",
) -> Figure:
    """Draw utility against bytes for every policy, one line a policy over its caps and one panel a workload.

    Parameters
    ----------
    table : rows of `lib.evaluation.summary.main_table` with ``policy``, ``beta`` and the `panel` column; the full
        policy is one point
    marked : panel -> cap whose points have a black edge, e.g. the cap of a table beside the figure

    Notes
    -----
    Bars are one sample standard deviation over split seeds, in both directions.
    """
    numbers = [f"{value}_mean", f"{value}_sd", f"{size}_mean", f"{size}_sd"]
    need_columns(table, ["policy", panel, *numbers, *(["beta"] if marked else [])])
    panels = list(dict.fromkeys(table[panel]))
    with theme():
        figure, axes = panel_row(len(panels))
        for axis, name in zip(axes, panels, strict=False):
            rows = table[table[panel] == name]
            for policy in in_order(rows["policy"]):
                line = rows[rows["policy"] == policy].sort_values(f"{size}_mean")
                front = 3 if policy == "causal" else 2
                axis.errorbar(
                    line[f"{size}_mean"],
                    line[f"{value}_mean"],
                    xerr=line[f"{size}_sd"].fillna(0),
                    yerr=line[f"{value}_sd"].fillna(0),
                    label=long_name(policy),
                    color=policy_colour(policy),
                    marker=look_of(policy)[1],
                    markersize=8 if policy == "oracle" else 5.5,
                    markeredgecolor="white",
                    markeredgewidth=0.7,
                    linewidth=1.6,
                    elinewidth=0.9,
                    capsize=2,
                    zorder=front,
                )
                if marked and name in marked:
                    here = line[line["beta"] == marked[name]]
                    axis.plot(
                        here[f"{size}_mean"],
                        here[f"{value}_mean"],
                        linestyle="",
                        color=policy_colour(policy),
                        marker=look_of(policy)[1],
                        markersize=7.5,
                        markeredgecolor="black",
                        markeredgewidth=1.1,
                        zorder=front + 0.5,
                    )
            axis.set_title(plain_text(name))
            axis.set_xlabel("Transmitted bytes per task")
            axis.set_xlim(left=0)
            axis.xaxis.set_major_locator(MaxNLocator(5))
        if len(panels):
            axes[0].set_ylabel(ylabel)
        shared_legend(figure, axes)
    return finished(figure)


def kib_bars(
    table: pd.DataFrame,
    *,
    panel: str = "workload",
    published: pd.DataFrame | None = None,
    ylabel: str = "Task utility per transmitted KiB",
) -> Figure:
    """Draw utility per KiB as bars, one group a workload (paper, Fig. 3).

    Parameters
    ----------
    table : rows with ``policy``, the `panel` column, ``utility_per_kib`` and ``utility_per_kib_sd``
    published : rows with the same keys and ``utility_per_kib``: drawn as open diamonds over the bars

    Notes
    -----
    Bars are table means; error bars are first-order propagation of the deviations of utility and bytes, zero
    covariance. Each workload has its own scale.
    """
    need_columns(table, ["policy", panel, "utility_per_kib", "utility_per_kib_sd"])
    panels = list(dict.fromkeys(table[panel]))
    policies = in_order(table["policy"])
    with theme():
        figure, axes = panel_row(len(panels), width=2.9, margin=0.5, height=3.2)
        for axis, name in zip(axes, panels, strict=False):
            rows = table[table[panel] == name].set_index("policy")
            shown = [policy for policy in policies if policy in rows.index]
            places = np.arange(len(shown))
            axis.bar(
                places,
                rows.loc[shown, "utility_per_kib"],
                yerr=rows.loc[shown, "utility_per_kib_sd"].fillna(0),
                color=[policy_colour(policy) for policy in shown],
                width=0.72,
                error_kw={"elinewidth": 1, "capsize": 3, "ecolor": "0.2"},
            )
            if published is not None:
                paper = published[published[panel] == name].set_index("policy")["utility_per_kib"]
                marked = [place for place, policy in zip(places, shown, strict=True) if policy in paper.index]
                axis.plot(
                    marked,
                    [paper[shown[place]] for place in marked],
                    "D",
                    mfc="white",
                    mec="black",
                    ms=6,
                    label="paper",
                )
            axis.set_xticks(
                places, [short_name(policy) for policy in shown], rotation=35, ha="right", rotation_mode="anchor"
            )
            axis.set_title(plain_text(name))
            axis.set_ylim(bottom=0)
            axis.grid(axis="x", visible=False)
        if len(panels):
            axes[0].set_ylabel(ylabel)
        if published is not None and len(panels):
            axes[-1].legend(loc="best")
    return finished(figure)


def label_bars(labels: pd.DataFrame, *, by: str) -> Figure:
    """Draw the shares of positive, zero and negative packets as one stacked bar a group.

    Parameters
    ----------
    labels : rows of `lib.bandmas.label_composition` with the column `by`: ``positive_share``, ``zero_share``,
        ``negative_share``, ``labelled``
    by : column that names the bars, e.g. ``type`` or ``workload``
    """
    need_columns(labels, [by, "labelled", *(f"{sign}_share" for sign in SIGNS)])
    with theme():
        figure, axis = plt.subplots(figsize=(6.2, 0.5 * len(labels) + 1.5), layout="constrained")
        places = np.arange(len(labels))[::-1]
        left = np.zeros(len(labels))
        for sign, colour in SIGNS.items():
            share = labels[f"{sign}_share"].fillna(0).to_numpy(float)
            axis.barh(places, share, left=left, color=colour, label=sign, height=0.68, edgecolor="white", linewidth=0.8)
            for place, start, width in zip(places, left, share, strict=True):
                if width >= 0.06:  # a narrower piece has no room for its number
                    dark = sign != "zero"
                    axis.text(
                        start + width / 2,
                        place,
                        f"{width:.0%}",
                        ha="center",
                        va="center",
                        fontsize=8,
                        color="white" if dark else "0.2",
                    )
            left += share
        names = [
            f"{plain_text(name)}  (n = {count})" for name, count in zip(labels[by], labels["labelled"], strict=True)
        ]
        axis.set_yticks(places, names)
        axis.set_xlim(0, 1)
        axis.xaxis.set_major_formatter(PercentFormatter(1.0))
        axis.set_xlabel("Share of packets by sign of the replay effect")
        axis.grid(visible=False)
        sns.despine(ax=axis, left=True)
        axis.tick_params(left=False)
        axis.legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2)
    return finished(figure)


def predicted_vs_measured(
    frame: pd.DataFrame, *, correlation: float | None = None, recall: float | None = None, bins: int = 6
) -> Figure:
    """Draw measured against predicted effects: packets as dots by type, and the mean of equally filled bins of the prediction.

    Parameters
    ----------
    frame : rows of `lib.bandmas.cross_fitted`: ``predicted``, ``rce``, ``type``
    correlation, recall : shown in the title if given
    bins : bins of the prediction; fewer where predictions tie

    Notes
    -----
    Error bars are the standard error of the bin mean over packets: a guide to the eye, no inference, since packets of
    a task depend on each other. Dots are shifted by at most 0.012 up or down to part ties.
    """
    need_columns(frame, ["predicted", "rce", "type"])
    rows = frame.dropna(subset=["predicted", "rce"])
    shift = np.random.default_rng(0).uniform(-0.012, 0.012, len(rows))  # seeded: repeated runs draw the same dots
    with theme():
        figure, axis = plt.subplots(figsize=(5.2, 3.8), layout="constrained")
        axis.axhline(0, color="0.6", linewidth=0.8)
        for kind in types_in_order(rows["type"]):
            colour, marker = type_look(kind)
            here = (rows["type"] == kind).to_numpy()
            axis.scatter(
                rows["predicted"][here],
                (rows["rce"] + shift)[here],
                s=14,
                alpha=0.45,
                linewidths=0,
                color=colour,
                marker=marker,
                label=plain_text(kind),
            )
        means = _binned(rows, bins)
        axis.errorbar(
            means["predicted"],
            means["rce"],
            yerr=means["error"],
            color="black",
            marker="o",
            ms=4.5,
            lw=1.4,
            capsize=2.5,
            label="bin mean",
        )
        facts = [
            f"rank correlation {correlation:.2f}" if correlation is not None and not math.isnan(correlation) else ""
        ]
        facts.append(f"useful-packet recall {recall:.2f}" if recall is not None and not math.isnan(recall) else "")
        axis.set_title(", ".join(fact for fact in facts if fact).capitalize())
        axis.set_xlabel("Predicted replay effect (held-out tasks)")
        axis.set_ylabel("Measured replay effect")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return finished(figure)


def effect_waterfall(effects: pd.DataFrame, contents: Mapping[str, str] | None = None, *, title: str = "") -> Figure:
    """Draw the replay effect of each packet of one task, with sufficiency and necessity beside it, largest on top.

    Parameters
    ----------
    effects : rows of one task from `lib.bandmas.effects_of`: ``packet_id``, ``type``, ``sufficiency``, ``necessity``,
        ``rce``
    contents : packet id -> text, shown shortened beside the packet
    title : plain text, e.g. the question
    """
    need_columns(effects, ["packet_id", "type", "sufficiency", "necessity", "rce"])
    rows = effects.sort_values(["rce", "packet_id"], ascending=[False, True], na_position="last").reset_index(drop=True)
    texts = contents or {}
    with theme():
        figure, axis = plt.subplots(figsize=(7.2, 0.36 * len(rows) + 1.7), layout="constrained")
        places = np.arange(len(rows))[::-1]
        colours = [
            SIGNS["positive"] if rce >= 1e-9 else SIGNS["negative"] if rce <= -1e-9 else "0.6"
            for rce in rows["rce"].fillna(0)
        ]
        axis.barh(places, rows["rce"].fillna(0), color=colours, height=0.62, label="_nolegend_", alpha=0.9)
        axis.axvline(0, color="0.25", linewidth=0.9)
        axis.plot(
            rows["sufficiency"],
            places + 0.1,
            "^",
            color="black",
            ms=5,
            mfc="white",
            label="sufficiency: alone \u2212 empty",
        )
        axis.plot(rows["necessity"], places - 0.1, "v", color="black", ms=5, label="necessity: full \u2212 without")
        axis.set_yticks(places, [_packet_label(row, texts) for row in rows.to_dict("records")])
        values = rows[["sufficiency", "necessity", "rce"]].to_numpy(float)
        low, high = float(np.nanmin(values, initial=0.0)), float(np.nanmax(values, initial=0.1))
        axis.set_xlim(low - 0.08 * (high - low), high + 0.08 * (high - low))
        axis.set_xlabel("Replay effect on utility (bar: RCE, the mean of both contrasts)")
        axis.grid(axis="y", visible=False)
        sns.despine(ax=axis, left=True)
        axis.tick_params(left=False)
        figure.legend(*axis.get_legend_handles_labels(), ncols=2, loc="outside lower right")
        if title:
            figure.suptitle(plain_text(title, 95), x=0.01, ha="left", fontsize=10, fontweight="bold")
    return finished(figure)


def _packet_label(row: Mapping[object, object], texts: Mapping[str, str]) -> str:
    packet = str(row["packet_id"])
    short = plain_text("/".join(packet.split("|")[-2:]), 14)
    text = texts.get(packet)
    return f"{short}  {plain_text(row['type'], 12)}" + (f": {plain_text(text, 44)}" if text is not None else "")


def _binned(rows: pd.DataFrame, bins: int) -> pd.DataFrame:
    """Return mean prediction, mean effect and its standard error in bins of the prediction, about equally filled."""
    if rows.empty:
        return pd.DataFrame({"predicted": [], "rce": [], "error": []})
    groups = rows.groupby(filled_bins(rows["predicted"], bins), observed=True)
    return pd.DataFrame(
        {"predicted": groups["predicted"].mean(), "rce": groups["rce"].mean(), "error": groups["rce"].sem().fillna(0.0)}
    ).reset_index(drop=True)
