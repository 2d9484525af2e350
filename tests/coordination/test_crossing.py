"""The sender's threshold: the identity, the toy, and every way in which there is no single crossing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.crossing import CrossingError, find_crossing, sender_gap
from lib.coordination.gain import OneStep, one_step
from lib.coordination.laws import Law
from tests.coordination.strategies import M, X, Z, classes, kernels, losses, sources


@given(sources(), classes(), st.data(), losses())
def test_a_stronger_sender_is_worth_extra_gain_minus_extra_tax(
    law: Law, decoders: np.ndarray, data: st.DataObject, loss: np.ndarray
) -> None:
    silent = data.draw(kernels(X, Z))
    strong, weak = (
        one_step(
            law.with_variable("m", ("s", "x"), data.draw(kernels(4, X, M))),
            decoders,
            data.draw(kernels(X, M, Z)),
            silent,
            loss,
        )
        for _ in range(2)
    )
    gain, tax = sender_gap(strong, weak)
    assert strong.utility - weak.utility == pytest.approx(gain - tax, abs=1e-9)


def test_other_silence_is_refused() -> None:
    with pytest.raises(ValueError, match="silent_deployed differs"):
        sender_gap(OneStep(0.5, 0.1, 0.5, 0.2), OneStep(0.5, 0.1, 0.4, 0.2))


def toy(beta: float) -> float:
    return 0.5 * beta - (0.30 - 0.2 * beta)


def test_worked_toy() -> None:
    assert toy(0.3) == pytest.approx(-0.09) and toy(0.6) == pytest.approx(0.12)
    assert find_crossing(toy) == pytest.approx(3 / 7, abs=1e-10)
    assert round(find_crossing(toy), 6) == 0.428571


@given(st.floats(0.001, 0.999), st.floats(0.05, 20), st.sampled_from([1, 3]))
def test_the_root_of_any_rising_function_is_found(root: float, slope: float, power: int) -> None:
    def advantage(beta: float) -> float:
        return slope * (beta - root) ** power + 0.5 * slope * (beta - root)

    found = find_crossing(advantage)
    assert found == pytest.approx(root, abs=1e-10)
    assert all((advantage(beta) > 0) == (beta > found) for beta in np.linspace(0, 1, 37) if abs(beta - root) > 1e-9)


def test_a_touching_but_strict_crossing_passes() -> None:
    assert find_crossing(lambda beta: (beta - 0.5) ** 3) == pytest.approx(0.5, abs=1e-10)


@given(st.floats(0.2, 0.6), st.floats(1e-6, 0.2))
def test_zero_on_an_interval_is_refused_however_narrow(left: float, width: float) -> None:
    """Strictness: the plateau may lie between two points of the grid."""

    def advantage(beta: float) -> float:
        return min(beta - left, 0.0) + max(beta - left - width, 0.0)

    with pytest.raises(CrossingError, match="advantage is zero from"):
        find_crossing(advantage)


@pytest.mark.parametrize(
    ("advantage", "message"),
    [
        (lambda beta: 0.3 - beta, "must be below 0 at 0 and above 0 at 1"),
        (lambda beta: beta + 0.1, "must be below 0 at 0"),
        (lambda beta: beta, "must be below 0 at 0"),
        (lambda beta: 0.0, "must be below 0 at 0"),
        (lambda beta: (beta - 0.2) * (beta - 0.5) * (beta - 0.8), "changes sign 3 times"),
        (lambda beta: -((beta - 0.3) ** 2), "must be below 0 at 0 and above 0 at 1"),
    ],
)
def test_without_a_single_crossing_there_is_no_threshold(advantage: Callable[[float], float], message: str) -> None:
    with pytest.raises(CrossingError, match=message):
        find_crossing(advantage)
