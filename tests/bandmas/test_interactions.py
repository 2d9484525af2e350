"""Interactions: the index on worked games, what parts RCE from Shapley, kinds, agreement, nulls."""

from __future__ import annotations

import doctest
import importlib
import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib.bandmas.interactions import (
    compare_rce,
    difference_by_order,
    dividends,
    end_differences,
    interaction_values,
    order_parts,
    pair_interactions,
    rce_agreement,
)
from lib.bandmas.replay import effects_of
from lib.bandmas.shapley import ShapleyPlan, coalition_outcomes, shapley_effects, shapley_values
from lib.models import Prompt
from tests.bandmas.games import Recorder, echo, packets_of, render, task, utility_of
from tests.bandmas.test_shapley import games, members, players

EXACT, SAMPLED = ShapleyPlan(exact_max=6), ShapleyPlan(exact_max=1, circles=6)


def either(n: int) -> np.ndarray:
    return np.array([float(mask > 0) for mask in range(2**n)])


def every(n: int) -> np.ndarray:
    return np.array([float(mask == 2**n - 1) for mask in range(2**n)])


def rce_of(table: np.ndarray) -> np.ndarray:
    n, full = players(table), len(table) - 1
    return np.array([(table[1 << k] - table[0] + table[full] - table[full ^ 1 << k]) / 2 for k in range(n)])


def explained_of(table: np.ndarray) -> np.ndarray:
    at_empty, at_full = end_differences(table.__getitem__, players(table))
    return np.nansum(at_full - at_empty, axis=1) / 12


def of_order(n: int, most: int, seed: int) -> np.ndarray:
    """A random game in which at most `most` players act together."""
    added = np.random.default_rng(seed).uniform(-1, 1, 2**n)
    added[np.bitwise_count(np.arange(2**n)) > most] = 0
    return np.array([added[[s for s in range(2**n) if s & mask == s]].sum() for mask in range(2**n)])


def compared(table: np.ndarray, plan: ShapleyPlan = EXACT) -> pd.DataFrame:
    """The whole path on one task whose utility is this table."""
    jobs = [(task(), packets_of("t1", players(table)))]
    value = utility_of(lambda _, slots: (float(table[sum(1 << k for k in slots)]),) * 2)
    outcomes = coalition_outcomes(Recorder(), jobs, value, render, {"t1"}, plan)
    pairs = pair_interactions(outcomes, jobs, plan)
    return compare_rce(shapley_effects(outcomes, jobs, plan), effects_of(outcomes, jobs), pairs)


# --------------------------------------------------------------------------------------------------- when RCE is the value


@given(st.lists(st.floats(-1, 1, allow_nan=False, width=32), min_size=1, max_size=6), st.floats(-1, 1, width=32))
def test_rce_is_the_shapley_value_of_additive_games(amounts: list[float], base: float) -> None:
    table = np.array([base + sum(amounts[k] for k in members(mask)) for mask in range(2 ** len(amounts))])
    assert np.allclose(rce_of(table), shapley_values(table), atol=1e-9)
    assert np.allclose(shapley_values(table), amounts, atol=1e-9)


@given(games(least=1, most=2))
def test_rce_is_the_shapley_value_of_one_or_two_packets(table: np.ndarray) -> None:
    assert np.allclose(rce_of(table), shapley_values(table), atol=1e-12)


@given(st.integers(1, 6), st.integers(0, 2**31))
def test_pairs_alone_never_part_rce_from_the_shapley_value(n: int, seed: int) -> None:
    table = of_order(n, 2, seed)
    assert np.allclose(rce_of(table), shapley_values(table), atol=1e-9)


@given(games(least=1, most=6))
def test_the_difference_is_the_sum_over_orders_from_three(table: np.ndarray) -> None:
    parts = difference_by_order(table)
    assert np.allclose(parts.sum(axis=1), rce_of(table) - shapley_values(table), atol=1e-9)
    assert (parts[:, :3] == 0).all()


