"""From one row an item to the rows of a table.

The input is a tidy frame with one row per workload, policy, seed and task. Three rules hold here:

- a headline mean of a utility counts *every item that was asked*: a failed item (no first utility) adds 0 to the sum
and 1 to the count, and the
  coverage stands beside the mean. The row itself keeps its null. A further utility that is null on an answered item
  does not apply there and is left out. Measures such as bytes or latency have no such zero: their mean is over
  measured items, with coverage.
- means are taken within each seed first; the table shows their mean and sample standard deviation (ddof 1) over
seeds, NaN for one seed. - savings exist in two readings, both reported: the mean over tasks of 1 - B / B_full of the
same task (primary), and 1 minus the ratio of
  mean bytes. They differ when task sizes differ, and published tables mix them.

Not covered: intervals and tests of single means (`lib.evaluation.inference`); `paired_table` joins the two for paired
contrasts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from lib.evaluation.frames import need_columns
from lib.evaluation.inference import holm, paired_effect, sign_flip_test, task_cluster_bootstrap, task_means

KIB = 1024  # bytes
UTILITIES = ("task_utility", "evidence_utility")
MEASURES = ("bytes", "latency_ms")
FULL = "full"
KNOBS = ("beta", "boundary")


@dataclass(frozen=True)
class Headline:
    """A mean over every asked item, with how much of it was measured.

    Parameters
    ----------
    mean : sum over answered items / asked; NaN if nothing was asked
    coverage : answered / asked
    asked, answered : counts
    mean_answered : mean over answered items alone; NaN without any
    """

    mean: float
    coverage: float
    asked: int
    answered: int
    mean_answered: float


def headline(values: pd.Series | Sequence[float | None]) -> Headline:
    """Return the headline mean of a utility: a missing value was asked and earned nothing.

    >>> headline([1.0] * 80 + [0.0] * 10 + [None] * 10)
    Headline(mean=0.8, coverage=0.9, asked=100, answered=90, mean_answered=0.8888888888888888)
    """
    numbers = pd.Series(values, dtype=float)
    asked, answered = len(numbers), int(numbers.notna().sum())
    total = math.fsum(numbers.dropna())
    return Headline(
        mean=total / asked if asked else math.nan,
        coverage=answered / asked if asked else math.nan,
        asked=asked,
        answered=answered,
        mean_answered=total / answered if answered else math.nan,
    )


def seed_means(
    frame: pd.DataFrame,
    by: Sequence[str],
    *,
    utilities: Sequence[str] = UTILITIES,
    measures: Sequence[str] = MEASURES,
    seed: str = "seed",
) -> pd.DataFrame:
    """Return the mean of every value within each group and seed.

    Parameters
    ----------
    frame : one row an item
    by : group columns, e.g. ``["workload", "policy"]``
    utilities : columns counted over every asked item; the first tells which items were answered
    measures : columns averaged over measured items
    seed : seed column

    Returns
    -------
    DataFrame with `by`, `seed`, ``n`` (items), and for each value its mean under its own name and ``<value>_coverage``
    """
    need_columns(frame, [*by, seed, *utilities, *measures])
    rows = []
    for key, group in frame.groupby([*by, seed], sort=False, dropna=False):
        row: dict[str, object] = {**dict(zip([*by, seed], key, strict=True)), "n": len(group)}
        answered = group[utilities[0]].notna() if utilities else pd.Series(True, index=group.index)
        for name in utilities:
            # Null on an answered item: the measure does not apply. Null on a failed one: asked, and worth nothing.
            applies = group.loc[~answered | group[name].notna(), name]
            line = headline(applies)
            row[name], row[f"{name}_coverage"] = line.mean, line.coverage
        for name in measures:
            line = headline(group[name])
            row[name], row[f"{name}_coverage"] = line.mean_answered, line.coverage
        rows.append(row)
    values = [column for name in (*utilities, *measures) for column in (name, f"{name}_coverage")]
    return pd.DataFrame(rows, columns=[*by, seed, "n", *values])


def over_seeds(per_seed: pd.DataFrame, by: Sequence[str], values: Sequence[str], *, seed: str = "seed") -> pd.DataFrame:
    """Return mean and sample standard deviation (ddof 1) over seeds of per-seed values: ``<value>_mean``, ``<value>_sd``, and ``seeds``."""
    need_columns(per_seed, [*by, seed, *values])
    doubled = per_seed.duplicated([*by, seed])
    if doubled.any():
        raise ValueError(
            f"two rows for {per_seed.loc[doubled, [*by, seed]].iloc[0].to_dict()}: take means within seeds first"
        )
    groups = per_seed.groupby(list(by), sort=False, dropna=False)
    parts = {
        f"{name}_{label}": groups[name].agg(how) for name in values for label, how in (("mean", "mean"), ("sd", "std"))
    }
    return pd.DataFrame({"seeds": groups[seed].size(), **parts}).reset_index()


def savings(
    frame: pd.DataFrame,
    by: Sequence[str] = ("workload", "policy"),
    *,
    policy: str = "policy",
    full: str = FULL,
    seed: str = "seed",
    task: str = "task_id",
    size: str = "bytes",
    knobs: Sequence[str] = KNOBS,
) -> pd.DataFrame:
    """Return both savings against the same tasks' full communication, per group and seed.

    Parameters
    ----------
    knobs : columns of `by` that say how traffic was cut (cap, packet boundary); full communication has one row a task whatever
        their value
    full, policy, seed, task, size : name of the full policy and of the columns

    Returns
    -------
    DataFrame with `by`, `seed`, ``saving_of_tasks`` (mean of per-task savings), ``saving_of_means`` (1 - sum of bytes
    / sum of full bytes) and ``n`` (tasks with a full size above 0). Shares in (-inf, 1].

    Raises
    ------
    ValueError
        If a task lacks its full row, or has two.
    """
    need_columns(frame, [*by, policy, seed, task, size])
    unit = [*(name for name in by if name != policy and name not in knobs), seed, task]
    reference = frame.loc[frame[policy] == full, [*unit, size]].rename(columns={size: "_full"})
    joined = frame.merge(reference, on=unit, how="left", validate="many_to_one")
    if joined["_full"].isna().any():
        row = joined.loc[joined["_full"].isna(), unit].iloc[0].to_dict()
        raise ValueError(f"no '{full}' row with bytes for {row}: run full communication on the same tasks")
    # A task without any traffic has nothing to save; it is counted out, not in as zero.
    joined = joined[(joined["_full"] > 0) & joined[size].notna()]
    joined = joined.assign(_saving=1 - joined[size] / joined["_full"])
    groups = joined.groupby([*by, seed], sort=False, dropna=False)
    return pd.DataFrame(
        {
            "saving_of_tasks": groups["_saving"].mean(),
            "saving_of_means": 1 - groups[size].sum() / groups["_full"].sum(),
            "n": groups.size(),
        }
    ).reset_index()


def utility_per_kib(utility: float, utility_sd: float, size: float, size_sd: float) -> tuple[float, float]:
    """Return utility per KiB of table means and its first-order propagated standard deviation, zero covariance (paper, Fig. 3).

    r = U 1024 / B and sd = r sqrt((sd_U / U)^2 + (sd_B / B)^2). NaN where B is 0; the sd keeps its limit where U is 0.

    >>> tuple(round(value, 4) for value in utility_per_kib(0.679, 0.013, 408.8, 25.5))
    (1.7008, 0.111)
    """
    if not size > 0:
        return math.nan, math.nan
    ratio = utility * KIB / size
    # Written with absolute terms, so that a utility of 0 has a defined spread.
    return ratio, math.hypot(utility_sd * KIB / size, ratio * size_sd / size)


def main_table(
    frame: pd.DataFrame,
    by: Sequence[str] = ("workload", "policy"),
    *,
    utilities: Sequence[str] = UTILITIES,
    measures: Sequence[str] = MEASURES,
    full: str = FULL,
    policy: str = "policy",
) -> pd.DataFrame:
    """Return the table of policies (Table I form): utilities, bytes, savings both ways, latency, utility per KiB.

    Parameters
    ----------
    frame : one row per workload, policy, seed and task with the value columns, ``bytes`` among the measures, and rows
        of policy `full`

    Returns
    -------
    DataFrame, one row a group: ``seeds``, ``items`` (over all seeds), ``<value>_mean`` and ``<value>_sd`` (over seeds
    of means within seeds), ``<value>_coverage`` (lowest over seeds), ``saving_of_tasks_*``, ``saving_of_means_*``,
    ``utility_per_kib`` and ``utility_per_kib_sd`` of the first utility
    """
    per_seed = seed_means(frame, by, utilities=utilities, measures=measures)
    saved = savings(frame, by, policy=policy, full=full).drop(columns="n")
    values = [*utilities, *measures, "saving_of_tasks", "saving_of_means"]
    merged = per_seed.merge(saved, on=[*by, "seed"], how="left", validate="one_to_one")
    table = over_seeds(merged, by, values)
    groups = merged.groupby(list(by), sort=False, dropna=False)
    extra = {"items": groups["n"].sum()}
    extra |= {f"{name}_coverage": groups[f"{name}_coverage"].min() for name in (*utilities, *measures)}
    table = table.merge(pd.DataFrame(extra).reset_index(), on=list(by), validate="one_to_one")
    first = utilities[0]
    rates = [
        utility_per_kib(row[f"{first}_mean"], row[f"{first}_sd"], row["bytes_mean"], row["bytes_sd"])
        for row in table.to_dict("records")
    ]
    return table.assign(utility_per_kib=[rate for rate, _ in rates], utility_per_kib_sd=[sd for _, sd in rates])


def paired_differences(
    frame: pd.DataFrame,
    value: str,
    a: str,
    b: str,
    *,
    policy: str = "policy",
    unit: Sequence[str] = ("seed", "task_id"),
    missing: Literal["zero", "drop"] = "zero",
    answered: str | None = None,
) -> pd.DataFrame:
    """Return value(a) - value(b) for every unit that both policies ran.

    Parameters
    ----------
    missing : what a null value counts: ``zero`` as in the headline mean (utilities), or ``drop`` the pair (measures)
    answered : column that is null on failed items alone. Where it is present and `value` is null, the value does not
        apply: the pair is
        dropped whatever `missing` says

    Returns
    -------
    DataFrame with the `unit` columns, ``a``, ``b`` and ``difference``

    Raises
    ------
    ValueError
        If a policy has two rows for a unit, or a unit that the other lacks: the comparison would not be paired.
    """
    need_columns(frame, [policy, *unit, value, *([answered] if answered else [])])
    sides, inapplicable = {}, []
    for label, name in (("a", a), ("b", b)):
        rows = frame.loc[frame[policy] == name]
        if rows.empty:
            raise ValueError(f"no rows of policy {name!r}")
        if rows.duplicated(list(unit)).any():
            raise ValueError(f"policy {name!r} has two rows for one of {list(unit)}")
        rows = rows.set_index(list(unit))
        sides[label] = rows[value].astype(float).rename(label)
        if answered:
            inapplicable.append(rows.index[rows[answered].notna() & rows[value].isna()])
    lonely = sides["a"].index.symmetric_difference(sides["b"].index)
    if len(lonely):
        raise ValueError(f"{len(lonely)} of {list(unit)} ran under one policy only, first {lonely[0]!r}: not paired")
    joined = pd.concat(sides.values(), axis=1)
    for index in inapplicable:
        joined = joined.drop(index, errors="ignore")
    joined = joined.fillna(0.0) if missing == "zero" else joined.dropna()
    return joined.assign(difference=joined["a"] - joined["b"]).reset_index()


def paired_table(
    frame: pd.DataFrame,
    a: str,
    b: str,
    *,
    values: Sequence[str] = UTILITIES,
    by: str = "workload",
    policy: str = "policy",
    task: str = "task_id",
    resamples: int = 10_000,
    flips: int = 20_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return paired contrasts a - b with intervals and Holm-adjusted sign-flip tests over the whole table (Table II form).

    Differences are averaged over seeds within each unique task; tasks are then resampled and their signs flipped.

    Returns
    -------
    DataFrame, one row per workload and value: ``difference``, ``low``, ``high``, ``effect`` (d_z), ``p``, ``p_holm``,
    ``tasks``, ``pairs``, ``exact``
    """
    rows = []
    for name, group in frame.groupby(by, sort=False):
        for value in values:
            pairs = paired_differences(group, value, a, b, policy=policy, unit=("seed", task), answered=values[0])
            per_task = task_means(pairs["difference"].to_numpy(), pairs[task])
            interval = task_cluster_bootstrap(
                pairs["difference"].to_numpy(), pairs[task], resamples=resamples, seed=seed
            )
            test = sign_flip_test(per_task.to_numpy(), resamples=flips, seed=seed)
            rows.append(
                {
                    by: name,
                    "value": value,
                    "difference": interval.estimate,
                    "low": interval.low,
                    "high": interval.high,
                    "effect": paired_effect(per_task.to_numpy()),
                    "p": test.p,
                    "tasks": interval.n_clusters,
                    "pairs": interval.n_rows,
                    "exact": test.exact,
                }
            )
    columns = [by, "value", "difference", "low", "high", "effect", "p", "tasks", "pairs", "exact"]
    table = pd.DataFrame(rows, columns=columns)
    table.insert(columns.index("p") + 1, "p_holm", holm(np.asarray(table["p"], dtype=float)))
    return table
