"""What each packet was worth on average over everything else that may arrive: Shapley values of packets.

Context
-------
The replay effect RCE (`lib.bandmas.replay`; eq. 6 of the BANDMAS paper) looks at a packet in two contexts, nothing
else and everything else. The paper calls it no additive decomposition and leaves the contexts between the two aside.
They are filled in here: a task's packets are the players of a game whose worth is the receiver's utility U(S) for
each delivered set S, and a packet's Shapley value is its mean marginal effect U(S + p) - U(S), with all sizes of S
equally weighted and all sets of one size too (Shapley 1953).

Intuition
---------
Let the packets arrive one by one in random order; each is paid what utility moves when it arrives. The mean over all
orders is the Shapley value. It is the only rule that shares out U(all) - U(none) without rest (efficiency), pays
equal packets equally (symmetry), pays nothing to one that never changes anything (dummy), and adds over utilities
(additivity). The first and the last arrival are the two contexts of RCE, so with one or two packets both agree.

With few packets every subset is asked and the value is exact: n packets have 2^n subsets, and in a tree of prompts
each costs about one packet more than a subset that is there already. With more, orders are drawn. Packets sit in a
circle in random order; an arrival order starts at each seat and runs either way round. So a circle gives 2n orders,
each read together with its reverse (antithetic), in which every packet takes every place exactly twice (stratified by
place), and needs only the n(n - 1) + 2 arcs of the circle. Each circle keeps efficiency; the mean over random circles
is unbiased; circles are independent, so their spread gives the standard error.

How to read the result
----------------------
`shapley_effects` gives a row a packet. The values of a task sum to what all its packets together add. `low` and
`high` are the value itself where it is exact, else a Student interval over circles, which speaks of sampling alone.
A receiver that answers differently when asked twice (`lib.bandmas.noise`) adds its flips to every subset.

Not covered: what packets do together (`lib.bandmas.interactions`), byte caps, stochastic decoding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from lib.bandmas.replay import (
    PARTS,
    Job,
    Render,
    Utility,
    check_jobs,
    outcome_of,
    outcome_table,
    replay_contexts,
)
from lib.messages.packets import Packet
from lib.models.receiver import Prompt, Receiver
from lib.seeds import generator

LIMIT = 16  # packets of an exact task: 65,536 subsets
EXACT, SAMPLED = "exact", "sampled"

Worth = Callable[
    [int], float
]  # utility of a set of packets; bit k of the number stands for the k-th packet in id order


class ShapleyPlan(msgspec.Struct, frozen=True):
    """Which packet sets are asked.

    Parameters
    ----------
    exact_max : tasks of at most this many packets are asked in every subset, 0 to 16
    circles : random circles for each larger task; a standard error needs two
    seed : names the circles, together with the task id
    """

    exact_max: int = 6
    circles: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.exact_max <= LIMIT:
            raise ValueError(
                f"exact_max must be 0 to {LIMIT} packets, not {self.exact_max}: a task of n packets has 2^n subsets"
            )
        if self.circles < 2:
            raise ValueError(f"circles must be at least 2, not {self.circles}: one circle has no standard error")

    def is_exact(self, n_packets: int) -> bool:
        """Tell whether a task of this many packets is asked in every subset."""
        return n_packets <= self.exact_max


# --------------------------------------------------------------------------------------------------------------- any game


def shapley_values(worth: ArrayLike) -> np.ndarray:
    """Return the exact Shapley values of a game.

    Parameters
    ----------
    worth : (2^n,) worth of every set; bit k of the index stands for player k

    Returns
    -------
    (n,) values; they sum to ``worth[-1] - worth[0]``

    Raises
    ------
    ValueError
        If the length is no power of two.

    >>> shapley_values([0, 1, 1, 1]).tolist()  # either of two packets is enough
    [0.5, 0.5]
    """
    table, n = game_table(worth)
    values = np.empty(n)
    for player in range(n):
        others, weights = sets_without(n, 1 << player)
        values[player] = weights @ (table[others | 1 << player] - table[others])
    return values


def circle_values(worth: Worth, circle: Sequence[int]) -> np.ndarray:
    """Return the mean marginal effects over the 2n arrival orders of one circle.

    Parameters
    ----------
    worth : of any arc of the circle
    circle : (n,) players in seating order

    Returns
    -------
    (n,) values in player order; their mean over uniformly random circles is the Shapley value, and each circle's sum
    is the worth of all minus that of none
    """
    n = len(circle)
    total = np.zeros(n)
    for start in range(n):
        for step in (1, -1):
            arrived = 0
            for place in range(n):
                player = int(circle[(start + step * place) % n])
                total[player] += worth(arrived | 1 << player) - worth(arrived)
                arrived |= 1 << player
    return total / (2 * n)


def sampled_values(worth: Worth, circles: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over circles and its standard error, each (n,)."""
    drawn = np.array([circle_values(worth, circle) for circle in circles])  # (n_circles, n)
    return drawn.mean(axis=0), drawn.std(axis=0, ddof=1) / math.sqrt(len(drawn))


