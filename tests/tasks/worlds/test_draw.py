from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.worlds.draw import Draw

PINNED = [3, 3, 9, 3, 0, 0, 2, 5, 7, 4, 0, 1]


def test_the_stream_is_pinned() -> None:
    draw = Draw("pinned", 1)
    assert [draw.whole(0, 9) for _ in range(12)] == PINNED
    assert Draw("pinned", 1).whole(0, 9) == PINNED[0] and Draw("pinned", 2).shuffled(range(9)) != Draw(
        "pinned", 3
    ).shuffled(range(9))


@given(st.lists(st.integers()), st.integers(0, 10))
def test_shuffle_keeps_the_items(items: list[int], seed: int) -> None:
    assert Counter(Draw(seed).shuffled(items)) == Counter(items)


def test_every_order_of_three_comes_up_equally_often() -> None:
    seen = Counter(tuple(Draw("orders", i).shuffled("abc")) for i in range(6000))
    assert len(seen) == 6 and all(850 < n < 1150 for n in seen.values())


def test_bounds_are_included() -> None:
    draw = Draw("bounds")
    assert {draw.whole(2, 4) for _ in range(200)} == {2, 3, 4}
    assert not any(draw.chance(0.0) for _ in range(200)) and all(draw.chance(1.0) for _ in range(200))
