"""Figures of a protocol selector: what speaks for each action, what policies choose, what they get for it, how much calibration it takes.

Same rules as `lib.evaluation.figures`: a tidy frame in, a `Figure` out, one message each, colours of the colour-blind palette with
markers that repeat them, labels from data shown literally. An action keeps its colour in every figure; so does a kind of policy.

Not covered: how the numbers come about (`lib.evaluation.policy_summary`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, plain_text, theme
from lib.evaluation.panels import finished, panel_row, shared_legend
from lib.evaluation.team_looks import legend_below

__all__ = ["action_mix", "calibration_curves", "policy_frontier", "term_dots"]

ACTION_LOOKS: dict[str, tuple[Any, str]] = {
    "skip": ("0.6", "s"),
    "compress": (PALETTE[0], "o"),
    "raw": (PALETTE[2], "D"),
    "escalate": (PALETTE[4], "^"),
    "refresh": (PALETTE[1], "v"),
}
_TERMS = {"gain": "Gain (nats)", "tax": "Tax (accuracy)", "cost": "Cost (tokens)", "residual": "Residual (risk)"}
_MARKS = ("o", "^", "s", "D", "v", "P", "X", "h")


def term_dots(
    signals: pd.DataFrame, *, terms: tuple[str, ...] = ("gain", "tax", "cost"), group: str = "regime"
) -> Figure:
    """Draw the mean of each term for every action, a mark for each group, a panel for each term.

    Parameters
    ----------
    signals : one row a step and action: ``action``, `group`, `terms`; a null gain is left out of its mean
    """
    need_columns(signals, ["action", group, *terms])
    actions = [name for name in ACTION_LOOKS if name in set(signals["action"])]
    groups = list(dict.fromkeys(signals[group]))
    means = signals.groupby([group, "action"], sort=False)[list(terms)].mean()
    offsets = np.linspace(-0.25, 0.25, len(groups)) if len(groups) > 1 else np.zeros(1)
    with theme():
        figure, axes = panel_row(len(terms), width=2.5, margin=1.0, height=0.5 * len(actions) + 1.4)
        for axis, term in zip(axes, terms, strict=False):
            for name, offset, colour, marker in zip(groups, offsets, _cycle(len(groups)), _MARKS * 9, strict=False):
                known = [(place, means[term].get((name, one))) for place, one in enumerate(actions)]
                rows = [(place + offset, value) for place, value in known if value is not None and not pd.isna(value)]
                heights, values = ([row[i] for row in rows] for i in (0, 1))
                axis.plot(values, heights, marker, color=colour, markersize=6, label=plain_text(name, 28))
            axis.set_yticks(range(len(actions)), actions if axis is axes[0] else [""] * len(actions))
            axis.set_ylim(max(1, len(actions)) - 0.5, -0.5)
            axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
            axis.xaxis.set_major_locator(MaxNLocator(4))
            axis.set_title(_TERMS.get(term, plain_text(term)))
        shared_legend(figure, axes)
    return finished(figure)


def action_mix(steps: pd.DataFrame, *, panel: str | None = None) -> Figure:
    """Draw the share of steps at which each policy takes each action; policies without actions (chance) are left out.

    Parameters
    ----------
    steps : one row a policy and step: ``policy``, ``action`` and, for several panels, `panel`
    """
    need_columns(steps, ["policy", "action", *([panel] if panel else [])])
    known = steps.dropna(subset=["action"])
    panels = list(dict.fromkeys(known[panel])) if panel else [None]
    names = list(dict.fromkeys(known["policy"]))
    with theme():
        width = 2.6 if len(panels) > 1 else 5.0
        figure, axes = panel_row(len(panels), width=width, margin=1.6, height=0.26 * len(names) + 1.3)
        for axis, title in zip(axes, panels, strict=False):
            here = known if title is None else known[known[panel] == title]
            shares = pd.crosstab(here["policy"], here["action"], normalize="index").reindex(names).fillna(0.0)
            left = np.zeros(len(names))
            for action, (colour, _) in ACTION_LOOKS.items():
                if action in shares:
                    width_of = shares[action].to_numpy()
                    axis.barh(range(len(names)), width_of, left=left, height=0.72, color=colour, label=action)
                    left += width_of
            axis.set_yticks(range(len(names)), [plain_text(one, 24) if axis is axes[0] else "" for one in names])
            axis.set_ylim(len(names) - 0.4, -0.6)
            axis.set_xlim(0, 1)
            axis.set_xlabel("Share of steps")
            axis.grid(visible=False, axis="y")
            if title is not None:
                axis.set_title(plain_text(title, 30))
        shared_legend(figure, axes)
    return finished(figure)


def policy_frontier(
    table: pd.DataFrame,
    *,
    panel: str | None = None,
    accuracy: str = "hit",
    tokens: str = "decision_tokens",
    ylabel: str = "Joint accuracy",
) -> Figure:
    """Draw accuracy against tokens a step with intervals on both axes, and the frontier of what can be deployed (paper, Fig. 6).

    Parameters
    ----------
    table : ``policy``, `accuracy` and `tokens` with ``_low`` and ``_high``, ``on_frontier``, ``oracle_only``, and `panel` for several
        panels; from `lib.evaluation.policy_summary.policy_table`

    Notes
    -----
    Filled marks can be deployed, the open star knows the outcomes. A grey line joins the frontier. If the table also has ``tokens``, a
    dotted line leads to the selector from what its stored arms paid: its length is the price of choosing. Tokens that differ
    more than eightfold are on a logarithmic axis.
    """
    ends = [f"{name}_{end}" for name in (accuracy, tokens) for end in ("low", "high")]
    need_columns(table, ["policy", accuracy, tokens, *ends, "on_frontier", "oracle_only", *([panel] if panel else [])])
    panels = list(dict.fromkeys(table[panel])) if panel else [None]
    known = table[tokens].dropna()
    lowest = table[[accuracy, f"{accuracy}_low"]].min().min()
    bottom = 0.0 if pd.isna(lowest) else min(0.9, float(lowest))
    with theme():
        width = 3.1 if len(panels) > 1 else 5.2
        figure, axes = panel_row(len(panels), width=width, margin=0.5, height=4.6)
        for axis, title in zip(axes, panels, strict=False):
            here = table if title is None else table[table[panel] == title]
            front = here[here["on_frontier"]].sort_values(tokens)
            axis.plot(front[tokens], front[accuracy], color="0.7", linewidth=1.6, zorder=1, label="frontier")
            for row in here.to_dict("records"):
                if row["policy"] == "selector" and not pd.isna(row.get("tokens")) and not pd.isna(row[tokens]):
                    ends_at = [row["tokens"], row[tokens]]
                    axis.plot(
                        ends_at, [row[accuracy]] * 2, ":", color=PALETTE[3], linewidth=1.4, label="price of choosing"
                    )
                _point(axis, row, accuracy, tokens)
            if len(known) and known.min() > 0 and known.max() > 8 * known.min():
                axis.set_xscale("log")
                axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
                axis.xaxis.set_minor_locator(NullLocator())
            else:
                axis.xaxis.set_major_locator(MaxNLocator(4))
            axis.set_ylim(bottom - 0.06, 1.06)
            axis.set_xlabel("Tokens a step, choosing included" if tokens == "decision_tokens" else "Tokens a step")
            axis.set_ylabel(ylabel if axis is axes[0] else "")
            if title is not None:
                axis.set_title(plain_text(title, 30))
        legend_below(figure, axes, columns=3)
    return finished(figure)


def calibration_curves(sweep: pd.DataFrame) -> Figure:
    """Draw what the selector gets after calibrating on more or fewer instances: mean and deviation over splits (paper, Table 23).

    Parameters
    ----------
    sweep : ``fraction``, and mean and sd of ``accuracy``, ``utility`` and ``cost_share`` (as ``<name>_mean``, ``<name>_sd``)
    """
    parts = {
        "accuracy": "Joint accuracy",
        "utility": "Accuracy - 1e-4 tokens",
        "cost_share": "Tokens / always compress",
    }
    need_columns(sweep, ["fraction", *(f"{name}_{end}" for name in parts for end in ("mean", "sd"))])
    with theme():
        figure, axes = panel_row(len(parts), width=2.5, margin=0.4, height=2.6)
        for axis, (name, label), colour in zip(axes, parts.items(), (PALETTE[0], PALETTE[2], PALETTE[4]), strict=False):
            mean, spread = sweep[f"{name}_mean"], sweep[f"{name}_sd"].fillna(0.0)
            axis.errorbar(100 * sweep["fraction"], mean, yerr=spread, fmt="o-", color=colour, markersize=5, capsize=3)
            axis.set_xlabel("Calibration instances (%)")
            axis.set_ylabel(label)
            axis.yaxis.set_major_locator(MaxNLocator(5))
    return finished(figure)


def _point(axis: Axes, row: dict[Any, Any], accuracy: str, tokens: str) -> None:
    """Draw one policy with its intervals; nothing for a null."""
    if pd.isna(row[accuracy]) or pd.isna(row[tokens]):
        return
    colour, marker, size = _policy_look(str(row["policy"]))
    for value, across in ((accuracy, False), (tokens, True)):
        low, high = row[f"{value}_low"], row[f"{value}_high"]
        if not (pd.isna(low) or pd.isna(high)):
            line = ([low, high], [row[accuracy]] * 2) if across else ([row[tokens]] * 2, [low, high])
            axis.plot(*line, color=colour, linewidth=0.9, alpha=0.55, zorder=2)
    face = "white" if row["oracle_only"] else colour
    look = {"markersize": size, "markerfacecolor": face, "markeredgecolor": colour, "markeredgewidth": 1.4, "zorder": 3}
    axis.plot([row[tokens]], [row[accuracy]], marker, linestyle="none", label=plain_text(row["policy"], 24), **look)


def _policy_look(policy: str) -> tuple[Any, str, float]:
    """Return colour, marker and size of a policy: its kind gives the colour."""
    if policy.startswith("always "):
        colour, marker = ACTION_LOOKS.get(policy.removeprefix("always "), ("0.3", "p"))
        return colour, marker, 7.0
    if policy.startswith("drop "):
        return PALETTE[9], {"gain": "1", "tax": "2", "cost": "3", "residual": "4"}.get(policy[5:], "+"), 10.0
    known: dict[str, tuple[Any, str, float]] = {
        "selector": (PALETTE[3], "*", 13.0),
        "selector, no gate": (PALETTE[3], "P", 7.0),
        "random, same mix": ("0.3", "X", 7.0),
        "oracle": ("0.1", "*", 12.0),
        "default prices": (PALETTE[5], "<", 6.5),
        "smallest price": (PALETTE[5], ">", 6.5),
        "controller": (PALETTE[8], "p", 7.5),
    }
    return known.get(policy, (PALETTE[6], "h", 6.5))


def _cycle(count: int) -> list[Any]:
    order = [PALETTE[place] for place in (0, 1, 2, 4, 8, 9, 5, 3)]
    return [order[place % len(order)] for place in range(count)]
