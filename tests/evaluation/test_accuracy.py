"""Tests of lib/evaluation/accuracy.py: worked values, what a missing answer counts, paired tests, fronts."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.evaluation import accuracy as module
from lib.evaluation.accuracy import (
    accuracy_table,
    paired_accuracy,
    paired_tokens,
    pareto_front,
    share_table,
    token_means,
)

FAST = {"resamples": 500}


def answers(**arms: list[bool | None]) -> pd.DataFrame:
    """One row an arm and question; questions are numbered."""
    rows = [(arm, f"q{place:03}", flag) for arm, flags in arms.items() for place, flag in enumerate(flags)]
    frame = pd.DataFrame(rows, columns=["arm", "question_id", "correct"])
    return frame.astype({"correct": "boolean"})


def crossed(both: int, only_a: int, only_b: int, neither: int) -> pd.DataFrame:
    a = [True] * (both + only_a) + [False] * (only_b + neither)
    b = [True] * both + [False] * only_a + [True] * only_b + [False] * neither
    return answers(a=a, b=b)


# ------------------------------------------------------------------------------------------------------------------ accuracies


@pytest.mark.parametrize(
    ("right", "asked", "low", "high"), [(64, 72, 0.7958, 0.9426), (195, 300, 0.5944, 0.7018), (0, 20, 0.0, 0.1611)]
)
def test_wilson_intervals(right: int, asked: int, low: float, high: float) -> None:
    row = accuracy_table(answers(a=[True] * right + [False] * (asked - right)), ["arm"]).iloc[0]
    assert (row["right"], row["asked"], row["interval"]) == (right, asked, "Wilson")
    assert row["accuracy"] == pytest.approx(right / asked)
    assert (row["low"], row["high"]) == pytest.approx((low, high), abs=5e-5)


def test_a_missing_answer_counts_as_not_right_and_stays_missing() -> None:
    frame = answers(a=[True] * 80 + [False] * 10 + [None] * 10)
    row = accuracy_table(frame, ["arm"]).iloc[0]
    assert (row["accuracy"], row["coverage"], row["answered"]) == (0.8, 0.9, 90)
    assert row["accuracy_answered"] == pytest.approx(80 / 90)
    assert (row["low"], row["high"]) == pytest.approx((0.7112, 0.8666), abs=5e-5), "of 100, not of 90"
    assert frame["correct"].isna().sum() == 10


def test_a_group_that_nobody_judged_was_not_measured() -> None:
    table = accuracy_table(answers(code=[None, None], a=[True, False]), ["arm"]).set_index("arm")
    assert table.loc["code", ["accuracy", "low", "high", "accuracy_answered"]].isna().all()
    assert table.loc["code", "coverage"] == 0 and table.loc["code", "asked"] == 2
    assert table.loc["a", "accuracy"] == 0.5


@pytest.mark.parametrize("kind", ["boolean", "object", "float"])
def test_any_type_of_flag_is_read(kind: str) -> None:
    flags = pd.Series([True, None, False], dtype="boolean")
    frame = pd.DataFrame({"arm": "a", "question_id": list("xyz"), "correct": flags.astype("Float64").astype(float)})
    if kind != "float":
        frame["correct"] = flags if kind == "boolean" else flags.astype(object).where(flags.notna(), None)
    row = accuracy_table(frame, ["arm"]).iloc[0]
    assert (row["asked"], row["answered"], row["right"]) == (3, 2, 1)


def test_groups_keep_their_order_and_missing_keys() -> None:
    frame = answers(b=[True], a=[False]).assign(density=[0.5, np.nan])
    table = accuracy_table(frame, ["arm", "density"])
    assert table["arm"].tolist() == ["b", "a"] and math.isnan(table["density"].iloc[1])
    assert accuracy_table(frame.iloc[:0], ["arm"]).empty
    assert accuracy_table(answers(a=[True, False]), []).iloc[0]["asked"] == 2, "all rows are one group"


def test_a_question_that_stands_twice_is_refused_unless_said() -> None:
    twice = pd.concat([answers(a=[True, False])] * 2)
    with pytest.raises(ValueError, match="arm 'a': question_id 'q000' stands twice; keep one extractor"):
        accuracy_table(twice, ["arm"])
    row = accuracy_table(twice, ["arm"], repeats=True, **FAST).iloc[0]
    assert (row["questions"], row["asked"], row["interval"]) == (2, 4, "task bootstrap")


def test_repeats_of_a_question_narrow_no_interval() -> None:
    once = answers(a=[True] * 12 + [False] * 8)
    many = pd.concat([once] * 30)
    wide = accuracy_table(once, ["arm"]).iloc[0]
    row = accuracy_table(many, ["arm"], repeats=True, resamples=4000).iloc[0]
    assert row["accuracy"] == wide["accuracy"]
    assert row["high"] - row["low"] == pytest.approx(wide["high"] - wide["low"], rel=0.15)
    same = accuracy_table(pd.concat([answers(a=[False] * 20)] * 5), ["arm"], repeats=True).iloc[0]
    assert (same["interval"], same["asked"]) == ("Wilson over questions", 100)
    assert (same["low"], same["high"]) == pytest.approx((0.0, 0.1611), abs=5e-5), "20 questions, not 100"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=40))
def test_counts_and_bounds_hold(flags: list[bool | None]) -> None:
    row = accuracy_table(answers(a=flags), ["arm"]).iloc[0]
    assert row["asked"] == len(flags) and row["right"] <= row["answered"] <= row["asked"]
    if row["answered"]:
        assert row["low"] <= row["accuracy"] <= row["high"]
        assert row["accuracy"] == pytest.approx(row["accuracy_answered"] * row["coverage"])


# ---------------------------------------------------------------------------------------------------------------------- shares


def test_shares_leave_out_what_cannot_be_told() -> None:
    frame = answers(moc=[True, False, None, True], vanilla=[None, None])
    table = share_table(frame, ["arm"], "correct").set_index("arm")
    assert table.loc["moc", ["rows", "known", "hits"]].tolist() == [4, 3, 2]
    assert table.loc["moc", "share"] == pytest.approx(2 / 3) and table.loc["moc", "interval"] == "Wilson"
    assert table.loc["vanilla", ["share", "low", "high"]].isna().all() and table.loc["vanilla", "known"] == 0


def test_readers_of_a_question_are_resampled_together() -> None:
    # six readers a question who always agree: ten independent trials, not sixty
    flags = [place < 4 for place in range(10) for _ in range(6)]
    frame = pd.DataFrame({"question_id": [f"q{place // 6}" for place in range(60)], "adopted": flags})
    row = share_table(frame, [], "adopted", resamples=4000).iloc[0]
    assert row["share"] == 0.4 and row["interval"] == "task bootstrap"
    assert row["low"] <= 0.1 and row["high"] >= 0.7


# ---------------------------------------------------------------------------------------------------------------------- paired


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [(3, 9, 0.1460), (0, 5, 0.0625), (1, 7, 0.0703), (10, 2, 0.0386), (20, 3, 0.000488), (6, 6, 1.0), (0, 0, 1.0)],
)
def test_mcnemar_counts_the_questions_that_differ(only_a: int, only_b: int, p: float) -> None:
    row = paired_accuracy(crossed(8, only_a, only_b, 4), [("a", "b")], **FAST).iloc[0]
    assert row[["both", "only_a", "only_b", "neither"]].tolist() == [8, only_a, only_b, 4]
    assert row["p"] == pytest.approx(p, abs=5e-5) and row["p_holm"] == row["p"]
    assert row["difference"] == pytest.approx((only_a - only_b) / (12 + only_a + only_b))
    assert row["difference"] == pytest.approx(row["accuracy_a"] - row["accuracy_b"])


def test_without_a_difference_there_is_no_interval() -> None:
    row = paired_accuracy(crossed(5, 0, 0, 3), [("a", "b")], **FAST).iloc[0]
    assert row["difference"] == 0 and math.isnan(row["low"]) and math.isnan(row["high"]) and row["p"] == 1
    row = paired_accuracy(crossed(5, 4, 1, 3), [("a", "b")], **FAST).iloc[0]
    assert row["low"] < row["difference"] < row["high"]


def test_holm_is_over_all_rows() -> None:
    frame = pd.concat(
        [crossed(4, a, b, 4).assign(set=name) for name, (a, b) in {"x": (10, 2), "y": (20, 3), "z": (6, 6)}.items()]
    )
    table = paired_accuracy(frame, [("a", "b")], ["set"], **FAST)
    assert table["set"].tolist() == ["x", "y", "z"]
    assert table["p_holm"].tolist() == pytest.approx([2 * 0.03857, 3 * 0.000488, 1.0], abs=2e-5)
    assert list(table.columns).index("p_holm") == list(table.columns).index("p") + 1


def test_a_missing_answer_loses_against_a_right_one() -> None:
    frame = answers(a=[True, True, None, False], b=[None, True, None, True])
    row = paired_accuracy(frame, [("a", "b")], **FAST).iloc[0]
    assert row[["both", "only_a", "only_b", "neither"]].tolist() == [1, 1, 1, 1]
    assert (row["coverage_a"], row["coverage_b"], row["accuracy_a"]) == (0.75, 0.5, 0.5)


def test_an_arm_that_nobody_judged_is_no_member_of_the_family() -> None:
    frame = answers(a=[True] * 8, b=[True] * 2 + [False] * 6, code=[None] * 8)
    table = paired_accuracy(frame, [("a", "b"), ("a", "code")], **FAST)
    assert table["p_holm"].iloc[0] == table["p"].iloc[0]
    assert table.loc[1, ["difference", "low", "p", "p_holm", "accuracy_b"]].isna().all()
    assert table.loc[1, "accuracy_a"] == 1 and table.loc[1, "coverage_b"] == 0


def test_unpaired_arms_are_refused() -> None:
    frame = answers(a=[True, False], b=[True])
    with pytest.raises(ValueError, match="not paired"):
        paired_accuracy(frame, [("a", "b")])
    with pytest.raises(ValueError, match=r"no rows for \{'arm': 'c'\}; there are arms \['a', 'b'\]"):
        paired_accuracy(frame, [("a", "c")])
    with pytest.raises(ValueError, match="question_id 'q000' stands twice"):
        paired_accuracy(pd.concat([frame, frame]), [("a", "b")])
    with pytest.raises(ValueError, match="lacks the columns"):
        paired_accuracy(frame.drop(columns="correct"), [("a", "b")])


def test_swapping_the_arms_swaps_the_row() -> None:
    frame = crossed(3, 5, 2, 4)
    one, two = (paired_accuracy(frame, [pair], **FAST).iloc[0] for pair in (("a", "b"), ("b", "a")))
    assert one["difference"] == -two["difference"] and one["p"] == two["p"]
    assert (one["only_a"], one["only_b"]) == (two["only_b"], two["only_a"])
    assert one["low"] == pytest.approx(-two["high"])


# ---------------------------------------------------------------------------------------------------------------------- tokens


def costs() -> pd.DataFrame:
    rows = [
        (arm, f"q{place}", seed, base + 10 * place + seed)
        for arm, base in (("moc", 300), ("vanilla", 200))
        for place in range(6)
        for seed in range(2)
    ]
    frame = pd.DataFrame(rows, columns=["arm", "question_id", "graph_seed", "total_tokens"])
    return frame.astype({"total_tokens": "Int64"})


def test_token_differences_are_paired_by_question_and_run() -> None:
    frame = costs()
    frame.loc[0, "total_tokens"] = pd.NA
    row = paired_tokens(frame, [("moc", "vanilla")], values=["total_tokens"], repeats=["graph_seed"], **FAST).iloc[0]
    assert (row["questions"], row["pairs"], row["difference"]) == (6, 11, 100.0)
    assert row["coverage"] == pytest.approx(11 / 12)
    assert math.isnan(row["low"]), "every pair differs by the same"
    assert row["change"] == pytest.approx(row["mean_a"] / row["mean_b"] - 1)


def test_token_intervals_count_questions_not_runs() -> None:
    rng = np.random.default_rng(0)
    per_question = rng.normal(50, 20, 12)
    base = pd.DataFrame({"question_id": [f"q{place}" for place in range(12)], "cost": 100.0})
    frame = pd.concat([base.assign(arm="b"), base.assign(arm="a", cost=100 + per_question)])
    many = pd.concat([frame.assign(run=run) for run in range(9)])
    one = paired_tokens(frame, [("a", "b")], values=["cost"], resamples=2000).iloc[0]
    all_runs = paired_tokens(many, [("a", "b")], values=["cost"], repeats=["run"], resamples=2000).iloc[0]
    assert one["low"] < one["difference"] < one["high"]
    assert (all_runs["low"], all_runs["high"]) == pytest.approx((one["low"], one["high"]))
    with pytest.raises(ValueError, match="stands twice"):
        paired_tokens(many, [("a", "b")], values=["cost"])


def test_tokens_that_nobody_knows_have_no_difference() -> None:
    frame = costs().assign(total_tokens=pd.array([pd.NA] * 24, dtype="Int64"))
    row = paired_tokens(frame, [("moc", "vanilla")], values=["total_tokens"], repeats=["graph_seed"]).iloc[0]
    assert row["pairs"] == 0 and row["coverage"] == 0
    assert row[["difference", "low", "high", "change", "mean_a"]].isna().all()


def test_token_means_leave_out_the_unknown() -> None:
    frame = costs()
    frame.loc[frame["arm"] == "vanilla", "total_tokens"] = pd.NA
    frame.loc[0, "total_tokens"] = pd.NA
    table = token_means(frame, ["arm"], ["total_tokens"], **FAST).set_index("arm")
    assert table.loc["moc", "total_tokens_mean"] == pytest.approx(frame["total_tokens"].dropna().astype(float).mean())
    assert table.loc["moc", "total_tokens_low"] < table.loc["moc", "total_tokens_mean"]
    assert table.loc["moc", "total_tokens_coverage"] == pytest.approx(11 / 12)
    assert math.isnan(table.loc["vanilla", "total_tokens_mean"]) and table.loc["vanilla", "total_tokens_coverage"] == 0


# ----------------------------------------------------------------------------------------------------------------------- front


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_the_front_is_what_nobody_beats(points: list[tuple[int, int]]) -> None:
    table = pd.DataFrame(points, columns=["cost", "accuracy"], dtype=float)
    beaten = [any(c <= cost and v >= value and (c, v) != (cost, value) for c, v in points) for cost, value in points]
    assert pareto_front(table, "cost").tolist() == [not one for one in beaten]


def test_a_row_without_cost_is_not_on_the_front() -> None:
    table = pd.DataFrame({"cost": pd.array([1, pd.NA], dtype="Int64"), "accuracy": [0.2, 0.9]}, index=[7, 3])
    assert pareto_front(table, "cost").to_dict() == {7: True, 3: False}


def test_examples() -> None:
    assert doctest.testmod(module).failed == 0
