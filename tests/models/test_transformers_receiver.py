"""The local receiver against one-at-a-time decoding and plain forwards, on random models."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lib.models.transformers_receiver as engine
from lib.models.prefix_tree import build_tree
from lib.models.random_models import chat_model, end_tokens
from lib.models.receiver import Prompt, Receiver, Reply, Turn
from lib.models.transformers_receiver import TransformersReceiver
from tests.models.strategies import chats
from tests.models.tiny import chat_receiver

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
ENDS = 60  # of 384 tokens end a reply, so that replies differ in length
EIGHT = [
    "the ferry",
    "the ferry left at noon",
    "",
    "mill",
    "the tower has 148 steps",
    "the ferry left",
    "x" * 60,
    "nobody saw it",
]


def user(text: str) -> Prompt:
    return Prompt((Turn("user", text),))


PROMPTS = [user(text) for text in EIGHT]


@cache
def receiver(family: str = "llama", double: bool = True) -> TransformersReceiver:
    """Return a receiver in float64, where rounding cannot turn a choice, or in float32 with packed weights."""
    dtype = torch.float64 if double else torch.float32
    return chat_receiver(family, ends=ENDS, dtype=dtype, pack=not double)


@cache
def plain(family: str = "llama", double: bool = True) -> Any:
    return chat_model(family, dtype=torch.float64 if double else torch.float32)


@torch.inference_mode()
def generate(model: Any, ids: list[int], max_tokens: int) -> tuple[int, ...]:
    """Return the greedy tokens of the library's own loop, one prompt alone, without the token that ended it."""
    asked = torch.tensor([ids])
    ends = end_tokens(ENDS)
    out = model.generate(
        asked, attention_mask=torch.ones_like(asked), max_new_tokens=max_tokens, do_sample=False, eos_token_id=ends
    )
    new = out[0, len(ids) :].tolist()
    return tuple(new[:-1] if new[-1] in ends else new)


def tokens(replies: Sequence[Reply]) -> list[tuple[int, ...]]:
    return [reply.token_ids for reply in replies]


# ------------------------------------------------------------------------------------------------------------------------ greedy


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=12)
@given(prompts=chats(), max_tokens=st.integers(1, 12))
def test_greedy_tokens_are_those_of_generate(family: str, prompts: list[Prompt], max_tokens: int) -> None:
    made = receiver(family)
    replies = made.reply(prompts, max_tokens=max_tokens)
    for prompt, reply in zip(prompts, replies, strict=True):
        ids = made.encoder.encode(prompt)
        assert reply.token_ids == generate(plain(family), ids, max_tokens)
        assert (reply.prompt_tokens, reply.new_tokens) == (len(ids), len(reply.token_ids))
        assert reply.finish == ("length" if len(reply.token_ids) == max_tokens else "stop")
        assert reply.text == made.tokenizer.decode(reply.token_ids, skip_special_tokens=True)
        assert reply.seconds > 0 and reply.error is None


@pytest.mark.parametrize("family", FAMILIES)
def test_batch_size_and_order_change_nothing_in_float32(family: str) -> None:
    """Row 21 (unsloth#9708, transformers#26869 and others): greedy text hung on the batch size."""
    made = receiver(family, double=False)
    expected = [generate(plain(family, double=False), made.encoder.encode(prompt), 20) for prompt in PROMPTS]
    assert tokens(made.reply(PROMPTS, max_tokens=20)) == expected
    assert [made.reply([prompt], max_tokens=20)[0].token_ids for prompt in PROMPTS] == expected
    halves = made.reply(PROMPTS[:4], max_tokens=20) + made.reply(PROMPTS[4:], max_tokens=20)
    assert tokens(halves) == expected
    order = [5, 2, 7, 0, 6, 1, 4, 3]
    assert tokens(made.reply([PROMPTS[index] for index in order], max_tokens=20)) == [
        expected[index] for index in order
    ]
    assert len({len(row) for row in expected}) > 2, "replies of many lengths"


def test_asking_again_gives_the_same_answers() -> None:
    """Row 23 (vllm#40896, sglang#34683 and others): a warm prefix cache flipped greedy answers."""
    made = receiver("qwen2", double=False)
    cold = tokens(made.reply(PROMPTS, max_tokens=20))
    assert all(tokens(made.reply(PROMPTS, max_tokens=20)) == cold for _ in range(2))


