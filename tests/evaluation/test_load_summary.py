"""Tests of lib/evaluation/load_summary.py: statistics within seeds, tasks as units, bands, pairs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.evaluation.inference import hierarchical_bootstrap
from lib.evaluation.load_summary import BANDED, adaptation_table, band, load_table, system_table
from tests.evaluation.loads import POLICIES, RHOS, arrivals

DRAWS = {"resamples": 200}


def test_statistics_are_taken_within_seeds_and_averaged() -> None:
    frame = arrivals(["worlds_bridge", "fanoutqa"])
    table = load_table(frame, **DRAWS).set_index(["workload", "policy", "rho"])
    assert len(table) == 2 * len(POLICIES) * len(RHOS)
    for key, group in frame.groupby(["workload", "policy", "rho"]):
        row, seeds = table.loc[key], group.groupby("seed")
        assert row["p50_s"] == pytest.approx(seeds["latency_s"].median().mean())
        assert row["p95_s"] == pytest.approx(seeds["latency_s"].quantile(0.95).mean())
        assert row["miss_rate"] == pytest.approx(seeds["missed"].mean().mean())
        assert row["task_utility"] == pytest.approx(seeds["task_utility"].mean().mean())
        assert row["evidence_utility"] == pytest.approx(seeds["evidence_utility"].mean().mean())
        assert row["bytes"] == seeds["bytes"].mean().mean()
        assert (row["seeds"], row["arrivals"], row["coverage"]) == (3, 36, 1.0)


def test_every_band_holds_its_estimate_and_is_the_hierarchical_bootstrap() -> None:
    frame = arrivals(tasks=30)
    table = load_table(frame, **DRAWS)
    for name in BANDED:
        assert (table[f"{name}_low"] <= table[name] + 1e-12).all() and (
            table[name] <= table[f"{name}_high"] + 1e-12
        ).all()
    group = frame.query("policy == 'full' and rho == 1.0").sort_values(["seed", "place"])
    expected = hierarchical_bootstrap(group["latency_s"], group["seed"], statistic="p95", **DRAWS)
    row = table.query("policy == 'full' and rho == 1.0").iloc[0]
    assert (row["p95_s_low"], row["p95_s_high"]) == (expected.low, expected.high)


def test_a_longer_run_of_the_same_tasks_narrows_no_band_of_utility() -> None:
    once = load_table(arrivals(rounds=1), **DRAWS)
    # Rounds with equal outcomes tell nothing new about tasks.
    frame = arrivals(rounds=1)
    again = pd.concat([frame.assign(place=frame["place"] + 12 * turn) for turn in range(6)])
    often = load_table(again, **DRAWS)
    names = [f"{name}{end}" for name in ("task_utility", "evidence_utility") for end in ("", "_low", "_high")]
    pd.testing.assert_frame_equal(often[names], once[names])
    assert (often["p95_s_high"] - often["p95_s_low"]).sum() < (once["p95_s_high"] - once["p95_s_low"]).sum()


def test_a_failed_answer_was_asked_and_earned_nothing() -> None:
    frame = arrivals(seeds=1, tasks=10).query("policy == 'causal' and rho == 1.0").assign(task_utility=1.0)
    failed = frame["place"] < 2
    frame = frame.assign(answered=~failed, task_utility=frame["task_utility"].mask(failed))
    frame = frame.assign(evidence_utility=frame["evidence_utility"].mask(failed))
    row = load_table(frame, **DRAWS).iloc[0]
    assert (row["task_utility"], row["coverage"]) == (pytest.approx(0.8), 0.8)
    assert row["evidence_utility"] == pytest.approx(frame["evidence_utility"].sum() / 10)


def test_evidence_that_does_not_apply_is_left_out_and_null_where_it_never_does() -> None:
    frame = arrivals(seeds=2, tasks=4).query("policy == 'causal' and rho == 1.0")
    some = frame.assign(evidence_utility=frame["evidence_utility"].mask(frame["place"] == 0))
    row = load_table(some, **DRAWS).iloc[0]
    assert row["evidence_utility"] == pytest.approx(some.groupby("seed")["evidence_utility"].mean().mean())
    never = load_table(frame.assign(evidence_utility=np.nan), **DRAWS).iloc[0]
    assert np.isnan(never[["evidence_utility", "evidence_utility_low", "evidence_utility_high"]].astype(float)).all()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 100)), min_size=1, max_size=30),
    st.sampled_from(["mean", "p50", "p95"]),
    st.sampled_from([1, 10]),
)
def test_bands_of_every_statistic(rows: list[tuple[int, float]], statistic: str, block: int) -> None:
    seeds, values = zip(*rows, strict=True)
    found = band(pd.Series(values), list(seeds), statistic, resamples=100, block=block)  # type: ignore[arg-type]
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9
    groups = pd.Series(values).groupby(list(seeds))
    expected = {"mean": groups.mean(), "p50": groups.median(), "p95": groups.quantile(0.95)}[statistic].mean()
    assert found.estimate == pytest.approx(expected)
    assert (found.n_clusters, found.n_rows) == (len(set(seeds)), len(values))
    assert found == band(pd.Series(values), list(seeds), statistic, resamples=100, block=block)  # type: ignore[arg-type]


def test_the_band_of_the_median_covers_as_a_band_should() -> None:
    """Of 95 % bands of the median of one seed's 60 draws, about 95 % hold the true median."""
    rng = np.random.default_rng(1)
    bands = [band(pd.Series(rng.exponential(size=60)), [0] * 60, "p50", resamples=300) for _ in range(200)]
    covered = sum(one.low <= np.log(2) <= one.high for one in bands)
    assert 178 <= covered <= 200


