"""Held-out comparison of curves, the interval of a crossing, and the count of signs."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from lib.coordination import sender_gap as module
from lib.coordination.crossing_fits import FitError, Points, fit_curve
from lib.coordination.sender_gap import crossing_interval, folds_won, held_out, sign_agreement
from lib.seeds import generator

TOY = Points((0.1, 0.3, 0.5, 0.7, 0.9), (0.35, 0.22, 0.10, -0.05, -0.18), (1, 1, 1, 1, 1))


def many(n: int = 40, *, slope: float = -0.66, noise: float = 0.05, benchmarks: int = 0) -> Points:
    rng = generator("sender gap points", n, slope)
    x = rng.uniform(0.05, 0.95, n)
    names = tuple(f"b{place % benchmarks}" for place in range(n)) if benchmarks else ()
    shift = np.array([0.08 * int(name[1:]) for name in names]) if names else 0
    y = 0.42 + slope * x + shift + rng.normal(0, noise, n)
    return Points(tuple(x), tuple(np.clip(y, -1, 1)), tuple(rng.integers(20, 400, n).astype(float)), names)


def test_a_falling_line_beats_no_threshold_on_anchors_it_never_saw() -> None:
    scores = held_out(many(), range(40))
    assert len(scores) == 40 * 4 and scores.groupby("anchor")["fold"].nunique().eq(1).all()
    won = folds_won(scores).set_index(["model", "against"])
    assert won.loc[("linear", "constant"), "won"] == 10 and won.loc[("constant", "linear"), "won"] == 0
    assert won.loc[("linear", "two_crossings"), "nats"] == -won.loc[("two_crossings", "linear"), "nats"]


def test_no_threshold_is_found_out() -> None:
    won = folds_won(held_out(many(slope=0.0), range(40))).set_index(["model", "against"])
    assert won.loc[("constant", "two_crossings"), "nats"] > 0


def test_a_score_is_the_gaussian_density_of_the_other_folds() -> None:
    points = many(12)
    scores = held_out(points, range(12), models=("linear",), folds=12)
    row = scores.iloc[3]
    place = int(row["anchor"])
    rest = points.take([other for other in range(12) if other != place])
    fit = fit_curve(rest, "linear")
    spread = np.sqrt(fit.variance * np.mean(rest.steps) / points.steps[place])
    assert row["log_score"] == pytest.approx(norm.logpdf(points.y[place], fit.predict(points.x[place]), spread))


def test_a_known_benchmark_is_predicted_with_its_intercept_and_a_new_one_with_more_doubt() -> None:
    points = many(40, benchmarks=4)
    known = held_out(points, range(40), models=("linear",))
    plain = held_out(Points(points.x, points.y, points.steps), range(40), models=("linear",))
    assert known["log_score"].mean() > plain["log_score"].mean() + 0.2
    whole = held_out(points, list(points.groups), models=("linear",), folds=4)
    assert whole["log_score"].mean() < known["log_score"].mean()


def test_points_of_one_anchor_share_a_fold() -> None:
    scores = held_out(many(20), [place // 2 for place in range(20)], models=("linear",), folds=5)
    assert scores.groupby("anchor")["fold"].nunique().eq(1).all() and set(scores["fold"]) == set(range(5))


def test_folds_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(FitError, match="5 anchors cannot be dealt out to 10 folds; use 2 to 5"):
        held_out(TOY, range(5))
    with pytest.raises(FitError, match="3 ids for 5 points"):
        held_out(TOY, range(3))
    with pytest.raises(FitError, match="leave a hinge fit no variance"):
        held_out(TOY, range(5), models=("hinge",), folds=5)


def test_interval_holds_the_truth_and_narrows() -> None:
    wide, narrow = (crossing_interval(many(n), draws=800) for n in (22, 200))
    assert wide.low < 0.42 / 0.66 < wide.high and narrow.high - narrow.low < wide.high - wide.low
    assert wide.dropped == 0 and wide.crossing == fit_curve(many(22), "linear").crossing
    bent = crossing_interval(many(22), model="hinge", draws=800)
    assert bent.high - bent.low >= wide.high - wide.low, "more freedom, wider interval"


def test_resamples_without_a_threshold_are_dropped_and_counted() -> None:
    flat = Points((0.1, 0.3, 0.5, 0.7, 0.9), (0.1, -0.1, 0.1, -0.1, 0.12), (1, 1, 1, 1, 1))
    found = crossing_interval(flat, draws=500)
    assert 0.2 < found.dropped < 0.9 and found.crossing is None
    rising = Points((0.1, 0.5, 0.9), (-0.2, 0.0, 0.2), (1, 1, 1))
    none = crossing_interval(rising, draws=100)
    assert (none.low, none.high, none.dropped) == (None, None, 1.0)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 1000), st.sampled_from(["linear", "hinge"]))
def test_each_resample_is_the_fit_of_its_own_points(seed: int, model: str) -> None:
    from lib.coordination.sender_gap import _crossings

    points = many(9)
    pick = np.random.default_rng(seed).integers(0, 9, 9)
    counts = np.bincount(pick, minlength=9)[None]
    found = float(_crossings(points, model, counts)[0])
    if model == "linear" and len(set(pick)) > 1:
        own = fit_curve(points.take(np.sort(pick)), "linear").crossing
        assert found == pytest.approx(own) if own is not None else np.isnan(found)
    if model == "hinge" and not np.isnan(found):
        assert 0 <= found <= 1


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(-3, 3)), min_size=1, max_size=12))
def test_signs_are_counted_at_the_best_cut(rows: list[tuple[int, int]]) -> None:
    points = Points(tuple(x / 10 for x, _ in rows), tuple(y / 10 for _, y in rows), (1.0,) * len(rows))
    moving = [(x / 10, y) for x, y in rows if y]
    if not moving:
        with pytest.raises(FitError, match="every effect is zero"):
            sign_agreement(points)
        return
    found = sign_agreement(points)
    cuts = [-1.0, *(x for x, _ in moving)]
    assert found.agree == max(sum((x <= cut) == (y > 0) for x, y in moving) for cut in cuts)
    assert found.nonzero == len(moving) and 0 <= found.low <= found.high <= 1
    assert found.agree >= len(moving) / 2, "one side alone holds at least half"


def test_worked_signs() -> None:
    assert sign_agreement(TOY).agree == 5 and sign_agreement(TOY).low == 0.5 and sign_agreement(TOY).high == 0.7


def test_other_curves_and_levels_are_refused() -> None:
    with pytest.raises(FitError, match="has no single crossing"):
        crossing_interval(TOY, model="constant")  # type: ignore[arg-type]
    with pytest.raises(FitError, match="level"):
        crossing_interval(TOY, level=1.0)


def test_examples() -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
