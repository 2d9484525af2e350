from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.moc.accounting import messages_table, tokens_table
from lib.moc.adaptive_hops import HopRule
from lib.moc.arms import ARMS
from lib.moc.distill import ReceiverDistiller
from lib.moc.hop_study import run_rules
from lib.moc.poison import Attack, poison_teams
from lib.moc.record import TeamRun
from lib.moc.study import CodeRules, Graphs, arm_steps, graphs_of, run_arms, run_cells
from lib.moc.team import DagFor, run_teams, team_steps
from lib.moc.waves import in_step
from lib.models import Prompt, Reply
from lib.models.scripted_team import team_script
from lib.seeds import digest
from lib.tasks.questions import Answer, build_questions
from tests.moc.crew import Crew, choice, code, number, speaker
from tests.moc.embedding import hash_embed

SETS = {
    "letters": build_questions("letters", [(choice(name), Answer(name, "A")) for name in ("q1", "q2")]),
    "numbers": build_questions("numbers", [(number("n1"), Answer("n1", "3"))]),
    "code": build_questions("code", [(code("c1"), Answer("c1", "x"))]),
}
WRONG = {"q1": "B", "q2": "C", "n1": "9"}


def wordy(prompt: Prompt) -> str:
    """Say words that hang on the whole prompt, so that whoever is shown another text says another one; code for code."""
    read = digest([turn.text for turn in prompt.turns])
    words = " ".join(f"word{read[place : place + 4]}." for place in range(8))
    if "def add" in prompt.turns[-1].text:
        body = "a + b" if speaker(prompt) in ("Bug fixer", "Programming expert") else "a"
        return f"```python\ndef add(a, b):\n    return {body}  # {words}\n```"
    return f"{words}\nThe answer is {'ABCD'[int(read[:2], 16) % 4]}"


def merging(crew: Crew) -> dict[str, Any]:
    return {"embed": hash_embed, "distiller": ReceiverDistiller(Crew(team_script)), "k": 2, "gamma": 0.0}


def told(runs: Sequence[TeamRun]) -> object:
    """Everything that a run records but for the clock."""
    merges = [(target, done.items, done.merges) for run in runs for target, done in run.consolidations]
    frame = messages_table(runs).drop(columns=["seconds"])
    return frame.astype(str).to_dict("records"), tokens_table(runs).astype(str).to_dict("records"), merges


def separately(crew: Crew, arms: Sequence[str], dag_for: DagFor, **options: Any) -> list[TeamRun]:
    steps = [one for arm in arms for one in arm_steps(crew, SETS, dag_for, arm, **options)]
    return [run for one in steps for run in in_step([one])[0]]


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 99), st.sampled_from([0.3, 0.6, 1.0]), st.sampled_from(["one", "each"]), st.booleans())
def test_arms_and_sets_in_step_record_what_they_record_alone(
    seed: int, density: float, graphs: Graphs, apart: bool
) -> None:
    together, alone = Crew(wordy), Crew(wordy)
    dag_for = graphs_of(5, density, seed, graphs)
    caps = {"max_tokens": 60, "code_max_tokens": 90 if apart else 60}
    runs = run_arms(together, SETS, dag_for, ARMS, **caps, **merging(together))
    expected = separately(alone, ARMS, dag_for, **caps, **merging(alone))
    assert told(runs) == told(expected) and all(message.ok for run in runs for message in run.messages)
    assert [(run.arm, run.question_id) for run in runs] == [
        (arm, name) for arm in ARMS for name in ("q1", "q2", "n1", "c1")
    ]
    longest = 1 + max(message.wave for run in runs for message in (*run.messages, run.decision))
    assert len(together.batches) <= longest * (1 + apart) < len(alone.batches)
    assert sorted(map(alone.prompt_key, alone.prompts)) == sorted(map(together.prompt_key, together.prompts))


