"""Is a difference real: paired, clustered, corrected.

The task is the inferential unit. Repeats of a task are averaged before anything is resampled, so that repeats narrow
no interval, and an interval always belongs to the same estimator as the mean it stands beside: each result says which
one. Paired data are resampled as differences. Draws are vectorised and named by an integer seed.

Not covered: differences between policies that were not run on the same tasks, sequential testing, Bayesian estimates,
and the autocorrelation of queueing times (`hierarchical_bootstrap` offers moving blocks as a partial answer). Missing
values are refused: what a missing item counts is decided before, in `lib.evaluation.summary`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

Weights = Literal["task", "row"]
_ESTIMATORS = {
    "task": "mean over unique tasks of the mean of each task's rows",
    "row": "mean over rows, tasks resampled as clusters",
}
_QUANTILES = {"p50": 0.5, "p95": 0.95}
_CHUNK = 4_000_000  # drawn indices held at once: 32 MB


@dataclass(frozen=True)
class Interval:
    """A point estimate with its percentile interval.

    Parameters
    ----------
    estimate, low, high : in the unit of the values
    level : coverage aimed at
    n_clusters, n_rows : tasks (or seeds) resampled, and values behind them
    resamples : bootstrap draws
    estimator : in words, what is estimated and resampled
    """

    estimate: float
    low: float
    high: float
    level: float
    n_clusters: int
    n_rows: int
    resamples: int
    estimator: str


@dataclass(frozen=True)
class SignFlip:
    """A two-sided paired sign-flip test of a zero mean; `exact` where all sign patterns were counted."""

    p: float
    mean: float
    n: int
    exact: bool
    patterns: int


def task_means(values: ArrayLike, tasks: Sequence[object] | pd.Series) -> pd.Series:
    """Return the mean of each task's values, indexed by task, in order of first appearance."""
    numbers = _finite(values, "values")
    if len(tasks) != len(numbers):
        raise ValueError(f"{len(numbers)} values for {len(tasks)} task ids")
    return pd.Series(numbers).groupby(pd.Series(list(tasks)), sort=False).mean()


