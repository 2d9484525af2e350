"""Packed linear layers against plain ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lib.models.packed_linear as packing
import lib.models.transformers_receiver as engine
from lib.models.packed_linear import PackedLinear, can_pack, pack_linears
from lib.models.random_models import chat_model
from lib.models.receiver import Prompt, Turn
from tests.models.tiny import chat_receiver

CPU = torch.device("cpu")
needs_operators = pytest.mark.skipif(not can_pack(CPU), reason="this build of torch has no oneDNN operators")


def layer(bias: bool, dtype: torch.dtype) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(48, 80, bias=bias).to(dtype).requires_grad_(False)


@needs_operators
@pytest.mark.parametrize("rows", [1, 7, 64, 300])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_packed_equals_plain(rows: int, bias: bool, dtype: torch.dtype, tolerance: float) -> None:
    plain = layer(bias, dtype)
    packed = PackedLinear(plain)
    assert (packed.in_features, packed.out_features) == (48, 80)
    for shape in ((rows, 48), (1, rows, 48), (2, rows, 48)):
        x = torch.randn(shape).to(dtype)
        got = packed(x)
        assert (got.shape, got.dtype) == (plain(x).shape, dtype)
        assert torch.allclose(got, plain(x), rtol=tolerance, atol=tolerance)


@needs_operators
def test_a_strided_input_and_a_weight_that_is_a_view_are_fine() -> None:
    plain = layer(True, torch.float32)
    plain.weight = nn.Parameter(torch.randn(48, 80).t(), requires_grad=False)
    x = torch.randn(48, 5).t()
    assert torch.allclose(PackedLinear(plain)(x), plain(x), atol=1e-5)


@needs_operators
def test_a_model_is_packed_once_and_frees_its_plain_weights() -> None:
    model, plain = chat_model("qwen2"), chat_model("qwen2")
    linears = sum(isinstance(module, nn.Linear) for module in plain.modules())
    assert pack_linears(model) == linears == 3 * 7 + 1
    assert not any(isinstance(module, nn.Linear) for module in model.modules())
    assert pack_linears(model) == 0
    kept = {name for name, _ in model.named_parameters()}
    assert not any(name.endswith("proj.weight") for name in kept)
    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.inference_mode():
        assert torch.allclose(model(ids).logits, plain(ids).logits, atol=1e-4)


def test_subclasses_of_linear_are_left_alone() -> None:
    """A quantised or adapted layer computes something else than its weight says."""

    class Doubled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    model = nn.Sequential(Doubled(4, 4))
    assert pack_linears(model) == 0
    assert type(model[0]) is Doubled


def test_where_the_operators_are_missing_plain_layers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = chat_receiver("llama")
    monkeypatch.setattr(engine, "can_pack", lambda device, dtype: False)
    plain = chat_receiver("llama")
    assert any(isinstance(module, nn.Linear) for module in plain.runner.model.modules())
    if can_pack(CPU):
        assert plain.fingerprint != packed.fingerprint


def test_precisions_without_a_kernel_stay_plain() -> None:
    assert not can_pack(CPU, torch.float64)
    wide = chat_receiver("llama", dtype=torch.float64)
    assert any(isinstance(module, nn.Linear) for module in wide.runner.model.modules())
    half = chat_receiver("llama", dtype=torch.float16)  # packed where the processor has it, else plain
    assert half.reply([Prompt((Turn("user", "the ferry"),))], max_tokens=2)[0].new_tokens == 2


def test_only_cpus_with_onednn_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not can_pack(torch.device("cuda"))
    assert not can_pack(torch.device("meta"))
    monkeypatch.setattr(packing.torch.backends.mkldnn, "is_available", lambda: False)
    assert not can_pack(CPU)
