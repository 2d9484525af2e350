"""Tests of lib/moc/dag.py."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import msgspec
import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.moc.dag import Dag, DagError, chain_dag, dag_of, full_dag, kahn_order, random_dag

DRAWN = st.builds(random_dag, st.integers(1, 20), st.floats(0.01, 1), st.integers(0, 2**63))


@st.composite
def forward_edges(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """Draw any acyclic graph: a hidden order and some of its forward pairs, shuffled."""
    hidden = draw(st.permutations(range(draw(st.integers(1, 8)))))
    pairs = [(tail, head) for place, tail in enumerate(hidden) for head in hidden[place + 1 :]]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return len(hidden), chosen


@given(DRAWN)
def test_a_random_graph_is_acyclic_connected_and_of_the_size_asked_for(dag: Dag) -> None:
    pairs, place = math.comb(dag.n, 2), dag.position
    assert sorted(dag.order) == list(range(dag.n))
    assert all(place[tail] < place[head] for tail, head in dag.edges)
    assert len(set(dag.edges)) == len(dag.edges) == max(dag.n - 1, math.ceil(round(dag.requested * pairs, 9)))
    assert {*itertools.pairwise(dag.order)} <= {*dag.edges}, "the chain is there, so nobody is isolated"
    assert nx.is_directed_acyclic_graph(dag.graph()) and list(dag.graph()) == list(range(dag.n))
    assert kahn_order(dag.n, dag.edges) == dag.order, "with the chain there is one order only"


@pytest.mark.parametrize(
    ("n", "density", "edges"),
    [(7, 0.3, 7), (7, 0.5, 11), (7, 0.7, 15), (7, 1.0, 21), (3, 0.1, 2), (21, 0.7, 147), (20, 0.1 + 0.2, 57)],
)
def test_the_number_of_edges(n: int, density: float, edges: int) -> None:
    dag = random_dag(n, density, 1)
    assert len(dag.edges) == edges and dag.density == edges / math.comb(n, 2) and dag.requested == density


def test_the_order_of_the_worked_case() -> None:
    assert random_dag(7, 0.5, 42).order == full_dag(7, 42).order == (1, 3, 4, 2, 6, 0, 5)


def test_a_seed_names_a_graph() -> None:
    dag = random_dag(7, 0.5, 42)
    assert dag == random_dag(7, 0.5, 42) and hash(dag) == hash(random_dag(7, 0.5, 42))
    assert len({random_dag(7, 0.5, seed) for seed in range(50)}) == 50
    drawn = ((0, 5), (1, 2), (1, 3), (1, 4), (2, 6), (3, 2), (3, 4), (3, 6), (4, 0), (4, 2), (6, 0))
    assert dag.edges == drawn, "the same on every machine and Python"


def test_pairs_that_the_chain_leaves_are_drawn_equally_often() -> None:
    """5 agents, 6 pairs beside the chain, 1 drawn: by place in the order each is expected in a sixth of the graphs."""
    seen: Counter[tuple[int, int]] = Counter()
    for seed in range(1200):
        dag = random_dag(5, 0.5, seed)
        place = dag.position
        seen.update((place[tail], place[head]) for tail, head in dag.edges if place[head] > place[tail] + 1)
    assert len(seen) == 6 and sum(seen.values()) == 1200
    assert all(150 < count < 250 for count in seen.values()), "200 expected, standard deviation 13"


def test_a_full_graph_has_every_forward_pair() -> None:
    dag = full_dag(6, 3)
    assert len(dag.edges) == 15 and dag.density == 1 and dag.edges == random_dag(6, 1.0, 3).edges
    assert dag.parents(dag.order[-1]) == dag.order[:-1], "parents stand in order of speaking"


def test_a_chain_goes_by_index() -> None:
    assert chain_dag(4) == Dag(4, (0, 1, 2, 3), ((0, 1), (1, 2), (2, 3)), kind="chain")
    assert chain_dag(1).edges == () and math.isnan(chain_dag(1).density)


@given(forward_edges())
def test_any_acyclic_edges_become_a_graph(case: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = case
    dag = dag_of(n, edges)
    assert dag.edges == tuple(sorted(edges)) and nx.utils.graphs_equal(dag.graph(), dag_of(n, edges[::-1]).graph())
    assert dag.order == dag_of(n, edges[::-1]).order, "the order of the list is no information"
    for agent in range(n):
        assert dag.order[dag.position[agent]] == agent
        assert set(dag.parents(agent)) == {int(tail) for tail in dag.adjacency[:, agent].nonzero()[0]}


@given(forward_edges(), st.data())
def test_an_edge_that_closes_a_cycle_is_refused_by_name(
    case: tuple[int, list[tuple[int, int]]], data: st.DataObject
) -> None:
    n, edges = case
    closed = nx.transitive_closure(dag_of(n, edges).graph()).edges
    if closed:
        tail, head = data.draw(st.sampled_from(sorted(closed)))
        with pytest.raises(DagError, match=r"edges: \d( -> \d)+ is a cycle; remove one") as caught:
            dag_of(n, [*edges, (head, tail)])
        named = [int(agent) for agent in str(caught.value).removeprefix("edges: ").split(" is a")[0].split(" -> ")]
        assert named[0] == named[-1] and {*itertools.pairwise(named)} <= {*edges, (head, tail)}


def test_the_queue_is_first_in_first_out() -> None:
    """2 and 3 wait from the start; 0 and 1 become ready by 3 and 2 and queue in that order of release."""
    assert kahn_order(4, [(3, 0), (2, 1)]) == (2, 3, 1, 0)
    assert kahn_order(4, [(3, 1), (3, 0), (3, 2)]) == (3, 0, 1, 2), "released together, by index"


def test_edges_by_name() -> None:
    names = ["plan", "code", "test"]
    assert dag_of(3, [("code", "test"), ("plan", "code")], names=names) == dag_of(3, [(0, 1), (1, 2)])
    with pytest.raises(DagError, match="code -> test -> code is a cycle"):
        dag_of(3, [("code", "test"), ("test", "code")], names=names)
    with pytest.raises(DagError, match=r"\('code', 'ship'\) is no pair of agents; known are plan, code, test"):
        dag_of(3, [("code", "ship")], names=names)
    with pytest.raises(DagError, match="3 distinct names"):
        dag_of(3, [], names=["a", "a", "b"])


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([(0, 3)], r"\(0, 3\) is no pair of agents; known are 0, 1, 2"),
        ([(-1, 0)], r"\(-1, 0\) is no pair"),
        ([("plan", 1)], r"\('plan', 1\) is no pair"),
        ([(1, 1)], "1 -> 1 is a self-loop"),
        ([(0, 1), (0, 1)], "0 -> 1 stands twice"),
    ],
)
def test_edges_that_are_none(edges: list[tuple[int, int]], words: str) -> None:
    with pytest.raises(DagError, match=words):
        dag_of(3, edges)


@pytest.mark.parametrize("density", [0.0, -0.1, 1.01, math.nan])
def test_a_density_outside_its_range(density: float) -> None:
    with pytest.raises(DagError, match="density: must lie in"):
        random_dag(5, density, 0)


@pytest.mark.parametrize(
    ("order", "edges", "words"),
    [
        ((0, 0, 1), (), "order: must hold each of 0 to 2 once"),
        ((0, 1, 2), ((1, 2), (0, 1)), "edges: must be sorted"),
        ((0, 1, 2), ((0, 1), (0, 1)), "edges: must be sorted and stand once"),
        ((0, 1, 2), ((0, 3),), "outside 0 to 2"),
        ((2, 1, 0), ((0, 1),), r"\(0, 1\) runs backward"),
        ((0, 1, 2), ((1, 1),), r"\(1, 1\) runs backward"),
    ],
)
def test_no_other_graph_can_be_made(order: tuple[int, ...], edges: tuple[tuple[int, int], ...], words: str) -> None:
    with pytest.raises(DagError, match=words):
        Dag(3, order, edges)


def test_a_team_has_somebody() -> None:
    for make in (lambda: chain_dag(0), lambda: random_dag(0, 0.5, 0), lambda: full_dag(0, 0), lambda: dag_of(0, [])):
        with pytest.raises(DagError, match="at least one agent"):
            make()


@given(DRAWN)
def test_a_graph_goes_to_json_and_back(dag: Dag) -> None:
    assert msgspec.json.decode(msgspec.json.encode(dag), type=Dag) == dag


def test_a_damaged_file_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="runs backward"):
        msgspec.json.decode(b'{"n": 2, "order": [1, 0], "edges": [[0, 1]]}', type=Dag)
