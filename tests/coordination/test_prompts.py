"""Prompts: what the arms share, what they differ in, and what no text can forge."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.exchange import ENCODINGS
from lib.coordination.prompts import (
    NO_MESSAGE,
    decision_schema,
    payload_schema,
    prompts_hash,
    quote_lines,
    receiver_prompt,
    retry_prompt,
    sender_prompt,
)
from lib.tasks.steps import Step
from tests.coordination.exchanges import ACTIONS, step_at

STEP = step_at(1)


def test_the_arms_differ_in_one_block() -> None:
    none, message, context = (
        receiver_prompt(STEP, shown, text)
        for shown, text in (("none", ""), ("message", "edit\nsrc/file_1.py"), ("context", ""))
    )
    assert len({prompt.turns[0] for prompt in (none, message, context)}) == 1
    assert len({json.dumps(prompt.schema) for prompt in (none, message, context)}) == 1
    blocks = {
        NO_MESSAGE: none,
        "Message of another agent:\n> edit\n> src/file_1.py": message,
        f"Full context:\n> {STEP.context}": context,
    }
    rests = {prompt.turns[1].text.replace(block, "<block>") for block, prompt in blocks.items()}
    assert len(rests) == 1 and rests.pop().count("<block>") == 1


def test_an_empty_message_is_not_the_same_as_none() -> None:
    assert receiver_prompt(STEP, "message", "").turns[1] != receiver_prompt(STEP, "none").turns[1]


def test_the_receiver_does_not_see_the_context_unless_it_is_shown() -> None:
    assert STEP.context not in receiver_prompt(STEP).turns[1].text
    assert STEP.context in receiver_prompt(STEP, "context").turns[1].text
    assert STEP.context in sender_prompt(STEP, 8).turns[1].text


def test_all_candidates_are_shown_to_everyone_in_the_order_of_the_step() -> None:
    listed = "Actions: read, edit, run_test\nArtifacts:\n" + "\n".join(f"- {name}" for name in STEP.artifacts)
    for prompt in (receiver_prompt(STEP), sender_prompt(STEP, 8)):
        assert listed in prompt.turns[1].text


def test_schemas_hold_the_candidates_alone() -> None:
    schema = receiver_prompt(STEP).schema
    assert schema == decision_schema(STEP) and receiver_prompt(STEP, constrained=False).schema is None
    assert schema["properties"] == {
        "action_type": {"enum": list(ACTIONS)},
        "target_artifact": {"enum": list(STEP.artifacts)},
    }
    payload = payload_schema(STEP)
    assert list(payload["properties"])[:2] == ["action_type", "target_artifact"] and len(payload["required"]) == 5
    assert sender_prompt(STEP, 8, constrained=True).schema == payload


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_senders_share_everything_but_the_request(encoding: str) -> None:
    own, other = (sender_prompt(STEP, 8, one).turns[1].text.split("\n") for one in (encoding, "json"))
    assert own[:-1] == other[:-1] and "at most 8 tokens" in own[-1]


def test_a_retry_repeats_the_question_and_shows_the_reply() -> None:
    prompt = sender_prompt(STEP, 8, constrained=True)
    again = retry_prompt(prompt, "Sure!")
    assert again.turns[:2] == prompt.turns and again.turns[2].text == "Sure!" and again.schema == prompt.schema
    assert [turn.role for turn in again.turns] == ["system", "user", "assistant", "user"]


@given(st.text(max_size=60))
def test_no_text_starts_a_line_of_its_own(text: str) -> None:
    for line in quote_lines(text).split("\n"):
        assert line.startswith("> ") and len(line.splitlines()) == 1
    shown = receiver_prompt(STEP, "message", text).turns[1].text
    assert len([line for line in shown.splitlines() if line.startswith(("- ", "Artifacts:", "Next step"))]) == 6


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"artifacts": ()}, "artifacts is empty"),
        ({"actions": ("read", "read")}, "actions holds a name twice"),
        ({"artifacts": ("a\n- b",)}, "not a single clean line"),
    ],
)
def test_unusable_candidates_are_refused_by_name(change: dict[str, tuple[str, ...]], error: str) -> None:
    broken: Step = msgspec.structs.replace(STEP, **change)
    for ask in (receiver_prompt, lambda step: sender_prompt(step, 8)):
        with pytest.raises(ValueError, match=f"one/1.*{error}"):
            ask(broken)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="shown"):
        receiver_prompt(STEP, "gold")
    with pytest.raises(ValueError, match="text"):
        receiver_prompt(STEP, "none", "a message")
    with pytest.raises(ValueError, match="encoding"):
        sender_prompt(STEP, 8, "yaml")
    with pytest.raises(ValueError, match="constrained"):
        sender_prompt(STEP, 8, "prose", constrained=True)


def test_prompts_are_short() -> None:
    """Without views and candidates fewer than 130 words, which a receiver of 135 million parameters has room for."""
    bare = msgspec.structs.replace(STEP, local_view="", context="", artifacts=("a",), actions=("b",))
    for prompt in (receiver_prompt(bare), sender_prompt(bare, 128)):
        assert sum(len(turn.text.split()) for turn in prompt.turns) < 130


def test_the_fixed_texts_have_a_name() -> None:
    assert len(prompts_hash()) == 64
