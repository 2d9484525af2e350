"""From numbers about pairs of agents to a graph without cycles: drawn edge by edge, or the strongest edges first.

Context
-------
A network that designs teams gives each ordered pair (i, j) a number. G-Designer's code reads it as a probability and
draws the pairs row by row, skipping those that would close a cycle with what is drawn already. Its paper describes a
refined matrix instead, of which the large entries are the edges.

Intuition
---------
Row by row, i -> j is asked before j -> i for i < j. With equal probabilities p the first gets p and the second, asked
only if the first failed, (1 - p) p: low indices tend to feed high ones. This bias is part of the method and kept.

How to read the result
----------------------
`taken` are the edges; `asked` are all pairs that had a chance, the only ones in the probability of the graph. Over all
graphs these probabilities sum to 1.

Not covered: where the numbers come from (`lib.moc.graph_encoder`).
"""

from __future__ import annotations

import numpy as np
import torch

from lib.moc.dag import Edge

DIGITS = 12  # values equal to so many decimal places are ties


class AcyclicEdges:
    """Edges that come one at a time, and what they already connect.

    Parameters
    ----------
    n : number of agents

    Attributes
    ----------
    taken : (n, n) bool, edges so far
    """

    def __init__(self, n: int) -> None:
        self.taken = np.zeros((n, n), dtype=bool)
        self._reaches = np.eye(n, dtype=bool)  # [a, b]: a is b, or a path leads from a to b

    def closes_cycle(self, tail: int, head: int) -> bool:
        """Tell whether the edge would close a cycle; a self-loop always does."""
        return bool(self._reaches[head, tail])

    def add(self, tail: int, head: int) -> None:
        """Take an edge that closes no cycle."""
        self.taken[tail, head] = True
        self._reaches |= np.outer(self._reaches[:, tail], self._reaches[head])

    def edges(self) -> tuple[Edge, ...]:
        """Return the edges taken, sorted."""
        return tuple((int(tail), int(head)) for tail, head in np.argwhere(self.taken))


def draw_edges(probabilities: np.ndarray, draws: np.ndarray) -> tuple[AcyclicEdges, np.ndarray]:
    """Draw a graph pair by pair, row by row.

    Parameters
    ----------
    probabilities : (n, n) of each pair when it is asked; the diagonal is never asked
    draws : (n, n) uniform in [0, 1); a pair becomes an edge where its draw is below its probability

    Returns
    -------
    edges, and (n, n) bool: the pairs that were asked
    """
    n = len(probabilities)
    edges, asked = AcyclicEdges(n), np.zeros((n, n), dtype=bool)
    for tail in range(n):
        for head in range(n):
            if edges.closes_cycle(tail, head):
                continue
            asked[tail, head] = True
            if draws[tail, head] < probabilities[tail, head]:
                edges.add(tail, head)
    return edges, asked


def strongest_edges(weights: np.ndarray, threshold: float) -> AcyclicEdges:
    """Return a graph of the pairs of at least `threshold`, strongest first, without those that would close a cycle.

    Parameters
    ----------
    weights : (n, n); equal entries go row by row, and the diagonal is left out
    threshold : smallest weight of an edge
    """
    n, rounded = len(weights), np.round(weights, DIGITS)
    edges = AcyclicEdges(n)
    for place in np.argsort(-rounded, axis=None, kind="stable"):
        tail, head = divmod(int(place), n)
        if rounded[tail, head] >= threshold and not edges.closes_cycle(tail, head):
            edges.add(tail, head)
    return edges


def log_probability(logits: torch.Tensor, taken: np.ndarray, asked: np.ndarray) -> torch.Tensor:
    """Return the log-probability of binary choices, in nats: log p where taken, log(1 - p) where asked and not taken.

    Parameters
    ----------
    logits : (n, n), of which the sigmoid is p
    taken, asked : (n, n) bool
    """
    signed = torch.where(torch.from_numpy(taken), logits, -logits)
    return torch.nn.functional.logsigmoid(signed)[torch.from_numpy(asked)].sum()
