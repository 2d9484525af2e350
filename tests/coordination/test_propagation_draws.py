"""Intervals of a law over instances, its error on other instances, and what a law predicts for each run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lib.coordination.propagation import propagate
from lib.coordination.propagation_draws import held_out, predicted_runs, propagation_intervals
from lib.coordination.propagation_fit import fit_propagation
from lib.coordination.shared_state import residual_runs

G, D, K, STEPS = 0.7, 0.1, 0.4, 5


def scored(instances: int = 60, seed: int = 0) -> pd.DataFrame:
    """Episodes that miss as often as the law says."""
    rng = np.random.default_rng(seed)
    rows = []
    for run, start in (("control", 0.1), ("perturbed", 1.0), ("repaired", 1.0)):
        mended = [K if run == "repaired" and step == 1 else 0.0 for step in range(STEPS)]
        path = propagate(start, [G] * STEPS, [D] * STEPS, mended).residual
        for instance in range(instances):
            for step, risk in enumerate(path):
                rows.append((run, "fresh", f"i{instance}", step, float(rng.random() >= risk)))
    return pd.DataFrame(rows, columns=["run", "observation", "instance_id", "step_t", "hit_joint"])


MANY = scored()


def test_intervals_hold_the_law_that_made_the_episodes() -> None:
    table = propagation_intervals(MANY, "fresh", resamples=30).set_index("parameter")
    for name, true in (("carry", G), ("error", D), ("repair", K)):
        assert table.loc[name, "low"] - 0.05 <= true <= table.loc[name, "high"] + 0.05, name
        assert table.loc[name, "low"] <= table.loc[name, "estimate"] <= table.loc[name, "high"], name
    assert table["instances"].eq(60).all() and table["settled"].gt(0.9).all()
    fit = fit_propagation(residual_runs(MANY, "fresh"))
    assert table["estimate"].tolist() == pytest.approx([fit.carry, fit.error, fit.repair]), "the same residuals"
    few = propagation_intervals(scored(6), "fresh", resamples=30).set_index("parameter")
    width = {name: one.loc["carry", "high"] - one.loc["carry", "low"] for name, one in (("many", table), ("few", few))}
    assert width["few"] > width["many"], "fewer episodes say less"


def test_one_episode_has_no_interval() -> None:
    table = propagation_intervals(scored(1), "fresh", resamples=5)
    assert table["low"].isna().all() and table["settled"].isna().all()
    with pytest.raises(ValueError, match="at least two instances"):
        held_out(scored(1), "fresh")


def test_a_true_law_predicts_other_episodes_better_than_no_change() -> None:
    table = held_out(MANY, "fresh", folds=2).set_index("prediction")
    assert table.loc["law", "rmse"] < 0.15 < table.loc["start", "rmse"] and table["folds"].eq(2).all()
    assert table.loc["law", "rmse"] < 1.5 * table.loc["others", "rmse"]


def test_predicted_runs_start_where_they_were_measured() -> None:
    runs = residual_runs(MANY, "fresh")
    table = predicted_runs(runs, fit_propagation(runs))
    starts = table[table["step"] == 0]
    assert (starts["predicted"] == starts["residual"]).all() and len(table) == 3 * (STEPS + 1)
    assert (table["predicted"] - table["residual"]).abs().max() < 0.2
    unsettled = fit_propagation(runs[runs["run"] != "repaired"].assign(residual=0.0))
    if unsettled.carry is None:
        assert predicted_runs(runs, unsettled)["predicted"].isna().all()


def test_a_fit_nearby_finds_the_same_law() -> None:
    runs = residual_runs(MANY, "fresh")
    whole = fit_propagation(runs)
    near = fit_propagation(runs, near=fit_propagation(residual_runs(scored(seed=1), "fresh")))
    assert (near.carry, near.error, near.repair) == pytest.approx((whole.carry, whole.error, whole.repair), abs=1e-5)


def test_failed_calls_are_left_out_and_a_run_without_steps_is_refused() -> None:
    frame = MANY.copy()
    frame["hit_joint"] = frame["hit_joint"].astype("Float64")
    frame.loc[frame.index[::7], "hit_joint"] = None
    table = propagation_intervals(frame, "fresh", resamples=2)
    assert table["estimate"].notna().all()
    with pytest.raises(ValueError, match="every fresh run needs an outcome"):
        propagation_intervals(MANY[(MANY["run"] != "repaired") | (MANY["step_t"] < 3)], "fresh", resamples=2)
    with pytest.raises(ValueError, match="lacks the columns"):
        held_out(MANY.drop(columns="run"), "fresh")
