"""The receiver with a known burden: its closed form, and the threshold between two senders."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.coordination.burden import MOST, burdened_step
from lib.coordination.crossing import find_crossing, sender_gap

shares = st.floats(0, 1)


@given(st.floats(0, MOST), shares, shares)
@settings(max_examples=40)
def test_risks_in_closed_form(burden: float, accuracy: float, distraction: float) -> None:
    step = burdened_step(burden, accuracy, distraction)
    unseen = 4 * burden / 3
    assert step.silent_best == pytest.approx(burden, abs=1e-12) and step.silent_deployed == pytest.approx(burden)
    best = unseen * min(1 - accuracy, 1 - (1 - accuracy) / 3)  # follow the message, or avoid what it says
    if accuracy >= 0.25:
        assert step.message_best == pytest.approx(best, abs=1e-12)
        assert step.gain == pytest.approx(burden - unseen * (1 - accuracy), abs=1e-12)
        assert step.tax == pytest.approx((1 - unseen) * distraction, abs=1e-12)
    assert step.utility == pytest.approx(step.gain - step.tax, abs=1e-12)


def test_the_threshold_between_two_senders() -> None:
    def advantage(burden: float) -> float:
        gain, tax = sender_gap(burdened_step(burden, 0.9, 0.3), burdened_step(burden, 0.6, 0.05))
        return gain - tax

    # unseen * 0.3 = (1 - unseen) * 0.25
    assert find_crossing(advantage, 0.0, MOST, grid=31) == pytest.approx(0.75 * 0.25 / 0.55, abs=1e-9)


def test_a_burden_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 0\.75, not 0\.8"):
        burdened_step(0.8, 0.9, 0.1)