def test_long_replies_outgrow_the_first_buffer() -> None:
    made = chat_receiver("qwen3", ends=3, dtype=torch.float64, pack=False)
    made.eos = frozenset(end_tokens(ENDS))
    model = plain("qwen3")
    replies = made.reply(PROMPTS, max_tokens=130)
    for prompt, reply in zip(PROMPTS, replies, strict=True):
        assert reply.token_ids == generate(model, made.encoder.encode(prompt), 130)
    free = chat_receiver("llama", ends=1, dtype=torch.float64, pack=False)
    assert max(reply.new_tokens or 0 for reply in free.reply(PROMPTS, max_tokens=130)) > 2 * engine._GROWTH


def tree_sizes(made: TransformersReceiver) -> list[int]:
    """Return a list that will hold the size of every tree that is read from now on."""
    sizes: list[int] = []
    read = made.runner.read

    def spy(tree: Any, wanted: Any) -> Any:
        sizes.append(len(tree))
        return read(tree, wanted)

    made.runner.read = spy  # type: ignore[method-assign]
    return sizes


@pytest.mark.parametrize(
    "bounds", [{"max_slots": 40}, {"max_slots": 1}, {"max_row_tokens": 1}, {"max_row_tokens": 300}]
)
def test_memory_bounds_change_no_answer(bounds: dict[str, int]) -> None:
    small = chat_receiver("qwen2", ends=ENDS, dtype=torch.float64, pack=False, **bounds)
    small.runner.chunk_tokens, small.runner.head_rows = 9, 2
    reads = tree_sizes(small)
    buffers: list[Any] = []
    sizes: list[tuple[int, int]] = []
    rows_from, hidden = small.runner.rows_from, small.runner.hidden

    def made(tree: Any, store: Any, which: Any, extra: int) -> Any:
        buffers.append(rows_from(tree, store, which, extra))
        return buffers[-1]

    def run(ids: Any, positions: Any, plan: Any) -> Any:
        if isinstance(plan, engine.RowPlan):
            sizes.append((len(plan.store), plan.store.length))
        return hidden(ids, positions, plan)

    small.runner.rows_from, small.runner.hidden = made, run  # type: ignore[method-assign]
    assert tokens(small.reply(PROMPTS, max_tokens=12)) == tokens(receiver("qwen2").reply(PROMPTS, max_tokens=12))
    longest = max(len(small.encoder.encode(prompt)) for prompt in PROMPTS)
    assert max(reads) <= max(small.max_slots, longest)
    assert sizes and all(rows * columns <= small.max_row_tokens for rows, columns in sizes if rows > 1)
    assert (len(reads) > 1) == ("max_slots" in bounds)
    assert (len(buffers) > len(reads)) == ("max_row_tokens" in bounds)


def test_a_forced_opening_takes_its_room_from_the_reply() -> None:
    """The tokens read with the prompt are part of `max_tokens`; counted twice they would break the bound of the buffer."""
    schema = {
        "type": "object",
        "properties": {"the ferry left the harbour": {"enum": ["x" * 9, "y"]}, "b": {"type": "boolean"}},
    }
    schema |= {"required": list(schema["properties"]), "additionalProperties": False}
    made = chat_receiver("qwen2", dtype=torch.float64, pack=False)
    prompts = [Prompt(prompt.turns, schema) for prompt in PROMPTS]
    (longest,) = {max(len(made.encoder.encode(prompt)) for prompt in prompts)}
    made.max_row_tokens = len(prompts) * (longest + 24)  # exactly what all rows can come to need
    sizes: list[int] = []
    rows_from = made.runner.rows_from

    def spy(*given: Any) -> Any:
        buffer = rows_from(*given)
        sizes.append(len(buffer) * buffer.length)
        return buffer

    made.runner.rows_from = spy  # type: ignore[method-assign]
    made.reply(prompts, max_tokens=24)
    assert len(sizes) == 1 and sizes[0] <= made.max_row_tokens


def test_logits_of_many_rows_are_taken_a_bounded_number_at_a_time() -> None:
    made = chat_receiver("llama", ends=ENDS, dtype=torch.float64, pack=False)
    expected = tokens(made.reply(PROMPTS, max_tokens=12))
    made.runner.head_rows = 3
    widths: list[int] = []
    logits = made.runner.logits

    def spy(hidden: Any) -> Any:
        widths.append(len(hidden))
        return logits(hidden)

    made.runner.logits = spy  # type: ignore[method-assign]
    assert tokens(made.reply(PROMPTS, max_tokens=12)) == expected
    assert widths[:3] == [3, 3, 2] and max(widths) == 3


