"""Tests of lib/bandmas/edge_masks.py: the native method, on graphs of agents."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.bandmas.edge_masks import EdgeMasks, cut_weakest, log_probability, nuclear_norm, sample_graph, sigmoid

UNIT = st.floats(0, 1, exclude_max=True)


def full(agents: int) -> list[tuple[int, int]]:
    """Return all spatial edges of a team in row-major order, without self-edges."""
    return [(tail, head) for tail in range(agents) for head in range(agents) if tail != head]


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def log_p(logits: torch.Tensor, taken: list[bool], asked: list[bool]) -> torch.Tensor:
    return log_probability(logits, np.array(taken), np.array(asked))


@pytest.mark.parametrize(("taken", "slope"), [(True, 0.4013), (False, -0.5987)])
def test_the_gradient_of_one_edge_by_hand(taken: bool, slope: float) -> None:
    logits = tensor(0.4)
    assert sigmoid(np.array(0.4)) == pytest.approx(0.5987, abs=1e-4)
    log_p(logits, [taken], [True]).backward()
    assert logits.grad is not None and logits.grad.item() == pytest.approx(slope, abs=1e-4)


def test_an_answer_worth_nothing_moves_nothing() -> None:
    masks = EdgeMasks([(0, 1)], start=sigmoid(np.array(0.4)).item())
    masks.update([masks.draw(np.array([True]), np.array([0.0]))], [0.0])
    assert masks.logits.tolist() == pytest.approx([0.4])


def test_the_log_probability_counts_edges_that_were_not_skipped() -> None:
    """N = 2 at logits 0: an edge drawn first forbids the other; total probability is .5 + .25 + .25."""
    edges, zeros, open_ = full(2), np.zeros(2), np.ones(2, dtype=bool)
    outcomes = {}
    for draws in itertools.product([0.0, 0.9], repeat=2):
        taken, asked = sample_graph(edges, zeros, open_, np.array(draws))
        outcomes[tuple(taken)] = log_probability(torch.zeros(2, dtype=torch.float64), taken, asked).item()
    half = math.log(0.5)
    assert outcomes == pytest.approx({(True, False): half, (False, True): 2 * half, (False, False): 2 * half})
    assert sum(map(math.exp, outcomes.values())) == pytest.approx(1)


@given(st.lists(st.floats(-3, 3), min_size=6, max_size=6), st.permutations(full(3)))
def test_probabilities_of_all_graphs_sum_to_one(logits: list[float], edges: list[tuple[int, int]]) -> None:
    outcomes = {}
    for draws in itertools.product([0.0, 1.0], repeat=6):
        taken, asked = sample_graph(edges, np.array(logits), np.ones(6, dtype=bool), np.array(draws))
        outcomes[tuple(taken)] = log_probability(torch.tensor(logits, dtype=torch.float64), taken, asked).item()
    assert sum(map(math.exp, outcomes.values())) == pytest.approx(1)


@given(
    st.permutations(full(4)),
    st.lists(UNIT, min_size=12, max_size=12),
    st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_no_cycle_is_drawn_in_any_order_and_closed_edges_stay_out(
    edges: list[tuple[int, int]], draws: list[float], open_: list[bool]
) -> None:
    taken, asked = sample_graph(edges, np.full(12, 2.0), np.array(open_), np.array(draws))
    graph = nx.DiGraph([edge for edge, chosen in zip(edges, taken, strict=True) if chosen])
    assert nx.is_directed_acyclic_graph(graph)
    assert not (taken & ~asked).any() and not (asked & ~np.array(open_)).any()
    # What was open and skipped would have closed a cycle.
    for edge, skipped in zip(edges, np.array(open_) & ~asked, strict=True):
        assert not skipped or nx.has_path(graph, edge[1], edge[0])


def test_edges_across_rounds_may_close_cycles() -> None:
    edges = [(0, 0), (0, 1), (1, 0), (1, 1)]
    taken, asked = sample_graph(edges, np.zeros(4), np.ones(4, dtype=bool), np.zeros(4), acyclic=False)
    assert taken.all() and asked.all()
    assert not sample_graph([(0, 0)], np.zeros(1), np.ones(1, dtype=bool), np.zeros(1))[1].any(), (
        "a self-edge is a cycle"
    )


def test_five_agents_lose_a_quarter_of_their_edges_at_each_cut() -> None:
    masks, counts, gone = EdgeMasks(full(5)), [], set()
    rng = np.random.default_rng(0)
    for _ in range(5):
        counts.append(int(masks.kept.sum()))
        masks.cut(0.25)
        gone |= {*np.flatnonzero(~masks.kept)}
        taken, asked = masks.draw(np.ones(20, dtype=bool), rng.random(20))
        masks.update([(taken, asked)], [1.0])
        assert not (asked & ~masks.kept).any() and not masks.kept[list(gone)].any(), "a cut edge never reappears"
    assert counts == [20, 15, 11, 8, 6]


@pytest.mark.parametrize(
    ("edges", "rate", "left"),
    [(2, 0.25, 1), (10, 0.25, 8), (14, 0.25, 10), (15, 0.25, 11), (1, 0.25, 1), (0, 0.25, 0), (2, 0.9, 1)],
)
def test_halves_round_to_even_at_least_one_goes_and_one_stays(edges: int, rate: float, left: int) -> None:
    kept = cut_weakest(np.zeros(edges), np.ones(edges, dtype=bool), rate)
    assert kept.sum() == left
    assert kept.tolist() == [False] * (edges - left) + [True] * left, "equal logits go in index order"


def test_the_lowest_surviving_logits_are_cut() -> None:
    logits, kept = np.array([-9.0, 0.3, -0.2, 0.1, 0.1 - 1e-15]), np.array([False, True, True, True, True])
    assert cut_weakest(logits, kept, 0.5).tolist() == [False, True, False, False, True], "float noise is a tie"


def test_the_nuclear_norm_and_its_slope() -> None:
    assert nuclear_norm(torch.diag(tensor(3.0, -4.0))).item() == pytest.approx(7)
    rng = np.random.default_rng(3)
    matrix = torch.tensor(rng.random((3, 2)), requires_grad=True)
    nuclear_norm(matrix).backward()
    step = torch.zeros((3, 2), dtype=torch.float64)
    step[1, 1] = 1e-6
    change = torch.linalg.matrix_norm(matrix.detach() + step, "nuc") - torch.linalg.matrix_norm(matrix.detach(), "nuc")
    assert matrix.grad is not None and matrix.grad[1, 1].item() == pytest.approx(change.item() / 1e-6, abs=1e-5)
    ones = torch.ones((2, 3), dtype=torch.float64, requires_grad=True)
    nuclear_norm(ones).backward()
    assert ones.grad is not None and torch.allclose(
        ones.grad, torch.full((2, 3), 1 / math.sqrt(6), dtype=torch.float64)
    )


def test_penalties_pull_down_and_towards_the_full_graph() -> None:
    nobody = (np.zeros(6, dtype=bool), np.zeros(6, dtype=bool))
    for weights, sign in (({"nuclear": 1.0}, -1), ({"anchor": 1.0}, 1)):
        masks = EdgeMasks(full(3))
        masks.kept[0] = False
        masks.update([nobody], [1.0], **weights)
        assert np.sign(masks.logits).tolist() == [0, *[sign] * 5], "cut edges are not moved"


def test_an_edge_that_no_graph_asked_for_is_not_moved() -> None:
    """Adam would carry an edge on by its momentum; without a gradient it must stand still."""
    masks = EdgeMasks([(0, 9), (1, 9)])
    both, one = np.array([True, True]), np.array([True, False])
    masks.update([masks.draw(both, np.zeros(2))], [1.0])
    before = masks.logits
    masks.update([masks.draw(one, np.zeros(2))], [1.0])
    assert masks.logits[0] > before[0] and masks.logits[1] == before[1]


def test_the_first_step_is_adams() -> None:
    masks = EdgeMasks([(0, 9), (1, 9)], learning_rate=0.1)
    masks.update([(np.array([True, False]), np.array([True, True]))], [0.5])
    assert masks.logits.tolist() == pytest.approx([0.1, -0.1]), (
        "one step of Adam is the learning rate, up for what was taken"
    )


def test_no_edges_no_work() -> None:
    masks = EdgeMasks([])
    masks.update([masks.draw(np.zeros(0, dtype=bool), np.zeros(0))], [1.0], nuclear=1.0)
    masks.cut(0.25)
    assert masks.logits.shape == masks.kept.shape == (0,)
