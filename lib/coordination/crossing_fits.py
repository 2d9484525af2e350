"""Curves through measured sender gaps, and where they cross zero.

Context
-------
Section 4.5 and appendix C.4 of the paper. An anchor is one benchmark, receiver and pair of senders. Its point is x, the
receiver's accuracy without a message, and y, how much better it does with the stronger sender's message than with the
weaker one's. `lib.coordination.crossing` says what a threshold is; here curves are fitted to points that have errors.

Intuition
---------
Four shapes are the candidates. ``constant``: the sender matters the same everywhere, no threshold. ``linear``: one
straight fall. ``hinge``: a line that bends once. ``two_crossings``: a parabola through zero twice, so that help ends and
begins again. All are weighted least squares, because an anchor of 400 steps says more than one of 36. The parabola is
held to two zeros inside (0, 1); where the free one has none, the best pair of zeros on a grid is taken, so that this shape
stays what its name says.

Benchmarks differ for reasons other than x. With `groups`, each gets an intercept of its own, drawn towards zero like
n / (n + 1) with n the weight of its anchors. This is generalised least squares: the points of one benchmark vary together.

How to read the result
----------------------
`Fit.crossing` is the one x at which the curve goes from help to harm, or None. A line may cross outside (0, 1), where
there is no receiver. `r2` is weighted and leaves the intercepts out.

Not covered: points without an error in y alone (x is measured too, and an error there flattens every slope).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike

Model = Literal["constant", "linear", "hinge", "two_crossings"]
MODELS: tuple[Model, ...] = ("constant", "linear", "hinge", "two_crossings")
PARAMETERS = {"constant": 1, "linear": 2, "hinge": 4, "two_crossings": 3}  # the knot and the zeros count
KNOTS = np.linspace(0.1, 0.9, 9)  # quantiles of x at which a line may bend
_ZEROS = np.linspace(0.01, 0.99, 99)
_DIGITS = 12  # errors are rounded to this many digits before ties are broken


class FitError(ValueError):
    """Points that no curve can be fitted to."""


class Points(msgspec.Struct, frozen=True):
    """Measured anchors, in any order.

    Attributes
    ----------
    x : accuracies of the receiver without a message, 0 to 1
    y : gaps between the senders, -1 to 1
    steps : steps behind each point, > 0
    groups : benchmark of each point; empty for no intercepts of their own
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    steps: tuple[float, ...]
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        lengths = {"y": len(self.y), "steps": len(self.steps), "groups": len(self.groups) or len(self.x)}
        wrong = {name: length for name, length in lengths.items() if length != len(self.x)}
        if wrong:
            raise FitError(f"points: x has {len(self.x)} values, but {wrong}; give every anchor one")
        if not all(0 <= x <= 1 for x in self.x) or not all(-1 <= y <= 1 for y in self.y):
            raise FitError("points: x must lie in [0, 1] and y in [-1, 1]; leave an anchor out that was not measured")
        if any(not steps > 0 for steps in self.steps):
            raise FitError("points: steps must be above 0; leave an anchor without common steps out")

    def __len__(self) -> int:
        return len(self.x)

    def take(self, places: Sequence[int] | np.ndarray) -> Points:
        """Return the anchors at these places."""
        kept = [int(place) for place in places]
        x, y, steps = (tuple(part[place] for place in kept) for part in (self.x, self.y, self.steps))
        return Points(x, y, steps, tuple(self.groups[place] for place in kept) if self.groups else ())


class Fit(msgspec.Struct, frozen=True):
    """A fitted curve.

    Attributes
    ----------
    model : one of `MODELS`
    coefficients : of the columns 1; 1, x; 1, x, max(0, x - knot); or 1, x, x^2
    knot : where a hinge bends, else None
    crossings : zeros of the curve, ascending; of a line wherever it lies, else within (0, 1)
    crossing : the one at which help turns to harm, if there is no other
    variance : of a point of average weight, around curve and intercept; None without degrees of freedom
    r2 : weighted share of the variance of y explained by the curve alone; None if y does not vary
    intercepts : benchmark to its own intercept; empty without groups
    """

    model: Model
    coefficients: tuple[float, ...]
    knot: float | None
    crossings: tuple[float, ...]
    crossing: float | None
    variance: float | None
    r2: float | None
    intercepts: dict[str, float] = {}

    def predict(self, x: ArrayLike) -> np.ndarray:
        """Return the curve at `x`, without intercepts; the shape of `x`."""
        at = np.asarray(x, dtype=float)
        return columns(self.model, at, self.knot) @ np.array(self.coefficients)


