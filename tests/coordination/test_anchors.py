"""Anchors: three arms on common keys, empty messages told apart, and what is left out."""

from __future__ import annotations

import pandas as pd
import pytest

from lib.coordination.anchors import points_of, sender_anchors

ALONE, STRONG, WEAK = (1, 0, 0, 0), (1, 1, 1, 0), (0, 1, 0, 0)


def rows(
    arm: str, sender: str | None, hits: tuple[int | None, ...], empty: tuple[int, ...] = ()
) -> list[dict[str, object]]:
    return [
        {
            "benchmark": "toy",
            "receiver_model": "r",
            "sender_model": sender,
            "arm": arm,
            "instance_id": f"i{step // 2}",
            "step_t": step % 2,
            "hit_joint": hit,
            "message_empty": None if sender is None else step in empty,
        }
        for step, hit in enumerate(hits)
    ]


def scored(alone=ALONE, strong=STRONG, weak=WEAK, empty: tuple[int, ...] = ()) -> pd.DataFrame:  # type: ignore[no-untyped-def]
    made = (
        rows("RO", None, alone) + rows("MA", "big", strong) + rows("MA", "small", weak, empty) + rows("SF", None, alone)
    )
    return pd.DataFrame(made)


def test_gap_and_accuracy_alone_on_common_keys() -> None:
    one = sender_anchors(scored(), strong="big", weak="small").iloc[0]
    assert one["anchor"] == "toy/r/big-small" and (one["steps"], one["failed"]) == (4, 0)
    assert (one["receiver_only"], one["gap"]) == (0.25, 0.5) == (one["receiver_only"], one["gap_with_text"])
    fewer = sender_anchors(scored(strong=STRONG[:3]), strong="big", weak="small").iloc[0]
    assert fewer["steps"] == 3 and fewer["gap"] == pytest.approx(2 / 3)


def test_empty_messages_are_counted_and_left_out_beside() -> None:
    one = sender_anchors(scored(empty=(0, 2)), strong="big", weak="small").iloc[0]
    assert (one["empty_strong"], one["empty_weak"]) == (0, 0.5)
    assert one["gap"] == 0.5 and (one["steps_with_text"], one["gap_with_text"]) == (2, 0)
    none = sender_anchors(scored(empty=(0, 1, 2, 3)), strong="big", weak="small").iloc[0]
    assert none["steps_with_text"] == 0 and pd.isna(none["gap_with_text"])


def test_a_failed_call_leaves_its_key_out_for_all() -> None:
    one = sender_anchors(scored(weak=(None, 1, 0, 0)), strong="big", weak="small").iloc[0]
    assert (one["steps"], one["failed"]) == (3, 1) and one["receiver_only"] == 0


def test_a_missing_sender_makes_no_anchor_and_a_double_key_is_refused() -> None:
    assert sender_anchors(scored(), strong="big", weak="other").empty
    assert list(sender_anchors(scored(), strong="x", weak="y").columns)[:2] == ["anchor", "benchmark"]
    with pytest.raises(ValueError, match="repeat a key"):
        sender_anchors(pd.concat([scored(), scored().tail(8)]), strong="big", weak="small")
    with pytest.raises(ValueError, match="scored lacks the columns"):
        sender_anchors(scored().drop(columns="arm"), strong="big", weak="small")


def test_points_keep_order_and_benchmarks() -> None:
    anchors = sender_anchors(scored(), strong="big", weak="small")
    points = points_of(anchors, by_benchmark=True)
    assert (points.x, points.y, points.steps, points.groups) == ((0.25,), (0.5,), (4.0,), ("toy",))
    with pytest.raises(ValueError, match="x must lie in"):
        points_of(anchors.assign(receiver_only=None))
