"""The comparison of replay engines, on a tiny random model."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.autograd import DeviceType

import lib.runs.bench.profile as profile_module
from lib.evaluation.bench_figures import engine_figure
from lib.models import random_models
from lib.models.prefix_tree import build_tree
from lib.models.weights import WeightsError
from lib.runs.bench.command import Bench, Plan, bench, shown
from lib.runs.bench.contenders import Generate, SharedPrefix, until_end
from lib.runs.bench.outputs import differences, same_outputs
from lib.runs.bench.profile import group_of
from lib.runs.bench.prompts import replay_prompts
from lib.runs.bench.roof import Roof, measure_roof


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tiny")
    random_models.chat_model("llama", max_position_embeddings=16_384).save_pretrained(place)
    random_models.chat_tokenizer().save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def made(folder: Path) -> Bench:
    plan = Plan(packets=2, new_tokens=3, more_tasks=(2,))
    return Bench(str(folder), "float32", "cpu", plan, lambda line: None)


@pytest.fixture(scope="module")
def table(made: Bench) -> pd.DataFrame:
    return made.point(2, 1, 3, 2, math.inf).set_index("contender")


def test_prompts_are_the_replay_of_each_task() -> None:
    prompts = replay_prompts(4, 3)
    assert len(prompts) == 3 * (2 * 4 + 2)
    assert len({prompt.turns for prompt in prompts}) == len(prompts)
    assert all(prompt.schema is None for prompt in prompts)


@pytest.mark.parametrize(("packets", "tasks"), [(1, 1), (2, 1), (25, 1), (64, 2)])
def test_any_number_of_packets_can_be_asked_for(packets: int, tasks: int) -> None:
    """2n + 2 prompts a task, fewer where sets coincide (n = 1: full is alone; n = 2: without one is the other)."""
    expected = {1: 2, 2: 4}.get(packets, 2 * packets + 2)
    assert len(replay_prompts(packets, tasks)) == tasks * expected


def test_no_packets_are_refused() -> None:
    with pytest.raises(ValueError, match="packets and tasks must be 1 or more"):
        replay_prompts(0)


@pytest.mark.parametrize(("tokens", "kept"), [((5, 6, 2, 9), (5, 6)), ((2,), ()), ((5, 6), (5, 6)), ((), ())])
def test_what_follows_the_end_does_not_count(tokens: tuple[int, ...], kept: tuple[int, ...]) -> None:
    assert until_end(tokens, frozenset({2})) == kept


def test_contenders_agree_in_float32(table: pd.DataFrame) -> None:
    """Same prompts, same weights: every contender decodes the same tokens."""
    assert len(table) == 5
    assert (table["same_outputs"] == table["prompts"]).all() and (table["prompts"] == 4).all()
    assert table["largest_gap"].isna().all()
    assert table.loc["one at a time", "times_faster"] == pytest.approx(1.0)
    assert (table["least"] <= table["seconds"]).all() and (table["seconds"] <= table["most"]).all()


def test_tokens_read_are_counted_exactly(table: pd.DataFrame, made: Bench) -> None:
    encoded = [made.receiver.encoder.encode(prompt) for prompt in made.prompts[2, 1]]
    lengths = sorted(map(len, encoded))
    shared = len(lengths and _common(encoded))
    batch = made.batch
    read = table["tokens_read"]
    assert read["one at a time"] == sum(lengths) == table["naive_tokens"].iloc[0]
    assert read["prefix tree"] == len(build_tree(encoded)) == table["trie_tokens"].iloc[0]
    assert read["shared prefix"] == shared + sum(length - shared for length in lengths)
    assert read[f"sorted batches of {batch}"] == sum(
        max(part) * len(part) for part in (lengths[at : at + batch] for at in range(0, len(lengths), batch))
    )
    assert read.idxmin() == "prefix tree"


def _common(encoded: list[list[int]]) -> list[int]:
    shared = []
    for column in zip(*encoded, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(column[0])
    return shared


def test_a_contender_that_would_take_too_long_sits_out(made: Bench) -> None:
    made.speeds["one at a time"] = 1.0  # tokens a second
    late = made.point(2, 2, 3, 1, 60.0).set_index("contender")
    assert pd.isna(late.loc["one at a time", "seconds"]) and late.loc["prefix tree", "seconds"] > 0
    assert pd.isna(late.loc["prefix tree", "same_outputs"])  # nothing to compare with
    assert late["prompts"].tolist() == [8] * 5


def test_a_point_where_all_sit_out_has_rows_without_numbers(made: Bench) -> None:
    speeds = dict(made.speeds)
    made.speeds.update(dict.fromkeys(speeds, 1.0))
    late = made.point(2, 2, 3, 1, 60.0)
    made.speeds = speeds
    assert late["seconds"].isna().all() and len(late) == 5
    assert "same" in shown(late) and "nan" not in shown(late).lower()
    assert engine_figure(made.point(2, 1, 3, 1, math.inf), late).axes


def test_a_contender_that_fails_does_not_stop_the_others(made: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a batch that does not fit a card, after the first round."""
    right, calls = SharedPrefix.generate, []

    def full(self: SharedPrefix, encoded: list[list[int]], new_tokens: int) -> list[tuple[int, ...]]:
        calls.append(len(encoded))
        if len(calls) > 2:
            raise RuntimeError("out of\nmemory")
        return right(self, encoded, new_tokens)

    monkeypatch.setattr(SharedPrefix, "generate", full)
    rows = made.point(2, 1, 3, 3, math.inf).set_index("contender")
    assert calls == [2, 4, 4], "two prompts before the clock, one round, and not asked again"
    assert rows["failure"].dropna().to_dict() == {"shared prefix": "RuntimeError: out of memory"}
    assert pd.isna(rows.loc["shared prefix", "seconds"]) and rows["seconds"].notna().sum() == 4


