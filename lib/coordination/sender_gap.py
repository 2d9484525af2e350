"""Is there one threshold: anchors of the sender swap, held-out comparison of curves, interval of the crossing, signs.

Context
-------
Section 4.5 and appendix C.4 of the paper. The same receiver gets messages of a stronger and of a weaker sender. The claim is
that help turns to harm once, as the receiver needs less help. `lib.coordination.crossing_fits` draws the curves; here
it is asked how far the points support one.

Intuition
---------
A curve with more freedom always fits its own points better, so curves are compared on anchors that they were not fitted
to: whole anchors are held out, never single steps, and each held-out gap gets the log density that the fit gives it. A
benchmark of which some anchors stay in keeps its intercept; a new one gets a wider guess. The interval comes from
drawing anchors with replacement. A resample whose curve does not fall has no threshold and is dropped; the share of
dropped ones is part of the result, because an interval over the remaining ones alone would look too sure.

How to read the result
----------------------
`held_out` gives nats an anchor: a difference of 0.1 means little over ten folds, and `folds_won` counts in how many of
them one curve is ahead of another. Counting signs asks for less than any curve: `sign_agreement` gives the cut that most
anchors agree with, and is optimistic by construction, since the cut was chosen on them.

Not covered: errors of x; anchors that share a receiver and are therefore alike (draw by receiver then).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import msgspec
import numpy as np
import pandas as pd

from lib.coordination.crossing_fits import (
    MODELS,
    FitError,
    Model,
    Points,
    bend_places,
    columns,
    fit_curve,
    relative_weights,
)
from lib.seeds import generator, hash_order

DRAWS = 5_000
FOLDS = 10
_CHUNK = 500  # draws solved at once
_DIGITS = 12


class CrossingInterval(msgspec.Struct, frozen=True):
    """A crossing with its bootstrap interval.

    Attributes
    ----------
    crossing : of all anchors; None if their curve has none
    low, high : percentile interval over the resamples that have a crossing; None if none has
    draws : resamples
    dropped : share of them without a crossing from help to harm, 0 to 1
    """

    model: Model
    crossing: float | None
    low: float | None
    high: float | None
    draws: int
    dropped: float


class SignAgreement(msgspec.Struct, frozen=True):
    """How many anchors help below a cut and harm above it.

    Attributes
    ----------
    low, high : any cut between these two agrees with as many
    agree, nonzero : anchors; effects that are zero are in neither
    """

    low: float
    high: float
    agree: int
    nonzero: int


def held_out(
    points: Points,
    anchors: Sequence[Hashable],
    *,
    models: Sequence[Model] = MODELS,
    folds: int = FOLDS,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the log score of every held-out anchor under every curve.

    Parameters
    ----------
    points : with `groups`, a benchmark that has anchors in the other folds is predicted with its intercept
    anchors : (n_points,) ids; points of one anchor stand in one fold
    models : curves
    folds : anchors are dealt out to them in an order that `seed` names

    Returns
    -------
    DataFrame, one row a point and model: ``fold``, ``anchor``, ``model``, ``observed``, ``predicted``, ``log_score`` (nats,
    Gaussian with the variance of the other folds)

    Raises
    ------
    FitError
        With fewer anchors than folds, or too few outside a fold to estimate a variance.
    """
    if len(anchors) != len(points):
        raise FitError(f"anchors: {len(anchors)} ids for {len(points)} points; give each point one")
    ids = hash_order({str(anchor) for anchor in anchors}, "anchor fold", seed)
    if not 2 <= folds <= len(ids):
        raise FitError(f"folds: {len(ids)} anchors cannot be dealt out to {folds} folds; use 2 to {len(ids)}")
    fold_of = np.array([ids.index(str(anchor)) % folds for anchor in anchors])
    rows = []
    for fold in range(folds):
        inside, outside = np.flatnonzero(fold_of == fold), np.flatnonzero(fold_of != fold)
        for model in models:
            predicted, score = _log_scores(points.take(outside), points.take(inside), model)
            for place, guess, nats in zip(inside, predicted, score, strict=True):
                rows.append((fold, str(anchors[int(place)]), model, points.y[place], float(guess), float(nats)))
    return pd.DataFrame(rows, columns=["fold", "anchor", "model", "observed", "predicted", "log_score"])


def folds_won(scores: pd.DataFrame) -> pd.DataFrame:
    """Return in how many folds one curve predicts better than another.

    Parameters
    ----------
    scores : of `held_out`

    Returns
    -------
    DataFrame, one row an ordered pair: ``model``, ``against``, ``won`` (folds whose summed log score is higher), ``folds``,
    ``nats`` (mean advantage an anchor). Equal sums win for neither.
    """
    sums = scores.pivot_table(index="fold", columns="model", values="log_score", aggfunc="sum", sort=False).round(
        _DIGITS
    )
    means = scores.groupby("model", sort=False)["log_score"].mean()
    rows = [
        (model, other, int((sums[model] > sums[other]).sum()), len(sums), float(means[model] - means[other]))
        for model in sums.columns
        for other in sums.columns
        if model != other
    ]
    return pd.DataFrame(rows, columns=["model", "against", "won", "folds", "nats"])


