"""Arms and replay: who is asked what, how often, and that nobody can be asked with gold in hand."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import msgspec
import pytest

import lib.coordination.arms
from lib.coordination.arms import Exposure, ask_receiver, reparse, replay_messages, run_arms, send_messages
from lib.coordination.exchange import Record
from lib.models.receiver import Prompt
from lib.models.scripted import ScriptedReceiver
from lib.tasks.steps import StepGold, StepSet
from tests.coordination.exchanges import Listening, decide, is_sender, step_at, step_set

STEPS = step_set().steps
ASKING = (
    *("arms", "budget", "exchange", "parse", "payload", "prompts", "recode", "sending"),
    *("actions", "controller", "gain_study", "instructed", "probes", "protocol", "selector", "survey"),
    *("ladder", "together"),
)


def picks(records: list[Record], arm: str) -> list[tuple[str | None, str | None]]:
    return [(one.artifact_pred, one.action_type_pred) for one in records if one.arm == arm]


def test_messages_and_context_reach_the_receiver_and_nothing_does_without() -> None:
    records = run_arms(STEPS, receiver=Listening())
    right = [(f"src/file_{step.index}.py", "edit") for step in STEPS]
    assert picks(records, "RO") == [("src/file_2.py", "read")] * 3
    assert picks(records, "SF") == right and picks(records, "MA") == right
    assert [one.arm for one in records] == ["RO"] * 3 + ["SF"] * 3 + ["MA"] * 3
    assert [one.step_id for one in records][:3] == [step.id for step in STEPS]


def test_one_call_an_arm() -> None:
    receiver, sender = Listening(), Listening(name="sender")
    run_arms(STEPS, receiver=receiver, sender=sender)
    assert (receiver.batches, sender.batches) == (3, 1)
    assert all(is_sender(prompt) for prompt in sender.prompts)
    matched = Listening()
    assert run_arms(STEPS, receiver=matched)[-1].sender_model == "rules" and matched.batches == 4
    assert run_arms((), receiver=matched) == [] and matched.batches == 4


def test_a_record_accounts_for_message_and_tokens() -> None:
    sender = Listening(name="sender")
    record = run_arms(STEPS, receiver=Listening(), sender=sender, arms=("MA",), budget=3, encoding="prose")[1]
    assert record.message_raw == (
        "The next action is edit. Its target is src/file_1.py. The reason: the trace ends in src/file_1.py."
    )
    assert record.message_shown == "The next action " and (record.message_tokens, record.budget_tokens) == (3, 3)
    assert record.message_truncated and not record.message_empty and record.message_full_tokens == 16
    assert record.message_from_payload and not record.message_capped
    asked = sum(len(turn.text.split()) for turn in sender.prompts[1].turns)
    assert record.total_input_tokens == record.receiver_input_tokens + asked
    assert record.total_output_tokens == record.receiver_output_tokens + len(decide(sender.prompts[1]).split())
    assert (record.benchmark, record.instance_id, record.step_t, record.encoding_format) == ("toy", "one", 1, "prose")


def test_arms_without_a_message_leave_its_fields_null() -> None:
    for record in run_arms(STEPS[:1], receiver=Listening(), arms=("RO", "SF")):
        values = msgspec.structs.asdict(record)
        assert {name for name, value in values.items() if value is None} == {
            *(name for name in values if name.startswith("message_")),
            *("sender_model", "budget_tokens", "encoding_format", "error"),
        }
        assert record.total_input_tokens == record.receiver_input_tokens


def test_a_budget_of_zero_is_an_arm_of_its_own() -> None:
    receiver = Listening()
    nothing, none = run_arms(STEPS[:1], receiver=receiver, arms=("MA", "RO"), budget=0)
    assert not any(is_sender(prompt) for prompt in receiver.prompts)
    assert nothing.receiver_input_key != none.receiver_input_key
    assert (nothing.message_empty, nothing.message_tokens, nothing.message_capped) == (True, 0, None)
    assert nothing.total_input_tokens == nothing.receiver_input_tokens


def test_free_replies_are_parsed_and_read_again_by_another_parser() -> None:
    receiver = Listening(lambda prompt: decide(prompt) if is_sender(prompt) else "I would edit src/file_1.py.")
    records = run_arms(STEPS, receiver=receiver, constrained=False)
    assert all(prompt.schema is None for prompt in receiver.prompts if not is_sender(prompt))
    assert not any(one.parse_valid for one in records) and records[0].parse_reason == "no complete JSON object"
    asked = receiver.batches
    again = reparse(records, STEPS, "permissive")
    assert receiver.batches == asked and all(one.parse_valid and one.parser == "permissive" for one in again)
    assert picks(again, "RO") == [("src/file_1.py", "edit")] * 3
    assert reparse(again, STEPS, "robust") == records


def test_failed_calls_are_no_decisions() -> None:
    def broken(prompt: Prompt) -> str:
        raise RuntimeError("no memory")

    record = run_arms(STEPS[:1], receiver=Listening(broken), arms=("RO",))[0]
    assert (record.answered, record.parse_valid, record.error) == (False, None, "RuntimeError: no memory")
    assert record.total_output_tokens is None
    assert reparse([record], STEPS, "permissive")[0].parse_valid is None


def test_where_the_sender_fails_the_receiver_is_not_asked() -> None:
    def half(prompt: Prompt) -> str:
        if "Ticket 1" in prompt.turns[1].text:
            raise RuntimeError("no memory")
        return decide(prompt)

    receiver = Listening()
    records = run_arms(STEPS, receiver=receiver, sender=Listening(half, "half"), arms=("MA",))
    assert [one.answered for one in records] == [True, False, True] and len(receiver.prompts) == 2
    lost = records[1]
    assert lost.error == "the sender failed: RuntimeError: no memory" and lost.message_empty is None
    assert lost.receiver_input_key is None and lost.sender_model == "half"
    assert [one.artifact_pred for one in records] == ["src/file_0.py", None, "src/file_2.py"]


def test_replay_shows_stored_messages_to_every_receiver_in_one_call_each() -> None:
    sender = Listening(name="sender")
    messages = send_messages(sender, STEPS, 16)
    deaf = Listening(lambda _: json.dumps({"action_type": "read", "target_artifact": "src/file_0.py"}), "deaf")
    receivers = [Listening(), deaf]
    records = replay_messages(receivers, STEPS, messages, budgets=(None, 2, 0))
    assert sender.batches == 1 and [one.batches for one in receivers] == [1, 1] and len(records) == 18
    assert [one.budget_tokens for one in records[:9:3]] == [None, 2, 0]
    whole = [one for one in records if one.budget_tokens is None]
    assert [one.message_shown for one in whole[:3]] == [one.message_shown for one in whole[3:]]
    assert all(one.message_shown == messages[one.step_id].text for one in whole)
    assert all(one.message_empty and one.message_truncated for one in records if one.budget_tokens == 0)
    assert replay_messages(receivers[:1], STEPS, messages, budgets=(2,)) == [
        one for one in records if one.budget_tokens == 2 and one.receiver_model == "rules"
    ]


def test_a_budget_may_be_counted_by_one_receiver_for_all() -> None:
    class Letters(Listening):
        def count_tokens(self, texts):  # type: ignore[no-untyped-def]
            return [len(text) for text in texts]

    messages = send_messages(Listening(), STEPS, 16)
    pair = [Listening(), Letters(name="letters")]
    own = replay_messages(pair, STEPS[:1], messages, budgets=(2,))
    same = replay_messages(pair, STEPS[:1], messages, budgets=(2,), counted_by=pair[0])
    assert own[0].message_shown != own[1].message_shown and own[1].message_shown == '{"'
    assert same[0].message_shown == same[1].message_shown == own[0].message_shown


def test_an_exposure_is_asked_as_in_its_arm() -> None:
    receiver = Listening()
    answer = ask_receiver(receiver, [Exposure(STEPS[0], "context")])[0]
    record = run_arms(STEPS[:1], receiver=receiver, arms=("SF",))[0]
    assert answer.key == record.receiver_input_key and answer.decision.artifact == record.artifact_pred


def test_refusals() -> None:
    with pytest.raises(ValueError, match="arm 'XX'"):
        run_arms(STEPS, receiver=Listening(), arms=("XX",))
    with pytest.raises(ValueError, match="twice"):
        run_arms([step_at(0), step_at(0)], receiver=Listening())
    with pytest.raises(ValueError, match="no stored message"):
        replay_messages([Listening()], STEPS, {})
    with pytest.raises(ValueError, match="names must differ"):
        replay_messages([Listening(), Listening()], (), {})


def test_runs_repeat_and_are_named_by_what_they_are() -> None:
    def once(budget: int) -> list[Record]:
        return run_arms(STEPS, receiver=ScriptedReceiver(decide), budget=budget)

    assert once(8) == once(8)
    assert once(8)[0].run_id != once(9)[0].run_id


# ------------------------------------------------------------------------------------------------------------------- no leak


def test_changing_all_gold_changes_no_prompt_and_no_record() -> None:
    honest = step_set()
    wrong = {step_id: StepGold(step_id, (("elsewhere.py", "delete"),)) for step_id in honest.gold}
    changed = StepSet(honest.name, honest.version, honest.steps, wrong)
    asked, written = [], []
    for steps in (honest, changed):
        model = Listening()
        records = run_arms(steps.steps, receiver=model)
        records += replay_messages([model], steps.steps, send_messages(model, steps.steps, 8), budgets=(0, 4, None))
        asked.append(b"\n".join(msgspec.json.encode(prompt) for prompt in model.prompts))
        written.append(msgspec.json.encode(records))
    assert asked[0] == asked[1] and written[0] == written[1]


def test_no_module_that_asks_can_name_gold_or_import_what_scores() -> None:
    folder = Path(lib.coordination.arms.__file__).parent
    for name in ASKING:
        tree = ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                names = {alias.name for alias in node.names}
                assert not names & {"StepGold", "StepSet"}, name
                assert node.module not in {"lib.coordination.scoring", "lib.coordination.closure"}, name
                if (node.module or "").startswith("lib.coordination."):
                    assert node.module.rsplit(".", 1)[1] in ASKING, (
                        f"{name} imports {node.module}, which is not checked here"
                    )
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"gold", "pairs"} and not node.attr.startswith("hit_"), name
    fields = Record.__struct_fields__
    assert not [one for one in fields if "gold" in one or one.startswith("hit")]
