"""Curves through sender gaps: the worked line, weights, knots, zeros, and intercepts of benchmarks."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.coordination import crossing_fits as module
from lib.coordination.crossing import CrossingError, find_crossing
from lib.coordination.crossing_fits import MODELS, FitError, Points, bend_places, columns, fit_curve

TOY = Points((0.1, 0.3, 0.5, 0.7, 0.9), (0.35, 0.22, 0.10, -0.05, -0.18), (1, 1, 1, 1, 1))
anchors = st.lists(
    st.tuples(st.integers(0, 20), st.integers(-20, 20), st.integers(1, 50)),
    min_size=5,
    max_size=9,
    unique_by=lambda a: a[0],
).map(lambda rows: Points(*(tuple(part) for part in zip(*((x / 20, y / 20, n) for x, y, n in rows), strict=True))))


def test_worked_line() -> None:
    line = fit_curve(TOY, "linear")
    assert line.coefficients == pytest.approx((0.4205, -0.665)) and line.crossing == pytest.approx(0.63233, abs=5e-6)
    assert line.crossings == (line.crossing,)
    assert line.variance == pytest.approx(
        sum((y - line.predict(x)) ** 2 for x, y in zip(TOY.x, TOY.y, strict=True)) / 3
    )


@settings(max_examples=25, deadline=None)
@given(anchors)
def test_weights_are_those_of_a_library_fit(points: Points) -> None:
    found = fit_curve(points, "linear")
    wanted = sm.WLS(points.y, sm.add_constant(np.array(points.x)), weights=points.steps).fit()
    assert found.coefficients == pytest.approx(wanted.params, abs=1e-9)
    if found.r2 is not None:
        assert found.r2 == pytest.approx(wanted.rsquared, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(anchors)
def test_more_freedom_never_fits_its_own_points_worse(points: Points) -> None:
    def error(model: str) -> float:
        left = np.array(points.y) - fit_curve(points, model).predict(points.x)  # type: ignore[arg-type]
        return float(np.array(points.steps) @ left**2)

    assert error("constant") >= error("linear") - 1e-9 >= error("hinge") - 2e-9


@settings(max_examples=20, deadline=None)
@given(anchors)
def test_a_single_crossing_is_the_one_of_the_theory(points: Points) -> None:
    """The strict scan of `crossing` reads burden, 1 - x: help must begin where burden is high."""
    fit = fit_curve(points, "hinge")
    try:
        burden = find_crossing(lambda beta: float(fit.predict(1 - beta)), grid=201)
    except CrossingError:
        assert fit.crossing is None or min(abs(fit.predict([0.0, 1.0]))) < 1e-9
    else:
        assert fit.crossing == pytest.approx(1 - burden, abs=1e-8)


def test_a_hinge_finds_its_bend_and_a_parabola_keeps_two_zeros() -> None:
    x = np.linspace(0, 1, 11)
    bent = fit_curve(Points(tuple(x), tuple(0.4 - 0.2 * x - 0.6 * np.maximum(0, x - 0.5)), (1.0,) * 11), "hinge")
    assert bent.knot == pytest.approx(0.5) and bent.coefficients == pytest.approx((0.4, -0.2, -0.6))
    assert bent.crossing == pytest.approx(0.875)
    free = fit_curve(Points(tuple(x), tuple(2 * (x - 0.25) * (x - 0.75)), (1.0,) * 11), "two_crossings")
    assert free.crossings == pytest.approx((0.25, 0.75)) and free.crossing is None
    held = fit_curve(TOY, "two_crossings")
    assert len(held.crossings) == 2 and all(0 < zero < 1 for zero in held.crossings)
    assert held.r2 is not None and held.r2 < (fit_curve(TOY, "linear").r2 or 0)


def test_a_rising_line_has_a_zero_but_no_threshold() -> None:
    rising = fit_curve(Points((0.0, 0.5, 1.0), (-0.5, 0.0, 0.5), (1, 1, 1)), "linear")
    assert rising.crossings == (0.5,) and rising.crossing is None
    assert fit_curve(TOY, "constant").crossings == ()


@given(st.integers(1, 12), st.floats(-0.9, 0.9))
def test_an_intercept_is_shrunk_by_n_over_n_plus_one(count: int, height: float) -> None:
    """One curve through zero elsewhere, one benchmark at `height`: with a constant held at 0 the mean is drawn in."""
    points = Points((0.5,) * count, (height,) * count, (3.0,) * count, ("a",) * count)
    fit = fit_curve(points, "constant")
    left = height - fit.coefficients[0]
    assert fit.intercepts["a"] == pytest.approx(left * count / (count + 1), abs=1e-9)


def test_intercepts_leave_the_slope_to_differences_within_benchmarks() -> None:
    x = np.tile([0.2, 0.4, 0.6], 2)
    shifted = 0.5 - 0.8 * x + np.repeat([0.3, -0.3], 3)
    points = Points(tuple(x), tuple(np.clip(shifted, -1, 1)), (1.0,) * 6, ("a",) * 3 + ("b",) * 3)
    fit = fit_curve(points, "linear")
    assert fit.coefficients == pytest.approx((0.5, -0.8))
    assert fit.intercepts == pytest.approx({"a": 0.3 * 3 / 4, "b": -0.3 * 3 / 4})


@given(anchors, st.randoms())
def test_order_of_anchors_does_not_matter(points: Points, random: object) -> None:
    places = list(range(len(points)))
    random.shuffle(places)  # type: ignore[attr-defined]
    for model in MODELS[:2]:
        assert fit_curve(points.take(places), model).coefficients == pytest.approx(
            fit_curve(points, model).coefficients, abs=1e-9
        )


def test_bends_lie_inside_even_where_most_anchors_share_an_end() -> None:
    assert bend_places([0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5, 1.0]).tolist() == [0.5]
    assert bend_places([0.0, 0.5, 1.0]).min() > 0 and columns("hinge", [0.0, 1.0], 0.5).tolist() == [
        [1, 0, 0],
        [1, 1, 0.5],
    ]


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(FitError, match="a linear fit needs 2 distinct x, there are 1"):
        fit_curve(Points((0.5, 0.5), (0.1, 0.2), (1, 1)), "linear")
    with pytest.raises(FitError, match="no curve; known: constant, linear"):
        fit_curve(TOY, "cubic")  # type: ignore[arg-type]
    with pytest.raises(FitError, match="x must lie in"):
        Points((float("nan"),), (0.1,), (1,))
    with pytest.raises(FitError, match="steps must be above 0"):
        Points((0.5,), (0.1,), (0,))
    with pytest.raises(FitError, match=r"x has 2 values, but \{'y': 1"):
        Points((0.1, 0.2), (0.1,), (1, 1))
    assert fit_curve(Points((0.1, 0.9), (0.1, -0.1), (1, 1)), "linear").variance is None


def test_examples() -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
