"""Tests of lib/moc/adaptive_hops.py."""

from __future__ import annotations

import inspect
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.moc.adaptive_hops import Choice, HopRule, HopRuleError, ProfileOutcome, candidate_rules, choose_rule
from lib.moc.dag import Dag, chain_dag, full_dag, random_dag
from lib.moc.flow import hop_sets, merge_demand, message_budget

CHAIN = chain_dag(6)
LENGTHS = {0: 50, 1: 500, 2: 40, 3: 30, 4: 20}
DRAWN = st.builds(random_dag, st.just(8), st.floats(0.05, 1), st.integers(0, 999))
NEAR, FAR = HopRule(most=1), HopRule(most=3)


@pytest.mark.parametrize(
    ("rule", "k"),
    [
        (HopRule(most=2), 2),
        (HopRule(most=9), 9),  # a fixed K is the configured K
        (HopRule("added_tokens", 40, 5), 3),  # agents 4, 3, 2; agent 1 is too long
        (HopRule("added_tokens", 40, 2), 2),
        (HopRule("added_tokens", 29, 5), 1),
        (HopRule("added_tokens", 500, 9), 5),  # there is no hop 6
        (HopRule("total_tokens", 89, 5), 2),
        (HopRule("total_tokens", 90, 5), 3),
        (HopRule("total_tokens", 1, 5), 1),  # the first hop is always read
        (HopRule("messages", 3, 5), 3),
        (HopRule("density", 0.4, 5), 5),  # a chain of 6 has a third of the pairs
        (HopRule("density", 0.3, 5), 1),
    ],
)
def test_rules_on_a_chain(rule: HopRule, k: int) -> None:
    assert rule.hops(CHAIN, 5, LENGTHS) == k


def test_an_agent_without_a_message_counts_nowhere() -> None:
    spoke = {agent: length for agent, length in LENGTHS.items() if agent != 1}
    assert HopRule("added_tokens", 50, 9).hops(CHAIN, 5, spoke) == 5
    assert HopRule("messages", 4, 9).hops(CHAIN, 5, spoke) == 5


def test_who_hears_nobody_reads_one_hop() -> None:
    for rule in candidate_rules():
        assert rule.hops(CHAIN, 0, LENGTHS) == (1 if rule.limit is not None else rule.most)


@given(DRAWN, st.integers(0, 7), st.lists(st.integers(0, 300), min_size=8, max_size=8), st.data())
def test_a_higher_limit_never_reads_less_and_what_is_read_keeps_it(
    dag: Dag, target: int, lengths: list[int], data: st.DataObject
) -> None:
    measure = data.draw(st.sampled_from(["added_tokens", "total_tokens", "messages", "density"]))
    low, high = sorted(data.draw(st.tuples(*[st.floats(0, 9 if measure == "messages" else 900)] * 2)))
    tokens = dict(enumerate(lengths))
    less, more = (HopRule(measure, limit, 4).hops(dag, target, tokens) for limit in (low, high))
    assert 1 <= less <= more <= 4
    hops = hop_sets(dag, target, 4)
    read = [agent for hop in range(1, less + 1) for agent in hops[hop]]
    if less > 1:
        assert hops[less], "the last hop brings somebody"
        if measure == "total_tokens":
            assert sum(tokens[agent] for agent in read) <= low
        if measure == "added_tokens":
            assert all(sum(tokens[agent] for agent in hops[hop]) <= low for hop in range(2, less + 1))
        if measure == "messages":
            assert len(read) <= low


@given(DRAWN)
def test_four_messages_at_most_never_merge(dag: Dag) -> None:
    rule = HopRule("messages", 4, 3)
    for target in range(dag.n):
        k = rule.hops(dag, target, dict.fromkeys(range(8), 9))
        count = sum(len(agents) for agents in hop_sets(dag, target, k).values())
        assert count <= message_budget(count, k)


def test_the_fixed_rule_of_two_hops_does_merge() -> None:
    assert merge_demand(full_dag(8, 0), 2)["merging"].any()


def outcomes(rows: dict[HopRule, list[tuple[float | None, float]]]) -> list[ProfileOutcome]:
    return [
        ProfileOutcome(rule, f"q{number}", accuracy, tokens)
        for rule, own in rows.items()
        for number, (accuracy, tokens) in enumerate(own)
    ]


