"""When a stronger sender helps: the receiver's burden at which extra gain and extra tax balance.

Context
-------
Section 2.5 and appendix B.4 of the paper. The same receiver gets a message from a stronger or a weaker sender. Its
burden beta is how much it needs help from upstream, measured as 1 minus its accuracy without a message.

Intuition
---------
A stronger sender may write what the weaker one missed, and may write it longer and stranger. From the same silence the
difference of utilities is extra gain minus extra tax, F = dA - dtau. If F is continuous and goes from below zero to
above it exactly once as burden grows, one threshold beta* parts harm from help. If it crosses twice, or rests at zero,
there is no such threshold, whatever a fitted line says.

How to read the result
----------------------
`find_crossing` gives beta* to 1e-10 or raises, saying in which way the condition fails. It looks at a grid first: two
crossings closer together than the grid's step look like none or one.

Not covered: fitting a curve through measured points with errors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lib.coordination.gain import OneStep, need_same_silence

TOLERANCE = 1e-10


class CrossingError(ValueError):
    """The function has no strict single crossing from below zero to above."""


def sender_gap(strong: OneStep, weak: OneStep) -> tuple[float, float]:
    """Return extra gain dA and extra tax dtau of the stronger sender; its advantage is dA - dtau.

    Raises
    ------
    ValueError
        If the steps start from different silence.
    """
    need_same_silence(strong, weak)
    return strong.gain - weak.gain, strong.tax - weak.tax


def find_crossing(
    advantage: Callable[[float], float],
    low: float = 0.0,
    high: float = 1.0,
    *,
    grid: int = 1001,
    tolerance: float = TOLERANCE,
) -> float:
    """Return the burden beta* at which `advantage` strictly crosses zero from below.

    Parameters
    ----------
    advantage : F(beta) = dA - dtau, continuous on [low, high]
    low, high : ends of the burden's range
    grid : points at which signs are looked at first
    tolerance : width of the bracket around beta*

    Raises
    ------
    CrossingError
        If the sign does not go from - to + exactly once, or F is zero on an interval wider than `tolerance`.

    >>> round(find_crossing(lambda beta: 0.5 * beta - (0.3 - 0.2 * beta)), 6)
    0.428571
    """
    points = np.linspace(low, high, grid)
    signs = np.sign([advantage(float(beta)) for beta in points])
    if signs[0] >= 0 or signs[-1] <= 0:
        raise CrossingError(
            f"advantage must be below 0 at {low:g} and above 0 at {high:g}; it is {advantage(low):.3g} and "
            f"{advantage(high):.3g}"
        )
    moving = signs[signs != 0]
    changes = int((np.diff(moving) != 0).sum())
    if changes != 1:
        raise CrossingError(f"advantage changes sign {changes} times on [{low:g}, {high:g}]; a threshold needs one")
    last_harm = float(points[signs < 0][-1])
    first_help = float(points[signs > 0][0])
    until = _bisect(lambda beta: advantage(beta) < 0, last_harm, first_help, tolerance)  # harm ends
    since = _bisect(lambda beta: advantage(beta) <= 0, last_harm, first_help, tolerance)  # help begins
    if since - until > 2 * tolerance:
        raise CrossingError(f"advantage is zero from {until:.10g} to {since:.10g}: no single threshold")
    return (until + since) / 2


def _bisect(before: Callable[[float], bool], low: float, high: float, tolerance: float) -> float:
    """Return where `before` turns from true to false."""
    while high - low > tolerance:
        middle = (low + high) / 2
        if middle in (low, high):  # no number lies between them
            break
        low, high = (middle, high) if before(middle) else (low, middle)
    return (low + high) / 2
