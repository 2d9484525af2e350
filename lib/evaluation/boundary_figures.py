"""Figures of the packetization ablation: utility against bytes at three packet boundaries, and what fits a cap.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, one message each, colours of the colour-blind
palette with markers and line styles that repeat them, labels from data shown literally. A boundary keeps its look in every
figure; typed packets under the second selector share its family of blue.

Not covered: policies other than the lexical selectors (`lib.evaluation.figures.frontier`).
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, plain_text, theme
from lib.evaluation.panels import finished, panel_row, shared_legend

__all__ = ["ARM_NAMES", "boundary_frontier", "record_fit"]

PRIMARY, SECONDARY = "semantic", "semantic_evidence"  # lexical relevance; the same plus one for evidence packets
ARM_NAMES = {
    ("typed", PRIMARY): "Typed fields",
    ("typed", SECONDARY): "Typed fields, evidence first",
    ("sentence", PRIMARY): "Sentences",
    ("message", PRIMARY): "Whole messages",
}
# Fixed places: an arm keeps its colour, marker and line whatever else is in the figure.
_LOOKS = {
    ("typed", PRIMARY): (PALETTE[0], "o", "-"),
    ("typed", SECONDARY): (PALETTE[9], "D", "-."),
    ("sentence", PRIMARY): (PALETTE[1], "^", "--"),
    ("message", PRIMARY): (PALETTE[2], "s", ":"),
}


def boundary_frontier(
    table: pd.DataFrame, *, value: str = "task_utility", panel: str = "workload", ylabel: str = "Task utility"
) -> Figure:
    """Draw utility against bytes, one line a boundary and selector, over the caps up to Full (paper, Fig. 4).

    Parameters
    ----------
    table : means over seeds with ``boundary``, ``policy`` (a selector, ``full`` or ``empty``), ``beta``, the `panel`
        column, and ``_mean`` and ``_sd`` of `value` and of ``bytes``; Full is the last, open point of a line, Empty a dotted
        line across

    Notes
    -----
    Bars are one sample standard deviation over split seeds, in both directions.
    """
    need_columns(table, ["boundary", "policy", "beta", panel, f"{value}_mean", f"{value}_sd", "bytes_mean", "bytes_sd"])
    panels = list(dict.fromkeys(table[panel]))
    with theme():
        figure, axes = panel_row(len(panels))
        for axis, name in zip(axes, panels, strict=False):
            rows = table[table[panel] == name]
            for level in rows.loc[rows["policy"] == "empty", f"{value}_mean"]:
                axis.axhline(level, color="0.55", linestyle=(0, (1, 2)), linewidth=1.2, label="Empty", zorder=1)
            for arm, (colour, marker, style) in _LOOKS.items():
                own = rows[(rows["boundary"] == arm[0]) & rows["policy"].isin([arm[1], "full"])]
                if not (own["policy"] == arm[1]).any():
                    continue
                line = own.sort_values(["beta", "bytes_mean"])
                axis.errorbar(
                    line["bytes_mean"],
                    line[f"{value}_mean"],
                    xerr=line["bytes_sd"].fillna(0),
                    yerr=line[f"{value}_sd"].fillna(0),
                    label=ARM_NAMES[arm],
                    color=colour,
                    marker=marker,
                    linestyle=style,
                    markersize=5.5,
                    markeredgecolor="white",
                    markeredgewidth=0.7,
                    linewidth=1.6,
                    elinewidth=0.9,
                    capsize=2,
                    zorder=3 if arm[0] == "typed" else 2,
                )
                if arm[1] == PRIMARY:  # both selectors of a boundary share its Full
                    last = line[line["policy"] == "full"]
                    axis.plot(
                        last["bytes_mean"], last[f"{value}_mean"], marker, mfc="white", mec=colour, ms=6, zorder=4
                    )
            axis.set_title(plain_text(name))
            axis.set_xlabel("Transmitted bytes per task")
            axis.set_xlim(left=0)
            axis.set_ylim(max(axis.get_ylim()[0], -0.02), max(axis.get_ylim()[1], 0.1))  # a utility lies in [0, 1]
            axis.xaxis.set_major_locator(MaxNLocator(5))
        if panels:
            axes[0].set_ylabel(ylabel)
        shared_legend(figure, axes)
    return finished(figure)


def record_fit(fits: pd.DataFrame, *, panel: str = "workload") -> Figure:
    """Draw how large records are beside the cap of their task, as cumulative shares, one line a boundary.

    Parameters
    ----------
    fits : one row a packet with ``boundary``, ``share_of_cap`` and the `panel` column; a null share is left out

    Notes
    -----
    Right of the dashed line at 1 a record can never be sent; the height of a line there is the share of records that could
    be sent alone. The further left a line rises, the more records fit beside each other.
    """
    need_columns(fits, ["boundary", "share_of_cap", panel])
    panels = list(dict.fromkeys(fits[panel]))
    with theme():
        figure, axes = panel_row(len(panels))
        for axis, name in zip(axes, panels, strict=False):
            rows = fits[fits[panel] == name].dropna(subset=["share_of_cap"])
            axis.axvline(1, color="0.3", linestyle="--", linewidth=1, label="The cap")
            for arm, (colour, _, style) in _LOOKS.items():
                shares = rows.loc[rows["boundary"] == arm[0], "share_of_cap"]
                if arm[1] == PRIMARY and len(shares):
                    axis.ecdf(shares, label=ARM_NAMES[arm], color=colour, linestyle=style, linewidth=2)
            axis.set_title(plain_text(name))
            axis.set_xlabel("Record size / cap of its task")
            axis.set_xlim(0, max(1.1, 1.05 * rows["share_of_cap"].max()) if len(rows) else 1.1)
            axis.set_ylim(0, 1.03)
            axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        if panels:
            axes[0].set_ylabel("Records of this size or smaller")
        shared_legend(figure, axes)
    return finished(figure)