@given(st.integers(1, 6), st.integers(0, 2**31))
def test_pairs_at_both_ends_explain_all_that_up_to_four_do_together(n: int, seed: int) -> None:
    table = of_order(n, 4, seed)
    assert np.allclose(rce_of(table) - explained_of(table), shapley_values(table), atol=1e-9)


def test_five_together_are_explained_in_part() -> None:
    """AND of five: RCE 1/2, value 1/5; the ends explain 4/12 of the difference of 3/10 and overshoot by 1/30."""
    frame = compared(every(5))
    assert frame["difference"].tolist() == pytest.approx([0.3] * 5)
    assert frame["explained"].tolist() == pytest.approx([1 / 3] * 5)
    assert frame["left"].tolist() == pytest.approx([-1 / 30] * 5)
    assert frame["corrected"].tolist() == pytest.approx([1 / 6] * 5)


# ----------------------------------------------------------------------------------------------------------- worked games


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_substitutes_by_hand(n: int) -> None:
    """OR: alone each is enough, together none is missed. Value 1/n, RCE 1/2, index -1/(n - 1), all of it at empty."""
    table = either(n)
    pairs = ~np.eye(n, dtype=bool)
    at_empty, at_full = end_differences(table.__getitem__, n)
    assert shapley_values(table) == pytest.approx([1 / n] * n)
    assert rce_of(table) == pytest.approx([0.5] * n)
    assert interaction_values(table)[pairs] == pytest.approx(-1 / (n - 1))
    assert at_empty[pairs] == pytest.approx(-1.0)
    assert at_full[pairs] == pytest.approx(-1.0 if n == 2 else 0.0)


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_complements_by_hand(n: int) -> None:
    """AND: alone none helps, together each is needed. Value 1/n, RCE 1/2, index 1/(n - 1), all of it at full."""
    table = every(n)
    pairs = ~np.eye(n, dtype=bool)
    at_empty, at_full = end_differences(table.__getitem__, n)
    assert rce_of(table) == pytest.approx([0.5] * n)
    assert interaction_values(table)[pairs] == pytest.approx(1 / (n - 1))
    assert at_full[pairs] == pytest.approx(1.0)
    assert at_empty[pairs] == pytest.approx(1.0 if n == 2 else 0.0)


def test_two_of_three_is_worth_a_third_each_and_rce_sees_nothing() -> None:
    """Any two packets settle the answer: no packet helps alone, none is missed, and pairs are mixed."""
    table = np.array([float(mask.bit_count() >= 2) for mask in range(8)])
    frame = compared(table)
    assert frame["rce"].tolist() == [0, 0, 0]
    assert frame["shapley"].tolist() == pytest.approx([1 / 3] * 3)
    assert frame["signs"].tolist() == ["rce zero"] * 3
    assert frame["corrected"].tolist() == pytest.approx([1 / 3] * 3)
    jobs = [(task(), packets_of("t1", 3))]
    value = utility_of(lambda _, slots: (float(len(slots) >= 2),) * 2)
    pairs = pair_interactions(coalition_outcomes(Recorder(), jobs, value, render, {"t1"}, EXACT), jobs, EXACT)
    assert pairs[["at_empty", "at_full", "index"]].to_numpy().tolist() == [[1, -1, 0]] * 3
    assert pairs["kind"].tolist() == ["mixed"] * 3 and pairs["largest"].tolist() == [1.0] * 3


def test_dividends_by_hand() -> None:
    assert dividends(every(3)).tolist() == [0, 0, 0, 0, 0, 0, 0, 1]
    assert dividends(either(3)).tolist() == [0, 1, 1, -1, 1, -1, -1, 1]
    assert dividends([0.25]).tolist() == [0.25]


@given(games(least=1, most=6))
def test_dividends_add_up_to_the_game_and_share_equally(table: np.ndarray) -> None:
    added, n = dividends(table), players(table)
    sets = np.arange(table.size)
    assert np.allclose([added[sets[sets & mask == sets]].sum() for mask in sets], table, atol=1e-9)
    size = np.maximum(1, np.bitwise_count(sets))
    shares = [(added / size)[(sets >> k & 1) == 1].sum() for k in range(n)]
    assert np.allclose(shares, shapley_values(table), atol=1e-9)


