"""Free text as packets: nothing lost, exact bytes, fields where there are fields."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.messages.free_text import CUTS, LONG, Cut, cut_text, heard_by, log_packets, typed_fields
from lib.messages.logged import Collector, LogError, LoggedMessage
from lib.messages.message import canonical_text
from lib.messages.packets import reassemble
from lib.messages.wire import batch_bytes, decode_batch, encode_batch, packet_bytes
from tests.messages.strategies import glued_text, hostile_text


def conversation(*said: tuple[str, str]) -> tuple[LoggedMessage, ...]:
    out = Collector()
    for sender, text in said:
        out.add(sender=sender, text=text, place=f"message {len(out) + 1}")
    return out.finish("test").messages


def spans(text: str, cut: Cut = "auto") -> list[str]:
    return [segment.span for segment in cut_text(text, cut)]


@settings(max_examples=25, deadline=None)
@given(st.one_of(hostile_text, glued_text, st.lists(glued_text, max_size=4).map("\n\n".join)), st.sampled_from(CUTS))
def test_packets_give_every_message_back_and_cost_what_they_say(text: str, cut: Cut) -> None:
    messages = conversation(("a -> b", text), ("c", "The end is near."))
    packets = log_packets(messages, cut, task_id="t")
    mine = [packet for packet in packets if packet.slot == 0]
    if typed_fields(text) is None:
        assert reassemble(mine) == text
    assert packets == sorted(packets, key=lambda packet: packet.packet_id)
    records = decode_batch(encode_batch(packets))
    assert [record["content"] for record in records] == [packet.content for packet in packets]
    assert batch_bytes(packets) == sum(packet_bytes(packet) for packet in packets)
    assert all(packet.content in packet.span or packet.content == packet.span.strip() for packet in mine)


def test_paragraphs_are_packets_and_long_ones_are_cut_at_sentences() -> None:
    short, long = "One thought stands here.", " ".join(f"Sentence number {n} says something." for n in range(LONG // 4))
    text = f"{short}\n \n\n{long}\n\nA last one follows."
    assert spans(text)[0] == f"{short}\n \n\n"
    assert len(spans(text)) == 2 + LONG // 4
    assert spans(text, "paragraph") == [f"{short}\n \n\n", f"{long}\n\n", "A last one follows."]
    assert spans(text, "message") == [text]


def test_code_between_fences_stays_whole_and_short_fragments_join_what_is_before() -> None:
    code = "```python\nif x:\n\n    run(x)\n\n```"
    assert spans(f"Here is the fix:\n\n{code}\n\nThanks!") == ["Here is the fix:\n\n", f"{code}\n\nThanks!"]
    assert spans("```\nnever closed\n\nstill code") == ["```\nnever closed\n\nstill code"]
    assert spans("\n\n  Leading blank lines stay.\n\nSecond part is here.") == [
        "\n\n  Leading blank lines stay.\n\n",
        "Second part is here.",
    ]


def test_a_json_object_with_known_fields_is_typed_and_loses_no_key() -> None:
    value = {"Claim": "The pump leaks oil.", "evidence": "A pool under the pump.", "severity": {"level": 3}, "n": None}
    text = json.dumps(value)
    segments = cut_text(text)
    assert [segment.type for segment in segments] == ["claim", "evidence", "field", "field"]
    assert segments[2].content == 'severity: {"level":3}' and segments[3].content == "n: none"
    lines = canonical_text("The pump leaks oil.", "A pool under the pump.", "", "")
    assert "".join(segment.span for segment in segments[:2]) == lines
    (first, *_) = log_packets(conversation(("a", text)))
    assert first.links == ("log|m00|s01",)


@pytest.mark.parametrize(
    "text",
    [
        '{"claim": "alone"}',
        '{"a": 1}',
        "[1, 2]",
        '{"claim": "x", "evidence": ',
        '{"claim": 1, "Claim": 2, "evidence": 3}',
        "{" * 9000,
    ],
)
def test_other_json_is_text(text: str) -> None:
    assert typed_fields(text) is None and "".join(spans(text)) == text


def test_markers_at_line_starts_are_fields() -> None:
    text = "Claim: the pump leaks oil\nEvidence: a pool under the pump"
    assert [segment.type for segment in cut_text(text)] == ["claim", "evidence"]
    assert [segment.type for segment in cut_text("We claim: nothing at all")] == ["paragraph"]


def test_a_receiver_hears_what_its_agent_had_heard() -> None:
    out = Collector()
    for sender, text, receivers, kind in (
        ("user", "Please decide.", [], "message"),
        ("a", "It is red.", [], "message"),
        ("lead", "Go on.", [], "message"),
        ("b", "For a alone.", ["a"], "message"),
        ("a", "search({})", ["search"], "tool_call"),
        ("a", " ", [], "message"),
        ("lead", "So it is red.", [], "message"),
        ("b", "Too late.", [], "message"),
    ):
        out.add(sender=sender, text=text, receivers=receivers, kind=kind, place="")  # type: ignore[arg-type]
    messages = out.finish("test").messages
    heard, left = heard_by(messages, "lead", without=["user"])
    assert [message.text for message in heard] == ["It is red."]
    assert left == {
        "said by user": 1,
        "said by lead itself": 2,
        "not heard by lead": 1,
        "of kind tool_call": 1,
        "without text": 1,
        "said after the last message of lead": 1,
    }
    everything, left = heard_by(messages)
    assert len(everything) + sum(left.values()) == len(messages) and left == {"of kind tool_call": 1, "without text": 1}
    with pytest.raises(LogError, match="'leader' says nothing in this conversation; speakers are: user, a, lead, b"):
        heard_by(messages, "leader")


def test_an_unknown_cut_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="cut 'line' is unknown: use one of auto, typed, paragraph"):
        cut_text("x", "line")  # type: ignore[arg-type]
