"""Does a ladder of models show a threshold: its anchors, every curve that they allow, and the reasons to doubt a crossing.

Context
-------
Section 4.5 and appendix C.4 of the paper. `lib.coordination.sender_gap` compares curves over many anchors. A ladder of a few
models gives few anchors, and some curves cannot be fitted to them at all. Here everything is tried, and what could not be done is
said.

Intuition
---------
Every pair of a ladder is a stronger and a weaker sender, so three models make three anchors a receiver and family. They
share the receiver's accuracy alone and each other's messages. For the held-out comparison all anchors of a receiver and family stand in
one fold, which is stricter than holding out single anchors.

How to read the result
----------------------
A crossing counts as identified only without a doubt. `doubts` names each one: too few anchors, effects of one sign, a line that
does not fall or crosses where nobody was measured, an interval over half of the scale or from resamples of which more than
one in twenty has no crossing, a constant that predicts held-out anchors as well, two crossings that predict them better, signs that
a constant guess gets as often right.

Not covered: whether the order of the ladder is one of strength (it is the caller's); errors of x.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.coordination.anchors import points_of, sender_anchors
from lib.coordination.crossing_fits import MODELS, Fit, FitError, Model, Points, fit_curve
from lib.coordination.sender_gap import (
    DRAWS,
    FOLDS,
    CrossingInterval,
    SignAgreement,
    crossing_interval,
    held_out,
    sign_agreement,
)

FEW_ANCHORS = 10  # the paper's folds; with fewer anchors some fold holds none
MOST_DROPPED = 0.05
WIDEST = 0.5  # of the scale of accuracies
_DIGITS = 12


@dataclass(frozen=True)
class Threshold:
    """What anchors say about a threshold.

    Attributes
    ----------
    anchors : those with a gap, as used
    fits : curve -> fit, for those that could be fitted
    scores : of `lib.coordination.sender_gap.held_out`, for the curves that every fold allows
    intervals : of ``linear`` and ``hinge``, where they could be fitted
    signs : None if every effect is zero
    folds : folds of the held-out comparison; 0 without one
    skipped : what could not be done -> why
    doubts : why no crossing counts as identified; empty if one does
    """

    anchors: pd.DataFrame
    fits: dict[Model, Fit]
    scores: pd.DataFrame
    intervals: dict[Model, CrossingInterval]
    signs: SignAgreement | None
    folds: int
    skipped: dict[str, str]
    doubts: tuple[str, ...]

    @property
    def identified(self) -> bool:
        """A crossing was found and nothing speaks against it."""
        return not self.doubts

    def curves(self, places: int = 101) -> pd.DataFrame:
        """Return every fitted curve at `places` accuracies from 0 to 1: ``model``, ``x``, ``y``."""
        x = np.linspace(0.0, 1.0, places)
        parts = [pd.DataFrame({"model": name, "x": x, "y": fit.predict(x)}) for name, fit in self.fits.items()]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["model", "x", "y"])


def ladder_anchors(scored: pd.DataFrame, ladder: Sequence[str]) -> pd.DataFrame:
    """Return the anchors of every pair of senders.

    Parameters
    ----------
    scored : as for `lib.coordination.anchors.sender_anchors`
    ladder : sender models, the strongest first

    Raises
    ------
    ValueError
        With fewer than two senders, or one named twice.
    """
    if len(ladder) < 2 or len(set(ladder)) != len(ladder):
        raise ValueError(f"ladder: two or more senders are needed, each once, not {list(ladder)}")
    pairs = itertools.combinations(ladder, 2)
    return pd.concat([sender_anchors(scored, strong=one, weak=other) for one, other in pairs], ignore_index=True)


def find_threshold(
    anchors: pd.DataFrame, *, folds: int = FOLDS, draws: int = DRAWS, level: float = 0.95, seed: int = 0
) -> Threshold:
    """Try every curve on the anchors, and say what speaks against a threshold.

    Parameters
    ----------
    anchors : of `ladder_anchors`; those without a gap are left out
    folds : held out in turn, at most one a receiver and family
    draws, level, seed : of the bootstrap over anchors
    """
    known = anchors[anchors["gap"].notna() & anchors["receiver_only"].notna() & (anchors["steps"] > 0)]
    known = known.reset_index(drop=True)
    points, skipped = points_of(known), dict[str, str]()
    fits: dict[Model, Fit] = {}
    intervals: dict[Model, CrossingInterval] = {}
    for model in MODELS:
        try:
            fits[model] = fit_curve(points, model)
            if model in ("linear", "hinge"):
                intervals[model] = crossing_interval(points, model=model, draws=draws, level=level, seed=seed)
        except FitError as error:
            skipped[f"{model} fit"] = str(error)
    scores, used = _held_out(known, folds, seed, skipped)
    try:
        signs = sign_agreement(points)
    except FitError as error:
        signs, skipped["signs"] = None, str(error)
    doubts = tuple(_doubts(points, fits, scores, intervals, signs))
    return Threshold(known, fits, scores, intervals, signs, used, skipped, doubts)


def _held_out(known: pd.DataFrame, folds: int, seed: int, skipped: dict[str, str]) -> tuple[pd.DataFrame, int]:
    cells = list(known["benchmark"].astype(str) + "/" + known["receiver_model"].astype(str))
    used = min(folds, len(set(cells)))
    points = points_of(known, by_benchmark=True)
    parts = []
    for model in MODELS:
        try:
            parts.append(held_out(points, cells, models=[model], folds=used, seed=seed))
        except FitError as error:
            skipped[f"{model} held out"] = str(error)
    names = ["fold", "anchor", "model", "observed", "predicted", "log_score"]
    return (pd.concat(parts, ignore_index=True), used) if parts else (pd.DataFrame(columns=names), 0)


def _doubts(
    points: Points,
    fits: dict[Model, Fit],
    scores: pd.DataFrame,
    intervals: dict[Model, CrossingInterval],
    signs: SignAgreement | None,
) -> list[str]:
    found = []
    if len(points) < FEW_ANCHORS:
        found.append(f"there are {len(points)} anchors, fewer than {FEW_ANCHORS}")
    effects = np.round(points.y, _DIGITS)
    above, below = int((effects > 0).sum()), int((effects < 0).sum())
    if not (above and below):
        found.append("no anchor harms" if above else "no anchor helps" if below else "no sender makes a difference")
    elif signs is not None and signs.agree <= max(above, below):
        found.append(
            f"one sign for all agrees with {max(above, below)} of {signs.nonzero} effects, the best cut with no more"
        )
    found += _line_doubts(points, fits.get("linear"), intervals.get("linear"))
    means = scores.groupby("model")["log_score"].mean()
    single = [means[name] for name in ("linear", "hinge") if name in means]
    if not single or "constant" not in means:
        found.append("curves could not be compared on anchors held out")
    elif round(max(single) - means["constant"], _DIGITS) <= 0:
        found.append("a constant predicts held-out anchors as well as a curve that crosses")
    elif "two_crossings" in means and round(means["two_crossings"] - max(single), _DIGITS) > 0:
        found.append("two crossings predict held-out anchors better than one")
    return found


def _line_doubts(points: Points, line: Fit | None, interval: CrossingInterval | None) -> list[str]:
    if line is None or interval is None:
        return ["no line can be fitted"]
    if line.crossing is None:
        return ["the line does not fall"]
    found = []
    if not min(points.x) <= line.crossing <= max(points.x):
        span = f"{min(points.x):.2f} to {max(points.x):.2f}"
        found.append(f"the line crosses at {line.crossing:.2f}, outside the accuracies measured, {span}")
    if interval.dropped > MOST_DROPPED:
        found.append(f"{interval.dropped:.0%} of the resamples have no crossing")
    if interval.low is not None and interval.high is not None and interval.high - interval.low > WIDEST:
        found.append(f"the interval of the crossing is {interval.high - interval.low:.2f} wide")
    return found
