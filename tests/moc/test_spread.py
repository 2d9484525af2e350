from __future__ import annotations

import re
from typing import Any

import pytest

from lib.moc import Attack, adoption_table, chain_dag, full_dag, poison_teams, spread_edges
from lib.moc.distill import ExtractiveDistiller, ReceiverDistiller
from lib.moc.spread import FATES, ask_again, control_of, edge_rates, merge_fates
from lib.models import Prompt, ScriptedReceiver, Turn
from tests.moc.crew import LETTERS, Crew, believer, choice, own_answer, speaker
from tests.moc.embedding import count_words, hash_embed

QUESTIONS = [choice(f"q{index}") for index in range(4)]
MERGING: dict[str, Any] = {"embed": hash_embed, "distiller": ExtractiveDistiller(hash_embed, count_words)}


def wrong_of() -> dict[str, str]:
    own = {one.id: own_answer(Prompt((Turn("user", f"({one.id})"),))) for one in QUESTIONS}
    return {name: LETTERS[(LETTERS.index(letter) + 1) % 4] for name, letter in own.items()}


def attacked(arms: tuple[str, ...] = ("vanilla",), **settings: Any) -> Any:
    options = {"dag": chain_dag(4), "script": believer, "position": "first"} | settings
    dag = options["dag"]
    attack = Attack(position=options["position"])
    crew = Crew(options["script"])
    return poison_teams(crew, QUESTIONS, lambda _: dag, wrong_of(), attack, arms=arms, **{**MERGING, "k": 2})


def test_believers_pass_a_lie_on_along_every_edge() -> None:
    rates = edge_rates(spread_edges(attacked(), QUESTIONS)).set_index(["reader", "source"])
    assert rates.loc[("worker", "attacker"), "rate"] == 1 and rates.loc[("worker", "attacker"), "edges"] == 4
    assert rates.loc[("worker", "other, wrong"), "rate"] == 1
    assert ("worker", "other") not in rates.index  # on the chain everybody downstream is wrong


def test_two_hops_show_the_attacker_to_more_readers() -> None:
    rates = edge_rates(spread_edges(attacked(("vanilla", "moc_flow")), QUESTIONS))
    direct = rates[(rates["source"] == "attacker") & (rates["reader"] == "worker")]
    assert direct.groupby("arm", sort=False)["edges"].sum().to_dict() == {"vanilla": 4, "moc_flow": 8}
    assert rates["arm"].drop_duplicates().tolist() == ["vanilla", "moc_flow"]


def test_merged_texts_are_told_by_the_answer_they_hold() -> None:
    """All workers but the attacker give one answer, the lie is the letter after it; the scribe keeps either, or none."""
    talk = Crew(lambda prompt: f"I am the {speaker(prompt)}. {'More. ' * 12}\nThe answer is {own_answer(prompt)}")

    def fates(keep: int | None) -> set[str]:
        def script(prompt: Prompt) -> str:
            told = set(re.findall(r"The answer is (\w)", prompt.turns[-1].text))
            ordered = sorted(told, key=lambda letter: LETTERS[(LETTERS.index(letter) + 1) % 4] not in told)
            return "both agree" if keep is None else f"The answer is {ordered[keep]}"

        settings = MERGING | {"distiller": ReceiverDistiller(ScriptedReceiver(script), count=1), "epsilon": 2.0}
        attack, dag = Attack(position="first"), full_dag(7, 1)  # epsilon pairs all six messages
        table = merge_fates(
            poison_teams(talk, QUESTIONS, lambda _: dag, wrong_of(), attack, arms=("moc",), **settings), QUESTIONS
        )
        assert len(table) and (table["sources"].str.count("&") >= 1).all()
        return set(table["fate"])

    assert (fates(-1), fates(0), fates(None)) == ({FATES[0]}, {FATES[1]}, {FATES[2]})
    assert merge_fates(attacked(("moc_flow",)), QUESTIONS).empty


def test_the_control_counts_what_changes_by_itself() -> None:
    study = attacked(dag=full_dag(4, 2))["vanilla"]
    dag = study.clean[0].dag
    steady = ask_again(Crew(believer), QUESTIONS, lambda _: dag, "vanilla", group=3, **MERGING)
    table = adoption_table({"vanilla": control_of(study, steady)}, QUESTIONS)
    assert not table["changed"].any() and not table["adopted"].any()
    wrong = wrong_of()

    def unsteady(prompt: Prompt) -> str:
        name = next(one.id for one in QUESTIONS if f"({one.id})" in prompt.turns[-1].text)
        return f"The answer is {wrong[name]}" if speaker(prompt) == "Critic" else believer(prompt)

    noisy = ask_again(Crew(unsteady), QUESTIONS, lambda _: dag, "vanilla", **MERGING)
    table = adoption_table({"vanilla": control_of(study, noisy)}, QUESTIONS)
    assert table["adopted"].any() and table["changed"].any()
    with pytest.raises(ValueError, match="again"):
        control_of(study, noisy[:2])


def test_a_second_run_comes_in_other_batches_and_in_order() -> None:
    crew = Crew()
    runs = ask_again(crew, QUESTIONS, lambda _: chain_dag(2), "vanilla", group=3)
    assert [run.question_id for run in runs] == [question.id for question in QUESTIONS]
    assert sorted({len(batch) for batch in crew.batches}) == [1, 3]
    with pytest.raises(ValueError, match="group"):
        ask_again(crew, QUESTIONS, lambda _: chain_dag(2), "vanilla", group=-1)
