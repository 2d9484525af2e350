"""Sentence embeddings for semantic scores, offline.

`Embedder` wraps a sentence-transformers model that `lib.sources` found; it never asks the hub. Vectors are normalised, so a dot
product is the cosine similarity.

Not covered: texts beyond the model's own limit (256 word pieces for "minilm") are cut by the model, as upstream does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lib.fetch import Log, SourceError
from lib.models.weights import quiet_bars, weights_sha256
from lib.sources import catalogue, locate, say


class Embedder:
    """A sentence embedder.

    Parameters
    ----------
    name : str
        A sentence-transformers model of `data/sources.toml`, or the path of a folder that holds one.
    device : str
        A torch device; the model is small, so "cpu" is the default everywhere.
    log : callable
        Receives progress lines while fetching.

    Attributes
    ----------
    name, sha256 : str
        Identity of the model and its weights.
    dimension : int
        Length of a vector, 384 for "minilm".
    """

    def __init__(self, name: str = "minilm", *, device: str = "cpu", log: Log = say) -> None:
        folder = locate(name, log=log) if name in catalogue() else Path(name).expanduser()
        if not (folder / "modules.json").is_file():
            raise SourceError(f"{name}: {folder} holds no sentence-transformers model (modules.json is missing)")
        from sentence_transformers import SentenceTransformer  # slow to import, so only when one is made

        self.name = name
        self.sha256 = weights_sha256(sorted(folder.glob("*.safetensors")))
        with quiet_bars():
            self._model = SentenceTransformer(
                str(folder), device=device, local_files_only=True, trust_remote_code=False
            )
        self.dimension = int(self._model.encode([""], show_progress_bar=False).shape[1])

    def encode(self, texts: Sequence[str], *, batch_size: int = 64) -> np.ndarray:
        """Return unit vectors, float32, shape (n_texts, dimension), in the order of `texts`."""
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of strings, got one string; wrap it in a list")
        if len(texts) == 0:
            return np.zeros((0, self.dimension), dtype=np.float32)
        vectors = self._model.encode(
            list(texts),
            batch_size=batch_size,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        return np.asarray(vectors, dtype=np.float32)
