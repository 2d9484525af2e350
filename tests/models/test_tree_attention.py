"""Tree attention against the model's own forward, on random models of four families."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lib.models.prefix_tree import build_tree
from lib.models.random_models import VOCABULARY, chat_config, chat_model
from lib.models.tree_attention import RowPlan, TreeRunner, tree_attention
from tests.models.strategies import token_sets

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")


@cache
def both(family: str) -> tuple[Any, TreeRunner]:
    """Return a plain model and a runner over the same random numbers, in float64: what differs there is not rounding."""
    return chat_model(family, dtype=torch.float64), TreeRunner(chat_model(family, dtype=torch.float64))


def close(got: Tensor, expected: Tensor) -> bool:
    """Say whether logits agree; the runner hands them out in float32."""
    return torch.allclose(got.double(), expected.double(), rtol=1e-6, atol=1e-6)


@torch.inference_mode()
def plain_logits(model: Any, prompt: list[int]) -> Tensor:
    """Return the logits of the model's own forward, shape (length, vocabulary)."""
    return model(torch.tensor([prompt]), use_cache=False).logits[0]


@torch.inference_mode()
def leaf_logits(runner: TreeRunner, prompts: list[list[int]]) -> Tensor:
    tree = build_tree(prompts)
    _, states = runner.read(tree, np.asarray(tree.leaf))
    return runner.logits(states)


# ----------------------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40)
@given(prompts=token_sets(high=60, longest=30), chunk=st.sampled_from([1, 7, 16, 1024]))
def test_leaves_have_the_logits_of_a_plain_forward(family: str, prompts: list[list[int]], chunk: int) -> None:
    """Whatever is shared, cut into chunks and ordered, a leaf's logits are those of its prompt alone."""
    model, runner = both(family)
    runner.chunk_tokens = chunk
    before = runner.forward_tokens
    got = leaf_logits(runner, prompts)
    runner.chunk_tokens = 1024
    assert runner.forward_tokens - before == len(build_tree(prompts)), "one forward row a slot, no padding"
    for row, prompt in zip(got, prompts, strict=True):
        assert close(row, plain_logits(model, prompt)[-1])


def test_the_model_reads_its_context() -> None:
    """The comparison above means something only if the logits hang on every earlier token."""
    model, _ = both("llama")
    base = [5, 9, 13, 17, 21, 25, 29, 33]
    logits = plain_logits(model, base)[-1]
    for place in range(len(base) - 1):
        other = [*base]
        other[place] = 50
        assert (plain_logits(model, other)[-1] - logits).abs().max() > 1e-3, place


def test_inner_slots_can_be_wanted_too() -> None:
    model, runner = both("qwen3")
    prompts = [[5, 6, 7, 8], [5, 6, 9]]
    tree = build_tree(prompts)
    wanted = np.sort(tree.slots(0))
    with torch.inference_mode():
        _, states = runner.read(tree, wanted)
        got = runner.logits(states)
    assert close(got, plain_logits(model, prompts[0]))


def test_logits_are_computed_a_bounded_number_of_rows_at_a_time() -> None:
    _, runner = both("llama")
    states = torch.randn(7, runner.config.hidden_size, dtype=torch.float64)
    whole = runner.logits(states)
    seen: list[int] = []
    head = runner.model.get_output_embeddings()
    handle = head.register_forward_hook(lambda module, args, out: seen.append(len(args[0])))
    runner.head_rows = 3
    try:
        assert close(runner.logits(states), whole)
    finally:
        runner.head_rows = 128
        handle.remove()
    assert seen == [3, 3, 1]


