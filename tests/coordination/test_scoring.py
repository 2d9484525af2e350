"""Scorers: pairs are a set, snapping stands beside the strict reading, failures are null."""

from __future__ import annotations

import json

import msgspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.arms import run_arms
from lib.coordination.exchange import Record
from lib.coordination.outcomes import outcome_kinds
from lib.coordination.scoring import Hits, names_artifact, score_decision, score_records
from lib.tasks.steps import StepGold
from tests.coordination.exchanges import Listening, step_set

SET = step_set()
names = st.sampled_from(["a", "b", "c", None])
gold_pairs = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("abc")), min_size=1, max_size=3).map(tuple)


def record(step_id: str = "one/1", **changes: object) -> Record:
    made = run_arms([step for step in SET.steps if step.id == step_id], receiver=Listening(), arms=("MA",))[0]
    return msgspec.structs.replace(made, **changes)


@given(gold_pairs, names, names)
def test_a_joint_hit_is_an_artifact_hit_and_an_action_hit(
    pairs: tuple[tuple[str, str], ...], artifact: str | None, action: str | None
) -> None:
    hits = score_decision(StepGold("s", pairs), artifact, action)
    assert hits.joint == (hits.artifact and hits.action) == ((artifact, action) in pairs)
    assert hits == score_decision(StepGold("s", pairs[::-1]), artifact, action)


def test_the_action_of_another_pair_is_not_a_hit() -> None:
    gold = StepGold("s", (("a", "edit"), ("b", "read")))
    assert score_decision(gold, "a", "read") == Hits(True, False, False)
    assert score_decision(gold, "c", "read") == Hits(False, True, False)


def test_both_scorers_stand_side_by_side() -> None:
    near = record(artifact_pred="file_1.py", action_type_pred="Edit")
    strict = score_records([near], SET.gold, SET.steps, snap=False).iloc[0]
    snapped = score_records([near], SET.gold, SET.steps, snap=True).iloc[0]
    assert (strict["hit_joint"], snapped["hit_joint"]) == (False, True)
    assert (strict["scorer"], snapped["scorer"]) == ("strict", "snapped")
    for row in (strict, snapped):
        assert (row["hit_joint_strict"], row["hit_joint_snapped"]) == (False, True)
        assert (row["artifact_snapped"], row["snap_artifact"]) == ("src/file_1.py", "containment")
        assert (row["action_snapped"], row["snap_action"]) == ("edit", "exact")
        assert row["pick_position"] == 3, "the place in the shuffled list that was shown"


def test_an_invention_snaps_to_a_guess_and_that_can_be_seen() -> None:
    invented = record(artifact_pred="source/files-1.cpp")
    row = score_records([invented], SET.gold, SET.steps, snap=True).iloc[0]
    assert row["snap_artifact"] == "ratio" and row["hit_artifact"] and not row["hit_artifact_strict"]


def test_unreadable_replies_miss_and_failed_calls_are_null() -> None:
    unreadable = record(parse_valid=False, action_type_pred=None)
    failed = record(answered=False, parse_valid=None, artifact_pred=None, action_type_pred=None)
    frame = score_records([unreadable, failed], SET.gold, SET.steps, snap=True)
    assert frame["artifact_pred"].tolist() == ["src/file_1.py", None]
    hits = [f"hit_{what}{end}" for what in ("artifact", "action", "joint") for end in ("", "_strict", "_snapped")]
    assert not frame.loc[0, hits].any() and frame.loc[1, hits].isna().all()
    assert frame.loc[1, "pick_position"] is pd.NA and frame.loc[1, "snap_artifact"] == "none"


def test_scored_frames_fit_the_four_kinds() -> None:
    rows = [
        record(),
        record(action_type_pred="read"),
        record(artifact_pred="src/file_2.py"),
        record(parse_valid=False),
    ]
    frame = score_records(rows, SET.gold, SET.steps, snap=False).rename(columns={"parse_valid": "valid"})
    assert outcome_kinds(frame).tolist() == ["hit", "action_wrong", "artifact_wrong", "invalid"]


def test_whether_the_message_named_it() -> None:
    told, not_told = record(), record(message_shown=json.dumps({"target_artifact": "src/file_11.py"}))
    alone = run_arms(SET.steps[:1], receiver=Listening(), arms=("RO",))[0]
    frame = score_records([told, not_told, alone], SET.gold, SET.steps, snap=False)
    assert frame["message_names_artifact"].tolist() == [True, False, pd.NA]
    assert not names_artifact("see src/a.pyc", "a.py") and names_artifact('"a.py"', "a.py")


def test_frames_of_no_records_and_missing_gold() -> None:
    assert score_records([], SET.gold, SET.steps, snap=True)["hit_joint"].dtype == "boolean"
    with pytest.raises(ValueError, match="one/1"):
        score_records([record()], {}, SET.steps, snap=True)
    with pytest.raises(ValueError, match="one/1"):
        score_records([record()], SET.gold, SET.steps[:1], snap=True)