def test_the_price_decides() -> None:
    """Far reading answers one question of four more and costs 200 tokens more: worth it below 0.25 / 200."""
    made = outcomes({NEAR: [(1, 100), (1, 100), (0, 100), (0, 100)], FAR: [(1, 300), (1, 300), (1, 300), (0, 300)]})
    free, dear = choose_rule(made), choose_rule(made, 0.002)
    assert (free.rule, dear.rule) == (FAR, NEAR) and choose_rule(made, 0.00124).rule == FAR
    assert dear.table["rule"].tolist() == ["K=1", "K=3"] and dear.questions == 4 and dear.left_out == 0
    assert dear.table["value"].tolist() == pytest.approx([0.5 - 0.2, 0.75 - 0.6])
    assert dear.table[["accuracy", "tokens"]].values.tolist() == [[0.5, 100], [0.75, 300]]
    assert dear.table["chosen_without"].tolist() == [1, 0] and dear.held_out == pytest.approx(0.3)


def test_the_held_out_value_shows_luck() -> None:
    """Each rule answers one question of its own: what the others choose never fits, so the best value is luck alone."""
    rules = [HopRule(most=k) for k in (1, 2, 3)]
    made = outcomes({rule: [(float(own == k), 10) for own in range(3)] for k, rule in enumerate(rules)})
    choice = choose_rule(made)
    assert choice.rule == rules[0] and choice.table["value"].iloc[0] == pytest.approx(1 / 3) and choice.held_out == 0
    assert choice.table["chosen_without"].tolist() == pytest.approx([2 / 3, 1 / 3, 0])


def test_ties_go_to_fewer_tokens_then_to_the_first() -> None:
    same = {FAR: [(0.3, 9.0)], NEAR: [(0.1 + 0.2, 9.0)]}
    assert choose_rule(outcomes(same)).rule == FAR, "float noise is a tie"
    assert choose_rule(outcomes({**same, HopRule(most=2): [(0.3, 8.0)]})).rule.most == 2


def test_a_question_left_ungraded_counts_for_no_rule() -> None:
    made = outcomes({NEAR: [(1, 1), (0, 1)], FAR: [(None, 1), (1, 1)]})
    choice = choose_rule(made)
    assert (choice.rule, choice.questions, choice.left_out, choice.held_out) == (FAR, 1, 1, None)
    assert choice.table["accuracy"].tolist() == [1, 0] and choice.table["chosen_without"].isna().all()


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 1.0])] * 3), min_size=2, max_size=9), st.floats(0, 0.01))
def test_the_choice_is_the_best_mean(rows: list[tuple[float, ...]], price: float) -> None:
    rules = [HopRule(most=k) for k in (1, 2, 3)]
    cost = {rule: 100.0 * rule.most for rule in rules}
    made = outcomes({rule: [(row[k], cost[rule]) for row in rows] for k, rule in enumerate(rules)})
    choice: Choice = choose_rule(made, price)
    values = [np.mean([row[k] for row in rows]) - price * cost[rule] for k, rule in enumerate(rules)]
    assert values[rules.index(choice.rule)] == pytest.approx(max(values))
    assert choice.table["value"].is_monotonic_decreasing or np.ptp(values) < 1e-9
    assert choice.table["chosen_without"].sum() == pytest.approx(1)


def test_outcomes_that_cannot_be_compared() -> None:
    good = outcomes({NEAR: [(1, 1), (0, 1)], FAR: [(1, 1), (1, 1)]})
    for made, words in (
        (good[:-1], "question 'q1' lacks rule 'K=3'"),
        ([*good, good[0]], "stands twice"),
        (outcomes({NEAR: [(None, 1)]}), "no question was graded"),
        ([], "no question was graded"),
    ):
        with pytest.raises(HopRuleError, match=words):
            choose_rule(made)
    for price in (-1, math.nan, math.inf):
        with pytest.raises(HopRuleError, match="price"):
            choose_rule(good, price)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"most": 0}, "most: an agent reads 1 hop at least"),
        ({"measure": "messages"}, "limit: None does not go with"),
        ({"limit": 3}, "limit: 3 does not go with measure 'none'"),
        ({"measure": "messages", "limit": -1}, "limit: must be a finite"),
        ({"measure": "messages", "limit": math.nan}, "limit: must be a finite"),
        ({"measure": "gold", "limit": 1}, "measure: must be one of"),
    ],
)
def test_rules_that_are_none(rule: dict[str, object], words: str) -> None:
    with pytest.raises(HopRuleError, match=words):
        HopRule(**rule)


def test_candidates_are_distinct_and_go_to_json_and_back() -> None:
    rules = candidate_rules()
    assert len({rule.name for rule in rules}) == len(rules) == 14
    for rule in rules:
        assert msgspec.json.decode(msgspec.json.encode(rule), type=HopRule) == rule


def test_a_rule_sees_no_outcome() -> None:
    assert [*inspect.signature(HopRule.hops).parameters] == ["self", "dag", "target", "tokens"]
    assert {field.name for field in msgspec.structs.fields(HopRule)} == {"measure", "limit", "most"}
