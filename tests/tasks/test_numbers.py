from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.numbers import gold_number, number_text, official_number, read_number, robust_number, same_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 1,200 apples. The answer is $1,200.", "1200"),
        ("3 + 4 = 7.0", "7"),
        ("-5 degrees", "-5"),
        ("no number", None),
        ("costs $5 and $6", "6"),
        ("#### 1,000", "1000"),
    ],
)
def test_cases_of_the_specification(text: str, number: str | None) -> None:
    assert robust_number(text)[0] == number


@pytest.mark.parametrize(
    ("text", "gold", "number"),
    [
        ("The total is 72 clips, altogether.", "72", "72"),  # row 1: a comma after the last number
        (r"\boxed{8,000}", "8000", "8000"),  # row 2: thousands
        (r"\boxed{8{,}000}", "8000", "8000"),
        ("$80,000", "80000", "80000"),
        ("is $29.00.", "29", "29"),  # row 3
        ("−3", "-3", "-3"),  # row 4: the minus sign of Unicode
        ("-3", "-3", "-3"),
        ("- 3", "-3", "-3"),
        ("The answer is 18.00", "18", "18"),  # row 5
    ],
)
def test_inputs_that_broke_other_graders(text: str, gold: str, number: str) -> None:
    """Rows 1 to 5 of the fault reports."""
    found = robust_number(text)[0]
    assert found == number and same_number(found, gold)


def test_silence_is_no_zero_and_a_lost_sign_is_wrong() -> None:
    """Rows 4 and 5 of the fault reports: 3 for -3, and silence taken for 0."""
    assert robust_number("")[0] is None and official_number("")[0] is None
    assert not same_number("3", "-3")
    assert gold_number("so it is\n#### -3") == "-3"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10 - 3", "3"),
        ("10-3", "3"),
        ("3-5 years", "5"),
        ("3–5 years", "5"),
        ("covid-19", "19"),
        ("(4)-3", "3"),
        ("x = - 3", "-3"),
        ("the answer is - 3", "-3"),
        ("the answer is -$3", "-3"),
        ("it is $-3 now", "-3"),
        ("we get\n- 3 apples", "3"),
        ("- 5 apples\n- 3 pears", "3"),
        ("we get\n**- 3**", "-3"),
        (r"\(-\frac{3}{4}\)", "-0.75"),
    ],
)
def test_which_dash_is_a_sign(text: str, number: str) -> None:
    assert robust_number(text)[0] == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 3/4.", "0.75"),
        ("The answer is 1 / 3", "1/3"),
        ("The answer is 2 1/2 miles", "2.5"),
        (r"The answer is 2\frac{1}{2}", "2.5"),
        (r"\boxed{\frac{1}{8}}", "0.125"),
        ("on 12/25/2020", "2020"),
        ("5/0", "0"),
        ("7 3/0", "0"),
        (".5 l", "0.5"),
        ("Rs.5", "5"),
        ("50%", "50"),
        ("1\u202f200 m", "1200"),
        (r"8\,000", "8000"),
        ("1,23", "23"),
    ],
)
def test_fractions_and_separators(text: str, number: str) -> None:
    assert robust_number(text)[0] == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 16 - 3 = $13 a day for 2 days.", "13"),
        ("The answer is 18 = 9 * 2.", "18"),
        ("The answer is 5 (2+3=5)", "5"),
        ("The answer is 60 / 2 = 30 eggs", "30"),
        ("The answer is 5. Check: 2 + 4 = 6", "5"),
        ("The answer is 20\n\n3 * 4 = 12", "20"),
        ("Answer: 18 dollars for 7 days", "18"),
        ("**Answer:** **18** of 20", "18"),
        ("Answer: Janet has 16 eggs and sells 9. So 18.", "18"),
        ("The answer is unknown, maybe 4 or 5", "4"),
        (r"The answer is below: \boxed{7}, by lemma 2", "7"),
        (r"We get \boxed{7} by lemma 2", "7"),
        (r"We get \boxed{seven} by lemma 2", "2"),
        ("The answer is 3. Wait. The answer is 4 of 9", "4"),
        ("first 12. The answer is none", "12"),
        ("H2O has 3 atoms, x1 says", "3"),
    ],
)
def test_where_the_number_is_looked_for(text: str, number: str) -> None:
    assert robust_number(text)[0] == number


def test_official_rule() -> None:
    assert official_number("The answer is 18.00")[0] == "18"
    assert official_number("It is 1,200.50")[0] == "1200.5"
    assert official_number("10-3")[0] == "-3"  # as the authors' scorer reads it
    assert official_number("9" * 400)[0] is None


def test_gold() -> None:
    assert gold_number("16 - 3 = <<16-3=13>>13 and #### none\n#### 1,000") == "1000"
    for text in ("13", "#### ", "#### thirteen", "#### 3 4/0"):
        with pytest.raises(ValueError, match="no number behind '####'"):
            gold_number(text)


def test_sameness() -> None:
    assert same_number("27.0", "27") and same_number("0.333333", "1/3") and same_number("1,000", "1000")
    assert not same_number("0.3333", "1/3") and not same_number("27", "27 apples") and not same_number("", "0")


def test_endless_replies_are_read_in_linear_time() -> None:
    start = time.process_time()
    for piece in ("9", "1,", "boxed{", "- ", "answer is ", "1/", " ", "1 - "):
        text = piece * 20_000
        robust_number(text)
        official_number(text)
    assert robust_number("9" * 5000)[0] is None
    assert time.process_time() - start < 10


@given(st.integers(-(10**12), 10**12), st.integers(0, 99))
def test_every_money_amount_is_read_back(whole: int, cents: int) -> None:
    text = f"{whole:,}.{cents:02d}"
    value = Fraction(text.replace(",", ""))
    for reply in (
        f"The answer is {text}.",
        f"that makes {text}, in all.",
        f"**Answer:** ${text}$",
        rf"so \boxed{{{text}}}",
    ):
        found = robust_number(reply)[0]
        assert found is not None and read_number(found) == value


@given(st.fractions(max_denominator=10**6))
def test_canonical_text_is_exact(value: Fraction) -> None:
    text = number_text(value)
    assert read_number(text) == value and same_number(text, text)


@given(st.text() | st.text(alphabet="0123456789-,./ =\n$\\frac{}boxed"))
def test_any_text_gives_a_number_or_none(text: str) -> None:
    found, reason = robust_number(text)
    assert reason and (found is None or read_number(found) is not None)
    official_number(text)
