"""Contrasts: common keys of all arms, sums that add up, and gains of two receivers on the same message."""

from __future__ import annotations

import pandas as pd
import pytest

from lib.coordination.contrasts import arm_contrasts, receiver_contrasts, side_contrasts

ARMS = (("RO", None), ("SF", None), ("MA", "s"), ("MA", "t"))
HITS = {  # by receiver, arm, sender: joint hits of steps 0 to 2
    "a": {("RO", None): (0, 0, 1), ("SF", None): (1, 0, 1), ("MA", "s"): (1, 1, 1), ("MA", "t"): (0, 0, 0)},
    "b": {("RO", None): (1, 1, 1), ("SF", None): (1, 0, 0), ("MA", "s"): (0, 1, 1), ("MA", "t"): (1, 1, None)},
}


def scored() -> pd.DataFrame:
    rows = [
        ("f", receiver, arm, sender, "i", step, hit, None if sender is None else step == 2)
        for receiver, arms in HITS.items()
        for (arm, sender), hits in arms.items()
        for step, hit in enumerate(hits)
    ]
    names = [
        "benchmark",
        "receiver_model",
        "arm",
        "sender_model",
        "instance_id",
        "step_t",
        "hit_joint",
        "message_empty",
    ]
    kinds = {"hit_joint": "boolean", "message_empty": "boolean"}
    frame = pd.DataFrame(rows, columns=names).astype(kinds)
    return frame.assign(budget_tokens=pd.array([None] * len(frame), dtype="Int64"), encoding_format=None)


def deltas(pairs: pd.DataFrame, contrast: str, receiver: str, sender: str | None) -> list[float]:
    own = pairs[(pairs["contrast"] == contrast) & (pairs["receiver_model"] == receiver)]
    own = own[own["sender_model"].isna() if sender is None else own["sender_model"] == sender]
    return own["delta"].tolist()


def test_every_contrast_stands_on_the_same_steps_and_they_add_up() -> None:
    pairs = arm_contrasts(scored())
    assert deltas(pairs, "MA - RO", "a", "s") == [1, 1, 0] and deltas(pairs, "SF - RO", "a", None) == [1, 0, 0]
    for receiver in HITS:
        whole = deltas(pairs, "MA - RO", receiver, "s")
        parts = zip(deltas(pairs, "MA - SF", receiver, "s"), deltas(pairs, "SF - RO", receiver, None), strict=True)
        assert whole == [one + other for one, other in parts]
    assert deltas(pairs, "MA - RO", "b", "t")[2] is pd.NA, "a failed call is no decision"
    assert pairs[pairs["contrast"] == "MA - RO"]["message_empty"].tolist() == [False, False, True] * 4


def test_a_step_that_one_arm_lacks_is_left_out_for_all_arms_of_that_receiver() -> None:
    frame = scored()
    lacking = (frame["receiver_model"] == "a") & (frame["arm"] == "MA") & (frame["sender_model"] == "t")
    pairs = arm_contrasts(frame[~(lacking & (frame["step_t"] == 1))])
    assert len(deltas(pairs, "MA - RO", "a", "s")) == len(deltas(pairs, "SF - RO", "a", None)) == 2
    assert len(deltas(pairs, "MA - RO", "b", "s")) == 3
    with pytest.raises(ValueError, match="repeat a key"):
        arm_contrasts(pd.concat([frame, frame.head(1)]))


def test_receivers_are_held_against_each_other_on_their_gains() -> None:
    found = receiver_contrasts(arm_contrasts(scored()))
    own = found[found["sender_model"] == "s"]
    assert set(found["contrast"]) == {"gain of a - gain of b"}
    assert (
        own["left"].tolist() == [1, 1, 0] and own["right"].tolist() == [-1, 0, 0] and own["delta"].tolist() == [2, 1, 0]
    )
    assert receiver_contrasts(arm_contrasts(scored().query("receiver_model == 'a'"))).empty


def test_any_two_values_of_a_column() -> None:
    messages = scored().query("arm == 'MA'")
    found = side_contrasts(messages, "sender_model", "s", "t")
    assert found.query("receiver_model == 'a'")["delta"].tolist() == [1, 1, 1]
    assert set(found["contrast"]) == {"s - t"} and found["sender_model"].isna().all()
    by_form = messages.query("sender_model == 's'").assign(encoding_format="json")
    by_form = pd.concat([by_form, by_form.assign(encoding_format="prose", hit_joint=True)], ignore_index=True)
    found = side_contrasts(by_form, "encoding_format", "prose", "json")
    assert found.query("receiver_model == 'b'")["delta"].tolist() == [1, 0, 0] and set(found["sender_model"]) == {"s"}
