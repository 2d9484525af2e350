"""Features: markers in priority order, own content, alignment with labels."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given

from lib.bandmas.features import FEATURES, MARKERS, labelled, marker, packet_features
from lib.messages import Message, packetize, packetize_task
from tests.messages.strategies import any_text, task_messages
from tests.messages.test_message import message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("None stated here", "null"),
        ("The year is not mentioned and may vary", "null"),
        ("It does not contain the 3 facts", "null"),
        ("Nonetheless it stayed", "plain"),
        ("It might be 7", "hedge"),
        ("That is unlikely", "plain"),
        ("It was not so in 1999", "negation"),
        ("It isn't so", "negation"),
        ("It isn’t so", "negation"),
        ("Notable nothing knots", "plain"),
        ("[S2] It grew by 3", "sentence_id"),
        ("it grew by 3", "number"),
        ("The mayor of Rome spoke", "entity"),
        ("it was (Rome) again", "entity"),
        ("Rome stayed calm", "plain"),
        ("", "plain"),
    ],
)
def test_first_marker_that_applies_wins(text: str, expected: str) -> None:
    assert marker(text) == expected


@given(any_text)
def test_every_text_has_exactly_one_known_marker(text: str) -> None:
    assert marker(text) in MARKERS


def test_features_of_a_message() -> None:
    item = message(turn=7, uncertainty="altitude was not given")
    frame = packet_features(packetize(item))
    assert frame["marker"].tolist() == ["number", "sentence_id", "negation"]
    assert frame["turn"].tolist() == [3, 3, 3]
    assert frame["route"].unique().tolist() == ["reader_0->verifier"]
    assert frame.columns.tolist() == ["packet_id", "task_id", *FEATURES]


def test_merged_fragments_do_not_make_evidence_look_empty() -> None:
    """ "Uncertainty: none stated" and "Request: none" merge into the evidence; its marker stays its own."""
    packets = packetize(message())
    assert "none" in packets[1].content
    assert packet_features(packets)["marker"].tolist() == ["number", "sentence_id"]


@given(task_messages())
def test_one_row_a_packet_in_order(items: list[Message]) -> None:
    packets = packetize_task(items)
    frame = packet_features(packets)
    assert frame["packet_id"].tolist() == [packet.packet_id for packet in packets]
    assert frame["turn"].between(0, 3).all()


def test_labelled_aligns_by_id_and_leaves_out_unmeasured() -> None:
    features = packet_features(packetize(message(uncertainty="altitude was not given")))
    ids = features["packet_id"].tolist()
    effects = pd.DataFrame({"packet_id": [ids[2], ids[0], ids[1]], "rce": [0.3, 0.1, None]})
    rows, rce = labelled(features, effects)
    assert rows["packet_id"].tolist() == [ids[0], ids[2]]
    assert rce.tolist() == [0.1, 0.3]
    with pytest.raises(ValueError, match="1 packets have an effect but no features, first"):
        labelled(features.iloc[1:], effects)
    with pytest.raises(ValueError, match="effects: packet .* occurs twice"):
        labelled(features, pd.concat([effects, effects]))
