"""What a selector is compared with: hindsight above all, chance with its mix, ablations, and the frontier."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.coordination.actions import ACTIONS, Prices, ToolTable
from lib.coordination.calibration import TOKEN_PRICE, Calibration, calibrate, judge, split_instances
from lib.coordination.references import calibration_sweep, per_step, policies, references
from tests.coordination.stored import outcomes_of, signals_of, world

FREE = Calibration(Prices(), ToolTable(), 0.0, ())


def judged_world(n: int = 120):  # type: ignore[no-untyped-def]
    signals, outcomes = world(n)
    inside, outside = split_instances(signals, 0.3)
    return outside, outcomes, calibrate(inside, outcomes)


def test_a_selector_that_knows_when_is_ahead_of_its_own_mix() -> None:
    table = references(*judged_world()).set_index("policy")
    one, chance = table.loc["selector"], table.loc["random, same mix"]
    shares = [f"share_{action}" for action in ACTIONS]
    assert chance[shares].tolist() == one[shares].tolist() and one["share_compress"] == 0.5
    assert one["accuracy"] == 1.0 and abs(chance["accuracy"] - 0.5) < 0.06 and chance["utility_sd"] > 0
    assert one["utility"] == pytest.approx(table.loc["oracle", "utility"])
    assert table.loc["always raw", "accuracy"] == 1.0 and table.loc["always raw", "utility"] < one["utility"]


def test_without_gain_nothing_speaks_for_a_message() -> None:
    signals, outcomes = world()
    table = references(signals, outcomes, FREE).set_index("policy")
    assert (
        table.loc["drop gain", "share_skip"] == 1.0
        and table.loc["drop residual", "accuracy"] == table.loc["selector", "accuracy"]
    )
    assert table.loc["drop cost", "tokens"] >= table.loc["selector", "tokens"]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000))
def test_hindsight_is_never_beaten_and_cannot_be_deployed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    signals = signals_of(np.hstack([np.zeros((16, 1)), rng.uniform(0, 1, (16, 4))]))
    outcomes = outcomes_of(signals, {action: rng.integers(0, 2, 16) for action in ACTIONS})
    table = references(signals, outcomes, FREE, draws=20).set_index("policy")
    assert (table["utility"] <= table.loc["oracle", "utility"] + 1e-12).all()
    assert table["oracle_only"].sum() == 1 and not table.loc["oracle", "on_frontier"]
    for _, row in table[table["on_frontier"]].iterrows():
        others = table[~table["oracle_only"]]
        better = (others["accuracy"] >= row["accuracy"]) & (others["tokens"] <= row["tokens"])
        better &= (others["accuracy"] > row["accuracy"]) | (others["tokens"] < row["tokens"])
        assert not better.any()
    assert table["on_frontier"].any()


def test_choosing_is_charged_to_those_who_probe() -> None:
    outside, outcomes, fixed = judged_world()
    overhead = {(step, action): 50.0 for step in outside["step_id"] for action in ACTIONS}
    table = references(outside, outcomes, fixed, overhead=overhead).set_index("policy")
    extra = (table["decision_tokens"] - table["tokens"]).round(9)
    assert (extra[["selector", "selector, no gate", "drop tax", "drop cost", "drop residual"]] == 50).all()
    assert (extra[["always skip", "always raw", "oracle", "random, same mix", "drop gain"]] == 0).all()
    assert table.loc["selector", "decision_utility"] == pytest.approx(
        table.loc["selector", "utility"] - 50 * TOKEN_PRICE
    )
    assert references(outside, outcomes, fixed)["decision_tokens"].isna().all(), "not measured is null"
    with pytest.raises(ValueError, match="has none for compress"):
        references(outside, outcomes, fixed, overhead={key: 1.0 for key in overhead if key[1] != "compress"})


def test_a_high_overhead_takes_the_selector_off_the_frontier() -> None:
    outside, outcomes, fixed = judged_world()
    cheap, dear = (
        references(
            outside, outcomes, fixed, overhead={(s, a): cost for s in outside["step_id"] for a in ACTIONS}
        ).set_index("policy")
        for cost in (1.0, 5000.0)
    )
    assert cheap.loc["selector", "on_frontier"] and not dear.loc["selector", "on_frontier"]


def test_the_gate_skips_a_regime_that_does_well_alone_and_pays_nothing_there() -> None:
    signals, outcomes = world(40, regimes=("a", "b"))
    fixed = Calibration(Prices(), ToolTable(local_accuracy={"a": 0.8, "b": 0.7}), 0.0, ())
    overhead = {(step, action): 40.0 for step in signals["step_id"] for action in ACTIONS}
    table = references(signals, outcomes, fixed, overhead=overhead).set_index("policy")
    extra = table["decision_tokens"] - table["tokens"]
    assert extra["selector"] == pytest.approx(20) and extra["selector, no gate"] == pytest.approx(40)
    assert table.loc["selector", "share_skip"] > table.loc["selector, no gate", "share_skip"]
    wide = references(signals, outcomes, fixed, overhead=overhead, gate=None).set_index("policy")
    assert wide.loc["selector", "decision_tokens"] == wide.loc["selector, no gate", "decision_tokens"]


def test_judging_on_calibration_instances_is_refused() -> None:
    signals, outcomes = world(24)
    with pytest.raises(ValueError, match="was calibrated on; judge on the others"):
        references(signals, outcomes, calibrate(signals, outcomes))


def test_only_actions_that_were_run_are_compared() -> None:
    signals, outcomes = world(24)
    three = outcomes[outcomes["action"].isin(["skip", "compress", "raw"])]
    table = references(signals, three, FREE)
    assert [name for name in table["policy"] if name.startswith("always")] == [
        "always skip",
        "always compress",
        "always raw",
    ]
    assert (table[["share_escalate", "share_refresh"]] == 0).all(axis=None)


def test_steps_of_a_policy() -> None:
    signals, outcomes = world(8)
    judged = judge(signals, outcomes)
    steps = per_step(judged, policies(judged, FREE)["always compress"])
    assert steps["hit"].tolist() == [0, 1] * 4 and (steps["tokens"] == 228).all()
    assert steps["instance_id"].tolist()[:3] == ["i0", "i0", "i1"]


def test_sweep_over_calibration_sizes() -> None:
    signals, outcomes = world(80)
    sweep = calibration_sweep(signals, outcomes, fractions=(0.1, 0.4), splits=4).set_index("fraction")
    assert sweep["instances"].tolist() == [4, 16] and (sweep["splits"] == 4).all()
    assert (
        sweep.loc[0.4, "accuracy_mean"] == 1 >= sweep.loc[0.1, "accuracy_mean"] and sweep.loc[0.4, "accuracy_sd"] == 0
    )
    assert (sweep["cost_share_mean"] < 1).all()
