from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.subsets import marked, need_whole, paper_rows, stratified_order
from lib.tasks.task import WorkloadError


def test_rows_of_the_paper() -> None:
    # Rows in the paper's own files: abstract algebra (100) and anatomy (135) of MMLU, the first of GSM8K (1,319).
    assert paper_rows(100, 5) == [88, 42, 55, 15, 0]
    assert paper_rows(135, 5) == [27, 43, 13, 38, 110]
    assert paper_rows(1319, 300)[:8] == [1145, 326, 839, 758, 1062, 215, 509, 620]


def test_marks_give_the_order_and_must_be_whole() -> None:
    assert marked([(1, "b"), (None, "x"), (0, "a")], 2, "f") == ["a", "b"]
    assert marked([(None, "x")], 2, "f") is None
    for marks in ([0], [0, 0], [0, 2], [0, 1, 2]):
        with pytest.raises(WorkloadError, match="f: 'moc_index' must hold 0 to 1"):
            marked([(mark, "x") for mark in marks], 2, "f")
    need_whole(3, 3, "f")
    with pytest.raises(WorkloadError, match="f: 2 records, but the paper's sample is drawn from all 3"):
        need_whole(2, 3, "f")


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=60), st.integers(0, 3))
def test_every_beginning_is_stratified(strata: list[str], seed: int) -> None:
    ids = [f"q{i}" for i in range(len(strata))]
    order = stratified_order(ids, strata, "made", seed)
    assert sorted(order) == list(range(len(ids)))
    sizes, seen = Counter(strata), Counter[str]()
    for count, place in enumerate(order, start=1):
        seen[strata[place]] += 1
        # Webster's method: a stratum is never a whole item behind one that has more than its share.
        for name, size in sizes.items():
            other = strata[place]
            assert (seen[other] - 0.5) / sizes[other] <= (seen[name] + 0.5) / size + 1e-9, (count, name)


def test_the_draw_hangs_on_names_not_on_places() -> None:
    ids, strata = [f"q{i}" for i in range(20)], ["a", "b"] * 10
    first = [ids[place] for place in stratified_order(ids, strata, "made", 1)]
    again = [ids[::-1][place] for place in stratified_order(ids[::-1], strata[::-1], "made", 1)]
    other = [ids[place] for place in stratified_order(ids, strata, "made", 2)]
    assert first == again != other
