"""Free answers against gold, a rule, or the answer of the unchanged log."""

from __future__ import annotations

import doctest
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks import free_answers
from lib.tasks.free_answers import answer_change, answer_form, gold_utility, read_answer, rule_utility, same_answer
from lib.tasks.task import WorkloadError


def reply(answer: object) -> str:
    return json.dumps({"answer": answer})


def test_examples() -> None:
    result = doctest.testmod(free_answers)
    assert result.attempted > 0 and result.failed == 0


@pytest.mark.parametrize(
    ("gold", "answer", "utility"),
    [
        ("18", "18.00", 1.0),
        ("8000", "$8,000", 1.0),
        ("-3", "\u22123", 1.0),
        ("-3", "3", 0.0),
        ("72", "73", 0.0),
        ("tax-lookup 7.3", "Tax\u2013lookup  7.3.", 1.0),
        ("7.3", "73", 0.0),
        ("Zoë", "Zoe\u0308", 1.0),
        ("red boat", "red car", 0.5),
        ("0", "", 0.0),
    ],
)
def test_against_gold(gold: str, answer: str, utility: float) -> None:
    """Public fault reports 1 to 5: separators, currency and signs belong to the number, and silence is never right."""
    score = gold_utility(gold)("t", reply(answer))
    assert (score.utility, score.task_utility, score.wanted) == (utility, utility, gold)
    assert (score.extracted is None) == (answer == "") and score.reason and score.evidence_utility is None


@pytest.mark.parametrize(
    ("rule", "answer", "holds"),
    [
        ("18", "It is 18.", True),
        ("18", "It is 180.", False),
        ("18", "It is 18.5.", False),
        ("7.3", "version 7.31", False),
        ("tax-lookup", "Roll back Tax-Lookup, please", True),
        ("roll back tax", "Roll back the tax service", True),
        ("lookup", "lookups", False),
    ],
)
def test_words_are_found_at_their_boundaries(rule: str, answer: str, holds: bool) -> None:
    assert rule_utility(rule)("t", reply(answer)).utility == float(holds)


def test_patterns_are_searched_as_written() -> None:
    judge = rule_utility(r"tax-lookup\s+7\.[23]\b", "regex")
    assert [judge("t", reply(text)).utility for text in ("use tax-lookup 7.3", "Tax-lookup 7.3", "tax-lookup 7.4")] == [
        1,
        0,
        0,
    ]
    assert judge("t", "").reason == "no answer"
    with pytest.raises(WorkloadError, match=r"rule '\(' is no regular expression"):
        rule_utility("(", "regex")
    with pytest.raises(WorkloadError, match="rule is empty"):
        rule_utility(" ")
    with pytest.raises(WorkloadError, match="gold is empty"):
        gold_utility("")


def test_another_answer_is_a_change_and_other_words_for_it_need_an_embedder() -> None:
    vectors = {"it is red": [1.0, 0.0], "its colour is red": [0.96, 0.28], "it is blue": [0.6, 0.8]}
    asked: list[list[str]] = []

    def encode(texts: list[str]) -> np.ndarray:
        asked.append(list(texts))
        return np.array([vectors[text.lower()] for text in texts])

    words, meaning = answer_change(reply("It is red")), answer_change(reply("It is red"), encode=encode, same_above=0.9)  # type: ignore[arg-type]
    texts = ["it is red.", "its colour is red", "it is blue"]
    assert [words("t", reply(text)).utility for text in texts] == [1, 0, 0]
    assert [meaning("t", reply(text)).utility for text in texts] == [1, 1, 0]
    assert meaning("t", reply("its colour is red")).reason == "the same meaning, cosine 0.96"
    assert len(asked) == 2, "an answer is embedded once, and not at all where words decide"
    assert words("t", "{}").extracted is None and words("t", "{}").utility == 0


def test_no_answer_to_the_unchanged_log_is_an_error() -> None:
    for raw in ("", "{}", '{"answer": null}', '{"answer": ["a"]}', '{"answer": " "}'):
        with pytest.raises(WorkloadError, match="gave no answer to the unchanged log"):
            answer_change(raw)
    with pytest.raises(WorkloadError, match="same_above"):
        answer_change(reply("x"), same_above=90)


@given(st.text(max_size=40))
def test_the_same_text_is_the_same_answer_and_reading_never_fails(text: str) -> None:
    assert same_answer(text, text) and answer_form(answer_form(text)) is not None
    answer = read_answer(text)
    assert answer is None or answer
    if answer is not None:
        assert answer_change(text)("t", text).utility == 1.0
