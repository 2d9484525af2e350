from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.choices import official_aqua_letter, official_letter, robust_letter

FOUR = ("iron", "tin", "lead", "zinc")
TEN = tuple(f"option {i}" for i in range(10))


@pytest.mark.parametrize(
    ("text", "robust", "official"),
    [
        ("The answer is B", "B", "A"),  # the official rule reads the A of ANSWER
        ("B", "B", "B"),
        ("Option: C", "C", "C"),
        ("I think A is wrong. Final answer: (D)", "D", "A"),
        ("", None, None),
    ],
)
def test_cases_of_the_specification(text: str, robust: str | None, official: str | None) -> None:
    assert robust_letter(text, FOUR)[0] == robust
    assert official_letter(text, 4)[0] == official


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is C", "C"),
        ("Answer: **D**", "D"),
        ("Answer: A? No. Answer: C", "C"),
        ("Antwort:\n\nAntwort: C", "C"),
        ("ANSWER: **A**", "A"),
        ("ANSWER: $A$", "A"),
        ("ANSWER: None of the above", None),
    ],
)
def test_inputs_that_broke_other_graders(text: str, letter: str | None) -> None:
    """Rows 7, 8 and 10 of the fault reports: first letter of ANSWER, first answer instead of last, emphasis, none of the above."""
    assert robust_letter(text, FOUR)[0] == letter


@pytest.mark.parametrize(
    "text",
    [
        "**Answer:** B",
        "**Answer**: (B)",
        "answer is\n\nB",
        "The answer is option B.",
        "The answer is the letter B, since C is too light.",
        'reply {"answer": "B"}',
        r"Final answer: \(\boxed{\text{B}}\), not C",
        r"Answer: $\boxed{B}$",
        "The answer is B because Bob says so, unlike C",
        "The answer is B and I am sure of it",
        "The answer is Tin.\nOr so says D",
        "Reasoning about C.\nB) tin",
        "Reasoning about C.\n(b).",
        "B\n\nThis is so because Vitamin C is no metal.",
        "The answer depends on A, D; it must be B",
        "Answer: let us see. A dog would know. So B",
        "The answer is U.S. standard (B)",
    ],
)
def test_a_letter_in_many_clothes(text: str) -> None:
    assert robust_letter(text, FOUR)[0] == "B"


@pytest.mark.parametrize(
    "text",
    [
        "A is red, C is blue. The answer is N/A",
        "Option A is bad. The answer is neither.",
        "Answer: cannot be told. B?",
        "The answer is (A) or (B)",
        "Answer: A and C",
        "Answer: B/C",
        "The answer is E.",  # not among four options
        "The answer is (J), as B is wrong",
        "A dog is an animal and I like it",  # article and pronoun
        "I'm done. A's are better.",
        "answer a question",
    ],
)
def test_no_answer_is_not_guessed(text: str) -> None:
    letter, reason = robust_letter(text, FOUR)
    assert letter is None and reason


def test_a_pronoun_is_a_letter_only_where_it_is_one() -> None:
    assert robust_letter("The answer is I", TEN)[0] == "I"
    assert robust_letter("The answer is I because", TEN)[0] == "I"
    assert robust_letter("Answer: I think it is C", TEN)[0] == "C"
    assert robust_letter("I know: it is J. I am sure", TEN)[0] == "J"


def test_an_option_text_that_says_none_is_that_option() -> None:
    options = ("5", "6", "7", "8", "None of these")
    assert robust_letter("The answer is none of these.", options)[0] == "E"
    assert robust_letter("The answer is none at all.", options)[0] is None
    assert robust_letter("The answer is 7", options)[0] == "C"
    assert robust_letter("The answer is B", ("B", "A", "D", "C"))[0] == "B"  # the letter, not the text of option A
    assert robust_letter("The answer is tin", ("tin", "tin", "x", "y"))[0] is None  # which of the two?


def test_official_rules() -> None:
    assert official_letter("The first is J", 10)[0] == "H"  # of THE
    assert official_letter("Nothing", 4)[0] is None
    assert official_aqua_letter("The answer is A. No: the answer is (C). B?")[0] == "C"
    assert official_aqua_letter("surely D")[0] == "D"
    assert official_aqua_letter("surely d")[0] is None


@given(st.text(), st.integers(2, 10))
def test_any_text_gives_an_option_or_none(text: str, count: int) -> None:
    letter, reason = robust_letter(text, TEN[:count])
    assert letter is None or letter in string.ascii_uppercase[:count]
    assert reason
    assert official_letter(text, count)[0] in {None, *string.ascii_uppercase[:count]}


PIECES = (
    "answer",
    " is ",
    ": ",
    "A",
    "B",
    "E",
    "I",
    "a ",
    " none of",
    "**",
    "(",
    ")",
    "\n",
    " or ",
    "\\boxed{",
    "}",
    "think ",
    ".",
    "'s ",
)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.sampled_from("ABCD"))
def test_a_clear_last_line_wins_over_anything_before_it(noise: str, letter: str) -> None:
    assert robust_letter(f"{noise}\nThe answer is {letter}.", FOUR)[0] == letter
