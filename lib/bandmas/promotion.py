"""May a predictor learned from these replays be promoted to schedule final traffic?

Promotion fails on malformed traffic - too many messages built by rule instead of parsed, or a message whose packets
do not restore it - and on replays without any positive effect, from which nothing can be learned. A run must look at
the gate before it fits its final predictor.

Not covered: the predictor's quality (`lib.bandmas.diagnostics` measures it); nothing here is tuned on.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pandas as pd

from lib.bandmas.replay import label_composition
from lib.messages.corpus import Corpus
from lib.messages.message import Message
from lib.messages.packets import Method, packetize, reassemble

MAX_FALLBACK_RATE = 0.10


class Gate(msgspec.Struct, frozen=True):
    """The verdict and what it rests on.

    Parameters
    ----------
    passed : True if there is no reason against promotion
    reasons : one sentence for each condition that failed
    fallback_rate : share of messages built by rule; None without messages
    positive_share, zero_share, negative_share : of the labelled packets; None without any
    broken : ids of messages that their packets do not restore
    """

    passed: bool
    reasons: tuple[str, ...]
    fallback_rate: float | None
    positive_share: float | None
    zero_share: float | None
    negative_share: float | None
    broken: tuple[str, ...]


def promotion_gate(
    effects: pd.DataFrame,
    corpus: Corpus | Sequence[Message],
    *,
    max_fallback_rate: float = MAX_FALLBACK_RATE,
    method: Method = "typed",
) -> Gate:
    """Decide on promotion.

    Parameters
    ----------
    effects : rows of `lib.bandmas.replay.effects_of` for profile and validation tasks
    corpus : the frozen messages, or the part of them that counts
    max_fallback_rate : largest share of fallback messages that passes
    method : packet boundary whose restoration is checked
    """
    messages = corpus.messages if isinstance(corpus, Corpus) else tuple(corpus)
    fallback_rate = sum(message.fallback for message in messages) / len(messages) if messages else None
    broken = tuple(f"{m.task_id}|{m.message_id}" for m in messages if reassemble(packetize(m, method)) != m.text)
    labels = label_composition(effects).iloc[0]
    reasons = []
    if fallback_rate is None:
        reasons.append("the corpus has no messages")
    elif fallback_rate > max_fallback_rate:
        reasons.append(
            f"malformed traffic: {fallback_rate:.1%} of messages are fallbacks, at most {max_fallback_rate:.1%} may be"
        )
    if broken:
        reasons.append(
            f"malformed traffic: {len(broken)} messages are not restored by their packets, first {broken[0]!r}"
        )
    if labels["positive"] == 0:
        reasons.append(f"no positive replay effect among {labels['labelled']} labelled packets")
    shares = {
        f"{name}_share": float(labels[f"{name}_share"]) if labels["labelled"] else None
        for name in ("positive", "zero", "negative")
    }
    return Gate(passed=not reasons, reasons=tuple(reasons), fallback_rate=fallback_rate, broken=broken, **shares)
