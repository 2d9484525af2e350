"""Score the packets of one task before anything is sent.

Every policy of the comparison is a score; admission then takes packets in score order. A scorer receives the query
and the packets' own text and metadata, and for the learned policies a frozen predictor. No argument can carry gold
answers, replies or measured effects, with one exception that is named for what it is: `oracle_scores`, a ceiling for
profile tasks.

Policies: ``causal`` (predicted RCE), ``hybrid`` (eq. 8: lambda1 of the predicted RCE, min-max normalised within the
task, and the rest of a semantic prior), ``semantic`` (lexical relevance to the query, or the relevance function
given), ``semantic_evidence`` (the same plus one for evidence packets), ``random`` and ``smallest_first``. ``full``
scores nothing: it is admission without a cap.

The two reproduced baselines, ``agentprune`` and ``safesieve``, score too, but also refuse packets; they are trained and
frozen apart (`Baseline`) and join the other policies in `lib.bandmas.schedule`.

Not covered: prices and queues (adaptive admission).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pandas as pd

from lib.bandmas.features import packet_features
from lib.messages.packets import Packet
from lib.messages.wire import packet_bytes
from lib.seeds import seed_of

POLICIES = ("full", "causal", "hybrid", "semantic", "semantic_evidence", "random", "smallest_first")
LEARNED = ("causal", "hybrid")
BASELINES = ("agentprune", "safesieve")  # reproduced; each needs its trained state
LAMBDA1 = 0.75  # weight of the predicted effect in the hybrid score

# Fifty function words that say nothing about what a text is about.
STOP_WORDS = frozenset(
    {
        *("a", "an", "the", "and", "or", "but", "if", "of", "in", "on", "at", "by", "for", "from", "to", "with", "as"),
        *("is", "are", "was", "were", "be", "been", "being", "has", "have", "had", "do", "does", "did", "it", "its"),
        *("this", "that", "these", "those", "which", "who", "whom", "what", "when", "where", "how", "than", "into"),
        *("also", "their", "there", "can", "will"),
    }
)
_TOKEN = re.compile(r"[^\W_]+")

Relevance = Callable[[str, Sequence[str]], Sequence[float] | np.ndarray]  # (query, contents) -> relevance of each


class Predictor(Protocol):
    """Anything fitted that maps packet features to predicted effects."""

    def predict(self, X: pd.DataFrame) -> np.ndarray: ...


class Baseline(Protocol):
    """A reproduced baseline, trained and frozen."""

    def select(self, task_query: str, packets: Sequence[Packet]) -> tuple[np.ndarray, np.ndarray]:
        """Return a score for each packet of one task, and whether it may be sent at all, both (n_packets,)."""
        ...

    def fingerprint(self) -> str:
        """Return the SHA-256 of its state."""
        ...


def policy_scores(
    policy: str,
    task_query: str,
    packets: Sequence[Packet],
    predictor: Predictor | None = None,
    seed: int = 0,
    *,
    lambda1: float = LAMBDA1,
    relevance: Relevance | None = None,
) -> np.ndarray:
    """Return one score a packet, higher first to be sent.

    Parameters
    ----------
    policy : one of `POLICIES`
    task_query : the task's claim or question
    packets : packets of one task, in any order
    predictor : fitted and frozen; needed by the policies in `LEARNED`
    seed : names the draw of the random policy
    lambda1 : weight of the predicted effect in ``hybrid``; the semantic prior has 1 - lambda1
    relevance : semantic relevance of contents to the query, e.g. a cosine of embeddings. Default: `lexical_relevance`
        for ``semantic`` and
        ``semantic_evidence``, and the evidence-type indicator for the prior of ``hybrid`` (the paper's choice when
        none is stored)

    Returns
    -------
    array (n_packets,)

    Raises
    ------
    ValueError
        For an unknown policy, packets of several tasks, a missing predictor, or a score that is not a finite number.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r} is unknown: use one of {', '.join(POLICIES)}")
    if len({packet.task_id for packet in packets}) > 1:
        raise ValueError("packets of several tasks: scores are made within one task")
    if not packets:
        return np.zeros(0)
    if policy in LEARNED:
        if predictor is None:
            raise ValueError(f"policy {policy!r} needs a fitted predictor")
        predicted = np.asarray(predictor.predict(packet_features(packets)), dtype=float)
        scores = predicted if policy == "causal" else _hybrid(predicted, task_query, packets, lambda1, relevance)
    elif policy.startswith("semantic"):
        scores = _relevance(task_query, packets, relevance or _lexical)
        scores = scores + is_evidence(packets) if policy == "semantic_evidence" else scores
    elif policy == "random":
        # One draw a packet, named by its id: the score does not depend on which other packets stand beside it.
        scores = np.array([seed_of("policy-random", seed, packet.packet_id) / 2**63 for packet in packets])
    elif policy == "smallest_first":
        scores = -np.array([packet_bytes(packet) for packet in packets], dtype=float)
    else:
        scores = np.zeros(len(packets))
    if scores.shape != (len(packets),) or not np.isfinite(scores).all():
        raise ValueError(f"policy {policy!r}: needs one finite score for each of {len(packets)} packets")
    return scores


