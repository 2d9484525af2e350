"""Tasks that wait for a link and then for a receiver: arrivals, the two queues, and a check of published numbers.

Context
-------
Tasks arrive at random, their packets pass one link of fixed rate in arrival order, and one receiver answers them in
that order, one at a time. Load is the arrival rate as a share of what the slower of the two can do.

Intuition
---------
A task starts when it is there and the task before it is gone: finish_i = max(ready_i, finish_{i-1}) + service_i. With
C the running sum of services, finish_i - C_i is the running maximum of ready_j - C_{j-1}: the whole queue is one
cumulative maximum, and the link's finishing times are the receiver's ready times (specification, 7.1).

Arrivals are running sums of the same unit-exponential draws for every policy and load, divided by the rate. So
policies meet the same luck, and twice the rate is exactly the same day at twice the speed.

How to read the result
----------------------
`published_tandem` asks whether published tail latencies are what such a queue gives with the published mean bytes and
mean receiver times. The variation between tasks is not published: 30 % on bytes and 10 % on service are assumptions,
and the band is that of the average of three runs. A published value inside the band is consistent with it, no more.
Beside it stands the tail if nothing at all were sent: what no admission, adaptive or not, could undercut with these
receiver times.

Not covered: several links or receivers, priorities, lost or reordered transfers, closed-form queueing formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.bandmas.published import SAME_DATA, published
from lib.seeds import generator

RATE = 25_000.0  # bit/s of the link (paper, section V-F)
MODES = ("static", "adaptive")
FINAL_TASKS = {"SciFact": 160, "HotpotQA": 160, "FanOutQA": 98}  # final tasks a seed (paper, section V-A)


class Passage(NamedTuple):
    """When each task was where, in seconds; arrays of shape (..., n) in arrival order."""

    arrival: np.ndarray
    link_start: np.ndarray
    link_end: np.ndarray
    service_start: np.ndarray
    service_end: np.ndarray

    @property
    def latency(self) -> np.ndarray:
        """Seconds from arrival to answer."""
        return self.service_end - self.arrival


def unit_gaps(count: int, *names: object) -> np.ndarray:
    """Return `count` draws of the unit-exponential distribution, named by `names`; a longer series starts with the shorter."""
    return generator("load-arrivals", *names).standard_exponential(count)


def arrival_times(gaps: ArrayLike, rate: float) -> np.ndarray:
    """Return Poisson arrival times in seconds: running sums of unit gaps over `rate` tasks/s.

    >>> arrival_times([1.0, 0.5, 2.5], rate=2.0).tolist()
    [0.5, 0.75, 2.0]
    """
    if not rate > 0:
        raise ValueError(f"rate must be above 0 tasks/s, not {rate!r}")
    return np.cumsum(np.asarray(gaps, dtype=float) / rate, axis=-1)


def fcfs(ready: ArrayLike, service: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return when each task starts and ends at one server that serves in the given order.

    Parameters
    ----------
    ready : (..., n) seconds from which a task can be served, not decreasing along the last axis
    service : (..., n) seconds of service, >= 0

    Returns
    -------
    start, end : (..., n) seconds; start_i = max(ready_i, end_{i-1}), end_i = start_i + service_i

    >>> start, end = fcfs([0.0, 1.0, 10.0], [3.0, 2.0, 1.0])
    >>> start.tolist(), end.tolist()
    ([0.0, 3.0, 10.0], [3.0, 5.0, 11.0])
    """
    ready, service = np.asarray(ready, dtype=float), np.asarray(service, dtype=float)
    if ready.shape != service.shape:
        raise ValueError(f"ready has shape {ready.shape} and service {service.shape}: give each task one of both")
    if service.size and (not np.isfinite(service).all() or service.min() < 0):
        raise ValueError("service: a time is negative or not finite; a queue needs one time >= 0 a task")
    if (np.diff(ready, axis=-1) < 0).any():
        raise ValueError("ready: tasks must stand in the order in which they arrive")
    done = np.cumsum(service, axis=-1)
    end = done + np.maximum.accumulate(ready - (done - service), axis=-1)
    # Sums of many services lose last digits; from the order itself the start is never before the task is there.
    start = ready.copy()
    np.maximum(ready[..., 1:], end[..., :-1], out=start[..., 1:])
    return start, start + service


def tandem(arrival: ArrayLike, transfer: ArrayLike, service: ArrayLike) -> Passage:
    """Return the passage of tasks through the link and then the receiver, both first come, first served.

    Parameters
    ----------
    arrival, transfer, service : (..., n) seconds. A task that sends nothing has a transfer of 0: it waits its turn at
        the link and passes at once.
    """
    times = np.asarray(arrival, dtype=float)
    link_start, link_end = fcfs(times, transfer)
    # Rounding may put two ends of equal order an ulp apart; the receiver sees them in the link's order.
    service_start, service_end = fcfs(np.maximum.accumulate(link_end, axis=-1), service)
    return Passage(times, link_start, link_end, service_start, service_end)


