"""Shapley values: the axioms on random games, worked games, circles, packet sets, one call, nulls."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lib.bandmas.replay import LeakError, effects_of, replay_outcomes
from lib.bandmas.shapley import (
    ShapleyPlan,
    arcs,
    circle_values,
    circles_of,
    coalition_outcomes,
    coalition_worths,
    coalitions,
    sampled_values,
    shapley_effects,
    shapley_values,
)
from lib.models import Prompt
from tests.bandmas.games import Points, Recorder, echo, packets_of, render, task, utility_of

EXACT = ShapleyPlan(exact_max=6)
SAMPLED = ShapleyPlan(exact_max=2, circles=5)


@st.composite
def games(draw: st.DrawFn, least: int = 1, most: int = 5) -> np.ndarray:
    n = draw(st.integers(least, most))
    return draw(arrays(float, 2**n, elements=st.floats(-1, 1, allow_nan=False, width=32)))


def players(table: np.ndarray) -> int:
    return table.size.bit_length() - 1


def by_definition(table: np.ndarray) -> np.ndarray:
    """The mean over all arrival orders, written out."""
    n = players(table)
    total = np.zeros(n)
    for order in itertools.permutations(range(n)):
        arrived = 0
        for player in order:
            total[player] += table[arrived | 1 << player] - table[arrived]
            arrived |= 1 << player
    return total / math.factorial(n)


def members(mask: int) -> list[int]:
    return [k for k in range(mask.bit_length()) if mask >> k & 1]


def swapped(mask: int, i: int, j: int) -> int:
    return mask if (mask >> i & 1) == (mask >> j & 1) else mask ^ (1 << i | 1 << j)


def airport(costs: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """A runway must be as long as its largest user needs: worth and Shapley values in closed form (costs ascending)."""
    n = len(costs)
    table = np.array([max((costs[k] for k in members(mask)), default=0.0) for mask in range(2**n)])
    steps = np.diff([0.0, *costs])
    return table, np.cumsum([step / (n - k) for k, step in enumerate(steps)])


# ----------------------------------------------------------------------------------------------------------------- axioms


@given(games())
def test_values_are_the_mean_over_all_arrival_orders(table: np.ndarray) -> None:
    assert np.allclose(shapley_values(table), by_definition(table), atol=1e-12)


@given(games(most=7))
def test_efficiency(table: np.ndarray) -> None:
    assert shapley_values(table).sum() == pytest.approx(table[-1] - table[0], abs=1e-9)


@given(games(least=2), st.data())
def test_symmetry(table: np.ndarray, data: st.DataObject) -> None:
    i, j = data.draw(st.permutations(range(players(table))))[:2]
    equal = np.array([(table[mask] + table[swapped(mask, i, j)]) / 2 for mask in range(table.size)])
    values = shapley_values(equal)
    assert values[i] == pytest.approx(values[j], abs=1e-12)


@given(games(), st.data())
def test_dummy(table: np.ndarray, data: st.DataObject) -> None:
    """A player that always adds the same amount gets that amount, 0 included; the others are not touched by it."""
    n, amount = players(table), data.draw(st.sampled_from([0.0, 0.25, -1.0]))
    player = data.draw(st.integers(0, n - 1))
    dull = np.array([table[mask & ~(1 << player)] + amount * (mask >> player & 1) for mask in range(table.size)])
    values = shapley_values(dull)
    assert values[player] == pytest.approx(amount, abs=1e-12)
    rest = np.array([dull[mask] for mask in range(table.size) if not mask >> player & 1])
    assert np.allclose(np.delete(values, player), shapley_values(rest) if n > 1 else [], atol=1e-12)


@given(games(), st.data())
def test_additivity(table: np.ndarray, data: st.DataObject) -> None:
    other = data.draw(arrays(float, table.size, elements=st.floats(-1, 1, allow_nan=False, width=32)))
    both = shapley_values(2 * table + other)
    assert np.allclose(both, 2 * shapley_values(table) + shapley_values(other), atol=1e-12)


# ----------------------------------------------------------------------------------------------------------- worked games


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_substitutes_and_complements_share_equally(n: int) -> None:
    either = [float(mask > 0) for mask in range(2**n)]
    every = [float(mask == 2**n - 1) for mask in range(2**n)]
    assert shapley_values(either) == pytest.approx([1 / n] * n)
    assert shapley_values(every) == pytest.approx([1 / n] * n)


def test_left_and_right_gloves() -> None:
    """One left glove (player 0) and two right ones: 2/3, 1/6, 1/6 (Shapley 1953's market, worked in textbooks)."""
    pair = [float(mask & 1 and mask & 6 and 1) for mask in range(8)]
    assert shapley_values(pair) == pytest.approx([2 / 3, 1 / 6, 1 / 6])


def test_airport_in_closed_form() -> None:
    table, known = airport([1, 2, 2, 5, 7, 7.5])
    assert shapley_values(table) == pytest.approx(known)
    assert known[:2].tolist() == pytest.approx([1 / 6, 1 / 6 + 1 / 5])


def test_a_game_without_players_and_a_table_of_no_game() -> None:
    assert shapley_values([0.5]).tolist() == []
    for wrong in ([], [0, 1, 2], [[0, 1], [1, 2]]):
        with pytest.raises(ValueError, match=r"one worth for each of its 2\^n sets"):
            shapley_values(wrong)


# ---------------------------------------------------------------------------------------------------------------- circles


@given(games(least=2, most=5))
@settings(max_examples=30)
def test_the_mean_over_all_circles_is_the_shapley_value(table: np.ndarray) -> None:
    """Unbiased, proved by listing every circle."""
    every = [circle_values(table.__getitem__, circle) for circle in itertools.permutations(range(players(table)))]
    assert np.allclose(np.mean(every, axis=0), shapley_values(table), atol=1e-9)


@given(games(least=1, most=6), st.data())
def test_every_circle_keeps_efficiency_and_reads_its_arcs_alone(table: np.ndarray, data: st.DataObject) -> None:
    circle = data.draw(st.permutations(range(players(table))))
    read = set()

    def worth(mask: int) -> float:
        read.add(mask)
        return float(table[mask])

    assert circle_values(worth, circle).sum() == pytest.approx(table[-1] - table[0], abs=1e-9)
    n = len(circle)
    assert read == arcs(circle)
    assert len(read) == (n * (n - 1) + 2 if n > 1 else 2)


@given(games(least=1, most=3), st.data())
def test_one_circle_is_exact_up_to_three_players(table: np.ndarray, data: st.DataObject) -> None:
    circle = data.draw(st.permutations(range(players(table))))
    assert np.allclose(circle_values(table.__getitem__, circle), shapley_values(table), atol=1e-9)


@pytest.mark.parametrize("n", [5, 9])
def test_one_circle_is_exact_where_only_the_count_matters(n: int) -> None:
    majority = [float(mask.bit_count() > n / 2) for mask in range(2**n)]
    (circle,) = circles_of(n, 1, "any")
    assert circle_values(majority.__getitem__, circle) == pytest.approx([1 / n] * n)


def test_sampling_is_unbiased_within_its_standard_error_on_a_known_game() -> None:
    """Airport of eight, values in closed form. The mean of 400 circles lies within four of its standard errors."""
    table, known = airport([0.1, 0.15, 0.2, 0.35, 0.4, 0.7, 0.8, 1.0])
    mean, error = sampled_values(table.__getitem__, circles_of(8, 400, "airport"))
    assert (error > 0).sum() >= 6
    assert (np.abs(mean - known) <= 4 * error + 1e-12).all()
    assert (error < 0.004).all()


def test_the_standard_error_is_as_large_as_the_errors_made() -> None:
    """300 samples of five circles: the mean squared error is the mean squared standard error; one interval in twenty misses."""
    table, known = airport([0.1, 0.15, 0.2, 0.35, 0.4, 0.7, 0.8, 1.0])
    table = table + np.random.default_rng(0).normal(0, 0.1, table.size)
    known = shapley_values(table)
    misses, spread, claimed = [], [], []
    for sample in range(300):
        mean, error = sampled_values(table.__getitem__, circles_of(8, 5, "coverage", sample))
        misses.append(np.abs(mean - known) > 2.776 * error)  # t, 4 degrees of freedom, 95 %
        spread.append((mean - known) ** 2)
        claimed.append(error**2)
    assert 0.03 < np.mean(misses) < 0.07
    assert np.mean(spread) == pytest.approx(np.mean(claimed), rel=0.1)


def test_circles_are_named_by_seed_and_task() -> None:
    assert circles_of(6, 3, 0, "t1") == circles_of(6, 3, 0, "t1")
    assert circles_of(6, 5, 0, "t1")[:3] == circles_of(6, 3, 0, "t1"), "more circles keep the first ones"
    assert circles_of(6, 3, 0, "t1") != circles_of(6, 3, 0, "t2") != circles_of(6, 3, 1, "t2")
    assert all(sorted(circle) == list(range(6)) for circle in circles_of(6, 3, 0, "t1"))


# ---------------------------------------------------------------------------------------------------------------- packets


def bridge(_: str, slots: frozenset[int]) -> tuple[float, float]:
    """The answer needs slot 1 and one of 0 and 2; each of 0 and 1 is half the evidence."""
    return float(1 in slots and bool(slots & {0, 2})), 0.5 * len(slots & {0, 1})


def table_of(count: int, part: int) -> list[float]:
    return [bridge("", frozenset(members(mask)))[part] for mask in range(2**count)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5])
