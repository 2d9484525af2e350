"""Tests of lib/bandmas/zero_extension.py."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.bandmas.zero_extension import cut_cost, cut_weights, terminal_count, terminals_of, zero_extension

A, B, R = 0, 1, 2


def three() -> np.ndarray:
    """Return the specification's example: E_ab = .9, E_aR = .2."""
    scores = np.zeros((3, 3))
    scores[A, B], scores[A, R] = 0.9, 0.2
    return scores


@st.composite
def graphs(draw: st.DrawFn, largest: int = 7) -> np.ndarray:
    nodes = draw(st.integers(2, largest))
    values = draw(st.lists(st.integers(0, 8), min_size=nodes * nodes, max_size=nodes * nodes))
    return np.array(values).reshape(nodes, nodes) / 8


def test_strong_pairs_stay_together_and_the_printed_weight_inverts_this() -> None:
    weights = cut_weights(three(), epsilon=0.0)
    assert cut_cost(weights, [B, B, R]) == pytest.approx(0.2) and cut_cost(weights, [R, B, R]) == pytest.approx(0.9)
    assert zero_extension(cut_weights(three()), [B, R]).tolist() == [B, B, R]

    printed = cut_weights(three() + 1e-12, "as_printed")
    apart = printed[B, R]  # both labellings separate the terminals
    assert cut_cost(printed, [B, B, R]) - apart == pytest.approx(5, abs=1e-3)
    assert cut_cost(printed, [R, B, R]) - apart == pytest.approx(1.11, abs=1e-2)
    assert zero_extension(printed, [B, R]).tolist() == [R, B, R]


def test_the_number_of_terminals() -> None:
    assert {n: terminal_count(n) for n in (3, 4, 9, 16)} == {3: 2, 4: 2, 9: 3, 16: 4}
    assert [terminal_count(n) for n in (0, 1, 2)] == [0, 1, 2], "below two nodes there is nothing to cluster"


def test_terminals_have_the_largest_degree_and_forced_ones_come_first() -> None:
    scores = np.zeros((4, 4))
    scores[0, 1], scores[1, 2], scores[2, 3] = 0.5, 0.5, 0.1  # degrees .5, 1, .6, .1
    assert terminals_of(scores) == [1, 2]
    assert terminals_of(scores.T) == [1, 2], "direction does not matter"
    assert terminals_of(scores, forced=[3]) == [1, 3]
    assert terminals_of(np.zeros((4, 4))) == [0, 1], "ties go to the lower index"


@given(graphs(), st.sampled_from(["affinity", "as_printed"]), st.data())
def test_the_exact_labelling_is_the_cheapest_and_leaves_terminals_fixed(
    scores: np.ndarray, kind: str, data: st.DataObject
) -> None:
    nodes = range(len(scores))
    ends = data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True))
    weights = cut_weights(scores, kind)
    labels = zero_extension(weights, ends)
    assert (labels[ends] == ends).all() and set(labels) <= set(ends)
    free = [node for node in nodes if node not in ends]
    tried = []
    for choice in itertools.product(sorted(ends), repeat=len(free)):
        other = np.arange(len(scores))
        other[free] = choice
        tried.append(other)
    cost = cut_cost(weights, labels)
    assert cost <= min(cut_cost(weights, other) for other in tried) * (1 + 1e-9)
    single = [other for other in tried if len(set(other[free])) <= 1]
    assert all(cost <= cut_cost(weights, other) * (1 + 1e-9) for other in single)


def test_equal_costs_take_the_first_labelling_in_index_order() -> None:
    scores = np.full((4, 4), 0.5)
    assert zero_extension(cut_weights(scores), [1, 3]).tolist() == [1, 1, 1, 3]


@given(graphs())
def test_above_the_limit_nodes_go_to_the_nearest_terminal(scores: np.ndarray) -> None:
    weights = cut_weights(scores)
    ends = terminals_of(scores)
    labels = zero_extension(weights, ends, exact=0)
    assert (labels[ends] == ends).all() and set(labels) <= set(ends)


def test_nearness_runs_along_strong_edges() -> None:
    scores = np.zeros((4, 4))
    scores[0, 1], scores[1, 2], scores[0, 3] = 1.0, 1.0, 0.4  # 0 - 1 - 2 has length 2, 0 - 3 has 2.5
    assert zero_extension(cut_weights(scores), [2, 3], exact=0).tolist() == [2, 2, 2, 3]
    scores[0, 3] = 0.6
    assert zero_extension(cut_weights(scores), [2, 3], exact=0).tolist() == [3, 2, 2, 3]


def test_weights_are_symmetric_with_a_zero_diagonal() -> None:
    for kind in ("affinity", "as_printed"):
        weights = cut_weights(three(), kind)
        assert (weights == weights.T).all() and (np.diag(weights) == 0).all()
        assert (weights[~np.eye(3, dtype=bool)] > 0).all()
