"""An embedder in miniature, so that shortlists can be tested without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from lib.messages.shortlist import Shortlist
from lib.models.embedder import Embedder


class Letters:
    """A text's vector is its counts of the letters a to z, scaled to length 1; without letters it is 0."""

    name = "letters"

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.calls.append(list(texts))
        counts = np.array([[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts], dtype=np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


def letters(size: int, embedder: object | None = None) -> Shortlist:
    """Return a shortlist by letters, or by another stand-in for an embedder."""
    return Shortlist(size, cast(Embedder, embedder or Letters()))