def test_few_packets_are_asked_in_all_their_subsets_once(count: int) -> None:
    receiver = Recorder()
    outcomes = coalition_outcomes(
        receiver, [(task(), packets_of("t1", count))], utility_of(bridge), render, {"t1"}, EXACT
    )
    assert [len(batch) for batch in receiver.batches] == [2**count]
    assert len(set(receiver.batches[0])) == len(outcomes) == 2**count
    assert outcomes["n_sent"].tolist() == [len(ids) for ids in outcomes["packet_ids"]]


def test_all_jobs_go_in_one_call_with_neighbours_that_begin_alike() -> None:
    receiver = Recorder()
    jobs = [(task(f"t{i}"), packets_of(f"t{i}", i)) for i in range(8)]
    outcomes = coalition_outcomes(
        receiver, jobs, utility_of(bridge), render, {f"t{i}" for i in range(8)}, ShapleyPlan(exact_max=4, circles=2)
    )
    assert len(receiver.batches) == 1
    sizes = outcomes.groupby("task_id").size().to_dict()
    assert {name: sizes[name] for name in ("t0", "t1", "t4")} == {"t0": 1, "t1": 2, "t4": 16}
    assert sizes["t5"] == 32, "pairs and all but pairs are every subset of five"
    assert sizes["t7"] < 2**7
    for _, ids in outcomes.groupby("task_id")["packet_ids"]:
        assert ids.tolist() == sorted(set(ids))


