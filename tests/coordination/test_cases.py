"""The step that tells most: the stated rule decides, in its order, and nothing is lost on the way."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from lib.coordination.cases import NO_ANSWER, case_outputs, outcomes_of, pick_case, rank_cases
from lib.coordination.ladder import read_messages, write_messages
from lib.coordination.scoring import score_records
from lib.models.receiver import Prompt
from tests.coordination.exchanges import Listening, decide, step_set

MADE = {"hit": (True, True), "action_wrong": (True, False), "artifact_wrong": (False, True)}


def rows_of(
    step: int, told: bool, outcomes: dict[str, str], alone: dict[str, str] | None = None
) -> list[dict[str, object]]:
    rows = []
    for arm, said in (("MA", outcomes), ("RO", alone or {})):
        for receiver, kind in said.items():
            artifact, action = MADE.get(kind, (False, False))
            known = kind != NO_ANSWER
            rows.append(
                {
                    "benchmark": "toy",
                    "instance_id": "one",
                    "step_t": step,
                    "step_id": f"one/{step}",
                    "arm": arm,
                    "receiver_model": receiver,
                    "answered": known,
                    "parse_valid": kind != "invalid" if known else None,
                    "hit_artifact": artifact,
                    "hit_action": action,
                    "hit_joint": artifact and action,
                    "message_names_artifact": told if arm == "MA" else None,
                }
            )
    return rows


def frame_of(*steps: list[dict[str, object]]) -> pd.DataFrame:
    frame = pd.DataFrame([row for rows in steps for row in rows])
    return frame.astype(dict.fromkeys(["answered", "parse_valid", "message_names_artifact"], "boolean"))


STEPS = (
    rows_of(0, True, {"a": "hit", "b": "hit"}),
    rows_of(1, False, {"a": "hit", "b": "action_wrong", "c": "invalid"}),
    rows_of(2, True, {"a": "hit", "b": "artifact_wrong"}),
    rows_of(3, True, {"a": "hit", "b": "action_wrong"}),
    rows_of(4, True, {"a": "hit", "b": "action_wrong"}, {"a": "artifact_wrong", "b": "artifact_wrong"}),
    rows_of(5, True, {"a": "hit", "b": "action_wrong"}, {"a": "artifact_wrong", "b": "hit"}),
    rows_of(6, True, {"a": "hit", "b": "action_wrong"}, {"a": "hit", "b": "hit"}),
)


def test_the_rule_orders_by_told_then_parting_then_closure_then_change_then_key() -> None:
    ranked = rank_cases(frame_of(*STEPS))
    assert ranked["step_t"].tolist() == [5, 4, 6, 3, 2, 0, 1]
    assert ranked["changed"].tolist()[:4] == [2, 1, 1, 0]
    assert rank_cases(frame_of(*reversed(STEPS))).equals(ranked)
    last = ranked.iloc[-1]
    assert (last["receivers"], last["outcomes"], last["hits"], last["action_wrong"], last["told"]) == (
        3,
        3,
        1,
        1,
        False,
    )


def test_every_outcome_has_its_name() -> None:
    kinds = ["hit", "action_wrong", "artifact_wrong", "invalid", NO_ANSWER]
    frame = frame_of(rows_of(0, True, {f"r{place}": kind for place, kind in enumerate(kinds)}))
    assert outcomes_of(frame).tolist() == kinds


def test_a_case_is_picked_by_name_and_a_wrong_name_is_told() -> None:
    ranked = rank_cases(frame_of(*STEPS))
    assert pick_case(ranked)["step_t"] == 5 and pick_case(ranked, "toy one/2")["step_t"] == 2
    with pytest.raises(ValueError, match="'toy one/5'"):
        pick_case(ranked, "one/2")
    with pytest.raises(ValueError, match="no step"):
        pick_case(ranked.iloc[:0])


def test_two_senders_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="repeat a key"):
        rank_cases(frame_of(STEPS[0], STEPS[0]))
    with pytest.raises(ValueError, match="message_names_artifact"):
        rank_cases(frame_of(*STEPS).drop(columns="message_names_artifact"))


def test_outputs_of_real_records_stand_beside_each_other() -> None:
    def reads(prompt: Prompt) -> str:
        return json.dumps({**json.loads(decide(prompt)), "action_type": "read"})

    made = step_set()
    written = {"sender": write_messages(Listening(name="sender"), {"toy": made.steps})}
    records = [
        record
        for model in (Listening(name="doer"), Listening(reads, "reader"))
        for record in read_messages(model, {"toy": made.steps}, written)
    ]
    scored = score_records(records, made.gold, made.steps, snap=True)
    case = pick_case(rank_cases(scored))
    outputs = case_outputs(scored, case["benchmark"], case["step_id"]).set_index("receiver")
    assert outputs["outcome"].to_dict() == {"doer": "hit", "reader": "action_wrong"}
    assert outputs["artifact"].nunique() == 1 and outputs.loc["reader", "action"] == "read"
    assert outputs["alone outcome"].tolist() == ["artifact_wrong"] * 2
    assert json.loads(outputs.loc["doer", "reply"])["action_type"] == "edit"
    bare = case_outputs(scored[scored["arm"] == "RO"], case["benchmark"], case["step_id"])
    assert bare["reply"].isna().all() and bare["alone reply"].notna().all()
