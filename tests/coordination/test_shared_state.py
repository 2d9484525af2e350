"""A wrong entry in a shared log: who reads it, until when, and that only its maker sees gold."""

from __future__ import annotations

import inspect
import json

import msgspec
import pytest

from lib.coordination import shared_state
from lib.coordination.propagation_fit import fit_propagation
from lib.coordination.shared_state import (
    CONDITIONS,
    Condition,
    Entry,
    coupling,
    effects,
    residual_runs,
    run_episodes,
    score_episodes,
    wrong_entries,
)
from lib.models.receiver import Prompt
from lib.tasks.steps import Step, StepGold, StepSet
from tests.coordination.exchanges import ACTIONS, Listening

FILES = tuple(f"src/file_{number}.py" for number in range(4))
FRESH, STALE = (Condition(False, False, stale) for stale in (False, True))


def episodes(instances: int = 3, each: int = 4) -> StepSet:
    """In an episode the same file is right at every step; the view shows it at even steps only."""
    steps, gold = [], {}
    for instance in range(instances):
        for number in range(each):
            view = f"Open: {FILES[instance]}" if number % 2 == 0 else "Open: nothing"
            name = f"i{instance}"
            step = Step(f"{name}/{number}", "toy", name, number, view, "", ACTIONS, FILES, "toy-1")
            steps.append(step)
            gold[step.id] = StepGold(step.id, ((FILES[instance], "edit"),))
    return StepSet("toy", "toy-1", tuple(steps), gold)


def follow(prompt: Prompt) -> str:
    """Take the file that the view shows, else the one of the log's first entry, else the first file."""
    quoted = [line for line in prompt.turns[-1].text.split("\n") if line.startswith("> ")]
    seen = [
        line.rsplit(" ", 1)[1] for line in quoted if line.startswith(("> Open: src", "> step 0: ")) and "src" in line
    ]
    return json.dumps({"action_type": "edit", "target_artifact": seen[-1] if seen else FILES[0]})


SET = episodes()
ENTRIES = wrong_entries(SET.steps, SET.gold)


def run(**given: object):  # type: ignore[no-untyped-def]
    return run_episodes(SET.steps, ENTRIES, receiver=Listening(follow), **given)  # type: ignore[arg-type]


def test_a_wrong_entry_is_wrong_and_named() -> None:
    for instance, entry in ENTRIES.items():
        right = {pair for step in SET.steps if step.instance_id == instance for pair in SET.gold[step.id].pairs}
        assert entry.artifact in FILES and entry.artifact not in {artifact for artifact, _ in right}
    assert wrong_entries(SET.steps, SET.gold) == ENTRIES
    every = {step.id: StepGold(step.id, tuple((file, "read") for file in FILES)) for step in SET.steps}
    with pytest.raises(ValueError, match="it cannot be perturbed"):
        wrong_entries(SET.steps, every)


def test_all_conditions_take_a_step_in_one_call() -> None:
    receiver = Listening(follow)
    records = run_episodes(SET.steps, ENTRIES, receiver=receiver)
    assert receiver.batches == 4 and tuple(records) == CONDITIONS
    assert [record.step_id for record in records[FRESH]] == [step.id for step in SET.steps]
    assert {record.run_id.split(":")[1] for record in records[STALE]} == {"control-stale"}


def test_the_log_is_wrong_from_step_one_and_mended_from_step_two() -> None:
    receiver = Listening(follow)
    run_episodes(SET.steps[:4], ENTRIES, receiver=receiver, conditions=CONDITIONS[:3])
    firsts = [
        [line for line in prompt.turns[-1].text.split("\n") if line.startswith("> step 0")]
        for prompt in receiver.prompts
    ]
    own, wrong = f"> step 0: edit {FILES[0]}", f"> step 0: {ENTRIES['i0'].line}"
    assert firsts[:3] == [[]] * 3, "nothing yet at step 0, in any run"
    assert firsts[3:6] == [[own], [wrong], [wrong]]
    assert firsts[6:9] == firsts[9:12] == [[own], [wrong], [own]]


