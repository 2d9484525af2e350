from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.fanoutqa_answers import fanout_accuracy, flatten_answer, normalize_fanout, rouge


def loose(gold: object, reply: object) -> float:
    return fanout_accuracy(gold, reply, "porter").loose


def test_dict_counts_keys_and_values() -> None:
    result = fanout_accuracy({"A": 1, "B": 2}, "a is 1, b unknown", "porter")
    assert (result.loose, result.strict, result.missing, result.lemmatizer) == (0.75, 0.0, ("2",), "porter")


def test_list_counts_whole_words() -> None:
    assert loose(["red", "blue"], "credit blue") == 0.5


@pytest.mark.parametrize(
    ("gold", "reply", "found"),
    [
        (True, "Yes.", 1.0),
        (False, "Yes.", 0.0),
        ("1,234", "it was 1234 then", 1.0),
        (1234, "it was 1,234 then", 1.0),
        (3.5, "35", 1.0),  # the decimal point is deleted on both sides, as upstream
        ("3.5", "3,5", 1.0),
        (-5, "it was -5", 0.0),  # no word boundary before the minus sign, as upstream
        ("Mozart", "mozart!", 1.0),
        ("cat", "cats", 1.0),
        ("running", "he runs", 1.0),
        ("", "anything", 1.0),
        ([], "x", 0.0),
        ({}, "x", 0.0),
        ("x", None, 0.0),
        ("x", "", 0.0),
    ],
)
def test_single_answers(gold: object, reply: object, found: float) -> None:
    assert loose(gold, reply) == found


def test_strict_needs_everything() -> None:
    assert fanout_accuracy(["red", "blue"], "blue and red", "porter").strict == 1.0
    assert fanout_accuracy({"A": {"x": 1, "y": 2}}, "a x y 1", "porter").loose == pytest.approx(0.8)  # five leaves


def test_answer_objects_are_flattened() -> None:
    assert loose({"Pat": "Right"}, {"Pat": "Right"}) == 1.0
    assert loose({"Pat": "Right", "Jo": "Left"}, {"Pat": "Right"}) == 0.5


def test_mojibake_is_mended() -> None:
    assert loose("itâ€™s", "it's late") == 1.0


def test_identity_keeps_word_forms_and_is_named() -> None:
    result = fanout_accuracy("cat", "cats", "identity")
    assert (result.loose, result.lemmatizer) == (0.0, "identity")
    assert fanout_accuracy("cat", "cats").lemmatizer in {"porter", "spacy:en_core_web_sm"}


def test_flatten() -> None:
    assert flatten_answer({"A": 1, "B": [True, None]}) == "A - 1\nB - yes\n"
    assert flatten_answer(["x", 2.5, False]) == "x\n2.5\nno"
    assert flatten_answer(None) == "" and flatten_answer("text") == "text"


def test_normal_form_collapses_space_and_punctuation() -> None:
    assert normalize_fanout(" 1,234,567  Dogs! ", "identity") == "1234567 dogs"


def test_rouge() -> None:
    assert rouge({"A": 1}, "A - 1") == pytest.approx({"rouge1": 1.0, "rouge2": 1.0, "rougeL": 1.0})
    scores = rouge("the cats sat", "the cat ran")
    assert scores["rouge1"] == pytest.approx(2 / 3) and scores["rouge2"] == pytest.approx(0.5)
    assert rouge("x", "") == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}


@given(
    st.recursive(
        st.text(alphabet="abc 12.", max_size=6) | st.integers(0, 99) | st.booleans(), lambda x: st.lists(x, max_size=3)
    )
)
def test_in_range(gold: object) -> None:
    assert 0.0 <= fanout_accuracy(gold, flatten_answer(gold), "identity").loose <= 1.0
