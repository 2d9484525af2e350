"""Linear layers whose weights are stored once in the layout the CPU's matrix kernels want.

On CPUs with oneDNN the weight is reordered at load time; the product then skips the reordering that a plain linear layer pays on
every call. On other devices, or where the operators are missing, the plain layer stays.

Not covered: training; a packed weight cannot be read back.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_TYPICAL_ROWS = 64  # the layout is chosen for decoding a few dozen rows; measured equal or better at 512 rows too


class PackedLinear(nn.Module):
    """A drop-in for `nn.Linear` on CPU: same numbers up to the kernel's rounding."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        dense = linear.weight.detach().contiguous()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(dense, _TYPICAL_ROWS)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """Return x @ weight.T + bias; x has shape (..., in_features)."""
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def can_pack(device: torch.device, dtype: torch.dtype = torch.float32) -> bool:
    """Tell whether this process can use packed weights of `dtype` on `device`; half precision hangs on the processor."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if not all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")):
        return False
    try:
        PackedLinear(nn.Linear(16, 16, dtype=dtype))(torch.zeros(1, 16, dtype=dtype))
    except RuntimeError:
        return False
    return True


def pack_linears(model: nn.Module) -> int:
    """Replace every linear layer of `model` in place; returns how many. The plain weights are freed as it goes."""
    replaced = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child))
                replaced += 1
    return replaced
