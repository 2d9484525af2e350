"""Cluster a weighted graph around terminals: the 0-extension, the cheapest labelling that leaves terminals fixed.

Context
-------
SafeSieve groups the nodes of a communication graph before it prunes: a few nodes of largest degree are terminals, and
every other node is assigned to one of them so that the total weight of edges between groups is least.

Intuition
---------
With the weight of an edge its score, nodes of strong edges stay together and weak edges are cut. The notes print the
reciprocal as weight, which makes weak edges dear to cut and separates strong pairs; it is kept as an option.

How to read the result
----------------------
`zero_extension` returns for each node the index of its terminal. Up to 65,536 labellings are tried, so the answer is
exact; above that each node goes to the nearest terminal, a labelling that is feasible but not always cheapest.

Not covered: randomised rounding with its guarantees.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from scipy.sparse.csgraph import dijkstra

from lib.bandmas.admission import DIGITS

EXACT = 2**16  # labellings that are tried one by one
EPSILON = 1e-6
CutWeight = Literal["affinity", "as_printed"]


def terminal_count(nodes: int) -> int:
    """Return max(2, min(floor(sqrt(n)), floor(n / 3))), the number of terminals of n nodes; all of them if there are fewer than 2.

    >>> [terminal_count(n) for n in (1, 3, 4, 9, 16)]
    [1, 2, 2, 3, 4]
    """
    return min(nodes, max(2, min(math.isqrt(nodes), nodes // 3)))


def terminals_of(scores: np.ndarray, forced: Collection[int] = ()) -> list[int]:
    """Return the terminals: the forced nodes, then those of largest weighted degree, ties by index; ascending.

    Parameters
    ----------
    scores : (n, n) edge scores, direction ignored
    forced : nodes that are terminals whatever their degree
    """
    degree = (cut_weights(scores, "affinity")).sum(axis=1)
    order = sorted(range(len(scores)), key=lambda node: (node not in forced, -round(float(degree[node]), DIGITS), node))
    return sorted(order[: max(terminal_count(len(scores)), len(forced))])


def cut_weights(scores: np.ndarray, kind: CutWeight = "affinity", *, epsilon: float = EPSILON) -> np.ndarray:
    """Return what cutting each pair of nodes costs, symmetric with a zero diagonal.

    Parameters
    ----------
    scores : (n, n) edge scores; both directions of a pair add up
    kind : ``affinity``, score + epsilon, or ``as_printed``, its reciprocal
    """
    weights = scores + scores.T + epsilon
    weights = weights if kind == "affinity" else 1 / weights
    np.fill_diagonal(weights, 0.0)
    return weights


def cut_cost(weights: np.ndarray, labels: Sequence[int] | np.ndarray) -> float:
    """Return the total weight of the pairs that `labels` separates."""
    labels = np.asarray(labels)
    return float(np.triu(weights * (labels[:, None] != labels[None, :])).sum())


def zero_extension(weights: np.ndarray, terminals: Sequence[int], *, exact: int = EXACT) -> np.ndarray:
    """Assign every node to a terminal at the least cut cost.

    Parameters
    ----------
    weights : (n, n) from `cut_weights`
    terminals : node indices; each keeps itself
    exact : largest number of labellings that is searched in full

    Returns
    -------
    (n,) the terminal of each node. Among equally cheap labellings the first in index order; above `exact` each node's
    nearest terminal at edge length 1 / weight, ties to the lower index.
    """
    ends = np.array(sorted(terminals))
    labels = np.arange(len(weights))
    free = np.setdiff1d(labels, ends)
    if len(ends) ** len(free) > exact:
        lengths = np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0)
        near = np.round(dijkstra(lengths, indices=ends), DIGITS)
        labels[free] = ends[near.argmin(axis=0)][free]
        return labels
    # Row by row the free nodes count upwards in base |terminals|, so the first cheapest row is the first in index order.
    places = len(ends) ** np.arange(len(free))[::-1]
    tried = np.tile(labels, (len(ends) ** len(free), 1))
    tried[:, free] = ends[np.arange(len(tried))[:, None] // places % len(ends)]
    cost = np.zeros(len(tried))
    for first in range(len(weights)):
        for second in range(first + 1, len(weights)):
            cost += weights[first, second] * (tried[:, first] != tried[:, second])
    return tried[np.round(cost, DIGITS).argmin()]
