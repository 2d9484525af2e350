"""Keys: explicit policies for repeats, the strict common set, pairs."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.coordination.keys import KEY, check_unique, common_keys, deduplicate, on_common_keys, paired

cells = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=6)


def rows(*cells: tuple[str, str, int, int | None]) -> pd.DataFrame:
    """Rows of (arm, instance, step, hit); the seed counts the repeats of a cell."""
    frame = pd.DataFrame(list(cells), columns=["arm", "instance_id", "step_t", "hit_joint"]).assign(benchmark="toy")
    frame["hit_joint"] = frame["hit_joint"].astype("boolean")
    frame["message_empty"] = pd.array([pd.NA] * len(frame), dtype="boolean")
    return frame.assign(seed=frame.groupby(["arm", "instance_id", "step_t"]).cumcount())


REPEATED = rows(("RO", "i", 0, 0), ("MA", "i", 0, 0), ("RO", "i", 1, 0), ("RO", "i", 0, 1), ("MA", "i", 0, 1))


@pytest.mark.parametrize(
    ("policy", "settings", "kept"),
    [
        ("first", {}, [0, 1, 2]),
        ("last", {}, [2, 3, 4]),
        ("seed", {"seed": 1}, [3, 4]),
        ("last_n", {"n": 1}, [3, 4]),
    ],
)
def test_policies_choose_by_place_or_seed(policy: str, settings: dict[str, int], kept: list[int]) -> None:
    assert deduplicate(REPEATED, policy, **settings).index.tolist() == kept


def test_what_a_policy_leaves_must_be_unique() -> None:
    for chosen in ({"policy": "refuse"}, {"policy": "last_n", "n": 3}):
        with pytest.raises(ValueError, match="repeat a key"):
            deduplicate(REPEATED, **chosen)
    alone = rows(("RO", "i", 0, 1), ("MA", "i", 0, 1))
    assert deduplicate(alone, "refuse").equals(alone)


def test_numbers_belong_to_their_policies() -> None:
    with pytest.raises(ValueError, match="'seed' needs seed"):
        deduplicate(REPEATED, "seed")
    with pytest.raises(ValueError, match="'last' takes no n"):
        deduplicate(REPEATED, "last", n=3)
    with pytest.raises(ValueError, match="policy 'best'"):
        deduplicate(REPEATED, "best")


@given(st.lists(cells, min_size=1, max_size=3))
@settings(max_examples=25)
def test_the_common_set_is_the_intersection_whatever_the_order(sides: list[list[tuple[str, int]]]) -> None:
    arms = {name: sorted(set(side)) for name, side in zip(("RO", "SF", "MA"), sides, strict=False) if side}
    made = [rows(*((arm, *cell, 1) for cell in side)) for arm, side in arms.items()]
    if not made:
        return
    expected = sorted(set.intersection(*(set(side) for side in arms.values())))
    for order in (made, made[::-1]):
        frame = pd.concat(order, ignore_index=True)
        keys = common_keys(frame)
        assert list(keys.itertuples(index=False, name=None)) == [("toy", *cell) for cell in expected]
        kept = on_common_keys(frame)
        assert len(kept) == len(expected) * len(arms)
        assert common_keys(kept).equals(keys) or not expected


def test_nulls_tell_sides_apart() -> None:
    """RO has no budget; it is one side, and each budget of MA another."""
    frame = rows(("RO", "i", 0, 1), ("RO", "i", 1, 1), ("MA", "i", 0, 1), ("MA", "i", 0, 1), ("MA", "i", 1, 1))
    frame["budget_tokens"] = pd.array([pd.NA, pd.NA, 4, 8, 8], dtype="Int64")
    assert on_common_keys(frame, ("arm", "budget_tokens")).index.tolist() == [0, 2, 3]
    with pytest.raises(ValueError, match="such as"):
        check_unique(frame)


def test_pairs_have_differences_and_nulls() -> None:
    left = rows(("MA", "i", 0, 1), ("MA", "i", 1, 0), ("MA", "i", 2, None), ("MA", "j", 0, 1))
    left["message_empty"] = pd.array([False, True, False, False], dtype="boolean")
    right = rows(("RO", "i", 2, 1), ("RO", "i", 1, 1), ("RO", "i", 0, 0), ("RO", "k", 0, 1))
    table = paired(left, right)
    assert table["step_t"].tolist() == [0, 1, 2] and list(table.columns[:3]) == list(KEY)
    assert table["delta"].tolist() == [1.0, -1.0, pd.NA] and table["message_empty"].tolist() == [False, True, False]
    mirrored = paired(right, left)
    assert mirrored["delta"].dropna().tolist() == [-1.0, 1.0] and mirrored["left"].equals(table["right"])
    with pytest.raises(ValueError, match="repeat a key"):
        paired(pd.concat([left, left]), right)
