"""Where decisions are lost: worked counts, disjoint shares, slices by RO, fixed messages."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.coordination.arms import replay_messages, run_arms, send_messages
from lib.coordination.closure import check_fixed_messages, closure_table, with_slices
from lib.coordination.exchange import records_frame
from lib.coordination.scoring import score_records
from lib.models.receiver import Prompt
from tests.coordination.exchanges import Listening, decide, step_set

KINDS = {  # parse_valid, hit_artifact, hit_action, message_names_artifact
    "invalid": (False, False, False, True),
    "not_sent": (True, False, False, False),
    "not_taken": (True, False, True, True),
    "action": (True, True, False, True),
    "hit": (True, True, True, False),
    "failed": (None, None, None, None),
}


def frame_of(kinds: list[str], **columns: object) -> pd.DataFrame:
    names = ["parse_valid", "hit_artifact", "hit_action", "message_names_artifact"]
    frame = pd.DataFrame([KINDS[kind] for kind in kinds], columns=names).astype("boolean")
    return frame.assign(answered=pd.array([kind != "failed" for kind in kinds], dtype="boolean"), arm="MA", **columns)


def test_worked_counts_and_both_definitions() -> None:
    """Ten answered: one unreadable, two not sent, one not taken up, two without closure, four hits; one failed call."""
    kinds = ["invalid"] + ["not_sent"] * 2 + ["not_taken"] + ["action"] * 2 + ["hit"] * 4 + ["failed"]
    row = closure_table(frame_of(kinds), by=["arm"]).iloc[0]
    counts = row[["steps", "failed", "invalid", "artifact_wrong", "action_wrong", "hits"]]
    assert counts.tolist() == [11, 1, 1, 3, 2, 4]
    shares = row[["validity", "hit_artifact", "hit_action", "hit_joint", "externalisation", "absorption", "closure"]]
    assert shares.tolist() == pytest.approx([0.9, 0.6, 0.5, 0.4, 0.2, 0.1, 0.2])
    assert row["conversion"] == pytest.approx(4 / 6) and row["wrong_action_rate"] == pytest.approx(2 / 6)
    assert row["conversion_with_invalid"] == pytest.approx(4 / 7)
    assert row["wrong_action_rate_with_invalid"] == pytest.approx(3 / 7)


@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=20))
@settings(max_examples=25)
def test_shares_are_disjoint_and_whole(kinds: list[str]) -> None:
    row = closure_table(frame_of(kinds), by=["arm"]).iloc[0]
    if set(kinds) == {"failed"}:
        assert row["failed"] == len(kinds) and pd.isna(row["hit_joint"]) and pd.isna(row["validity"])
        return
    parts = row[["unreadable", "externalisation", "absorption", "closure", "hit_joint"]]
    assert sum(parts) == pytest.approx(1)
    assert row["steps"] == len(kinds)


def test_arms_without_messages_do_not_split_wrong_artifacts() -> None:
    frame = frame_of(["not_sent", "hit"]).assign(message_names_artifact=pd.array([pd.NA] * 2, dtype="boolean"))
    row = closure_table(frame, by=["arm"]).iloc[0]
    assert row["artifact_wrong"] == 1 and pd.isna(row["externalisation"]) and pd.isna(row["absorption"])


def run_toy() -> pd.DataFrame:
    """RO always takes file 2 and edits it, so step 2 is easy; the message brings the others."""

    def edit(prompt: Prompt) -> str:
        return decide(prompt).replace('"read"', '"edit"')

    steps = step_set()
    return score_records(run_arms(steps.steps, receiver=Listening(edit)), steps.gold, steps.steps, snap=True)


def test_real_records_by_arm_and_slice() -> None:
    frame = run_toy()
    table = closure_table(frame).set_index("arm")
    assert table["hit_joint"].to_dict() == pytest.approx({"RO": 1 / 3, "SF": 1.0, "MA": 1.0})
    assert table.loc["MA", "sender_model"] == "rules" and pd.isna(table.loc["RO", "budget_tokens"])
    sliced = with_slices(frame)
    assert sliced.index.equals(frame.index)
    assert sliced[sliced["arm"] == "MA"]["slice"].tolist() == ["hard", "hard", "easy"]
    hits = closure_table(sliced, by=["arm", "slice"]).set_index(["arm", "slice"])["hit_joint"]
    assert hits["RO", "easy"] == 1 and hits["RO", "hard"] == 0 and hits["MA", "hard"] == 1


def test_slices_are_a_receivers_own_and_need_one_row() -> None:
    frame = run_toy()
    other = frame[frame["arm"] == "MA"].assign(receiver_model="other")
    assert with_slices(pd.concat([frame, other], ignore_index=True))["slice"].isna().sum() == 3
    failed = frame.assign(hit_joint=frame["hit_joint"].mask(frame["step_t"] == 0))
    assert with_slices(failed)["slice"].isna().sum() == 3
    with pytest.raises(ValueError, match="repeat a key"):
        with_slices(pd.concat([frame, frame], ignore_index=True))


def test_fixed_message_replay_separates_receivers() -> None:
    """The same messages: one receiver follows them, one takes the file and reads it instead."""

    def reads(prompt: Prompt) -> str:
        return json.dumps({**json.loads(decide(prompt)), "action_type": "read"})

    steps = step_set()
    messages = send_messages(Listening(), steps.steps, 16)
    records = replay_messages([Listening(), Listening(reads, "reads")], steps.steps, messages)
    frame = score_records(records, steps.gold, steps.steps, snap=False)
    check_fixed_messages(frame)
    rates = closure_table(frame, by=["receiver_model"]).set_index("receiver_model")
    assert rates["hit_artifact"].tolist() == [1, 1] and rates["externalisation"].tolist() == [0, 0]
    assert rates["wrong_action_rate"].to_dict() == {"rules": 0, "reads": 1}


def test_different_messages_are_noticed() -> None:
    steps = step_set(2).steps
    one = records_frame(run_arms(steps, receiver=Listening(), arms=("RO", "MA")))
    check_fixed_messages(pd.concat([one, one.assign(receiver_model="other")]))
    other = one.assign(receiver_model="other")
    other.loc[other["step_t"] == 1, "message_shown"] = "something else"
    with pytest.raises(ValueError, match="toy / one / 1"):
        check_fixed_messages(pd.concat([one, other]))
