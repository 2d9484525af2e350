"""Receivers beside each other: rank agreement by drawn tasks, the matrix of predictors, and what being one's own is worth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lib.evaluation.summary import paired_table
from lib.evaluation.transfer_summary import (
    _weighted_spearman,
    agreement_table,
    own_advantage,
    rank_agreement,
    transfer_table,
)

NAMES = ("a", "b", "c")


def rows(n: int = 60, tasks: int = 12) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    first = rng.integers(-2, 3, n) / 4
    second = np.where(rng.random(n) < 0.6, first, rng.integers(-2, 3, n) / 4)
    task = [f"t{k % tasks}" for k in range(n)]
    return pd.DataFrame({"task_id": task, "rce_first": first, "rce_second": second})


def matrix(gain: dict[tuple[str, str], float], names: tuple[str, ...] = NAMES, tasks: int = 6) -> pd.DataFrame:
    """Return results in which the predictor of `a` earns b gain[a, b], and semantic 0.25, beside a task's own level."""
    found = []
    for seed, task in itertools.product((0, 1), range(tasks)):
        level = task / 20
        for target in names:
            base = {"workload": "w", "seed": seed, "task_id": f"t{task}", "answered_by": target}
            found.append({**base, "trained_on": None, "policy": "semantic", "task_utility": 0.25 + level})
            found.append({**base, "trained_on": None, "policy": "full", "task_utility": 0.9})
            for source in names:
                value = gain[source, target] + level
                found.append({**base, "trained_on": source, "policy": "causal", "task_utility": value})
    return pd.DataFrame(found)


# ------------------------------------------------------------------------------------------------------------------- agreement


@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2), st.integers(0, 3)), min_size=1, max_size=9).filter(
        lambda cells: any(weight for *_, weight in cells)
    ),
)
def test_a_weight_is_that_many_rows(cells: list[tuple[int, int, int]]) -> None:
    a, b, weights = (np.array(side, dtype=float) for side in zip(*cells, strict=True))
    told = _weighted_spearman(a, b, np.stack([weights, np.ones(len(a))]))
    for drawn, found in zip((weights.astype(int), np.ones(len(a), int)), told, strict=True):
        one, other = np.repeat(a, drawn), np.repeat(b, drawn)
        constant = len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0
        expected = math.nan if constant else stats.spearmanr(one, other).statistic
        assert found == pytest.approx(expected, nan_ok=True)


def test_the_interval_resamples_whole_tasks() -> None:
    frame = rows()
    found = rank_agreement(frame["rce_first"], frame["rce_second"], frame["task_id"], resamples=4_000)
    assert found.estimate == pytest.approx(stats.spearmanr(frame["rce_first"], frame["rce_second"]).statistic)
    assert found.low < found.estimate < found.high and (found.n_rows, found.n_clusters) == (60, 12)
    rng = np.random.default_rng(1)
    groups = [group for _, group in frame.groupby("task_id")]
    draws = []
    for _ in range(1_000):
        drawn = pd.concat([groups[k] for k in rng.integers(0, len(groups), len(groups))])
        draws.append(stats.spearmanr(drawn["rce_first"], drawn["rce_second"]).statistic)
    assert (found.low, found.high) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.04)


def test_copies_of_a_task_s_rows_do_not_narrow_the_interval() -> None:
    frame = rows()
    doubled = pd.concat([frame, frame])
    once, twice = (
        rank_agreement(one["rce_first"], one["rce_second"], one["task_id"], resamples=2_000) for one in (frame, doubled)
    )
    assert (once.low, once.high) == pytest.approx((twice.low, twice.high), abs=1e-9)


def test_unknown_agreement_is_nan_and_one_task_has_no_interval() -> None:
    constant = rank_agreement([0.0, 0.0, 0.0], [0.1, 0.2, 0.3], ["t", "t", "u"], resamples=100)
    assert math.isnan(constant.estimate) and math.isnan(constant.low)
    single = rank_agreement([0.1, 0.2, 0.3], [0.1, 0.2, 0.3], ["t"] * 3, resamples=100)
    assert single.estimate == 1 and math.isnan(single.low) and math.isnan(single.high)
    noise = rank_agreement([0.1, 0.1 + 1e-15], [0.2, 0.3], ["t", "u"], resamples=100)
    assert math.isnan(noise.estimate), "differences of rounding size are ties"


def test_missing_values_and_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="missing or infinite"):
        rank_agreement([0.1, math.nan], [0.1, 0.2], ["t", "u"])
    with pytest.raises(ValueError, match="2 values for 1 task ids"):
        rank_agreement([0.1, 0.2], [0.1, 0.2], ["t"])


def test_agreement_by_group_leaves_out_unmeasured_packets() -> None:
    frame = pd.concat(
        [
            rows().assign(workload="w", first="a", second="b"),
            rows().assign(workload="w", first="a", second="c", rce_second=lambda one: one["rce_first"]),
        ]
    )
    frame.iloc[0, frame.columns.get_loc("rce_second")] = math.nan
    table = agreement_table(frame, resamples=200).set_index("second")
    assert table.loc["b", "packets"] == 59 and table.loc["c", "correlation"] == pytest.approx(1)
    assert table.loc["c", "within_tasks"] == pytest.approx(1) and table.loc["c", "low"] == pytest.approx(1)
    one = frame[frame["second"] == "b"].dropna()
    inside = [
        stats.spearmanr(group["rce_first"], group["rce_second"]).statistic
        for _, group in one.groupby("task_id")
        if group["rce_first"].nunique() > 1 and group["rce_second"].nunique() > 1
    ]
    assert table.loc["b", "within_tasks"] == pytest.approx(np.mean(inside))
    assert agreement_table(frame.iloc[:0]).empty


