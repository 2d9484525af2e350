"""The rule-made receiver: deterministic, schema-obeying, and moved by what is delivered."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import validate

from lib.messages.packets import Packet
from lib.messages.prompts import receiver_prompt, receiver_text
from lib.models import Prompt, ScriptedReceiver, Turn
from lib.models.scripted import ranked_lines, skimming_script, words
from lib.tasks.task import Source, Task


def user(text: str, schema: dict[str, Any] | None = None) -> Prompt:
    return Prompt((Turn("user", text),), schema)


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


LINES = [
    "Source Mill - Claim: The Ostrel Mill has a roof of slate.",
    "Source Tower - Evidence: [S2] The Dunlo Tower has 148 steps.",
    "Source Harbour - Claim: The harbour is quiet.",
]
ASKED = "Question: How many steps has the Dunlo Tower?"


# ----------------------------------------------------------------------------------------------------------------------- replies


def test_the_line_with_most_words_of_the_question_answers() -> None:
    schema = record(
        evidence={
            "type": "array",
            "items": {"anyOf": [record(title={"const": name}) for name in ("Mill", "Tower")]},
            "maxItems": 2,
        },
        answer={"type": "string"},
    )
    value = json.loads(ScriptedReceiver().reply([user(receiver_text(ASKED, LINES), schema)])[0].text)
    assert value == {"evidence": [{"title": "Tower"}], "answer": "[S2] 148"}


@given(st.lists(st.sampled_from(LINES), max_size=4), st.integers(0, 3))
def test_replies_satisfy_the_schema(lines: list[str], most: int) -> None:
    schema = record(
        label={"enum": ["SUPPORT", "CONTRADICT", "NOT_ENOUGH_INFO"]},
        evidence={"type": "array", "items": {"enum": ["Mill", "Tower"]}, "maxItems": most},
        number={"type": "integer"},
        claim={"type": "string", "minLength": 1},
        nested=record(fixed={"const": "x"}),
        request={"type": "string"},
        uncertainty={"type": "string"},
    )
    for temperature in (0.0, 1.0):
        for reply in ScriptedReceiver().reply(
            [user(receiver_text(ASKED, lines), schema)], temperature=temperature, samples=3
        ):
            assert reply.finish == "stop"
            validate(json.loads(reply.text), schema)


@pytest.mark.parametrize("kind", ["verification", "bridge", "fanout"])
def test_the_decisive_packet_decides(kind: Any) -> None:
    """Leaving out the packet that answers changes the reply; leaving out an idle one does not; nothing gives another reply."""
    sources = tuple(Source(name, name, ("The Dunlo Tower has 148 steps.",)) for name in ("Tower", "Mill"))
    query = "The Dunlo Tower has 148 steps." if kind == "verification" else "How many steps has the Dunlo Tower?"
    task = Task("t", "worlds", kind, query, sources, "1")

    def packet(slot: int, source: str, text: str) -> Packet:
        message, route = f"m{slot:02d}", f"reader_{slot}->verifier"
        return Packet(
            f"{message}.0", "t", route, message, f"{message}.0", 0, "evidence", text, text, slot, slot, source
        )

    decisive = packet(0, "Tower", "[S0] The Dunlo Tower has 148 steps.")
    idle = packet(1, "Mill", "[S0] Nothing is known.")
    receiver = ScriptedReceiver()
    both, without_idle, without_decisive, nothing = (
        reply.text
        for reply in receiver.reply(
            [receiver_prompt(task, kept) for kept in ([decisive, idle], [decisive], [idle], [])]
        )
    )
    assert both == without_idle != without_decisive
    assert "Tower" in both and "Tower" not in without_decisive
    assert "Tower" not in nothing


def test_a_skimming_receiver_reads_claims_alone() -> None:
    """Packets of other types change nothing, claims do; the numbered sentences of a reader are all read."""
    skims = ScriptedReceiver(skimming_script, "skims")
    claims = [line for line in LINES if " - Claim: " in line]
    whole, cut, nothing = skims.reply([user(receiver_text(ASKED, lines)) for lines in (LINES, claims, [])])
    assert whole.text == cut.text != nothing.text
    assert whole.text != ScriptedReceiver().reply([user(receiver_text(ASKED, LINES))])[0].text
    reading = user(f"{ASKED}\nSource: Tower\n[S0] The Dunlo Tower has 148 steps.\n[S1] It is old.")
    assert skims.reply([reading])[0].text == ScriptedReceiver().reply([reading])[0].text


def test_the_same_question_has_the_same_answer_in_any_company() -> None:
    prompts = [user(receiver_text(ASKED, LINES[:count])) for count in range(4)]
    first = ScriptedReceiver().reply(prompts)
    again = ScriptedReceiver().reply(prompts[::-1])[::-1]
    assert [reply.text for reply in first] == [reply.text for reply in again]
    assert [reply.token_ids for reply in first] == [reply.token_ids for reply in again]


def test_a_free_prompt_gets_the_fresh_words() -> None:
    assert ScriptedReceiver().reply([user(receiver_text(ASKED, LINES))])[0].text == "[S2] 148"
    assert ScriptedReceiver().reply([user("no lines at all")])[0].text == "unknown"


# ---------------------------------------------------------------------------------------------------------------------- decoding


def say(text: str) -> ScriptedReceiver:
    return ScriptedReceiver(lambda prompt: text, name="parrot")


def test_samples_are_distinct_above_temperature_zero_only() -> None:
    """Row 33 of the fault reports, at its source: k samples at T > 0 are k replies, the same k again."""
    receiver = say("yes")
    warm = [reply.text for reply in receiver.reply([user("a"), user("b")], temperature=0.7, samples=3)]
    assert warm == ["yes", "yes #1", "yes #2"] * 2
    assert [reply.text for reply in receiver.reply([user("a")], samples=3)] == ["yes"] * 3
    assert receiver.calls == 9


def test_the_cap_counts_words_and_cuts_the_text() -> None:
    receiver = say("one two  three\nfour")
    for cap, text in (
        (1, "one"),
        (2, "one two"),
        (3, "one two  three"),
        (4, "one two  three\nfour"),
        (9, "one two  three\nfour"),
    ):
        reply = receiver.reply([user("a b")], max_tokens=cap)[0]
        assert (reply.text, reply.finish) == (text, "length" if cap < 4 else "stop")
        assert (reply.new_tokens, len(reply.token_ids), reply.prompt_tokens) == (min(cap, 4), min(cap, 4), 2)


def test_the_first_stop_string_cuts() -> None:
    receiver = say("one two three")
    assert [
        receiver.reply([user("a")], stop=stop)[0].text for stop in (("three", " tw"), ("four",), ("",), ("one",))
    ] == [
        "one",
        "one two three",
        "one two three",
        "",
    ]


def test_a_script_that_fails_gives_an_error_and_the_others_an_answer() -> None:
    def script(prompt: Prompt) -> str:
        if prompt.turns[0].text == "bad":
            raise RuntimeError("no signal")
        return "fine"

    replies = ScriptedReceiver(script).reply([user("good"), user("bad"), user("good")])
    assert [reply.finish for reply in replies] == ["stop", "error", "stop"]
    assert (replies[1].text, replies[1].error, replies[1].new_tokens) == ("", "RuntimeError: no signal", None)


# ---------------------------------------------------------------------------------------------------------------- score, identity


def test_the_option_that_the_script_says_scores_best() -> None:
    scores = say("I say SUPPORT here").score([user("a"), user("b")], ["CONTRADICT", "SUPPORT", "NOT_ENOUGH_INFO"])
    assert scores.shape == (2, 3)
    assert (scores.argmax(axis=1) == 1).all()
    assert (scores < 0).all()
    own = say("b").score([user("x"), user("y")], [["a", "b"], ["b", "a"]])
    assert own.argmax(axis=1).tolist() == [1, 0]
    assert np.array_equal(own, say("b").score([user("x"), user("y")], [["a", "b"], ["b", "a"]]))


def test_names_tell_scripts_apart() -> None:
    assert len({ScriptedReceiver().fingerprint, say("a").fingerprint}) == 2
    assert ScriptedReceiver().prompt_key(user("a")) != ScriptedReceiver().prompt_key(user("b"))
    assert ScriptedReceiver().count_tokens(["", "one two", "é😀 x"]) == [0, 2, 2]


def test_lines_are_ranked_by_shared_words_then_place() -> None:
    ranked = ranked_lines(
        receiver_text(ASKED, [LINES[2], "Source Barn - Claim: Rain fell.", LINES[1], "Dunlo Tower steps"])
    )
    assert [source for _, source, _ in ranked] == ["Tower", "Harbour", "Barn"]
    assert words("The Tower, of 148 Steps!") == ["tower", "148", "steps"]
