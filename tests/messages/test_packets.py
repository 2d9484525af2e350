"""Packets: boundaries, merging, order of ids, losslessness."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.messages.message import Message
from lib.messages.packets import METHODS, own_content, packetize, packetize_task, reassemble, segment_text
from tests.messages.strategies import field, messages, task_messages
from tests.messages.test_message import message


@settings(max_examples=300)
@given(messages(), st.sampled_from(METHODS))
def test_spans_concatenate_to_the_canonical_message(item: Message, method: str) -> None:
    packets = packetize(item, method)
    assert "".join(packet.span for packet in packets).encode() == item.text.encode()
    assert reassemble(packets[::-1]) == item.text
    assert [packet.segment for packet in packets] == list(range(len(packets)))


@given(field, st.sampled_from(METHODS))
def test_any_text_is_segmented_without_loss(text: str, method: str) -> None:
    parts = segment_text(text, method)
    assert "".join(part.span for part in parts) == text
    assert all(part.content in part.span for part in parts)
    assert all(len(part.content.split()) >= 3 for part in parts[1:])


def test_megabyte_message_round_trips() -> None:
    item = message(claim="😀 word. Next " * 60_000, evidence="é" * 400_000)
    assert len(item.text.encode()) > 1_000_000
    for method in METHODS:
        assert reassemble(packetize(item, method)) == item.text


@given(messages())
def test_typed_packets_cannot_be_forged(item: Message) -> None:
    types = [packet.type for packet in packetize(item)]
    assert types[0] == "claim"
    order = ["claim", "evidence", "uncertainty", "request"]
    assert types == [kind for kind in order if kind in types]


def test_four_fields_make_four_packets() -> None:
    item = message(uncertainty="altitude was not given", request="please send the altitude")
    packets = packetize(item)
    assert [packet.type for packet in packets] == ["claim", "evidence", "uncertainty", "request"]
    assert packets[2].content == "altitude was not given"
    assert packets[0].span == "Claim: Water boils at 100 C\n"
    assert [packet.packet_id for packet in packets] == [f"t1|m00|s0{i}" for i in range(4)]


def test_short_request_merges_into_uncertainty_with_its_marker() -> None:
    """Spec 2.2: "Request: none" merges into Uncertainty, whose type stays."""
    packets = packetize(message(uncertainty="altitude was not given"))
    assert [packet.type for packet in packets] == ["claim", "evidence", "uncertainty"]
    assert packets[2].content == "altitude was not given\nRequest: none"
    assert own_content(packets[2]) == "altitude was not given"


def test_two_short_fields_merge_left_to_right_into_evidence() -> None:
    packets = packetize(message())
    assert [packet.type for packet in packets] == ["claim", "evidence"]
    assert packets[1].content.endswith("\nUncertainty: none stated\nRequest: none")


def test_short_first_fragment_stays() -> None:
    packets = packetize(message(claim="Yes"))
    assert packets[0].type == "claim"
    assert packets[0].content == "Yes"


def test_three_words_are_enough_and_two_are_not() -> None:
    assert [p.type for p in packetize(message(evidence="one two three"))][1] == "evidence"
    assert [p.type for p in packetize(message(evidence="one two"))] == ["claim"]


def test_claim_links_to_evidence_of_its_message() -> None:
    packets = packetize(message(slot=3))
    assert packets[0].links == ("t1|m03|s01",)
    assert packets[1].links == ()


def test_sentences_split_before_upper_case_or_digit_only() -> None:
    text = "It was cold. The lake froze at 0.5 m. 30 days later it melted. but not fully! Was it safe? Yes it was."
    assert [part.span for part in segment_text(text, "sentence")] == [
        "It was cold. ",
        "The lake froze at 0.5 m. ",
        "30 days later it melted. but not fully! ",
        "Was it safe? ",
        "Yes it was.",
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("As Dr. Smith of St. Mary said so. Then he left town.", 2),
        ("See Fig. 3 and J. Doe et al. Nature of the case.", 1),
        ("It was listed as no. 7 in the list. The end came soon.", 2),
        ("The clear answer is no. The case was closed.", 2),
    ],
)
def test_abbreviations_do_not_end_sentences(text: str, count: int) -> None:
    assert len(segment_text(text, "sentence")) == count


def test_text_without_markers_falls_back_to_sentences() -> None:
    parts = segment_text("The sky is blue. The sea is green.", "typed")
    assert [part.type for part in parts] == ["sentence", "sentence"]


def test_markers_count_at_line_start_only_and_words_before_them_are_kept() -> None:
    parts = segment_text("Here is my view:\nClaim: the Claim: word inside stays\nEvidence: [S1] it does so", "typed")
    assert [(part.type, part.content) for part in parts] == [
        ("sentence", "Here is my view:"),
        ("claim", "the Claim: word inside stays"),
        ("evidence", "[S1] it does so"),
    ]


def test_message_boundary_is_one_packet() -> None:
    packets = packetize(message(), "message")
    assert [(packet.type, packet.content) for packet in packets] == [("message", message().text)]


def test_unknown_method_is_named() -> None:
    with pytest.raises(ValueError, match="'words' is unknown: use one of typed, sentence, message"):
        segment_text("x", "words")


@given(task_messages(), st.sampled_from(METHODS))
def test_id_order_is_message_then_segment_order(items: list[Message], method: str) -> None:
    packets = packetize_task(items, method)
    assert packets == sorted(packets, key=lambda packet: packet.packet_id)
    assert packets == sorted(packets, key=lambda packet: (packet.slot, packet.segment))


def test_ids_keep_order_beyond_99_segments_and_slots() -> None:
    text = " ".join(f"Sentence number {i} stands here." for i in range(1100))
    packets = packetize(message(slot=100, claim=text), "sentence")
    assert len(packets) > 1000
    ids = [packet.packet_id for packet in packets]
    assert ids == sorted(ids)
    assert packetize(message(slot=99))[0].packet_id < ids[0]


def test_colliding_slots_and_foreign_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="two messages in slot 0"):
        packetize_task([message(), message(turn=1)])
    with pytest.raises(ValueError, match="'t1' and 't2'"):
        packetize_task([message(), message(task_id="t2", slot=1)])


def test_incomplete_set_is_not_reassembled() -> None:
    packets = packetize(message())
    with pytest.raises(ValueError, match="segment 0 is missing"):
        reassemble(packets[1:])
    with pytest.raises(ValueError, match="2 messages"):
        reassemble([packets[0], packetize(message(slot=1))[1]])
