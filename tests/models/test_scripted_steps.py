"""The rules that choose steps: they serve every prompt of coordination, differ in ability, and can be misled."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from lib.coordination.actions import ACTIONS
from lib.coordination.arms import replay_messages, run_arms
from lib.coordination.exchange import ENCODINGS, records_frame
from lib.coordination.instructed import REWRITE, Instructed
from lib.coordination.probes import OPENING
from lib.coordination.prompts import receiver_prompt, sender_prompt
from lib.coordination.recode import recode_messages
from lib.coordination.scoring import score_records
from lib.coordination.sending import encode_again, send_messages
from lib.coordination.shared_state import Condition, run_episodes, wrong_entries
from lib.coordination.survey import Settings, survey_steps
from lib.models import Prompt, Turn, open_receiver
from lib.models.scripted import lexical_script
from lib.models.scripted_steps import HASTY, how_sure, step_script
from lib.models.scripted_views import first_words, fitting_action, most_alike, named_in, read_board, take_apart
from lib.tasks import StepSet, load_families

LADDER = ("scripted-stubborn", "scripted-hasty", "scripted", "scripted-careful")
STALE, FRESH = load_families(["shared_episodes", "shared_episodes:fresh=0.9"], limit=6).values()


def hits(records: list, steps: StepSet) -> pd.DataFrame:  # type: ignore[type-arg]
    return score_records(records, steps.gold, steps.steps, snap=False)


def accuracy(receiver: str, sender: str, steps: StepSet = STALE) -> dict[str, float]:
    records = run_arms(steps.steps, receiver=open_receiver(receiver), sender=open_receiver(sender))
    return hits(records, steps).groupby("arm")["hit_joint"].mean().to_dict()


def test_a_message_helps_who_reads_it_and_only_as_far_as_it_is_right() -> None:
    careful = {name: accuracy(name, "scripted-careful") for name in LADDER}
    assert all(careful[name]["RO"] < 0.5 for name in LADDER), "views are out of date at three steps of four"
    assert careful["scripted-careful"]["MA"] > 0.85 > careful["scripted-hasty"]["MA"]
    assert careful["scripted"]["MA"] > careful["scripted"]["RO"] + 0.4
    assert abs(careful["scripted-stubborn"]["MA"] - careful["scripted-stubborn"]["RO"]) < 0.2
    weak = accuracy("scripted", "scripted-hasty")
    assert weak["MA"] < careful["scripted"]["MA"] - 0.3
    fresh = accuracy("scripted", "scripted-hasty", FRESH)
    assert fresh["RO"] > 0.7 and fresh["MA"] < fresh["RO"], "who knows enough is misled by a weak sender"


@pytest.mark.parametrize("mode", ["payload", "direct"])
def test_every_encoding_is_written_and_read(mode: str) -> None:
    sender, receiver = open_receiver("scripted-careful"), open_receiver("scripted")
    made = send_messages(sender, STALE.steps, 128)
    for encoding in ENCODINGS:
        sent = encode_again(made, encoding) if mode == "payload" else None
        sent = sent or send_messages(sender, STALE.steps, 128, encoding, mode="direct")
        found = hits(replay_messages([receiver], STALE.steps, sent), STALE)
        assert found["hit_joint"].mean() > 0.7, encoding
    text = made[STALE.steps[0].id].text
    assert "number " in text and "work order" in text, (
        "a rationale describes its target, so that recoding can locate it"
    )


def test_a_cut_message_may_mislead_and_a_recoded_one_is_located_by_who_reads_on() -> None:
    made = send_messages(open_receiver("scripted-careful"), FRESH.steps, 128)
    records = replay_messages([open_receiver("scripted")], FRESH.steps, made, budgets=(0, 14, None))
    rate = hits(records, FRESH).groupby("budget_tokens", dropna=False)["hit_joint"].mean()
    assert rate.loc[14] < rate.loc[0] - 0.2, "a name that stands before the target is followed"
    recoded = recode_messages(made)
    assert not recoded.refused
    readers = [open_receiver("scripted"), open_receiver("scripted-hasty")]
    located = hits(replay_messages(readers, FRESH.steps, recoded.messages), FRESH)
    by_reader = located.groupby("receiver_model")["hit_joint"].mean()
    assert by_reader["scripted"] > 0.75 > by_reader["scripted-hasty"]


def test_silence_prose_and_instructions() -> None:
    hasty = open_receiver("scripted-hasty")
    records = run_arms(STALE.steps, receiver=hasty, sender=hasty, constrained=False)
    frame = records_frame(records)
    sent = frame[frame["arm"] == "MA"]
    assert 0 < sent["message_empty"].mean() < 0.3, "asked twice, it may still say nothing"
    assert 0.1 < 1 - frame["parse_valid"].mean() < 0.6
    careful = open_receiver("scripted-careful")
    usual, shorter = (send_messages(one, STALE.steps[:5], 128) for one in (careful, Instructed(careful, REWRITE)))
    assert all(len(shorter[name].text) < len(usual[name].text) for name in usual)


def test_probes_are_surer_with_a_message_than_with_an_old_view() -> None:
    receiver = open_receiver("scripted")
    for signal in ("first_token", "action"):
        found = survey_steps(STALE.steps, receiver=receiver, sender=receiver, settings=Settings(signal=signal))
        gains = found.signals.pivot(index="step_id", columns="action", values="gain")[list(ACTIONS)]
        assert (gains["skip"] == 0).all() and gains["compress"].gt(0.3).mean() > 0.5
        assert gains["compress"].lt(0.1).any(), "a view that is fresh gains nothing"
    prompt = receiver_prompt(STALE.steps[0], constrained=False)
    options = [f'{OPENING}{action}"' for action in STALE.steps[0].actions]
    scores = receiver.score([prompt], options)[0]
    assert int(scores.argmax()) == [one in receiver.script(prompt) for one in options].index(True)
    assert np.isclose(np.exp(scores).sum(), 1.0, atol=0.02) and np.isclose(
        np.exp(scores.max()), how_sure(prompt), atol=0.02
    )


def test_a_shared_log_is_followed_also_where_it_is_wrong() -> None:
    entries = wrong_entries(STALE.steps, STALE.gold)
    conditions = [Condition(False, False, False), Condition(True, False, False)]
    records = run_episodes(
        STALE.steps, receiver=open_receiver("scripted-careful"), entries=entries, conditions=conditions
    )
    picks = [[(one.artifact_pred, one.action_type_pred) for one in records[condition]] for condition in conditions]
    assert picks[0] != picks[1]
    board = read_board("Shared log of decisions:\nstep 0: edit a/b.py\nObservation:\n" + _VIEW, "")
    assert board is not None and board.states == {"a/b.py": "untested", "c.py": "unread"}
    assert board.next_pair() == ("a/b.py", "run_test") and board.age == 1
    later = read_board(_VIEW, "States now, before step 1:\na/b.py: done\nc.py: gone")
    assert later is not None and later.next_pair() is None and later.age == 0


_VIEW = """You are: agent 1 of 2, at step 1
States and what they ask for: draft: edit, untested: run_test, unread: read
Work order: a/b.py, c.py
States as you saw them before step 0:
a/b.py: draft
c.py: unread"""


def test_names_are_found_spelled_out_or_by_their_words() -> None:
    names = ("get_order_details", "cancel_pending_order", "_negative_00")
    assert most_alike("Please cancel my order.", names) == ("cancel_pending_order", 2)
    assert named_in("not xa.py but b/a.py and a.py", ("a.py", "b/a.py")) == "b/a.py" and named_in("", names) is None
    assert fitting_action("cancel_pending_order", ("read", "delete", "run_test")) == "delete"
    assert fitting_action("src/get.py", ("read", "edit")) == "edit" and fitting_action("x", ("read",)) == "read"
    assert (first_words("one two\nthree", 2), first_words("one", 0), first_words("one ", None)) == (
        "one two",
        "",
        "one ",
    )


def test_other_prompts_are_left_alone_and_replies_repeat() -> None:
    other = Prompt((Turn("system", "Answer from the packets."), Turn("user", "Question: who?\nSource A - Claim: Ada")))
    assert take_apart(other) is None and step_script(other) is None and how_sure(other) is None
    assert open_receiver("scripted-hasty").reply([other])[0].text == lexical_script(other)
    step = STALE.steps[1]
    for prompt in (
        receiver_prompt(step, "context"),
        sender_prompt(step, 16),
        sender_prompt(step, 16, constrained=True),
    ):
        for reader in LADDER:
            assert open_receiver(reader).reply([prompt])[0] == open_receiver(reader).reply([prompt])[0]
    bound = json.loads(step_script(receiver_prompt(step), HASTY) or "")
    assert bound["action_type"] in step.actions and bound["target_artifact"] in step.artifacts