# -------------------------------------------------------------------------------------------------------------- the index


@given(games(least=2, most=5))
def test_index_is_how_one_players_value_moves_with_the_other_present(table: np.ndarray) -> None:
    """I(i, j) is i's value in the game that always holds j, minus its value in the game that never does."""
    n = players(table)
    index = interaction_values(table)
    assert np.array_equal(index, index.T, equal_nan=True) and np.isnan(np.diag(index)).all()
    for j in range(n):
        sets = np.array([mask for mask in range(table.size) if not mask >> j & 1])
        moved = shapley_values(table[sets | 1 << j]) - shapley_values(table[sets])
        assert np.allclose(np.delete(index[j], j), moved, atol=1e-9)


@given(games(least=2, most=3))
def test_two_contexts_are_the_index_up_to_three_packets(table: np.ndarray) -> None:
    at_empty, at_full = end_differences(table.__getitem__, players(table))
    assert np.allclose((at_empty + at_full) / 2, interaction_values(table), atol=1e-12, equal_nan=True)


@given(st.integers(2, 6), st.integers(0, 2**31))
def test_two_contexts_are_the_index_where_up_to_three_act_together(n: int, seed: int) -> None:
    table = of_order(n, 3, seed)
    at_empty, at_full = end_differences(table.__getitem__, n)
    assert np.allclose((at_empty + at_full) / 2, interaction_values(table), atol=1e-9, equal_nan=True)


@given(games(least=2, most=5), st.data())
def test_a_dummy_acts_together_with_nobody(table: np.ndarray, data: st.DataObject) -> None:
    player = data.draw(st.integers(0, players(table) - 1))
    dull = np.array([table[mask & ~(1 << player)] + 0.5 * (mask >> player & 1) for mask in range(table.size)])
    assert np.allclose(np.delete(interaction_values(dull)[player], player), 0, atol=1e-12)


@given(games(least=2, most=5), st.data())
def test_the_index_is_additive_over_games(table: np.ndarray, data: st.DataObject) -> None:
    other = data.draw(arrays(float, table.size, elements=st.floats(-1, 1, allow_nan=False, width=32)))
    both = interaction_values(table) - 3 * interaction_values(other)
    assert np.allclose(interaction_values(table - 3 * other), both, atol=1e-9, equal_nan=True)


# ---------------------------------------------------------------------------------------------------------------- packets


def chain(_: str, slots: frozenset[int]) -> tuple[float, float]:
    """Slots 0 and 1 are two links, slot 2 repeats link 1, slot 3 is evidence by itself."""
    return float(0 in slots and bool(slots & {1, 2})), float(3 in slots)


def test_pairs_of_a_task_with_kinds_and_places() -> None:
    jobs = [(task(), packets_of("t1", 4))]
    outcomes = coalition_outcomes(Recorder(), jobs, utility_of(chain), render, {"t1"}, EXACT)
    pairs = pair_interactions(outcomes, jobs, EXACT)
    kinds = {(row["first"][4:6], row["second"][4:6]): row["kind"] for row in pairs.to_dict("records")}
    assert kinds == {
        ("00", "01"): "complements",
        ("00", "02"): "complements",
        ("01", "02"): "substitutes",
        ("00", "03"): "independent",
        ("01", "03"): "independent",
        ("02", "03"): "independent",
    }
    assert (pairs["first"] < pairs["second"]).all() and not pairs["same_message"].any()
    assert pairs["first_type"].unique().tolist() == ["claim"] and pairs["method"].unique().tolist() == ["exact"]
    table = np.array([sum(chain("", frozenset(members(mask)))) / 2 for mask in range(16)])
    assert pairs["index"].tolist() == pytest.approx(interaction_values(table)[np.triu_indices(4, 1)].tolist())


