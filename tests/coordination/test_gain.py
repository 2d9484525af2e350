"""Proposition 1: utility is gain minus tax, gain is never negative, and a message helps iff its gain exceeds its tax."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.gain import OneStep, need_same_silence, one_step
from lib.coordination.laws import Law, zero_one
from tests.coordination.strategies import M, X, Z, classes, kernels, losses, spoken


@given(spoken(), classes(), kernels(X, M, Z), kernels(X, Z), losses())
def test_utility_is_gain_minus_tax(
    law: Law, decoders: np.ndarray, deployed: np.ndarray, silent: np.ndarray, loss: np.ndarray
) -> None:
    step = one_step(law, decoders, deployed, silent, loss)
    assert abs(step.utility - (step.gain - step.tax)) < 1e-12
    assert step.gain >= -1e-12
    if abs(step.utility) > 1e-9:
        assert (step.utility > 0) == (step.gain > step.tax)


@given(spoken(), classes(), st.data(), losses())
def test_a_receiver_that_ignores_the_message_pays_its_whole_gain_as_tax(
    law: Law, decoders: np.ndarray, data: st.DataObject, loss: np.ndarray
) -> None:
    silent = data.draw(kernels(X, Z))
    deployed = np.repeat(silent[:, None, :], M, axis=1)
    step = one_step(law, decoders, deployed, silent, loss)
    assert step.utility == pytest.approx(0, abs=1e-12)
    assert step.tax == pytest.approx(step.gain, abs=1e-12)


@given(spoken(), classes(), losses())
def test_the_best_of_the_class_on_both_sides_pays_no_tax(law: Law, decoders: np.ndarray, loss: np.ndarray) -> None:
    step = one_step(law, decoders, np.zeros((X, M), dtype=int), np.zeros(X, dtype=int), loss)
    best = OneStep(step.silent_best, step.message_best, step.silent_best, step.message_best)
    assert best.tax == 0 and best.utility == best.gain


def test_drawn_problems_are_not_all_idle() -> None:
    """The properties above say little on messages that nobody can use: many drawn ones must have a gain."""
    gains = []

    @given(spoken(), classes())
    def collect(law: Law, decoders: np.ndarray) -> None:
        gains.append(one_step(law, decoders, np.zeros((X, M), int), np.zeros(X, int), zero_one(Z)).gain)

    collect()
    assert np.mean(np.array(gains) > 1e-9) > 0.3


def test_a_tax_may_be_negative() -> None:
    """In silence the deployed receiver guesses wrong, with the message it is as good as its class."""
    step = OneStep(silent_best=0.3, message_best=0.1, silent_deployed=0.6, message_deployed=0.1)
    assert (step.gain, step.tax, step.utility) == pytest.approx((0.2, -0.3, 0.5))


def test_steps_from_different_silence_are_not_compared() -> None:
    first = OneStep(0.3, 0.1, 0.6, 0.1)
    need_same_silence(first, OneStep(0.3, 0.2, 0.6, 0.4))
    with pytest.raises(ValueError, match="silent_deployed differs, 0.6 and 0.5"):
        need_same_silence(first, OneStep(0.3, 0.1, 0.5, 0.1))


def test_a_deployed_table_of_another_shape_is_refused() -> None:
    law = Law(("x", "m", "z"), np.full((1, 2, 2), 0.25))
    with pytest.raises(ValueError, match=r"rule: shape \(1, 3\)"):
        one_step(law, np.zeros((1, 1, 2), int), np.zeros((1, 3), int), np.zeros(1, int), zero_one(2))
