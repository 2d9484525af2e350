from __future__ import annotations

from collections.abc import Sequence

from lib.moc import chain_dag, run_teams
from lib.moc.grading import graded_runs, graded_votes
from lib.moc.record import TeamRun
from lib.models import Prompt, ScriptedReceiver
from lib.tasks.questions import Answer, Question, build_questions
from lib.tasks.sandbox import Verdict
from tests.moc.crew import Crew, choice, code, speaker

SETS = {
    "letters": build_questions("letters", [(choice(f"q{i}"), Answer(f"q{i}", "B")) for i in range(3)]),
    "code": build_questions("code", [(code("c1"), Answer("c1", "x"))]),
}
QUESTIONS = [question for one in SETS.values() for question in one.questions]


def wordy(prompt: Prompt) -> str:
    """The decision agent says it in a sentence; workers vote A, A, B."""
    if speaker(prompt) == "decision":
        return "The answer is B"
    return f"The answer is {'B' if speaker(prompt) == 'Mathematician' else 'A'}"


def teams(arm: str = "vanilla") -> list[TeamRun]:
    return run_teams(Crew(wordy), QUESTIONS, lambda _: chain_dag(3), arm)


def test_both_extractors_read_the_same_replies() -> None:
    """scorers.md, section 5: the official rule takes the A of "ANSWER"."""
    table = graded_runs(teams(), SETS)
    assert len(table) == 2 * len(QUESTIONS)
    letters = table[table["question_set"] == "letters"].set_index("extractor")
    assert letters.loc["robust", "correct"].all() and set(letters.loc["robust", "extracted"]) == {"B"}
    assert not letters.loc["official", "correct"].any() and set(letters.loc["official", "extracted"]) == {"A"}
    assert set(letters["raw"]) == {"The answer is B"}
    assert table["agents"].unique().tolist() == [3] and table["k"].unique().tolist() == [1]


def test_code_is_run_once_whatever_the_number_of_extractors() -> None:
    calls: list[int] = []

    def run_code(items: Sequence[tuple[Question, Answer, str]]) -> list[Verdict]:
        calls.append(len(items))
        return [Verdict(question.id, "passed", 0.1) for question, _, _ in items]

    runs = teams()
    ungraded = graded_runs(runs, SETS)
    row = ungraded[ungraded["question_set"] == "code"].iloc[0]
    assert row["correct"] is None or row.isna()["correct"]
    assert not row["judged"] and "run_code" in row["reason"]
    table = graded_runs(runs, SETS, run_code=run_code)
    assert sum(calls) == 1
    assert table.loc[table["question_set"] == "code", "correct"].tolist() == [True, True]


def test_a_failed_decision_is_not_judged() -> None:
    def silent(prompt: Prompt) -> str:
        return "" if speaker(prompt) == "decision" else "The answer is B"

    runs = run_teams(ScriptedReceiver(silent), QUESTIONS[:1], lambda _: chain_dag(2), "vanilla")
    row = graded_runs(runs, SETS, extractors=["robust"]).iloc[0]
    assert row["raw"] is None and not row["judged"] and not row["parsed"]


def test_a_vote_needs_no_call_and_leaves_code_and_single_models_out() -> None:
    runs = [*teams(), *teams("single")]
    votes = graded_votes(runs, SETS)
    assert len(votes) == 3 and set(votes["arm"]) == {"vanilla"}
    assert set(votes["extracted"]) == {"A"} and not votes["correct"].any() and not votes["agrees"].any()
    assert set(votes["raw"]) == {"A, A, B"} and set(votes["votes"]) == {2} and set(votes["valid"]) == {3}
    assert graded_votes(teams("single"), SETS).empty


def test_without_any_vote_nothing_is_judged() -> None:
    runs = run_teams(Crew(lambda prompt: "no idea"), QUESTIONS[:1], lambda _: chain_dag(2), "vanilla")
    row = graded_votes(runs, SETS).iloc[0]
    assert not row["judged"] and row["valid"] == 0 and row["raw"] == "-, -"
