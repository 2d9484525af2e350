"""Who feeds whom: directed acyclic graphs of agents, and the order in which the agents speak.

Context
-------
A team of N agents answers once each, in a topological order sigma of a directed acyclic graph. The MOC paper (3.2, B.2)
draws the graph at random: shuffle the agents, allow edges that run forward in the shuffled order, take the chain along
it so that nobody stands alone, and fill up with uniformly drawn forward edges to m = ceil(density N(N-1)/2).

Intuition
---------
The chain alone is a whispering game: the last agent hears the first through everyone between. Each further edge is a
short cut. At density 1 everybody hears everyone before.

How to read the result
----------------------
A `Dag` is a value: it compares, hashes, and goes to JSON and back. `order` is sigma, `edges` holds (i, j) where i feeds
j. `density` is the share of forward pairs that are edges; `requested` is what was asked for, which the chain may exceed
(3 agents cannot have less than 2 edges of 3). One seed names one graph, on every machine.

Not covered: which role an agent plays (agent i has the i-th role of its cycle, whatever its place in sigma); graphs
chosen for a question (`lib.moc.gdesigner`); cycles and several rounds.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
import networkx as nx
import numpy as np

Edge = tuple[int, int]  # (i, j): i feeds j


class DagError(ValueError):
    """A graph that no team can run; the text names the agents and the fix."""


class Dag(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A directed acyclic graph of agents with the order in which they speak.

    Parameters
    ----------
    n : number of agents; they are 0 to n - 1
    order : sigma, every agent once, so that each edge runs forward in it
    edges : (i, j) where i feeds j, sorted, each once
    kind : how it was made: ``random``, ``chain``, ``full``, ``given``, ``gdesigner-code``, ``gdesigner-paper``
    seed : what it was drawn with; None where nothing was drawn
    requested : the density asked for; None where none was

    Raises
    ------
    DagError
        If the order is no permutation, or an edge is unknown, doubled, out of place or runs backward in the order.
    """

    n: int
    order: tuple[int, ...]
    edges: tuple[Edge, ...]
    kind: str = "given"
    seed: int | None = None
    requested: float | None = None

    def __post_init__(self) -> None:
        if self.n < 1:
            raise DagError(f"n: a team has at least one agent, not {self.n}")
        if sorted(self.order) != list(range(self.n)):
            raise DagError(f"order: must hold each of 0 to {self.n - 1} once, not {self.order}")
        if list(self.edges) != sorted(set(self.edges)):
            raise DagError("edges: must be sorted and stand once each; make the graph with dag_of()")
        place = self.position
        for tail, head in self.edges:
            if not (0 <= tail < self.n and 0 <= head < self.n):
                raise DagError(f"edges: {(tail, head)} names an agent outside 0 to {self.n - 1}")
            if place[tail] >= place[head]:
                raise DagError(f"edges: {(tail, head)} runs backward in the order {self.order}")

    @property
    def position(self) -> tuple[int, ...]:
        """The place of each agent in the order, (n,)."""
        places = [0] * self.n
        for place, agent in enumerate(self.order):
            places[agent] = place
        return tuple(places)

    @property
    def adjacency(self) -> np.ndarray:
        """(n, n) int8; 1 in row i, column j where i feeds j (paper, A)."""
        matrix = np.zeros((self.n, self.n), dtype=np.int8)
        for edge in self.edges:
            matrix[edge] = 1
        return matrix

    @property
    def density(self) -> float:
        """The number of edges over n(n - 1)/2; NaN for one agent, who can have none."""
        return len(self.edges) / math.comb(self.n, 2) if self.n > 1 else math.nan

    def parents(self, agent: int) -> tuple[int, ...]:
        """Return the agents that feed `agent`, earliest speaker first (paper, eq. 2 under sigma)."""
        place = self.position
        return tuple(sorted((tail for tail, head in self.edges if head == agent), key=place.__getitem__))

    def graph(self) -> nx.DiGraph:
        """Return the graph for networkx, nodes in index order."""
        graph = nx.DiGraph()
        graph.add_nodes_from(range(self.n))
        graph.add_edges_from(self.edges)
        return graph