class _Solved(NamedTuple):
    error: float  # squares left over, after whitening
    coefficients: np.ndarray
    knot: float | None


def columns(model: Model, x: ArrayLike, knot: float | None = None) -> np.ndarray:
    """Return the design of a model, shape (*x.shape, n_coefficients)."""
    at = np.asarray(x, dtype=float)
    bent = [np.maximum(0.0, at - knot)] if knot is not None else []
    terms = {
        "constant": [np.ones_like(at)],
        "linear": [np.ones_like(at), at],
        "hinge": [np.ones_like(at), at, *bent],
        "two_crossings": [np.ones_like(at), at, at**2],
    }
    return np.stack(terms[model], axis=-1)


def fit_curve(points: Points, model: Model) -> Fit:
    """Fit one curve by weighted least squares.

    Parameters
    ----------
    points : anchors; with `groups`, benchmarks get shrunk intercepts
    model : one of `MODELS`

    Returns
    -------
    Fit

    Raises
    ------
    FitError
        For an unknown model, or fewer distinct x than the curve has columns.

    >>> toy = Points((0.1, 0.3, 0.5, 0.7, 0.9), (0.35, 0.22, 0.10, -0.05, -0.18), (1, 1, 1, 1, 1))
    >>> line = fit_curve(toy, "linear")
    >>> [round(number, 4) for number in line.coefficients], round(line.crossing, 5)
    ([0.4205, -0.665], 0.63233)
    """
    if model not in MODELS:
        raise FitError(f"model: {model!r} is no curve; known: {', '.join(MODELS)}")
    needed = {"constant": 1, "linear": 2, "hinge": 3, "two_crossings": 3}[model]
    if len(set(points.x)) < needed:
        raise FitError(f"points: a {model} fit needs {needed} distinct x, there are {len(set(points.x))}")
    x, y = np.array(points.x), np.array(points.y)
    weights = relative_weights(points)
    whiten = _whitener(weights, points.groups)
    solved = _solve(model, x, y, whiten)
    left = y - columns(model, x, solved.knot) @ solved.coefficients
    free = len(points) - PARAMETERS[model]
    spread = float(weights @ (y - np.average(y, weights=weights)) ** 2)
    crossings = _zeros(model, solved)
    return Fit(
        model=model,
        coefficients=tuple(solved.coefficients.tolist()),
        knot=solved.knot,
        crossings=crossings,
        crossing=_help_to_harm(model, crossings, solved),
        variance=solved.error / free if free > 0 else None,
        r2=1 - float(weights @ left**2) / spread if spread > 1e-24 else None,
        intercepts=_intercepts(left, weights, points.groups),
    )


def relative_weights(points: Points) -> np.ndarray:
    """Return the weight of each anchor: its steps over the mean number of steps, shape (n_anchors,)."""
    steps = np.array(points.steps, dtype=float)
    return steps / steps.mean()


def bend_places(x: ArrayLike) -> np.ndarray:
    """Return the places at which a hinge may bend, ascending: quantiles of x strictly inside its range, or, if most
    anchors share an end of it and none is inside, all its distinct values there."""
    at = np.asarray(x, dtype=float)
    for places in (np.unique(np.quantile(at, KNOTS)), np.unique(at)):
        inside = places[(places > at.min()) & (places < at.max())]
        if len(inside):
            break
    return inside


def _solve(model: Model, x: np.ndarray, y: np.ndarray, whiten: np.ndarray) -> _Solved:
    """Return the coefficients with the least squares left over."""
    if model == "hinge":
        return _least([_ordinary(columns(model, x, knot), y, whiten, float(knot)) for knot in bend_places(x)])
    free = _ordinary(columns(model, x), y, whiten, None)
    if model != "two_crossings" or len(_inside(free.coefficients)) == 2:
        return free
    return _two_zeros(x, y, whiten)


