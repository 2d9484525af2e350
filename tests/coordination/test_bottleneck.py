"""The bottleneck: parts that are never negative and sum up, the worked chain, replay of a fixed message."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.bottleneck import Losses, bottleneck_losses, class_losses, replay_difference
from lib.coordination.decoders import class_risk
from lib.coordination.laws import Law, bayes_risk, map_risk, zero_one
from tests.coordination.strategies import M, X, Z, classes, kernels, losses, sources

W = 3


@given(sources(), kernels(4, X, M), kernels(X, M, W), kernels(W, Z), losses())
def test_parts_are_never_negative_and_sum_to_the_total(
    law: Law, sender: np.ndarray, absorb: np.ndarray, head: np.ndarray, loss: np.ndarray
) -> None:
    parts = bottleneck_losses(law, sender, absorb, head, loss)
    assert min(parts.externalization, parts.absorption, parts.closure) >= -1e-12
    chain = law.with_variable("m", ("s", "x"), sender).with_variable("w", ("x", "m"), absorb)
    deployed = map_risk(chain, ("w",), head, loss)
    assert parts.total == pytest.approx(deployed - bayes_risk(law, ("x", "s"), loss), abs=1e-9)


@given(sources(), kernels(4, X, M), st.data(), losses())
def test_replay_cancels_what_the_message_leaves_out(
    law: Law, sender: np.ndarray, data: st.DataObject, loss: np.ndarray
) -> None:
    first, second = (
        bottleneck_losses(law, sender, data.draw(kernels(X, M, W)), data.draw(kernels(W, Z)), loss) for _ in range(2)
    )
    assert replay_difference(first, second) == pytest.approx(first.total - second.total, abs=1e-9)


def test_each_station_can_be_the_only_one_that_loses() -> None:
    bit = Law(("s", "x", "z"), np.array([[[0.5, 0.0]], [[0.0, 0.5]]]))
    same, constant = np.array([[0], [1]]), np.array([[[1.0, 0.0]], [[1.0, 0.0]]])
    read, forget = np.array([[0, 1]]), np.array([[[1.0, 0.0], [1.0, 0.0]]])
    act, stuck = np.array([0, 1]), np.array([0, 0])
    loss = zero_one(2)
    assert bottleneck_losses(bit, same, read, act, loss) == Losses(0, 0, 0)
    assert bottleneck_losses(bit, constant, read, act, loss) == Losses(0.5, 0, 0)
    assert bottleneck_losses(bit, same, forget, act, loss) == Losses(0, 0.5, 0)
    assert bottleneck_losses(bit, same, read, stuck, loss) == Losses(0, 0, 0.5)


@given(sources(), kernels(4, X, M), classes(), classes(), st.data(), losses())
def test_estimated_parts_keep_their_signs_but_the_first(
    law: Law, sender: np.ndarray, receiver: np.ndarray, more: np.ndarray, data: st.DataObject, loss: np.ndarray
) -> None:
    message, raw = law.with_variable("m", ("s", "x"), sender), law.with_variable("m", ("s",), np.arange(4))
    probes = np.concatenate([receiver, more])
    deployed = map_risk(message, ("x", "m"), receiver[data.draw(st.integers(0, len(receiver) - 1))], loss)
    risks = [
        class_risk(raw, data.draw(classes(n_m=4)), loss),
        class_risk(message, probes, loss),
        class_risk(message, receiver, loss),
        deployed,
    ]
    parts = class_losses(*risks)
    assert parts.absorption >= -1e-12 and parts.closure >= -1e-12
    assert parts.total == pytest.approx(deployed - risks[0], abs=1e-9)


def test_estimated_externalization_may_be_negative() -> None:
    """Probes that read the message and not the raw context: 0.2 is found in the message, nothing in the context."""
    assert class_losses(0.5, 0.2, 0.25, 0.4).externalization == pytest.approx(-0.3)


def test_replay_of_two_different_messages_is_refused() -> None:
    with pytest.raises(ValueError, match="externalization differs, 0.1 and 0.2: replay the same message"):
        replay_difference(Losses(0.1, 0, 0), Losses(0.2, 0, 0))
