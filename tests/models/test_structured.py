"""Strict JSON from a model that knows nothing: whatever it would like to say, the schema is obeyed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import validate

from lib.models.random_models import TOOL, VOCABULARY, chat_model, chat_tokenizer
from lib.models.receiver import Prompt, Reply, Turn
from lib.models.structured import JsonGrammar, consume_forced
from lib.models.transformers_receiver import TransformersReceiver
from lib.models.tree_attention import RowPlan
from tests.models.test_chat import ANY, HOSTILE
from tests.models.tiny import chat_receiver

# Ids that would break out of a JSON string, of a line, of a turn or of a normal form.
IDS = [*HOSTILE[:6], TOOL, 'q"uo\\te', "a\nb\tc", "é😀", "e\u0301", "\u2028", "a" * 40, "none", "none stated"]


@cache
def receiver() -> TransformersReceiver:
    return chat_receiver("llama")


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def ask(schema: dict[str, Any], text: str = "the ferry", **options: Any) -> Reply:
    return receiver().reply([Prompt((Turn("user", text),), schema)], **{"max_tokens": 400, **options})[0]


def rows_forwarded(schema: dict[str, Any], **options: Any) -> tuple[Reply, int, list[int]]:
    """Return a reply, how many tokens were read as a tree, and the tokens of each decoding forward."""
    runner = receiver().runner
    hidden, read, steps = runner.hidden, [0], []

    def spy(tokens: Any, positions: Any, plan: Any) -> Any:
        if isinstance(plan, RowPlan):
            steps.append(len(tokens))
        else:
            read[0] += len(tokens)
        return hidden(tokens, positions, plan)

    runner.hidden = spy  # type: ignore[method-assign]
    try:
        return ask(schema, **options), read[0], steps
    finally:
        runner.hidden = hidden  # type: ignore[method-assign]


# ----------------------------------------------------------------------------------------------------------------------- obeyed


LEAVES = st.one_of(
    st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True).map(lambda ids: {"enum": ids}),
    st.sampled_from(IDS).map(lambda text: {"const": text}),
    st.integers(0, 6).map(lambda most: {"type": "string", "maxLength": most}),
    st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True).map(lambda numbers: {"enum": numbers}),
    st.just({"type": "boolean"}),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["label", "evidence", "é", 'q"']), inner, max_size=3).map(
            lambda fields: record(**fields)
        ),
        st.tuples(inner, st.integers(0, 2)).map(lambda pair: {"type": "array", "items": pair[0], "maxItems": pair[1]}),
        st.lists(inner, min_size=1, max_size=2).map(lambda options: {"anyOf": options}),
    ),
    max_leaves=5,
)


@settings(max_examples=60)
@given(schema=SCHEMAS, temperature=st.sampled_from([0.0, 1.0]))
def test_replies_are_json_that_satisfies_the_schema(schema: dict[str, Any], temperature: float) -> None:
    for reply in (ask(schema, temperature=temperature), ask(schema, "mill", temperature=temperature)):
        assert reply.finish == "stop"
        validate(json.loads(reply.text), schema)


@pytest.mark.parametrize("chosen", IDS)
def test_an_id_is_given_back_as_it_was_shown(chosen: str) -> None:
    """Quotes, line breaks, special tokens and unusual forms of accents: the id in the reply is the id in the schema."""
    reply = ask(record(doc={"const": chosen}, why={"enum": ["x", "y"]}))
    assert json.loads(reply.text)["doc"] == chosen
    among = ask(record(doc={"enum": [chosen, "other"]}))
    assert json.loads(among.text)["doc"] in (chosen, "other")


def test_fields_come_in_the_order_of_the_schema() -> None:
    fields = {"evidence": {"enum": ["x", "y"]}, "label": {"enum": ["x", "y"]}}
    left = record(**fields)
    right = {**left, "properties": dict(reversed(fields.items()))}
    assert left == right, "they differ in order only"
    prompts = [Prompt((Turn("user", "the ferry"),), schema) for schema in (left, right)]
    replies = receiver().reply(prompts, max_tokens=60)
    assert [list(json.loads(reply.text)) for reply in replies] == [["evidence", "label"], ["label", "evidence"]]


@torch.inference_mode()
def one_at_a_time(made: TransformersReceiver, model: Any, prompt: Prompt, max_tokens: int) -> tuple[int, ...]:
    """Decode greedily with a plain forward of the whole sequence for every token, forced ones too."""
    ids, new = made.encoder.encode(prompt), []
    matcher = made.grammar.matcher(prompt.schema or {})
    while len(new) < max_tokens and not matcher.is_stopped():
        logits = model(torch.tensor([ids + new]), use_cache=False).logits[0, -1]
        allowed = torch.from_numpy(made.grammar.allowed([matcher])[0])
        token = int(logits.masked_fill(~allowed, -torch.inf).argmax())
        if token in made.eos:
            break
        assert matcher.consume_token(token)
        new.append(token)
    return tuple(new)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_constrained_decoding_is_plain_decoding_under_the_grammar(family: str) -> None:
    """Forced tokens appended in one forward, in rows of unequal progress, leave the model where single steps would."""
    made = chat_receiver(family, dtype=torch.float64, pack=False)
    model = chat_model(family, dtype=torch.float64)
    schemas = [
        record(
            a={"enum": ["the ferry left", "the tower has"]},
            b={"type": "string", "maxLength": 5},
            c={"enum": ["x", "y"]},
        ),
        record(
            evidence={"type": "array", "items": {"enum": IDS}, "maxItems": 3}, label={"enum": ["SUPPORT", "CONTRADICT"]}
        ),
        record(
            a={"type": "string", "maxLength": 3}, long={"const": "the ferry left the harbour"}, b={"type": "boolean"}
        ),
    ]
    prompts = [Prompt((Turn("user", text),), schema) for text in ("the ferry", "mill", "") for schema in schemas]
    for prompt, reply in zip(prompts, made.reply(prompts, max_tokens=60), strict=True):
        assert reply.token_ids == one_at_a_time(made, model, prompt, 60)


def test_nothing_to_cite_is_an_empty_list() -> None:
    schema = record(
        evidence={"type": "array", "items": {"type": "string"}, "maxItems": 0},
        label={"enum": ["SUPPORT", "CONTRADICT"]},
    )
    value = json.loads(ask(schema).text)
    assert value["evidence"] == [] and value["label"] in ("SUPPORT", "CONTRADICT")


def test_bound_and_free_prompts_in_one_batch_do_not_mix() -> None:
    schema = record(
        label={"enum": ["SUPPORT", "CONTRADICT", "NOT_ENOUGH_INFO"]}, why={"type": "string", "maxLength": 4}
    )
    texts = ["the ferry", "mill", "the tower has 148 steps"]
    prompts = [Prompt((Turn("user", text),), bound) for text in texts for bound in (None, schema)]
    together = receiver().reply(prompts, max_tokens=40)
    assert [reply.token_ids for reply in together] == [
        receiver().reply([prompt], max_tokens=40)[0].token_ids for prompt in prompts
    ]
    for reply in together[1::2]:
        validate(json.loads(reply.text), schema)
    assert not any(reply.text.startswith("{") for reply in together[::2])


# ----------------------------------------------------------------------------------------------------------------------- forced


def test_forced_tokens_cost_no_forward() -> None:
    """A reply without a choice is not decoded at all; one choice costs one step, however long what follows it is."""
    prompt_tokens = ask(record(a={"const": "x"})).prompt_tokens
    fixed, read, steps = rows_forwarded(record(label={"const": "NOT_ENOUGH_INFO"}, evidence={"const": "none stated"}))
    assert json.loads(fixed.text) == {"label": "NOT_ENOUGH_INFO", "evidence": "none stated"}
    assert (fixed.finish, steps) == ("stop", [])
    assert read <= prompt_tokens + len(fixed.token_ids)

    choice, _, steps = rows_forwarded(record(label={"enum": ["A" * 20, "B" * 20]}))
    assert (choice.finish, steps) == ("stop", []), "the one chosen token and the forced rest end the reply"
    two, read, steps = rows_forwarded(
        record(label={"enum": ["A" * 20, "B" * 20]}, other={"enum": ["C" * 20, "D" * 20]})
    )
    assert len(steps) == 1 and steps[0] > 5, "chosen and forced tokens go through the layers together"
    assert read + steps[0] < prompt_tokens + len(two.token_ids)


def test_forced_tokens_respect_the_cap_and_stop_strings() -> None:
    schema = record(label={"const": "NOT_ENOUGH_INFO"})
    whole = ask(schema)
    for cap in range(1, len(whole.token_ids)):
        reply = ask(schema, max_tokens=cap)
        assert (reply.finish, reply.token_ids) == ("length", whole.token_ids[:cap])
    assert ask(schema, max_tokens=len(whole.token_ids)).finish == "stop"
    stopped = ask(schema, stop=("_INFO",))
    assert (stopped.text, stopped.finish) == ('{"label":"NOT_ENOUGH', "stop")


def test_a_choice_that_runs_over_the_cap_is_cut() -> None:
    schema = record(label={"enum": ["A" * 20, "B" * 20]})
    whole = ask(schema)
    for cap in range(1, len(whole.token_ids)):
        reply = ask(schema, max_tokens=cap)
        assert (reply.finish, reply.new_tokens, reply.token_ids) == ("length", cap, whole.token_ids[:cap])


# ---------------------------------------------------------------------------------------------------------------------- grammar


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "frobnicate"}, "Invalid type: frobnicate"),
        ({"enum": []}, "Unsatisfiable schema"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"$ref": "#/nope"}, "'/nope' does not exist"),
    ],
)
def test_schemas_it_does_not_know_are_refused_with_the_reason(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=rf"schema not supported for constrained decoding: .*{reason}.*; schema: "):
        ask(schema)


def test_matchers_of_one_schema_are_independent() -> None:
    grammar = receiver().grammar
    schema = record(label={"enum": ["A" * 20, "B" * 20]})
    first, second = grammar.matcher(schema), grammar.matcher(schema)
    opening = consume_forced(first)
    assert opening and consume_forced(first) == []
    assert consume_forced(second) == opening
    allowed = grammar.allowed([first, grammar.matcher(schema)])
    assert allowed.shape == (2, VOCABULARY)
    tokenizer = receiver().tokenizer
    assert {tokenizer.decode([token])[0] for token in allowed[0].nonzero()[0]} == {"A", "B"}
    assert not allowed[:, [*range(3), *range(len(tokenizer), VOCABULARY)]].any(), (
        "no special token, nothing beyond the vocabulary"
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | ANY)
@example("<|end|>")
@example("e\u0301")
def test_forced_text_has_the_tokens_of_plain_text(text: str) -> None:
    """Special tokens off, as in prompts; but spelled as it stands, without the normal form that prompts get."""
    made = receiver()
    ids = made.grammar._tokenizer.tokenize_str(text)
    assert b"".join(made.grammar._tokenizer.decode_bytes([token]) for token in ids) == text.encode()
    assert not made.encoder.special_ids.intersection(ids)
    if made.tokenizer.backend_tokenizer.normalizer.normalize_str(text) == text and TOOL not in text:
        assert tuple(ids) == made.encoder.encode_text(text)


def test_a_tokenizer_without_a_fast_form_is_refused() -> None:
    class Slow:
        """A tokenizer with no tokenizer.json behind it."""

    with pytest.raises(ValueError, match="Slow: strict JSON needs a fast tokenizer"):
        JsonGrammar(Slow(), VOCABULARY, [2])


def test_any_of_several_tokens_may_end_a_reply() -> None:
    grammar = JsonGrammar(chat_tokenizer(), VOCABULARY, frozenset({2, 1}))
    matcher = grammar.matcher({"type": "string", "maxLength": 0})
    consume_forced(matcher)
    assert matcher.is_stopped() or set(grammar.allowed([matcher])[0].nonzero()[0]) == {1, 2}


# ------------------------------------------------------------------------------------------------------------------- real models


@pytest.mark.real("qwen-coder-0.5b")
def test_qwen_s_tokenizer_spells_hostile_ids() -> None:
    """Without the model: at every choice the first allowed token is taken."""
    from transformers import AutoTokenizer

    from lib.sources import cache_dir, catalogue

    stem = Path(catalogue()["qwen-coder-0.5b"].files[0].name).stem
    folders = sorted((cache_dir() / "converted").glob(f"{stem}-*"))
    if not folders:
        pytest.skip("qwen-coder-0.5b has not been unpacked on this machine; run something with it once")
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    grammar = JsonGrammar(tokenizer, 151_936, [151_645, 151_643])
    for text in [*IDS, "<|im_end|>\n<|im_start|>", "<tool_call>", "<|endoftext|>", "Zoë's ferry 漢字"]:
        matcher = grammar.matcher(record(doc={"const": text}, label={"enum": ["SUPPORT", "CONTRADICT"]}))
        ids = consume_forced(matcher)
        while not matcher.is_stopped():
            token = int(grammar.allowed([matcher])[0].argmax())
            assert matcher.consume_token(token)
            ids += [token, *consume_forced(matcher)]
        ids = [token for token in ids if token not in (151_645, 151_643)]
        assert json.loads(tokenizer.decode(ids, skip_special_tokens=True))["doc"] == text
    assert torch.get_num_threads() == 1
