"""How fast this machine multiplies a model's matrices: the roof under which every way to compute its replies stays.

Intuition. To read or decode a token, its row goes through every linear layer. However clever the order, these products remain; so tokens
computed divided by the machine's rate for just these products is a floor for the time. Attention, norms and everything else come on top.

How it is measured. All linear layers of the decoder in turn, each with its own weights, as in the model (a benchmark on one hot matrix
would flatter), on a block of rows; the head apart, since only some rows need it. The best of a few tries counts: a roof is what can be
reached.

Not covered: memory traffic of keys and values, the attention itself.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
import torch
from torch import nn

from lib.models.packed_linear import PackedLinear

ROWS = 512
HEAD_ROWS = 64


class Roof(msgspec.Struct, frozen=True):
    """Rates of the matrix products alone, in rows (tokens) a second."""

    layer_rows: float
    head_rows: float

    def seconds(self, layer_rows: int, head_rows: int) -> float:
        """Return the floor: the time of the products alone."""
        return layer_rows / self.layer_rows + head_rows / self.head_rows


@torch.inference_mode()
def measure_roof(model: Any, tries: int = 3) -> Roof:
    """Measure the rates of a causal language model whose linear layers are as they will run."""
    layers = [module for module in model.get_decoder().modules() if isinstance(module, nn.Linear | PackedLinear)]
    return Roof(
        layer_rows=ROWS / _fastest(layers, ROWS, model, tries),
        head_rows=HEAD_ROWS / _fastest([model.get_output_embeddings()], HEAD_ROWS, model, tries),
    )


def _fastest(layers: list[Any], rows: int, model: Any, tries: int) -> float:
    """Return the least seconds that the layers take for `rows` rows."""
    weight = model.get_input_embeddings().weight
    device = weight.device
    inputs = {
        width: torch.randn(rows, width, device=device, dtype=weight.dtype)
        for width in {layer.in_features for layer in layers}
    }
    best = float("inf")
    for _ in range(tries + 1):  # the first warms up, and cannot be the best for long
        wait(device)
        started = time.perf_counter()
        for layer in layers:
            layer(inputs[layer.in_features])
        wait(device)
        best = min(best, time.perf_counter() - started)
    return best


def wait(device: torch.device) -> None:
    """Return when the device has done what it was asked, so that a clock means something."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
