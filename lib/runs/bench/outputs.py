"""Are the outputs the same, and where not, how near was the call?

Two exact ways to compute a reply round differently, and in half precision the two best tokens are often nearer to each other than the
rounding. So every output that differs from one-at-a-time decoding is taken apart: at its first differing token, the plain model reads the
prompt and what both agree on, and the gap between the two choices is reported, in nats and in steps of the number format at the size of
these logits. A gap of a few steps is a tie that rounding decided; a wide gap is a fault.

Not covered: later tokens of a reply that has already gone another way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import torch

from lib.models.weights import LoadedModel

Output = tuple[int, ...]


class Difference(msgspec.Struct, frozen=True):
    """The first differing token of one output."""

    prompt: int  # index
    place: int  # of the token in the reply
    gap: float  # nats that the plain model puts between the two choices
    steps: float  # the gap in steps of the number format


def same_outputs(outputs: Sequence[Output], expected: Sequence[Output]) -> int:
    """Return how many outputs are equal."""
    return sum(one == other for one, other in zip(outputs, expected, strict=True))


@torch.inference_mode()
def differences(
    loaded: LoadedModel,
    ends: frozenset[int],
    encoded: Sequence[Sequence[int]],
    outputs: Sequence[Output],
    expected: Sequence[Output],
) -> list[Difference]:
    """Return one record for every output that differs from the expected one."""
    found = []
    for index, (one, other) in enumerate(zip(outputs, expected, strict=True)):
        if one == other:
            continue
        place = next(
            (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
        )
        ids = torch.tensor([[*encoded[index], *other[:place]]], device=loaded.model.device)
        logits = loaded.model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[0, -1].float()
        values = [float(logits[_choice(output, place, ends, logits)]) for output in (one, other)]
        size = max(abs(value) for value in values)
        step = torch.finfo(loaded.model.dtype).eps * 2.0 ** math.floor(math.log2(size)) if size else 0.0
        gap = abs(values[0] - values[1])
        found.append(Difference(prompt=index, place=place, gap=gap, steps=gap / step if step else 0.0))
    return found


def _choice(output: Output, place: int, ends: frozenset[int], logits: torch.Tensor) -> int:
    """Return the token chosen at a place; behind the last token that was an end token, the likeliest of them."""
    if place < len(output):
        return output[place]
    return max(ends, key=lambda token: float(logits[token]))
