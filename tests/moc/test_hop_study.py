from __future__ import annotations

import pytest

from lib.moc.adaptive_hops import HopRule, choose_rule
from lib.moc.distill import ExtractiveDistiller
from lib.moc.hop_study import outcomes_table, profile_outcomes, run_rules, split_sets
from lib.moc.study import graphs_of
from lib.tasks.questions import Answer, QuestionSet, build_questions
from tests.moc.crew import Crew, choice, doubter
from tests.moc.embedding import count_words, hash_embed

RULES = (HopRule(most=1), HopRule(most=2), HopRule("messages", 3.0, 3))
MERGING = {"embed": hash_embed, "distiller": ExtractiveDistiller(hash_embed, count_words)}


def made(gold: str = "A") -> dict[str, QuestionSet]:
    pairs = [(choice(f"q{index}"), Answer(f"q{index}", gold)) for index in range(6)]
    return {"letters": build_questions("letters", pairs)}


def test_profile_and_judged_questions_are_apart_and_complete() -> None:
    sets = made()
    profile, judged = split_sets(sets, 0.5, 0)
    ids = [[question.id for question in part["letters"].questions] for part in (profile, judged)]
    assert len(ids[0]) == 3 and sorted(ids[0] + ids[1]) == sorted(sets["letters"].answers)
    assert set(judged["letters"].answers) == set(ids[1])
    assert len(split_sets(sets, 0.01, 0)[0]["letters"].questions) == 1
    assert len(split_sets(sets, 0.99, 0)[1]["letters"].questions) == 1
    with pytest.raises(ValueError, match="profile_share"):
        split_sets(sets, 1.0, 0)
    single = {"letters": build_questions("letters", [(choice("q"), Answer("q", "A"))])}
    with pytest.raises(ValueError, match="one each"):
        split_sets(single, 0.5, 0)


def test_every_rule_answers_every_question_with_its_own_reach() -> None:
    sets = made()
    runs = run_rules(Crew(doubter), sets, graphs_of(7, 0.4, 1), RULES, max_tokens=50, **MERGING)
    table = outcomes_table(runs, sets)
    assert len(table) == len(RULES) * 6
    reach = table.groupby("rule")["mean_reach"].mean()
    assert reach["K=1"] == 1 and reach["K=2"] == 2 and 1 < reach[RULES[2].name] < 3
    assert (table["total_tokens"] == table["agent_tokens"] + table["distiller_tokens"]).all()
    choice_made = choose_rule(profile_outcomes(table, RULES))
    assert choice_made.questions == 6 and choice_made.rule in RULES


def test_the_choice_does_not_see_judged_questions() -> None:
    """Gold of judged questions may be anything: the choice stays the same."""
    chosen = []
    for gold in "AC":
        sets = made()
        profile, judged = split_sets(sets, 0.5, 0)
        answers = {name: Answer(name, gold) for name in judged["letters"].answers}
        judged["letters"].answers.update(answers)
        runs = run_rules(Crew(doubter), profile, graphs_of(7, 0.4, 1), RULES, max_tokens=50, **MERGING)
        chosen.append(choose_rule(profile_outcomes(outcomes_table(runs, profile), RULES)).rule)
    assert chosen[0] == chosen[1]


def test_an_outcome_that_is_not_judged_counts_as_not_graded() -> None:
    sets = made()
    runs = run_rules(Crew(lambda prompt: ""), sets, graphs_of(3, 1.0, 1), RULES[:1], max_tokens=50, **MERGING)
    outcomes = profile_outcomes(outcomes_table(runs, sets), RULES)
    assert {one.accuracy for one in outcomes} == {None}
