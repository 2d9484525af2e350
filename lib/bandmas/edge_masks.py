"""Trainable edge masks: graphs drawn edge by edge, rewarded by policy gradient, thinned by cutting the weakest edges.

Context
-------
The method part of AgentPrune (arXiv 2410.02506), facts of its published code: every possible edge has a logit; a graph
is drawn in edge order with probability sigmoid(logit) each (temperature 1), skipping edges that would close a cycle;
the loss of a batch is the mean of -u log P(graph), u being what the answer earned; Adam moves the logits; now and then
a share of the surviving edges, those of lowest logit, is closed for good.

Intuition
---------
A graph that earned much makes all of its own choices more likely, taken edges and untaken ones alike. An edge that does
not matter is pulled up and down at random; one that helps is pulled up.

How to read the result
----------------------
`logits` order the edges, `kept` says which are still open. The paper's further terms are options: the nuclear norm of
the edge probabilities, a convex stand-in for their rank, and their squared distance from the full graph. The published
code has neither.

Not covered: what an edge is and how an answer is scored (`lib.bandmas.agentprune`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import torch

from lib.bandmas.admission import DIGITS

SINGULAR = 1e-8  # singular values below this count as zero

Pair = tuple[Hashable, Hashable]
Graph = tuple[np.ndarray, np.ndarray]  # taken, asked; both (n_edges,) bool


class EdgeMasks:
    """The edges of one family with their logits and masks.

    Parameters
    ----------
    edges : (tail, head) of each edge, in the order they are drawn in
    start : probability of every edge before training
    learning_rate : of Adam
    acyclic : draw graphs without cycles; edges that cross rounds need no such check
    cells : (row, column) of each edge in the matrix of the penalties; default (tail, head)

    Attributes
    ----------
    kept : (n_edges,) bool, edges not cut so far
    """

    def __init__(
        self,
        edges: Sequence[Pair],
        *,
        start: float = 0.5,
        learning_rate: float = 0.1,
        acyclic: bool = True,
        cells: Sequence[Pair] | None = None,
    ) -> None:
        self.edges, self.acyclic = list(edges), acyclic
        self.kept = np.ones(len(self.edges), dtype=bool)
        places = self.edges if cells is None else list(cells)
        self._rows, self._columns = (_numbered([place[axis] for place in places]) for axis in (0, 1))
        logit = math.log(start / (1 - start))
        # One scalar a logit: Adam passes over what has no gradient, so an edge that a batch lacks keeps its logit and moments.
        self._logits = [torch.tensor(logit, dtype=torch.float64, requires_grad=True) for _ in self.edges]
        self._optimizer = torch.optim.Adam(self._logits, lr=learning_rate) if self.edges else None

    @property
    def logits(self) -> np.ndarray:
        """(n_edges,)"""
        return np.array([logit.item() for logit in self._logits])

    def draw(self, present: np.ndarray, draws: np.ndarray) -> Graph:
        """Draw a graph over the surviving edges that are `present`; see `sample_graph`."""
        return sample_graph(self.edges, self.logits, self.kept & present, draws, acyclic=self.acyclic)

    def update(
        self, graphs: Sequence[Graph], rewards: Sequence[float], *, nuclear: float = 0.0, anchor: float = 0.0
    ) -> None:
        """Take one step on mean(-reward log P(graph)) + nuclear ||P||_* + anchor ||1 - P||^2.

        P holds the probabilities of the surviving edges. Edges that no graph asked for are not moved, unless a penalty
        moves them.
        """
        if self._optimizer is None:
            return
        logits = torch.stack(self._logits)
        moved = self.kept.copy() if nuclear or anchor else np.zeros(len(self.edges), dtype=bool)
        loss = self._penalty(torch.sigmoid(logits), nuclear, anchor)
        for (taken, asked), reward in zip(graphs, rewards, strict=True):
            loss = loss - reward * log_probability(logits, taken, asked) / len(graphs)
            moved |= asked
        self._optimizer.zero_grad()
        loss.backward()
        for logit, moves in zip(self._logits, moved, strict=True):
            if not moves:
                logit.grad = None
        self._optimizer.step()

    def cut(self, rate: float) -> None:
        """Close a share of the surviving edges, the weakest; see `cut_weakest`."""
        self.kept = cut_weakest(self.logits, self.kept, rate)

    def _penalty(self, probability: torch.Tensor, nuclear: float, anchor: float) -> torch.Tensor:
        open_ = torch.from_numpy(self.kept)
        matrix = torch.zeros((max(self._rows) + 1, max(self._columns) + 1), dtype=torch.float64)
        matrix = matrix.index_put((torch.tensor(self._rows), torch.tensor(self._columns)), probability * open_)
        return nuclear * nuclear_norm(matrix) + anchor * ((1 - probability[open_]) ** 2).sum()


def sample_graph(
    edges: Sequence[Pair], logits: np.ndarray, open_: np.ndarray, draws: np.ndarray, *, acyclic: bool = True
) -> Graph:
    """Draw a graph edge by edge, in the order given.

    Parameters
    ----------
    edges : (tail, head) of each possible edge
    logits : (n_edges,)
    open_ : (n_edges,) bool; a closed edge is skipped
    draws : (n_edges,) uniform in [0, 1); an edge is taken where its draw is below sigmoid(logit)
    acyclic : skip edges that would close a cycle with those taken so far

    Returns
    -------
    taken, asked : (n_edges,) bool; `asked` are the edges that were not skipped, the only ones with a log-probability
    """
    probability = sigmoid(logits)
    taken, asked = np.zeros(len(edges), dtype=bool), np.zeros(len(edges), dtype=bool)
    heads: dict[Hashable, list[Hashable]] = {}
    for index, (tail, head) in enumerate(edges):
        if not open_[index] or (acyclic and _reaches(heads, head, tail)):
            continue
        asked[index] = True
        if draws[index] < probability[index]:
            taken[index] = True
            heads.setdefault(tail, []).append(head)
    return taken, asked


def log_probability(logits: torch.Tensor, taken: np.ndarray, asked: np.ndarray) -> torch.Tensor:
    """Return log P(graph) in nats: log p over the edges taken and log(1 - p) over those asked and not taken."""
    signed = torch.where(torch.from_numpy(taken), logits, -logits)
    return torch.nn.functional.logsigmoid(signed)[torch.from_numpy(asked)].sum()


def nuclear_norm(matrix: torch.Tensor) -> torch.Tensor:
    """Return the sum of the singular values, with the subgradient U V^T over those that do not vanish.

    >>> nuclear_norm(torch.diag(torch.tensor([3.0, -4.0]))).item()
    7.0
    """
    left, values, right = torch.linalg.svd(matrix.detach(), full_matrices=False)
    held = values >= SINGULAR
    return (matrix * (left[:, held] @ right[held])).sum()


def cut_weakest(logits: np.ndarray, kept: np.ndarray, rate: float) -> np.ndarray:
    """Return which edges stay open after a cut.

    A cut closes max(1, round(rate n)) of the n surviving edges, halves rounded to even, lowest logits first and equal
    ones in index order; it always leaves one.
    """
    left = np.flatnonzero(kept)
    count = max(0, min(max(1, round(rate * len(left))), len(left) - 1))
    weakest = sorted(left, key=lambda index: (round(float(logits[index]), DIGITS), index))[:count]
    stay = kept.copy()
    stay[weakest] = False
    return stay


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return the probability of each edge."""
    return np.exp(-np.logaddexp(0.0, -np.asarray(logits, dtype=float)))


def _reaches(heads: Mapping[Hashable, Sequence[Hashable]], start: Hashable, goal: Hashable) -> bool:
    """Tell whether a path of taken edges leads from `start` to `goal`."""
    ahead, seen = [start], {start}
    while ahead:
        node = ahead.pop()
        if node == goal:
            return True
        fresh = [head for head in heads.get(node, ()) if head not in seen]
        seen.update(fresh)
        ahead += fresh
    return False


def _numbered(labels: Sequence[Hashable]) -> list[int]:
    """Return a number for each label, from 0 in the order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]
