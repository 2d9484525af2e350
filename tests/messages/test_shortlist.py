"""Shortlists: how many, which, in what order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lib.messages.shortlist as module
from lib.messages.shortlist import shortlist_of
from lib.tasks.registry import load_workload
from lib.tasks.task import Source, Task
from tests.messages.letters import Letters, letters

ABC = Source("D", "D", ("bb", "abc", "aa", "ab", "zz", "AA"))


def asking(query: str) -> Task:
    return Task(id="t1", family="f", kind="bridge", query=query, sources=(), version="1")


class Given:
    """An embedder whose similarities with the question are given, whatever the texts say."""

    name = "given"

    def __init__(self, similarities: Sequence[float]) -> None:
        self.rows = np.array([[1.0], *([value] for value in similarities)], dtype=np.float32)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        assert len(texts) == len(self.rows)
        return self.rows


def test_the_nearest_are_chosen_and_given_in_reading_order() -> None:
    task = asking("aaab")
    assert [letters(size).choose(task, ABC) for size in range(1, 7)] == [
        [2],
        [2, 5],
        [2, 3, 5],
        [1, 2, 3, 5],
        [0, 1, 2, 3, 5],
        [0, 1, 2, 3, 4, 5],
    ]


@given(st.lists(st.sampled_from([0.1, 0.2, 0.20000004, 0.3, -0.5]), max_size=12), st.integers(1, 14))
def test_choices_are_a_top_by_similarity_with_ties_by_index(similarities: list[float], size: int) -> None:
    """Similarities are compared to six digits: what differs by rounding alone is a tie."""
    page = Source("D", "D", tuple(str(i) for i in range(len(similarities))))
    chosen = letters(size, Given(similarities)).choose(asking("?"), page)
    ranked = sorted(range(len(similarities)), key=lambda index: (-round(similarities[index], 6), index))
    assert chosen == sorted(ranked[:size])
    assert all(type(index) is int for index in chosen)


def test_a_longer_shortlist_keeps_what_a_shorter_one_chose() -> None:
    chosen = [set(letters(size).choose(asking("cab"), ABC)) for size in range(1, 7)]
    assert all(before < after for before, after in pairwise(chosen))


def test_the_question_decides_and_the_title_has_no_part() -> None:
    embedder = Letters()
    shortlist = letters(1, embedder)
    assert shortlist.choose(asking("zz"), ABC) == [4]
    assert shortlist.choose(asking("bb"), ABC) == [0]
    assert embedder.calls == [["zz", *ABC.sentences], ["bb", *ABC.sentences]]


def test_a_source_without_sentences_has_nothing_to_choose() -> None:
    assert letters(3).choose(asking("a"), Source("D", "D", ())) == []


def test_the_name_says_embedder_and_size() -> None:
    assert (letters(1).name, letters(4).name) == ("letters:1", "letters:4")


def test_no_embedder_is_no_shortlist_and_sizes_below_one_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Embedder", lambda name: Letters())
    assert shortlist_of("", 3) is None
    made = shortlist_of("letters", 2)
    assert made is not None
    assert (made.size, made.name) == (2, "letters:2")
    for size in (0, -3):
        with pytest.raises(ValueError, match=f"at least 1 sentence, not {size}"):
            shortlist_of("letters", size)


@pytest.mark.real("minilm")
def test_minilm_finds_the_decisive_sentence_in_most_generated_sources() -> None:
    """Four of five, as the module says; half is what a test may ask of thirty tasks."""
    nearest = shortlist_of("minilm", 1)
    assert nearest is not None
    assert nearest.name == "minilm:1"
    found = []
    for kind in ("worlds_verification", "worlds_bridge"):
        workload = load_workload(kind, limit=20)
        for task in workload.tasks:
            pages = {source.id: source for source in task.sources}
            for source_id, index in workload.gold[task.id].evidence[:1]:
                found.append(nearest.choose(task, pages[source_id]) == [index])
    assert len(found) > 25
    assert np.mean(found) > 0.5