def test_larger_tasks_are_read_in_two_contexts() -> None:
    jobs = [(task(), packets_of("t1", 8))]
    outcomes = coalition_outcomes(Recorder(), jobs, utility_of(chain), render, {"t1"}, SAMPLED)
    pairs = pair_interactions(outcomes, jobs, SAMPLED)
    assert len(pairs) == 28 and pairs["method"].unique().tolist() == ["two contexts"]
    assert np.allclose(pairs["index"], (pairs["at_empty"] + pairs["at_full"]) / 2)
    assert (pairs["kind"] == "independent").sum() == 25
    frame = compare_rce(shapley_effects(outcomes, jobs, SAMPLED), effects_of(outcomes, jobs), pairs)
    table = np.array([sum(chain("", frozenset(members(mask)))) / 2 for mask in range(256)])
    assert frame["corrected"].tolist() == pytest.approx(shapley_values(table).tolist(), abs=1e-9)


@given(games(least=1, most=5))
def test_comparison_holds_together(table: np.ndarray) -> None:
    frame = compared(table)
    assert np.allclose(frame["difference"], frame["rce"] - frame["shapley"])
    assert np.allclose(frame["explained"] + frame["left"], frame["difference"], atol=1e-9)
    assert np.allclose(frame["rce"], rce_of(table), atol=1e-9)
    assert np.allclose(frame["explained"], explained_of(table) if len(frame) > 1 else 0, atol=1e-9)
    if len(frame) <= 4:
        assert frame["left"].abs().max() < 1e-9


def test_orders_of_the_exact_tasks_sum_to_the_difference() -> None:
    table = np.random.default_rng(3).uniform(0, 1, 32)
    jobs = [(task(), packets_of("t1", 5)), (task("t2"), packets_of("t2", 7))]
    value = utility_of(lambda _, slots: (float(table[sum(1 << k for k in slots if k < 5)]),) * 2)
    outcomes = coalition_outcomes(Recorder(), jobs, value, render, {"t1", "t2"}, EXACT)
    parts = order_parts(outcomes, jobs, EXACT)
    assert set(parts["task_id"]) == {"t1"} and sorted(parts["order"].unique()) == [3, 4, 5]
    sums = parts.groupby("packet_id")["difference"].sum()
    assert sums.tolist() == pytest.approx((rce_of(table) - shapley_values(table)).tolist())


def test_signs_by_hand() -> None:
    """Slot 0 helps alone and with all, and harms in between, where it meets one of the others."""
    worth = {0: 0.5, 1: 0.6, 2: 0.5, 3: 0.0, 4: 0.5, 5: 0.0, 6: 0.5, 7: 0.6}
    frame = compared(np.array([worth[mask] for mask in range(8)]))
    assert frame["rce"].tolist() == pytest.approx([0.1, 0.3, 0.3])
    assert frame["shapley"].tolist() == pytest.approx([-0.1, 0.1, 0.1])
    assert frame["signs"].tolist() == ["opposite", "same", "same"]
    line = rce_agreement(frame).iloc[0]
    assert line[["packets", "same", "opposite", "rce_zero", "shapley_zero", "unresolved"]].tolist() == [
        3,
        2,
        1,
        0,
        0,
        0,
    ]
    assert line["corrected_correlation"] == pytest.approx(1)
    assert line["mean_difference"] == pytest.approx(0.2)
    assert (line["explained_share"], line["mean_left"]) == (pytest.approx(1), pytest.approx(0, abs=1e-12))


def test_a_sampled_value_whose_interval_holds_zero_has_no_sign() -> None:
    keys = {"task_id": "t1", "n_packets": 7, "method": "sampled"}
    values = pd.DataFrame(
        [
            {**keys, "packet_id": name, "shapley": value, "low": value - reach, "high": value + reach}
            for name, value, reach in [("a", 0.2, 0.1), ("b", 0.05, 0.1), ("c", -0.2, 0.1), ("d", 0.0, 0.0)]
        ]
    )
    effects = pd.DataFrame({"task_id": "t1", "packet_id": list("abcd"), "rce": [0.1, 0.1, 0.1, 0.1]})
    effects = effects.assign(sufficiency=0.1, necessity=0.1)
    pairs = pd.DataFrame([{"task_id": "t1", "first": a, "second": b} for a, b in ("ab", "ac", "ad", "bc", "bd", "cd")])
    frame = compare_rce(values, effects, pairs.assign(at_empty=0.0, at_full=0.0))
    assert frame["signs"].dropna().tolist() == ["same", "opposite", "shapley zero"]
    assert frame[["signs", "sign_shapley"]].iloc[1].isna().all() and frame["sign_rce"].iloc[1] == 1
    assert rce_agreement(frame)["unresolved"].item() == 1


