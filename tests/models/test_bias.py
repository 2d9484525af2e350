"""The bias of a prompt: it is added once, at the first free choice of its own reply, and is part of what was asked."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.models.random_models import chat_model
from lib.models.receiver import Prompt, Turn, text_key
from lib.models.scripted import ScriptedReceiver
from lib.models.structured import consume_forced
from lib.models.transformers_receiver import TransformersReceiver
from tests.models.tiny import chat_receiver

SAID = (
    "yes",
    "maybe",
    "unclear",
)  # they begin with one letter each, which is their first token and cannot be cut shorter
TEXTS = ("the ferry", "the ferry left at noon", "", "mill", "x" * 60, "nobody saw it")
MAX_TOKENS = 60
Bias = tuple[tuple[str, float], ...]


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


AGAIN = {"enum": list(SAID)}
VERDICT = {"anyOf": [record(reports_say={"const": said}, label={"const": said.upper()}, again=AGAIN) for said in SAID]}
SCHEMAS: dict[str, dict[str, Any] | None] = {"verdict": VERDICT, "enum": record(say=AGAIN, again=AGAIN), "free": None}
schemas = st.sampled_from(list(SCHEMAS))
nats = st.sampled_from([-60.0, -3.0, -0.5, 0.0, 0.5, 3.0, 60.0])
biases = st.one_of(st.just(()), st.tuples(*[st.tuples(st.just(said), nats) for said in SAID]))


@cache
def receiver() -> TransformersReceiver:
    """Return a receiver in float64, where rounding cannot turn a choice."""
    return chat_receiver("llama", dtype=torch.float64, pack=False)


@cache
def plain() -> Any:
    return chat_model("llama", dtype=torch.float64)


def prompt(text: str, schema: str, bias: Bias = ()) -> Prompt:
    return Prompt((Turn("system", "Answer."), Turn("user", text)), SCHEMAS[schema], bias)


def reply_of(asked: Prompt, **options: Any) -> tuple[int, ...]:
    return receiver().reply([asked], **{"max_tokens": MAX_TOKENS, **options})[0].token_ids


def said_by(asked: Prompt, **options: Any) -> dict[str, str]:
    return json.loads(receiver().reply([asked], **{"max_tokens": MAX_TOKENS, **options})[0].text)


@torch.inference_mode()
def by_hand(asked: Prompt, max_tokens: int) -> tuple[int, ...]:
    """Decode with a plain forward of the whole sequence a token; the bias is added where the first token is not forced."""
    made = receiver()
    ids, new = made.encoder.encode(asked), list[int]()
    matcher = made.grammar.matcher(asked.schema) if asked.schema is not None else None
    if matcher is not None:
        new += consume_forced(matcher)
    waiting = {made.encoder.encode_text(text)[0]: value for text, value in asked.bias}
    while len(new) < max_tokens and not (matcher is not None and matcher.is_stopped()):
        logits = plain()(torch.tensor([ids + new]), use_cache=False).logits[0, -1]
        for token, value in waiting.items():
            logits[token] += value
        waiting = {}
        if matcher is not None:
            logits = logits.masked_fill(~torch.from_numpy(made.grammar.allowed([matcher])[0]), -torch.inf)
        token = int(logits.argmax())
        if token in made.eos:
            break
        new.append(token)
        if matcher is not None:
            assert matcher.consume_token(token)
            new += consume_forced(matcher)
    return tuple(new[:max_tokens])


def test_the_first_free_choice_is_among_the_first_letters() -> None:
    made = receiver()
    for schema in (VERDICT, record(say=AGAIN)):
        matcher = made.grammar.matcher(schema)
        consume_forced(matcher)
        allowed = made.grammar.allowed([matcher])[0].nonzero()[0].tolist()
        assert sorted(allowed) == sorted(made.encoder.encode_text(said)[0] for said in SAID)


@settings(max_examples=40)
@given(text=st.sampled_from(TEXTS), schema=schemas, bias=biases, max_tokens=st.sampled_from([1, 4, 16]))
def test_a_bias_is_added_once_where_the_first_free_token_is_chosen(
    text: str, schema: str, bias: Bias, max_tokens: int
) -> None:
    asked = prompt(text, schema, bias)
    assert reply_of(asked, max_tokens=max_tokens) == by_hand(asked, max_tokens)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_bias_of_nought_changes_nothing(schema: str) -> None:
    for text in TEXTS:
        nought = prompt(text, schema, tuple((said, 0.0) for said in SAID))
        assert reply_of(nought) == reply_of(prompt(text, schema))


@pytest.mark.parametrize("schema", ["verdict", "enum"])
@pytest.mark.parametrize("wanted", SAID)
def test_a_huge_bias_forces_its_option(schema: str, wanted: str) -> None:
    for text in TEXTS:
        up = prompt(text, schema, ((wanted, 1e4),))
        down = prompt(text, schema, tuple((said, -1e4) for said in SAID if said != wanted))
        for value in (said_by(up), said_by(down), said_by(up, temperature=1.0)):
            assert value["reports_say" if schema == "verdict" else "say"] == wanted
            if schema == "verdict":
                assert value["label"] == wanted.upper()


def test_the_next_choice_is_the_model_s_own() -> None:
    replies = [said_by(prompt(text, "enum", ((said, 1e4),))) for text in TEXTS for said in SAID]
    assert any(reply["say"] != reply["again"] for reply in replies)


def test_a_bias_moves_an_option_past_another_by_its_own_nats() -> None:
    """The gap of two options in log-probability is what a bias has to close, in nats."""
    for text in TEXTS:
        asked = prompt(text, "verdict")
        first = said_by(asked)["reports_say"]
        # The words begin with one letter each, so the scores of openings up to it are those of the first choice.
        openings = [f'{{"reports_say":"{said[0]}' for said in SAID]
        scores = dict(zip(SAID, receiver().score([asked], openings)[0], strict=True))
        assert first == max(SAID, key=lambda said: scores[said])
        for said in SAID:
            gap = scores[first] - scores[said]
            if gap > 0:
                assert said_by(prompt(text, "verdict", ((said, gap + 0.01),)))["reports_say"] == said
                assert said_by(prompt(text, "verdict", ((said, gap - 0.01),)))["reports_say"] == first


@pytest.mark.parametrize("schema", ["verdict", "enum"])
def test_forced_opening_tokens_are_not_affected(schema: str) -> None:
    """A bias against the bracket that opens the reply waits for the first choice, where no bracket can stand."""
    for text in TEXTS:
        for value in (-1e4, 1e4):
            assert reply_of(prompt(text, schema, (("{", value), ('"', value)))) == reply_of(prompt(text, schema))


def test_a_reply_without_a_choice_has_no_use_for_a_bias() -> None:
    settled = record(say={"const": "maybe"}, label={"const": "MAYBE"})
    replies = receiver().reply(
        [Prompt((Turn("user", "mill"),), settled, bias) for bias in ((), (("yes", 1e4), ("maybe", -1e4)))],
        max_tokens=60,
    )
    assert [json.loads(reply.text) for reply in replies] == [{"say": "maybe", "label": "MAYBE"}] * 2


@settings(max_examples=12)
@given(data=st.data())
def test_neighbours_and_their_order_change_no_biased_reply(data: st.DataObject) -> None:
    asked = st.builds(prompt, st.sampled_from(TEXTS), schemas, biases)
    prompts = data.draw(st.lists(asked, min_size=2, max_size=7))
    alone = [reply_of(one) for one in prompts]
    together = receiver().reply(prompts, max_tokens=MAX_TOKENS)
    assert [reply.token_ids for reply in together] == alone
    order = data.draw(st.permutations(range(len(prompts))))
    turned = receiver().reply([prompts[index] for index in order], max_tokens=MAX_TOKENS)
    assert [reply.token_ids for reply in turned] == [alone[index] for index in order]


def test_small_buffers_change_no_biased_reply() -> None:
    prompts = [
        prompt(text, schema, bias)
        for text in TEXTS
        for schema in SCHEMAS
        for bias in ((), (("yes", 3.0), ("maybe", -3.0)), (("unclear", 60.0),))
    ]
    wide = [reply.token_ids for reply in receiver().reply(prompts, max_tokens=30)]
    narrow = TransformersReceiver(loaded=receiver().loaded, pack=False, max_slots=150, max_row_tokens=300)
    assert [reply.token_ids for reply in narrow.reply(prompts, max_tokens=30)] == wide
    assert len(set(wide)) > len(prompts) // 3


def test_equal_turns_of_unequal_bias_are_two_questions() -> None:
    """Identical prompts are computed once; prompts that differ in their bias alone are not identical."""
    up, down = (prompt("mill", "verdict", ((said, 1e4),)) for said in ("yes", "maybe"))
    replies = receiver().reply([up, down, up], max_tokens=MAX_TOKENS)
    assert [json.loads(reply.text)["reports_say"] for reply in replies] == ["yes", "maybe", "yes"]


@pytest.mark.parametrize("key", [lambda one: receiver().prompt_key(one), text_key, ScriptedReceiver().prompt_key])
def test_the_bias_is_part_of_the_key(key: Any) -> None:
    """So a stored reply is never served for another bias."""
    given_biases: list[Bias] = [
        (),
        (("yes", 1.0),),
        (("yes", 1.5),),
        (("yes", -1.0),),
        (("maybe", 1.0),),
        (("yes", 1.0), ("maybe", 1.0)),
    ]
    keys = [key(prompt("mill", "verdict", bias)) for bias in given_biases]
    assert len(set(keys)) == len(keys)
    assert keys == [key(prompt("mill", "verdict", bias)) for bias in given_biases]