# ---------------------------------------------------------------------------------------------------------------------- decoding


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40)
@given(prompts=token_sets(high=60), data=st.data())
def test_rows_continue_as_a_plain_forward_would(family: str, prompts: list[list[int]], data: st.DataObject) -> None:
    """Several tokens at once, unequal numbers of them, rows left out of a step, dropped rows and grown buffers."""
    model, runner = both(family)
    tree = build_tree(prompts)
    with torch.inference_mode():
        store, _ = runner.read(tree, np.asarray(tree.leaf))
        buffer = runner.rows_from(tree, store, range(len(prompts)), extra=2)
        texts = [list(prompt) for prompt in prompts]
        for _ in range(data.draw(st.integers(1, 3))):
            new = data.draw(
                st.lists(st.lists(st.integers(3, 60), max_size=3), min_size=len(texts), max_size=len(texts))
            )
            live = [row for row, tokens in enumerate(new) if tokens]
            if not live:
                continue
            columns = np.concatenate([len(texts[row]) + np.arange(len(new[row])) for row in live])
            if columns.max() >= buffer.length:
                buffer = buffer.grow(4)
            rows = np.concatenate([[row] * len(new[row]) for row in live])
            before = runner.forward_tokens
            states = runner.hidden(np.concatenate([new[row] for row in live]), columns, RowPlan(buffer, rows, columns))
            assert runner.forward_tokens - before == len(rows)
            logits = runner.logits(states)
            for row in live:
                texts[row] += new[row]
                expected = plain_logits(model, texts[row])[-len(new[row]) :]
                assert close(logits[torch.as_tensor(rows == row)], expected)
            if len(texts) > 1 and data.draw(st.booleans()):
                kept = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, unique=True).map(sorted))
                buffer, texts = buffer.keep(kept), [texts[row] for row in kept]
                assert len(buffer) == len(kept)


def test_two_continuations_of_one_prefix_do_not_disturb_each_other() -> None:
    """Row 24 of the fault reports (transformers#34232, #24841): a cache continued twice without a copy was polluted."""
    model, runner = both("qwen2")
    stem, ends = [5, 6, 7, 8, 9], ([11, 12, 13], [21, 22])
    tree = build_tree([stem])
    with torch.inference_mode():
        store, _ = runner.read(tree, np.asarray(tree.leaf))
        for _ in range(2):  # the same store serves again and again
            for end in ends:
                buffer = runner.rows_from(tree, store, [0], extra=3)
                columns = len(stem) + np.arange(len(end))
                states = runner.hidden(
                    np.asarray(end), columns, RowPlan(buffer, np.zeros(len(end), dtype=int), columns)
                )
                expected = plain_logits(model, stem + end)[len(stem) :]
                assert close(runner.logits(states), expected)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.2)])
def test_lower_precision_stays_near(dtype: torch.dtype, tolerance: float) -> None:
    model, runner = chat_model("qwen2", dtype=dtype), TreeRunner(chat_model("qwen2", dtype=dtype))
    prompts = [[5, 6, 7, 8], [5, 6, 9, 9, 9], [5, 6], [7]]
    got = leaf_logits(runner, prompts)
    assert got.dtype == torch.float32
    for row, prompt in zip(got, prompts, strict=True):
        assert (row - plain_logits(model, prompt)[-1]).abs().max() < tolerance


# ---------------------------------------------------------------------------------------------------------------------- refusals


def other_model(name: str, **changes: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    wide = {"intermediate_size": 48, "num_key_value_heads": 2, "initializer_range": 0.25, "pad_token_id": 0}
    settings = {**sizes, **(wide if name not in ("bloom", "mamba") else {}), **changes}
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **settings)).eval()


