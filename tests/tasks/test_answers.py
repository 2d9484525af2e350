from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.answers import (
    Overlap,
    exact_match,
    hotpot_answer,
    hotpot_answer_f1,
    joint_overlap,
    normalize_answer,
    parse_label,
    set_f1,
    set_overlap,
    squad_f1,
    token_f1,
    token_overlap,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Beatles", "beatles"),
        ("a.n", ""),  # punctuation goes first: "a.n" -> "an" -> an article
        ("  Two   words\t", "two words"),
        ("U.S.A.", "usa"),
        ("1,234", "1234"),
        ("Theatre", "theatre"),
        ("the a an", ""),
        ("“quoted”—dash", "“quoted”—dash"),  # typographic signs are no punctuation upstream
    ],
)
def test_normal_form(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("prediction", "gold", "f1"),
    [
        ("The Beatles", "Beatles", 1.0),
        ("Paris, France", "Paris", 2 / 3),
        ("yes", "no", 0.0),
        ("cat sat mat", "cat mat", 0.8),
        ("", "x", 0.0),
        ("x", "", 0.0),
        ("", "", 0.0),
        ("a b b", "b", 2 / 3),
    ],
)
def test_token_f1_worked_cases(prediction: str, gold: str, f1: float) -> None:
    assert token_f1(prediction, gold) == pytest.approx(f1, abs=1e-12)


def test_repeated_tokens_precision_and_recall() -> None:
    overlap = token_overlap("a b b", "b")
    assert (overlap.precision, overlap.recall) == (0.5, 1.0)


def test_yes_no_rule_is_hotpots_alone() -> None:
    assert hotpot_answer_f1("yes it is", "yes") == 0.0
    assert token_f1("yes it is", "yes") == pytest.approx(0.5)
    assert hotpot_answer_f1("Yes!", "yes") == 1.0
    assert hotpot_answer_f1("no", "Oslo") == 0.0
    assert hotpot_answer_f1("noanswer", "Oslo") == 0.0
    assert hotpot_answer_f1("Paris, France", "Paris") == pytest.approx(2 / 3)


def test_squad_takes_the_best_alias_and_both_empty_is_one() -> None:
    assert squad_f1("NYC", ["New York City", "NYC"]) == 1.0
    assert squad_f1("", [""]) == 1.0 and squad_f1("the", ["a"]) == 1.0
    assert squad_f1("", [""], both_empty=0.0) == 0.0
    assert squad_f1("x", []) == 0.0


def test_exact_match() -> None:
    assert exact_match("The  cat.", "cat") == 1.0 and exact_match("cats", "cat") == 0.0


def test_set_f1_worked_case() -> None:
    overlap = set_overlap([("A", 0), ("B", 1), ("C", 0)], [("A", 0), ("B", 2)])
    assert overlap.precision == pytest.approx(1 / 3)
    assert overlap.recall == 0.5
    assert overlap.f1 == pytest.approx(0.4)
    assert overlap.exact == 0.0


def test_set_f1_edges() -> None:
    assert set_overlap([], []) == Overlap(0.0, 0.0, 0.0, 1.0)
    assert set_f1([], [], empty_empty=1.0) == 1.0
    assert set_f1([], [("A", 0)]) == 0.0 and set_f1([("A", 0)], []) == 0.0
    assert set_f1([("A", 0), ("A", 0)], [("A", 0)]) == 1.0  # repeats count once
    assert set_f1([("A", 0), ("A", 99)], [("A", 0)]) == pytest.approx(2 / 3)  # out of range is a false positive


def test_joint_multiplies_precision_recall_and_match() -> None:
    answer, support = (
        hotpot_answer("Paris, France", "Paris"),
        set_overlap([("A", 0), ("B", 1), ("C", 0)], [("A", 0), ("B", 2)]),
    )
    joint = joint_overlap(answer, support)
    assert joint.precision == pytest.approx(0.5 / 3) and joint.recall == pytest.approx(0.5)
    assert joint.f1 == pytest.approx(2 * (0.5 / 3) * 0.5 / (0.5 / 3 + 0.5))
    assert joint.exact == 0.0
    assert joint_overlap(hotpot_answer("x", "x"), set_overlap([1], [1])) == Overlap(1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("SUPPORT", "SUPPORT"),
        ("supports", "SUPPORT"),
        ("Supported.", "SUPPORT"),
        ("true", "SUPPORT"),
        ("ENTAILMENT", "SUPPORT"),
        ("REFUTE", "CONTRADICT"),
        ("refutes", "CONTRADICT"),
        ("REFUTED", "CONTRADICT"),
        ("contradicts", "CONTRADICT"),
        ("false", "CONTRADICT"),
        ("NEI", "NOT_ENOUGH_INFO"),
        ("not enough info", "NOT_ENOUGH_INFO"),
        ("Not enough information", "NOT_ENOUGH_INFO"),
        ("NOT_ENOUGH_INFO", "NOT_ENOUGH_INFO"),
        ("not-enough-info", "NOT_ENOUGH_INFO"),
        ("unknown", "NOT_ENOUGH_INFO"),
        (" **SUPPORT** ", "SUPPORT"),
        ("", None),
        ("maybe", None),
        ("SUPPORT or CONTRADICT", None),
        ("does not support", None),
        (None, None),
        (1, None),
        (True, None),
        (["SUPPORT"], None),
    ],
)
def test_labels(text: object, label: str | None) -> None:
    assert parse_label(text) == label


@given(st.text(max_size=40), st.text(max_size=40))
def test_measures_stay_in_range_and_f1_is_symmetric(one: str, two: str) -> None:
    for measure in (token_f1, hotpot_answer_f1, exact_match):
        assert 0.0 <= measure(one, two) <= 1.0
        assert measure(one, two) == pytest.approx(measure(two, one))
    if normalize_answer(one):
        assert token_f1(one, one) == 1.0 == hotpot_answer_f1(one, one)


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_set_f1_is_the_dice_share(one: set[int], two: set[int]) -> None:
    expected = 2 * len(one & two) / (len(one) + len(two)) if one or two else 0.0
    assert set_f1(one, two) == pytest.approx(expected)