def crossing_interval(
    points: Points,
    *,
    model: Literal["linear", "hinge"] = "linear",
    draws: int = DRAWS,
    level: float = 0.95,
    seed: int = 0,
) -> CrossingInterval:
    """Return the crossing of all anchors and its percentile interval over resampled anchors.

    Parameters
    ----------
    points : anchors, one point each; intercepts of benchmarks are left out
    model : ``linear`` (crosses wherever it falls) or ``hinge`` (above zero at 0, below it at 1; it bends at a
        quantile of all anchors)
    draws : resamples
    level : coverage aimed at
    seed : names the draws

    Raises
    ------
    FitError
        As `fit_curve`; for another model; for a level outside (0, 1).
    """
    if model not in ("linear", "hinge"):
        raise FitError(f"model: {model!r} has no single crossing; use linear or hinge")
    if not 0 < level < 1:
        raise FitError(f"level must lie between 0 and 1, not {level!r}")
    plain = Points(points.x, points.y, points.steps)
    whole = fit_curve(plain, model)
    rng = generator("crossing interval", model, seed)
    picks = rng.integers(0, len(plain), (draws, len(plain)))
    counts = np.stack([np.bincount(pick, minlength=len(plain)) for pick in picks])  # (draws, n_anchors)
    found = np.concatenate(
        [_crossings(plain, model, counts[start : start + _CHUNK]) for start in range(0, draws, _CHUNK)]
    )
    kept = found[np.isfinite(found)]
    low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2]) if len(kept) else (None, None)
    return CrossingInterval(
        model=model,
        crossing=whole.crossing,
        low=None if low is None else float(low),
        high=None if high is None else float(high),
        draws=draws,
        dropped=(draws - len(kept)) / draws,
    )


def sign_agreement(points: Points) -> SignAgreement:
    """Return the cut that most anchors agree with: above zero below it, below zero above it.

    Raises
    ------
    FitError
        If every effect is zero.

    >>> sign_agreement(Points((0.1, 0.4, 0.6, 0.8), (0.2, 0.1, 0.0, -0.1), (1, 1, 1, 1)))
    SignAgreement(low=0.4, high=0.8, agree=3, nonzero=3)
    """
    x, y = np.array(points.x), np.round(points.y, _DIGITS)
    x, y = x[y != 0], y[y != 0]
    if not len(y):
        raise FitError("points: every effect is zero; there is no sign to agree with")
    edges = np.concatenate([[-np.inf], np.unique(x), [np.inf]])  # a cut lies between two neighbours
    agree = ((x <= edges[:-1, None]) == (y > 0)).sum(1)
    best = int(agree.argmax())
    low, high = np.clip(edges[best : best + 2], 0.0, 1.0)
    return SignAgreement(float(low), float(high), int(agree[best]), len(y))


def _crossings(points: Points, model: Model, counts: np.ndarray) -> np.ndarray:
    """Return the crossing of each resample, (draws,); nan without one."""
    x, y = np.array(points.x), np.array(points.y)
    weights = counts * relative_weights(points)
    knots = bend_places(x) if model == "hinge" else np.array([np.nan])
    best_error = np.full(len(counts), np.inf)
    found = np.full(len(counts), np.nan)
    for knot in knots:
        design = columns(model, x, None if np.isnan(knot) else float(knot))
        squares = np.einsum("dn,ni,nj->dij", weights, design, design)
        parts = np.einsum("dij,dj->di", np.linalg.pinv(squares, hermitian=True), weights @ (design * y[:, None]))
        error = (weights * (y - parts @ design.T) ** 2).sum(1).round(_DIGITS)
        solvable = np.linalg.matrix_rank(squares, hermitian=True) == design.shape[1]
        better = solvable & (error < best_error)
        zero = _falling_line(parts) if model == "linear" else _falling_hinge(parts, float(knot))
        best_error, found = np.where(better, error, best_error), np.where(better, zero, found)
    return found


def _falling_line(parts: np.ndarray) -> np.ndarray:
    """Return -a / b where b < 0, else nan; parts has shape (draws, 2)."""
    falls = parts[:, 1] < 0
    return np.where(falls, -parts[:, 0] / np.where(falls, parts[:, 1], 1.0), np.nan)


def _falling_hinge(parts: np.ndarray, knot: float) -> np.ndarray:
    """Return the zero of a hinge above zero at 0 and below it at 1, else nan; parts has shape (draws, 3)."""
    first, bend, last = (columns("hinge", np.array([0.0, knot, 1.0]), knot) @ parts.T).reshape(3, -1)
    falls = (first > 0) & (last < 0)
    early = bend < 0  # the zero lies before the bend
    width = np.where(early, first - bend, bend - last)
    rise = np.where(early, first, bend) / np.where(falls, width, 1.0)
    return np.where(falls, np.where(early, knot * rise, knot + (1 - knot) * rise), np.nan)


def _log_scores(train: Points, test: Points, model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions of held-out gaps and their log densities, each (n_test,)."""
    fit = fit_curve(train, model)
    if fit.variance is None or fit.variance <= 0:
        raise FitError(f"points: {len(train)} anchors outside a fold leave a {model} fit no variance; use more anchors")
    known = fit.intercepts
    average = np.mean(train.steps)
    doubt = average / np.array(test.steps)  # variance of a point, in units of that of an average one
    if train.groups:
        weight = {name: float(relative_weights(train)[np.array(train.groups) == name].sum()) for name in known}
        doubt = doubt + np.array([1 / (1 + weight.get(name, 0.0)) for name in test.groups])
    shift = np.array([known.get(name, 0.0) for name in test.groups]) if test.groups else 0.0
    predicted = fit.predict(np.array(test.x)) + shift
    variance = fit.variance * doubt
    return predicted, -0.5 * (np.log(2 * np.pi * variance) + (np.array(test.y) - predicted) ** 2 / variance)
