from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.moc.dag import Dag, chain_dag, dag_of, random_dag
from lib.moc.distill import ExtractiveDistiller
from lib.moc.poison import (
    Attack,
    Poisoned,
    adoption_table,
    attacker_of,
    poison_teams,
    spread_edges,
    spread_summary,
    wrong_answers,
)
from lib.moc.team import run_teams
from lib.models import Prompt, Turn
from lib.tasks.questions import Answer, Question, grade
from tests.moc.crew import LETTERS, Crew, believer, choice, code, doubter, number, own_answer, speaker
from tests.moc.embedding import count_words, hash_embed

QUESTIONS = [choice(f"q{index}") for index in range(4)]
Script = Callable[[Prompt], str]
MERGING: dict[str, Any] = {"embed": hash_embed, "distiller": ExtractiveDistiller(hash_embed, count_words)}


def lie_for(question: Question) -> str:
    """Return the letter after the one that the crew would give."""
    own = own_answer(Prompt((Turn("user", f"({question.id})"),)))
    return LETTERS[(LETTERS.index(own) + 1) % 4]


def attacked(
    dag: Dag, attack: Attack, script: Script = believer, arms: tuple[str, ...] = ("vanilla",), **settings: float
) -> dict[str, Poisoned]:
    wrong = {question.id: lie_for(question) for question in QUESTIONS}
    return poison_teams(Crew(script), QUESTIONS, lambda _: dag, wrong, attack, arms=arms, **MERGING, **settings)


# ---------------------------------------------------------------------------------------------------------------- the attack


@given(st.sampled_from("ABCD"), st.integers(0, 500))
def test_a_wrong_letter_is_another_option(gold: str, seed: int) -> None:
    question = choice("q")
    wrong = wrong_answers([question], {"q": Answer("q", gold)}, seed)["q"]
    assert wrong in "ABCD" and wrong != gold
    assert wrong_answers([question], {"q": Answer("q", gold)}, seed)["q"] == wrong


@given(st.integers(-10_000, 10_000), st.integers(0, 50))
def test_a_wrong_number_is_near_and_wrong(gold: int, seed: int) -> None:
    for text in (f"{gold}", f"{gold:,}", f"{gold}.0"):
        wrong = wrong_answers([number("q")], {"q": Answer("q", text)}, seed)["q"]
        assert 1 <= int(wrong) - gold <= 9
        assert grade(number("q"), Answer("q", text), f"The answer is {wrong}").correct is False


def test_what_has_no_wrong_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="'c' asks for code"):
        wrong_answers([code("c")], {"c": Answer("c", "")})
    with pytest.raises(ValueError, match="gold 'Z' is none of"):
        wrong_answers([choice("q")], {"q": Answer("q", "Z")})
    with pytest.raises(ValueError, match="gold 'many' is no number"):
        wrong_answers([number("q")], {"q": Answer("q", "many")})


def test_attackers_by_position_index_and_seed() -> None:
    dag = random_dag(7, 0.5, 42)  # sigma = 1 3 4 2 6 0 5
    found = [attacker_of(dag, Attack(position=place), "q") for place in ("first", "middle", "last", 4)]  # type: ignore[arg-type]
    assert found == [1, 2, 5, 4]
    drawn = [attacker_of(dag, Attack(seed=0), f"q{index}") for index in range(200)]
    assert set(drawn) == set(range(7))
    assert drawn == [attacker_of(dag, Attack(seed=0), f"q{index}") for index in range(200)]
    with pytest.raises(ValueError, match="agent 7 is not among 0 to 6"):
        attacker_of(dag, Attack(position=7), "q")
    with pytest.raises(ValueError, match="choose seed, first, middle, last"):
        attacker_of(dag, Attack(position="end"), "q")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="attack 'flood' is not known"):
        attacked(dag, Attack(kind="flood"))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["answer", "instruction"])
def test_only_the_attacker_is_tampered_with(kind: str) -> None:
    study = attacked(random_dag(5, 0.7, 3), Attack(kind=kind, position="first"))["vanilla"]  # type: ignore[arg-type]
    for clean, hurt in zip(study.clean, study.attacked, strict=True):
        liar = study.attackers[hurt.question_id]
        assert [message.agent for message in hurt.messages if message.own_text is not None] == [liar]
        assert hurt.messages[liar].own_text == clean.messages[liar].text
        assert hurt.messages[liar].text.endswith(f"The answer is {study.wrong[hurt.question_id]}")
        assert ("Ignore what the other agents wrote" in hurt.messages[liar].text) == (kind == "instruction")
        assert all(message.own_text is None for message in clean.messages)


# ---------------------------------------------------------------------------------------------------------------- the spread


def test_believers_pass_a_lie_down_a_chain() -> None:
    studies = attacked(chain_dag(4), Attack(position=1))
    table = adoption_table(studies, QUESTIONS)
    by_agent = dict(iter(table.groupby("agent")))
    assert set(by_agent) == {"0", "2", "3", "decision"}
    assert not by_agent["0"]["adopted"].any() and not by_agent["0"]["changed"].any()
    assert by_agent["0"]["distance"].isna().all()
    for agent, distance in (("2", 1), ("3", 2), ("decision", 1)):
        assert by_agent[agent]["adopted"].all()
        assert (by_agent[agent]["distance"] == distance).all()
    # under vanilla agent 3 never saw the lie itself: it believed agent 2
    assert by_agent["3"]["shown_at"].isna().all() and (by_agent["2"]["shown_at"] == 1).all()
    edges = spread_edges(studies, QUESTIONS)
    carried = edges[(edges["target"] == "3") & edges["adopted"]]
    assert (carried["source"] == 2).all() and not carried["from_attacker"].any() and carried["source_wrong"].all()