# ---------------------------------------------------------------------------------------------------------------------- matrix


GAIN = {(a, b): 0.5 + 0.1 * (a == b) + 0.02 * NAMES.index(a) for a in NAMES for b in NAMES}


def test_a_worked_matrix() -> None:
    table = transfer_table(matrix(GAIN), resamples=100).set_index(["trained_on", "answered_by"])
    assert len(table) == 9 and (table["tasks"] == 6).all()
    for source, target in itertools.product(NAMES, NAMES):
        cell = table.loc[(source, target)]
        assert cell["mean"] == pytest.approx(GAIN[source, target] + 0.125) and cell["sd"] == pytest.approx(0)
        assert cell["over_semantic"] == pytest.approx(GAIN[source, target] - 0.25)
        if source == target:
            assert cell[["difference", "low", "high", "p", "p_holm"]].isna().all()
        else:
            assert cell["difference"] == pytest.approx(GAIN[source, target] - GAIN[target, target])
            assert cell["low"] <= cell["difference"] + 1e-12 and cell["difference"] <= cell["high"] + 1e-12
    lent = table.dropna(subset=["p"])
    assert (lent["p_holm"] >= lent["p"]).all() and lent["p_holm"].iloc[0] == pytest.approx(6 * lent["p"].iloc[0])


def test_cells_are_paired_contrasts_on_the_same_tasks() -> None:
    rng = np.random.default_rng(0)
    frame = matrix(GAIN)
    frame["task_utility"] = rng.random(len(frame))
    frame.loc[5, "task_utility"] = math.nan  # asked, and worth nothing
    table = transfer_table(frame, resamples=300).set_index(["trained_on", "answered_by"])
    arms = frame[(frame["answered_by"] == "b") & (frame["policy"] == "causal")]
    known = paired_table(arms, "a", "b", values=["task_utility"], policy="trained_on", resamples=300).iloc[0]
    columns = ["difference", "low", "high", "p"]
    assert table.loc[("a", "b"), columns].tolist() == pytest.approx(known[columns].tolist())


def test_several_workloads_keep_their_rows() -> None:
    worse = {key: value - 0.3 for key, value in GAIN.items()}
    frame = pd.concat([matrix(GAIN), matrix(worse).assign(workload="v")], ignore_index=True)
    table = transfer_table(frame, resamples=100)
    assert len(table) == 18
    for name, shift in (("w", 0.0), ("v", 0.3)):
        own = table[(table["workload"] == name) & (table["trained_on"] == "b") & (table["answered_by"] == "a")].iloc[0]
        assert own["over_semantic"] == pytest.approx(GAIN["b", "a"] - shift - 0.25)
        assert own["difference"] == pytest.approx(GAIN["b", "a"] - GAIN["a", "a"])


# -------------------------------------------------------------------------------------------------------------- own advantage


@settings(max_examples=6)
@given(st.lists(st.floats(0, 0.3), min_size=6, max_size=6))
def test_a_better_predictor_and_a_better_receiver_cancel(effects: list[float]) -> None:
    """Utilities that are a sum of who taught and who answers leave nothing for being one's own."""
    gain = {(a, b): effects[NAMES.index(a)] + effects[3 + NAMES.index(b)] for a in NAMES for b in NAMES}
    told = own_advantage(matrix(gain, tasks=3), resamples=100).iloc[0]
    assert (told["difference"], told["low"], told["high"]) == (0, 0, 0), "rounding errors are no sign"
    assert told["p"] == 1


def test_the_advantage_of_one_s_own_is_found_with_its_interval() -> None:
    told = own_advantage(matrix(GAIN), resamples=100).iloc[0]
    assert told[["difference", "low", "high"]].tolist() == pytest.approx([0.1] * 3)
    assert told["p"] == 2 / 2**6 and told["tasks"] == 6 and told["pairs"] == 6 * 2 * 6


def test_holm_runs_over_the_workloads() -> None:
    frame = pd.concat([matrix(GAIN).assign(workload=name) for name in "xyz"], ignore_index=True)
    table = own_advantage(frame, resamples=100)
    assert table["p_holm"].tolist() == pytest.approx([3 * 2 / 2**6] * 3)


def test_a_single_receiver_has_nothing_to_borrow() -> None:
    with pytest.raises(ValueError, match=r"there is only \['a'\]"):
        own_advantage(matrix(GAIN, names=("a",)))
    assert len(transfer_table(matrix(GAIN, names=("a",)), resamples=100)) == 1


def test_missing_columns_are_named() -> None:
    with pytest.raises(ValueError, match="trained_on"):
        transfer_table(matrix(GAIN).drop(columns="trained_on"))
    with pytest.raises(ValueError, match="rce_second"):
        agreement_table(rows().assign(workload="w", first="a", second="b").drop(columns="rce_second"))
