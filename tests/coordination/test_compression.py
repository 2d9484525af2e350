"""Compression against raw context: the identity, its two parts, the sufficient condition, and the case that never loses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lib.coordination.compression import Compression, compare_compression
from lib.coordination.gain import OneStep, one_step
from lib.coordination.laws import Law, zero_one
from lib.coordination.random_laws import compression_draws
from tests.coordination.strategies import M, X, Z, classes, kernels, losses, sources

S = 4


@st.composite
def comparisons(draw: st.DrawFn) -> Compression:
    law, loss, silent = draw(sources(n_s=S)), draw(losses()), draw(kernels(X, Z))
    short = law.with_variable("m", ("s", "x"), draw(kernels(S, X, M)))
    whole = law.with_variable("m", ("s",), np.arange(S))
    steps = [
        one_step(seen, draw(classes(n_m=n)), draw(kernels(X, n, Z)), silent, loss)
        for seen, n in ((short, M), (whole, S))
    ]
    return compare_compression(short, *steps, loss)


@given(comparisons(), st.floats(-1, 6))
def test_compression_wins_iff_the_tax_saved_exceeds_the_gap(one: Compression, kappa: float) -> None:
    assert one.advantage == pytest.approx(one.tax_saved - one.gap, abs=1e-9)
    assert one.gap == pytest.approx(one.omitted + one.mismatch, abs=1e-9)
    assert one.omitted >= -1e-12
    if one.surely_wins(kappa):
        assert one.advantage > -1e-9


@given(comparisons(), st.floats(1e-6, 1))
def test_the_sufficient_condition_needs_only_a_bound_on_the_gap(one: Compression, room: float) -> None:
    cheaper = OneStep(
        one.compressed.silent_best,
        one.compressed.message_best,
        one.compressed.silent_deployed,
        one.raw.message_deployed - 2 * room,
    )
    better = Compression(cheaper, one.raw, one.message_bayes, one.sender_bayes)
    assert better.tax_saved == pytest.approx(2 * room + one.gap, abs=1e-9)
    assert better.surely_wins(better.tax_saved - room) and better.advantage > 0
    assert not better.surely_wins(better.tax_saved), "a saving of just kappa is not enough"


@given(comparisons(), st.floats(0, 1), st.floats(0, 1))
def test_sufficient_and_no_harder_and_no_more_taxed_never_loses(one: Compression, eased: float, saved: float) -> None:
    best = one.raw.message_best - one.sender_bayes  # what the class loses on raw context
    assume(best >= 0)
    message_best = one.sender_bayes + best * (1 - eased)
    deployed = message_best + (one.raw.message_deployed - one.raw.message_best) - saved
    compressed = OneStep(one.raw.silent_best, message_best, one.raw.silent_deployed, deployed)
    kept = Compression(compressed, one.raw, message_bayes=one.sender_bayes, sender_bayes=one.sender_bayes)
    assert kept.omitted == 0 and kept.mismatch <= 1e-12 and kept.tax_saved >= -1e-9
    assert kept.advantage >= -1e-9


def test_a_sufficient_message_has_nothing_omitted() -> None:
    """States 0 and 1 ask for the same, so do 2 and 3: one bit tells all that matters."""
    p = np.zeros((4, 1, 2))
    p[[0, 1, 2, 3], 0, [0, 0, 1, 1]] = 0.25
    law = Law(("s", "x", "z"), p)
    kept, lost = (law.with_variable("m", ("s",), np.array(m)) for m in ([0, 0, 1, 1], [0, 1, 0, 1]))
    step = OneStep(0.5, 0.0, 0.5, 0.0)
    assert compare_compression(kept, step, step, zero_one(2)).omitted == 0
    assert compare_compression(lost, step, step, zero_one(2)).omitted == 0.5


def test_different_silence_is_refused() -> None:
    law = Law(("s", "x", "z", "m"), np.full((1, 1, 2, 1), 0.5))
    with pytest.raises(ValueError, match="silent_best differs"):
        compare_compression(law, OneStep(0.5, 0, 0.5, 0), OneStep(0.4, 0, 0.5, 0), zero_one(2))


def test_random_draws_obey_and_are_named_by_their_seed() -> None:
    draws = compression_draws(60, "test", 1)
    assert np.allclose(draws["utility"], draws["gain"] - draws["tax"], atol=1e-12)
    assert np.allclose(draws["advantage"], draws["tax_saved"] - draws["gap"], atol=1e-12)
    assert np.allclose(draws["gap"], draws["omitted"] + draws["mismatch"], atol=1e-12)
    assert (draws["gain"] >= -1e-12).all() and (draws["omitted"] >= -1e-12).all()
    assert all((draws[name] > 0).any() and (draws[name] < 0).any() for name in ("utility", "advantage", "mismatch"))
    assert draws.equals(compression_draws(60, "test", 1)) and not draws.equals(compression_draws(60, "test", 2))
