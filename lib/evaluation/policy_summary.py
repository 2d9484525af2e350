"""What policies get on average, with intervals, which of them nobody beats, and how one differs from all others.

Context
-------
The receiver-relative paper compares protocol policies by accuracy and tokens (Figure 6, Tables 20 and 24), on stored outcomes and
without intervals. Here each policy has a row a step, so both axes get an interval that resamples instances.

Intuition
---------
Two policies that choose the same action at most steps have nearly the same errors. So whether one is ahead is read from the paired
difference, which is far narrower than two intervals beside each other.

How to read the result
----------------------
A policy is on the frontier if no other one that can be deployed has at least its accuracy for no more tokens, and more of one of
both. That is a statement on means: a frontier of close points is noise in part. An interval from few instances is too short, and
with one instance there is none (null).

Not covered: where the rows come from; corrections for many policies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.evaluation.frames import need_columns
from lib.evaluation.inference import task_cluster_bootstrap

MEASURES = ("hit", "tokens", "utility", "decision_tokens", "decision_utility")
CLUSTER = ("regime", "instance_id")
_DIGITS = 12


def policy_table(
    steps: pd.DataFrame,
    *,
    by: Sequence[str] = ("policy",),
    values: Sequence[str] = MEASURES,
    cluster: Sequence[str] = CLUSTER,
    accuracy: str = "hit",
    tokens: str = "decision_tokens",
    resamples: int = 5_000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return means and intervals of every policy.

    Parameters
    ----------
    steps : one row a policy and step: `by`, `values`, `cluster`, ``oracle_only``
    by : columns of a row of the result, ``policy`` among them; the frontier is drawn within the others
    values : columns to average; one with a null has a null mean and interval
    cluster : columns that together name an instance
    accuracy, tokens : the two axes of the frontier, among `values`

    Returns
    -------
    DataFrame in order of first appearance: `by`, ``steps``, ``instances``, of each value its mean, ``<value>_low`` and
    ``<value>_high``, ``oracle_only`` and ``on_frontier``

    Raises
    ------
    ValueError
        If a column is missing, or an axis is not among `values`.
    """
    need_columns(steps, [*by, *values, *cluster, "oracle_only"])
    if "policy" not in by or not {accuracy, tokens} <= set(values):
        raise ValueError(
            f"by must hold policy, and values {accuracy!r} and {tokens!r}; got {list(by)} and {list(values)}"
        )
    rows = []
    for key, own in steps.groupby(list(by), sort=False):
        clusters = _clusters(own, cluster)
        row = {**dict(zip(by, key, strict=True)), "steps": len(own), "instances": len(set(clusters))}
        for value in values:
            mean, low, high = _interval(own[value], clusters, resamples, level, seed)
            row |= {value: mean, f"{value}_low": low, f"{value}_high": high}
        rows.append({**row, "oracle_only": bool(own["oracle_only"].any())})
    ends = [name for value in values for name in (value, f"{value}_low", f"{value}_high")]
    table = pd.DataFrame(rows, columns=[*by, "steps", "instances", *ends, "oracle_only"])
    others = [name for name in by if name != "policy"]
    groups = table.groupby(others, sort=False).indices.values() if others else [np.arange(len(table))]
    marks = np.zeros(len(table), dtype=bool)
    for places in groups:
        marks[places] = frontier_marks(table.iloc[places], accuracy, tokens)
    return table.assign(on_frontier=marks)


def frontier_marks(table: pd.DataFrame, accuracy: str, tokens: str) -> np.ndarray:
    """Return which rows no other deployable row beats in accuracy and tokens, (n_rows,); the oracle is never one of them."""
    points = np.round(np.column_stack([table[accuracy], -table[tokens]]).astype(float), _DIGITS)
    deployable = ~table["oracle_only"].to_numpy(dtype=bool) & np.isfinite(points).all(1)
    rivals = points[deployable]
    beaten = [bool(((rivals >= point).all(1) & (rivals > point).any(1)).any()) for point in points]
    return deployable & ~np.array(beaten, dtype=bool)


def ahead_of(
    steps: pd.DataFrame,
    policy: str,
    *,
    values: Sequence[str] = ("hit", "decision_tokens", "decision_utility"),
    cluster: Sequence[str] = CLUSTER,
    resamples: int = 5_000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how far one policy is ahead of every other one at the same steps.

    Parameters
    ----------
    steps : as in `policy_table`, and ``step_id``
    policy : the one that is compared

    Returns
    -------
    DataFrame, one row another policy and value: ``policy`` (the other), ``value``, ``difference`` (`policy` minus the other),
    ``low``, ``high``, ``steps``, ``instances``

    Raises
    ------
    ValueError
        If a column is missing, the policy is not there, or another one has other steps.
    """
    keys = [*cluster, "step_id"]
    need_columns(steps, ["policy", *values, *keys])
    own = steps[steps["policy"] == policy].set_index(keys)
    if own.empty:
        raise ValueError(f"policy: there are no rows of {policy!r}; known: {', '.join(dict.fromkeys(steps['policy']))}")
    rows = []
    for name, other in steps[steps["policy"] != policy].groupby("policy", sort=False):
        theirs = other.set_index(keys)
        if set(theirs.index) != set(own.index):
            raise ValueError(f"steps: {name!r} was judged at other steps than {policy!r}; compare on the same ones")
        theirs = theirs.loc[own.index]
        clusters = _clusters(own.reset_index(), cluster)
        for value in values:
            found = _interval(own[value] - theirs[value], clusters, resamples, level, seed)
            rows.append((name, value, *found, len(own), len(set(clusters))))
    return pd.DataFrame(rows, columns=["policy", "value", "difference", "low", "high", "steps", "instances"])


def _clusters(frame: pd.DataFrame, cluster: Sequence[str]) -> list[tuple[object, ...]]:
    return list(zip(*(frame[name] for name in cluster), strict=True))


def _interval(
    values: pd.Series, clusters: Sequence[object], resamples: int, level: float, seed: int
) -> tuple[float, float, float]:
    """Return mean, low and high; nan for values with a null, and ends of nan for a single cluster."""
    numbers = values.astype("Float64").to_numpy(dtype=float, na_value=np.nan)
    if not len(numbers) or not np.isfinite(numbers).all():
        return math.nan, math.nan, math.nan
    if len(set(clusters)) < 2:
        return float(numbers.mean()), math.nan, math.nan
    names = pd.Series([str(one) for one in clusters])
    found = task_cluster_bootstrap(numbers, names, weights="row", resamples=resamples, level=level, seed=seed)
    return found.estimate, found.low, found.high