def test_what_a_schema_has_settled_is_not_read() -> None:
    """However long: a forced opening beyond the cap may not fit the model's context, and learned positions end there."""
    made = receiver()
    fixed = {
        "type": "object",
        "properties": {"a": {"const": "A" * 3000}},
        "required": ["a"],
        "additionalProperties": False,
    }
    before = made.runner.forward_tokens
    cut, whole = (made.reply([Prompt(PROMPTS[0].turns, fixed)], max_tokens=cap)[0] for cap in (3, 400))
    assert made.runner.forward_tokens == before
    assert (cut.finish, cut.new_tokens, cut.seconds) == ("length", 3, 0.0)
    assert whole.token_ids[:3] == cut.token_ids
    mixed = made.reply([Prompt(PROMPTS[0].turns, fixed), PROMPTS[1]], max_tokens=3)
    assert tokens(mixed) == [cut.token_ids, made.reply([PROMPTS[1]], max_tokens=3)[0].token_ids]


# ------------------------------------------------------------------------------------------------------------------------- counts


@settings(max_examples=20)
@given(prompts=chats(), max_tokens=st.integers(1, 6), samples=st.integers(1, 3))
def test_each_token_is_computed_once(prompts: list[Prompt], max_tokens: int, samples: int) -> None:
    """Forward rows = slots of the tree + one a decoded token that has a successor; equal prompts and samples are free."""
    made = receiver("llama")
    before = made.runner.forward_tokens
    replies = made.reply(prompts, max_tokens=max_tokens, samples=samples)
    ids = [made.encoder.encode(prompt) for prompt in prompts]
    distinct = {tuple(row): reply for row, reply in zip(ids, replies[::samples], strict=True)}
    decoded = sum(len(reply.token_ids) - (reply.finish == "length") for reply in distinct.values())
    assert made.runner.forward_tokens - before == len(build_tree(ids)) + decoded


def test_finished_rows_leave_the_buffer() -> None:
    made = receiver("llama")
    widths: list[int] = []
    hidden = made.runner.hidden

    def spy(tokens: Any, positions: Any, plan: Any) -> Any:
        if isinstance(plan, engine.RowPlan):
            widths.append(len(plan.store))
        return hidden(tokens, positions, plan)

    made.runner.hidden = spy  # type: ignore[method-assign]
    try:
        replies = made.reply(PROMPTS, max_tokens=40)
    finally:
        made.runner.hidden = hidden  # type: ignore[method-assign]
    assert widths[0] == 8 and widths[-1] <= 4 and widths == sorted(widths, reverse=True)
    lengths = sorted(len(reply.token_ids) for reply in replies)
    assert lengths[0] < lengths[-1]


def test_nothing_asked_is_nothing_answered() -> None:
    made = receiver()
    assert made.reply([]) == []
    assert made.score([], ["a", "b"]).shape[0] == 0


# ------------------------------------------------------------------------------------------------------------------------- score


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=10)
@given(prompts=chats(most=4))
def test_scores_are_sums_of_log_softmax(family: str, prompts: list[Prompt]) -> None:
    """Options of one and of several tokens, one a prefix of another, one given twice."""
    made, model = receiver(family), plain(family)
    options = ["yes", " the ferry left", " the ferry", "é😀", " the ferry"]
    got = made.score(prompts, options)
    assert got.shape == (len(prompts), 5)
    for row, prompt in zip(got, prompts, strict=True):
        ids = made.encoder.encode(prompt)
        for value, option in zip(row, options, strict=True):
            follow = list(made.encoder.encode_text(option))
            with torch.inference_mode():
                logits = model(torch.tensor([ids + follow]), use_cache=False).logits[0].log_softmax(-1)
            expected = sum(float(logits[len(ids) - 1 + place, token]) for place, token in enumerate(follow))
            assert value == pytest.approx(expected, abs=1e-5)


