"""SafeSieve's formulae: compatibility, shares of credit, their fusion, and the threshold that rises meanwhile.

Context
-------
Each edge of a graph that is pruned step by step has a score E(t) = (1 - t/T) a0 S + b(t) C'. S is what is known before
any answer: how similar the two ends are, and how they complement each other. C is the edge's share of the credit for
right answers so far. The first fades, the second grows, and a threshold rises to `th_max`.

Intuition
---------
Early on only plausibility can say which edges matter; later experience says it better.

How to read the result
----------------------
S lies in [0, 1]. C sums to less than 1 over the edges, so a share of many edges is tiny beside S; C' = C |E| has mean 1
and is what is fused by default (``raw`` keeps C). Scores are compared with the threshold after min-max scaling.

Not covered: which edges there are, and cutting them (`lib.bandmas.safesieve`); a judge of complementarity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np

from lib.bandmas.baselines import BaselineError, check_choices
from lib.bandmas.scores import lexical_relevance
from lib.bandmas.zero_extension import EPSILON
from lib.models.embedder import Embedder

TO_RECEIVER = {"evidence": 1.0, "claim": 0.75, "uncertainty": 0.25, "request": 0.0}  # how each type helps the receiver
NEUTRAL = 0.5  # complementarity of types that no table names


class SafeSieveSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How SafeSieve is adapted; the defaults are the reproduction, other values are variants of it.

    Parameters
    ----------
    node_key : ``channel``, one node a slot and type, or ``route``, one a slot
    cut_weight : ``affinity``, weak edges are cheap to cut, or ``as_printed``, the reciprocal
    history_scale : ``mean1``, credit shares times the number of edges, or ``raw``, the shares
    final_classes : ``threshold``, at the end every channel outside the receiver's cluster and below the threshold is
        class 3, or ``r_max``, lowest first and only while less than `r_max` of all channels are cut
    encoder : sentence embedder by name for similarities; empty: lexical overlap
    g : weight of similarity in compatibility; complementarity has the rest
    a0 : weight of compatibility at the start
    b0, b_max : weight of credit at the start and at the end
    th0, th_max, k : threshold at the start, its limit, and its rate
    horizon : steps of the schedule for each profile task, so that training ends before compatibility has faded
    warm_up : share of the schedule before the first cut
    interval : share of the schedule between cuts, one step at least
    quota : smallest share of all channels that a cut takes
    r_max : the share of channels cut stays below this
    correct : task utility from which an answer is right
    """

    node_key: Literal["channel", "route"] = "channel"
    cut_weight: Literal["affinity", "as_printed"] = "affinity"
    history_scale: Literal["mean1", "raw"] = "mean1"
    final_classes: Literal["threshold", "r_max"] = "threshold"
    encoder: str = ""
    g: float = 0.5
    a0: float = 1.0
    b0: float = 0.2
    b_max: float = 1.0
    th0: float = 0.1
    th_max: float = 0.6
    k: float = 3.0
    horizon: float = 1.25
    warm_up: float = 0.2
    interval: float = 0.1
    quota: float = 0.05
    r_max: float = 0.5
    correct: float = 0.5

    def __post_init__(self) -> None:
        check_choices(self, "SafeSieve")
        if not self.horizon >= 1:
            raise BaselineError(f"SafeSieve: horizon must be at least 1, not {self.horizon!r}")
        for name in ("g", "warm_up", "interval", "quota", "r_max"):
            if not 0 <= getattr(self, name) <= 1:
                raise BaselineError(f"SafeSieve: {name} must lie in [0, 1], not {getattr(self, name)!r}")


DEFAULT = SafeSieveSettings()


def quantised(x: float) -> float:
    """Return x in [0, 1] rounded half up to a quarter.

    >>> [quantised(x) for x in (0.1, 0.125, 0.6, 1.0)]
    [0.0, 0.25, 0.5, 1.0]
    """
    return math.floor(4 * x + 0.5) / 4


def complementarity(first: str, second: str) -> float:
    """Return how far packets of two types complete each other: a claim and evidence most, a request little."""
    if first == second:
        return NEUTRAL
    if "request" in (first, second):
        return 0.25
    return 1.0 if {first, second} == {"claim", "evidence"} else NEUTRAL


def compatibility(similarity: float, complement: float, g: float = 0.5) -> float:
    """Return S = g similarity + (1 - g) Q(complement), similarity clipped to [0, 1]."""
    return g * min(1.0, max(0.0, similarity)) + (1 - g) * quantised(complement)


def fusion_weights(progress: float, settings: SafeSieveSettings = DEFAULT) -> tuple[float, float]:
    """Return the weights of compatibility and credit at `progress` t/T.

    >>> fusion_weights(0.25)
    (0.75, 0.4)
    """
    return (1 - progress) * settings.a0, settings.b0 + (settings.b_max - settings.b0) * progress


def threshold(progress: float, settings: SafeSieveSettings = DEFAULT) -> float:
    """Return the threshold for min-max scaled scores at `progress` t/T.

    >>> [round(threshold(x), 4) for x in (0.0, 0.25, 0.5, 1.0)]
    [0.1, 0.3638, 0.4884, 0.5751]
    """
    return settings.th0 + (settings.th_max - settings.th0) * (1 - math.exp(-settings.k * max(progress, 0.0)))


def credit_shares(credits: np.ndarray, nodes: int, scale: str = "mean1", *, epsilon: float = EPSILON) -> np.ndarray:
    """Return each edge's share of the credit, C; with ``mean1`` times the number of edges.

    >>> credit_shares(np.array([3, 1, 0]), 4, epsilon=0.0)
    array([2.25, 0.75, 0.  ])
    """
    total = float(np.sum(credits)) + nodes**2 * epsilon
    shares = np.divide(credits, total, out=np.zeros(len(credits)), where=np.full(len(credits), total > 0))
    return shares * len(shares) if scale == "mean1" else shares


def similarities(encoder: str, text: str, others: Sequence[str]) -> np.ndarray:
    """Return the similarity of `text` with each of `others`: lexical overlap, or the cosine under a named embedder."""
    if not encoder:
        return np.array([lexical_relevance(text, other) for other in others])
    vectors = embedder(encoder).encode([text, *others])
    return np.round(vectors[1:] @ vectors[0], 6).astype(float)


@lru_cache(maxsize=2)
def embedder(name: str) -> Embedder:
    """Return a sentence embedder, loaded once."""
    return Embedder(name)
