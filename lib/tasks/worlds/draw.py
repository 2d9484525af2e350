"""Chance for the worlds generator, the same on every machine and under every library version.

Only `random.Random.random()` is used, whose stream Python guarantees for a given seed; choices and shuffles are built from it
here, since those of the standard library and of numpy may change between versions.

Not covered: statistics and resampling (`lib.seeds.generator`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from lib.seeds import seed_of

T = TypeVar("T")


class Draw:
    """A stream of choices named by its parts."""

    def __init__(self, *parts: object) -> None:
        self._random = random.Random(seed_of(*parts)).random

    def chance(self, probability: float) -> bool:
        """Return True with the given probability; always consumes one draw."""
        return self._random() < probability

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        """Return one of `items`, which must not be empty."""
        return items[int(self._random() * len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return a shuffled copy of `items` (Fisher-Yates)."""
        out = list(items)
        for i in range(len(out) - 1, 0, -1):
            j = int(self._random() * (i + 1))
            out[i], out[j] = out[j], out[i]
        return out