def test_many_packets_are_asked_in_contexts_pairs_and_arcs() -> None:
    plan, packets = ShapleyPlan(exact_max=4, circles=3, seed=7), packets_of("t1", 9)
    asked = set(coalitions("t1", packets, plan))
    ids = [packet.packet_id for packet in packets]
    sizes = np.bincount([len(one) for one in asked])
    assert sizes[[0, 1, 2, 7, 8, 9]].tolist() == [1, 9, 36, 36, 9, 1]
    assert (sizes[3:7] <= 3 * 9).all() and (sizes[3:7] > 9).all()
    for circle in circles_of(9, 3, 7, "t1"):
        assert {tuple(ids[k] for k in members(arc)) for arc in arcs(circle)} <= asked
    assert asked < set(coalitions("t1", packets, ShapleyPlan(exact_max=4, circles=4, seed=7))), "a larger plan adds"


@pytest.mark.parametrize("part", ["utility", "task_utility", "evidence_utility"])
def test_exact_effects_are_the_values_of_the_game(part: str) -> None:
    jobs = [(task(), packets_of("t1", 4))]
    outcomes = coalition_outcomes(Recorder(), jobs, utility_of(bridge), render, {"t1"}, EXACT)
    effects = shapley_effects(outcomes, jobs, EXACT, part=part)
    tables = {"task_utility": np.array(table_of(4, 0)), "evidence_utility": np.array(table_of(4, 1))}
    tables["utility"] = (tables["task_utility"] + tables["evidence_utility"]) / 2
    assert effects["shapley"].tolist() == pytest.approx(shapley_values(tables[part]).tolist())
    assert effects["shapley"].sum() == pytest.approx(1.0)
    assert (effects["low"] == effects["shapley"]).all() and (effects["high"] == effects["shapley"]).all()
    assert effects["method"].tolist() == ["exact"] * 4 and (effects["standard_error"] == 0).all()
    assert (effects["u_full"] == 1).all() and (effects["u_empty"] == 0).all()


def test_task_utility_by_hand() -> None:
    """Slot 1 is needed, 0 and 2 stand in for each other: the gloves, 2/3 and twice 1/6; slot 3 is idle."""
    jobs = [(task(), packets_of("t1", 4))]
    outcomes = coalition_outcomes(Recorder(), jobs, utility_of(bridge), render, {"t1"}, EXACT)
    values = shapley_effects(outcomes, jobs, EXACT, part="task_utility")["shapley"]
    assert values.tolist() == pytest.approx([1 / 6, 2 / 3, 1 / 6, 0])


def test_sampled_effects_bracket_the_exact_ones_and_sum_to_the_whole() -> None:
    jobs = [(task(), packets_of("t1", 7))]
    worth = utility_of(bridge)
    plan = ShapleyPlan(exact_max=2, circles=12)
    outcomes = coalition_outcomes(Recorder(), jobs, worth, render, {"t1"}, plan)
    sampled = shapley_effects(outcomes, jobs, plan)
    table = (np.array(table_of(7, 0)) + np.array(table_of(7, 1))) / 2
    exact = shapley_values(table)
    assert sampled["method"].unique().tolist() == ["sampled"]
    assert sampled["shapley"].sum() == pytest.approx(1.0)
    inside = (sampled["low"] <= exact + 1e-12) & (exact <= sampled["high"] + 1e-12)
    assert inside.sum() >= 6
    assert np.abs(sampled["shapley"] - exact).max() < 0.06
    first, wide = sampled.iloc[0], shapley_effects(outcomes, jobs, plan, level=0.99).iloc[0]
    # Student's t with 11 degrees of freedom, two-sided.
    assert [(one["high"] - one["shapley"]) / one["standard_error"] for one in (first, wide)] == pytest.approx(
        [2.201, 3.106], abs=1e-3
    )
    assert first["shapley"] - first["low"] == pytest.approx(first["high"] - first["shapley"])
    assert sampled["shapley"].tail(4).abs().max() < 1e-12, "idle packets stay at 0 in every circle"