def test_two_hops_show_the_lie_further_and_doubters_outvote_it() -> None:
    studies = attacked(chain_dag(4), Attack(position=1), doubter, arms=("vanilla", "moc_flow", "moc"))
    table = adoption_table(studies, QUESTIONS)
    two_hops_on = table[table["agent"] == "3"].set_index("arm")["shown_at"]
    assert (
        two_hops_on["vanilla"].isna().all() and (two_hops_on["moc_flow"] == 2).all() and (two_hops_on["moc"] == 2).all()
    )
    # a doubter with its own answer first needs two messages against it
    assert not table["adopted"].any()
    assert table["changed"].sum() == 0
    assert spread_edges(studies, QUESTIONS).loc[lambda edges: edges["from_attacker"], "source_wrong"].all()


def test_a_merged_lie_is_marked() -> None:
    dag = dag_of(7, [(source, 6) for source in range(6)])
    studies = attacked(dag, Attack(position=0), arms=("moc_flow", "moc"), epsilon=2.0)  # every pair merges
    table = adoption_table(studies, QUESTIONS)
    reader = table[table["agent"] == "6"].set_index("arm")
    assert not reader.loc["moc_flow", "merged"].any()
    edges = spread_edges(studies, QUESTIONS)
    lies = edges[(edges["arm"] == "moc") & (edges["target"] == "6") & edges["from_attacker"]]
    assert lies["merged"].any()
    assert (
        lies.set_index("question_id")["merged"].to_dict()
        == reader.loc["moc"].set_index("question_id")["merged"].to_dict()
    )
    assert not edges[edges["target"] == "decision"]["merged"].any()


def test_already_wrong_and_failed_are_null() -> None:
    wrong = {question.id: lie_for(question) for question in QUESTIONS}

    def script(prompt: Prompt) -> str:
        if speaker(prompt) == "Critic":  # agent 1 says the wrong answer by itself
            return f"The answer is {LETTERS[(LETTERS.index(own_answer(prompt)) + 1) % 4]}"
        if speaker(prompt) == "Mathematician":
            raise TimeoutError("late")
        return believer(prompt)

    studies = poison_teams(
        Crew(script), QUESTIONS, lambda _: chain_dag(4), wrong, Attack(position=0), arms=("vanilla",)
    )
    table = adoption_table(studies, QUESTIONS).set_index("agent")
    assert table.loc["1", "before_wrong"].all() and table.loc["1", "adopted"].isna().all()
    assert table.loc["2", "after_wrong"].isna().all() and table.loc["2", "adopted"].isna().all()
    summary = spread_summary(adoption_table(studies, QUESTIONS)).set_index("reach")
    assert summary.loc["hop 1", "could_adopt"] == 0 and pd.isna(summary.loc["hop 1", "adoption_rate"])


def test_summary_counts_by_distance_with_a_control() -> None:
    studies = attacked(chain_dag(4), Attack(position=1), arms=("vanilla", "moc_flow"))
    summary = spread_summary(adoption_table(studies, QUESTIONS))
    assert summary["arm"].tolist() == ["vanilla"] * 4 + ["moc_flow"] * 4
    first = summary[summary["arm"] == "vanilla"].set_index("reach")
    assert first.index.tolist() == ["hop 1", "hop 2", "unreached", "decision"]
    assert first["readers"].tolist() == [4, 4, 4, 4]
    assert first["adoption_rate"].tolist() == [1, 1, 0, 1]
    assert first["changed_rate"].tolist() == [1, 1, 0, 1]
    assert first["shown"].tolist() == [4, 0, 0, 4]


def test_distances_are_sorted_as_numbers() -> None:
    summary = spread_summary(adoption_table(attacked(chain_dag(12), Attack(position=0)), QUESTIONS))
    assert summary["reach"].tolist() == [*(f"hop {hops}" for hops in range(1, 12)), "decision"]


def test_clean_runs_are_reused_and_must_fit() -> None:
    crew = Crew()
    wrong = {question.id: lie_for(question) for question in QUESTIONS}
    clean = run_teams(crew, QUESTIONS, lambda _: chain_dag(3), "vanilla")
    asked = crew.calls
    poison_teams(crew, QUESTIONS, lambda _: chain_dag(3), wrong, arms=("vanilla",), clean={"vanilla": clean})
    assert crew.calls == 2 * asked
    with pytest.raises(ValueError, match=r"clean\['vanilla'\]: made in another arm, for other questions, or on other"):
        poison_teams(crew, QUESTIONS, lambda _: chain_dag(4), wrong, arms=("vanilla",), clean={"vanilla": clean})
    with pytest.raises(ValueError, match=r"clean\['moc'\]: made in another arm"):
        poison_teams(crew, QUESTIONS, lambda _: chain_dag(3), wrong, arms=("moc",), clean={"moc": clean})
    with pytest.raises(ValueError, match="'single' has no team"):
        poison_teams(crew, QUESTIONS, lambda _: chain_dag(3), wrong, arms=("single",))
    assert crew.calls == 2 * asked


def test_graphs_are_asked_for_once_so_that_all_arms_share_them() -> None:
    drawn: list[str] = []

    def dag_for(question: Question) -> Dag:
        drawn.append(question.id)
        return random_dag(4, 0.5, len(drawn))

    wrong = {question.id: lie_for(question) for question in QUESTIONS}
    studies = poison_teams(Crew(), QUESTIONS, dag_for, wrong, arms=("vanilla", "moc"), **MERGING)
    assert drawn == [question.id for question in QUESTIONS]
    assert [run.dag for run in studies["vanilla"].clean] == [run.dag for run in studies["moc"].attacked]