def circles_of(n_players: int, count: int, *names: object) -> list[list[int]]:
    """Draw `count` independent circles of `n_players`, seeded by `names`."""
    random = generator("shapley circles", *names)
    return [random.permutation(n_players).tolist() for _ in range(count)]


def arcs(circle: Sequence[int]) -> set[int]:
    """Return the sets of neighbouring players of a circle, from none to all: n(n - 1) + 2 of them for n of 2 or more."""
    found = {0}
    for start in range(len(circle)):
        arc = 0
        for place in range(len(circle)):
            arc |= 1 << circle[(start + place) % len(circle)]
            found.add(arc)
    return found


def game_table(worth: ArrayLike) -> tuple[np.ndarray, int]:
    """Return the worth of every set as an array, and the number of players."""
    table = np.asarray(worth, dtype=float)
    n = table.size.bit_length() - 1
    if table.ndim != 1 or n < 0 or table.size != 1 << n:
        raise ValueError(f"a game of n players has one worth for each of its 2^n sets, not shape {table.shape}")
    return table, n


def sets_without(n_players: int, left_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sets that hold none of the players of `left_out`, with weights that sum to 1.

    Sizes weigh the same, and so do the sets of one size: with one player left out these are the weights of the Shapley
    value, with two those of the interaction index.
    """
    sets = np.arange(1 << n_players)
    sets = sets[sets & left_out == 0]
    others = n_players - left_out.bit_count()
    by_size = np.array([1 / ((others + 1) * math.comb(others, size)) for size in range(others + 1)])
    return sets, by_size[np.bitwise_count(sets)]


# ------------------------------------------------------------------------------------------------------ packets of a task


def coalitions(task_id: str, packets: Sequence[Packet], plan: ShapleyPlan) -> list[tuple[str, ...]]:
    """Return the distinct packet sets to ask of one task, as ids in order.

    An exact task is asked in all its subsets. A larger one in the contexts of replay, in the arcs of its circles, and
    in every pair and all but every pair, from which interactions are read. The sets come in dictionary order, so that
    neighbours begin alike wherever a call is cut.
    """
    ids = sorted(packet.packet_id for packet in packets)
    n, everyone = len(ids), (1 << len(ids)) - 1
    if plan.is_exact(n):
        masks = set(range(1 << n))
    else:
        place = {packet_id: index for index, packet_id in enumerate(ids)}
        masks = {sum(1 << place[packet_id] for packet_id in named) for _, named in replay_contexts(packets)}
        pairs = {1 << i | 1 << j for i in range(n) for j in range(i)}
        masks |= pairs | {everyone ^ pair for pair in pairs}
        masks |= set().union(*(arcs(circle) for circle in circles_of(n, plan.circles, plan.seed, task_id)))
    return sorted(tuple(packet_id for k, packet_id in enumerate(ids) if mask >> k & 1) for mask in masks)


def coalition_outcomes(
    receiver: Receiver,
    jobs: Sequence[Job],
    utility: Utility,
    render: Render,
    allowed_ids: Collection[str],
    plan: ShapleyPlan,
    *,
    max_tokens: int = 256,
) -> pd.DataFrame:
    """Ask every packet set that the plan names, of all jobs in one receiver call.

    Parameters
    ----------
    receiver, jobs, utility, render, allowed_ids, max_tokens : as in `lib.bandmas.replay.replay_outcomes`; a context
        that a replay has asked behind the same store is read from it
    plan : which sets

    Returns
    -------
    DataFrame, one row a distinct packet set of a task: ``task_id``, ``packet_ids``, then the columns of
    `replay_outcomes`. ``contexts`` names the contexts of replay that a set serves, so `effects_of` reads this frame
    too. A failed call has null utilities, never 0.

    Raises
    ------
    LeakError
        Naming the task, before anything is asked.
    """
    check_jobs(jobs, allowed_ids)
    rows: list[dict[str, Any]] = []
    prompts: list[Prompt] = []
    for task, packets in jobs:
        by_id = {packet.packet_id: packet for packet in packets}
        served: dict[tuple[str, ...], list[str]] = {}
        for name, ids in replay_contexts(packets):
            served.setdefault(ids, []).append(name)
        for ids in coalitions(task.id, packets, plan):
            prompts.append(render(task, [by_id[packet_id] for packet_id in ids]))
            names = tuple(served.get(ids, ()))
            rows.append({"task_id": task.id, "packet_ids": ids, "contexts": names, "n_sent": len(ids)})
    replies = receiver.reply(prompts, max_tokens=max_tokens) if prompts else []
    for row, prompt, reply in zip(rows, prompts, replies, strict=True):
        row.update(prompt_key=receiver.prompt_key(prompt), **outcome_of(row["task_id"], reply, utility))
    return outcome_table(rows, _OUTCOME_COLUMNS)


def shapley_effects(
    outcomes: pd.DataFrame, jobs: Sequence[Job], plan: ShapleyPlan, *, part: str = "utility", level: float = 0.95
) -> pd.DataFrame:
    """Return the Shapley value of every packet.

    Parameters
    ----------
    outcomes : of `coalition_outcomes` with the same jobs and plan
    part : which utility is shared out: ``utility``, ``task_utility`` or ``evidence_utility``
    level : of the interval of sampled values

    Returns
    -------
    DataFrame, one row a packet, jobs in order, packets in id order: ``task_id``, ``packet_id``, ``type``,
    ``n_packets``, ``method`` (exact or sampled), ``u_full``, ``u_empty``, ``shapley``, ``standard_error`` (0 where
    exact), ``low``, ``high``. Null where a set that the value needs has no utility.

    Raises
    ------
    ValueError
        If a set of the plan is not among the outcomes.
    """
    worths = coalition_worths(outcomes, jobs, part)
    rows = []
    for task, packets in jobs:
        ordered, n = sorted(packets, key=lambda packet: packet.packet_id), len(packets)
        worth = worths[task.id]
        if plan.is_exact(n):
            values = shapley_values([worth(mask) for mask in range(1 << n)])
            errors, reach, method = np.zeros(n), 0.0, EXACT
        else:
            values, errors = sampled_values(worth, circles_of(n, plan.circles, plan.seed, task.id))
            reach, method = float(stats.t.ppf((1 + level) / 2, plan.circles - 1)), SAMPLED
        ends = {"u_full": worth((1 << n) - 1), "u_empty": worth(0)}
        for packet, value, error in zip(ordered, values, errors, strict=True):
            head = {"task_id": task.id, "packet_id": packet.packet_id, "type": packet.type, "n_packets": n}
            margin = reach * error
            bounds = {"standard_error": error, "low": value - margin, "high": value + margin}
            rows.append({**head, "method": method, **ends, "shapley": value, **bounds})
    frame = pd.DataFrame(rows, columns=_EFFECT_COLUMNS).astype(dict.fromkeys(_EFFECT_COLUMNS[5:], float))
    unknown = frame["shapley"].isna()
    return frame.assign(**{name: frame[name].mask(unknown) for name in ("standard_error", "low", "high")})


def coalition_worths(outcomes: pd.DataFrame, jobs: Sequence[Job], part: str = "utility") -> dict[str, Worth]:
    """Return, by task id, the utility of each asked packet set; NaN where its call failed.

    Asking for a set that was not asked raises `ValueError` with the task and the remedy.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, not {part!r}")
    places = {task.id: _places(packets) for task, packets in jobs}
    known: dict[str, dict[int, float]] = {task.id: {} for task, _ in jobs}
    for task_id, ids, value in zip(outcomes["task_id"], outcomes["packet_ids"], outcomes[part], strict=True):
        if task_id in known:
            known[task_id][sum(1 << places[task_id][packet_id] for packet_id in ids)] = float(value)
    return {task_id: _lookup(task_id, table) for task_id, table in known.items()}


def _places(packets: Sequence[Packet]) -> dict[str, int]:
    return {packet_id: place for place, packet_id in enumerate(sorted(packet.packet_id for packet in packets))}


def _lookup(task_id: str, table: Mapping[int, float]) -> Worth:
    def worth(mask: int) -> float:
        if mask not in table:
            raise ValueError(
                f"task {task_id!r}: a set of {mask.bit_count()} packets was not asked; make the outcomes with the same "
                "jobs and the same plan (exact_max, circles, seed)"
            )
        return table[mask]

    return worth


_OUTCOME_COLUMNS = [
    *("task_id", "packet_ids", "contexts", "n_sent", "prompt_key", "raw", *PARTS, "score"),
    *("prompt_tokens", "new_tokens", "seconds", "finish", "error"),
]
_EFFECT_COLUMNS = [
    *("task_id", "packet_id", "type", "n_packets", "method", "u_full", "u_empty"),
    *("shapley", "standard_error", "low", "high"),
]
