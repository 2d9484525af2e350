from __future__ import annotations

from lib.moc import ReceiverDistiller, full_dag, random_dag, run_teams
from lib.moc.failures import COUNTS, failures_table
from lib.models import Prompt, ScriptedReceiver
from tests.moc.crew import Crew, choice, speaker
from tests.moc.embedding import hash_embed

QUESTIONS = [choice("q1"), choice("q2")]


def test_all_counts_stand_there_also_where_they_are_zero() -> None:
    crew = Crew(lambda prompt: "Fine. The answer is A")
    runs = [run for arm in ("single", "vanilla") for run in run_teams(crew, QUESTIONS, lambda _: full_dag(3, 0), arm)]
    table = failures_table(runs).set_index("arm")
    assert table.loc["single", ["workers", "decisions"]].tolist() == [0, 2]
    assert table.loc["vanilla", ["runs", "workers", "decisions"]].tolist() == [2, 6, 2]
    quiet = [name for name in COUNTS if name not in ("runs", "workers", "decisions")]
    assert not table[quiet].to_numpy().any()


def test_failed_and_cut_agents_are_told_apart() -> None:
    def script(prompt: Prompt) -> str:
        if speaker(prompt) == "Critic":
            raise TimeoutError("too slow")
        return "word " * 50 if speaker(prompt) == "decision" else "The answer is A"

    runs = run_teams(ScriptedReceiver(script), QUESTIONS, lambda _: full_dag(3, 0), "vanilla", max_tokens=9, tries=2)
    row = failures_table(runs, {"q1": "first", "q2": "second"}).set_index("question_set").loc["second"]
    assert (row["workers"], row["failed_workers"], row["cut_workers"], row["further_tries"]) == (3, 1, 0, 1)
    assert (row["decisions"], row["failed_decisions"], row["cut_decisions"]) == (1, 0, 1)


def test_merges_that_fell_back_are_counted_with_their_candidates() -> None:
    talk = Crew(lambda prompt: f"I am the {speaker(prompt)}. " + "A word more. " * 5 + "\nThe answer is A")
    dag = random_dag(7, 0.7, 42)

    def merged(script: object) -> object:
        distiller = ReceiverDistiller(ScriptedReceiver(script), count=3)  # type: ignore[arg-type]
        runs = run_teams(talk, QUESTIONS, lambda _: dag, "moc", embed=hash_embed, distiller=distiller)
        return failures_table(runs).iloc[0]

    silent, long = merged(lambda prompt: ""), merged(lambda prompt: "and so on, with many words " * 40)
    assert silent["merges"] == silent["distill_failed"] > 0  # type: ignore[index]
    assert silent["candidates"] == silent["unusable_candidates"] == 3 * silent["merges"]  # type: ignore[index]
    assert long["length_repaired"] == long["merges"] and long["distill_failed"] == 0  # type: ignore[index]