def task_cluster_bootstrap(
    values: ArrayLike,
    tasks: Sequence[object] | pd.Series,
    *,
    weights: Weights = "task",
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return a mean with a percentile interval from resampling whole tasks.

    Parameters
    ----------
    values : (n_rows,) paired differences or other values
    tasks : (n_rows,) task of each value; rows of one task stay together
    weights : ``task``: every task counts once, whatever its number of rows. ``row``: every row counts once. The
        interval uses the same weights.
    resamples, level, seed : draws, coverage and the seed of the draws

    Returns
    -------
    Interval

    Raises
    ------
    ValueError
        For no values, missing values, or unequal lengths.
    """
    if weights not in _ESTIMATORS:
        raise ValueError(f"weights must be 'task' or 'row', not {weights!r}")
    numbers = _finite(values, "values")
    if len(tasks) != len(numbers):
        raise ValueError(f"{len(numbers)} values for {len(tasks)} task ids")
    codes, unique = pd.factorize(pd.Series(list(tasks)))
    counts = np.bincount(codes, minlength=len(unique)).astype(float)  # (n_tasks,) rows
    sums = np.bincount(codes, weights=numbers, minlength=len(unique))
    # Both estimators are ratios of sums over tasks: of means over ones, or of sums over counts.
    top, bottom = (sums / counts, np.ones(len(unique))) if weights == "task" else (sums, counts)
    rng = np.random.default_rng(seed)
    draws = np.concatenate(
        [
            top[picked].sum(axis=1) / bottom[picked].sum(axis=1)
            for picked in _picks(rng, len(unique), resamples)  # (draws, n_tasks)
        ]
    )
    low, high = _percentiles(draws, level)
    estimate = float(top.sum() / bottom.sum())
    return Interval(estimate, low, high, level, len(unique), len(numbers), resamples, _ESTIMATORS[weights])


def sign_flip_test(
    differences: ArrayLike, *, resamples: int = 20_000, seed: int = 0, exact_up_to: int = 16
) -> SignFlip:
    """Test that paired differences have mean zero by flipping their signs, two-sided.

    Parameters
    ----------
    differences : (n,) one difference per unique task, repeats averaged
    resamples : random patterns when n is above `exact_up_to`; p is then (hits + 1) / (resamples + 1)
    exact_up_to : largest n for which all 2^n patterns are counted

    Notes
    -----
    (.2, .1, .3) has p = 2/8: only the pattern itself and its mirror reach |sum| = .6. p is NaN without differences.
    """
    values = _finite(differences, "differences", empty=True)
    n = len(values)
    if n == 0:
        return SignFlip(math.nan, math.nan, 0, True, 0)
    # Sums of the same numbers in another order differ in the last bits; they must still count as equal.
    reach = abs(values.sum()) - 1e-12 * max(np.abs(values).sum(), 1e-300)
    if n <= exact_up_to:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)  # (2^n, n)
        hits = int((np.abs(signs @ values) >= reach).sum())
        return SignFlip(hits / 2**n, float(values.mean()), n, True, 2**n)
    rng = np.random.default_rng(seed)
    hits, left = 0, resamples
    while left:
        rows = min(left, max(1, _CHUNK // n))
        signs = 1 - 2 * rng.integers(0, 2, size=(rows, n), dtype=np.int8)
        hits += int((np.abs(signs @ values) >= reach).sum())
        left -= rows
    return SignFlip((hits + 1) / (resamples + 1), float(values.mean()), n, False, resamples)


def holm(p_values: ArrayLike) -> np.ndarray:
    """Return Holm step-down adjusted p-values in the order given; a NaN stays NaN and is no member of the family.

    >>> holm([0.01, 0.04, 0.03, 0.005, 0.5, 0.02]).round(3).tolist()
    [0.05, 0.09, 0.09, 0.03, 0.5, 0.08]
    """
    from statsmodels.stats.multitest import multipletests  # slow to import, needed here alone

    values = np.asarray(p_values, dtype=float)
    known = ~np.isnan(values)
    if ((values[known] < 0) | (values[known] > 1)).any():
        raise ValueError("p-values must lie in [0, 1]")
    adjusted = np.full(values.shape, np.nan)
    if known.any():
        adjusted[known] = multipletests(values[known], method="holm")[1]
    return adjusted


def mcnemar_exact(b: int, c: int) -> float:
    """Return the exact two-sided McNemar p-value of b and c discordant pairs; 1 without any.

    >>> round(mcnemar_exact(3, 9), 4)
    0.146
    """
    if b < 0 or c < 0:
        raise ValueError(f"discordant counts must be >= 0, not {b} and {c}")
    return 1.0 if b + c == 0 else float(stats.binomtest(min(b, c), b + c, 0.5).pvalue)


def wilson(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion; (NaN, NaN) for n = 0.

    >>> [round(bound, 4) for bound in wilson(64, 72)]
    [0.7958, 0.9426]
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} trials")
    if n == 0:
        return math.nan, math.nan
    interval = stats.binomtest(successes, n).proportion_ci(confidence_level=level, method="wilson")
    return float(interval.low), float(interval.high)


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Return the rank correlation with average ranks; NaN, not 0, if a side is constant or there are under two pairs."""
    first, second = _finite(a, "a", empty=True), _finite(b, "b", empty=True)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values against {len(second)}")
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return math.nan
    return float(stats.spearmanr(first, second).statistic)


def paired_effect(differences: ArrayLike) -> float:
    """Return d_z, the mean difference in units of the standard deviation (ddof 1) of the differences; NaN where that is 0 or unknown."""
    values = _finite(differences, "differences", empty=True)
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    # Equal differences leave a spread of rounding size, which is none.
    return float(values.mean()) / spread if spread > 1e-12 * max(1e-300, np.abs(values).max(initial=0.0)) else math.nan


def hierarchical_bootstrap(
    values: ArrayLike,
    seeds: Sequence[object] | pd.Series,
    *,
    statistic: Literal["mean", "p50", "p95"] = "mean",
    resamples: int = 2_000,
    level: float = 0.95,
    block: int = 1,
    seed: int = 0,
) -> Interval:
    """Return a statistic averaged over split seeds, with a band from resampling seeds, then tasks within each.

    Parameters
    ----------
    values : (n_rows,) one value a task and seed, in run order within each seed
    seeds : (n_rows,) split seed of each value
    statistic : ``mean``, or ``p50`` or ``p95`` (linear interpolation), taken per seed and then averaged over seeds
    block : tasks drawn together. 1 draws single tasks and ignores the autocorrelation of a queue; 10 draws moving
        blocks of
        neighbours in run order.

    Notes
    -----
    For tasks that differ between seeds (Fig. 5 of the BANDMAS paper). Tasks are drawn independently in each seed, so
    it is *not* for repeats of the same tasks: those go through `task_cluster_bootstrap`, whose interval repeats do
    not narrow.
    """
    if statistic not in ("mean", *_QUANTILES):
        raise ValueError(f"statistic must be 'mean', 'p50' or 'p95', not {statistic!r}")
    if block < 1:
        raise ValueError(f"block must be at least 1 task, not {block}")
    numbers = _finite(values, "values")
    if len(seeds) != len(numbers):
        raise ValueError(f"{len(numbers)} values for {len(seeds)} seeds")
    codes, unique = pd.factorize(pd.Series(list(seeds)))
    groups = [numbers[codes == code] for code in range(len(unique))]
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(groups), size=(resamples, len(groups)))  # which seed stands in each place
    drawn = np.empty(chosen.shape)
    for code, group in enumerate(groups):
        here = chosen == code
        parts = [_statistic(group[picked], statistic) for picked in _picks(rng, len(group), int(here.sum()), block)]
        drawn[here] = np.concatenate(parts) if parts else []
    low, high = _percentiles(drawn.mean(axis=1), level)
    estimate = float(np.mean([_statistic(group[None, :], statistic)[0] for group in groups]))
    words = f"{statistic} per seed, averaged over seeds; seeds resampled, then tasks within each"
    words += f" in moving blocks of {block}" if block > 1 else ""
    return Interval(estimate, low, high, level, len(groups), len(numbers), resamples, words)