def test_agreement_by_group_pools_packets_and_averages_tasks() -> None:
    frame = pd.DataFrame(
        {
            "workload": ["a"] * 4 + ["b"],
            "task_id": ["1", "1", "2", "2", "3"],
            "shapley": [0.0, 0.1, 0.2, 0.3, 0.5],
            "rce": [0.1, 0.0, 0.2, 0.3, None],
            "explained": [0.1, -0.1, 0.0, 0.0, 0.0],
        }
    )
    frame = frame.assign(difference=frame["rce"] - frame["shapley"], signs="same")
    frame = frame.assign(left=frame["difference"] - frame["explained"], corrected=frame["rce"] - frame["explained"])
    table = rce_agreement(frame, ["workload"]).set_index("workload")
    assert table.loc["a", "rank_correlation"] == pytest.approx(0.8)
    assert table.loc["a", "within_tasks"] == pytest.approx(0.0)
    assert table.loc["a", "explained_share"] == pytest.approx(1.0)
    assert table.loc["b", ["packets", "unknown", "same"]].tolist() == [0, 1, 0]
    assert math.isnan(table.loc["b", "rank_correlation"]) and math.isnan(table.loc["b", "explained_share"])


def test_a_failed_call_is_null_where_it_is_needed() -> None:
    def broken(prompt: Prompt) -> str:
        if json.loads(prompt.turns[-1].text)[1] == ["t1|m00|s00", "t1|m01|s00"]:
            raise RuntimeError("out of memory")
        return echo(prompt)

    jobs = [(task(), packets_of("t1", 5))]
    outcomes = coalition_outcomes(Recorder(broken), jobs, utility_of(chain), render, {"t1"}, SAMPLED)
    pairs = pair_interactions(outcomes, jobs, SAMPLED)
    assert pairs["kind"].isna().tolist() == [True] + [False] * 9
    frame = compare_rce(shapley_effects(outcomes, jobs, SAMPLED), effects_of(outcomes, jobs), pairs)
    assert frame["explained"].isna().tolist() == [True, True, False, False, False]
    assert frame["rce"].notna().all()
    assert rce_agreement(frame)["unknown"].item() >= 2


def test_one_packet_and_none() -> None:
    single = compared(np.array([0.25, 0.75]))
    assert single[["rce", "shapley", "explained", "left"]].to_numpy().tolist() == [[0.5, 0.5, 0, 0]]
    nothing = compared(np.array([0.25]))
    assert nothing.empty and rce_agreement(nothing)["packets"].item() == 0


def test_frames_of_other_jobs_are_refused_by_name() -> None:
    jobs = [(task(), packets_of("t1", 3))]
    outcomes = coalition_outcomes(Recorder(), jobs, utility_of(chain), render, {"t1"}, EXACT)
    values, effects = shapley_effects(outcomes, jobs, EXACT), effects_of(outcomes, jobs)
    pairs = pair_interactions(outcomes, jobs, EXACT)
    with pytest.raises(ValueError, match=r"packet 't1\|m02\|s00' has no replay effect"):
        compare_rce(values, effects.iloc[:2], pairs)
    with pytest.raises(ValueError, match="task 't1' has no pairs"):
        compare_rce(values, effects, pairs.iloc[:0])


@pytest.mark.parametrize("module", ["lib.bandmas.shapley", "lib.bandmas.interactions"])
def test_examples_in_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0 and result.failed == 0