@pytest.mark.parametrize(
    ("model", "changes", "reason"),
    [
        ("mistral", {"sliding_window": 4}, "MistralAttention uses a sliding window"),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 0}, r"qwen2: layers \['sliding_attention'\]"),
        ("gemma2", {"head_dim": 8}, r"gemma2: layers \['sliding_attention'\]"),
        ("gemma2", {"head_dim": 8, "layer_types": ["full_attention"] * 2}, "Gemma2Attention uses soft-capping"),
        (
            "gpt_oss",
            {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "layer_types": ["full_attention"] * 2},
            "GptOssAttention uses attention sinks",
        ),
        ("mamba", {}, r"mamba: layers \['linear_attention'\]"),
        ("bloom", {}, "bloom: 0 of 2 layers used the attention interface"),
        ("cohere", {"logit_scale": 0.25}, r"cohere: scales or caps its logits \(300% of the largest\)"),
        ("granite", {"logits_scaling": 8.0}, "granite: scales or caps its logits"),
        ("nanochat", {}, "nanochat: scales or caps its logits"),
        ("stablelm", {}, "StableLmAttention called prefix-tree attention without a plan: .* not supported"),
        (
            "gpt_bigcode",
            {"n_embd": 32, "n_head": 4, "n_layer": 2},
            "GPTBigCodeAttention uses keys and values of unlike sizes",
        ),
    ],
)
def test_models_it_would_compute_wrongly_are_refused_by_name(model: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TreeRunner(other_model(model, **changes))


def test_rotary_positions_that_hang_on_the_length_of_the_text_are_refused() -> None:
    """A long neighbour would change the positions, and so the reply, of a short prompt."""
    scaled = {"rope_type": "longrope", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16}
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    with pytest.raises(ValueError, match="llama: rotary positions of kind 'longrope' are not supported"):
        TreeRunner(chat_model("llama", rope_parameters={**scaled, **factors}))
    model = chat_model("llama", dtype=torch.float64, rope_parameters={**scaled, "rope_type": "yarn"})
    expected = plain_logits(model, [*range(5, 50)])[-1]
    runner = TreeRunner(chat_model("llama", dtype=torch.float64, rope_parameters={**scaled, "rope_type": "yarn"}))
    assert close(leaf_logits(runner, [[5, 6], [*range(5, 50)]])[1], expected), "scaled alike for every length"


def test_numbers_that_overflow_are_named() -> None:
    model = chat_model("llama", dtype=torch.float16)
    model.get_output_embeddings().weight.data[7] = torch.inf
    with pytest.raises(ValueError, match="llama: its logits in torch.float16 are not numbers; try dtype='float32'"):
        TreeRunner(model)


def test_families_without_grouped_heads_work_too() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        initializer_range=0.25,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config).eval()
    expected = plain_logits(model, [5, 6, 7])[-1]
    assert torch.allclose(leaf_logits(TreeRunner(model), [[5, 6, 7], [5, 8]])[0], expected, atol=1e-4)


def test_a_call_without_a_plan_is_refused() -> None:
    nothing = torch.zeros(1, 1, 1, 4)
    with pytest.raises(ValueError, match="without a plan: the model was not run through TreeRunner"):
        tree_attention(torch.nn.Linear(1, 1), nothing, nothing, nothing, None)


def test_a_second_runner_over_one_model_is_fine() -> None:
    model = chat_model("llama")
    first = leaf_logits(TreeRunner(model), [[5, 6, 7]])
    assert torch.equal(leaf_logits(TreeRunner(model), [[5, 6, 7]]), first)
    assert chat_config("llama").vocab_size == VOCABULARY == first.shape[1]


@pytest.mark.parametrize(("dtype", "accepted"), [(torch.bfloat16, True), (torch.float32, False)])
def test_rounding_between_plain_attentions_excuses_half_precision_only(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, accepted: bool
) -> None:
    """On a real 1.5 B model in bfloat16 eager and sdpa attention differ by a tenth on the probe; the tree agrees with one of them."""
    plain = TreeRunner._plain_logits
    off = {"eager": 1.2, "sdpa": 1.0}
    monkeypatch.setattr(TreeRunner, "_plain_logits", lambda self, ids, name: plain(self, ids, name) * off[name])
    model = chat_model("llama", dtype=dtype)
    if accepted:
        TreeRunner(model)
    else:
        with pytest.raises(ValueError, match="logits differ"):
            TreeRunner(model)
