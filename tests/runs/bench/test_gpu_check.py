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
    for cards, device in ((0, "cuda"), (0, "cuda:0"), (1, "cuda:1")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda cards=cards: cards)
        said: list[str] = []
        assert gpu_check(tmp_path, "qwen-coder-0.5b", device, said.append) == 2
        assert f"no device {device} here" in said[0] and not list(tmp_path.iterdir())


def test_a_check_that_cannot_run_has_failed_and_the_others_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(family: str, dtype: torch.dtype, device: str) -> module.Check:
        if (family, dtype) == ("qwen2", torch.bfloat16):
            raise RuntimeError("no kernel\nfor this card")
        return module.Check(family, str(dtype), 4, 0.0, 4, None, ok=True)

    table = pd.DataFrame({"contender": ["prefix tree"], "failure": [None]})
    columns = ["tokens_read", "seconds", "least", "most", "replays_per_second", "times_faster", "same_outputs"]
    monkeypatch.setattr(module, "check_family", check)
    monkeypatch.setattr(module, "timings", lambda *given: table.assign(**dict.fromkeys(columns, 1.0)))
    said: list[str] = []
    assert gpu_check(tmp_path, "m", "cpu", said.append) == 1
    assert "FAILED qwen2 bfloat16: RuntimeError: no kernel for this card" in said
    kept = pd.read_json(tmp_path / "gpu_check.json")
    assert len(kept) == 6 and kept["ok"].sum() == 5


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
