"""Does a score known beforehand tell harmful items from others: area under the curve and rank correlation, with intervals.

Context
-------
A receiver-relative quantity, such as the tax of a packet, is measured without gold. The replay effect of the packet needs gold. If
the first told where the second is negative, harm could be seen before it is done.

Intuition
---------
The area under the ROC curve is the probability that a harmful item has a higher score than one that is not, ties counted half: one
half for a score that knows nothing. It needs no threshold, and few harmful items only make its interval wide. Items of one task
share its question and its receiver's mood, so tasks are resampled whole.

How to read the result
----------------------
``separates`` asks whether the interval leaves out one half. A draw of tasks in which nothing, or everything, is harmful has no area;
such draws are left out and ``undefined`` gives their share: with many of them the interval is of little use.

Not covered: choosing a threshold; corrections for several scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from lib.evaluation.frames import need_columns
from lib.evaluation.inference import spearman

NEGATIVE = -1e-9  # an effect below this is harm; what is nearer to zero is below the resolution of a metric


def area_under_curve(scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the probability that a positive has a higher score than a negative, ties half; nan without both kinds.

    >>> area_under_curve(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, False, True, True]))
    0.875
    """
    count = int(positive.sum())
    rest = len(positive) - count
    if not count or not rest:
        return math.nan
    ranks = rankdata(scores)
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * rest))


def sign_prediction(
    frame: pd.DataFrame,
    scores: Sequence[str],
    *,
    effect: str = "rce",
    cluster: str = "task_id",
    resamples: int = 1_000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how well each score tells where an effect is negative.

    Parameters
    ----------
    frame : one row an item: `scores` (higher is meant to be worse), `effect`, `cluster`; rows with a null effect, or a null of the
        score in question, are left out and counted
    resamples, level, seed : of the bootstrap over clusters

    Returns
    -------
    DataFrame, one row a score: ``score``, ``items``, ``lost``, ``tasks``, ``negative`` (items that harm), ``auc``, ``auc_low``,
    ``auc_high``, ``separates`` (null without an interval), ``correlation`` (Spearman of score and minus effect), ``correlation_low``,
    ``correlation_high``, ``undefined`` (share of draws without an area)

    Raises
    ------
    ValueError
        If a column is missing.
    """
    need_columns(frame, [*scores, effect, cluster])
    rows = []
    for score in scores:
        known = frame.dropna(subset=[score, effect])
        worse, effects = known[score].to_numpy(dtype=float), known[effect].to_numpy(dtype=float)
        tasks, names = pd.factorize(known[cluster])
        draws = _draws(worse, effects, tasks, len(names), resamples, seed)  # (resamples, 2)
        ends = [_ends(draws[:, place], level) for place in (0, 1)]
        area = area_under_curve(worse, effects < NEGATIVE)
        bounded = not math.isnan(ends[0][0])
        rows.append(
            {
                "score": score,
                "items": len(known),
                "lost": len(frame) - len(known),
                "tasks": len(names),
                "negative": int((effects < NEGATIVE).sum()),
                "auc": area,
                "auc_low": ends[0][0],
                "auc_high": ends[0][1],
                "separates": bool(ends[0][0] > 0.5 or ends[0][1] < 0.5) if bounded else None,
                "correlation": spearman(worse, -effects),
                "correlation_low": ends[1][0],
                "correlation_high": ends[1][1],
                "undefined": float(np.isnan(draws[:, 0]).mean()) if len(draws) else math.nan,
            }
        )
    return pd.DataFrame(rows).astype({"separates": "boolean"})


def _draws(
    worse: np.ndarray, effects: np.ndarray, tasks: np.ndarray, count: int, resamples: int, seed: int
) -> np.ndarray:
    """Return area and correlation of each draw of tasks, (resamples, 2); no rows for fewer than two tasks."""
    if count < 2:
        return np.zeros((0, 2))
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(tasks == task) for task in range(count)]
    found = []
    for picked in rng.integers(0, count, (resamples, count)):
        rows = np.concatenate([members[task] for task in picked])
        found.append((area_under_curve(worse[rows], effects[rows] < NEGATIVE), spearman(worse[rows], -effects[rows])))
    return np.array(found)


def _ends(draws: np.ndarray, level: float) -> tuple[float, float]:
    known = draws[~np.isnan(draws)]
    if len(known) < 2:
        return math.nan, math.nan
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
