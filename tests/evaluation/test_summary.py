"""Summaries: headline means with coverage, seeds, savings both ways, utility per KiB, paired contrasts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib.evaluation.summary import (
    headline,
    main_table,
    over_seeds,
    paired_differences,
    paired_table,
    savings,
    seed_means,
    utility_per_kib,
)

PUBLISHED = Path(__file__).parents[2] / "data" / "published"


def published_table1() -> pd.DataFrame:
    return pd.read_csv(PUBLISHED / "bandmas_table1.csv")


def frame() -> pd.DataFrame:
    """Two seeds of two tasks under two policies; one failed reply, one evidence score that does not apply."""
    rows = [
        ("full", 0, "t1", 1.0, 0.5, 1000, 10.0),
        ("full", 0, "t2", 0.0, 0.5, 3000, 20.0),
        ("full", 1, "t1", 1.0, 1.0, 1000, 10.0),
        ("full", 1, "t3", 1.0, 0.0, 500, 10.0),
        ("causal", 0, "t1", 1.0, 1.0, 500, 5.0),
        ("causal", 0, "t2", None, None, 600, None),
        ("causal", 1, "t1", 1.0, None, 400, 5.0),
        ("causal", 1, "t3", 0.5, 0.5, 250, 5.0),
    ]
    names = ["policy", "seed", "task_id", "task_utility", "evidence_utility", "bytes", "latency_ms"]
    return pd.DataFrame(rows, columns=names).assign(workload="worlds")


def test_case_13_errors_stay_in_the_denominator() -> None:
    """Case 13: 100 items, 10 raise, 80 right: 80/100, coverage 90/100."""
    line = headline([1.0] * 80 + [0.0] * 10 + [None] * 10)
    assert (line.mean, line.coverage, line.asked, line.answered) == (0.8, 0.9, 100, 90)
    assert line.mean_answered == pytest.approx(80 / 90)
    nothing = headline([])
    assert all(math.isnan(value) for value in (nothing.mean, nothing.coverage, nothing.mean_answered))
    assert headline([None, None]).mean == 0.0


def test_means_within_seeds_count_failures_but_not_what_does_not_apply() -> None:
    table = seed_means(frame(), ["policy"]).set_index(["policy", "seed"])
    failed = table.loc[("causal", 0)]
    assert (failed["task_utility"], failed["task_utility_coverage"]) == (0.5, 0.5)
    assert (failed["evidence_utility"], failed["evidence_utility_coverage"]) == (0.5, 0.5)
    inapplicable = table.loc[("causal", 1)]
    assert (inapplicable["evidence_utility"], inapplicable["evidence_utility_coverage"]) == (0.5, 1.0)
    assert (failed["latency_ms"], failed["latency_ms_coverage"], failed["n"]) == (5.0, 0.5, 2)


def test_over_seeds_is_mean_and_sample_sd() -> None:
    per_seed = pd.DataFrame({"policy": ["a"] * 3 + ["b"], "seed": [0, 1, 2, 0], "x": [1.0, 2.0, 4.0, 5.0]})
    table = over_seeds(per_seed, ["policy"], ["x"]).set_index("policy")
    assert table.loc["a", ["seeds", "x_mean", "x_sd"]].tolist() == pytest.approx([3, 7 / 3, np.std([1, 2, 4], ddof=1)])
    assert math.isnan(table.loc["b", "x_sd"])
    with pytest.raises(ValueError, match="two rows"):
        over_seeds(pd.concat([per_seed, per_seed]), ["policy"], ["x"])


def test_both_savings_by_hand() -> None:
    table = savings(frame()).set_index(["policy", "seed"])
    assert table.loc[("causal", 0), ["saving_of_tasks", "saving_of_means", "n"]].tolist() == pytest.approx(
        [0.65, 1 - 1100 / 4000, 2]
    )
    assert table.loc[("full", 1), ["saving_of_tasks", "saving_of_means"]].tolist() == [0.0, 0.0]


def test_tasks_without_traffic_have_no_saving() -> None:
    silent = frame().assign(bytes=lambda f: f["bytes"].where(f["task_id"] != "t2", 0))
    assert savings(silent).set_index(["policy", "seed"]).loc[("causal", 0), ["saving_of_tasks", "n"]].tolist() == [
        0.5,
        1,
    ]


def test_savings_need_full_on_the_same_tasks() -> None:
    lacking = frame()[lambda f: ~((f["policy"] == "full") & (f["task_id"] == "t3"))]
    with pytest.raises(ValueError, match="no 'full' row with bytes for .*'t3'"):
        savings(lacking)
    doubled = pd.concat([frame(), frame().head(1)])
    with pytest.raises(pd.errors.MergeError):
        savings(doubled)


@pytest.mark.parametrize(
    ("benchmark", "ratio", "sd"),
    [("SciFact", 1.7008, 0.1110), ("HotpotQA", 0.2976, 0.0216), ("FanOutQA", 0.1181, 0.0237)],
)
def test_figure_3_worked_values(benchmark: str, ratio: float, sd: float) -> None:
    """Spec 8: ratios and propagated deviations from the published table; 0: the figure's own values come from unrounded means."""
    table = published_table1().set_index(["benchmark", "policy"])
    row = table.loc[(benchmark, "causal")]
    got = utility_per_kib(row["task_utility_mean"], row["task_utility_sd"], row["bytes_mean"], row["bytes_sd"])
    assert got == (pytest.approx(ratio, abs=5e-5), pytest.approx(sd, abs=5e-5))
    figure = pd.read_csv(PUBLISHED / "bandmas_figure3.csv").set_index("benchmark")
    assert figure.loc[benchmark, "utility_per_kib"] == pytest.approx(ratio, abs=6e-4 + 5e-4)


