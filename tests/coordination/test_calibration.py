"""Calibration: disjoint instances, an objective that moves, the exact search of an offset, ties."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.coordination.action_outcomes import ARM_OF_ACTION, action_outcomes, arm_outcomes, tool_table
from lib.coordination.actions import ACTIONS, Prices, with_table
from lib.coordination.arms import run_arms
from lib.coordination.calibration import TOKEN_PRICE, _best_offset, calibrate, judge, split_instances
from lib.coordination.scoring import score_records
from lib.coordination.selector import run_actions
from lib.coordination.survey import Settings, write_candidates
from lib.seeds import generator
from tests.coordination.exchanges import Listening
from tests.coordination.stored import outcomes_of, signals_of, world
from tests.coordination.sure import Sure, many_steps


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 0.99), st.integers(0, 99))
def test_calibration_and_judgement_share_no_instance(fraction: float, draw: int) -> None:
    signals, _ = SMALL
    inside, outside = split_instances(signals, fraction, draw)
    own, other = (set(zip(one["regime"], one["instance_id"], strict=True)) for one in (inside, outside))
    assert not own & other and own | other == set(zip(signals["regime"], signals["instance_id"], strict=True))
    assert {regime for regime, _ in own} == {regime for regime, _ in other} == {"a", "b"}
    assert len(inside) + len(outside) == len(signals)


SMALL = world(24, regimes=("a", "b"))


def test_a_split_is_named_and_a_larger_one_holds_the_smaller() -> None:
    signals, _ = SMALL
    first, again, more = (set(split_instances(signals, share, "x")[0]["instance_id"]) for share in (0.2, 0.2, 0.5))
    assert first == again and first < more
    assert first != set(split_instances(signals, 0.2, "y")[0]["instance_id"])
    with pytest.raises(ValueError, match="fraction must lie between 0 and 1"):
        split_instances(signals, 1.0)
    with pytest.raises(ValueError, match="has one instance"):
        split_instances(signals_of(np.zeros((2, 5))), 0.5)


def test_calibration_finds_who_needs_a_message() -> None:
    signals, outcomes = world()
    fixed = calibrate(signals, outcomes)
    judged = judge(with_table(signals, fixed.table), outcomes)
    chosen = judged.values(fixed.prices).argmax(1)
    assert [ACTIONS[place] for place in chosen] == ["skip", "compress"] * 60
    mean = np.mean([1 - TOKEN_PRICE * 100, 1 - TOKEN_PRICE * 228])
    assert fixed.utility == pytest.approx(mean), "no policy does better: both are right at the least tokens"
    assert len(fixed.instances) == 60 and fixed.table.local_accuracy == {"toy": 0.5}


def test_the_objective_moves_with_the_prices() -> None:
    """Where gains are noise, only a high price keeps the selector from sending."""
    rng = generator("noise")
    signals = signals_of(np.hstack([np.zeros((60, 1)), rng.uniform(0, 0.05, (60, 4))]))
    outcomes = outcomes_of(signals, {action: np.ones(60) for action in ACTIONS})
    fixed = calibrate(signals, outcomes, offsets=False)
    assert fixed.prices.cost == 1e-3 and fixed.utility == pytest.approx(1 - TOKEN_PRICE * 100)
    low = calibrate(signals, outcomes, offsets=False, cost_prices=(1e-5,))
    assert low.utility < fixed.utility


def test_ties_go_to_the_larger_cost_price_and_then_to_less_of_everything() -> None:
    signals, outcomes = world()
    fixed = calibrate(signals, outcomes, cost_prices=(1e-5, 1e-4), residual_prices=(0.3, 0.0))
    assert (fixed.prices.cost, fixed.prices.residual) == (1e-4, 0.0)
    again = calibrate(signals, outcomes, cost_prices=(1e-4, 1e-5), residual_prices=(0.0, 0.3))
    assert again == fixed, "the order of what is tried does not matter"
    one = outcomes[outcomes["action"] == "skip"]
    assert calibrate(signals, one).prices == Prices(cost=1e-3), "without a choice nothing is offset"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 4), st.sampled_from([-0.25, 0.0, 0.5]))
def test_the_search_of_one_offset_is_exact(seed: int, place: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-8, 9, (7, 5)) / 8
    utility = rng.integers(0, 2, (7, 5)) - rng.integers(0, 4, (7, 5)) / 8

    def mean(moved: float) -> float:
        shifted = values + (moved - offset) * (np.arange(5) == place)
        return float(utility[np.arange(7), shifted.round(12).argmax(1)].mean())

    found, best = _best_offset(values, offset, place, utility)
    assert mean(found) == pytest.approx(best)
    assert best >= max(mean(trial) for trial in np.arange(-4, 4, 1 / 8) + 1 / 16) - 1e-12


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 1000))
def test_offsets_never_lose_what_prices_alone_reach(seed: int) -> None:
    rng = np.random.default_rng(seed)
    signals = signals_of(np.hstack([np.zeros((20, 1)), rng.uniform(0, 1, (20, 4))]))
    outcomes = outcomes_of(signals, {action: rng.integers(0, 2, 20) for action in ACTIONS})
    plain, moved = (calibrate(signals, outcomes, offsets=one) for one in (False, True))
    assert moved.utility >= plain.utility
    assert moved.utility >= judge(signals, outcomes).utility.mean(0).max() - 1e-12, "one action always"


def test_the_table_is_made_of_calibration_steps_alone() -> None:
    signals, outcomes = world(24, regimes=("a", "b"))
    inside, outside = split_instances(signals, 0.5)
    fixed = calibrate(inside, outcomes, carry={"a": 0.5})
    others = outcomes["step_id"].isin(outside["step_id"]) & outcomes["regime"].isin(outside["regime"])
    flipped = outcomes.assign(hit=outcomes["hit"].where(~others, 1 - outcomes["hit"]))
    assert calibrate(inside, flipped, carry={"a": 0.5}) == fixed
    assert fixed.table.tax["a"]["skip"] == 0.5 and fixed.table.tax["a"]["raw"] == 0.0
    assert fixed.table.residual == {"a": {action: 0.25 if action != "raw" else 0.0 for action in ACTIONS}}


def test_a_better_action_pays_no_tax_and_a_missing_one_is_absent() -> None:
    rows = [("r", "skip", 1), ("r", "raw", 0), ("q", "skip", 1)]
    table = tool_table(pd.DataFrame(rows, columns=["regime", "action", "hit"]))
    assert table.tax == {"r": {"skip": 0.0, "raw": 0.0}} and table.local_accuracy == {"r": 1.0, "q": 1.0}
    with pytest.raises(ValueError, match=r"unknown actions \['send'\]"):
        tool_table(pd.DataFrame([("r", "send", 1)], columns=["regime", "action", "hit"]))


def test_outcomes_of_stored_arms_and_of_all_actions_agree() -> None:
    given_set = many_steps()
    receiver, sender = Sure(), Listening(name="sender")
    scored = score_records(
        run_arms(given_set.steps, receiver=receiver, sender=sender), given_set.gold, given_set.steps, snap=False
    )
    stored = arm_outcomes(scored).set_index(["action", "step_id"]).sort_index()
    candidates = write_candidates(sender, given_set.steps, Settings())
    runs = run_actions(given_set.steps, receiver=receiver, candidates=candidates)
    every = action_outcomes(runs, given_set.gold, given_set.steps, snap=False).set_index(["action", "step_id"])
    assert set(every.index.get_level_values(0)) == set(ACTIONS)
    pd.testing.assert_frame_equal(every.loc[list(ARM_OF_ACTION)].sort_index(), stored)
    assert stored.loc["raw", "hit"].eq(1).all() and stored.loc["skip", "hit"].eq(0).all()


def test_a_step_without_all_outcomes_is_dropped_and_counted() -> None:
    signals, outcomes = world(10)
    judged = judge(signals, outcomes.drop(index=outcomes.index[outcomes["action"] == "raw"][:3]))
    assert judged.dropped == 3 and len(judged.hit) == 7 == len(judged.signals) / 5
    null = outcomes.assign(tokens=outcomes["tokens"].where(outcomes["step_id"] != "i0/0"))
    assert judge(signals, null).dropped == 1, "unknown tokens are no zero"
    with pytest.raises(ValueError, match="no step of the signals has hit and tokens"):
        judge(signals, outcomes.iloc[:0])
    with pytest.raises(ValueError, match="stands twice"):
        judge(signals, pd.concat([outcomes, outcomes.tail(1)]))
    with pytest.raises(ValueError, match="name at least one of each"):
        calibrate(signals, outcomes, cost_prices=())