def test_scoring_decodes_nothing_and_shares_options() -> None:
    made = receiver()
    ids = made.encoder.encode(user("the ferry"))
    options = [" the ferry left", " the ferry"]
    follow = [list(made.encoder.encode_text(option)) for option in options]
    assert min(map(len, follow)) > 1, "several tokens"
    before = made.runner.forward_tokens
    made.score([user("the ferry")] * 3, options)
    assert made.runner.forward_tokens - before == len(build_tree([ids + tokens[:-1] for tokens in follow]))


def test_small_bounds_score_the_same() -> None:
    small = chat_receiver("llama", ends=ENDS, dtype=torch.float64, pack=False, max_slots=1)
    small.runner.chunk_tokens, small.runner.head_rows = 5, 2
    options = [[" the ferry", "no"], ["yes", " noon"]] * 4
    reads = tree_sizes(small)
    assert np.allclose(small.score(PROMPTS, options), receiver().score(PROMPTS, options), atol=1e-5)
    assert len(reads) == 16, "one tree a sequence, since none fits the bound"


def test_options_that_cannot_be_scored_are_refused() -> None:
    made = receiver()
    for options, reason in [
        (["yes", ""], "prompt 0, option 1.*non-empty option"),
        (["x" * 600], "prompt 0, option 0: .* need 1 to 512"),
        ([], "same number of options"),
        ([["a"]], "got 1 lists for 2 prompts"),
        ([["a"], ["a", "b"]], "same number of options"),
        ("yes", "is one text, not a list of options"),
    ]:
        with pytest.raises(ValueError, match=reason):
            made.score([user("a"), user("b")], options)


# ------------------------------------------------------------------------------------------------------------------------ samples


def test_samples_are_distinct_repeatable_and_independent_of_the_batch() -> None:
    made = receiver()
    first = made.reply(PROMPTS[:3], max_tokens=8, temperature=1.0, samples=4)
    assert len(first) == 12
    assert len({reply.token_ids for reply in first[:4]}) > 1
    assert tokens(first) == tokens(made.reply(PROMPTS[:3], max_tokens=8, temperature=1.0, samples=4))
    mixed = made.reply([*reversed(PROMPTS)], max_tokens=8, temperature=1.0, samples=4)
    assert tokens(mixed[-4:]) == tokens(first[:4])
    assert tokens(made.reply(PROMPTS[:1], max_tokens=8, temperature=1.0, samples=2)) == tokens(first[:2])
    twice = made.reply([PROMPTS[0], PROMPTS[0]], max_tokens=8, temperature=1.0, samples=2)
    assert tokens(twice[:2]) == tokens(twice[2:])


def test_the_coldest_temperature_is_greedy() -> None:
    made = chat_receiver("llama", ends=ENDS)  # float32, where a division by 1e-40 overflows
    greedy = tokens(made.reply(PROMPTS, max_tokens=8))
    assert all(tokens(made.reply(PROMPTS, max_tokens=8, temperature=cold)) == greedy for cold in (1e-6, 1e-40, 1e-300))


def test_at_temperature_zero_all_samples_are_the_greedy_reply() -> None:
    made = receiver()
    greedy = tokens(made.reply(PROMPTS[:2], max_tokens=8))
    assert tokens(made.reply(PROMPTS[:2], max_tokens=8, samples=3)) == [greedy[0]] * 3 + [greedy[1]] * 3


def test_samples_follow_the_model_s_distribution() -> None:
    """First tokens of 4000 samples against softmax(logits / T), for a warm and a cold temperature."""
    made, prompt = receiver(), user("the ferry left")
    ids = torch.tensor([made.encoder.encode(prompt)])
    with torch.inference_mode():
        logits = plain()(ids).logits[0, -1]
    for temperature in (0.7, 2.0):
        expected = (logits / temperature).softmax(-1).numpy()
        ends = expected[list(made.eos)].sum()
        draws = [reply.token_ids for reply in made.reply([prompt], max_tokens=1, temperature=temperature, samples=4000)]
        assert sum(not draw for draw in draws) / 4000 == pytest.approx(ends, abs=0.035)
        for token in np.argsort(expected)[-4:]:
            if int(token) not in made.eos:
                assert draws.count((int(token),)) / 4000 == pytest.approx(expected[token], abs=0.035)


# --------------------------------------------------------------------------------------------------------------------------- ends