def test_blocks_widen_the_band_of_a_queue() -> None:
    """Neighbours in a queue are alike: drawn one by one they pretend to be more than they are."""
    wait, waits = 0.0, []
    for step in np.random.default_rng(0).normal(-0.05, 1.0, 600):
        wait = max(0.0, wait + step)
        waits.append(wait)
    alone, together = (band(pd.Series(waits), [0] * 600, "p50", block=block) for block in (1, 30))
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_adaptation_is_compared_arrival_by_arrival() -> None:
    frame = arrivals(["worlds_bridge", "fanoutqa"])
    table = adaptation_table(frame, **DRAWS)
    assert list(dict.fromkeys(table["workload"])) == ["worlds_bridge", "fanoutqa"]
    assert len(table) == 2 * len(RHOS) * 4 and (table["pairs"] == 36).all()
    for row in table.to_dict("records"):
        mine = frame[(frame["workload"] == row["workload"]) & (frame["rho"] == row["rho"])]
        means = mine.astype({"missed": float}).groupby(["policy", "seed"])[row["value"]].mean().groupby("policy").mean()
        assert row["difference"] == pytest.approx(means["adaptive"] - means["causal"])
        assert row["low"] <= row["difference"] + 1e-12 and row["difference"] <= row["high"] + 1e-12
    saved = table[table["value"] == "bytes"]
    assert saved[["difference", "low", "high"]].eq(-400.0).all().all()
    with pytest.raises(ValueError, match="did not meet the same arrivals"):
        adaptation_table(frame.iloc[:-1], **DRAWS)
    with pytest.raises(ValueError, match="'hybrid' and 'causal' did not meet the same arrivals"):
        adaptation_table(frame, "hybrid")


def test_what_a_policy_costs_when_nobody_waits() -> None:
    frame = arrivals()
    times = pd.DataFrame(
        [
            {"workload": "worlds_bridge", "policy": policy, "seed": seed, "task_id": f"t{task}", "scheduler_ms": ms}
            for policy, base in (("full", 0.0), ("semantic", 1.0), ("causal", 2.0), ("adaptive", 3.0))
            for seed in range(3)
            for task, ms in enumerate((base, 2 * base))
        ]
    )
    table = system_table(frame, times, deadline=0.85).set_index("policy")
    assert table["alone_p95_s"].tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert table["alone_miss_rate"].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert table["scheduler_ms"].tolist() == [0.0, 1.5, 3.0, 4.5]
    assert table["scheduler_max_ms"].tolist() == [0.0, 2.0, 4.0, 6.0]
    assert table.loc["adaptive", "scheduler_share"] == pytest.approx(0.0045 / 0.6)
    assert table["context_tokens"].tolist() == [80, 60, 40, 20]
    lowest_only = frame.assign(transfer_s=frame["transfer_s"].where(frame["rho"] == 0.5, 99.0))
    assert system_table(lowest_only, times, 0.85).equals(system_table(frame, times, 0.85))


@pytest.mark.parametrize("name", ["latency_s", "answered", "place"])
def test_a_missing_column_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        load_table(arrivals(tasks=2).drop(columns=name))
