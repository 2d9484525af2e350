"""Do receivers agree on packets, and what does a borrowed predictor cost: estimates with task-cluster intervals.

Context
-------
The input are tidy frames: what the same packet was worth to two receivers, and utilities of final tasks with the
columns ``trained_on`` (whose replays a predictor learned from, null for policies that learn nothing) and
``answered_by``.

Intuition
---------
Packets of one task share its receiver's mood, so tasks are resampled and not packets. A drawn task counts as often as
it was drawn; the ranks are taken anew in every draw.

How to read the result
----------------------
`agreement_table` has the rank correlation of two receivers' effects. `transfer_table` is the matrix: utility, its
difference to the receiver's *own* predictor, and its difference to the semantic policy, which learns from nobody. One
predictor may simply be better than another for everybody; a receiver that borrows it then gains. `own_advantage`
averages both directions, in which that cancels: what is left is what it is worth that a predictor is one's own.

Not covered: how effects and answers come about; agreement of three or more receivers at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.evaluation.frames import need_columns
from lib.evaluation.inference import Interval, holm, sign_flip_test, spearman, task_cluster_bootstrap, task_means
from lib.evaluation.summary import over_seeds, paired_differences, seed_means

_CHUNK = 2_000_000  # weights held at once: 16 MB
_DIGITS = 12  # effects are sums of shares; values that differ less are ties
LEARNED, REFERENCE = "causal", "semantic"


def rank_agreement(
    a: ArrayLike,
    b: ArrayLike,
    tasks: Sequence[object] | pd.Series,
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return the Spearman correlation of two values of the same rows, with a percentile interval from resampling whole tasks.

    Parameters
    ----------
    a, b : (n_rows,) two receivers' effects of the same packets
    tasks : (n_rows,) task of each row; rows of one task stay together
    resamples, level, seed : draws, coverage and the seed of the draws

    Returns
    -------
    Interval
        NaN where a side is constant, the bounds also with a single task. Draws in which a side is constant have no
        correlation and are left out.

    Raises
    ------
    ValueError
        For missing values or unequal lengths.
    """
    first, second = (np.asarray(values, dtype=float).round(_DIGITS) for values in (a, b))
    if len(tasks) != len(first):
        raise ValueError(f"{len(first)} values for {len(tasks)} task ids")
    estimate = spearman(first, second)
    codes, unique = pd.factorize(pd.Series(list(tasks)))
    low = high = math.nan
    if not math.isnan(estimate) and len(unique) > 1:
        rng = np.random.default_rng(seed)
        size = max(1, _CHUNK // len(first))
        draws = []
        for start in range(0, resamples, size):
            rows = min(size, resamples - start)
            times = rng.multinomial(len(unique), np.full(len(unique), 1 / len(unique)), size=rows)  # (rows, n_tasks)
            draws.append(_weighted_spearman(first, second, times[:, codes].astype(float)))
        tail = (1 - level) / 2
        low, high = (float(one) for one in np.nanquantile(np.concatenate(draws), [tail, 1 - tail]))
    words = "Spearman correlation over rows, tasks resampled as clusters"
    return Interval(estimate, low, high, level, len(unique), len(first), resamples, words)


def agreement_table(
    pairs: pd.DataFrame,
    by: Sequence[str] = ("workload", "first", "second"),
    *,
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the rank correlation between receivers, group by group.

    Parameters
    ----------
    pairs : rows with `by`, ``task_id``, ``rce_first`` and ``rce_second``; rows without one of them are left out

    Returns
    -------
    DataFrame with `by`; ``correlation`` over all packets, ``low``, ``high`` (95 %); ``within_tasks``, the mean over tasks
    of the correlation inside a task, where packets compete for bytes (tasks without one left out); ``packets``, ``tasks``
    """
    need_columns(pairs, [*by, "task_id", "rce_first", "rce_second"])
    rows = []
    for key, group in pairs.dropna(subset=["rce_first", "rce_second"]).groupby(list(by), sort=False):
        found = rank_agreement(*_sides(group), group["task_id"], resamples=resamples, seed=seed)
        within = pd.Series([spearman(*_sides(one)) for _, one in group.groupby("task_id")], dtype=float).mean()
        rows.append((*key, found.estimate, found.low, found.high, within, found.n_rows, found.n_clusters))
    return pd.DataFrame(rows, columns=[*by, "correlation", "low", "high", "within_tasks", "packets", "tasks"])


def transfer_table(results: pd.DataFrame, *, value: str = "task_utility", resamples: int = 10_000) -> pd.DataFrame:
    """Return the matrix of predictors and receivers, one row a cell and workload.

    Parameters
    ----------
    results : one row an item with ``trained_on``, ``answered_by``, ``workload``, ``policy``, ``seed``, ``task_id`` and
        `value`; of policy ``causal`` from every receiver's predictor, and of ``semantic``
    resamples : bootstrap draws of an interval

    Returns
    -------
    DataFrame with ``workload``, ``trained_on``, ``answered_by``; ``mean`` and ``sd`` of `value` over seeds; against the
    receiver's own predictor ``difference``, ``low``, ``high``, ``p``, ``p_holm`` (over all cells of the table; null on
    the diagonal); against the semantic policy ``over_semantic``, ``over_low``, ``over_high``; and ``tasks``. Paired by
    task, repeats over seeds averaged, 95 % task-cluster intervals
    """
    need_columns(results, ["trained_on", "answered_by", "workload", "policy", "seed", "task_id", value])
    learned = results[results["policy"] == LEARNED]
    means = seed_means(learned, ["workload", "trained_on", "answered_by"], utilities=[value], measures=[])
    cells = over_seeds(means, ["workload", "trained_on", "answered_by"], [value])
    cells = cells.rename(columns={f"{value}_mean": "mean", f"{value}_sd": "sd"}).drop(columns="seeds")
    rows = []
    for workload, group in results.groupby("workload", sort=False):
        answerers, sources = (dict.fromkeys(group[name].dropna()) for name in ("answered_by", "trained_on"))
        for target in answerers:
            sides = _arms(group, target)
            for source in sources:
                beyond = _contrast([_pairs(sides, value, _by(source), REFERENCE)], resamples)
                row = {"workload": workload, "trained_on": source, "answered_by": target, "tasks": beyond.tasks}
                row |= {"over_semantic": beyond.difference, "over_low": beyond.low, "over_high": beyond.high}
                if source != target:
                    lent = _contrast([_pairs(sides, value, _by(source), _by(target))], resamples)
                    row |= {"difference": lent.difference, "low": lent.low, "high": lent.high, "p": lent.p}
                rows.append(row)
    keys = ["workload", "trained_on", "answered_by"]
    contrasts = ["difference", "low", "high", "p", "p_holm", "over_semantic", "over_low", "over_high", "tasks"]
    told = pd.DataFrame(rows, columns=[*keys, *contrasts])
    told["p_holm"] = holm(told["p"].to_numpy(float))
    return cells.merge(told, on=keys, how="left", validate="one_to_one")


def own_advantage(
    results: pd.DataFrame, *, value: str = "task_utility", resamples: int = 10_000, seed: int = 0
) -> pd.DataFrame:
    """Return, per workload, what it is worth that a predictor learned from the receiver itself.

    The difference own minus borrowed is averaged over all ordered pairs of receivers, seeds and repeats of a task; tasks
    are then resampled and their signs flipped.

    Parameters
    ----------
    results, value : as in `transfer_table`; two receivers or more

    Returns
    -------
    DataFrame, one row a workload: ``difference``, ``low``, ``high`` (95 %), ``p``, ``p_holm`` (over workloads), ``tasks``,
    ``pairs`` (differences behind it)

    Raises
    ------
    ValueError
        If only one receiver answered: there is nothing to borrow.
    """
    names = list(dict.fromkeys(results["answered_by"]))
    if len(names) < 2:
        raise ValueError(f"own_advantage compares receivers with each other; there is only {names}")
    rows = []
    for workload, group in results.groupby("workload", sort=False):
        arms = {target: _arms(group, target) for target in names}
        parts = [
            _pairs(arms[target], value, _by(target), _by(source)) for source, target in itertools.permutations(names, 2)
        ]
        rows.append((workload, *_contrast(parts, resamples, seed)))
    table = pd.DataFrame(rows, columns=["workload", *_Contrast._fields])
    table.insert(5, "p_holm", holm(table["p"].to_numpy(float)))
    return table


class _Contrast(NamedTuple):
    """A mean paired difference with its 95 % task-cluster interval and sign-flip p."""

    difference: float
    low: float
    high: float
    p: float
    tasks: int
    pairs: int


def _contrast(parts: Sequence[pd.DataFrame], resamples: int, seed: int = 0) -> _Contrast:
    """Average differences within each task over all parts, then resample tasks and flip their signs."""
    pairs = pd.concat(parts, ignore_index=True)
    # What cancels leaves rounding errors, and these must not count as a sign.
    per_task = task_means(pairs["difference"].to_numpy(), pairs["task_id"]).round(_DIGITS)
    found = task_cluster_bootstrap(per_task.to_numpy(), per_task.index.to_series(), resamples=resamples, seed=seed)
    p = sign_flip_test(per_task.to_numpy(), seed=seed).p
    return _Contrast(found.estimate, found.low, found.high, p, found.n_clusters, len(pairs))


def _pairs(arms: pd.DataFrame, value: str, a: str, b: str) -> pd.DataFrame:
    return paired_differences(arms, value, a, b, policy="arm", answered=value)


def _arms(results: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return what one receiver answered, with a name for each predictor and for the policy that learns from nobody."""
    rows = results[(results["answered_by"] == target) & results["policy"].isin([LEARNED, REFERENCE])]
    return rows.assign(arm=[REFERENCE if pd.isna(source) else _by(source) for source in rows["trained_on"]])


def _by(source: str) -> str:
    return f"{LEARNED} by {source}"


def _sides(pairs: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    first, second = (pairs[name].to_numpy(float).round(_DIGITS) for name in ("rce_first", "rce_second"))
    return first, second


def _weighted_spearman(a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the Spearman correlation of rows that count as often as each draw says, shape (draws,).

    Parameters
    ----------
    a, b : (n_rows,)
    weights : (draws, n_rows) how often a row was drawn
    """
    total = weights.sum(axis=1, keepdims=True)
    ranks = [_weighted_ranks(values, weights) for values in (a, b)]  # (draws, n_rows)
    off = [rank - (weights * rank).sum(axis=1, keepdims=True) / total for rank in ranks]
    shared = (weights * off[0] * off[1]).sum(axis=1)
    spread = np.sqrt((weights * off[0] ** 2).sum(axis=1) * (weights * off[1] ** 2).sum(axis=1))
    return np.divide(shared, spread, out=np.full(len(shared), np.nan), where=spread > 1e-9 * total[:, 0])


def _weighted_ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return average ranks among rows repeated by weight, shape (draws, n_rows)."""
    order = np.argsort(values, kind="stable")
    sorted_values = values[order]
    starts = np.flatnonzero(np.r_[True, sorted_values[1:] != sorted_values[:-1]])
    tied = np.add.reduceat(weights[:, order], starts, axis=1)  # (draws, distinct values)
    middle = np.cumsum(tied, axis=1) - tied / 2 + 0.5
    place = np.empty(len(values), dtype=int)
    place[order] = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(values)]))
    return middle[:, place]
