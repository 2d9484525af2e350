"""The counterexample: exact errors of all cuts, sufficiency, raw context without error, and what ends the failure."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.alternation import (
    alternating_axis,
    axis_law,
    groups_needed,
    least_error,
    threshold_errors,
)
from lib.coordination.decoders import class_risk, decoder_risks, threshold_maps
from lib.coordination.ideal_cases import message_information
from lib.coordination.laws import bayes_risk, zero_one


@pytest.mark.parametrize("details", [2, 3, 5])
@pytest.mark.parametrize("groups", [1, 2, 3, 4, 5, 10])
def test_least_error_is_exact_over_all_cuts_and_orientations(groups: int, details: int) -> None:
    states = alternating_axis(groups, details)
    table = threshold_errors(states["message"], states["label"])
    assert len(table) == 2 * (2 * groups + 1)
    assert Fraction(int(table["wrong"].min()), len(states)) == Fraction(groups - 1, 2 * groups) == least_error(groups)
    assert threshold_errors(states["raw"], states["label"])["wrong"].min() == 0


def test_worked_values() -> None:
    shown = [float(least_error(groups)) for groups in (1, 2, 3, 5, 10)]
    assert shown == pytest.approx([0, 0.25, 1 / 3, 0.4, 0.45])


@pytest.mark.parametrize("groups", [1, 2, 3, 5])
def test_message_is_proper_and_sufficient_and_the_failure_is_the_receivers(groups: int) -> None:
    details = 3
    states = alternating_axis(groups, details)
    message, raw = axis_law(states, "message"), axis_law(states, "raw")
    assert states["message"].nunique() * details == states["raw"].nunique() == len(states), "alpha = 1 / r"
    assert states.groupby("message")["raw"].nunique().eq(details).all(), "not injective"
    assert bayes_risk(message, ("m",), zero_one(2)) == 0
    assert message_information(message) == pytest.approx(np.log(2)), "I(Z; M) = H(Z)"
    thresholds = threshold_maps(2 * groups)
    assert class_risk(message, thresholds, zero_one(2)) == pytest.approx(float(least_error(groups)), abs=1e-12)
    assert class_risk(raw, threshold_maps(len(states)), zero_one(2)) == pytest.approx(0, abs=1e-12)
    parity = (np.arange(2 * groups) % 2)[None, None, :]
    assert class_risk(message, np.concatenate([thresholds, parity]), zero_one(2)) == pytest.approx(0, abs=1e-12)


@given(st.integers(1, 6), st.integers(2, 4))
def test_the_table_and_the_decoder_class_agree_cut_by_cut(groups: int, details: int) -> None:
    states = alternating_axis(groups, details)
    table = threshold_errors(states["message"], states["label"])
    risks = decoder_risks(axis_law(states, "message"), threshold_maps(2 * groups), zero_one(2))
    assert np.allclose(table["error"], risks, atol=1e-12)
    assert table["cut"].iloc[: 2 * groups + 1].tolist() == [k - 0.5 for k in range(2 * groups + 1)]


@given(st.fractions(Fraction(1, 200), Fraction(1, 2)))
def test_groups_needed_is_the_first_that_is_near_chance(epsilon: Fraction) -> None:
    m = groups_needed(epsilon)
    assert least_error(m) >= Fraction(1, 2) - epsilon
    assert m == 1 or least_error(m - 1) < Fraction(1, 2) - epsilon


def test_groups_needed_worked_values_and_refusals() -> None:
    assert [groups_needed(epsilon) for epsilon in (0.5, 0.25, 0.1, 0.05, 0.005)] == [1, 2, 5, 10, 100]
    with pytest.raises(ValueError, match="chance itself"):
        groups_needed(0)
    with pytest.raises(ValueError, match="details at least 2"):
        alternating_axis(3, 1)
    with pytest.raises(ValueError, match="groups must be at least 1"):
        alternating_axis(0, 2)
