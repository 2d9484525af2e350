"""Seeds and orders that depend on names alone.

Every random choice of the suite starts from the SHA-256 of the parts that name it (workload, task id, seed, purpose), so that
it is the same on every machine, in every process and under every Python hash seed.

Not covered: cryptographic randomness.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def digest(*parts: object) -> str:
    """Return the hexadecimal SHA-256 of the JSON list of `parts`.

    Parts are strings, numbers, booleans, None or nested lists of these; anything else raises `TypeError`.
    """
    text = json.dumps(parts, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def seed_of(*parts: object) -> int:
    """Return a 63-bit seed named by `parts`."""
    return int(digest(*parts)[:16], 16) >> 1


def generator(*parts: object) -> np.random.Generator:
    """Return a numpy generator named by `parts`."""
    return np.random.default_rng(seed_of(*parts))


def hash_order(items: Iterable[T], *parts: object) -> list[T]:
    """Return `items` in the order of the SHA-256 of (parts, item): a shuffle that needs no generator state."""
    return sorted(items, key=lambda item: (digest(*parts, str(item)), str(item)))
