"""What may be known of a packet before any outcome: type, route, lexical marker, wire size, turn.

The predictor sees these columns and nothing else. They are computed from the packet alone: there is no argument
through which gold answers, replies or scores could enter.

Not covered: query overlap. It is what the semantic policy ranks by, and stays out of the predictor so that the two
can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from lib.messages.packets import Packet, own_content
from lib.messages.wire import packet_bytes

FEATURES = ("type", "route", "marker", "wire_bytes", "turn")
TURN_CAP = 3  # later turns share one cell
MARKERS = ("null", "hedge", "negation", "sentence_id", "number", "entity", "plain")

_NULL = re.compile(
    r"\b(?:none|not stated|no relevant|not mentioned|does not contain|insufficient|unknown|irrelevant)\b"
)
_HEDGE = re.compile(r"\b(?:may|might|possibly|likely|unclear|suggests|appears)\b")
_NEGATION = re.compile(r"\b(?:not|no|never|without)\b|n['\u2019]t\b")
_SENTENCE_ID = re.compile(r"\[s\d+\]")
_DIGIT = re.compile(r"\d")


def marker(content: str) -> str:
    """Return the one lexical marker of a text, the first that applies in the order of `MARKERS` (spec 5.1).

    `null` marks readers that found nothing, where most zero and negative effects should lie; the order is that of the
    information that the word carries about the packet's worth.

    >>> [
    ...     marker(text)
    ...     for text in ("No relevant fact", "It may rain", "It is not so", "[S2] Rain", "7 days", "in Rome", "in rome")
    ... ]
    ['null', 'hedge', 'negation', 'sentence_id', 'number', 'entity', 'plain']
    """
    lowered = content.lower()
    for name, pattern in (
        ("null", _NULL),
        ("hedge", _HEDGE),
        ("negation", _NEGATION),
        ("sentence_id", _SENTENCE_ID),
        ("number", _DIGIT),
    ):
        if pattern.search(lowered):
            return name
    return "entity" if any(_capitalised(word) for word in content.split()[1:]) else "plain"


def packet_features(packets: Sequence[Packet], *, shared_header: bool = False) -> pd.DataFrame:
    """Return the pre-outcome features, one row a packet in the order given.

    Returns
    -------
    DataFrame with ``packet_id``, ``task_id`` (for grouping, not features) and the columns of `FEATURES`: ``type``,
    ``route``, ``marker`` (of the packet's own content, without merged fragments), ``wire_bytes`` (c_wire, bytes) and
    ``turn`` (emission index, at most 3).
    """
    return pd.DataFrame(
        {
            "packet_id": [packet.packet_id for packet in packets],
            "task_id": [packet.task_id for packet in packets],
            "type": [packet.type for packet in packets],
            "route": [packet.route for packet in packets],
            "marker": [marker(own_content(packet)) for packet in packets],
            "wire_bytes": [packet_bytes(packet, shared_header=shared_header) for packet in packets],
            "turn": [min(packet.turn, TURN_CAP) for packet in packets],
        }
    ).astype({"wire_bytes": "int64", "turn": "int64"})


def labelled(features: pd.DataFrame, effects: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """Return the features and RCE of the packets that have one, rows aligned, in packet-id order.

    Packets without a measured effect (failed calls) are left out; the length of the result against that of `effects`
    says how many.

    Raises
    ------
    ValueError
        If a packet with an effect has no features, or an id occurs twice.
    """
    for name, frame in (("features", features), ("effects", effects)):
        doubled = frame["packet_id"][frame["packet_id"].duplicated()]
        if len(doubled):
            raise ValueError(f"{name}: packet {doubled.iloc[0]!r} occurs twice")
    rce = effects.dropna(subset=["rce"]).set_index("packet_id")["rce"].sort_index()
    rows = features.set_index("packet_id", drop=False)
    missing = rce.index.difference(rows.index)
    if len(missing):
        raise ValueError(f"{len(missing)} packets have an effect but no features, first {missing[0]!r}")
    return rows.loc[rce.index].reset_index(drop=True), rce.reset_index(drop=True)


def _capitalised(word: str) -> bool:
    """Tell whether the first letter or digit of `word` is an upper-case letter."""
    first = next((character for character in word if character.isalnum()), "")
    return first.isupper()