def oracle_scores(packets: Sequence[Packet], effects: pd.DataFrame) -> np.ndarray:
    """Return the measured RCE as a score, 0 where none was measured: a ceiling on profile tasks, never a policy for final ones.

    Parameters
    ----------
    packets : packets of a replayed task
    effects : rows of `lib.bandmas.replay.effects_of`
    """
    measured = dict(zip(effects["packet_id"], effects["rce"], strict=True))
    missing = [packet.packet_id for packet in packets if packet.packet_id not in measured]
    if missing:
        raise ValueError(f"packet {missing[0]!r} was not replayed: the oracle exists for profile tasks alone")
    return np.nan_to_num(np.array([measured[packet.packet_id] for packet in packets], dtype=float))


def tokens(text: str) -> frozenset[str]:
    """Return the set of lower-case alphanumeric tokens of a text without stop words."""
    return frozenset(_TOKEN.findall(text.lower())) - STOP_WORDS


def lexical_relevance(query: str, content: str) -> float:
    """Return q_lex = |t(p) & t(q)| / sqrt(|t(p)| |t(q)|) in [0, 1]; 0 if either set is empty.

    >>> lexical_relevance("Where does the river rise?", "The river rises in the hills")
    0.4082482904638631
    """
    asked, said = tokens(query), tokens(content)
    if not asked or not said:
        return 0.0
    return float(len(asked & said) / np.sqrt(len(asked) * len(said)))


def is_evidence(packets: Sequence[Packet]) -> np.ndarray:
    """Return 1.0 for evidence packets and 0.0 for the others, shape (n_packets,)."""
    return np.array([float(packet.type == "evidence") for packet in packets])


def normalised(values: np.ndarray) -> np.ndarray:
    """Return Norm_x: values min-max scaled to [0, 1] within a task; 0.5 for all where they are equal."""
    if not len(values):
        return values
    low, high = float(values.min()), float(values.max())
    # Differences below the tie rounding are no differences: scaling them up would turn float noise into an order.
    if round(high - low, 12) == 0:
        return np.full(len(values), 0.5)
    return np.clip((values - low) / (high - low), 0.0, 1.0)


def _hybrid(
    predicted: np.ndarray, query: str, packets: Sequence[Packet], lambda1: float, relevance: Relevance | None
) -> np.ndarray:
    if not 0 <= lambda1 <= 1:
        raise ValueError(f"lambda1 must lie in [0, 1], not {lambda1!r}")
    prior = is_evidence(packets) if relevance is None else _relevance(query, packets, relevance)
    return lambda1 * normalised(predicted) + (1 - lambda1) * prior


def _relevance(query: str, packets: Sequence[Packet], relevance: Relevance) -> np.ndarray:
    return np.asarray(relevance(query, [packet.content for packet in packets]), dtype=float)


def _lexical(query: str, contents: Sequence[str]) -> list[float]:
    return [lexical_relevance(query, content) for content in contents]