def test_utility_per_kib_edges() -> None:
    assert utility_per_kib(0.0, 0.01, 1024.0, 5.0) == (0.0, pytest.approx(0.01))
    assert all(math.isnan(value) for value in utility_per_kib(0.5, 0.1, 0.0, 0.0))
    assert math.isnan(utility_per_kib(0.5, math.nan, 10.0, 1.0)[1])


def test_published_savings_are_between_both_readings_or_near_them() -> None:
    """Spec 0, F1: the ratio of means gives 62.8, 62.7, 56.0 on three SciFact rows that report about one point more, and meets the rest."""
    table = published_table1().set_index(["benchmark", "policy"])
    full = table.xs("full", level="policy")["bytes_mean"]
    of_means = (100 * (1 - table["bytes_mean"] / full)).drop("full", level="policy").round(1)
    assert of_means["SciFact"].to_dict() == {
        "agentprune": 62.4,
        "safesieve": 61.5,
        "semantic": 56.0,
        "hybrid": 62.7,
        "causal": 62.8,
    }
    gap = table["saving_percent"] - of_means
    assert gap.drop("SciFact").abs().max() <= 0.2 + 1e-9
    assert gap["SciFact"][["semantic", "hybrid", "causal"]].between(0.8, 1.5).all()


def test_main_table_holds_every_policy_once() -> None:
    table = main_table(frame()).set_index("policy")
    assert table.index.tolist() == ["full", "causal"]
    causal = table.loc["causal"]
    assert causal["items"] == 4
    assert causal["seeds"] == 2
    assert causal["task_utility_mean"] == pytest.approx((0.5 + 0.75) / 2)
    assert causal["task_utility_sd"] == pytest.approx(np.std([0.5, 0.75], ddof=1))
    assert causal["task_utility_coverage"] == 0.5
    assert causal["saving_of_tasks_mean"] == pytest.approx((0.65 + 0.55) / 2)
    assert causal["bytes_mean"] == pytest.approx((550 + 325) / 2)
    expected = utility_per_kib(0.625, np.std([0.5, 0.75], ddof=1), 437.5, np.std([550, 325], ddof=1))
    assert (causal["utility_per_kib"], causal["utility_per_kib_sd"]) == pytest.approx(expected)
    assert table.loc["full", "saving_of_means_mean"] == 0.0


def test_every_cap_is_compared_with_the_one_full_row() -> None:
    causal = frame().query("policy == 'causal'")
    swept = pd.concat(
        [
            frame().query("policy == 'full'").assign(beta=1.0),
            causal.assign(beta=0.5),
            causal.assign(beta=0.25, bytes=causal["bytes"] / 2),
        ]
    )
    table = main_table(swept, ["workload", "policy", "beta"]).set_index(["policy", "beta"])
    assert table.index.tolist() == [("full", 1.0), ("causal", 0.5), ("causal", 0.25)]
    assert table.loc[("causal", 0.5), "saving_of_tasks_mean"] == pytest.approx(0.6)
    assert table.loc[("causal", 0.25), "saving_of_tasks_mean"] == pytest.approx(0.8)
    assert table.loc[("full", 1.0), "saving_of_tasks_mean"] == 0.0