def test_a_run_with_a_failed_contender_is_kept_and_fails(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: SharedPrefix, encoded: list[list[int]], new_tokens: int) -> list[tuple[int, ...]]:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(SharedPrefix, "generate", full)
    assert (
        bench(tmp_path, str(folder), "float32", "cpu", Plan(packets=1, new_tokens=2, rounds=1), lambda line: None) == 1
    )
    kept = pd.read_parquet(tmp_path / "bench.parquet")
    # With one packet half of the prompts is one prompt: padded batches of it would be the baseline under another name.
    assert kept["contender"].tolist() == ["one at a time", "shared prefix", "prefix tree"]


@pytest.mark.parametrize("wrong", [{"packets": 600}, {"new_tokens": 16_000}, {"more_packets": (600,)}])
def test_prompts_beyond_the_context_are_refused(folder: Path, wrong: dict[str, Any]) -> None:
    """The suite answers such a prompt with an error, in no time: the table would call that fast."""
    with pytest.raises(WeightsError, match="do not fit its context of 16384; ask for fewer packets or new tokens"):
        Bench(str(folder), "float32", "cpu", Plan(**{"packets": 2, **wrong}), lambda line: None)


def test_a_model_that_is_not_covered_is_one_line(tmp_path: Path) -> None:
    random_models.chat_model("llama").save_pretrained(tmp_path)
    random_models.chat_tokenizer(None).save_pretrained(tmp_path)
    with pytest.raises(WeightsError, match="no chat template"):
        Bench(str(tmp_path), "float32", "cpu", Plan(), lambda line: None)


def test_the_plan_is_run_printed_and_kept(folder: Path, tmp_path: Path) -> None:
    said: list[str] = []
    plan = Plan(packets=2, new_tokens=2, rounds=1, more_packets=(2, 3), more_tasks=(1,))
    assert bench(tmp_path, str(folder), "float32", "cpu", plan, said.append) == 0
    for name in ("bench", "profile", "curve_packets", "curve_tasks"):
        assert (tmp_path / f"{name}.json").is_file()
    assert (tmp_path / "bench.png").stat().st_size > 10_000
    assert set(pd.read_parquet(tmp_path / "curve_packets.parquet")["packets"]) == {2, 3}
    assert any("prefix tree" in line and "of roof" in line for line in said)
    assert any("llama.cpp" in line for line in said)  # skipped with a reason, or timed


def test_growth_panels_leave_gaps_where_a_contender_sat_out(table: pd.DataFrame) -> None:
    rows = pd.concat([table.reset_index(), table.reset_index().assign(packets=4)], ignore_index=True)
    rows.loc[rows.index[-5], "seconds"] = np.nan
    figure = engine_figure(table.reset_index(), rows)
    line = next(line for line in figure.axes[1].lines if line.get_label() == "one at a time")
    assert list(line.get_xdata()) == [2]
    assert "prefix tree" in shown(table.reset_index())


# ------------------------------------------------------------------------------------------------------- profile, roof and outputs


