"""A log replayed: what is decisive is found, what is said twice looks idle, caps are kept, nothing depends on gold."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from lib.bandmas import effects_of, replay_outcomes
from lib.bandmas.log_study import LogCase, agent_table, cap_table, cheapest, log_case, packet_ranking, reference_reply
from lib.messages.free_text import log_packets
from lib.messages.log_prompt import log_renderer, log_task
from lib.messages.logged import Collector, LogError
from lib.models.receiver import Prompt
from lib.models.scripted import ScriptedReceiver
from lib.tasks.free_answers import FreeUtility, answer_change, rule_utility

RENDER = log_renderer()


def last_colour(prompt: Prompt) -> str:
    """Answer the last colour named in the messages."""
    found = re.findall(r"\b(?:red|blue|green)\b", prompt.turns[-1].text)
    return json.dumps({"answer": found[-1] if found else "unknown"})


def case_of(*said: tuple[str, str], most: int = 50) -> LogCase:
    out = Collector()
    for sender, text in said:
        out.add(sender=sender, text=text, place=f"message {len(out) + 1}")
    messages = out.finish("test").messages
    task = log_task("What colour has the boat?")
    return log_case(task, messages, log_packets(messages, task_id=task.id), most)


TALK = (
    ("idler", "Nice weather today, is it not?"),
    ("scout", "The boat seems to be red."),
    ("painter", "No, I painted it blue yesterday."),
    ("idler", "The tea is ready now."),
)


def replayed(case: LogCase, judge: FreeUtility, receiver: ScriptedReceiver) -> tuple[pd.DataFrame, pd.DataFrame]:
    jobs = [(case.task, list(case.packets))]
    outcomes = replay_outcomes(receiver, jobs, judge, RENDER, {case.task.id})
    effects = effects_of(outcomes, jobs)
    return effects, packet_ranking(case, effects, outcomes)


def test_without_gold_the_message_that_holds_the_answer_up_comes_first() -> None:
    case, receiver = case_of(*TALK), ScriptedReceiver(last_colour)
    judge = answer_change(reference_reply(receiver, case, RENDER))
    _, ranking = replayed(case, judge, receiver)
    first = ranking.iloc[0]
    assert (first["sender"], first["rce"], first["place"]) == ("painter", 1.0, "message 3")
    assert (first["answer_alone"], first["answer_without"]) == ("blue", "red")
    assert ranking["rce"].tolist() == [1.0, 0.0, 0.0, 0.0] and ranking["rank"].tolist() == [1, 2, 3, 4]
    agents = agent_table(ranking)
    assert agents["sender"].tolist() == ["painter", "idler", "scout"]
    assert agents["idle"].tolist() == [0, 2, 1] and agents["share_of_bytes"].sum() == pytest.approx(1.0)


def test_influence_is_not_truth() -> None:
    """By answer_change the painter holds the answer up; by a rule that wants red the same packet harms."""
    case, receiver = case_of(*TALK), ScriptedReceiver(last_colour)
    _, ranking = replayed(case, rule_utility("red"), receiver)
    by_sender = ranking.set_index("sender")["rce"]
    assert by_sender["painter"] == -0.5 and by_sender["scout"] == 0.5
    assert agent_table(ranking)["sender"].iloc[-1] == "painter"


def test_what_two_say_is_sufficient_and_not_necessary() -> None:
    case, receiver = case_of(("a", "The boat is blue."), ("b", "Yes, it is blue.")), ScriptedReceiver(last_colour)
    _, ranking = replayed(case, answer_change('{"answer": "blue"}'), receiver)
    assert ranking["sufficiency"].tolist() == [1.0, 1.0] and ranking["necessity"].tolist() == [0.0, 0.0]


def test_caps_are_kept_and_equal_packet_sets_are_asked_once() -> None:
    case, receiver = case_of(*TALK), ScriptedReceiver(last_colour)
    judge = answer_change(reference_reply(receiver, case, RENDER))
    effects, _ = replayed(case, judge, receiver)
    receiver.calls = 0
    table = cap_table(receiver, case, effects, judge, RENDER, [0.3, 0.6, 1.0])
    capped = table.dropna(subset=["beta"])
    assert (capped["bytes"] <= capped["cap_bytes"]).all() and len(capped) == 12
    assert receiver.calls < len(table)
    by = table.set_index("policy")
    assert by.loc["full", "bytes"] == case.full_bytes and by.loc["full", "utility"] == 1.0
    assert (by.loc["empty", "bytes"], by.loc["empty", "answer"], by.loc["empty", "utility"]) == (0, "unknown", 0.0)
    best = cheapest(table).set_index("policy")
    assert best.loc["oracle", "packets"] == 1 and best.loc["oracle", "answer"] == "blue"
    assert best.loc["oracle", "bytes"] <= best.loc["latest first", "bytes"]


def test_a_failed_call_is_null_and_never_zero() -> None:
    case = case_of(*TALK)

    def fails_without_tea(prompt: Prompt) -> str:
        if "tea" not in prompt.turns[-1].text:
            raise RuntimeError("out of order")
        return last_colour(prompt)

    receiver = ScriptedReceiver(fails_without_tea)
    effects, ranking = replayed(case, answer_change('{"answer": "blue"}'), receiver)
    assert ranking["rce"].isna().all() and agent_table(ranking)["unmeasured"].sum() == 4
    table = cap_table(receiver, case, effects, answer_change('{"answer": "blue"}'), RENDER, [0.3])
    empty = table[table["policy"] == "empty"].iloc[0]
    assert pd.isna(empty["utility"]) and "out of order" in empty["reason"]


def test_what_cannot_be_replayed_says_how_it_can() -> None:
    with pytest.raises(LogError, match="4 packets take 10 calls, more than most=3 allows: cut coarser"):
        case_of(*TALK, most=3)
    with pytest.raises(LogError, match="no message is left to replay"):
        case_of()
    with pytest.raises(LogError, match="could not answer from the whole log: ZeroDivisionError"):
        reference_reply(ScriptedReceiver(lambda prompt: str(1 // 0)), case_of(*TALK), RENDER)
