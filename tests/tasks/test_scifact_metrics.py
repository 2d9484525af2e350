from __future__ import annotations

import pytest

from lib.tasks.answers import set_overlap
from lib.tasks.scifact_metrics import GoldAbstract, PredictedAbstract, rationale_found, scifact_metrics

GOLD = {"7": GoldAbstract("SUPPORT", (frozenset({1, 2}), frozenset({5})))}


def test_worked_case_official_and_plain() -> None:
    metrics = scifact_metrics([(GOLD, {"7": PredictedAbstract("SUPPORT", (1, 5))})])
    selection = metrics.sentence_selection
    assert (selection.precision, selection.recall) == (0.5, pytest.approx(1 / 3))
    assert selection.f1 == pytest.approx(0.4)
    assert metrics.sentence_label == selection
    assert metrics.abstract_label_only.f1 == 1.0 and metrics.abstract_rationalized.f1 == 1.0
    plain = set_overlap([("7", 1), ("7", 5)], [("7", 1), ("7", 2), ("7", 5)])
    assert (plain.precision, plain.recall) == (1.0, pytest.approx(2 / 3)) and plain.f1 == pytest.approx(0.8)


def test_wrong_label_keeps_selection_only() -> None:
    metrics = scifact_metrics([(GOLD, {"7": PredictedAbstract("CONTRADICT", (5,))})])
    assert metrics.sentence_selection.precision == 1.0 and metrics.sentence_label.precision == 0.0
    assert metrics.abstract_label_only.f1 == 0.0 and metrics.abstract_rationalized.f1 == 0.0


def test_counts_are_pooled_over_claims_and_nei_predictions_are_not_made() -> None:
    claims = [
        (GOLD, {"7": PredictedAbstract("SUPPORT", (1, 2, 5))}),
        ({}, {"8": PredictedAbstract("SUPPORT", (0,))}),  # nothing is known about this claim
        (GOLD, {"7": PredictedAbstract("NOT_ENOUGH_INFO", (1, 2))}),
    ]
    metrics = scifact_metrics(claims)
    assert metrics.sentence_selection.precision == pytest.approx(3 / 4)
    assert metrics.sentence_selection.recall == pytest.approx(3 / 6)
    assert metrics.abstract_label_only.precision == pytest.approx(
        1 / 2
    ) and metrics.abstract_label_only.recall == pytest.approx(1 / 2)


def test_rationale_must_be_among_the_first_three() -> None:
    late = scifact_metrics([(GOLD, {"7": PredictedAbstract("SUPPORT", (9, 8, 3, 5))})])
    assert late.abstract_rationalized.f1 == 0.0 and late.abstract_label_only.f1 == 1.0
    assert late.sentence_selection.precision == 0.25


def test_nothing_retrieved_is_zero() -> None:
    metrics = scifact_metrics([(GOLD, {})])
    assert metrics.sentence_selection.precision == metrics.sentence_selection.f1 == 0.0
    assert scifact_metrics([]).abstract_label_only.f1 == 0.0


def test_all_or_nothing_view() -> None:
    rationales = GOLD["7"].rationales
    assert rationale_found([5], rationales) and rationale_found([2, 1], rationales)
    assert not rationale_found([1], rationales) and not rationale_found([], rationales)
