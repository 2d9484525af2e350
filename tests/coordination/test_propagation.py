"""Proposition 7: products of g while nothing is clipped, a bound always, and when a gap is gone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.propagation import carried_gap, compare_paths, propagate, resolves

# Whole sixty-fourths and eighths: one step is exact in binary, so "zero" means zero.
levels = st.integers(0, 64).map(lambda n: n / 64)
factors = st.integers(0, 12).map(lambda n: n / 8)


@st.composite
def drives(draw: st.DrawFn, most: int = 6) -> tuple[list[float], list[float], list[float]]:
    n = draw(st.integers(1, most))
    return tuple(draw(st.lists(one, min_size=n, max_size=n)) for one in (factors, levels, levels))  # type: ignore[return-value]


def test_worked_trajectories() -> None:
    steps = 4
    drive = ([0.8] * steps, [0.05] * steps, [0.10] * steps)
    table = compare_paths(propagate(0.2, *drive), propagate(0.5, *drive), drive[0])
    assert table["base"].tolist() == pytest.approx([0.2, 0.11, 0.038, 0, 0])
    assert table["perturbed"].tolist() == pytest.approx([0.5, 0.35, 0.23, 0.134, 0.0572])
    assert table["gap"].tolist() == pytest.approx([0.3, 0.24, 0.192, 0.134, 0.0572])
    assert table["carried"].tolist()[1:] == pytest.approx([0.24, 0.192, 0.1536, 0.1072])
    assert table["regime"].tolist() == ["start", "carry", "carry", "clipped", "clipped"]


@given(drives(), levels, levels)
def test_the_gap_is_at_most_g_times_the_last_one(
    drive: tuple[list[float], list[float], list[float]], first: float, second: float
) -> None:
    table = compare_paths(propagate(first, *drive), propagate(second, *drive), drive[0])
    assert (table["gap"].abs()[1:] <= table["carried"].abs()[1:] + 1e-12).all()


@given(drives(), levels, levels)
def test_unclipped_runs_carry_the_product_of_g(
    drive: tuple[list[float], list[float], list[float]], first: float, second: float
) -> None:
    base, perturbed = (propagate(start, *drive, maximum=1e6) for start in (first, second))
    touched = (base.clipped | perturbed.clipped).any()
    gap = perturbed.residual - base.residual
    if not touched:
        assert np.allclose(gap, carried_gap(second - first, drive[0]), atol=1e-9)
    untouched = int(np.argmax(base.clipped | perturbed.clipped)) if touched else len(drive[0])
    assert np.allclose(gap[: untouched + 1], carried_gap(second - first, drive[0])[: untouched + 1], atol=1e-9)


@given(levels, levels, st.integers(1, 12).map(lambda n: n / 8), levels, levels)
def test_a_gap_is_gone_iff_the_perturbed_run_is_repaired(
    first: float, second: float, g: float, d: float, k: float
) -> None:
    low, high = sorted((first, second))
    base, perturbed = (propagate(start, [g], [d], [k], maximum=1e6) for start in (low, high))
    gap = perturbed.residual[1] - base.residual[1]
    assert (gap == 0) == (resolves(g, high, d, k) or low == high)


def test_repair_of_exactly_what_is_left_is_enough() -> None:
    base, perturbed = (propagate(start, [1.0], [0.0], [0.5]) for start in (0.25, 0.5))
    assert resolves(1.0, 0.5, 0.0, 0.5)
    assert perturbed.residual[1] == base.residual[1] == 0 and not perturbed.clipped.any()


def test_a_step_that_carries_nothing_over_ends_a_gap_without_repair() -> None:
    """Why the statement needs g > 0: both runs start anew from the step's own error."""
    base, perturbed = (propagate(start, [0.0], [0.3], [0.1]) for start in (0.2, 0.9))
    assert perturbed.residual[1] == base.residual[1] == pytest.approx(0.2)
    assert not resolves(0.0, 0.9, 0.3, 0.1)


def test_the_ceiling_ends_the_carry_regime_too() -> None:
    drive = ([1.5] * 5, [0.0] * 5, [0.0] * 5)
    table = compare_paths(propagate(0.2, *drive), propagate(0.4, *drive), drive[0])
    assert table["gap"].tolist()[:3] == pytest.approx([0.2, 0.3, 0.45]), "errors grow while g is above 1"
    assert table["regime"].tolist() == ["start", "carry", "carry", "clipped", "merged", "merged"]
    assert table["perturbed"].max() == 1.0


@given(drives(most=4), levels, levels)
def test_a_vector_goes_component_by_component(
    drive: tuple[list[float], list[float], list[float]], first: float, second: float
) -> None:
    both = propagate([first, second], *drive)
    alone = [propagate(start, *drive) for start in (first, second)]
    assert np.array_equal(both.residual, np.stack([one.residual for one in alone], axis=1))
    assert np.array_equal(both.clipped, np.stack([one.clipped for one in alone], axis=1))
    own = propagate([first, second], *(np.stack([one, one], axis=1) for one in map(np.array, drive)))
    assert np.array_equal(own.residual, both.residual)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="have 1, 2 and 1 steps"):
        propagate(0.1, [1.0], [0.0, 0.0], [0.0])
    with pytest.raises(ValueError, match="carry must be at least 0"):
        propagate(0.1, [-0.1], [0.0], [0.0])
    with pytest.raises(ValueError, match="between 0 and maximum=1"):
        propagate(1.5, [1.0], [0.0], [0.0])
