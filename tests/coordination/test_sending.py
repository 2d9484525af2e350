"""Senders: one call, one retry, payloads in any encoding, and honest accounts of what went wrong."""

from __future__ import annotations

import pytest

from lib.coordination.exchange import Payload
from lib.coordination.payload import render
from lib.coordination.sending import encode_again, send_messages
from lib.models.receiver import Prompt
from tests.coordination.exchanges import Listening, step_at, step_set

STEPS = step_set().steps


def test_one_call_for_all_steps_and_a_payload_each() -> None:
    sender = Listening()
    sent = send_messages(sender, STEPS, 16, "header")
    assert sender.batches == 1 and list(sent) == [step.id for step in STEPS]
    one = sent["one/1"]
    assert one.payload == Payload("edit", "src/file_1.py", "the trace ends in src/file_1.py")
    assert one.text == render(one.payload, "header") and one.raw.startswith("{")
    assert (one.mode, one.tries, one.finish, one.error) == ("payload", 1, "stop", None)
    assert one.output_tokens == len(one.raw.split())


def test_a_payload_that_cannot_be_read_is_asked_once_more() -> None:
    def stammer(prompt: Prompt) -> str:
        return '{"action_type": "edit"}' if len(prompt.turns) > 2 else "Sure, here is the message."

    sender = Listening(stammer)
    one = send_messages(sender, STEPS[:2], 16)["one/0"]
    assert sender.batches == 2 and one.tries == 2 and one.payload == Payload("edit")
    asked = [sum(len(turn.text.split()) for turn in prompt.turns) for prompt in sender.prompts]
    assert one.input_tokens == asked[0] + asked[2] and one.output_tokens == 5 + 2


def test_raw_text_stands_in_where_the_retry_fails_too() -> None:
    sent = send_messages(Listening(lambda _: "Edit it.\n"), STEPS[:1], 16)
    assert (sent["one/0"].text, sent["one/0"].payload, sent["one/0"].tries) == ("Edit it.", None, 2)
    assert encode_again(sent, "prose")["one/0"].text == "Edit it."


def test_the_same_payload_in_another_encoding_asks_nobody() -> None:
    sender = Listening()
    sent = send_messages(sender, STEPS, 16)
    again = encode_again(sent, "bullets")
    assert sender.batches == 1
    for step in STEPS:
        assert again[step.id].payload == sent[step.id].payload
        assert again[step.id].text == render(sent[step.id].payload, "bullets")
    assert encode_again(again, "json") == sent


def test_direct_messages_are_shown_as_written_within_the_budget() -> None:
    sender = Listening(lambda _: "Edit src/file_1.py since the trace ends there.")
    sent = send_messages(sender, STEPS[:1], 4, "prose", mode="direct")["one/0"]
    assert (sent.text, sent.finish, sent.payload) == ("Edit src/file_1.py since the", "length", None)
    assert sender.prompts[0].schema is None and "plain sentences" in sender.prompts[0].turns[1].text
    with pytest.raises(ValueError, match="directly"):
        encode_again({"one/0": sent}, "json")


def test_reasoning_is_not_shown_and_may_leave_nothing() -> None:
    said = send_messages(Listening(lambda _: "<think>hm</think> Edit it."), STEPS[:1], 16, mode="direct")["one/0"]
    mute = send_messages(Listening(lambda _: "<think>hm and hm"), STEPS[:1], 2, mode="direct")["one/0"]
    assert said.text == "Edit it." and (mute.text, mute.finish) == ("", "length")


def test_a_sender_that_fails_is_not_asked_again_and_says_why() -> None:
    def broken(prompt: Prompt) -> str:
        raise RuntimeError("no memory")

    sender = Listening(broken)
    one = send_messages(sender, STEPS[:1], 16)["one/0"]
    assert sender.batches == 1 and one.error == "RuntimeError: no memory" and one.text == ""
    assert one.output_tokens is None and one.input_tokens is not None


def test_refusals() -> None:
    with pytest.raises(ValueError, match="budget"):
        send_messages(Listening(), STEPS, 0)
    with pytest.raises(ValueError, match="twice"):
        send_messages(Listening(), [step_at(1), step_at(1)], 8)
    with pytest.raises(ValueError, match="mode"):
        send_messages(Listening(), STEPS, 8, mode="raw")
