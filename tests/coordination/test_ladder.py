"""A ladder of models: every cell once, one call a model, the same records as arm by arm."""

from __future__ import annotations

import itertools
import json

import pytest

from lib.coordination.arms import replay_messages, run_arms, send_messages
from lib.coordination.closure import check_fixed_messages
from lib.coordination.exchange import records_frame
from lib.coordination.ladder import read_messages, write_messages
from lib.coordination.together import in_one_call
from lib.models.receiver import Prompt, Receiver
from lib.models.scripted import ScriptedReceiver
from lib.runs.store import Store
from lib.runs.stored import StoredReceiver
from tests.coordination.exchanges import Listening, decide, is_sender, step_at

FAMILIES = {"near": [step_at(0), step_at(1)], "far": [step_at(2, "two")]}


def shy(prompt: Prompt) -> str:
    """A sender that says something readable only when it is asked again."""
    if is_sender(prompt) and len(prompt.turns) == 2:
        return "hm"
    return decide(Prompt(prompt.turns[:2]))


def test_every_cell_is_there_once_in_order() -> None:
    written = {name: write_messages(Listening(name=name), FAMILIES) for name in ("first", "second")}
    records = read_messages(Listening(name="reader"), FAMILIES, written, arms=("RO", "SF"))
    cells = [(one.arm, one.sender_model, one.step_id) for one in records]
    near, far = ["one/0", "one/1"], ["two/2"]
    arms = [("RO", None), ("SF", None), ("MA", "first"), ("MA", "second")]
    assert cells == [(*arm, step) for family in (near, far) for arm in arms for step in family]
    assert {one.receiver_model for one in records} == {"reader"}
    check_fixed_messages(records_frame(records))


def test_one_call_a_model_and_the_records_of_separate_calls() -> None:
    sender, reader = Listening(name="sender"), Listening(name="reader")
    written = {"sender": write_messages(sender, FAMILIES)}
    records = read_messages(reader, FAMILIES, written)
    assert (sender.batches, reader.batches) == (1, 1)
    apart = []
    for steps in FAMILIES.values():
        assert send_messages(Listening(name="sender"), steps) == {
            key: sent
            for family in written["sender"].values()
            for key, sent in family.items()
            if key in {s.id for s in steps}
        }
        apart += run_arms(steps, receiver=Listening(name="reader"), arms=["RO"])
        apart += replay_messages([Listening(name="reader")], steps, write_messages(sender, {"f": steps})["f"])
    assert records == apart


def test_prompts_with_a_common_beginning_stand_together() -> None:
    reader = Listening(name="reader")
    read_messages(reader, FAMILIES, {"s": write_messages(Listening(), FAMILIES)}, arms=("RO", "SF"))
    views = [prompt.turns[-1].text.partition("Artifacts:")[0] for prompt in reader.prompts]
    changes = sum(one != two for one, two in itertools.pairwise(views))
    assert changes == 2, "three steps, three runs of prompts"


def test_a_second_try_is_asked_when_it_comes() -> None:
    sender = Listening(shy)
    sent = write_messages(sender, FAMILIES)["near"]["one/1"]
    assert sender.batches == 3 and sent.tries == 2 and json.loads(sent.text)["target_artifact"] == "src/file_1.py"


def test_with_a_store_a_second_run_computes_nothing(tmp_path) -> None:  # type: ignore[no-untyped-def]
    made = []
    for _ in range(2):
        models = {
            name: StoredReceiver(ScriptedReceiver(shy, name), Store(tmp_path / "s"), progress=False) for name in "ab"
        }
        written = {name: write_messages(model, FAMILIES) for name, model in models.items()}
        records = [read_messages(model, FAMILIES, written) for model in models.values()]
        made.append((records, [model.computed for model in models.values()]))
    assert made[0][0] == made[1][0] and made[1][1] == [0, 0] and min(made[0][1]) > 0


def test_wrong_requests_are_named() -> None:
    with pytest.raises(ValueError, match="MA is read"):
        read_messages(Listening(), FAMILIES, {}, arms=("RO", "MA"))
    with pytest.raises(ValueError, match="greedy"):
        in_one_call(Listening(), lambda asked: asked.reply([], temperature=1.0))


def test_scores_counts_and_names_are_the_receivers_own() -> None:
    def look(asked: Receiver) -> tuple[object, ...]:
        prompt = Prompt(())
        return asked.name, asked.fingerprint, asked.count_tokens(["a b"]), asked.prompt_key(prompt)

    model = Listening()
    assert in_one_call(model, look) == look(model) and model.batches == 0
