"""Gains: the paper's worked counts, clusters that widen, one instance without an interval, corrections over families."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.evaluation.inference import mcnemar_exact
from lib.evaluation.paired_gain import accuracy_by, gain_table

BITS = st.integers(0, 1)


def pairs(left: list[float | None], right: list[float | None], instance: list[object] | None = None) -> pd.DataFrame:
    ids = instance or list(range(len(left)))
    frame = pd.DataFrame({"benchmark": "f", "instance_id": ids, "left": left, "right": right}).astype(
        {"left": "Float64", "right": "Float64"}
    )
    return frame.assign(delta=frame["left"] - frame["right"])


def one(frame: pd.DataFrame, **settings: int) -> pd.Series:
    return gain_table(frame, ["benchmark"], resamples=200, **settings).iloc[0]


def test_the_papers_toolsandbox_counts() -> None:
    # RO hits 64 of 72 steps and MA 47 (paper, table 8): -17/72 whatever the overlap.
    right = [1] * 64 + [0] * 8
    left = [1] * 47 + [0] * 25
    row = one(pairs(left, right))
    assert math.isclose(row["gain"], -17 / 72) and round(row["gain"], 3) == -0.236
    assert (row["gained"], row["harmed"], row["steps"], row["lost"]) == (0, 17, 72, 0)
    assert math.isclose(row["p_mcnemar"], 2 * 0.5**17) and row["low"] < row["gain"] < row["high"] < 0


def test_steps_of_one_instance_are_less_than_as_many_instances() -> None:
    left, right = [1, 1, 1, 0, 0, 0] * 4, [0] * 24
    apart, together = one(pairs(left, right)), one(pairs(left, right, [place // 3 for place in range(24)]))
    assert together["high"] - together["low"] > 1.3 * (apart["high"] - apart["low"])
    assert (together["step_low"], together["step_high"]) == (apart["low"], apart["high"])
    single = one(pairs([1, 0], [0, 0], ["i", "i"]))
    assert math.isnan(single["low"]) and math.isnan(single["high"]) and not math.isnan(single["step_low"])


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(BITS, BITS), min_size=2, max_size=25))
def test_swapping_sides_mirrors_a_gain(rows: list[tuple[int, int]]) -> None:
    there, back = (one(pairs(*map(list, zip(*(row[::turn] for row in rows), strict=True)))) for turn in (1, -1))
    assert there["gain"] == -back["gain"] and there["p_mcnemar"] == back["p_mcnemar"]
    assert (there["gained"], there["harmed"]) == (back["harmed"], back["gained"])
    assert there["p_mcnemar"] == mcnemar_exact(int(there["gained"]), int(there["harmed"]))
    assert there["low"] <= there["gain"] <= there["high"]


def test_bonferroni_counts_the_families_of_a_comparison() -> None:
    base = pairs([1] * 6, [0] * 6)
    frame = pd.concat(
        [base.assign(benchmark=name, receiver=who) for who, names in (("a", "fgh"), ("b", "f")) for name in names]
    )
    frame.loc[(frame["benchmark"] == "h"), "delta"] = pd.NA  # nothing but failed calls: no test of this comparison
    table = gain_table(frame, ["benchmark", "receiver"], resamples=100).set_index(["receiver", "benchmark"])
    p = mcnemar_exact(6, 0)
    assert table.loc[("a", "f"), "tests"] == 2 and math.isclose(table.loc[("a", "f"), "p_bonferroni"], 2 * p)
    assert table.loc[("b", "f"), "tests"] == 1 and table.loc[("b", "f"), "p_bonferroni"] == p
    empty = table.loc[("a", "h")]
    assert (empty["steps"], empty["lost"]) == (0, 6) and empty[["gain", "p_mcnemar"]].isna().all()
    capped = gain_table(
        pd.concat([pairs([1, 0], [0, 0]).assign(benchmark=n) for n in "fg"]), ["benchmark"], resamples=100
    )
    assert capped["p_bonferroni"].tolist() == [1.0, 1.0]


def test_null_groups_and_gains_of_gains_have_no_exact_test() -> None:
    frame = pairs([1, -1, 0], [0, 1, 0]).assign(sender=None)
    row = gain_table(frame, ["benchmark", "sender"], resamples=100).iloc[0]
    assert row["tests"] == 1 and math.isclose(row["gain"], -1 / 3)
    assert row[["gained", "harmed"]].isna().all() and math.isnan(row["p_mcnemar"])
    with pytest.raises(ValueError, match="'benchmark' must be among"):
        gain_table(frame, ["sender"])
    assert gain_table(frame.iloc[:0], ["benchmark"]).empty


def test_accuracies_with_both_intervals() -> None:
    frame = pd.DataFrame(
        {"arm": "RO", "hit_joint": [1.0] * 64 + [0.0] * 8 + [None], "instance_id": [*range(36), *range(36), 0]}
    )
    row = accuracy_by(frame, ["arm"], resamples=300).iloc[0]
    assert (row["steps"], row["instances"], row["lost"]) == (72, 36, 1) and math.isclose(row["accuracy"], 64 / 72)
    assert [round(row[name], 4) for name in ("wilson_low", "wilson_high")] == [0.7958, 0.9426]
    assert row["low"] < row["accuracy"] < row["high"]
    nothing = accuracy_by(frame.assign(hit_joint=np.nan), ["arm"]).iloc[0]
    assert nothing["steps"] == 0 and math.isnan(nothing["accuracy"]) and math.isnan(nothing["wilson_low"])
