"""Inference: the specification's worked values, cases 48 and 50, and agreement with independent implementations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lib.evaluation import (
    hierarchical_bootstrap,
    holm,
    mcnemar_exact,
    paired_effect,
    sign_flip_test,
    spearman,
    task_cluster_bootstrap,
    task_means,
    wilson,
)

SMALL = st.lists(st.floats(-1, 1).map(lambda value: round(value, 3)), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"), [(64, 72, 0.7958, 0.9426), (195, 300, 0.5944, 0.7018), (0, 20, 0.0, 0.1611)]
)
def test_wilson_worked_values(k: int, n: int, low: float, high: float) -> None:
    assert wilson(k, n) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_wilson_edges() -> None:
    assert all(math.isnan(bound) for bound in wilson(0, 0))
    assert wilson(20, 20)[1] == pytest.approx(1.0)
    with pytest.raises(ValueError, match="5 successes of 4"):
        wilson(5, 4)


@pytest.mark.parametrize(
    ("b", "c", "p", "digits"),
    [
        (3, 9, 0.1460, 4),
        (0, 5, 0.0625, 4),
        (1, 7, 0.0703, 4),
        (10, 2, 0.0386, 4),
        (20, 3, 0.000488, 6),
        (6, 6, 1.0, 6),
        (0, 0, 1.0, 6),
    ],
)
def test_mcnemar_worked_values(b: int, c: int, p: float, digits: int) -> None:
    assert round(mcnemar_exact(b, c), digits) == p
    assert mcnemar_exact(c, b) == mcnemar_exact(b, c)


def test_mcnemar_is_the_binomial_sum_of_the_specification() -> None:
    for b, c in itertools.product(range(8), repeat=2):
        n = b + c
        expected = 1.0 if n == 0 else min(1.0, 2 * sum(math.comb(n, i) for i in range(min(b, c) + 1)) / 2**n)
        assert mcnemar_exact(b, c) == pytest.approx(expected)
    with pytest.raises(ValueError, match="-1"):
        mcnemar_exact(-1, 2)


def test_holm_worked_values() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005, 0.5, 0.02]).tolist() == pytest.approx([0.05, 0.09, 0.09, 0.03, 0.5, 0.08])


def test_holm_leaves_unknown_tests_out_of_the_family() -> None:
    adjusted = holm([0.01, math.nan, 0.04])
    assert adjusted[[0, 2]].tolist() == pytest.approx([0.02, 0.04])
    assert math.isnan(adjusted[1])
    assert holm([]).tolist() == []
    assert np.isnan(holm([math.nan])).all()
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        holm([1.2])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_and_keeps_their_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert (adjusted >= np.array(p_values) - 1e-15).all()
    assert (adjusted <= 1).all()
    assert (np.diff(adjusted[np.argsort(p_values, kind="stable")]) >= 0).all()


def test_sign_flip_worked_value() -> None:
    result = sign_flip_test([0.2, 0.1, 0.3])
    assert (result.p, result.exact, result.patterns, result.n) == (0.25, True, 8, 3)
    assert result.mean == pytest.approx(0.2)


@given(SMALL)
def test_exact_sign_flips_match_enumeration(values: list[float]) -> None:
    observed = abs(math.fsum(values))
    patterns = itertools.product((1, -1), repeat=len(values))
    hits = sum(
        abs(math.fsum(s * v for s, v in zip(signs, values, strict=True))) >= observed - 1e-9 for signs in patterns
    )
    assert sign_flip_test(values).p == hits / 2 ** len(values)


def test_exact_sign_flips_match_scipy() -> None:
    values = np.array([0.3, -0.1, 0.25, 0.4, 0.05, -0.2, 0.15])
    expected = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert sign_flip_test(values).p == pytest.approx(expected)


def test_random_sign_flips_have_the_plus_one_and_agree_with_the_exact_test() -> None:
    values = np.linspace(-0.4, 0.6, 14)
    exact = sign_flip_test(values)
    drawn = sign_flip_test(values, exact_up_to=0)
    assert (exact.exact, drawn.exact, drawn.patterns) == (True, False, 20_000)
    assert drawn.p == pytest.approx(exact.p, abs=0.02)
    strong = sign_flip_test(np.ones(40) + np.arange(40) / 100)
    assert strong.p == 1 / 20_001
    assert sign_flip_test(values, exact_up_to=0).p == drawn.p
    assert len({sign_flip_test(values, exact_up_to=0, seed=seed).p for seed in range(5)}) > 2


def test_sixteen_tasks_are_exact_and_seventeen_are_drawn() -> None:
    assert sign_flip_test(np.ones(16)).p == 2 / 2**16
    assert not sign_flip_test(np.ones(17)).exact


def test_sign_flip_edges() -> None:
    assert sign_flip_test([0.0, 0.0]).p == 1.0
    assert sign_flip_test(np.zeros(30)).p == 1.0
    assert math.isnan(sign_flip_test([]).p)
    with pytest.raises(ValueError, match="1 missing"):
        sign_flip_test([0.1, math.nan])


def test_bootstrap_agrees_with_the_normal_interval() -> None:
    values = np.random.default_rng(1).normal(0.3, 1.0, 400)
    result = task_cluster_bootstrap(values, range(400))
    half = 1.96 * values.std(ddof=1) / 20
    assert result.estimate == pytest.approx(values.mean())
    assert result.low == pytest.approx(values.mean() - half, abs=0.02)
    assert result.high == pytest.approx(values.mean() + half, abs=0.02)
    assert (result.n_clusters, result.n_rows, result.resamples, result.level) == (400, 400, 10_000, 0.95)


def test_case_48_paired_data_are_resampled_as_pairs() -> None:
    """Case 48: pre = subject, post = pre + 1 exactly: the paired interval has no width around 1."""
    pre = np.arange(20, dtype=float) ** 2
    result = task_cluster_bootstrap((pre + 1) - pre, range(20))
    assert (result.estimate, result.low, result.high) == (1.0, 1.0, 1.0)
    spread = task_cluster_bootstrap(pre + 1, range(20))
    assert spread.high - spread.low > 50  # what resampling one side alone would have shown


def test_case_50_same_weights_in_the_mean_and_its_interval() -> None:
    """Case 50: three tasks of 5, 50 and 500 rows. Each weighting has its own mean, inside its own interval."""
    tasks = np.repeat(["a", "b", "c"], [5, 50, 500])
    values = np.repeat([0.0, 0.5, 1.0], [5, 50, 500])
    equal, by_row = (task_cluster_bootstrap(values, tasks, weights=weights) for weights in ("task", "row"))
    assert equal.estimate == pytest.approx(0.5)
    assert by_row.estimate == pytest.approx(525 / 555)
    for result in (equal, by_row):
        assert result.low <= result.estimate <= result.high
        assert (result.low, result.high) == (0.0, 1.0)
    assert equal.estimator != by_row.estimator
    # Without clusters the row mean would look certain.
    assert task_cluster_bootstrap(values, range(555)).low > 0.9


def test_case_50_repeats_do_not_narrow_the_interval() -> None:
    """Case 50: 10 repeats of 30 items say as much as the 30 items."""
    items = np.random.default_rng(2).normal(size=30)
    once = task_cluster_bootstrap(items, range(30))
    repeated = task_cluster_bootstrap(np.tile(items, 10), np.tile(np.arange(30), 10))
    assert repeated.estimate == pytest.approx(once.estimate)
    assert repeated.high - repeated.low == pytest.approx(once.high - once.low)
    assert (repeated.n_clusters, repeated.n_rows) == (30, 300)
    naive = task_cluster_bootstrap(np.tile(items, 10), range(300))
    assert naive.high - naive.low < 0.5 * (repeated.high - repeated.low)


@settings(deadline=None, max_examples=30)
@given(SMALL, st.integers(0, 3), st.sampled_from(["task", "row"]))
def test_interval_stays_within_the_task_means(values: list[float], seed: int, weights: str) -> None:
    tasks = [index // 2 for index in range(len(values))]
    result = task_cluster_bootstrap(values, tasks, weights=weights, resamples=200, seed=seed)
    means = task_means(values, tasks)
    assert means.min() - 1e-9 <= result.low <= result.high <= means.max() + 1e-9
    assert result == task_cluster_bootstrap(values, tasks, weights=weights, resamples=200, seed=seed)


def test_many_rows_are_drawn_in_pieces() -> None:
    values = np.random.default_rng(3).normal(size=3000)
    result = task_cluster_bootstrap(values, range(3000), resamples=3000)
    assert result.low < result.estimate < result.high


def test_task_means_average_repeats_in_order() -> None:
    means = task_means([1.0, 5.0, 3.0], ["b", "a", "b"])
    assert means.to_dict() == {"b": 2.0, "a": 5.0}
    assert means.index.tolist() == ["b", "a"]


@pytest.mark.parametrize(
    ("values", "tasks", "message"),
    [
        ([], [], "no values"),
        ([1.0, math.nan], [1, 2], "1 missing"),
        ([1.0], [1, 2], "1 values for 2 task ids"),
        ([[1.0]], [1], "one-dim"),
    ],
)
def test_bad_input_is_named(values: list, tasks: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task_cluster_bootstrap(values, tasks)


def test_bad_options_are_named() -> None:
    with pytest.raises(ValueError, match="weights"):
        task_cluster_bootstrap([1.0], [1], weights="item")
    with pytest.raises(ValueError, match="level"):
        task_cluster_bootstrap([1.0], [1], level=95)


def test_spearman_uses_average_ranks_and_is_nan_when_constant() -> None:
    assert spearman([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(4.5 / math.sqrt(22.5))
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))
    assert math.isnan(spearman([1], [1]))
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)


def test_paired_effect_by_hand() -> None:
    assert paired_effect([0.1, 0.3, 0.2]) == pytest.approx(0.2 / 0.1)
    assert math.isnan(paired_effect([0.1, 0.1, 0.1]))
    assert math.isnan(paired_effect([0.5]))
    assert math.isnan(paired_effect([]))


def three_seeds(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return np.concatenate([rng.normal(shift, 1.0, n) for shift in (0.0, 0.5, 1.0)]), np.repeat([0, 1, 2], n)


def test_hierarchical_estimate_is_the_mean_of_seed_statistics() -> None:
    values, seeds = three_seeds()
    mean = hierarchical_bootstrap(values, seeds)
    p95 = hierarchical_bootstrap(values, seeds, statistic="p95")
    assert mean.estimate == pytest.approx(np.mean([values[seeds == s].mean() for s in range(3)]))
    assert p95.estimate == pytest.approx(np.mean([np.quantile(values[seeds == s], 0.95) for s in range(3)]))
    assert mean.low < mean.estimate < mean.high
    assert mean.resamples == 2000
    assert "seeds resampled, then tasks" in mean.estimator


def test_hierarchical_band_has_both_layers() -> None:
    """Its variance is that of seed means over three draws plus that of tasks within seeds."""
    values, seeds = three_seeds(400)
    band = hierarchical_bootstrap(values, seeds, resamples=20_000)
    means = [values[seeds == s].mean() for s in range(3)]
    within = np.mean([values[seeds == s].var() / 400 for s in range(3)])
    expected = 2 * 1.96 * math.sqrt((np.var(means) + within) / 3)
    assert band.high - band.low == pytest.approx(expected, rel=0.1)
    only_tasks = hierarchical_bootstrap(values, np.zeros(len(values)))
    assert only_tasks.high - only_tasks.low < 0.5 * (band.high - band.low)


def test_moving_blocks_widen_the_band_of_autocorrelated_values() -> None:
    rng = np.random.default_rng(7)
    values = np.repeat(rng.normal(size=40), 10)  # runs of ten equal values, as a queue makes
    single = hierarchical_bootstrap(values, np.zeros(400))
    blocks = hierarchical_bootstrap(values, np.zeros(400), block=10)
    assert blocks.high - blocks.low > 2 * (single.high - single.low)
    assert blocks.estimate == single.estimate
    assert "moving blocks of 10" in blocks.estimator


def test_block_longer_than_a_seed_is_the_whole_seed() -> None:
    result = hierarchical_bootstrap([1.0, 2.0, 3.0], [0, 0, 0], block=50)
    assert (result.low, result.high) == (2.0, 2.0)


def test_hierarchical_options_are_named() -> None:
    for options, message in (({"statistic": "median"}, "statistic"), ({"block": 0}, "block")):
        with pytest.raises(ValueError, match=message):
            hierarchical_bootstrap([1.0], [0], **options)
    with pytest.raises(ValueError, match="1 values for 2 seeds"):
        hierarchical_bootstrap([1.0], [0, 1])