def _statistic(rows: np.ndarray, statistic: str) -> np.ndarray:
    return rows.mean(axis=1) if statistic == "mean" else np.quantile(rows, _QUANTILES[statistic], axis=1)


def _picks(rng: np.random.Generator, n: int, draws: int, block: int = 1) -> list[np.ndarray]:
    """Return index arrays of shape (some draws, n) that make `draws` rows in all; moving blocks where asked."""
    size = min(block, n)
    blocks = -(-n // size)
    out = []
    while draws > 0:
        rows = min(draws, max(1, _CHUNK // max(n, 1)))
        starts = rng.integers(0, n - size + 1, size=(rows, blocks))
        out.append((starts[:, :, None] + np.arange(size)).reshape(rows, -1)[:, :n])
        draws -= rows
    return out


def _percentiles(draws: np.ndarray, level: float) -> tuple[float, float]:
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), not {level!r}")
    tail = (1 - level) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def _finite(values: ArrayLike, name: str, *, empty: bool = False) -> np.ndarray:
    numbers = np.asarray(values, dtype=float)
    if numbers.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, not of shape {numbers.shape}")
    if not len(numbers) and not empty:
        raise ValueError(f"no {name}")
    if not np.isfinite(numbers).all():
        raise ValueError(
            f"{name}: {int((~np.isfinite(numbers)).sum())} missing or infinite; decide first what a missing item counts"
        )
    return numbers
