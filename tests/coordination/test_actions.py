"""Values of actions: the parts, ties, what cannot be measured, and what changes no choice."""

from __future__ import annotations

import doctest

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination import actions as module
from lib.coordination.actions import (
    ACTIONS,
    TERMS,
    Prices,
    ToolTable,
    action_signals,
    action_values,
    chosen_actions,
    expected_cost,
    signal_parts,
    steps_left,
    with_table,
)
from tests.coordination.strategies import generators
from tests.coordination.sure import many_steps

# Whole sixty-fourths are exact in binary, so sums keep their ties.
numbers = st.integers(-64, 64).map(lambda n: n / 64)
tables = generators.map(lambda rng: dict(zip(TERMS, rng.integers(-64, 65, (4, 3, 5)) / 64, strict=True)))
prices = st.builds(Prices, st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0.0, 0.5]))


@given(tables, prices, numbers)
def test_a_constant_on_all_values_changes_no_choice(
    parts: dict[str, np.ndarray], fixed: Prices, constant: float
) -> None:
    values = action_values(parts, fixed)
    assert chosen_actions(values + constant) == chosen_actions(values)
    every = Prices(fixed.cost, fixed.residual, dict.fromkeys(ACTIONS, constant))
    assert chosen_actions(action_values(parts, every)) == chosen_actions(values)


@given(tables)
def test_a_very_high_price_picks_the_cheapest(parts: dict[str, np.ndarray]) -> None:
    chosen = chosen_actions(action_values(parts, Prices(cost=1e6)))
    for row, action in zip(parts["cost"], chosen, strict=True):
        assert row[ACTIONS.index(action)] == row.min()


@given(tables, prices)
def test_the_first_of_equally_good_actions_wins(parts: dict[str, np.ndarray], fixed: Prices) -> None:
    values = action_values(parts, fixed)
    assert [row.tolist().index(row.max()) for row in values] == [ACTIONS.index(one) for one in chosen_actions(values)]
    assert chosen_actions(np.zeros((1, 5))) == ["skip"]
    assert chosen_actions(np.array([[0, 0.1 + 0.2, 0.3, 0, 0]])) == ["compress"], (
        "digits beyond the twelfth break no tie"
    )


@given(tables, prices, st.sampled_from(TERMS))
def test_a_dropped_term_cannot_matter(parts: dict[str, np.ndarray], fixed: Prices, term: str) -> None:
    other = parts | {term: parts[term][:, ::-1] * 3}
    assert (action_values(parts, fixed, (term,)) == action_values(other, fixed, (term,))).all()  # type: ignore[arg-type]


@given(tables, prices, st.integers(0, 4))
def test_an_action_without_a_measured_gain_is_never_taken(
    parts: dict[str, np.ndarray], fixed: Prices, place: int
) -> None:
    parts["gain"][:, place] = np.nan
    assert ACTIONS[place] not in chosen_actions(action_values(parts, fixed))


def test_signals_of_steps() -> None:
    steps = many_steps(1, 2).steps
    costs = {step.id: expected_cost(10, 100, 8) for step in steps}
    table = ToolTable({"toy": {"compress": 0.25}}, {"toy": {"raw": 0.5}})
    frame = action_signals(steps, {(steps[0].id, "raw"): 1.5}, costs, table)
    parts = signal_parts(frame)
    assert (
        parts["gain"][0].tolist()[:1] == [0.0] and parts["gain"][0, 2] == 1.5 and np.isnan(parts["gain"][1, 1:]).all()
    )
    assert parts["tax"].tolist() == [[0, 0.25, 0, 0, 0]] * 2
    assert parts["residual"].tolist() == [[0, 0, 0.5, 0, 0], [0] * 5], "the last step leaves nothing to later ones"
    assert parts["cost"][0].tolist() == [10, 18, 110, 36, 27]
    assert steps_left(steps) == {"i0/0": 2, "i0/1": 1}
    assert (signal_parts(with_table(frame, ToolTable()))["tax"] == 0).all()
    assert table.missing(["toy"])[0] == ("toy", "skip") and len(table.missing(["toy", "new"])) == 9


def test_what_is_not_a_signals_frame_is_refused() -> None:
    steps = many_steps(1, 1).steps
    frame = action_signals(steps, {}, {steps[0].id: expected_cost(1, 1, 1)}, ToolTable())
    with pytest.raises(ValueError, match="one row for each of skip, compress"):
        signal_parts(frame.iloc[::-1])
    with pytest.raises(ValueError, match=r"signals lacks the columns \['gain'\]"):
        signal_parts(frame.drop(columns="gain"))
    with pytest.raises(ValueError, match="are no terms; known: gain, tax"):
        action_values(signal_parts(frame), Prices(), ("price",))  # type: ignore[arg-type]
    assert set(frame.columns) & {"hit", "gold", "tokens"} == set() and isinstance(frame, pd.DataFrame)


def test_examples() -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
