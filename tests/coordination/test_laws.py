"""Finite laws: chains, Bayes risks, data processing, refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.laws import Law, as_kernel, bayes_risk, map_risk, zero_one
from tests.coordination.strategies import M, X, Z, kernels, losses, sources, spoken

COIN = Law(("x", "z"), np.array([[0.4, 0.1], [0.2, 0.3]]))


def test_risks_of_a_law_by_hand() -> None:
    assert bayes_risk(COIN, ("x",), zero_one(2)) == pytest.approx(0.1 + 0.2)
    assert bayes_risk(COIN, (), zero_one(2)) == pytest.approx(0.4)
    assert map_risk(COIN, ("x",), np.array([1, 1]), zero_one(2)) == pytest.approx(0.6)
    assert map_risk(COIN, ("x",), np.array([[0.5, 0.5], [0, 1]]), zero_one(2)) == pytest.approx(0.25 + 0.2)
    uneven = np.array([[0.0, 10.0], [1.0, 0.0]])  # missing a 1 costs ten times as much
    assert bayes_risk(COIN, ("x",), uneven) == pytest.approx(0.4 + 0.2)


@given(sources(), st.data())
def test_a_new_variable_depends_on_what_its_kernel_reads_alone(law: Law, data: st.DataObject) -> None:
    kernel = data.draw(kernels(*law.size("s", "x"), M))
    longer = law.with_variable("m", ("s", "x"), kernel)
    assert np.allclose(longer.marginal("s", "x", "z"), law.p, atol=1e-12)
    expected = law.p[:, :, :, None] * kernel[:, :, None, :]
    assert np.allclose(longer.p, expected, atol=1e-12)
    assert np.allclose(longer.marginal("m", "s"), expected.sum(axis=(1, 2)).T, atol=1e-12)


@given(spoken(), losses(), st.data())
def test_data_processing(law: Law, loss: np.ndarray, data: st.DataObject) -> None:
    """A message tells no more than its sender knew, what is made of it no more than the message; more never hurts."""
    chain = law.with_variable("w", ("x", "m"), data.draw(kernels(X, M, 3)))
    order = [bayes_risk(chain, given, loss) for given in (("x", "s"), ("x", "m"), ("w",), ())]
    assert all(before <= after + 1e-12 for before, after in itertools.pairwise(order))
    assert order[1] <= bayes_risk(chain, ("x",), loss) + 1e-12


@given(spoken(), losses(), st.permutations(range(M)))
def test_renaming_symbols_leaves_the_bayes_risk(law: Law, loss: np.ndarray, names: list[int]) -> None:
    renamed = law.with_variable("n", ("m",), np.array(names))
    assert bayes_risk(renamed, ("x", "n"), loss) == pytest.approx(bayes_risk(law, ("x", "m"), loss), abs=1e-12)


@given(spoken(), losses(), st.data())
def test_no_rule_beats_the_bayes_risk(law: Law, loss: np.ndarray, data: st.DataObject) -> None:
    rule = data.draw(kernels(X, M, Z))
    assert map_risk(law, ("x", "m"), rule, loss) >= bayes_risk(law, ("x", "m"), loss) - 1e-12


@pytest.mark.parametrize(
    ("variables", "p", "message"),
    [
        (("x", "x"), np.full((2, 2), 0.25), "distinct"),
        (("x",), np.full((2, 2), 0.25), "one for each of the 2 axes"),
        (("x",), np.array([0.5, 0.6]), "sum to 1; they sum to 1.1"),
        (("x",), np.array([1.5, -0.5]), "probabilities >= 0"),
        (("x",), np.array([np.nan, 1.0]), "probabilities >= 0"),
    ],
)
def test_what_is_no_law_is_refused(variables: tuple[str, ...], p: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Law(variables, p)


def test_what_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no variable 'm'; it has x, z"):
        COIN.marginal("m")
    with pytest.raises(ValueError, match=r"kernel of 'm': shape \(3,\)"):
        COIN.with_variable("m", ("x",), np.zeros(3))
    with pytest.raises(ValueError, match="every row must be probabilities"):
        COIN.with_variable("m", ("x",), np.array([[0.5, 0.4], [0, 1]]))
    with pytest.raises(ValueError, match=r"values must lie in 0\.\.1"):
        as_kernel(np.array([0, 2]), (2,), n=2)
    for loss in (np.eye(3), -np.eye(2), np.full((2, 2), np.inf)):
        with pytest.raises(ValueError, match=r"loss must be \(n_predictions, 2\)"):
            bayes_risk(COIN, ("x",), loss)


def test_a_law_cannot_be_changed_behind_its_back() -> None:
    p = np.array([0.5, 0.5])
    law = Law(("x",), p)
    p[0] = 2.0
    assert law.p.tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="read-only"):
        law.p[0] = 1.0
