"""Protocol control: the regret bound on many draws and at its tight case, ties, and what cannot change a choice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.protocol import (
    Values,
    choose,
    protocol_value,
    regret,
    regret_bound,
    regret_draws,
    worst_case,
)

# Whole sixty-fourths are exact in binary, so sums keep their ties.
numbers = st.integers(-64, 64).map(lambda n: n / 64)
rows = st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=6).map(np.array)


@given(rows, st.data())
def test_regret_is_at_most_twice_the_errors(parts: np.ndarray, data: st.DataObject) -> None:
    gain, tax, cost, residual = parts.T
    sizes = data.draw(st.tuples(*[st.integers(0, 32).map(lambda n: n / 64)] * 3))
    off = [np.array(data.draw(st.lists(st.floats(-e, e), min_size=len(gain), max_size=len(gain)))) for e in sizes]
    prices = {"cost_price": 0.5, "residual_price": data.draw(st.sampled_from([0.0, 0.5, 2.0]))}
    true = protocol_value(gain, tax, cost, residual, **prices)
    estimated = protocol_value(gain + off[0], tax + off[1], cost, residual + off[2], **prices)
    lost = regret(Values(true, estimated))
    assert 0 <= lost <= regret_bound(*sizes, residual_price=prices["residual_price"]) + 1e-11


def test_ten_thousand_random_draws() -> None:
    draws = regret_draws(10_000, "test")
    assert (draws["regret"] >= 0).all() and (draws["regret"] <= draws["bound"] + 1e-11).all()
    share = (draws["regret"] / draws["bound"]).groupby(draws["errors"]).max()
    assert share["against"] > 0.95, "errors against the best action come near the bound"
    assert draws.head(50).equals(regret_draws(50, "test")), "a longer series starts with the shorter"


def test_the_bound_is_tight() -> None:
    values = worst_case(0.1)
    assert values.true.tolist() == pytest.approx([0.5, 0.3])
    assert (values.estimated - values.true).tolist() == pytest.approx([-0.1, 0.1], abs=1e-5)
    assert choose(values.estimated) == 1
    assert regret(values) == pytest.approx(0.2) == regret_bound(0.1, 0, 0, residual_price=0)
    assert regret(worst_case(0.1, nudge=-1e-6)) == 0, "a nudge less, and the better one is chosen"


@given(rows, numbers)
def test_a_constant_on_all_values_changes_no_choice(parts: np.ndarray, constant: float) -> None:
    assert choose(parts[:, 0] + constant) == choose(parts[:, 0])


@given(rows)
def test_the_first_of_equal_values_wins(parts: np.ndarray) -> None:
    values = parts[:, 0]
    assert choose(values) == values.tolist().index(values.max())
    assert choose([0.1 + 0.2, 0.3]) == 0 and choose([0.3, 0.1 + 0.2]) == 0, "digits beyond the twelfth break no tie"


@given(rows)
def test_a_very_high_price_picks_the_cheapest(parts: np.ndarray) -> None:
    gain, tax, cost, residual = parts.T
    values = protocol_value(gain, tax, cost, residual, cost_price=1e4, residual_price=0.5)
    assert cost[choose(values)] == cost.min()


def test_worked_value_and_refusal() -> None:
    value = protocol_value([0.5], [0.1], [100], [0.2], cost_price=1e-3, residual_price=0.5)
    assert value.tolist() == pytest.approx([0.5 - 0.1 - 0.1 - 0.1])
    assert regret_bound(0.1, 0.2, 0.3, residual_price=0.5) == pytest.approx(0.9)
    with pytest.raises(ValueError, match="residual_price must be >= 0"):
        protocol_value([0.5], [0.1], [1], [0.2], cost_price=0, residual_price=-1)
