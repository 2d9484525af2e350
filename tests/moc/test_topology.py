"""Tests of lib/moc/topology.py."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lib.moc.topology import AcyclicEdges, draw_edges, log_probability, strongest_edges

UNIT = st.floats(0, 1, exclude_max=True)
MATRICES = st.integers(1, 6).flatmap(lambda n: hnp.arrays(float, (2, n, n), elements=UNIT))


def log_p(probabilities: np.ndarray, taken: np.ndarray, asked: np.ndarray) -> float:
    return log_probability(torch.logit(torch.from_numpy(probabilities)), taken, asked).item()


@given(MATRICES)
def test_what_is_drawn_has_no_cycle_and_what_was_skipped_would_have_closed_one(pair: np.ndarray) -> None:
    probabilities, draws = pair
    edges, asked = draw_edges(probabilities, draws)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(draws)))
    for place in itertools.product(range(len(draws)), repeat=2):  # what was drawn before, row by row
        assert asked[place] == (not nx.has_path(graph, place[1], place[0]))
        assert edges.taken[place] == (asked[place] and draws[place] < probabilities[place])
        if edges.taken[place]:
            graph.add_edge(*place)
    assert nx.is_directed_acyclic_graph(graph) and edges.edges() == tuple(sorted(graph.edges))


@given(st.floats(0.01, 0.99))
def test_the_law_of_two_agents(p: float) -> None:
    """The scan asks 0 -> 1 first: p, then (1 - p) p for 1 -> 0, and (1 - p)^2 for neither."""
    law = {}
    both = np.full((2, 2), p)
    for first, second in itertools.product([0.0, 0.9999], repeat=2):
        edges, asked = draw_edges(both, np.array([[0, first], [second, 0]]))
        law[edges.edges()] = math.exp(log_p(both, edges.taken, asked))
    assert law == pytest.approx({((0, 1),): p, ((1, 0),): (1 - p) * p, (): (1 - p) ** 2})
    assert sum(law.values()) == pytest.approx(1)


@settings(max_examples=30)  # each draws 64 graphs
@given(hnp.arrays(float, (3, 3), elements=st.floats(0.05, 0.95)))
def test_probabilities_of_all_graphs_sum_to_one(probabilities: np.ndarray) -> None:
    off, law = ~np.eye(3, dtype=bool), {}
    for bits in itertools.product([0.0, 0.9999], repeat=6):
        draws = np.zeros((3, 3))
        draws[off] = bits
        edges, asked = draw_edges(probabilities, draws)
        law[edges.edges()] = math.exp(log_p(probabilities, edges.taken, asked))
    assert len(law) == 25, "all acyclic graphs of three agents"
    assert sum(law.values()) == pytest.approx(1)


def test_frequencies_follow_the_law() -> None:
    rng, p, n = np.random.default_rng(0), 0.6, 4000
    drawn = [draw_edges(np.full((2, 2), p), rng.random((2, 2)))[0].edges() for _ in range(n)]
    for edges, chance in ((((0, 1),), p), (((1, 0),), (1 - p) * p), ((), (1 - p) ** 2)):
        assert drawn.count(edges) / n == pytest.approx(chance, abs=0.03)


@given(hnp.arrays(float, (5, 5), elements=st.floats(0, 1)), st.floats(0, 1))
def test_the_strongest_edges_win(weights: np.ndarray, threshold: float) -> None:
    made, rounded = strongest_edges(weights, threshold), np.round(weights, 12)
    graph = nx.DiGraph(made.edges())
    graph.add_nodes_from(range(5))
    assert nx.is_directed_acyclic_graph(graph)
    assert all(rounded[edge] >= threshold for edge in made.edges())
    for tail, head in itertools.permutations(range(5), 2):
        if rounded[tail, head] >= threshold and not made.taken[tail, head]:
            stronger = nx.DiGraph([edge for edge in made.edges() if rounded[edge] >= rounded[tail, head]])
            assert {tail, head} <= set(stronger) and nx.has_path(stronger, head, tail), "only a cycle keeps an edge out"


def test_ties_go_row_by_row() -> None:
    noise = np.full((3, 3), 0.5)
    noise[1, 0] += 1e-15
    assert strongest_edges(noise, 0.5).edges() == ((0, 1), (0, 2), (1, 2)), "float noise is a tie"
    noise[2, 0] = 0.6
    assert strongest_edges(noise, 0.5).edges() == ((0, 1), (2, 0), (2, 1))
    assert strongest_edges(noise, 0.55).edges() == ((2, 0),)


def test_edges_know_what_they_connect() -> None:
    edges = AcyclicEdges(4)
    edges.add(0, 1)
    edges.add(2, 3)
    assert not edges.closes_cycle(3, 0)
    edges.add(1, 2)
    assert edges.closes_cycle(3, 0) and edges.closes_cycle(2, 2) and not edges.closes_cycle(0, 3)


def test_the_slope_of_one_choice_by_hand() -> None:
    logits = torch.tensor([[0.0, 0.4], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    asked = np.array([[False, True], [False, False]])
    log_probability(logits, asked, asked).backward()
    assert logits.grad is not None
    assert logits.grad[0, 1].item() == pytest.approx(1 - 1 / (1 + math.exp(-0.4)))
    assert logits.grad.count_nonzero() == 1, "pairs that were not asked get no slope"