def test_packet_order_given_does_not_matter() -> None:
    packets = packets_of("t1", 5)
    frames = []
    for given_packets in (packets, packets[::-1]):
        jobs = [(task(), given_packets)]
        outcomes = coalition_outcomes(Recorder(), jobs, utility_of(bridge), render, {"t1"}, SAMPLED)
        frames.append(shapley_effects(outcomes, jobs, SAMPLED))
    assert frames[0].equals(frames[1])


def test_replay_effects_are_read_from_the_same_outcomes() -> None:
    jobs = [(task(), packets_of("t1", 5))]
    ask = (jobs, utility_of(bridge), render, {"t1"})
    replayed = replay_outcomes(Recorder(), *ask)
    for plan in (EXACT, SAMPLED):
        outcomes = coalition_outcomes(Recorder(), *ask, plan)
        assert effects_of(outcomes, jobs).equals(effects_of(replayed, jobs))
        assert set(replayed["prompt_key"]) <= set(outcomes["prompt_key"])


def test_a_failed_call_is_null_for_the_values_that_need_it() -> None:
    def broken(prompt: Prompt) -> str:
        if json.loads(prompt.turns[-1].text)[1] == ["t1|m00|s00"]:
            raise RuntimeError("out of memory")
        return echo(prompt)

    jobs = [(task(), packets_of("t1", 3)), (task("t2"), packets_of("t2", 3))]
    for plan in (EXACT, SAMPLED):
        outcomes = coalition_outcomes(Recorder(broken), jobs, utility_of(bridge), render, {"t1", "t2"}, plan)
        assert outcomes["error"].notna().sum() == 1
        effects = shapley_effects(outcomes, jobs, plan)
        assert effects["shapley"].isna().tolist() == [True] * 3 + [False] * 3
        assert effects[["standard_error", "low", "high"]].isna().all(axis=1).tolist() == [True] * 3 + [False] * 3


def test_an_evidence_part_that_does_not_apply_is_null() -> None:
    def score(task_id: str, raw: str) -> Points:
        count = len(json.loads(raw)[1])
        return Points(count / 2, count / 2, None)

    jobs = [(task(), packets_of("t1", 2))]
    outcomes = coalition_outcomes(Recorder(), jobs, score, render, {"t1"}, EXACT)
    assert shapley_effects(outcomes, jobs, EXACT)["shapley"].tolist() == [0.5, 0.5]
    assert shapley_effects(outcomes, jobs, EXACT, part="evidence_utility")["shapley"].isna().all()


def test_no_packet_no_row() -> None:
    jobs = [(task(), packets_of("t1", 0))]
    outcomes = coalition_outcomes(Recorder(), jobs, utility_of(bridge), render, {"t1"}, EXACT)
    effects = shapley_effects(outcomes, jobs, EXACT)
    assert len(outcomes) == 1 and effects.empty and "shapley" in effects.columns
    receiver = Recorder()
    assert coalition_outcomes(receiver, [], utility_of(bridge), render, set(), EXACT).empty
    assert receiver.calls == 0


def test_what_does_not_fit_is_refused_by_name() -> None:
    jobs, receiver = [(task(), packets_of("t1", 7))], Recorder()
    with pytest.raises(LeakError, match="'t1' is not in the profile or validation part"):
        coalition_outcomes(receiver, jobs, utility_of(bridge), render, {"t2"}, EXACT)
    assert receiver.calls == 0
    outcomes = coalition_outcomes(receiver, jobs, utility_of(bridge), render, {"t1"}, SAMPLED)
    for other in (ShapleyPlan(exact_max=7), ShapleyPlan(exact_max=2, circles=5, seed=1)):
        with pytest.raises(ValueError, match=r"task 't1': a set of \d packets was not asked"):
            shapley_effects(outcomes, jobs, other)
    with pytest.raises(ValueError, match="part must be one of utility"):
        coalition_worths(outcomes, jobs, "bytes")
    with pytest.raises(ValueError, match=r"exact_max must be 0 to 16 packets, not 17"):
        ShapleyPlan(exact_max=17)
    with pytest.raises(ValueError, match="circles must be at least 2, not 1"):
        ShapleyPlan(circles=1)
