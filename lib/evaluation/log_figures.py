"""Figures of one log: which agents' messages mattered, and what bytes buy.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, labels from data shown literally, blue above
zero and orange below.

Not covered: error bars; one log is one case and has none.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import SIGNS, in_order, long_name, look_of, plain_text, policy_colour, theme
from lib.evaluation.panels import finished, panel_row, shared_legend

__all__ = ["agent_bars", "cap_curves"]


def agent_bars(table: pd.DataFrame) -> Figure:
    """Draw what each agent's packets were worth beside what they cost.

    Parameters
    ----------
    table : rows of `lib.bandmas.log_study.agent_table`: ``sender``, ``packets``, ``helpful``, ``harmful``, ``gain``,
        ``loss``, ``share_of_bytes``
    """
    need_columns(table, ["sender", "packets", "helpful", "harmful", "gain", "loss", "share_of_bytes"])
    places = np.arange(len(table))[::-1]
    with theme():
        figure, (worth, cost) = panel_row(2, width=3.3, margin=1.2, height=1.3 + 0.42 * max(2, len(table)))
        worth.barh(places, table["gain"], color=SIGNS["positive"], height=0.6, label="helpful packets")
        harm = "harmful packets" if (table["loss"] < 0).any() else "_nolegend_"
        worth.barh(places, table["loss"], color=SIGNS["negative"], height=0.6, label=harm)
        worth.axvline(0, color="0.25", linewidth=0.9)
        reach = max(0.1, float(np.nanmax(np.abs(table[["gain", "loss"]].to_numpy(float)), initial=0.0)))
        low = reach if (table["loss"] < 0).any() else 0.04 * reach
        worth.set_xlim(-1.1 * low, 1.3 * reach)
        for place, row in zip(places, table.to_dict("records"), strict=True):
            said = f"{row['helpful']} of {row['packets']} help" + (f", {row['harmful']} harm" if row["harmful"] else "")
            worth.annotate(said, (row["gain"], place), (4, 0), textcoords="offset points", va="center", fontsize=8)
        worth.set_yticks(places, [plain_text(name, 22) for name in table["sender"]])
        worth.set_xlabel("Sum of replay effects (utility)")
        worth.set_title("What it was worth")
        cost.barh(places, table["share_of_bytes"], color="0.6", height=0.6)
        cost.set_yticks(places, [])
        cost.set_xlim(0, max(0.05, 1.15 * float(table["share_of_bytes"].max())))
        cost.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        cost.set_xlabel("Share of all bytes")
        cost.set_title("What it cost")
        for axis in (worth, cost):
            axis.grid(axis="y", visible=False)
            axis.xaxis.set_major_locator(MaxNLocator(5))
            sns.despine(ax=axis, left=True)
        shared_legend(figure, [worth])
    return finished(figure)


def cap_curves(table: pd.DataFrame, *, ylabel: str = "Utility") -> Figure:
    """Draw utility against bytes sent, one line a ranking over its caps, between the empty and the full log.

    Parameters
    ----------
    table : rows of `lib.bandmas.log_study.cap_table`: ``policy``, ``bytes``, ``utility``

    Notes
    -----
    Lines that meet in one point are parted upwards by at most 3 % of the axis, so that each can be seen; the table has the exact values.
    """
    need_columns(table, ["policy", "bytes", "utility"])
    names = in_order(table["policy"])
    lines = [name for name in names if name not in ("full", "empty")]
    with theme():
        figure, (axis,) = panel_row(1, width=5.6, height=3.5)
        for index, name in enumerate(lines):
            rows = table[table["policy"] == name].sort_values("bytes")
            lift = 0.03 * (index / max(1, len(lines) - 1))
            axis.plot(
                rows["bytes"],
                rows["utility"] + lift,
                color=policy_colour(name),
                marker=look_of(name)[1],
                markersize=8 if name == "oracle" else 6,
                markeredgecolor="white",
                linewidth=1.5,
                label=long_name(name),
            )
        for name in ("empty", "full"):
            row = table[table["policy"] == name]
            axis.plot(
                row["bytes"],
                row["utility"],
                linestyle="",
                color=policy_colour(name),
                marker=look_of(name)[1],
                markersize=8,
                markeredgecolor="black",
                label=long_name(name),
                zorder=4,
            )
        axis.set_xlabel("Bytes sent")
        axis.set_ylabel(ylabel)
        axis.set_xlim(left=-0.02 * float(table["bytes"].max() or 1))
        axis.set_ylim(-0.05, 1.08)
        axis.xaxis.set_major_locator(MaxNLocator(6))
        shared_legend(figure, [axis])
    return finished(figure)
