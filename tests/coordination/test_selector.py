"""The selector: who is asked how often, what is charged, and that no decision can see gold."""

from __future__ import annotations

import ast
import inspect
import typing
from pathlib import Path

import msgspec
import pytest

import lib.coordination.selector
from lib.coordination.actions import ACTIONS, Prices, ToolTable
from lib.coordination.instructed import REFRESH, Instructed
from lib.coordination.probes import NoLogProbabilities
from lib.coordination.scoring import score_records
from lib.coordination.selector import (
    UNCACHED_PROBES,
    Choice,
    choice_frame,
    run_actions,
    select,
)
from lib.coordination.survey import Settings, choosing_overhead, survey_steps, write_candidates
from lib.models.receiver import Prompt
from lib.tasks.steps import StepGold
from tests.coordination.exchanges import Listening, decide, is_sender
from tests.coordination.sure import Mute, Sure, many_steps, mutated

SET = many_steps()
STEPS = SET.steps
DECIDING = ("actions", "probes", "survey", "selector", "controller", "instructed")
CLOSED = ToolTable(local_accuracy={"toy": 0.8})


def chosen(**given: object) -> list[Choice]:
    settings = {"receiver": Sure(), "sender": Listening(name="sender"), **given}
    return select(STEPS, **settings)  # type: ignore[arg-type]


def test_every_step_gets_what_makes_the_receiver_surest_at_the_least_cost() -> None:
    choices = chosen()
    assert [one.action for one in choices] == ["raw"] * len(STEPS), "here a context is shorter than a budget of 128"
    assert [one.action for one in chosen(settings=Settings(budget=4))] == ["raw"] * len(STEPS), "4 words name no file"
    small = [one.action for one in chosen(settings=Settings(budget=8), prices=Prices(cost=1e-4, offsets={"raw": -1}))]
    assert small == ["compress"] * len(STEPS)
    assert [one.record.artifact_pred for one in choices] == [f"src/file_{step.index}.py" for step in STEPS]
    assert [(one.step_id, one.record.step_id) for one in choices] == [(step.id, step.id) for step in STEPS]
    assert [one.action for one in chosen(prices=Prices(cost=10))] == ["skip"] * len(STEPS)


def test_all_steps_go_together() -> None:
    receiver, sender, strong = Sure(), Listening(name="sender"), Sure(name="strong")
    chosen(receiver=receiver, sender=sender, strong=strong)
    assert sender.batches == 2 and all(is_sender(prompt) for prompt in sender.prompts)
    assert (receiver.batches, receiver.score_batches) == (2, 1), "one probe of all, one final call"
    assert (strong.batches, strong.score_batches) == (1, 1)


def test_probes_are_counted_as_asked_and_as_they_would_be_without_keeping_any() -> None:
    def script(prompt: Prompt) -> str:
        return decide(prompt).replace("trace", "new trace") if REFRESH in prompt.turns[-1].text else decide(prompt)

    sender = Listening(script, "sender")
    both = chosen(strong=Sure(name="strong"), sender=sender)[0].cost
    assert (both.probe_calls, both.uncached_probes) == (2 + 4, UNCACHED_PROBES) == (6, 9)
    alone = chosen(sender=sender)[0].cost
    assert alone.probe_calls == 1 + 3, "escalate shows what compress does"
    same = chosen()[0].cost
    assert same.probe_calls == 1 + 2, "and here both candidates are the same text"
    assert both.probe_tokens > alone.probe_tokens > same.probe_tokens


def test_a_decision_is_charged_whole() -> None:
    receiver, sender = Sure(), Listening(name="sender")
    choice = chosen(receiver=receiver, sender=sender)[0]
    cost, record = choice.cost, choice.record
    assert cost.sender_calls == 2 and cost.reply_tokens == record.receiver_input_tokens + record.receiver_output_tokens
    assert cost.decision_tokens == cost.sender_tokens + cost.probe_tokens + cost.reply_tokens
    assert cost.arm_tokens == cost.reply_tokens, "raw context is no message"
    sent = chosen(prices=Prices(offsets={"compress": 5}))[0]
    assert sent.action == "compress" and sent.cost.reply_tokens < sent.cost.arm_tokens < sent.cost.decision_tokens


def test_overhead_is_what_the_stored_arm_does_not_pay() -> None:
    receiver, sender = Sure(), Listening(name="sender")
    survey = survey_steps(STEPS, receiver=receiver, sender=sender)
    overhead = choosing_overhead(survey)
    for offsets in ({"raw": 9.0}, {"compress": 9.0}, {"refresh": 9.0}, {"skip": 9.0}):
        choice = chosen(receiver=receiver, sender=sender, prices=Prices(offsets=offsets))[0]  # type: ignore[arg-type]
        wanted = choice.cost.decision_tokens - choice.cost.arm_tokens
        assert overhead[choice.step_id, choice.action] == wanted


