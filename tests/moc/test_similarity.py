"""Tests of lib/moc/similarity.py."""

from __future__ import annotations

import doctest
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.moc import similarity as module
from lib.moc.similarity import cosine, disjoint_pairs, unit_rows

# Few distinct values, so that ties are common.
VALUES = st.sampled_from([-1.0, -0.3, 0.0, 0.3, 0.5, 0.85, 0.9, 0.95, 1.0])


@st.composite
def matrices(draw: st.DrawFn, least: int = 2) -> np.ndarray:
    n = draw(st.integers(least, 9))
    matrix = np.eye(n)
    for u, v in itertools.combinations(range(n), 2):
        matrix[u, v] = matrix[v, u] = draw(VALUES)
    return matrix


def test_examples() -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


def test_the_worked_case() -> None:
    """S01 = .95, S12 = .93, S23 = .88: at epsilon .1 the threshold is .85 and (1, 2) is blocked by (0, 1)."""
    similar = np.array([[1, 0.95, 0.5, 0.3], [0.95, 1, 0.93, 0.4], [0.5, 0.93, 1, 0.88], [0.3, 0.4, 0.88, 1]])
    assert disjoint_pairs(similar, 0.1) == ((0, 1), (2, 3))
    assert disjoint_pairs(similar, 0.01) == ((0, 1),)
    assert disjoint_pairs(similar, 0.07) == ((0, 1), (2, 3))  # .88 is within .07 of .95 although .95 - .07 is above it


def test_ties_go_to_the_first_positions() -> None:
    assert disjoint_pairs(np.ones((4, 4)), 0.0) == ((0, 1), (2, 3))
    assert disjoint_pairs(np.zeros((3, 3)), 0.0) == ((0, 1),)


def test_a_difference_below_twelve_digits_is_a_tie() -> None:
    similar = np.full((3, 3), 0.5)
    similar[1, 2] = similar[2, 1] = 0.5 + 1e-14
    assert disjoint_pairs(similar, 0.0) == ((0, 1),)


@given(matrices(), st.sampled_from([0.0, 0.05, 0.1, 0.6, 3.0]))
def test_pairs_are_disjoint_within_the_slack_and_maximal(similar: np.ndarray, epsilon: float) -> None:
    pairs = disjoint_pairs(similar, epsilon)
    everyone = list(itertools.combinations(range(len(similar)), 2))
    closest = max(similar[pair] for pair in everyone)
    used = [position for pair in pairs for position in pair]
    assert pairs and len(set(used)) == len(used)
    assert similar[pairs[0]] == closest
    assert all(u < v and similar[u, v] >= closest - epsilon - 1e-9 for u, v in pairs)
    assert [similar[pair] for pair in pairs] == sorted((similar[pair] for pair in pairs), reverse=True)
    left = [pair for pair in everyone if not set(pair) & set(used)]
    assert all(similar[pair] < closest - epsilon + 1e-9 for pair in left)


@given(matrices())
def test_taking_the_closest_pairs_first_is_what_a_plain_loop_does(similar: np.ndarray) -> None:
    closest = max(similar[pair] for pair in itertools.combinations(range(len(similar)), 2))
    free, found = set(range(len(similar))), []
    pool = [(u, v) for u, v in itertools.combinations(range(len(similar)), 2) if similar[u, v] >= closest - 0.1 - 1e-9]
    for u, v in sorted(pool, key=lambda pair: (-similar[pair], pair)):
        if {u, v} <= free:
            free -= {u, v}
            found.append((u, v))
    assert disjoint_pairs(similar, 0.1) == tuple(found)


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_messages_have_no_pair(n: int) -> None:
    assert disjoint_pairs(np.eye(n), 0.1) == ()


@pytest.mark.parametrize(
    ("matrix", "epsilon", "field"),
    [
        (np.eye(2), -0.1, "epsilon"),
        (np.eye(2), float("nan"), "epsilon"),
        (np.ones((2, 3)), 0.1, "not square"),
        (np.full((2, 2), np.nan), 0.1, "not finite"),
    ],
)
def test_wrong_input_is_named(matrix: np.ndarray, epsilon: float, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        disjoint_pairs(matrix, epsilon)


def test_rows_without_a_direction_are_similar_to_nothing() -> None:
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [3e-200, 4e-200], [3e200, 4e200]])
    similar = cosine(unit_rows(rows))
    assert np.isfinite(similar).all()
    assert (similar[1:4] == 0).all()
    assert similar[0, 4] == similar[0, 5] == 1.0


def test_single_precision_vectors_are_compared_in_double_precision() -> None:
    rows = np.random.default_rng(0).standard_normal((5, 384)).astype(np.float32)
    units = unit_rows(rows)
    assert units.dtype == np.float64
    assert np.allclose(np.linalg.norm(units, axis=1), 1, atol=1e-14)
    assert unit_rows(np.zeros((0, 3))).shape == (0, 3)
