"""The threshold controller: its rules, who is asked when, and the running rate of unreadable replies."""

from __future__ import annotations

import doctest
import json

import pytest

from lib.coordination import controller as module
from lib.coordination.actions import ToolTable
from lib.coordination.budget import Delivered
from lib.coordination.controller import run_controller, verdict_of
from lib.coordination.instructed import REWRITE
from lib.coordination.survey import Settings
from lib.models.receiver import Prompt
from tests.coordination.exchanges import Listening, decide, is_sender
from tests.coordination.sure import Mute, many_steps

STEPS = many_steps(3, 2).steps
SHORT = '{"action_type":"edit"}'


def babble(prompt: Prompt) -> str:
    return "I would look around first."


@pytest.mark.parametrize(
    ("text", "tokens", "rate", "strong", "verdict"),
    [
        (SHORT, 95, None, True, "SEND"),
        (SHORT, 96, None, True, "REWRITE"),
        (SHORT[:-1], 5, None, True, "REWRITE"),
        ("[1]", 5, None, True, "REWRITE"),
        ("", 0, None, True, "REWRITE"),
        (SHORT, 5, 0.61, True, "ESCALATE"),
        (SHORT, 5, 0.60, True, "SEND"),
        (SHORT, 5, 0.99, False, "SEND"),
        (SHORT[:-1], 5, 0.99, True, "REWRITE"),
    ],
)
def test_rules(text: str, tokens: int, rate: float | None, strong: bool, verdict: str) -> None:
    assert verdict_of(Delivered(text, tokens, tokens, False), 100, rate, has_strong=strong) == verdict


def test_a_gated_regime_calls_no_sender() -> None:
    sender, receiver = Listening(name="sender"), Mute()
    done = run_controller(STEPS, receiver=receiver, sender=sender, table=ToolTable(local_accuracy={"toy": 0.9}))
    assert {one.verdict for one in done} == {"SKIP"} and sender.calls == 0
    assert [one.record.arm for one in done] == ["RO"] * 6
    assert (done[0].sender_calls, done[0].sender_tokens) == (0, 0)
    assert done[0].decision_tokens == done[0].record.total_input_tokens + done[0].record.total_output_tokens


def test_messages_are_sent_and_no_log_probabilities_are_needed() -> None:
    sender, receiver = Listening(name="sender"), Mute()
    done = run_controller(STEPS, receiver=receiver, sender=sender)
    assert [one.verdict for one in done] == ["SEND"] * 6 and [one.step_id for one in done] == [s.id for s in STEPS]
    assert (sender.batches, receiver.batches) == (1, 2), "one call of the sender, one of the receiver a step index"
    assert [one.record.artifact_pred for one in done[:2]] == ["src/file_0.py", "src/file_1.py"]
    assert [one.failure_rate for one in done[:2]] == [None, 0.0]


def test_a_cut_message_is_rewritten_once_and_both_are_paid() -> None:
    def script(prompt: Prompt) -> str:
        if is_sender(prompt) and REWRITE in prompt.turns[-1].text:
            return json.dumps({"action_type": "edit", "target_artifact": "src/file_3.py"})
        return decide(prompt)

    sender = Listening(script, "sender")
    done = run_controller(STEPS, receiver=Listening(), sender=sender, settings=Settings(budget=4))
    assert {one.verdict for one in done} == {"REWRITE"} and sender.batches == 2
    assert done[0].sender_calls == 2 and done[0].record.artifact_pred == "src/file_3.py"
    assert done[0].decision_tokens > done[0].record.total_input_tokens + done[0].record.total_output_tokens


def test_later_steps_escalate_after_unreadable_replies() -> None:
    strong = Listening(name="strong")
    done = run_controller(STEPS, receiver=Listening(babble), sender=Listening(name="sender"), strong=strong)
    by_index = {index: {one.verdict for one in done if one.record.step_t == index} for index in (0, 1)}
    assert by_index == {0: {"SEND"}, 1: {"ESCALATE"}}, "nothing is known at the first step"
    assert [one.failure_rate for one in done[:2]] == [None, 1.0] and done[1].record.receiver_model == "strong"
    alone = run_controller(STEPS, receiver=Listening(babble), sender=Listening(name="sender"))
    assert {one.verdict for one in alone} == {"SEND"}


def test_another_encoding_is_refused() -> None:
    with pytest.raises(ValueError, match="the controller's rules read JSON, not 'prose'"):
        run_controller(
            STEPS, receiver=Listening(), sender=Listening(name="sender"), settings=Settings(encoding="prose")
        )


def test_examples() -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
