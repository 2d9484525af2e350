"""Tests of lib/moc/flow.py."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.moc.dag import Dag, DagError, chain_dag, dag_of, full_dag, random_dag
from lib.moc.flow import hop_sets, k_order_flow, merge_demand, message_budget
from tests.moc.test_dag import forward_edges

# The graph of the authors' code for 7 agents, density 0.5, seed 42.
WORKED = dag_of(
    7, [(0, 5), (1, 0), (1, 2), (1, 3), (1, 6), (2, 6), (3, 4), (4, 2), (4, 5), (6, 0), (6, 5)]
)  # fmt: skip
CASES = st.builds(dag_of, st.just(8), forward_edges().map(lambda case: case[1]))


def test_the_worked_case() -> None:
    assert WORKED.order == (1, 3, 4, 2, 6, 0, 5)
    assert hop_sets(WORKED, 5, 2) == {1: (4, 6, 0), 2: (1, 3, 2)}
    assert k_order_flow(WORKED, 5, 2) == ((1, 2), (3, 2), (2, 2), (4, 1), (6, 1), (0, 1))
    assert [agent for agent, _ in k_order_flow(WORKED, 5, 2, "bfs")] == [1, 3, 2, 0, 4, 6]


def test_the_merge_demand_of_the_worked_case() -> None:
    assert not merge_demand(WORKED, 1)["merging"].any()
    for k in (2, 3):
        table = merge_demand(WORKED, k)
        merging = table[table["merging"]]
        assert merging[["agent", "messages", "budget"]].values.tolist() == [[5, 6, 5]]
        assert (table.filter(like="hop_").sum(axis=1) == table["messages"]).all()
    assert tuple(table["agent"]) == WORKED.order and table["position"].tolist() == list(range(7))
    assert list(table.columns) == ["agent", "position", "hop_1", "hop_2", "hop_3", "messages", "budget", "merging"]


@given(CASES, st.integers(0, 7), st.integers(1, 9))
def test_shortest_paths_are_first_powers(dag: Dag, target: int, k: int) -> None:
    """k_min by search is the first power of the adjacency matrix with a path (paper, eq. 6)."""
    power, first = np.eye(8, dtype=np.int64), {}
    for hop in range(1, k + 1):
        power = power @ dag.adjacency
        for agent in power[:, target].nonzero()[0]:
            first.setdefault(int(agent), hop)
    found = {agent: hop for hop, agents in hop_sets(dag, target, k).items() for agent in agents}
    assert found == first and list(hop_sets(dag, target, k)) == list(range(1, k + 1))


@given(CASES, st.integers(0, 7), st.integers(1, 9))
def test_hops_are_disjoint_and_hold_all_ancestors_within_k(dag: Dag, target: int, k: int) -> None:
    agents = list(itertools.chain(*hop_sets(dag, target, k).values()))
    away = nx.single_target_shortest_path_length(dag.graph(), target, cutoff=k)
    assert len(agents) == len(set(agents)) and {*agents, target} == {agent for agent, _ in dict(away).items()}
    assert k < 8 or {*agents} == nx.ancestors(dag.graph(), target)
    assert hop_sets(dag, target, 1)[1] == dag.parents(target)


@given(CASES, st.integers(0, 7), st.integers(1, 9))
def test_the_flow_is_far_to_near_and_by_speaking_inside_a_hop(dag: Dag, target: int, k: int) -> None:
    flow, place = k_order_flow(dag, target, k), dag.position
    assert flow == tuple(sorted(flow, key=lambda pair: (-pair[1], place[pair[0]])))
    assert {*flow} == {*k_order_flow(dag, target, k, "bfs")}
    hops = [hop for _, hop in k_order_flow(dag, target, k, "bfs")]
    assert hops == sorted(hops, reverse=True)


def test_one_hop_is_the_usual_team() -> None:
    dag = random_dag(9, 0.6, 5)
    for target in range(9):
        assert k_order_flow(dag, target, 1) == tuple((agent, 1) for agent in dag.parents(target))


def test_nobody_upstream_no_flow() -> None:
    assert k_order_flow(dag_of(2, []), 0, 2) == () and hop_sets(dag_of(2, []), 0, 2) == {1: (), 2: ()}


@pytest.mark.parametrize(
    ("count", "k", "gamma", "budget"),
    [(6, 2, 1, 5), (4, 2, 1, 4), (9, 3, 1, 6), (1, 2, 1, 2), (7, 1, 1, 8), (5, 2, 0.5, 3), (0, 2, 1, 2)],
)
def test_the_budgets_of_the_specification(count: int, k: int, gamma: float, budget: int) -> None:
    assert message_budget(count, k, gamma) == budget


def test_a_budget_is_a_whole_message_and_free_of_float_noise() -> None:
    assert message_budget(3, 4, 0.0) == 1, "merging leaves one message at least"
    assert message_budget(0, 100, 0.29) == 29, "0.29 * 100 is 28.999999999999996"
    assert message_budget(5, 2, 0.25) == 2, "the floor of the sum of two parts, not of 2.5 + 0.5"


@given(st.integers(0, 60), st.floats(1, 3))
def test_one_hop_never_merges(count: int, gamma: float) -> None:
    assert count <= message_budget(count, 1, gamma)


@pytest.mark.parametrize("k", [2, 3])
def test_two_or_three_hops_merge_from_five_messages(k: int) -> None:
    assert [count for count in range(6) if count > message_budget(count, k)] == [5]


def test_seven_edges_of_seven_agents_never_merge_at_two_hops_but_may_at_three() -> None:
    """The chain and one short cut, all 15 of them. At K = 3 eight agents in five graphs receive more than B = 4 or 5."""
    merging: dict[int, list[tuple[int, int]]] = {1: [], 2: [], 3: []}
    for tail, head in itertools.combinations(range(7), 2):
        if head - tail > 1:
            dag = dag_of(7, [*chain_dag(7).edges, (tail, head)])
            for k, found in merging.items():
                found += [(tail, head)] * int(merge_demand(dag, k)["merging"].sum())
    assert not merging[1] and not merging[2]
    assert len(merging[3]) == 8 and {*merging[3]} == {(1, 4), (1, 5), (1, 6), (2, 5), (2, 6), (3, 6)}


def test_a_full_graph_has_one_hop_only() -> None:
    dag = full_dag(6, 0)
    table = merge_demand(dag, 3)
    assert not table[["hop_2", "hop_3"]].any(axis=None) and table["hop_1"].tolist() == list(range(6))
    assert table["budget"].tolist() == [3, 3, 3, 4, 4, 4], "K is the configured K"


def test_what_cannot_be_asked() -> None:
    with pytest.raises(DagError, match="target: 7 is no agent"):
        hop_sets(WORKED, 7, 2)
    for call in (lambda: hop_sets(WORKED, 5, 0), lambda: message_budget(3, 0)):
        with pytest.raises(DagError, match="k: the hop order is at least 1"):
            call()
    with pytest.raises(DagError, match="hop_order: must be 'paper' or 'bfs', not 'repo'"):
        k_order_flow(WORKED, 5, 2, "repo")
    with pytest.raises(DagError, match="gamma"):
        message_budget(3, 2, float("nan"))
    with pytest.raises(DagError, match="count"):
        message_budget(-1, 2)
