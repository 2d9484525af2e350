"""Arithmetic stories: solved again by a reader that knows the sentences, and by the grader."""

from __future__ import annotations

import doctest
import re
from collections import Counter

import pytest

import lib.tasks.arithmetic as arithmetic
from lib.tasks import WorkloadError, load_questions
from lib.tasks.grader_check import check_questions
from lib.tasks.questions import Question


def solved(question: Question) -> tuple[int, int]:
    """Return (answer, operations) by reading the story sentence by sentence."""
    value = steps = 0
    for sentence in re.split(r"(?<=[.?]) ", question.text):
        numbers = [int(number) for number in re.findall(r"\d+", sentence)]
        before = value
        if " has " in sentence and numbers:
            value = numbers[0]
            continue
        if "fills" in sentence:
            value = numbers[0] * numbers[1]
        elif "buys" in sentence:
            value += numbers[0]
        elif "neighbour" in sentence or "thrown away" in sentence:
            value -= numbers[0]
        elif "doubles" in sentence:
            value *= 2
        elif "shares" in sentence:
            assert value % numbers[0] == 0, "nothing is left over"
            value //= numbers[0]
        elif "sells" in sentence:
            value *= numbers[0]
        steps += value != before
        assert value > 0
    return value, steps


def test_answers_are_what_the_sentences_come_to() -> None:
    stories = load_questions("arithmetic")
    assert len(stories.questions) == arithmetic.SIZE == len({question.text for question in stories.questions})
    for question in stories.questions:
        value, steps = solved(question)
        assert str(value) == stories.answers[question.id].answer, question.text
        assert question.subject.split()[0] == str(steps), question.text
        assert "{" not in question.text


def test_gold_scores_one_and_nothing_else_does() -> None:
    check = check_questions(load_questions("arithmetic"))
    assert (check.gold_mean, check.wrong_mean, check.failures) == (1.0, 0.0, ())


def test_the_pool_is_fixed_and_draws_are_stratified() -> None:
    assert load_questions("arithmetic").version == "arithmetic-1+9aaad8b2ef1f"  # raise VERSION when this changes
    subjects = Counter(question.subject for question in load_questions("arithmetic").questions)
    assert len(subjects) >= 5
    drawn = Counter(question.subject for question in load_questions("arithmetic", 60, seed=3).questions)
    assert all(abs(drawn[subject] - count / 4) <= 1 for subject, count in subjects.items())


def test_there_is_no_file_to_read() -> None:
    with pytest.raises(WorkloadError, match="made by rule"):
        load_questions("arithmetic", path="somewhere")


def test_examples() -> None:
    result = doctest.testmod(arithmetic)
    assert (result.attempted, result.failed) == (2, 0)