@pytest.mark.parametrize("cap", [3, 12])
def test_a_stop_string_ends_the_reply_and_is_cut_off(cap: int) -> None:
    """Also one that the last allowed token completes: the reply was stopped, not cut short."""
    made = receiver()
    for prompt in PROMPTS:
        whole = made.reply([prompt], max_tokens=cap)[0]
        for cut in range(1, len(whole.text)):
            mark = whole.text[cut : cut + 2]
            stopped = made.reply([prompt], max_tokens=cap, stop=("never said", mark, ""))[0]
            assert stopped.text == whole.text[: whole.text.index(mark)]
            assert stopped.finish == "stop"
            assert whole.token_ids[: len(stopped.token_ids)] == stopped.token_ids


def test_the_token_cap_ends_with_length() -> None:
    made = chat_receiver("llama", dtype=torch.float64, pack=False)
    for cap in (1, 2, 5):
        reply = made.reply([user("the ferry")], max_tokens=cap)[0]
        assert (reply.finish, reply.new_tokens, len(reply.token_ids)) == ("length", cap, cap)


def test_a_prompt_that_does_not_fit_gets_an_error_and_the_others_an_answer() -> None:
    made = receiver()
    long = user("x" * 600)
    replies = made.reply([PROMPTS[0], long, PROMPTS[1]], max_tokens=6, samples=2, temperature=0.5)
    assert [reply.finish == "error" for reply in replies] == [False, False, True, True, False, False]
    assert "exceed the model's context of 512" in (replies[2].error or "")
    assert (replies[2].text, replies[2].token_ids, replies[2].new_tokens) == ("", (), None)
    assert replies[2].prompt_tokens == len(made.encoder.encode(long))
    alone = made.reply([PROMPTS[0], PROMPTS[1]], max_tokens=6, samples=2, temperature=0.5)
    assert tokens(replies[:2] + replies[4:]) == tokens(alone)
    fitting = 512 - len(made.encoder.encode(PROMPTS[0]))
    assert made.reply([PROMPTS[0]], max_tokens=fitting)[0].finish != "error"
    assert made.reply([PROMPTS[0]], max_tokens=fitting + 1)[0].finish == "error"


@pytest.mark.parametrize(
    "wrong",
    [{"max_tokens": 0}, {"samples": 0}, {"temperature": -1.0}, {"temperature": math.inf}, {"temperature": math.nan}],
)
def test_senseless_decoding_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="need >= 1, >= 1, >= 0"):
        receiver().reply(PROMPTS[:1], **wrong)


def test_one_text_is_no_list_of_stop_strings() -> None:
    with pytest.raises(ValueError, match="stop: 'END' is one text, not a list"):
        receiver().reply(PROMPTS[:1], stop="END")


def test_a_stop_string_in_a_capped_opening_is_a_stop() -> None:
    schema = {"type": "object", "properties": {"label": {"const": "x" * 40}}, "required": ["label"]}
    reply = receiver().reply([Prompt(PROMPTS[0].turns, schema)], max_tokens=4, stop=('"',))[0]
    assert (reply.text, reply.finish) == ("{", "stop")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_whose_numbers_overflow_gives_an_error_and_no_reply(temperature: float) -> None:
    """Not a number is no likeliest token: argmax would name token 0, a draw one beyond the vocabulary."""
    made = chat_receiver("llama", dtype=torch.float64, pack=False)
    sick = made.encoder.encode_text("mill")[0]
    made.runner.model.get_input_embeddings().weight.data[sick] = torch.nan
    broken, well = made.reply([user("mill"), user("the ferry")], max_tokens=5, temperature=temperature)
    assert (broken.finish, broken.text, broken.token_ids, broken.new_tokens) == ("error", "", (), None)
    assert "float64 logits name no likeliest token" in (broken.error or "")
    assert well.error is None and well.new_tokens


# --------------------------------------------------------------------------------------------------------------------------- bias


def test_a_bias_moves_the_first_choice_and_no_other() -> None:
    """In nats: it lifts a text's first token by a known margin, and what follows is decoded without it."""
    made, model = receiver(), plain()
    for prompt in PROMPTS:
        ids = made.encoder.encode(prompt)
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, -1]
        wanted = made.encoder.encode_text("the")[0]
        gap = float(logits.max() - logits[wanted])
        lifted = Prompt(prompt.turns, bias=(("the ferry", gap + 0.01),))
        short = Prompt(prompt.turns, bias=(("the ferry", gap - 0.01),))
        moved, stayed, plainly = made.reply([lifted, short, prompt], max_tokens=8)
        assert moved.token_ids == (wanted, *generate(model, [*ids, wanted], 7))
        assert stayed.token_ids == plainly.token_ids