def test_a_wave_of_all_arms_and_sets_is_one_call_and_one_round_of_merging() -> None:
    crew, writer = Crew(wordy), Crew(team_script)
    dag_for = graphs_of(5, 1.0, 3, "one")
    distiller = ReceiverDistiller(writer, count=2)
    run_arms(crew, SETS, dag_for, ARMS, max_tokens=60, k=2, gamma=0.0, embed=hash_embed, distiller=distiller)
    # single and the first agents of three arms, four waves more, and the decisions of three arms; four questions each
    assert [len(batch) for batch in crew.batches] == [4 * 4, *[3 * 4] * 4, 3 * 4]
    assert len(writer.batches) >= 1 and all(len(batch) % 2 == 0 for batch in writer.batches)
    pairs = [len(batch) // 2 for batch in writer.batches]
    assert max(pairs) >= 4, "letters, numbers and code are merged in the same call"


def test_runs_of_unlike_lengths_end_when_they_end() -> None:
    crew = Crew(wordy)
    small, large = graphs_of(2, 1.0, 1, "one"), graphs_of(6, 1.0, 1, "one")
    questions = SETS["letters"].questions
    steps = [team_steps(crew, questions, dag_for, "vanilla") for dag_for in (small, large, small)]
    runs = in_step(steps)
    assert [[run.dag.n for run in own if run.dag] for own in runs] == [[2, 2], [6, 6], [2, 2]]
    assert [len(batch) for batch in crew.batches] == [6, 6, 6, 2, 2, 2, 2]
    assert told(runs[0]) == told(runs[2]) == told(run_teams(crew, questions, small, "vanilla"))
    assert in_step([]) == []


def test_failures_are_tried_again_with_those_of_the_other_runs() -> None:
    class Shaky(Crew):
        """Fails whoever is asked for the first time."""

        def __init__(self) -> None:
            super().__init__(wordy)
            self.known: set[str] = set()

        def reply(self, prompts: Sequence[Prompt], **options: object) -> list[Reply]:
            replies = super().reply(prompts, **options)
            keys = [self.prompt_key(prompt) for prompt in prompts]
            broken = Reply(text="", finish="error", error="lost")
            made = [reply if key in self.known else broken for key, reply in zip(keys, replies, strict=True)]
            self.known |= set(keys)
            return made

    dag_for = graphs_of(3, 1.0, 1, "one")
    crew, alone = Shaky(), Shaky()
    plain = {"letters": SETS["letters"]}
    runs = run_arms(crew, plain, dag_for, ["vanilla", "moc_flow"], max_tokens=60, tries=2)
    assert {message.tries for run in runs for message in run.messages} == {2} and len(crew.batches) == 2 * 4
    expected = run_arms(alone, plain, dag_for, ["vanilla"], max_tokens=60, tries=2)
    assert told(runs[:2]) == told(expected)
    lost = run_arms(Shaky(), plain, dag_for, ["vanilla", "moc_flow"], max_tokens=60, tries=1)
    assert {message.error for run in lost for message in run.messages} == {"lost"}


def test_code_that_passes_is_sent_on_as_it_is_alone() -> None:
    rules = CodeRules(True)
    dag_for = graphs_of(5, 1.0, 2, "one")
    options: dict[str, Any] = {"max_tokens": 90, "code": rules, **merging(Crew())}
    runs = run_arms(Crew(wordy), SETS, dag_for, ["vanilla", "moc"], **options)
    assert told(runs) == told(separately(Crew(wordy), ["vanilla", "moc"], dag_for, **options))
    assert any(message.reused_from is not None for run in runs for message in run.messages)


def test_cells_rules_and_attacks_in_step_record_what_they_record_alone() -> None:
    crew = Crew(wordy)
    options: dict[str, Any] = {"max_tokens": 60, **merging(crew)}
    fixed = {name: value for name, value in options.items() if name != "k"}
    cells = [(graphs_of(count, 1.0, 4, "one"), k) for count in (3, 5) for k in (1, 3)]
    grid = run_cells(crew, SETS, cells, **fixed)
    parts = [run_cells(crew, SETS, [cell], **fixed) for cell in cells]
    assert told(grid) == told([run for part in parts for run in part])

    rules = [HopRule(most=1), HopRule(most=2), HopRule("messages", 3, most=3)]
    made = run_rules(crew, SETS, cells[2][0], rules, **fixed)
    assert list(made) == rules
    for rule in rules:
        assert told(made[rule]) == told(run_rules(crew, SETS, cells[2][0], [rule], **fixed)[rule])

    questions = [*SETS["letters"].questions, *SETS["numbers"].questions]
    attacked = partial(poison_teams, crew, questions, cells[2][0], WRONG, Attack(position="first"), **options)
    both = attacked(arms=("vanilla", "moc"))
    for arm in ("vanilla", "moc"):
        own = attacked(arms=(arm,))[arm]
        assert told(both[arm].clean) == told(own.clean) and told(both[arm].attacked) == told(own.attacked)
        given = attacked(arms=(arm,), clean={arm: own.clean})[arm]
        assert told(given.attacked) == told(own.attacked) and given.clean == own.clean


def test_what_cannot_run_is_refused_before_anything_is_asked() -> None:
    crew = Crew(wordy)
    with pytest.raises(ValueError, match="kappa"):
        run_arms(crew, SETS, graphs_of(3, 1.0, 1), ["vanilla", "moc"], max_tokens=9, kappa=0.7, **merging(crew))
    with pytest.raises(TypeError, match="tokens_max"):
        run_teams(crew, SETS["letters"].questions, graphs_of(3, 1.0, 1), "vanilla", tokens_max=9)
    assert crew.calls == 0
