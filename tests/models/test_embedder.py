"""The sentence embedder: shapes, unit length, order, refusals, and that meaning shows in the real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lib.fetch import SourceError
from lib.models.embedder import Embedder


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"modules\.json is missing"):
        Embedder(str(tmp_path))


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    return Embedder("minilm")


@pytest.mark.real("minilm")
def test_unit_vectors_in_the_order_of_the_texts(minilm: Embedder) -> None:
    texts = ["the ferry left at noon", "", "x " * 600, "nobody saw the ferry", "😀 漢字"]
    vectors = minilm.encode(texts, batch_size=2)
    assert vectors.shape == (5, 384)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(minilm.encode(texts[::-1])[::-1], vectors, atol=1e-5)
    assert minilm.encode([]).shape == (0, 384)
    with pytest.raises(TypeError, match="wrap it in a list"):
        minilm.encode("one text")


@pytest.mark.real("minilm")
def test_meaning_shows(minilm: Embedder) -> None:
    cat, kitten, tax = minilm.encode(
        ["A cat sleeps on the sofa.", "The kitten naps on the couch.", "Tax law changed in May."]
    )
    assert cat @ kitten > 0.5 > cat @ tax
    assert minilm.sha256 == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
