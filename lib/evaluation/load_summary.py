"""Utility, tail latency and misses under load, with bands.

The input has one row an arrival: workload, policy, offered load, split seed, task, latency, and the utilities of what
was sent. Every statistic is taken within each seed and averaged over seeds; bands come from resampling seeds and then,
within each, tasks or arrivals (BANDMAS paper, Figure 5).

- Utilities, bytes and tokens belong to tasks: the arrivals of a task are averaged before anything is drawn, so that a
  longer run narrows no band. A failed answer was asked and earned nothing.
- Latencies and misses belong to arrivals. Drawn one by one they are treated as independent, which neighbours in a
  queue are not: such bands are too narrow when the queue is long. Moving blocks (`block` = 10) are a partial answer.

Not covered: the tail beyond what was simulated: in overload a queue grows with every arrival, and its p95 with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from lib.evaluation.frames import need_columns
from lib.evaluation.inference import Interval, hierarchical_bootstrap

BY = ("workload", "policy", "rho")
UTILITIES = ("task_utility", "evidence_utility")
SIZES = ("bytes", "context_tokens", "n_sent")
LATENCY = "latency_s"
BANDED = (*UTILITIES, "p50_s", "p95_s", "miss_rate")

Statistic = Literal["mean", "p50", "p95"]


def load_table(
    arrivals: pd.DataFrame,
    by: Sequence[str] = BY,
    *,
    resamples: int = 2_000,
    level: float = 0.95,
    block: int = 1,
    seed: int = 0,
) -> pd.DataFrame:
    """Return one row a workload, policy and load: the frame behind Figure 5.

    Parameters
    ----------
    arrivals : rows with `by`, ``seed``, ``task_id``, ``place`` (order of arrival), ``latency_s``, ``missed``,
        ``answered``, the utilities, ``bytes``, ``context_tokens`` and ``n_sent``; warm-up arrivals left out
    by : group columns
    resamples, level, seed : of the bands
    block : arrivals drawn together for the bands of latency and misses, see the module header

    Returns
    -------
    DataFrame with `by`, ``seeds``, ``arrivals``, ``coverage`` (share answered), and with ``_low`` and ``_high`` beside
    each: ``task_utility``, ``evidence_utility`` in [0, 1], ``p50_s`` and ``p95_s`` of latency, ``miss_rate``; means
    ``bytes``, ``context_tokens``, ``n_sent``. An evidence utility that applies to no task is null.
    """
    columns = [*by, "seed", "task_id", "place", LATENCY, "missed", "answered", *UTILITIES, *SIZES]
    need_columns(arrivals, columns)
    banded = partial(band, resamples=resamples, level=level, seed=seed)
    rows = []
    for key, found in arrivals.groupby(list(by), sort=False):
        group = found.sort_values(["seed", "place"], kind="stable")
        row: dict[str, object] = dict(zip(by, key, strict=True))
        row |= {"seeds": group["seed"].nunique(), "arrivals": len(group), "coverage": group["answered"].mean()}
        for name in UTILITIES:
            per_task = _per_task(group[name].where(group["answered"], 0.0), group).dropna()
            row |= _cells(name, banded(per_task, per_task.index.get_level_values(0), "mean"))
        row |= _cells("p50_s", banded(group[LATENCY], group["seed"], "p50", block=block))
        row |= _cells("p95_s", banded(group[LATENCY], group["seed"], "p95", block=block))
        row |= _cells("miss_rate", banded(group["missed"], group["seed"], "mean", block=block))
        row |= {name: group.groupby("seed")[name].mean().mean() for name in SIZES}
        rows.append(row)
    shown = [
        *by,
        "seeds",
        "arrivals",
        "coverage",
        *(f"{name}{end}" for name in BANDED for end in ("", "_low", "_high")),
    ]
    return pd.DataFrame(rows, columns=[*shown, *SIZES])


def adaptation_table(
    arrivals: pd.DataFrame,
    a: str = "adaptive",
    b: str = "causal",
    *,
    resamples: int = 2_000,
    level: float = 0.95,
    block: int = 1,
    seed: int = 0,
) -> pd.DataFrame:
    """Return paired differences a - b by workload and load: the same arrival of the same task under two policies.

    Returns
    -------
    DataFrame, one row a workload, load and value: ``workload``, ``rho``, ``value`` (``task_utility`` and ``bytes``,
    drawn by task; ``latency_s`` and ``missed``, drawn by arrival), ``difference`` (mean within each seed, averaged over
    seeds), ``low``, ``high``, ``pairs`` (arrivals)

    Raises
    ------
    ValueError
        If the two policies did not meet the same arrivals.
    """
    unit = ["workload", "rho", "seed", "place", "task_id"]
    values = ("task_utility", LATENCY, "missed", "bytes")
    need_columns(arrivals, ["policy", "answered", *unit, *values])
    sides = []
    for name in (a, b):
        rows = arrivals[arrivals["policy"] == name].set_index(unit).sort_index()
        earned = rows["task_utility"].where(rows["answered"], 0.0)
        sides.append(rows.assign(task_utility=earned)[list(values)].astype(float))
    if not len(sides[0]) or not sides[0].index.equals(sides[1].index):
        raise ValueError(f"policies {a!r} and {b!r} did not meet the same arrivals; run both in one sweep")
    difference = (sides[0] - sides[1]).reset_index().sort_values(["seed", "place"], kind="stable")
    banded = partial(band, resamples=resamples, level=level, seed=seed)
    made = []
    pairs = difference.groupby(["workload", "rho"])
    order = arrivals[["workload", "rho"]].drop_duplicates().itertuples(index=False)
    for workload, rho in order:
        group = pairs.get_group((workload, rho))
        for value in values:
            queued = value in (LATENCY, "missed")
            numbers = group[value] if queued else _per_task(group[value], group)
            owners = group["seed"] if queued else numbers.index.get_level_values(0)
            found = banded(numbers, owners, "mean", block=block if queued else 1)
            head = {"workload": workload, "rho": rho, "value": value, "difference": found.estimate}
            made.append({**head, "low": found.low, "high": found.high, "pairs": len(group)})
    return pd.DataFrame(made, columns=["workload", "rho", "value", "difference", "low", "high", "pairs"])


def system_table(arrivals: pd.DataFrame, scheduler: pd.DataFrame, deadline: float) -> pd.DataFrame:
    """Return what each policy costs when nobody waits: the form of Table V.

    Parameters
    ----------
    arrivals : rows as for `load_table`, with ``transfer_s`` and ``service_s``; those of the lowest load are read
    scheduler : rows with ``workload``, ``policy``, ``seed``, ``task_id`` and ``scheduler_ms``
    deadline : seconds

    Returns
    -------
    DataFrame, one row a workload and policy: means ``context_tokens``, ``bytes``, ``service_s``; ``alone_p95_s``, p95
    of transfer and service without any wait; ``alone_miss_rate``; ``scheduler_ms`` (mean over tasks),
    ``scheduler_max_ms`` and ``scheduler_share``, its mean as a share of ``alone_p95_s``. Statistics are taken within
    each seed and averaged.
    """
    need_columns(arrivals, [*BY, "seed", "context_tokens", "bytes", "service_s", "transfer_s"])
    need_columns(scheduler, ["workload", "policy", "seed", "task_id", "scheduler_ms"])
    calm = arrivals[arrivals["rho"] == arrivals["rho"].min()]
    alone = calm["transfer_s"] + calm["service_s"]
    calm = calm.assign(alone_s=alone, alone_missed=alone > deadline)
    keys = ["workload", "policy"]
    groups = calm.groupby([*keys, "seed"], sort=False)
    parts = groups[["context_tokens", "bytes", "service_s"]].mean()
    parts = parts.assign(alone_p95_s=groups["alone_s"].quantile(0.95), alone_miss_rate=groups["alone_missed"].mean())
    times = scheduler.groupby(keys, sort=False)["scheduler_ms"].agg(scheduler_ms="mean", scheduler_max_ms="max")
    table = parts.groupby(keys, sort=False).mean().join(times).reset_index()
    return table.assign(scheduler_share=table["scheduler_ms"] / (1000 * table["alone_p95_s"]))


def band(
    values: pd.Series,
    seeds: Sequence[object] | pd.Series | pd.Index,
    statistic: Statistic,
    *,
    resamples: int = 2_000,
    level: float = 0.95,
    block: int = 1,
    seed: int = 0,
) -> Interval:
    """Return a statistic averaged over seeds with its hierarchical-bootstrap band; NaN without values."""
    numbers, owners = np.asarray(values, dtype=float), list(seeds)
    if not len(numbers):
        return Interval(np.nan, np.nan, np.nan, level, 0, 0, 0, "nothing to estimate")
    return hierarchical_bootstrap(
        numbers, owners, statistic=statistic, resamples=resamples, level=level, block=block, seed=seed
    )


def _per_task(values: pd.Series, group: pd.DataFrame) -> pd.Series:
    """Return the mean over the arrivals of each task, indexed by seed and task."""
    return values.groupby([group["seed"], group["task_id"]], sort=False).mean()


def _cells(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}