def _ordinary(design: np.ndarray, y: np.ndarray, whiten: np.ndarray, knot: float | None) -> _Solved:
    flat, target = whiten @ design, whiten @ y
    coefficients = np.linalg.lstsq(flat, target, rcond=None)[0]
    return _Solved(float(((target - flat @ coefficients) ** 2).sum()), coefficients, knot)


def _two_zeros(x: np.ndarray, y: np.ndarray, whiten: np.ndarray) -> _Solved:
    """Return the best c (x - low)(x - high) with low < high on a grid in (0, 1)."""
    low, high = _zero_pairs().T
    shape = whiten @ ((x[:, None] - low) * (x[:, None] - high))  # (n_anchors, n_pairs)
    target = whiten @ y
    scale = (shape * target[:, None]).sum(0) / (shape**2).sum(0)
    error = ((target[:, None] - shape * scale) ** 2).sum(0)
    best = int(np.round(error, _DIGITS).argmin())
    coefficients = scale[best] * np.array([low[best] * high[best], -(low[best] + high[best]), 1.0])
    return _Solved(float(error[best]), coefficients, None)


@lru_cache(maxsize=1)
def _zero_pairs() -> np.ndarray:
    return np.array(list(itertools.combinations(_ZEROS, 2)))


def _least(solved: list[_Solved]) -> _Solved:
    """Return the solution with the smallest error; the first of equal ones."""
    return min(solved, key=lambda one: round(one.error, _DIGITS))


def _whitener(weights: np.ndarray, groups: Sequence[str]) -> np.ndarray:
    """Return the matrix that makes errors of unit variance and independent, (n_anchors, n_anchors)."""
    covariance = np.diag(1 / weights)
    if groups:
        names = np.array(groups)
        covariance = covariance + (names[:, None] == names)
    return np.linalg.inv(np.linalg.cholesky(covariance))


def _intercepts(left: np.ndarray, weights: np.ndarray, groups: Sequence[str]) -> dict[str, float]:
    """Return the mean of each benchmark's residuals, times n / (n + 1) with n its summed weight."""
    names = np.array(groups)
    return {
        name: float((weights @ (left * (names == name))) / (weights @ (names == name) + 1))
        for name in sorted({*groups})
    }


def _zeros(model: Model, solved: _Solved) -> tuple[float, ...]:
    """Return where the curve changes its sign, ascending."""
    parts = solved.coefficients
    if model == "linear":
        return (float(-parts[0] / parts[1]),) if parts[1] != 0 else ()
    if model == "two_crossings":
        return _inside(parts)
    if model == "hinge":
        ends = np.array([0.0, solved.knot or 0.0, 1.0])
        values = columns(model, ends, solved.knot) @ parts
        found = []
        for place in range(2):
            first, last = values[place], values[place + 1]
            if first * last < 0:
                found.append(ends[place] + (ends[place + 1] - ends[place]) * first / (first - last))
        if values[1] == 0 and values[0] * values[2] < 0:
            found.append(ends[1])
        return tuple(float(zero) for zero in found)
    return ()


def _inside(parts: np.ndarray) -> tuple[float, ...]:
    """Return the zeros of a + b x + c x^2 inside (0, 1), if the parabola has two distinct zeros."""
    a, b, c = parts
    inner = b * b - 4 * a * c
    if c == 0 or inner <= 0:
        return ()
    both = sorted(((-b - inner**0.5) / (2 * c), (-b + inner**0.5) / (2 * c)))
    return tuple(float(zero) for zero in both if 0 < zero < 1)


def _help_to_harm(model: Model, crossings: tuple[float, ...], solved: _Solved) -> float | None:
    """Return the only crossing if the curve falls through zero there."""
    if len(crossings) != 1 or model == "two_crossings":
        return None
    falls = solved.coefficients[1] < 0 if model == "linear" else solved.coefficients[0] > 0  # a hinge begins above zero
    return crossings[0] if falls else None
