"""How policies, packet types and untrusted text look in every figure.

A policy has one name, one colour of a colour-blind palette and one marker, wherever it appears and whatever stands beside it; so has a
type of packets, but for the name. Text from data becomes a label only through `plain_text`.

Not covered: what is drawn (`lib.evaluation.figures`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import lru_cache

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.font_manager import findfont, get_font

POLICY_NAMES = {
    "full": "Full communication",
    "agentprune": "AgentPrune",
    "safesieve": "SafeSieve",
    "semantic": "Semantic relevance",
    "semantic_evidence": "Semantic + evidence",
    "random": "Random",
    "smallest_first": "Smallest first",
    "hybrid": "BANDMAS hybrid",
    "causal": "BANDMAS causal",
    "adaptive": "BANDMAS causal, adaptive",
    "oracle": "Oracle RCE",
    "empty": "Empty",
}
PALETTE = sns.color_palette("colorblind", 10)
# Fixed places: a policy, and a packet type, keeps its colour and marker whatever else is in the figure.
_LOOKS: dict[str, tuple[int | str, str]] = {
    "full": ("0.35", "s"),
    "causal": (0, "o"),
    "adaptive": ("#4b0055", "d"),  # no place of the palette is free; dark enough to stand apart in grey
    "hybrid": (9, "D"),
    "semantic": (1, "^"),
    "semantic_evidence": (8, "v"),
    "random": (7, "X"),
    "smallest_first": (5, "P"),
    "agentprune": (2, "<"),
    "safesieve": (4, ">"),
    "oracle": (3, "*"),
    "empty": ("0.7", "p"),
}
_TYPES: dict[str, tuple[int, str]] = {
    "claim": (0, "o"),
    "evidence": (1, "^"),
    "uncertainty": (2, "s"),
    "request": (4, "D"),
    "sentence": (5, "v"),
    "message": (8, "P"),
}
SIGNS = {"positive": PALETTE[0], "zero": "0.85", "negative": PALETTE[3]}
_FONT = "DejaVu Sans"  # ships with the plotting library, so every machine draws the same glyphs
_RC = {
    "figure.dpi": 110,
    "axes.titleweight": "bold",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "font.family": _FONT,
}


def policy_colour(policy: str) -> str | tuple[float, float, float]:
    """Return the colour that belongs to a policy in every figure."""
    return look_of(policy)[0]


def plain_text(text: object, width: int = 60) -> str:
    """Return data as a label: one line, at most `width` characters, nothing that the text engine would interpret or could not draw.

    >>> plain_text("costs $5\\nand $6")
    'costs \\\\$5 and \\\\$6'
    """
    drawn = "".join(_drawable(character) for character in " ".join(str(text).split()))
    if len(drawn) > width:
        drawn = drawn[: width - 1].rstrip() + "…"
    # Escaped dollar signs start no mathematics, and without mathematics a backslash is only a character.
    return drawn.replace("$", r"\$")


def _drawable(character: str) -> str:
    if unicodedata.category(character) in {"Cc", "Cf", "Cs"}:
        return ""
    return character if ord(character) in _glyphs() else "\u25a1"


@lru_cache(maxsize=1)
def _glyphs() -> frozenset[int]:
    """Return the code points that the figures' font can draw."""
    return frozenset(get_font(findfont(_FONT)).get_charmap())


def look_of(policy: str) -> tuple[str | tuple[float, float, float], str]:
    """Return colour and marker of a policy; unknown ones share one look."""
    place, marker = _LOOKS.get(policy, (6, "h"))
    return (place if isinstance(place, str) else PALETTE[place]), marker


def type_look(kind: str) -> tuple[tuple[float, float, float], str]:
    """Return colour and marker of a packet type; unknown ones share one look."""
    place, marker = _TYPES.get(kind, (7, "X"))
    return PALETTE[place], marker


def types_in_order(types: pd.Series) -> list[str]:
    """Return the packet types present, known ones in their fixed order, then the others as they come."""
    return _known_first(types, _TYPES)


def long_name(policy: str) -> str:
    """Return the policy's name for a legend."""
    return plain_text(POLICY_NAMES.get(policy, policy), 24)


def short_name(policy: str) -> str:
    """Return the policy's name for a tick, without the words that all readers of the figure know."""
    name = POLICY_NAMES.get(policy)
    if name is None:
        return plain_text(policy, 18)
    name = name.removeprefix("BANDMAS ").removesuffix(" communication").removesuffix(" relevance")
    return name[0].upper() + name[1:]


def in_order(policies: pd.Series) -> list[str]:
    """Return the policies present, known ones in their fixed order, then the others as they come."""
    return _known_first(policies, _LOOKS)


def _known_first(names: pd.Series, known: Iterable[str]) -> list[str]:
    present = dict.fromkeys(names)
    return list(dict.fromkeys([*(name for name in known if name in present), *present]))


def theme() -> AbstractContextManager[None]:
    """Return the context in which every figure is built; settings outside it stay as they are."""
    spines = {"axes.spines.top": False, "axes.spines.right": False, "grid.color": "0.9", "axes.edgecolor": "0.4"}
    sns_style = {**sns.axes_style("whitegrid"), **spines}
    return mpl.rc_context({**sns.plotting_context("paper"), **sns_style, **_RC})
