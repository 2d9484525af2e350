"""The chain worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.bottleneck import replay_difference
from lib.coordination.examples import losses, rates

shares = st.floats(0, 1)


def test_worked_values() -> None:
    parts = losses(confusion=0.2, conversion=0.5)
    assert (parts.externalization, parts.absorption, parts.closure) == pytest.approx((0.25, 0.10, 0.20))
    assert parts.total == pytest.approx(0.55)
    shown = rates(confusion=0.2, conversion=0.5)
    assert shown["hit_artifact"] == pytest.approx(0.65)
    assert shown["hit_joint"] == pytest.approx(0.45)
    assert shown["action_given_artifact"] == pytest.approx(0.6923, abs=5e-5)


@given(shares, shares)
def test_the_joint_error_is_the_total_loss(confusion: float, conversion: float) -> None:
    assert losses(confusion, conversion).total == pytest.approx(1 - rates(confusion, conversion)["hit_joint"])


@given(shares, shares, shares)
def test_two_conversions_differ_by_closure_alone(confusion: float, first: float, second: float) -> None:
    one, two = losses(confusion, first), losses(confusion, second)
    assert replay_difference(one, two) == pytest.approx(one.closure - two.closure, abs=1e-12)
    assert one.externalization == pytest.approx(0.25) and one.absorption == pytest.approx(two.absorption)


def test_a_receiver_without_fault_loses_what_was_not_written() -> None:
    parts = losses(confusion=0.0, conversion=1.0)
    assert (parts.externalization, parts.absorption, parts.closure) == pytest.approx((0.25, 0.0, 0.0))
