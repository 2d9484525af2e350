"""What reaches an agent within K hops, in which order, and when that is too much.

Context
-------
In a usual team an agent reads its direct predecessors. MOC (section 4.1) gives it the raw outputs of all ancestors at
most K hops away. Each ancestor counts once, at its shortest distance k_min (eq. 6, 7); far hops come first, inside a hop
the order of speaking counts (eq. 8, 9), so that the nearest and latest words stand next to the question of what to
answer. More than B = floor(|M|/K) + gamma K messages (eq. 16) are merged down.

Intuition
---------
What an agent said two hops ago reaches its grandchild only through the paraphrase of the agent between. With K = 2 the
grandchild can check the original.

How to read the result
----------------------
`k_order_flow` lists (agent, hop) as they stand in the prompt. `merge_demand` shows for every agent how many messages
come, from which hop, what the budget is, and whether merging starts. With gamma = 1 nothing merges at K = 1, and at
K = 2 or 3 only where 5 messages or more arrive: many sparse graphs never merge anything.

Not covered: the text of the messages and their merging (`lib.moc.consolidate`); choosing K (`lib.moc.adaptive_hops`).
"""

from __future__ import annotations

import math
from typing import Literal

import pandas as pd

from lib.moc.dag import Dag, DagError

HopOrder = Literal["paper", "bfs"]


def hop_sets(dag: Dag, target: int, k: int) -> dict[int, tuple[int, ...]]:
    """Return the ancestors of `target` by shortest distance, up to `k` hops (paper, eq. 6 and 7).

    Parameters
    ----------
    dag : who feeds whom
    target : the agent that reads
    k : hop order K, at least 1

    Returns
    -------
    dict from each hop 1 to k to its agents in order of speaking; a hop that nobody stands at is empty

    Raises
    ------
    DagError
        If `target` is no agent of the graph, or k is below 1.
    """
    place = dag.position
    found = _discovered(dag, target, k)
    return {
        hop: tuple(sorted((agent for agent, own in found.items() if own == hop), key=place.__getitem__))
        for hop in range(1, k + 1)
    }


def k_order_flow(dag: Dag, target: int, k: int, hop_order: HopOrder = "paper") -> tuple[tuple[int, int], ...]:
    """Return the evidence of `target` as it stands in the prompt: far hops first (paper, eq. 9).

    Parameters
    ----------
    dag, target, k : as in `hop_sets`
    hop_order : inside a hop, ``paper`` sorts by the order of speaking, ``bfs`` keeps the order in which a search backward
        from the target finds the agents, predecessors by index, as the authors' code does

    Returns
    -------
    (agent, hop) pairs, hop k to hop 1

    Examples
    --------
    >>> from lib.moc.dag import chain_dag
    >>> k_order_flow(chain_dag(4), target=3, k=2)
    ((1, 2), (2, 1))
    """
    if hop_order == "bfs":
        found = _discovered(dag, target, k)
        return tuple((agent, hop) for hop in range(k, 0, -1) for agent, own in found.items() if own == hop)
    if hop_order != "paper":
        raise DagError(f"hop_order: must be 'paper' or 'bfs', not {hop_order!r}")
    return tuple(
        (agent, hop) for hop, agents in sorted(hop_sets(dag, target, k).items(), reverse=True) for agent in agents
    )


def message_budget(count: int, k: int, gamma: float = 1.0) -> int:
    """Return B, the most messages that an agent reads unmerged (paper, eq. 16).

    Parameters
    ----------
    count : messages that arrive, |M|
    k : hop order K as configured, even where fewer hops exist
    gamma : tolerance of long-range evidence, at least 0

    Returns
    -------
    floor(floor(count / k) + gamma k), at least 1: merging always leaves a message

    Examples
    --------
    >>> [message_budget(*case) for case in ((6, 2), (4, 2), (9, 3), (1, 2), (7, 1), (5, 2, 0.5))]
    [5, 4, 6, 2, 8, 3]
    """
    if count < 0:
        raise DagError(f"count: must be at least 0, not {count}")
    if not (math.isfinite(gamma) and gamma >= 0):
        raise DagError(f"gamma: must be a finite number of at least 0, not {gamma!r}")
    _check_hops(k)
    return max(1, math.floor(round(count // k + gamma * k, 9)))  # rounded, so that 0.29 * 100 is 29


def merge_demand(dag: Dag, k: int, gamma: float = 1.0) -> pd.DataFrame:
    """Return what arrives at every agent and whether it must be merged.

    Parameters
    ----------
    dag, k, gamma : as in `hop_sets` and `message_budget`

    Returns
    -------
    DataFrame, one row an agent in order of speaking: ``agent``, ``position``, ``hop_1`` to ``hop_k`` (messages that
    arrive from that far), ``messages`` (their sum), ``budget``, ``merging``
    """
    rows = []
    for position, agent in enumerate(dag.order):
        counts = {f"hop_{hop}": len(agents) for hop, agents in hop_sets(dag, agent, k).items()}
        messages = sum(counts.values())
        budget = message_budget(messages, k, gamma)
        head = {"agent": agent, "position": position}
        rows.append({**head, **counts, "messages": messages, "budget": budget, "merging": messages > budget})
    return pd.DataFrame(rows)


def _discovered(dag: Dag, target: int, k: int) -> dict[int, int]:
    """Return the hop of every ancestor within k hops, in the order of a breadth-first search against the edges."""
    if not 0 <= target < dag.n:
        raise DagError(f"target: {target} is no agent; known are 0 to {dag.n - 1}")
    _check_hops(k)
    tails: dict[int, list[int]] = {agent: [] for agent in range(dag.n)}
    for tail, head in dag.edges:  # sorted, so predecessors stand by index
        tails[head].append(tail)
    found, frontier = {target: 0}, [target]
    for hop in range(1, k + 1):
        reached = dict.fromkeys(tail for agent in frontier for tail in tails[agent] if tail not in found)
        found |= dict.fromkeys(reached, hop)
        frontier = list(reached)
    del found[target]
    return found


def _check_hops(k: int) -> None:
    if k < 1:
        raise DagError(f"k: the hop order is at least 1, not {k}")