def test_the_gate_calls_no_sender_and_no_probe() -> None:
    receiver, sender = Sure(), Listening(name="sender")
    choices = chosen(receiver=receiver, sender=sender, table=CLOSED)
    assert sender.calls == 0 and receiver.score_batches == 0 and receiver.calls == len(STEPS)
    assert all(one.gated and one.action == "skip" and one.estimates == () for one in choices)
    cost = choices[0].cost
    assert (cost.sender_calls, cost.probe_calls, cost.uncached_probes, cost.sender_tokens, cost.probe_tokens) == (
        0,
    ) * 5
    assert cost.decision_tokens == cost.arm_tokens == cost.reply_tokens
    assert not chosen(table=ToolTable(local_accuracy={"toy": 0.79}))[0].gated
    assert not chosen(table=CLOSED, settings=Settings(gate=None))[0].gated
    assert not chosen(table=ToolTable(local_accuracy={"other": 1.0}))[0].gated, "an unknown regime is not skipped"


def test_a_receiver_without_log_probabilities_is_refused_unless_nothing_is_probed() -> None:
    with pytest.raises(NoLogProbabilities, match="log-probabilities"):
        chosen(receiver=Mute())
    with pytest.raises(NoLogProbabilities):
        chosen(strong=Mute())
    assert len(chosen(receiver=Mute(), table=CLOSED)) == len(STEPS)


def test_a_sender_that_fails_is_never_sent() -> None:
    def script(prompt: Prompt) -> str:
        raise RuntimeError("down")

    choices = chosen(sender=Listening(script, "sender"), prices=Prices(offsets={"compress": 99.0, "refresh": 99.0}))
    assert {one.action for one in choices} == {"raw"}
    by_action = {one.action: one for one in choices[0].estimates}
    assert by_action["compress"].gain is None and by_action["compress"].value is None


def test_escalate_is_read_by_the_stronger_receiver_or_is_compress() -> None:
    strong = Sure(name="strong")
    offsets = Prices(offsets={"escalate": 9.0})
    assert chosen(strong=strong, prices=offsets)[0].record.receiver_model == "strong"
    alone = chosen(prices=offsets)[0]
    assert (alone.action, alone.record.receiver_model) == ("escalate", "sure")
    runs = run_actions(STEPS, receiver=Sure(), candidates=write_candidates(Listening(name="sender"), STEPS, Settings()))
    assert list(runs) == list(ACTIONS) and runs["escalate"] == runs["compress"]


def test_a_choice_is_what_running_all_actions_gives() -> None:
    receiver, sender = Sure(), Listening(name="sender")
    survey = survey_steps(STEPS, receiver=receiver, sender=sender)
    runs = run_actions(STEPS, receiver=receiver, candidates=survey.candidates)
    for choice in chosen(receiver=receiver, sender=sender):
        stored = next(record for record in runs[choice.action] if record.step_id == choice.step_id)
        same = ("receiver_output", "receiver_input_key", "total_input_tokens", "message_shown")
        assert [getattr(stored, name) for name in same] == [getattr(choice.record, name) for name in same]


def test_no_decision_can_see_gold() -> None:
    first = msgspec.json.encode(chosen())
    SET_WITH_OTHER_GOLD = msgspec.structs.replace(SET, gold=mutated(SET))
    again = select(SET_WITH_OTHER_GOLD.steps, receiver=Sure(), sender=Listening(name="sender"))
    assert msgspec.json.encode(again) == first
    scores = [
        score_records([one.record for one in again], gold, STEPS, snap=False)["hit_joint"].tolist()
        for gold in (SET.gold, SET_WITH_OTHER_GOLD.gold)
    ]
    assert scores[0] != scores[1], "the gold was another"


def test_decisions_have_no_type_with_gold() -> None:
    folder = Path(lib.coordination.selector.__file__).parent
    for name in DECIDING:
        tree = ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))
        words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        words |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        words |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        words |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        assert not {word for word in words if "gold" in word.lower() or word.startswith("hit_")}, name
        modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not modules & {
            f"lib.coordination.{one}" for one in ("scoring", "action_outcomes", "calibration", "closure")
        }
    for annotation in typing.get_type_hints(select).values():
        assert StepGold not in typing.get_args(annotation)
    assert not {"gold", "outcomes"} & set(inspect.signature(select).parameters)


def test_a_step_twice_is_refused_and_no_steps_ask_nobody() -> None:
    with pytest.raises(ValueError, match="given twice"):
        select([STEPS[0], STEPS[0]], receiver=Sure(), sender=Listening(name="sender"))
    receiver, sender = Sure(), Listening(name="sender")
    assert select([], receiver=receiver, sender=sender) == [] and (receiver.batches, sender.batches) == (0, 0)
    assert choice_frame([]).empty


def test_choices_as_a_frame() -> None:
    frame = choice_frame(chosen())
    assert frame["action"].eq("raw").all() and frame["step_id"].tolist() == [step.id for step in STEPS]
    assert (frame["decision_tokens"] > frame["arm_tokens"]).all() and frame["uncached_probes"].eq(9).all()


def test_an_instructed_sender_is_asked_the_same_with_one_more_line() -> None:
    plain, inner = Listening(name="sender"), Listening(name="sender")
    for sender in (plain, Instructed(inner, REFRESH)):
        write_candidates(sender, STEPS[:1], Settings())
    before, after = plain.prompts[0].turns[-1].text.split("\n"), inner.prompts[0].turns[-1].text.split("\n")
    assert after == [*before[:-1], REFRESH, before[-1]]
    wrapped = Instructed(inner, REFRESH)
    assert wrapped.name == "sender" and wrapped.fingerprint != inner.fingerprint
    assert wrapped.prompt_key(plain.prompts[0]) == inner.prompt_key(inner.prompts[0])