def test_missing_columns_are_named() -> None:
    with pytest.raises(ValueError, match=r"lacks the columns \['bytes'\]"):
        main_table(frame().drop(columns="bytes"))


def test_paired_differences_match_units_and_count_failures_as_zero() -> None:
    pairs = paired_differences(frame(), "task_utility", "causal", "full")
    assert pairs[["seed", "task_id", "difference"]].to_numpy().tolist() == [
        [0, "t1", 0.0],
        [0, "t2", 0.0],
        [1, "t1", 0.0],
        [1, "t3", -0.5],
    ]
    latency = paired_differences(frame(), "latency_ms", "causal", "full", missing="drop")
    assert latency["difference"].tolist() == [-5.0, -5.0, -5.0]


def test_pairs_whose_value_does_not_apply_are_dropped() -> None:
    pairs = paired_differences(frame(), "evidence_utility", "causal", "full", answered="task_utility")
    assert pairs[["seed", "task_id"]].to_numpy().tolist() == [[0, "t1"], [0, "t2"], [1, "t3"]]
    assert pairs["difference"].tolist() == [0.5, -0.5, 0.5]


def test_unpaired_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of .* ran under one policy only"):
        paired_differences(frame().iloc[:-1], "task_utility", "causal", "full")
    with pytest.raises(ValueError, match="two rows"):
        paired_differences(pd.concat([frame(), frame().tail(1)]), "task_utility", "causal", "full")
    with pytest.raises(ValueError, match="no rows of policy 'hybrid'"):
        paired_differences(frame(), "task_utility", "hybrid", "full")


def test_case_48_paired_table_of_a_constant_shift_has_no_width() -> None:
    """Case 48: causal = full + .1 on every task; repeats over seeds are averaged within tasks (case 50)."""
    tasks = [f"t{i}" for i in range(20)]
    base = pd.DataFrame({"task_id": tasks * 2, "seed": [0] * 20 + [1] * 20, "policy": "full", "workload": "w"})
    base["task_utility"] = np.linspace(0, 0.9, 40)
    shifted = base.assign(policy="causal", task_utility=base["task_utility"] + 0.1)
    row = paired_table(pd.concat([base, shifted]), "causal", "full", values=["task_utility"]).iloc[0]
    assert [row["difference"], row["low"], row["high"]] == pytest.approx([0.1] * 3)
    assert (row["tasks"], row["pairs"], row["exact"]) == (20, 40, False)
    assert row["p"] == pytest.approx(1 / 20_001, abs=2e-4)


def test_paired_table_adjusts_over_all_its_rows() -> None:
    rng = np.random.default_rng(1)
    parts = []
    for workload in ("a", "b", "c"):
        for policy, shift in (("causal", 0.3), ("semantic", 0.0)):
            noise = rng.normal(shift, 0.2, size=(12, 2))
            parts.append(
                pd.DataFrame(noise, columns=["task_utility", "evidence_utility"]).assign(
                    workload=workload, policy=policy, seed=0, task_id=[f"t{i}" for i in range(12)]
                )
            )
    table = paired_table(pd.concat(parts), "causal", "semantic", resamples=500)
    assert len(table) == 6
    assert (table["p_holm"] >= table["p"]).all()
    smallest = table["p"].idxmin()
    assert table.loc[smallest, "p_holm"] == pytest.approx(min(1, 6 * table["p"].min()))
    assert table["exact"].all()
    assert ((table["low"] < table["difference"]) & (table["difference"] < table["high"])).all()
    assert (table["effect"] > 0.5).all()


def test_published_files_name_their_source() -> None:
    for path in sorted(PUBLISHED.glob("bandmas_*.csv")):
        table = pd.read_csv(path)
        assert table["source"].str.startswith("BANDMAS paper, ").all(), path
    table = published_table1()
    assert len(table) == 18
    assert table.groupby("benchmark")["policy"].apply(set).map(len).eq(6).all()
    assert table["saving_percent"].isna().sum() == 3
