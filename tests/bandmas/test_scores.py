"""Scores: each policy's rule, normalisation, independence of order, and what may enter a scorer."""

from __future__ import annotations

import inspect

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.bandmas.admission import rank
from lib.bandmas.features import packet_features
from lib.bandmas.scores import (
    POLICIES,
    STOP_WORDS,
    is_evidence,
    lexical_relevance,
    normalised,
    oracle_scores,
    policy_scores,
    tokens,
)
from lib.bandmas.shrinkage import ShrinkagePredictor
from lib.messages import Message, Packet, packet_bytes, packetize_task
from tests.messages.strategies import any_text, task_messages


def packets() -> list[Packet]:
    messages = [
        Message(
            "t1", slot, slot, f"reader_{slot}", "answerer", f"D{slot}",
            f"The river Lena rises near lake {slot}", f"[S{slot}] Lena rises there", "it might be another river", "which lake is near"
        )
        for slot in range(3)
    ]  # fmt: skip
    return packetize_task(messages)


def predictor() -> ShrinkagePredictor:
    features = packet_features(packets())
    effects = features["type"].map({"claim": 0.2, "evidence": 0.5, "uncertainty": -0.1, "request": 0.0})
    return ShrinkagePredictor().fit(features, effects)


QUERY = "Where does the river Lena rise?"


def test_causal_is_the_prediction() -> None:
    assert (
        policy_scores("causal", QUERY, packets(), predictor()).tolist()
        == predictor().predict(packet_features(packets())).tolist()
    )


def test_hybrid_mixes_normalised_prediction_and_evidence_indicator() -> None:
    items, fitted = packets(), predictor()
    causal = policy_scores("causal", QUERY, items, fitted)
    expected = 0.75 * (causal - causal.min()) / np.ptp(causal) + 0.25 * is_evidence(items)
    assert np.allclose(policy_scores("hybrid", QUERY, items, fitted), expected)


def test_hybrid_takes_a_stored_relevance_when_there_is_one() -> None:
    items, fitted = packets(), predictor()
    plain = policy_scores("hybrid", QUERY, items, fitted) - 0.25 * is_evidence(items)
    stored = policy_scores("hybrid", QUERY, items, fitted, relevance=lambda query, contents: [0.4] * len(contents))
    assert np.allclose(stored, plain + 0.1)


def test_hybrid_with_lambda1_of_one_ranks_as_causal() -> None:
    items, fitted = packets(), predictor()
    causal = rank(items, policy_scores("causal", QUERY, items, fitted))
    assert rank(items, policy_scores("hybrid", QUERY, items, fitted, lambda1=1.0)) == causal


def test_semantic_is_lexical_overlap_or_the_function_given() -> None:
    items = packets()
    scores = policy_scores("semantic", QUERY, items)
    assert scores.tolist() == [lexical_relevance(QUERY, packet.content) for packet in items]
    asked = []
    given_ = policy_scores(
        "semantic", QUERY, items, relevance=lambda query, contents: asked.append(query) or range(len(contents))
    )
    assert given_.tolist() == list(range(len(items)))
    assert asked == [QUERY]


def test_semantic_evidence_adds_one_to_evidence() -> None:
    items = packets()
    difference = policy_scores("semantic_evidence", QUERY, items) - policy_scores("semantic", QUERY, items)
    assert difference.tolist() == [float(packet.type == "evidence") for packet in items]


def test_lexical_relevance_by_hand() -> None:
    assert tokens("The River's 3 Banks, and the sea_side") == {"river", "s", "3", "banks", "sea", "side"}
    assert lexical_relevance("river bank", "river bank") == pytest.approx(1.0)
    assert lexical_relevance("river bank lake sea", "river") == pytest.approx(1 / 2)
    assert lexical_relevance("the of", "river") == 0.0
    assert lexical_relevance("river", "") == 0.0
    assert len(STOP_WORDS) == 50


