"""Figure of sender swaps: how much better a stronger sender is, against how well the receiver does alone.

Same rules as `lib.evaluation.figures`. Blue ground is where the stronger sender helps, red ground where it harms.

Not covered: how curves are fitted; the frames are described by their columns alone.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from lib.evaluation.frames import need_columns
from lib.evaluation.looks import PALETTE, SIGNS, plain_text, theme
from lib.evaluation.panels import finished

__all__ = ["sender_threshold"]

_CURVES: dict[str, tuple[str, str, str]] = {
    "constant": ("constant: no threshold", ":", "0.45"),
    "linear": ("line", "-", "0.1"),
    "hinge": ("hinge", "--", "0.1"),
    "two_crossings": ("two crossings", "-.", "0.45"),
}
_FAMILIES = (
    (PALETTE[0], "o"),
    (PALETTE[2], "^"),
    (PALETTE[1], "s"),
    (PALETTE[4], "v"),
    (PALETTE[5], "P"),
    (PALETTE[9], "X"),
)
_STRIP = 1.09  # where published gaps stand whose accuracy is not known
_BELOW: dict[str, Any] = {"textcoords": "offset points", "va": "top", "ha": "left", "fontsize": 7.5, "color": "0.3"}


def sender_threshold(
    anchors: pd.DataFrame,
    curves: pd.DataFrame | None = None,
    crossings: pd.DataFrame | None = None,
    published: pd.DataFrame | None = None,
    *,
    group: str = "benchmark",
) -> Figure:
    """Draw every anchor, the curves through them, and where they cross zero; the paper's numbers over it.

    Parameters
    ----------
    anchors : ``receiver_only`` (0..1), ``gap`` (strong minus weak), ``low``, ``high`` (null for no interval) and `group`
    curves : ``model``, ``x``, ``y``
    crossings : ``name``, ``crossing``, ``low``, ``high``: drawn as bars along the lower edge, a mark at the crossing; a null one has none
    published : ``label``, ``receiver_only``, ``gap``: open diamonds; those without an x stand in a strip on the right

    Notes
    -----
    Bars of anchors are what ``low`` and ``high`` hold. Marks that would lie on each other are moved apart a little sideways.
    """
    need_columns(anchors, ["receiver_only", "gap", "low", "high", group])
    for frame, names in (
        (curves, ["model", "x", "y"]),
        (crossings, ["name", "crossing", "low", "high"]),
        (published, ["label", "receiver_only", "gap"]),
    ):
        if frame is not None:
            need_columns(frame, names)
    lines = 0 if crossings is None else len(crossings)
    reach = _reach(anchors, published)
    with theme():
        figure, axis = plt.subplots(figsize=(7.6, 4.3), layout="constrained")
        floor = -reach - 0.09 * reach * (lines + 0.4 if lines else 0)
        axis.axhspan(0, reach, color=SIGNS["positive"], alpha=0.07, linewidth=0, zorder=0)
        axis.axhspan(-reach, 0, color=SIGNS["negative"], alpha=0.07, linewidth=0, zorder=0)
        axis.plot([-0.04, 1.04], [0, 0], color="0.4", linewidth=0.9, zorder=1)
        _marks(axis, anchors, group)
        for model, (name, style, colour) in _CURVES.items():
            rows = curves[curves["model"] == model] if curves is not None else anchors.iloc[:0]
            if len(rows):
                inside = rows["y"].where(rows["y"].abs() <= reach)  # below stand the crossings
                axis.plot(rows["x"], inside, linestyle=style, color=colour, linewidth=1.4, label=name, zorder=2)
        if published is not None:
            _published(axis, published)
        for place, row in enumerate([] if crossings is None else crossings.to_dict("records")):
            _crossing(axis, row, -reach - 0.09 * reach * (place + 0.7))
        axis.set_xlim(-0.04, 1.34 if lines or published is not None else 1.04)
        axis.set_ylim(floor, reach)
        axis.set_xticks(np.linspace(0, 1, 6))
        axis.set_yticks([tick for tick in MaxNLocator(7).tick_values(-reach, reach) if abs(tick) <= reach])
        axis.set_xlabel("Accuracy of the receiver without a message")
        axis.set_ylabel("Stronger minus weaker sender (joint accuracy)")
        axis.text(0.0, 0.97 * reach, "stronger sender helps", va="top", fontsize=8, color=SIGNS["positive"])
        axis.text(0.0, -0.97 * reach, "stronger sender harms", va="bottom", fontsize=8, color=SIGNS["negative"])
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return finished(figure)


def _reach(anchors: pd.DataFrame, published: pd.DataFrame | None) -> float:
    ends = [anchors[name].abs() for name in ("gap", "low", "high")]
    ends += [] if published is None else [published["gap"].abs()]
    values = pd.concat(ends).astype(float).dropna()
    return min(1.08, max(0.2, 1.12 * float(values.max()) if len(values) else 0.2))


def _marks(axis: Axes, anchors: pd.DataFrame, group: str) -> None:
    names = list(dict.fromkeys(anchors[group]))
    known = anchors[anchors["gap"].notna() & anchors["receiver_only"].notna()]
    twins = known.groupby("receiver_only")["gap"]
    shift = 0.012 * (twins.cumcount() - (twins.transform("size") - 1) / 2)
    across = (known["receiver_only"].astype(float) + shift.astype(float)).clip(-0.03, 1.03)
    for place, name in enumerate(names):
        rows = known[known[group] == name]
        colour, marker = _FAMILIES[place % len(_FAMILIES)]
        middle = rows["gap"].to_numpy(float)
        ends = np.array([middle - rows["low"].astype(float), rows["high"].astype(float) - middle])
        look: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 6, "zorder": 3}
        look |= {"markeredgecolor": "white", "markeredgewidth": 0.6, "elinewidth": 0.8, "capsize": 0, "alpha": 0.9}
        axis.errorbar(
            across[rows.index], middle, yerr=np.clip(np.nan_to_num(ends), 0, None), label=plain_text(name, 30), **look
        )


def _published(axis: Axes, published: pd.DataFrame) -> None:
    placed = published["receiver_only"].notna()
    label: str | None = "paper"
    for row, at in zip(published.to_dict("records"), placed, strict=True):
        x = float(row["receiver_only"]) if at else _STRIP
        look: dict[str, Any] = {"marker": "D", "markersize": 7, "linestyle": "none", "zorder": 4}
        axis.plot([x], [row["gap"]], markerfacecolor="white", markeredgecolor="black", label=label, **look)
        label = None
        told: dict[str, Any] = {
            "textcoords": "offset points",
            "va": "center",
            "fontsize": 7.5,
            "color": "0.15",
            "zorder": 4,
        }
        halo = [withStroke(linewidth=2, foreground="white")]
        side = (-7, 0) if 0.75 < x <= 1 else (7, 0)  # labels stay on their side of the strip
        told["ha"] = "right" if side[0] < 0 else "left"
        axis.annotate(plain_text(row["label"], 18), (x, row["gap"]), side, path_effects=halo, **told)
    if not placed.all():
        axis.axvline(1.04, color="0.6", linewidth=0.8)
        axis.annotate("accuracy\nnot given", (_STRIP, 0), (-4, -4), xycoords=("data", "axes fraction"), **_BELOW)


def _crossing(axis: Axes, row: dict[Any, Any], height: float) -> None:
    name = plain_text(row["name"], 40)
    if not (pd.isna(row["low"]) or pd.isna(row["high"])):
        low, high = (min(1.0, max(0.0, float(row[end]))) for end in ("low", "high"))
        axis.plot([low, high], [height] * 2, color="0.25", linewidth=3, solid_capstyle="butt", alpha=0.55)
    at = None if pd.isna(row["crossing"]) else float(row["crossing"])
    if at is not None and 0 <= at <= 1:
        axis.plot([at], [height], "|", color="black", markersize=9, markeredgewidth=1.8)
    axis.text(1.06, height, name, va="center", ha="left", fontsize=7.5, color="0.15")