def test_stale_views_are_one_step_old() -> None:
    receiver = Listening(follow)
    run_episodes(SET.steps[:4], ENTRIES, receiver=receiver, conditions=(FRESH, STALE))
    views = [prompt.turns[-1].text.split("Observation:")[1].split("\n")[1] for prompt in receiver.prompts]
    shown, hidden = f"> Open: {FILES[0]}", "> Open: nothing"
    assert views[0::2] == [shown, hidden, shown, hidden] and views[1::2] == [shown, shown, hidden, shown]


def test_effects_are_held_against_the_control_with_the_same_observations() -> None:
    scored = score_episodes(run(), SET.gold, SET.steps, snap=False)
    table = effects(scored)
    mean = table.astype({"effect": float}).groupby(["run", "observation", "step_t"])["effect"].mean()
    assert mean["perturbed", "fresh"].tolist() == [-1.0, 0.0, -1.0], "seen through where the view shows the file"
    assert mean["repaired", "fresh"].tolist() == [-1.0, 0.0, 0.0]
    assert mean["perturbed", "stale"].tolist() == [0.0, -1.0, 0.0]
    assert set(table["run"]) == {"perturbed", "repaired"} and (table["step_t"] > 0).all()


def test_coupling_counts_changed_decisions_without_gold() -> None:
    table = coupling(run()).set_index(["run", "observation"])
    assert table.loc[("perturbed", "fresh"), "changed"] == pytest.approx(2 / 3) and table["steps"].eq(9).all()
    assert table.loc[("repaired", "fresh"), "changed"] == pytest.approx(1 / 3)
    deaf = Listening(lambda prompt: json.dumps({"action_type": "edit", "target_artifact": FILES[1]}))
    assert coupling(run_episodes(SET.steps, ENTRIES, receiver=deaf))["changed"].eq(0).all()


def test_residuals_start_at_one_where_the_log_is_wrong_by_design() -> None:
    scored = score_episodes(run(), SET.gold, SET.steps, snap=False)
    runs = residual_runs(scored, "fresh").set_index(["run", "step"])
    assert runs["residual"].loc["control"].tolist() == [0, 0, 0, 0]
    assert runs["residual"].loc["perturbed"].tolist() == [1, 1, 0, 1]
    assert (
        runs["repaired"].loc["repaired"].tolist() == [False, False, True, False]
        and not runs["repaired"]["control"].any()
    )
    assert (runs["instances"] == 3).all()
    assert fit_propagation(runs.reset_index()).steps == 9


def test_runs_do_not_see_gold() -> None:
    first = msgspec.json.encode(list(run().values()))
    other = msgspec.structs.replace(SET, gold={name: StepGold(name, (("x", "read"),)) for name in SET.gold})
    again = run_episodes(other.steps, ENTRIES, receiver=Listening(follow))
    assert msgspec.json.encode(list(again.values())) == first
    seeing = {
        name
        for name, function in inspect.getmembers(shared_state, inspect.isfunction)
        if function.__module__ == shared_state.__name__ and "gold" in inspect.signature(function).parameters
    }
    assert seeing == {"wrong_entries", "score_episodes"}


def test_unreadable_replies_stand_in_the_log_as_such() -> None:
    receiver = Listening(lambda prompt: "hm")
    run_episodes(SET.steps[:2], ENTRIES, receiver=receiver, conditions=(FRESH,))
    assert "> step 0: no readable decision" in receiver.prompts[1].turns[-1].text
    assert Entry(None, "edit").line == shared_state.UNREADABLE


def test_episodes_with_gaps_or_without_an_entry_are_refused() -> None:
    with pytest.raises(ValueError, match=r"steps \[0, 2\] are not 0, 1"):
        run_episodes([SET.steps[0], SET.steps[2]], ENTRIES, receiver=Listening(follow))
    with pytest.raises(ValueError, match="instance 'i0' has no wrong entry"):
        run_episodes(SET.steps, {}, receiver=Listening(follow))
    assert len(run_episodes(SET.steps, {}, receiver=Listening(follow), conditions=(FRESH,))[FRESH]) == 12