def test_a_bias_waits_for_the_first_choice_of_a_schema() -> None:
    fields = {"label": {"enum": ["Yes", "No", "Maybe"]}, "again": {"enum": ["Yes", "No", "Maybe"]}}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    made = chat_receiver("llama", dtype=torch.float64, pack=False)
    free = json.loads(made.reply([Prompt(PROMPTS[0].turns, schema)], max_tokens=60)[0].text)
    for label in fields["label"]["enum"]:
        value = json.loads(made.reply([Prompt(PROMPTS[0].turns, schema, ((label, 50.0),))], max_tokens=60)[0].text)
        assert value["label"] == label
        if label == free["label"]:
            assert value == free
    assert (
        len(
            {made.reply([Prompt(PROMPTS[0].turns, schema, ((x, 50.0),))], max_tokens=60)[0].text for x in ("Yes", "No")}
        )
        == 2
    )
    mixed = made.reply([Prompt(PROMPTS[0].turns, schema, (("Yes", -50.0), ("No", -50.0))), PROMPTS[0]], max_tokens=60)
    assert json.loads(mixed[0].text)["label"] == "Maybe"
    assert mixed[1].token_ids == made.reply([PROMPTS[0]], max_tokens=60)[0].token_ids, "a neighbour is not moved"


@pytest.mark.parametrize("bias", [(("", 1.0),), (("the ferry", 1.0), ("the mill", 2.0)), (("a", 1.0), ("a", 2.0))])
def test_a_bias_that_cannot_tell_its_texts_apart_is_refused(bias: tuple[tuple[str, float], ...]) -> None:
    with pytest.raises(ValueError, match="bias: the texts .* must begin with tokens of their own"):
        receiver().reply([Prompt(PROMPTS[0].turns, bias=bias)])


@pytest.mark.parametrize("nats", [math.inf, -math.inf, math.nan])
def test_a_bias_without_a_size_is_refused(nats: float) -> None:
    with pytest.raises(ValueError, match="bias: .* must be finite"):
        receiver().reply([Prompt(PROMPTS[0].turns, bias=(("the", nats),))])


def test_a_bias_waits_for_a_choice_that_one_of_its_texts_can_be() -> None:
    """Qwen's tokenizer leaves the `":"` before SUPPORT to the model; a bias spent there would move nothing."""
    made = chat_receiver("llama", dtype=torch.float64, pack=False)
    fields = {
        "n": {"enum": [1, 2]},
        "label": {"enum": ["Yes", "No", "Maybe"]},
        "again": {"enum": ["Yes", "No", "Maybe"]},
    }
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    free = json.loads(made.reply([Prompt(PROMPTS[0].turns, schema)], max_tokens=60)[0].text)
    for label in fields["label"]["enum"]:
        value = json.loads(made.reply([Prompt(PROMPTS[0].turns, schema, ((label, 1e4),))], max_tokens=60)[0].text)
        assert (value["n"], value["label"]) == (free["n"], label)
        assert label != free["label"] or value == free


# ----------------------------------------------------------------------------------------------------------------------- identity


def test_keys_name_the_exact_input() -> None:
    made = receiver()
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}}
    prompts = [
        user("a"),
        user("b"),
        Prompt((Turn("system", "a"), Turn("user", "a"))),
        Prompt((Turn("user", "a"),), schema),
    ]
    prompts.append(Prompt((Turn("user", "a"),), bias=(("x", 1.0),)))
    keys = [made.prompt_key(prompt) for prompt in prompts]
    assert len(set(keys)) == 5
    assert made.prompt_key(user("a")) == keys[0]
    # The order of properties decides the order of the reply, so it is part of what was asked.
    fields = {"p": {"enum": ["x", "y"]}, "q": {"enum": ["x", "y"]}}
    turned = dict(reversed(fields.items()))
    left, right = (Prompt((Turn("user", "a"),), {"type": "object", "properties": order}) for order in (fields, turned))
    assert made.prompt_key(left) != made.prompt_key(right)


