"""Decoder classes: what is in them, and that more maps never hurt."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.alternation import alternating_axis, axis_law
from lib.coordination.decoders import (
    class_risk,
    decoder_risks,
    every_map,
    ignores_message,
    product_maps,
    silent_maps,
    silent_risk,
    threshold_maps,
)
from lib.coordination.laws import Law, bayes_risk, map_risk, zero_one
from tests.coordination.strategies import M, X, Z, classes, losses, spoken


@given(spoken(), classes(), losses())
def test_risks_are_those_of_the_maps_one_by_one(law: Law, decoders: np.ndarray, loss: np.ndarray) -> None:
    one_by_one = [map_risk(law, ("x", "m"), decoder, loss) for decoder in decoders]
    assert np.allclose(decoder_risks(law, decoders, loss), one_by_one, atol=1e-12)


@given(spoken(), classes(), classes(), losses())
def test_enlarging_the_class_never_raises_its_risk(
    law: Law, decoders: np.ndarray, more: np.ndarray, loss: np.ndarray
) -> None:
    larger = np.concatenate([decoders, more])
    assert class_risk(law, larger, loss) <= class_risk(law, decoders, loss) + 1e-12


@given(spoken(), classes(), losses())
def test_bayes_risks_are_the_unrestricted_class(law: Law, decoders: np.ndarray, loss: np.ndarray) -> None:
    everything = class_risk(law, every_map(X, M, Z), loss)
    assert everything == pytest.approx(bayes_risk(law, ("x", "m"), loss), abs=1e-12)
    assert silent_risk(law, decoders, loss) == pytest.approx(bayes_risk(law, ("x",), loss), abs=1e-12)
    assert everything <= class_risk(law, decoders, loss) + 1e-12


@given(st.permutations(range(6)))
def test_renaming_symbols_can_change_the_risk_of_thresholds(names: list[int]) -> None:
    """The information is untouched (see test_laws); a threshold class reads the order of the symbols."""
    law = axis_law(alternating_axis(3, 2), "message")
    renamed = Law(("s", "x", "z", "m"), law.with_variable("n", ("m",), np.array(names)).marginal("s", "x", "z", "n"))
    risk = class_risk(renamed, threshold_maps(6), zero_one(2))
    labels = np.array([symbol % 2 for symbol in np.argsort(names)])  # label at each place of the new axis
    steps = int((np.diff(labels) != 0).sum())
    assert (risk == pytest.approx(0, abs=1e-12)) == (steps == 1), "one change of label is one cut"


def test_renaming_evens_before_odds_ends_the_failure() -> None:
    law = axis_law(alternating_axis(3, 2), "message")
    order = law.with_variable("n", ("m",), np.array([0, 3, 1, 4, 2, 5])).marginal("s", "x", "z", "n")
    sorted_by_label = Law(("s", "x", "z", "m"), order)
    assert class_risk(law, threshold_maps(6), zero_one(2)) == pytest.approx(1 / 3)
    assert class_risk(sorted_by_label, threshold_maps(6), zero_one(2)) == pytest.approx(0)


def test_named_classes() -> None:
    assert len(every_map(2, 2, 3)) == 3**4 == len({decoder.tobytes() for decoder in every_map(2, 2, 3)})
    assert len(silent_maps(2, 5, 3)) == 9 and ignores_message(silent_maps(2, 5, 3)).all()
    assert ignores_message(every_map(1, 3, 2)).sum() == 2
    cuts = threshold_maps(2)
    assert cuts.tolist() == [[[1, 1]], [[0, 1]], [[0, 0]], [[0, 0]], [[1, 0]], [[1, 1]]]
    pairs = product_maps(silent_maps(1, 2, 2), threshold_maps(2), 2)
    assert pairs.shape == (12, 1, 2) and set(pairs.ravel()) == {0, 1, 2, 3}


def test_silence_is_the_best_of_the_maps_that_ignore_the_message() -> None:
    """A bit that the message tells: without it a guess is wrong half of the time."""
    law = axis_law(alternating_axis(1, 2), "message")
    assert silent_risk(law, every_map(1, 2, 2), zero_one(2)) == 0.5
    assert class_risk(law, every_map(1, 2, 2), zero_one(2)) == 0


def test_refusals_name_the_fix() -> None:
    law = axis_law(alternating_axis(1, 2), "message")
    with pytest.raises(ValueError, match="no map ignores the message; add silent_maps"):
        silent_risk(law, np.array([[[0, 1]]]), zero_one(2))
    with pytest.raises(ValueError, match=r"decoders have shape \(1, 2\)"):
        decoder_risks(law, np.array([[0, 1]]), zero_one(2))
    with pytest.raises(ValueError, match=r"integers in 0\.\.1"):
        decoder_risks(law, np.array([[[0, 2]]]), zero_one(2))
    with pytest.raises(ValueError, match="more than 200,000"):
        every_map(5, 5, 3)
