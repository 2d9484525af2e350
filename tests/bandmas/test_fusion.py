"""Tests of lib/bandmas/fusion.py: the worked values and invariants of SafeSieve's formulae."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.bandmas import fusion
from lib.bandmas.baselines import BaselineError
from lib.bandmas.fusion import (
    SafeSieveSettings,
    compatibility,
    complementarity,
    credit_shares,
    fusion_weights,
    quantised,
    similarities,
    threshold,
)
from lib.bandmas.scores import lexical_relevance

PROGRESS = st.floats(0, 1)


def test_the_threshold_by_hand() -> None:
    assert [round(threshold(x), 4) for x in (0, 0.25, 0.5, 1)] == [0.1, 0.3638, 0.4884, 0.5751]
    assert threshold(-1) == threshold(0)


def test_the_weights_by_hand() -> None:
    assert fusion_weights(0.25) == pytest.approx((0.75, 0.4))
    assert fusion_weights(0.5) == pytest.approx((0.5, 0.6))
    assert fusion_weights(1.0) == pytest.approx((0.0, 1.0))


@given(PROGRESS, PROGRESS)
def test_weights_and_threshold_are_monotone(one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert threshold(low) <= threshold(high) < 0.6
    (content, credit), (content_later, credit_later) = fusion_weights(low), fusion_weights(high)
    assert content >= content_later and credit <= credit_later + 1e-12


def test_shares_of_credit_by_hand() -> None:
    credits = np.array([3, 1, 0])
    assert credit_shares(credits, 4, "raw", epsilon=0.0).tolist() == [0.75, 0.25, 0.0]
    assert credit_shares(credits, 4, epsilon=0.0).tolist() == [2.25, 0.75, 0.0]
    assert credit_shares(credits, 4).tolist() == pytest.approx([2.25, 0.75, 0.0], abs=1e-4)


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 20))
def test_shares_sum_to_less_than_one(credits: list[int], nodes: int) -> None:
    shares = credit_shares(np.array(credits), nodes, "raw")
    assert shares.sum() < 1 and (shares >= 0).all() and shares.shape == (len(credits),)
    assert credit_shares(np.array(credits), nodes).tolist() == pytest.approx((shares * len(credits)).tolist())
    assert (credit_shares(np.zeros(len(credits), dtype=int), nodes, epsilon=0.0) == 0).all()


def test_five_levels_halves_up() -> None:
    assert [quantised(x) for x in (0.0, 0.124, 0.125, 0.375, 0.5, 0.874, 0.875, 1.0)] == [
        *(0.0, 0.0, 0.25, 0.5, 0.5, 0.75, 1.0, 1.0),
    ]


def test_compatibility_is_half_similarity_and_half_complementarity() -> None:
    assert compatibility(0.4, 0.75) == pytest.approx(0.575)
    assert compatibility(-0.4, 0.75) == pytest.approx(0.375), "a negative cosine counts as none"
    assert compatibility(0.4, 0.6, g=0.0) == 0.5


def test_types_complete_each_other() -> None:
    table = {("claim", "evidence"): 1.0, ("claim", "uncertainty"): 0.5, ("evidence", "uncertainty"): 0.5}
    table |= {("claim", "request"): 0.25, ("request", "evidence"): 0.25, ("claim", "claim"): 0.5}
    table |= {("request", "request"): 0.5, ("sentence", "claim"): 0.5, ("", ""): 0.5}
    for (first, second), value in table.items():
        assert complementarity(first, second) == complementarity(second, first) == value


class Axes:
    """An embedder of three axes."""

    sha256 = "f" * 64

    def __init__(self, name: str) -> None:
        self.name = name

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.array([[float(letter in text) for letter in "xyz"] for text in texts], dtype=np.float32)


def test_similarity_is_lexical_or_the_cosine_of_a_named_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert similarities("", "river bank", ["river", "sea"]).tolist() == [lexical_relevance("river bank", "river"), 0.0]
    monkeypatch.setattr(fusion, "embedder", Axes)
    assert similarities("axes", "x", ["x", "y"]).tolist() == [1.0, 0.0]


def test_a_wrong_setting_is_named() -> None:
    for wrong, message in (
        ({"cut_weight": "printed"}, "cut_weight must be one of affinity, as_printed, not 'printed'"),
        ({"node_key": "slot"}, "node_key must be one of channel, route"),
        ({"horizon": 0.5}, "horizon must be at least 1"),
        ({"r_max": 50}, r"r_max must lie in \[0, 1\]"),
    ):
        with pytest.raises(BaselineError, match=f"SafeSieve: {message}"):
            SafeSieveSettings(**wrong)
