"""Read the final number out of a reply to a word problem, in two ways, and compare numbers.

Context
-------
A reply reasons in numbers and ends with one, dressed in commas, currency, LaTeX, signs and units. Right answers that a scorer misread have
moved published scores by several points: 8,000 read as 000, a lost minus sign, $29.00 taken to differ from 29.

Intuition
---------
The number behind the last "answer is" is the answer; failing that the one in a box; failing that the last one. Numbers are exact fractions
and never floats until they are compared, so 0.1 is 0.1 and 1/3 is 1/3.

How to read the result
----------------------
Functions return (number as text, or None; how it was found, or why not). Text is canonical: no separators, no trailing zeros, a fraction
only where no finite decimal exists. No number is None and wrong, also where gold is 0. `official_number` is the authors' rule: last number,
by way of a float.

Not covered: number words ("twelve"), powers of ten ("2 x 10^3"), decimal commas, units that change the value (minutes for hours).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from lib.tasks.choices import MARKER

TOLERANCE = Fraction(1, 10**6)
"""Numbers this close are the same (scorers specification, section 6)."""

_LONGEST = 60  # digits; a longer one is a model that repeats itself, not an answer
_GAP = ",\u00a0\u2009\u202f"  # what may part thousands: comma and the narrow and fixed spaces
# Not inside a word (H2O, x1), and a point counts as decimal only where no digit or letter stands before it.
_DIGITS = re.compile(
    rf"(?<![A-Za-z0-9_])(?:[0-9]{{1,3}}(?:[{_GAP}][0-9]{{3}})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![A-Za-z0-9_.])\.[0-9]+"
)
_OVER = re.compile(r"\s?/\s?([0-9]{1,15})(?![0-9/]|\.[0-9])")
_MIXED = re.compile(r"[ \u00a0]([0-9]{1,15})/([0-9]{1,15})(?![0-9/])")
_DASHES = "-\u2212\u2013"  # hyphen (first, so that it makes no range in a class), minus sign, en dash
_SIGN = re.compile(rf"([{_DASHES}])(\s*)[$€£¥]?\s?\Z")
_BEFORE_SIGN = re.compile(r"(?:[=:(\[{,$€£¥*<>≈~]|\b(?:is|are|was|be|equals?))\Z")
_REST_OF_LINE = re.compile(r"[\s.*_$%`]*(?:\n|\Z)")
# What may stand between the numbers of one calculation.
_OPERATORS = re.compile(rf"(?:[{_DASHES}\s+*/×÷·=()$€£¥%]|\\times|\\cdot|\\div|\bx\b)*")
_FRACTION = re.compile(r"([0-9]?)\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_BOX = re.compile(r"\\?boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_NO_WORD = re.compile(r"(?:[^A-Za-z0-9]|\\boxed|\\text)*")
_OFFICIAL = re.compile(r"-?[0-9]*\.?[0-9]+")


class _Number(NamedTuple):
    start: int
    end: int
    value: Fraction


def robust_number(text: str) -> tuple[str | None, str]:
    """Return the number that a reply gives as its answer.

    The rules in order; the first that finds a number decides:

    1. the first number behind the last "answer is" (behind "answer:" only where no word stands between); of a calculation that starts
       there, the number behind its last "=";
    2. the number in the last ``\\boxed{...}``;
    3. the last number.

    Examples
    --------
    >>> (
    ...     robust_number("so 1,200 apples. The answer is $1,200.")[0],
    ...     robust_number("3 + 4 = 7.0")[0],
    ...     robust_number("costs $5 and $6")[0],
    ... )
    ('1200', '7', '6')
    >>> robust_number("no number")
    (None, 'no number found')

    Notes
    -----
    Source: scorers specification, section 6. Added here: "answer:", calculations, mixed numbers, LaTeX fractions and separators, and
    which dash is a minus sign (not that of "10 - 3", "3-5" or of a list item).
    """
    clean = _clean(text)
    numbers = list(_numbers(clean))
    if not numbers:
        return None, "no number found" if text.strip() else "the reply is empty"
    markers = list(MARKER.finditer(clean))
    if markers:
        last = markers[-1]
        behind = [number for number in numbers if number.start >= last.end()]
        close = behind and (last["only"] is None or _NO_WORD.fullmatch(clean, last.end(), behind[0].start))
        if close:
            return number_text(_result(clean, behind)), 'number after the last "answer"'
    for box in reversed(list(_BOX.finditer(clean))):
        inside = [number for number in numbers if box.start(1) <= number.start and number.end <= box.end(1)]
        if inside:
            return number_text(_result(clean, inside)), "number in the last box"
    return number_text(numbers[-1].value), "last number"


def official_number(text: str) -> tuple[str | None, str]:
    """Return the number that the authors' scorer of GSM8K and SVAMP takes: commas removed, the last number, written by way of a float.

    >>> official_number("The answer is 18.00, not 7 - 3")[0]
    '3'
    """
    found = _OFFICIAL.findall(text.replace(",", ""))
    if not found:
        return None, "no number found"
    value = float(found[-1])
    if not math.isfinite(value):
        return None, "the last number is too large for a float"
    return (str(int(value)) if value.is_integer() else str(value)), "last number"


def gold_number(text: str) -> str:
    """Return the gold number of a GSM8K rationale: what stands behind the last ``####``, commas and spaces removed.

    Raises
    ------
    ValueError
        There is no ``####`` or no number behind it.

    Examples
    --------
    >>> gold_number("5 + 995 = 1000\\n#### 1,000"), gold_number("#### -3")
    ('1000', '-3')
    """
    _, mark, tail = text.rpartition("####")
    bare = re.sub(rf"[\s{_GAP}]", "", tail)
    value = read_number(bare)
    if not mark or value is None:
        raise ValueError(f"no number behind '####' in {text[-40:]!r}")
    return number_text(value)


def same_number(first: str, second: str) -> bool:
    """Say whether two texts, each a single number, differ by at most `TOLERANCE`; False where one of them is none.

    >>> same_number("27.0", "27"), same_number("1/3", "0.3333333"), same_number("3", "-3")
    (True, True, False)
    """
    one, other = read_number(first), read_number(second)
    return one is not None and other is not None and abs(one - other) <= TOLERANCE


def read_number(text: str) -> Fraction | None:
    """Return the value of a text that is one number and nothing else, or None.

    >>> read_number(" -1,200.50 "), read_number("3/4"), read_number("12 apples")
    (Fraction(-2401, 2), Fraction(3, 4), None)
    """
    bare = text.strip()
    numbers = list(_numbers(bare))
    whole = len(numbers) == 1 and (numbers[0].start, numbers[0].end) == (0, len(bare))
    return numbers[0].value if whole else None


def number_text(value: Fraction) -> str:
    """Return the canonical text of a number: a decimal without trailing zeros where there is a finite one, else a fraction.

    >>> number_text(Fraction(7)), number_text(Fraction(-1, 8)), number_text(Fraction(2, 6))
    ('7', '-0.125', '1/3')
    """
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    with localcontext(prec=8 * _LONGEST):
        text = f"{Decimal(value.numerator) / Decimal(value.denominator):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# -------------------------------------------------------------------------------------------------------------------- numbers in a text


def _clean(text: str) -> str:
    """Undo the LaTeX that parts or stacks digits."""
    text = text.replace("{,}", ",").replace("\\,", "").replace("\\!", "").replace("\\$", "$")
    return _FRACTION.sub(lambda match: f"{match[1]} {match[2]}/{match[3]}".removeprefix(" "), text)


def _numbers(text: str) -> Iterator[_Number]:
    """Yield the numbers of a text in order, with sign, fraction and mixed number."""
    position = 0
    while match := _DIGITS.search(text, position):
        position = match.end()
        if position - match.start() > _LONGEST:
            continue
        value = Fraction(re.sub(f"[{_GAP}]", "", match[0]))
        mixed = _MIXED.match(text, position) if match[0].isdigit() else None
        over = _OVER.match(text, position) if text[match.start() - 1 : match.start()] != "/" else None
        if mixed and 0 < int(mixed[1]) < int(mixed[2]):
            value, position = value + Fraction(int(mixed[1]), int(mixed[2])), mixed.end()
        elif over and int(over[1]):
            value, position = value / int(over[1]), over.end()
        start = _sign(text, match.start(), position)
        yield _Number(match.start() if start is None else start, position, value if start is None else -value)


def _sign(text: str, start: int, end: int) -> int | None:
    """Return where the minus sign of the number at `start` stands, or None where it has none."""
    window = max(0, start - 16)
    sign = _SIGN.search(text[window:start])
    if sign is None:
        return None
    place = window + sign.start()
    before = text[:place][-16:]
    if not sign[2]:  # the dash touches the number: a sign, unless it also touches what is subtracted from
        return None if re.search(r"[\w)\]}%]\Z", before) else place
    line = before.rstrip(" \t")
    if not line or line.endswith(
        "\n"
    ):  # "- 3" at the start of a line is a list item, unless the line holds nothing else
        return place if _REST_OF_LINE.match(text, end) else None
    return place if _BEFORE_SIGN.search(line) else None


def _result(text: str, numbers: list[_Number]) -> Fraction:
    """Return the first number, or what a calculation that starts with it arrives at ("9 * 2 = 18", but not "18 = 9 * 2")."""
    first = value = numbers[0].value
    for one, other in pairwise(numbers):
        between = text[one.end : other.start]
        if not between.strip() or not _OPERATORS.fullmatch(between):
            break
        value = other.value if "=" in between else first
    return value
