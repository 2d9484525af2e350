"""Cross-fitting: every step once, calibrated elsewhere; chance as a mean; what choosing costs; no outcome moves its own choice."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.coordination.actions import ACTIONS, Prices, with_table
from lib.coordination.calibration import TOKEN_PRICE, judge
from lib.coordination.crossfit import FIXED_PRICES, crossfit, instance_folds, price_table
from lib.coordination.references import CHANCE, charges, policies
from tests.coordination.stored import COSTS, outcomes_of, signals_of, world

SIGNALS, OUTCOMES = world(24, regimes=("a", "b"))


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 9), st.integers(0, 99))
def test_folds_keep_instances_whole_and_regimes_even(folds: int, draw: int) -> None:
    place = instance_folds(SIGNALS, folds, draw)
    assert SIGNALS.assign(fold=place).groupby(["regime", "instance_id"])["fold"].nunique().eq(1).all()
    sizes = SIGNALS.assign(fold=place).drop_duplicates(["regime", "instance_id"]).groupby(["regime", "fold"]).size()
    assert sizes.groupby("regime").agg(lambda own: own.max() - own.min()).le(1).all()
    assert set(place) == set(range(min(folds, 6)))


def test_folds_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        instance_folds(SIGNALS, 1)
    with pytest.raises(ValueError, match="has one instance"):
        instance_folds(signals_of(np.zeros((2, 5))), 2)


def test_every_policy_is_judged_once_at_every_step_by_what_other_instances_fixed() -> None:
    found = crossfit(SIGNALS, OUTCOMES, folds=4)
    keys = set(SIGNALS["step_id"])
    for _, own in found.steps.groupby("policy"):
        assert len(own) == len(keys) and set(own["step_id"]) == keys
    for fold, calibration in enumerate(found.calibrations):
        own = found.steps[found.steps["fold"] == fold]
        assert not set(zip(own["regime"], own["instance_id"], strict=True)) & set(calibration.instances)
    assert set(FIXED_PRICES) < set(found.steps["policy"]) and found.dropped == 0
    table = price_table(found.calibrations)
    assert table["fold"].tolist() == [0, 1, 2, 3] and table["instances"].between(8, 10).all()


def test_the_selector_finds_who_needs_a_message_on_instances_it_never_saw() -> None:
    means = crossfit(SIGNALS, OUTCOMES, folds=4).steps.groupby("policy")[["hit", "utility"]].mean()
    assert means.loc["selector", "hit"] == 1.0 and means.loc[CHANCE, "hit"] == pytest.approx(0.5)
    assert means.loc["selector", "utility"] == pytest.approx(means.loc["oracle", "utility"])


def test_chance_is_what_random_steps_get_on_average() -> None:
    found = crossfit(SIGNALS, OUTCOMES, folds=2)
    rng = np.random.default_rng(0)
    for fold, calibration in enumerate(found.calibrations):
        own = found.steps[found.steps["fold"] == fold]
        mine = SIGNALS[SIGNALS["step_id"].isin(own["step_id"])].reset_index(drop=True)
        judged = judge(with_table(mine, calibration.table), OUTCOMES)
        selected = policies(judged, calibration)["selector"]
        at = np.arange(len(selected))
        mixes = [rng.permutation(selected) for _ in range(3000)]
        drawn = np.array([(judged.hit[at, one].mean(), judged.tokens[at, one].mean()) for one in mixes])
        chance = own[own["policy"] == CHANCE]
        assert chance[["hit", "tokens"]].mean().to_numpy() == pytest.approx(drawn.mean(0), rel=0.02)
        assert chance["action"].isna().all()


def test_choosing_is_charged_to_those_who_choose_and_not_behind_the_gate() -> None:
    overhead = {(step, action): 50.0 for step in SIGNALS["step_id"] for action in ACTIONS}
    steps = crossfit(SIGNALS, OUTCOMES, folds=2, overhead=overhead, gate=None).steps
    paid = (steps["decision_tokens"] - steps["tokens"]).groupby(steps["policy"]).mean()
    probing = {"selector", "selector, no gate", "drop tax", "drop cost", "drop residual", *FIXED_PRICES}
    assert {name for name, extra in paid.items() if extra == 50.0} == probing and (paid[~paid.isin([50.0])] == 0).all()
    gap = steps["utility"] - steps["decision_utility"]
    assert gap.to_numpy() == pytest.approx(TOKEN_PRICE * (steps["decision_tokens"] - steps["tokens"]).to_numpy())
    closed = crossfit(SIGNALS, OUTCOMES, folds=2, overhead=overhead, gate=0.5).steps.set_index("policy")
    assert closed.loc["selector", "action"].eq("skip").all() and closed.loc["selector", "decision_tokens"].eq(100).all()
    assert closed.loc["default prices", "action"].eq("skip").all()
    assert closed.loc["selector, no gate", "decision_tokens"].gt(100).any()
    free = crossfit(SIGNALS, OUTCOMES, folds=2).steps
    assert free["decision_tokens"].isna().all(), "unknown is null, not free"


def test_an_outcome_never_moves_the_choice_at_its_own_instance() -> None:
    before = crossfit(SIGNALS, OUTCOMES, folds=4)
    fold = before.steps["fold"].eq(0)
    judged = set(before.steps.loc[fold, "step_id"])
    other = OUTCOMES.assign(hit=OUTCOMES["hit"].where(~OUTCOMES["step_id"].isin(judged), 1 - OUTCOMES["hit"]))
    after = crossfit(SIGNALS, other, folds=4)
    deployable = fold & ~before.steps["oracle_only"]
    columns = ["policy", "step_id", "action", "tokens"]
    pd.testing.assert_frame_equal(before.steps.loc[deployable, columns], after.steps.loc[deployable, columns])
    assert not before.steps.loc[deployable, "hit"].equals(after.steps.loc[deployable, "hit"]), (
        "the outcomes were others"
    )


def test_fixed_prices_choose_by_these_prices() -> None:
    dear = crossfit(SIGNALS, OUTCOMES, folds=2, gate=None, fixed={"dear": Prices(cost=10.0)}).steps
    assert dear[dear["policy"] == "dear"]["action"].eq("skip").all()


def test_an_action_that_was_run_nowhere_is_nobodys() -> None:
    three = OUTCOMES[OUTCOMES["action"].isin(["skip", "compress", "raw"])]
    steps = crossfit(SIGNALS, three, folds=2).steps
    assert set(steps["action"].dropna()) <= {"skip", "compress", "raw"} and steps["hit"].notna().all()
    assert "always escalate" not in set(steps["policy"])


def test_charges_need_a_number_for_every_action_that_can_be_chosen() -> None:
    signals = signals_of(np.zeros((4, 5)))
    outcomes = outcomes_of(signals, {"skip": [1, 0, 1, 0]})
    judged = judge(signals, outcomes)
    calibration = crossfit(signals, outcomes, folds=2).calibrations[0]
    free = {(step, "skip"): 7.0 for step in signals["step_id"]}
    found = charges(judged, calibration, ["selector", "always skip"], overhead=free, gate=None)  # type: ignore[arg-type]
    assert found["selector"][:, 0].tolist() == [7.0] * 4 and found["always skip"][:, 0].tolist() == [0.0] * 4
    with pytest.raises(ValueError, match="has none for skip"):
        charges(judged, calibration, ["selector"], overhead={}, gate=None)
    assert COSTS["skip"] == 100.0
