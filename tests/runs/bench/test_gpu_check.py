"""The check of a graphics card, run on the processor: the same code, another device."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from lib.models.tree_attention import TreePlan
from lib.runs.bench import gpu_check as module
from lib.runs.bench.gpu_check import FAMILIES, check_family, gpu_check


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_agrees(family: str) -> None:
    check = check_family(family, torch.float32, "cpu", packets=3, new_tokens=6)
    assert check.ok and check.same_outputs == check.prompts and check.largest_gap_steps is None


def test_a_wrong_attention_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TreePlan.attend
    quiet = module.TransformersReceiver.__init__

    def wrong(self: TreePlan, layer: int, query, key, value, scaling):  # type: ignore[no-untyped-def]
        return right(self, layer, query, key, value, scaling * 1.2)

    def made(self, **options):  # type: ignore[no-untyped-def]
        quiet(self, **options)  # the receiver's own probe at load time would catch it first
        monkeypatch.setattr(TreePlan, "attend", wrong)

    monkeypatch.setattr(module.TransformersReceiver, "__init__", made)
    check = check_family("llama", torch.float32, "cpu", packets=3, new_tokens=6)
    assert not check.ok


def test_without_a_card_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said: list[str] = []
    assert gpu_check(tmp_path, "qwen-coder-0.5b", "cuda", said.append) == 2
    assert "no CUDA device" in said[0] and not list(tmp_path.iterdir())


def test_the_whole_check_runs_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "max_position_embeddings": 32_768}
    monkeypatch.setattr(module, "SHAPE", {**small, "num_attention_heads": 4, "num_key_value_heads": 2})
    timings = module.timings
    monkeypatch.setattr(module, "timings", lambda *given: timings(*given, packets=2, new_tokens=3))
    check = module.check_family
    monkeypatch.setattr(module, "check_family", lambda *given: check(*given, packets=2, new_tokens=4))
    said: list[str] = []
    assert gpu_check(tmp_path, str(tmp_path / "missing"), "cpu", said.append) == 0
    assert sum(line.startswith("ok") for line in said) == 6
    assert any("random weights" in line for line in said)
    table = pd.read_json(tmp_path / "gpu_bench.json").set_index("contender")
    assert table.loc["prefix tree", "tokens_read"] == table.loc["prefix tree", "trie_tokens"]
    assert len(pd.read_json(tmp_path / "gpu_check.json")) == 6
