"""Which sentences of its source a reader may quote.

A model of half a billion parameters writes a passable sentence about a fact that it is shown, but does not find the fact: choosing
freely it quoted the decisive sentence of a generated source in a quarter to half of the cases, while the nearest sentence by
embedding was the decisive one in four of five. So a small reader works with a retriever: an embedder ranks the sentences by their
similarity with the question, and the reader chooses among the first few. Readers that find facts themselves need none.

Not covered: leaving a source without a quotation; a shortlisted reader always quotes.
"""

from __future__ import annotations

import numpy as np

from lib.models.embedder import Embedder
from lib.tasks.task import Source, Task


class Shortlist:
    """The `size` sentences of a source that are nearest to the question.

    Parameters
    ----------
    size : int
        Sentences to choose among, at least 1.
    embedder : Embedder, optional
        Default: the embedded MiniLM.
    """

    def __init__(self, size: int = 1, embedder: Embedder | None = None) -> None:
        if size < 1:
            raise ValueError(f"shortlist size must be at least 1 sentence, not {size}")
        self.size = size
        self.embedder = embedder or Embedder()
        self.name = f"{self.embedder.name}:{self.size}"

    def choose(self, task: Task, source: Source) -> list[int]:
        """Return sentence indices in reading order, nearest first where similarities tie by index."""
        vectors = self.embedder.encode([task.query, *source.sentences])
        similarity = np.round(vectors[1:] @ vectors[0], 6)
        return sorted(np.argsort(-similarity, kind="stable")[: self.size].tolist())


def shortlist_of(embedder: str, size: int) -> Shortlist | None:
    """Return a shortlist of `size` sentences by the named embedder, or None for "": every sentence may be quoted."""
    return Shortlist(size, Embedder(embedder)) if embedder else None
