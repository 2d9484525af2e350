"""Tasks of a study under load: who arrives when, what is sent of each, how long each waits.

Context
-------
Static policies keep what they send whatever the queues look like; the adaptive one decides at each arrival, from
completed transfers and answers alone (BANDMAS paper, section V-F).

Intuition
---------
`arrivals_of` fixes who comes in which order and the gaps between them: first the calibration tasks, which warm the
queues and are left out of every number, then the final tasks. A static run is then two cumulative maxima over arrays.
An adaptive run is a loop, since each decision hangs on the prices and the link that earlier decisions left; what it
decided goes through the same two cumulative maxima, so all policies are timed by one piece of code.

How to read the result
----------------------
One row an arrival: what was sent, each wait, the latency, whether the deadline was missed, and the prices at which an
adaptive decision was made. Deciding takes no time here; the scheduler's own time is measured apart
(`lib.bandmas.load_study`).

Not covered: which loads and what answers are worth (`lib.bandmas.load_study`), arrivals that are not Poisson, changing
a decision while a task waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from lib.bandmas.adaptive import AdaptiveController, Backlog, Candidates, Prices, System
from lib.bandmas.queueing import arrival_times, tandem, unit_gaps
from lib.bandmas.service import Service
from lib.seeds import hash_order
from lib.tasks.task import Split

CALIBRATION_TASKS = 20  # of each benchmark and seed (paper, section V-F)
RUN_COLUMNS = (
    *("place", "task_id", "warm_up", "arrival_s", "link_wait_s", "transfer_s", "receiver_wait_s", "service_s"),
    *("latency_s", "missed", "bytes", "context_tokens", "n_sent", "deferred"),
    *("price_bytes", "price_latency", "price_context", "packet_ids"),
)


class Arrivals(msgspec.Struct, frozen=True):
    """Who arrives in which order, and the gaps between arrivals before they are scaled to a rate.

    Parameters
    ----------
    tasks : distinct task ids, in order of first arrival
    codes : (n,) position in `tasks` of each arrival
    gaps : (n,) unit-exponential draws
    warm_up : arrivals at the start that are left out of every number
    """

    tasks: tuple[str, ...]
    codes: Any
    gaps: Any
    warm_up: int


class Sent(NamedTuple):
    """What is sent of one task."""

    packet_ids: tuple[str, ...]
    bytes: int
    context_tokens: int


def calibration_ids(split: Split, count: int = CALIBRATION_TASKS) -> tuple[str, ...]:
    """Return the calibration tasks of a seed: the first validation tasks, and profile tasks where these are too few."""
    if count < 1:
        raise ValueError(f"count must be at least 1 calibration task, not {count}")
    return (*split.validation, *split.profile)[:count]


def arrivals_of(workload: str, split: Split, *, warm_up: int = CALIBRATION_TASKS, count: int | None = None) -> Arrivals:
    """Fix the order of arrivals and the unit gaps of one workload and seed, the same for every policy and load.

    Parameters
    ----------
    warm_up : calibration tasks that arrive first
    count : arrivals after them; default each final task once. More go on with further rounds of the final tasks, each
        in an order of its own
    """
    first, final = calibration_ids(split, warm_up), split.final
    wanted = len(final) if count is None else count
    if wanted < 1 or not final:
        raise ValueError(f"{workload}, seed {split.seed}: no final task arrives; take more tasks, or a count above 0")
    tasks = (*first, *final)
    rounds = [np.arange(len(final))]
    for number in range(1, -(-wanted // len(final))):
        rounds.append(np.array(hash_order(range(len(final)), "load-round", workload, split.seed, number)))
    codes = np.concatenate([np.arange(len(first)), len(first) + np.concatenate(rounds)[:wanted]])
    return Arrivals(tasks, codes, unit_gaps(len(codes), workload, split.seed), len(first))


def run_static(
    arrivals: Arrivals, per_second: float, sent: Mapping[str, Sent], service: Service, system: System
) -> pd.DataFrame:
    """Send fixed packet sets through the queues.

    Parameters
    ----------
    per_second : arrival rate, tasks a second
    sent : task id -> what is sent of it

    Returns
    -------
    DataFrame, one row an arrival, with the columns `RUN_COLUMNS`: ``place`` (order of arrival), ``task_id``,
    ``warm_up``; in seconds ``arrival_s``, ``link_wait_s``, ``transfer_s``, ``receiver_wait_s``, ``service_s``,
    ``latency_s``; ``missed`` (latency above the deadline), ``bytes``, ``context_tokens``, ``n_sent`` and ``deferred``
    (packets), ``price_bytes``, ``price_latency``, ``price_context`` (null: a static policy has none), ``packet_ids``
    """
    fixed = [sent[task_id] for task_id in arrivals.tasks]
    seconds = np.array(
        [
            service.seconds((task_id, one.packet_ids), one.context_tokens)
            for task_id, one in zip(arrivals.tasks, fixed, strict=True)
        ]
    )
    codes = arrivals.codes
    columns = {
        "bytes": np.array([one.bytes for one in fixed])[codes],
        "context_tokens": np.array([one.context_tokens for one in fixed])[codes],
        "n_sent": np.array([len(one.packet_ids) for one in fixed])[codes],
        "deferred": np.zeros(len(codes), dtype=int),
        **dict.fromkeys(("price_bytes", "price_latency", "price_context"), np.full(len(codes), np.nan)),
        "packet_ids": np.array([" ".join(one.packet_ids) for one in fixed], dtype=object)[codes],
    }
    return _outcomes(arrivals, per_second, seconds[codes], columns, system)


def run_adaptive(
    arrivals: Arrivals,
    per_second: float,
    offered: Mapping[str, Candidates],
    service: Service,
    controller: AdaptiveController,
) -> pd.DataFrame:
    """Decide at each arrival what is sent, from what is completed by then, and send it through the queues.

    Parameters
    ----------
    per_second : arrival rate, tasks a second
    offered : task id -> its ranked packets
    controller : fresh; it carries the prices of this run

    Returns
    -------
    DataFrame, one row an arrival, see `run_static`; ``price_*`` are the prices at the moment of decision
    """
    system, per_byte = controller.system, 8 / controller.system.rate
    times = arrival_times(arrivals.gaps, per_second)
    ranked = [offered[task_id] for task_id in arrivals.tasks]
    count = len(times)
    seconds, sizes, contexts = np.empty(count), np.empty(count, dtype=int), np.empty(count, dtype=int)
    prices = np.empty((count, 3))
    deferred, sets = np.zeros(count, dtype=int), []
    link_free = receiver_free = 0.0
    moving: deque[tuple[float, int]] = deque()  # end of transfer, bytes
    answering: deque[tuple[float, float, int, float, float]] = deque()  # end, latency, tokens, expected seconds, start
    expected = 0.0  # seconds of accepted work that is not answered yet
    for place, (code, now) in enumerate(zip(arrivals.codes.tolist(), times.tolist(), strict=True)):
        # Bytes and answers move different prices, so each of the two queues can be read in its own order.
        while moving and moving[0][0] <= now:
            controller.transferred(*moving.popleft())
        while answering and answering[0][0] <= now:
            end, latency, tokens, work, _ = answering.popleft()
            controller.served(end, latency, tokens)
            expected -= work
        prices[place] = controller.prices
        ahead = 0.0
        if answering:
            _, _, _, work, begun = answering[0]
            ahead = max(0.0, expected - min(work, max(0.0, now - begun)))
        else:
            expected = 0.0  # no digits lost in sums and differences are carried on
        decision = controller.decide(ranked[code], Backlog(now, max(0.0, link_free - now), ahead))
        sizes[place], contexts[place] = decision.bytes, decision.context_tokens
        deferred[place] = len(decision.deferred)
        sets.append(decision.packet_ids)
        took = service.seconds((arrivals.tasks[code], decision.packet_ids), decision.context_tokens)
        seconds[place] = took
        link_free = max(now, link_free) + decision.bytes * per_byte
        begin = max(link_free, receiver_free)
        receiver_free = begin + took
        moving.append((link_free, decision.bytes))
        guess = controller.service.seconds(decision.context_tokens)
        expected += guess
        answering.append((receiver_free, receiver_free - now, decision.context_tokens, guess, begin))
    joined = {ids: " ".join(ids) for ids in set(sets)}
    columns = {
        "bytes": sizes,
        "context_tokens": contexts,
        "n_sent": np.array([len(ids) for ids in sets], dtype=int),
        "deferred": deferred,
        **{f"price_{name}": prices[:, index] for index, name in enumerate(Prices._fields)},
        "packet_ids": np.array([joined[ids] for ids in sets], dtype=object),
    }
    return _outcomes(arrivals, per_second, seconds, columns, system)


def _outcomes(
    arrivals: Arrivals, per_second: float, seconds: np.ndarray, columns: Mapping[str, np.ndarray], system: System
) -> pd.DataFrame:
    """Return the frame of one run from what was sent and how long the receiver takes for it."""
    times = arrival_times(arrivals.gaps, per_second)
    transfer = columns["bytes"] * (8 / system.rate)
    passage = tandem(times, transfer, seconds)
    place = np.arange(len(times))
    return pd.DataFrame(
        {
            "place": place,
            "task_id": np.array(arrivals.tasks, dtype=object)[arrivals.codes],
            "warm_up": place < arrivals.warm_up,
            "arrival_s": times,
            "link_wait_s": passage.link_start - times,
            "transfer_s": transfer,
            "receiver_wait_s": passage.service_start - passage.link_end,
            "service_s": seconds,
            "latency_s": passage.latency,
            "missed": passage.latency > system.deadline,
            **columns,
        },
        columns=list(RUN_COLUMNS),
    )