@pytest.mark.parametrize(
    ("operator", "group"),
    [
        ("mkldnn::_linear_pointwise", "matrix products"),
        ("aten::mm", "matrix products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("fmha_cutlassf_bf16_gemm", "attention"),
        ("aten::silu", "other operators"),
    ],
)
def test_operators_are_grouped_by_name(operator: str, group: str) -> None:
    assert group_of(operator) == group


def test_the_groups_of_the_profile_fill_the_call(made: Bench) -> None:
    groups = made.profile(Plan(packets=2, new_tokens=3)).set_index("group")
    assert set(groups.index) == {"matrix products", "attention", "other operators", "outside operators"}
    assert groups["share"].sum() == pytest.approx(1.0, abs=0.02)
    assert (groups.loc[["matrix products", "attention"], "seconds"] > 0).all()


def test_on_a_card_a_kernel_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The profiler lists an operator with the time of its kernels, and the kernels again."""
    times = [
        ("aten::mm", DeviceType.CPU, 4e6),
        ("ampere_gemm", DeviceType.CUDA, 4e6),
        ("aten::add", DeviceType.CPU, 1e6),
    ]
    events = [
        SimpleNamespace(key=key, device_type=kind, self_device_time_total=own, self_cpu_time_total=9e9)
        for key, kind, own in times
    ]
    seen = nullcontext(SimpleNamespace(key_averages=lambda: events))
    monkeypatch.setattr(profile_module, "profile", lambda activities: seen)
    monkeypatch.setattr(profile_module, "wait", lambda device: None)
    engine = SimpleNamespace(generate=lambda encoded, new_tokens: [])
    groups = profile_module.profiled(engine, [[1]], 1, torch.device("cuda")).set_index("group")["seconds"]
    assert (groups["matrix products"], groups["other operators"], groups["attention"]) == (4.0, 1.0, 0.0)


def test_the_floor_adds_layers_and_head() -> None:
    assert Roof(layer_rows=500.0, head_rows=100.0).seconds(1000, 50) == pytest.approx(2.5)


def test_the_roof_is_measured_on_every_linear_layer_once_a_try() -> None:
    model = random_models.chat_model("qwen2")
    calls: list[int] = []
    linears = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    hooks = [module.register_forward_hook(lambda *seen: calls.append(len(seen[1][0]))) for module in linears]
    roof = measure_roof(model, tries=2)
    for hook in hooks:
        hook.remove()
    assert len(calls) == 3 * len(linears)
    assert roof.layer_rows > 0 and roof.head_rows > 0


def test_a_difference_is_placed_and_measured(made: Bench) -> None:
    plain, ends = made.plain, made.receiver.eos
    encoded = [[5, 6, 7], [5, 6, 8, 9]]
    expected = Generate(plain, ends).generate(encoded, 4)
    wrong = [expected[0], (*expected[1][:2], (expected[1][2] + 1) % 200 + 3, 7)]
    assert same_outputs(wrong, expected) == 1
    (found,) = differences(plain, ends, encoded, wrong, expected)
    assert (found.prompt, found.place) == (1, 2)
    ids = torch.tensor([[*encoded[1], *expected[1][:2]]])
    logits = plain.model(input_ids=ids).logits[0, -1]
    assert found.gap == pytest.approx(float(logits[expected[1][2]] - logits[wrong[1][2]]), abs=1e-4)
    assert found.gap > 0 and found.steps > 1


def test_ending_early_is_a_choice_of_the_end_token(made: Bench) -> None:
    plain, ends = made.plain, made.receiver.eos
    encoded = [[5, 6, 7]]
    expected = Generate(plain, ends).generate(encoded, 4)
    (found,) = differences(plain, ends, encoded, [expected[0][:1]], expected)
    logits = plain.model(input_ids=torch.tensor([[*encoded[0], expected[0][0]]])).logits[0, -1]
    assert found.place == 1
    assert found.gap == pytest.approx(float(logits[expected[0][1]] - max(logits[end] for end in ends)), abs=1e-4)


def test_a_prompt_that_begins_another_is_continued_from_the_shared_prefix(made: Bench) -> None:
    """Equal prompts and a prompt that is the whole shared prefix: a token to decode from is kept for each."""
    plain, ends = made.plain, made.receiver.eos
    encoded = [[5, 6, 7], [5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 8, 9]]
    assert SharedPrefix(plain, ends).generate(encoded, 4) == Generate(plain, ends).generate(encoded, 4)