def test_fingerprint_tells_weights_precision_and_packing_apart() -> None:
    packed, wide = receiver("llama", double=False), receiver("llama")
    plain_linear = chat_receiver("llama", ends=ENDS, pack=False)
    assert len({packed.fingerprint, wide.fingerprint, plain_linear.fingerprint}) == 3
    again = TransformersReceiver(loaded=packed.loaded)
    assert again.fingerprint == packed.fingerprint, "the same weights, packed already"
    assert tokens(again.reply(PROMPTS, max_tokens=5)) == tokens(packed.reply(PROMPTS, max_tokens=5))
    assert isinstance(packed, Receiver)
    other = packed.loaded.model
    try:
        other.config.rope_parameters = {**other.config.rope_parameters, "rope_theta": 500.0}
        assert TransformersReceiver(loaded=packed.loaded).fingerprint != packed.fingerprint, (
            "the same file, other positions"
        )
    finally:
        other.config.rope_parameters = {**other.config.rope_parameters, "rope_theta": 10_000.0}
    ends = chat_receiver("llama", ends=ENDS - 1)
    assert ends.loaded.sha256 == packed.loaded.sha256 and ends.fingerprint != packed.fingerprint


def test_tokens_are_counted_without_special_ones() -> None:
    made = receiver()
    assert made.count_tokens(["", "the", "<|end|>"]) == [0, 1, len(made.encoder.encode_text("<|end|>"))]
    assert made.count_tokens(["<|end|>"])[0] > 1


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("mistral", {"sliding_window": 8}, "MistralAttention uses a sliding window"),
        ("qwen3", {"use_sliding_window": True, "max_window_layers": 0}, "qwen3: layers"),
    ],
)
def test_windowed_models_are_refused_by_name(family: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        chat_receiver(family, **changes)


def test_bfloat16_answers_and_says_so() -> None:
    """Row 21: in bfloat16 answers may differ with the batch; the fingerprint keeps them apart from float32 ones."""
    made = chat_receiver("qwen2", ends=ENDS, dtype=torch.bfloat16)
    assert made.loaded.dtype == "bfloat16"
    assert made.fingerprint != receiver("qwen2", double=False).fingerprint
    replies = made.reply(PROMPTS, max_tokens=12)
    assert all(reply.finish in ("stop", "length") for reply in replies)
    made.warm_up()


# -------------------------------------------------------------------------------------------------------------------- real models


@pytest.mark.slow
@pytest.mark.real("smollm2-135m")
def test_smollm2_decodes_as_generate_does_and_obeys_a_schema() -> None:
    from lib.models.weights import load_weights

    made = TransformersReceiver("smollm2-135m", device="cpu")
    model = load_weights("smollm2-135m", device="cpu", dtype="float32").model
    assert made.loaded.dtype == "float32"
    prompts = [
        user("What is the capital of France?"),
        user("What is the capital of Norway?"),
        user("Say <|im_end|> twice."),
    ]
    replies = made.reply(prompts, max_tokens=8)
    for prompt, reply in zip(prompts, replies, strict=True):
        ids = made.encoder.encode(prompt)
        assert ids[0] == made.tokenizer.bos_token_id != ids[1]
        asked = torch.tensor([ids])
        with torch.inference_mode():
            out = model.generate(asked, attention_mask=torch.ones_like(asked), max_new_tokens=8, do_sample=False)
            logits = model(asked).logits[0, -1].log_softmax(-1)
        assert reply.token_ids == tuple(token for token in out[0, len(ids) :].tolist() if token not in made.eos)
        options = [" Paris", "The", "Oslo"]
        expected = [float(logits[made.encoder.encode_text(option)[0]]) for option in options]
        ones = [index for index, option in enumerate(options) if len(made.encoder.encode_text(option)) == 1]
        scores = made.score([prompt], options)[0]
        assert len(ones) >= 2 and np.allclose(scores[ones], np.asarray(expected)[ones], atol=1e-4)
    assert "Paris" in replies[0].text
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Oslo"]}, "why": {"type": "string", "maxLength": 12}},
        "required": ["city", "why"],
        "additionalProperties": False,
    }
    bound = made.reply([Prompt(prompt.turns, schema) for prompt in prompts[:2]], max_tokens=40)
    for reply in bound:
        value = json.loads(reply.text)
        assert value["city"] in ("Paris", "Oslo") and len(value["why"]) <= 12 and list(value) == ["city", "why"]