def capacity(full_bytes: float, full_seconds: float, rate: float = RATE) -> float:
    """Return mu_ref, the tasks a second of the slower of link and receiver under full communication.

    >>> round(1 / capacity(4320.5, 0.7826), 3), round(1 / capacity(1099.2, 0.6203), 3)
    (1.383, 0.62)
    """
    slower = max(8 * full_bytes / rate, full_seconds)
    if not slower > 0:
        raise ValueError("capacity: full communication takes no time at link and receiver; there is no load to offer")
    return 1 / slower


def published_tandem(
    rhos: Sequence[float] = (1.0, 1.5),
    arrivals: Mapping[str, int] | None = None,
    *,
    runs: int = 180,
    seeds: int = 3,
    bytes_spread: float = 0.3,
    service_spread: float = 0.1,
    rate: float = RATE,
) -> pd.DataFrame:
    """Simulate causal admission from the paper's mean bytes and receiver times, beside its p95 latencies.

    Parameters
    ----------
    rhos : offered loads, as shares of `capacity` under full communication
    arrivals : benchmark -> tasks of one run; default the paper's final tasks
    runs, seeds : each of `runs` values is the mean over `seeds` simulated runs of their p95
    bytes_spread, service_spread : coefficients of variation between tasks, gamma-distributed: assumed, not published
    rate : bit/s

    Returns
    -------
    DataFrame, one row a benchmark and load: ``benchmark``, ``rho``, ``arrivals``; of static admission ``p95_s`` (mean
    over runs), ``low_s``, ``high_s`` (10 and 90 % of runs), ``paper_s`` (null where the text gives none) and
    ``consistent`` (the paper's value lies in the band; null without one); of adaptive admission ``least_s``,
    ``least_low_s`` (mean and 10 % of runs if nothing is sent) and ``paper_adaptive_s``

    Notes
    -----
    The receiver's time with nothing sent is on the line through the published means of full and causal communication
    over their context tokens (Tables I and V). All columns share arrivals and variation.
    """
    means = {(row["benchmark"], row["policy"]): row for row in published("table1", SAME_DATA).to_dict("records")}
    text = published("text", SAME_DATA).to_dict("records")
    tokens = {(row["benchmark"], row["policy"]): row["value"] for row in text if row["quantity"] == "context_tokens"}
    told = {
        (row["benchmark"], row["policy"], row["note"]): row["value"] / 1000
        for row in text
        if row["quantity"] == "p95_latency"
    }
    rows = []
    for benchmark, count in (FINAL_TASKS if arrivals is None else arrivals).items():
        full, sent = means[benchmark, "full"], means[benchmark, "causal"]
        best = capacity(full["bytes_mean"], full["latency_ms_mean"] / 1000, rate)
        rng = generator("published-tandem", benchmark)
        shape = (runs, seeds, count)
        gaps = rng.standard_exponential(shape)
        transfer = 8 * sent["bytes_mean"] / rate * _spread(rng, bytes_spread, shape)
        varied = _spread(rng, service_spread, shape)
        taken = {name: means[benchmark, name]["latency_ms_mean"] / 1000 for name in ("full", "causal")}
        slope = (taken["full"] - taken["causal"]) / (tokens[benchmark, "full"] - tokens[benchmark, "causal"])
        bare = taken["causal"] - slope * tokens[benchmark, "causal"]  # seconds of a call that reads no packet
        for rho in rhos:
            times = arrival_times(gaps, rho * best)
            p95 = _mean_p95(tandem(times, transfer, taken["causal"] * varied))
            least = _mean_p95(tandem(times, np.zeros(shape), bare * varied))
            low, high = np.quantile(p95, [0.1, 0.9])
            paper, adaptive = (told.get((benchmark, f"causal-{mode}", f"offered load {rho:.2f}")) for mode in MODES)
            inside = None if paper is None else bool(low <= paper <= high)
            simulated = (p95.mean(), low, high, paper, inside, least.mean(), np.quantile(least, 0.1), adaptive)
            rows.append((benchmark, rho, count, *simulated))
    names = ["benchmark", "rho", "arrivals", "p95_s", "low_s", "high_s", "paper_s", "consistent"]
    table = pd.DataFrame(rows, columns=[*names, "least_s", "least_low_s", "paper_adaptive_s"])
    return table.astype({"paper_s": float, "paper_adaptive_s": float, "consistent": "boolean"})


def _mean_p95(passage: Passage) -> np.ndarray:
    """Return p95 of each run's latencies, averaged over the runs that one value stands for; shape (runs,)."""
    return np.quantile(passage.latency, 0.95, axis=-1).mean(axis=-1)


def _spread(rng: np.random.Generator, variation: float, shape: tuple[int, ...]) -> np.ndarray:
    """Return factors of mean 1 with this coefficient of variation, never negative."""
    if variation == 0:
        return np.ones(shape)
    return rng.gamma(variation**-2, variation**2, shape)
