"""Idealised receivers: sums over parts and what breaks them, information as gain, bounds and certificates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib.coordination.decoders import class_risk, product_maps, silent_maps, silent_risk
from lib.coordination.ideal_cases import (
    additive_loss,
    best_critic,
    broken_tie,
    log_loss_gain,
    message_information,
    part_laws,
    tax_certificate,
    variational_bound,
)
from lib.coordination.laws import Law, zero_one
from lib.coordination.random_laws import additive_draws, information_law
from tests.coordination.strategies import M, X, Z, classes, kernels, losses, sources, spoken

A, B = 2, 2  # predictions of the artifact and of the action part


@st.composite
def pair_laws(draw: st.DrawFn) -> Law:
    law = draw(sources(n_z=A * B))
    return law.with_variable("m", ("s", "x"), draw(kernels(4, X, M)))


# ------------------------------------------------------------------------------------------------- (i) parts that add up


@given(pair_laws(), classes(n_predictions=A), classes(n_predictions=B), losses(A, A), losses(B, B))
def test_risk_and_gain_add_over_a_product_class(
    law: Law, first: np.ndarray, second: np.ndarray, loss_a: np.ndarray, loss_b: np.ndarray
) -> None:
    whole, parts = product_maps(first, second, B), part_laws(law, B)
    loss = additive_loss(loss_a, loss_b)
    for risk in (class_risk, silent_risk):
        apart = risk(parts[0], first, loss_a) + risk(parts[1], second, loss_b)
        assert risk(law, whole, loss) == pytest.approx(apart, abs=1e-9)


def agreeing() -> Law:
    """Two fair bits, always equal; a message that says nothing."""
    return Law(("x", "m", "z"), np.array([[[0.5, 0.0, 0.0, 0.5], [0.0, 0.0, 0.0, 0.0]]]))


def test_a_joint_0_1_loss_does_not_add() -> None:
    """One guess has both bits right half of the time; the parts are wrong half of the time each, which sums to 1."""
    law, bits = agreeing(), silent_maps(1, 2, 2)
    first, second = part_laws(law, B)
    joint = class_risk(law, product_maps(bits, bits, B), zero_one(A * B))
    apart = class_risk(first, bits, zero_one(A)) + class_risk(second, bits, zero_one(B))
    assert (joint, apart) == pytest.approx((0.5, 1.0))


def test_a_class_that_ties_its_parts_together_does_not_add() -> None:
    """The receiver can say (0, 0) or (1, 1) only, and the bits are never equal: one of them is always wrong."""
    law = Law(("x", "m", "z"), np.array([[[0.0, 0.9, 0.1, 0.0]]]))
    tied = np.array([[[0]], [[3]]])  # (0, 0) and (1, 1)
    loss = additive_loss(zero_one(A), zero_one(B))
    first, second = part_laws(law, B)
    bits = silent_maps(1, 1, 2)
    apart = class_risk(first, bits, zero_one(A)) + class_risk(second, bits, zero_one(B))
    assert class_risk(law, tied, loss) == pytest.approx(1.0) and apart == pytest.approx(0.2)
    assert class_risk(law, product_maps(bits, bits, B), loss) == pytest.approx(0.2)


def test_random_laws_say_the_same() -> None:
    draws = additive_draws(60, "test")
    assert draws["product"].abs().max() < 1e-12
    assert draws["joint"].max() < 1e-12 and (draws["joint"] < -1e-6).mean() > 0.5, "both wrong at once counts once"
    assert draws["tied"].min() > -1e-12 and (draws["tied"] > 1e-6).any()


def test_parts_of_a_law() -> None:
    first, second = part_laws(Law(("x", "m", "z"), np.array([[[0.1, 0.2, 0.3, 0.4]]])), 2)
    assert first.p.ravel() == pytest.approx([0.3, 0.7]) and second.p.ravel() == pytest.approx([0.4, 0.6])


# ------------------------------------------------------------------------------------------------ (ii) gain is information


@given(spoken())
def test_log_loss_gain_is_conditional_mutual_information(law: Law) -> None:
    assert log_loss_gain(law) == pytest.approx(message_information(law), abs=1e-9)
    assert message_information(law) >= -1e-12


@given(spoken(), st.data())
def test_no_prediction_beats_the_posterior(law: Law, data: st.DataObject) -> None:
    """The unrestricted optimum of log loss is what `log_loss_gain` takes: any other table is worse."""
    joint = law.marginal("x", "m", "z")
    other = (data.draw(kernels(X, M, Z)) + 1e-3) / (1 + Z * 1e-3)
    given_message = joint.sum(axis=2, keepdims=True)
    least = -(joint * np.log(np.where(joint > 0, joint / np.where(given_message > 0, given_message, 1), 1))).sum()
    assert -(joint * np.log(other)).sum() >= least - 1e-12
    silent = law.marginal("x", "z")
    entropy = -(silent * np.log(np.where(silent > 0, silent / silent.sum(axis=1, keepdims=True).clip(1e-300), 1))).sum()
    assert log_loss_gain(law) == pytest.approx(entropy - least, abs=1e-9)


def test_information_of_known_messages() -> None:
    bit = Law(("s", "x", "z"), np.array([[[0.5, 0.0]], [[0.0, 0.5]]]))
    told, silent = (
        bit.with_variable("m", ("s",), np.arange(2)),
        bit.with_variable("m", ("s",), np.array([[1.0], [1.0]])),
    )
    assert message_information(told) == pytest.approx(np.log(2)) and message_information(silent) == 0
    # What the view tells already is no gain.
    known = Law(("s", "x", "z"), np.eye(2)[:, :, None] * np.eye(2)[None] / 2)
    assert log_loss_gain(known.with_variable("m", ("s",), np.arange(2))) == pytest.approx(0, abs=1e-12)


# ------------------------------------------------------------------------------------------------------------- (iii) bounds


@given(spoken(), arrays(float, (X, M, Z), elements=st.floats(-4, 4)))
def test_no_critic_exceeds_the_gain(law: Law, critic: np.ndarray) -> None:
    assert variational_bound(law, critic) <= message_information(law) + 1e-9


@given(spoken())
def test_the_log_ratio_reaches_the_gain(law: Law) -> None:
    p, q = law.marginal("x", "m", "z"), broken_tie(law)
    assert q.sum() == pytest.approx(1)
    assert ((q > 0) | (p == 0)).all(), "where P has weight, Q has"
    ratio = np.where(p > 0, np.log(np.where(p > 0, p, 1) / np.where(q > 0, q, 1)), -60.0)
    assert variational_bound(law, ratio) == pytest.approx(message_information(law), abs=1e-9)


@given(spoken(), st.sampled_from([0.1, 0.5, 1.0, 3.0]), st.data())
@settings(max_examples=50)
def test_the_best_bounded_critic_is_the_best(law: Law, bound: float, data: st.DataObject) -> None:
    best = best_critic(law, bound)
    assert np.abs(best).max() <= bound
    reached = variational_bound(law, best)
    other = data.draw(arrays(float, best.shape, elements=st.floats(-1, 1))) * bound
    assert variational_bound(law, other) <= reached + 1e-9
    # Concave: a point that no small step towards another critic improves is the maximum.
    assert variational_bound(law, best + 1e-3 * (other - best)) <= reached + 1e-9
    assert -1e-9 <= reached <= message_information(law) + 1e-9


def test_wider_critics_reach_the_gain() -> None:
    law = information_law("test", 3)
    gain = message_information(law)
    reached = [variational_bound(law, best_critic(law, bound)) for bound in (0.25, 0.5, 1, 2, 4, 12)]
    assert reached == sorted(reached) and reached[-1] == pytest.approx(gain, abs=1e-5) and 0 < reached[0] < 0.9 * gain


@given(spoken(), st.sampled_from([0.5, 1.0, 2.0]), st.floats(-2, 2))
@settings(max_examples=30)
def test_the_certificate_never_exceeds_the_tax(law: Law, bound: float, utility: float) -> None:
    tax = log_loss_gain(law) - utility
    assert tax_certificate(variational_bound(law, best_critic(law, bound)), utility) <= tax + 1e-9


def test_refusals() -> None:
    law = information_law("test", 0)
    with pytest.raises(ValueError, match="bound must be above 0"):
        best_critic(law, 0)
    with pytest.raises(ValueError, match="critic must be finite, of shape"):
        variational_bound(law, np.zeros((2, 2)))