def random_dag(n: int, density: float, seed: int) -> Dag:
    """Draw a graph with a chain through all agents and forward edges up to a density (paper, B.2).

    Parameters
    ----------
    n : number of agents
    density : rho in (0, 1]; m = ceil(rho n(n-1)/2) edges, but never fewer than the n - 1 of the chain
    seed : of `random.Random`, which shuffles the order and then draws from the sorted pairs that the chain leaves

    Raises
    ------
    DagError
        If the density lies outside (0, 1], or there is no agent.

    Examples
    --------
    >>> dag = random_dag(7, 0.5, 42)
    >>> dag.order, len(dag.edges)
    ((1, 3, 4, 2, 6, 0, 5), 11)
    """
    if not 0 < density <= 1:
        raise DagError(f"density: must lie in (0, 1], not {density!r}; chain_dag() has the fewest edges")
    draw = random.Random(seed)
    order = _shuffled(n, draw)
    forward, chain = _forward(order), list(itertools.pairwise(order))
    # The rounding keeps (0.1 + 0.2) * 190 = 57.00000000000001 from asking for one edge more.
    wanted = max(len(chain), math.ceil(round(density * len(forward), 9)))
    # Sorted, because the order of a set is a detail of the interpreter and would be part of the draw.
    rest = draw.sample(sorted(set(forward) - set(chain)), wanted - len(chain))
    return Dag(n, order, tuple(sorted(chain + rest)), kind="random", seed=seed, requested=density)


def full_dag(n: int, seed: int) -> Dag:
    """Return the graph in which everybody hears everyone before, in a shuffled order: `random_dag` of density 1."""
    order = _shuffled(n, random.Random(seed))
    return Dag(n, order, tuple(sorted(_forward(order))), kind="full", seed=seed)


def chain_dag(n: int) -> Dag:
    """Return the graph in which each agent hears the one before, in index order."""
    return Dag(n, tuple(range(n)), tuple((agent, agent + 1) for agent in range(n - 1)), kind="chain")


def dag_of(
    n: int,
    edges: Iterable[tuple[int | str, int | str]],
    names: Sequence[str] | None = None,
    kind: str = "given",
    seed: int | None = None,
) -> Dag:
    """Check edges from anywhere and return them as a graph, in the order of `kahn_order`.

    Parameters
    ----------
    n : number of agents
    edges : (i, j) where i feeds j, by index or, with `names`, by name
    names : (n,) distinct names of the agents; errors use them
    kind, seed : as in `Dag`

    Raises
    ------
    DagError
        Naming the cycle, the unknown agent, the self-loop or the doubled edge.

    Examples
    --------
    >>> dag_of(3, [("plan", "code"), ("code", "test")], names=["plan", "code", "test"]).order
    (0, 1, 2)
    """
    labels = [str(agent) for agent in range(n)] if names is None else list(names)
    if len(labels) != n or len(set(labels)) != n:
        raise DagError(f"names: {n} distinct names are needed, one an agent, not {labels}")
    index = {} if names is None else {name: agent for agent, name in enumerate(labels)}
    known: set[Edge] = set()
    for edge in edges:
        ends = [index.get(end, -1) if isinstance(end, str) else int(end) for end in edge]
        if len(ends) != 2 or not all(0 <= end < n for end in ends):
            raise DagError(f"edges: {edge} is no pair of agents; known are {', '.join(labels)}")
        tail, head = ends
        shown = f"{labels[tail]} -> {labels[head]}"
        if tail == head:
            raise DagError(f"edges: {shown} is a self-loop; an agent hears itself only in a next round, leave it out")
        if (tail, head) in known:
            raise DagError(f"edges: {shown} stands twice; leave one out")
        known.add((tail, head))
    return Dag(n, kahn_order(n, known, labels), tuple(sorted(known)), kind=kind, seed=seed)


def kahn_order(n: int, edges: Iterable[Edge], labels: Sequence[str] | None = None) -> tuple[int, ...]:
    """Return a topological order by Kahn's queue: first in, first out, agents that become ready together by index.

    Parameters
    ----------
    n, edges : the graph
    labels : (n,) names for the error

    Raises
    ------
    DagError
        Naming the agents of a cycle.
    """
    heads: dict[int, list[int]] = {agent: [] for agent in range(n)}
    waits = [0] * n
    for tail, head in sorted(edges):
        heads[tail].append(head)
        waits[head] += 1
    ready, order = deque(agent for agent in range(n) if not waits[agent]), []
    while ready:
        agent = ready.popleft()
        order.append(agent)
        for head in heads[agent]:
            waits[head] -= 1
            if not waits[head]:
                ready.append(head)
    if len(order) < n:
        cycle = [tail for tail, _ in nx.find_cycle(nx.DiGraph(heads))]
        named = [str(agent) if labels is None else labels[agent] for agent in (*cycle, cycle[0])]
        raise DagError(f"edges: {' -> '.join(named)} is a cycle; remove one of its edges")
    return tuple(order)


def _shuffled(n: int, draw: random.Random) -> tuple[int, ...]:
    order = list(range(n))
    draw.shuffle(order)
    return tuple(order)


def _forward(order: Sequence[int]) -> list[Edge]:
    """Return all pairs that run forward in `order` (paper, eq. 19)."""
    return [(tail, head) for place, tail in enumerate(order) for head in order[place + 1 :]]
