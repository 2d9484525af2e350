"""Hold a text to a number of tokens without breaking what it says.

Context
-------
A merged message may have at most kappa times the tokens of the two it replaces, counted by the tokenizer of the model that
will read it (MOC paper, eq. 15). The paper asks for that in the prompt; a model does not always obey, so the cap is enforced here.

Intuition
---------
A text that is too long ends with the last sentence that fits; where not even the first one does, with the last word;
where not even a word does, with the last character as people see it. Words and characters are those of Unicode
(UAX 29), so 12,345 does not become 12, and no accent or emoji is torn. Every text that is returned has been counted as it is:
tokenizers may need more tokens for a part than for the whole, so arithmetic would not do.

How to read the result
----------------------
`cut_to` returns a beginning of the text within the cap; it is empty when the first character alone is over the cap.

Not covered: choosing what to leave out. What is cut off is always the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import regex

from lib.messages.packets import segment_text

CountTokens = Callable[[Sequence[str]], list[int]]

_WORD_BOUNDARY = regex.compile(r"(?w)\b")
_CHARACTER = regex.compile(r"\X")


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of `text` with the white space behind them; joined they are `text`.

    A line end always ends one, so that headings, list items and lines of code stand alone.

    >>> sentences("It holds. So 2 < 3.\\n- item")
    ['It holds. ', 'So 2 < 3.\\n', '- item']
    """
    return [part.span for line in text.splitlines(keepends=True) for part in segment_text(line, "sentence")]


def cut_to(text: str, cap: int, count_tokens: CountTokens) -> str:
    """Return `text` if it has at most `cap` tokens, else a beginning of it that has.

    Parameters
    ----------
    cap : int
        Tokens, at least 0.
    count_tokens : callable
        Tokens of each text, special tokens left out: `Receiver.count_tokens` of the model that will read it.

    Raises
    ------
    ValueError
        For a negative cap.
    """
    if cap < 0:
        raise ValueError(f"cap: a text has at least 0 tokens, not {cap}")
    if count_tokens([text])[0] <= cap:
        return text
    text = text.strip()
    for ends in (_sentence_ends, _word_ends, _character_ends):
        kept = _longest_within(text, ends(text), cap, count_tokens)
        if kept:
            return kept
    return ""


def _sentence_ends(text: str) -> list[int]:
    return list(accumulate(len(part) for part in sentences(text)))


def _word_ends(text: str) -> list[int]:
    return [match.start() for match in _WORD_BOUNDARY.finditer(text) if match.start() > 0]


def _character_ends(text: str) -> list[int]:
    return [match.end() for match in _CHARACTER.finditer(text)]


def _longest_within(text: str, ends: Sequence[int], cap: int, count_tokens: CountTokens) -> str:
    """Return the longest beginning found by bisection over `ends`, white space at its end removed; empty when none fits."""
    best, low, high = "", 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        kept = text[: ends[middle]].rstrip()
        if count_tokens([kept])[0] <= cap:
            best, low = kept, middle + 1
        else:
            high = middle
    return best
