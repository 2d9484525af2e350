"""How ways of communicating look in every figure of teams.

An arm has one name, one colour of a colour-blind palette and one marker, wherever it appears and whatever stands beside it. Where
an arm appears with several K, the highest has the arm's own colour and lower ones are paler.

Not covered: policies and packets (`lib.evaluation.looks`), what is drawn (`lib.evaluation.moc_figures`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from lib.evaluation.looks import PALETTE, plain_text
from lib.evaluation.panels import legend_entries

Colour = str | tuple[float, float, float]
ARM_NAMES = {
    "single": "Single model",
    "vanilla": "Vanilla team",
    "moc_flow": "MOC without merging",
    "moc": "MOC",
}
_ARMS: dict[str, tuple[Colour, str]] = {
    "single": ("0.35", "s"),
    "vanilla": (PALETTE[1], "^"),
    "moc_flow": (PALETTE[4], "D"),
    "moc": (PALETTE[0], "o"),
}
_OTHER: tuple[tuple[Colour, str], ...] = ((PALETTE[2], "v"), (PALETTE[8], "P"), (PALETTE[5], "X"), (PALETTE[9], "p"))


@dataclass(frozen=True)
class Series:
    """One arm and K as it is drawn; K is None where the arm has one alone."""

    arm: str
    k: int | None
    colour: Colour
    marker: str

    @property
    def name(self) -> str:
        """Name for a legend or a tick."""
        own = plain_text(ARM_NAMES.get(self.arm, self.arm), 28)
        return own if self.k is None else f"{own}, K = {self.k}"

    def rows(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a table that belong to it."""
        own = table[table["arm"] == self.arm]
        return own if self.k is None else own[own["k"] == self.k]


def series_of(table: pd.DataFrame) -> list[Series]:
    """Return each arm and K of a table once: known arms in their order, then the others as they come, K rising."""
    present = list(dict.fromkeys(table["arm"]))
    others = [arm for arm in present if arm not in _ARMS]
    found = []
    for arm in [*(arm for arm in _ARMS if arm in present), *others]:
        colour, marker = _ARMS[arm] if arm in _ARMS else _OTHER[others.index(arm) % len(_OTHER)]
        orders = sorted(set(table.loc[table["arm"] == arm, "k"].dropna()))
        if len(orders) < 2:
            found.append(Series(arm, None, colour, marker))
            continue
        for place, k in enumerate(orders):
            pale = 0.6 * (len(orders) - 1 - place) / (len(orders) - 1)
            red, green, blue = (1 - (1 - pale) * (1 - part) for part in to_rgb(colour))
            found.append(Series(arm, int(k), (red, green, blue), marker))
    return found


def legend_below(figure: Figure, axes: Iterable[Axes], columns: int) -> None:
    """Put one legend for all panels below them, at most so many entries a row, rows of about equal length."""
    entries = legend_entries(axes)
    if entries:
        rows = -(-len(entries) // columns)
        place = {"loc": "outside lower center", "ncols": -(-len(entries) // rows), "handlelength": 1.6}
        figure.legend(entries.values(), entries.keys(), **place)


def short_count(value: float) -> str:
    """Return a count with k for thousands: 950, 2.1k, 13.0k, 120k.

    >>> [short_count(value) for value in (0, 950, 2_060, 13_000, 120_400)]
    ['0', '950', '2.1k', '13.0k', '120k']
    """
    if abs(value) < 999.5:
        return f"{value:.0f}"
    return f"{value / 1000:.{1 if abs(value) < 99_950 else 0}f}k"


def count_tick(value: float, _: object = None) -> str:
    """Return a count for an axis, without a trailing zero; a tick formatter.

    >>> count_tick(2_000), count_tick(2_500)
    ('2k', '2.5k')
    """
    return short_count(value).replace(".0k", "k")
