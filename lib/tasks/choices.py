"""Read the chosen letter out of a reply to a multiple-choice question, in two ways.

Context
-------
A reply is prose, and only a letter can be compared with the gold letter. What is taken for the answer decides scores by several points,
so both ways are kept: `robust_letter` for results, `official_letter` for comparisons with scores of the authors' scorer.

Intuition
---------
The official rule takes the first option letter anywhere in the upper-cased text. "THE ANSWER IS C" holds an A, in ANSWER. It is safe for a
bare letter only. The robust rules go from the clearest sign to the weakest: a letter behind the last "answer is" or "answer:", a line that
is a letter, the last letter that stands alone.

How to read the result
----------------------
Each function returns (letter or None, how it was found or why not). None is not a guess: "none of the above", two letters at once, or a
letter that is no option are no answer, even where an option letter stands elsewhere in the text.

Not covered: answers spelt out without "answer is"; letters in other scripts; who is right (`lib.tasks.questions`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

MARKER = re.compile(r"\banswer\b[\s*_\"'`]*(?:is\b[\s*_]*:?|(?P<only>:))", re.IGNORECASE)
"""ANSWER IS, answer is:, **Answer:** and the like; the word alone ("answer a question") is none. `only`: a colon without "is"."""

_SIGNS = r"[\s*_`\"'(\[{$]*"  # what may stand around a letter: emphasis, quotes, brackets, mathematics
_LETTER = re.compile(
    rf"{_SIGNS}(?:\\[(\[]\s*)?(?:\\(?:boxed|text|textbf|mathrm|mathbf)\{{{_SIGNS})*(?i:(?:the\s+)?(?:option|choice|letter)\b\s*:?{_SIGNS})?"
    r"([A-Z])(?!\w|['’-]\w|\.\w)"
)
_SECOND = re.compile(r"[)\]}*\s]*(?:\b(?:or|and)\b|&|/)[\s*(\[]*([A-Z])\b")
_NO_OPTION = re.compile(
    rf"{_SIGNS}(?:none\b|neither\b|unknown\b|unclear\b|undetermined\b|no\s+(?:option|answer)|not\s+(?:listed|given|among)|"
    r"cannot\b|can't\b|n/a\b)",
    re.IGNORECASE,
)
_BARE = re.compile(r"[\s*_`\"'(\[$]*([A-Za-z])[\s*_`\"')\]$.:,!]*")
_LED = re.compile(r"[\s*_`(\[]*([A-Z])[*_`\s]*[).:\]][*_`)\]]*\s+\S.*")  # a line that repeats an option: "B) Paris"
_ALONE = re.compile(r"(?<![\w'’])([A-Z])(?!\w|['’-]\w)")
_FIRST_LINE = re.compile(r"\s*([^\n]*)")
_ARTICLE = re.compile(r"\s+[a-z]")  # "A car", "I think": a lower-case word behind the letter
# Words that go on after an answer rather than make "A" an article or "I" a pronoun.
_GOES_ON = re.compile(
    r"\s+(?:because|since|as|for|is|and|or|but|which|where|while|due|based|by|from|with|in|per|so|then|if|given|not)\b"
)


def robust_letter(text: str, options: Sequence[str]) -> tuple[str | None, str]:
    """Return the letter that a reply chooses.

    The rules in order; the first that finds something decides:

    1. the last "answer is" or "answer:" that is followed by an upper-case letter, by the text of an option, or by words like "none of";
    2. the last line, where it is a letter alone or an option repeated ("B) Paris"); then the first line, where it is a letter alone;
    3. the last upper-case option letter that stands alone; not "A" or "I" before a lower-case word.

    Parameters
    ----------
    text
        The reply.
    options
        Texts of the options; they set the range of letters.

    Returns
    -------
    (str or None, str)
        An option letter, or None; and the reason in words.

    Examples
    --------
    >>> robust_letter("I think A is wrong. Final answer: (D)", ["w", "x", "y", "z"])
    ('D', 'letter after the last "answer"')
    >>> robust_letter("ANSWER: None of the above", ["w", "x", "y", "z"])[0] is None
    True

    Notes
    -----
    Source: scorers specification, section 5. Added here: refusals, two letters, letters outside of the options, repeated options, option
    texts, and the first line.
    """
    letters = string.ascii_uppercase[: len(options)]
    for marker in reversed(list(MARKER.finditer(text))):
        found = _after(text, marker.end(), options)
        if found is not None:
            return found
    lines = [line for line in text.split("\n") if line.strip()]
    if lines:
        bare = _BARE.fullmatch(lines[-1]) or _LED.fullmatch(lines[-1])
        if bare and bare[1].upper() in letters:
            return bare[1].upper(), "letter of the last line"
        bare = _BARE.fullmatch(lines[0])
        if bare and bare[1].upper() in letters:
            return bare[1].upper(), "letter of the first line"
    alone = [match[1] for match in _ALONE.finditer(text) if match[1] in letters and not _is_word(text, match)]
    if alone:
        return alone[-1], "last letter that stands alone"
    return None, "no letter found" if text.strip() else "the reply is empty"


def _after(text: str, start: int, options: Sequence[str]) -> tuple[str | None, str] | None:
    """Return what the text behind an answer marker says, or None where it says nothing about a choice."""
    letters = string.ascii_uppercase[: len(options)]
    line = _FIRST_LINE.match(text, start)
    said = _plain(line[1]) if line else ""
    same = [letter for letter, option in zip(letters, options, strict=True) if _plain(option) == said]
    if len(same) == 1 and not re.fullmatch("[a-z]?", said):
        return same[0], 'option text after the last "answer"'
    if refusal := _NO_OPTION.match(text, start):
        return None, f"says {refusal[0].strip()!r}, which is no option"
    match = _LETTER.match(text, start)
    if match is None or (_is_word(text, match) and not _GOES_ON.match(text, match.end())):
        return None
    second = _SECOND.match(text, match.end())
    if second and second[1] in letters and not _ARTICLE.match(text, second.end()):
        return None, f"names {match[1]} and {second[1]}"
    if match[1] not in letters:
        return None, f"names {match[1]}, which is no option"
    return match[1], 'letter after the last "answer"'


def _plain(text: str) -> str:
    return text.strip(" \t*_`\"'.,;:!()[]$").casefold()


def _is_word(text: str, letter: re.Match[str]) -> bool:
    """Say whether a letter is the article A or the pronoun I."""
    return letter[1] in "AI" and _ARTICLE.match(text, letter.end()) is not None


def official_letter(text: str, count: int) -> tuple[str | None, str]:
    """Return the letter that the authors' scorer of MMLU and MMLU-Pro takes: the first A, B, C ... anywhere in the upper-cased text.

    Parameters
    ----------
    text
        The reply. The word OPTION and colons are deleted first.
    count
        Number of letters: 4 for MMLU; 10 for MMLU-Pro, whatever a question offers.

    Examples
    --------
    >>> official_letter("Option: C", 4)[0], official_letter("The answer is B", 4)[0]
    ('C', 'A')

    Notes
    -----
    Source: MOC specification, section 5. The A of the second example is the A of ANSWER; that is what the authors' scorer does.
    """
    bare = text.upper().replace("OPTION", "").replace(":", "")
    found = next((letter for letter in bare if letter in string.ascii_uppercase[:count]), None)
    return found, "first option letter of the upper-cased text" if found else "no option letter"


def official_aqua_letter(text: str) -> tuple[str | None, str]:
    """Return the letter that the authors' scorer of AQuA takes: behind the last "The answer is", else the last A to E that stands alone.

    >>> official_aqua_letter("The answer is (B). E is too large.")[0]
    'B'
    """
    said = re.findall(r"[Tt]he answer is \(?([A-E])\b", text)
    if said:
        return said[-1], 'letter after "The answer is"'
    alone = re.findall(r"\b([A-E])\b", text)
    return (alone[-1], "last letter that stands alone") if alone else (None, "no option letter")
