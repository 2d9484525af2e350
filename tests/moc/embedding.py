"""A text encoder made of hashes: words that two texts share make them similar."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from lib.seeds import generator

DIMENSION = 16


@lru_cache(maxsize=4096)
def word_vector(word: str) -> np.ndarray:
    return generator("word", word).standard_normal(DIMENSION)


def hash_embed(texts: Sequence[str]) -> np.ndarray:
    """Return the sum of the vectors of a text's words, shape (n_texts, DIMENSION): zeros for a text without words."""
    return np.stack([sum((word_vector(word) for word in text.lower().split()), np.zeros(DIMENSION)) for text in texts])


def count_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def count_bytes(texts: Sequence[str]) -> list[int]:
    """Count like a byte-level tokenizer that merges nothing: one token a byte, four for most emoji."""
    return [len(text.encode()) for text in texts]


def count_pieces(texts: Sequence[str]) -> list[int]:
    """Count like a tokenizer with long words in its vocabulary: a beginning can have more tokens than the whole.

    Words of 5 or more letters are one token, of shorter ones every letter.
    """
    return [sum(1 if len(word) >= 5 else len(word) for word in text.split()) for text in texts]