@given(any_text, any_text)
def test_lexical_relevance_is_symmetric_and_bounded(a: str, b: str) -> None:
    assert lexical_relevance(a, b) == lexical_relevance(b, a)
    assert 0 <= lexical_relevance(a, b) <= 1 + 1e-12


def test_random_depends_on_seed_and_id_alone() -> None:
    items = packets()
    first = policy_scores("random", QUERY, items, seed=1)
    assert first.tolist() == policy_scores("random", "other query", items, seed=1).tolist()
    assert first.tolist() != policy_scores("random", QUERY, items, seed=2).tolist()
    assert policy_scores("random", QUERY, items[3:], seed=1).tolist() == first[3:].tolist()
    assert ((first >= 0) & (first < 1)).all()


def test_smallest_first_orders_by_wire_bytes() -> None:
    items = packets()
    sizes = [packet_bytes(packet) for packet in rank(items, policy_scores("smallest_first", QUERY, items))]
    assert sizes == sorted(sizes)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_normalised_lies_in_unit_interval_and_keeps_order(values: list[float]) -> None:
    array = np.array(values)
    out = normalised(array)
    assert ((out >= 0) & (out <= 1)).all()
    if round(float(np.ptp(array)), 12) == 0:
        assert (out == 0.5).all()
    else:
        assert out.min() == 0
        assert out.max() == 1
        assert (np.diff(out[np.argsort(array, kind="stable")]) >= 0).all()


@given(task_messages(), st.sampled_from(POLICIES), st.randoms(use_true_random=False))
def test_scores_follow_the_packet_not_its_place(items: list[Message], policy: str, rng: object) -> None:
    given_ = packetize_task(items)
    mixed = given_.copy()
    rng.shuffle(mixed)
    one = dict(
        zip([p.packet_id for p in given_], policy_scores(policy, "river lake", given_, predictor()), strict=True)
    )
    two = dict(zip([p.packet_id for p in mixed], policy_scores(policy, "river lake", mixed, predictor()), strict=True))
    assert one == pytest.approx(two, abs=1e-15)


def test_no_packets_no_scores() -> None:
    for policy in POLICIES:
        assert policy_scores(policy, QUERY, [], predictor()).shape == (0,)


def test_oracle_returns_measured_effects() -> None:
    items = packets()[:3]
    effects = pd.DataFrame({"packet_id": [packet.packet_id for packet in items[::-1]], "rce": [None, 0.2, -0.1]})
    assert oracle_scores(items, effects.astype({"rce": float})).tolist() == [-0.1, 0.2, 0.0]
    with pytest.raises(ValueError, match="was not replayed"):
        oracle_scores(packets(), effects)


def test_bad_calls_are_named() -> None:
    items = packets()
    foreign = msgspec.structs.replace(items[0], task_id="t2")
    for call, message in (
        (lambda: policy_scores("casual", QUERY, items), "'casual' is unknown: use one of full, causal"),
        (lambda: policy_scores("causal", QUERY, items), "needs a fitted predictor"),
        (lambda: policy_scores("semantic", QUERY, [*items, foreign]), "several tasks"),
        (lambda: policy_scores("hybrid", QUERY, items, predictor(), lambda1=75), "lambda1"),
        (lambda: policy_scores("semantic", QUERY, items, relevance=lambda q, c: [np.nan] * len(c)), "one finite score"),
        (lambda: policy_scores("semantic", QUERY, items, relevance=lambda q, c: [1.0]), "one finite score"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_scorer_inputs_have_no_place_for_outcomes() -> None:
    """Leakage guard: neither the scorer's arguments nor what they carry can hold gold, a reply or a score."""
    assert list(inspect.signature(policy_scores).parameters) == [
        *("policy", "task_query", "packets", "predictor", "seed", "lambda1", "relevance"),
    ]
    assert list(Packet.__struct_fields__) == [
        *("packet_id", "task_id", "route", "message_id", "group_id", "segment", "type", "content", "span"),
        *("slot", "turn", "source_id", "links"),
    ]
