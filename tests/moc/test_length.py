"""Tests of lib/moc/length.py."""

from __future__ import annotations

import doctest
from collections.abc import Callable, Sequence

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from lib.moc import length as module
from lib.moc.length import cut_to, sentences
from tests.messages.strategies import field
from tests.moc.embedding import count_bytes, count_pieces, count_words

COUNTERS = [count_words, count_bytes, count_pieces]
Counter = Callable[[Sequence[str]], list[int]]


def test_examples() -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


@given(field)
def test_sentences_lose_nothing(text: str) -> None:
    assert "".join(sentences(text)) == text


@given(field, st.integers(0, 40), st.sampled_from(COUNTERS))
def test_the_cap_always_holds_and_only_the_end_is_lost(text: str, cap: int, count: Counter) -> None:
    kept = cut_to(text, cap, count)
    assert count([kept])[0] <= cap
    assert kept == text or text.strip().startswith(kept)
    assert (kept == text) == (count([text])[0] <= cap or not text)


@given(field, st.integers(0, 40), st.sampled_from(COUNTERS))
def test_no_character_is_torn(text: str, cap: int, count: Counter) -> None:
    kept = cut_to(text, cap, count)
    if kept != text:
        ends = {match.end() for match in regex.finditer(r"\X", text.strip())} | {0}
        # White space behind a kept part is dropped, which may itself carry a mark.
        rest = text.strip()[len(kept) :]
        assert len(kept) in ends or rest[0].isspace()


def test_the_last_sentence_that_fits_ends_the_text() -> None:
    text = "The train is late. It comes at noon. We wait here until it comes."
    assert cut_to(text, 13, count_words) == "The train is late. It comes at noon."
    assert cut_to(text, 8, count_words) == "The train is late. It comes at noon."
    assert cut_to(text, 7, count_words) == "The train is late."
    assert cut_to(text, 3, count_words) == "The train is"
    assert cut_to(text, 99, count_words) == text


def test_lines_end_like_sentences() -> None:
    code = "def f(x):\n    return x + 1\n\nf(2)"
    assert cut_to(code, 6, count_words) == "def f(x):\n    return x + 1"


def test_numbers_and_graphemes_stay_whole() -> None:
    assert cut_to("is 12,345.60 km", len("is 12,345"), count_bytes) == "is"
    family = "👨‍👩‍👧‍👦"
    assert cut_to(family * 3, 2 * len(family.encode()) + 5, count_bytes) == family * 2
    assert cut_to("e\u0301\u0323e\u0301", 6, count_bytes) == "e\u0301\u0323"
    assert cut_to("🇩🇪🇫🇷", 12, count_bytes) == "🇩🇪"
    assert cut_to("中文字符在这里", 11, count_bytes) == "中文字"
    assert cut_to("unbelievable", 4, count_bytes) == "unbe"


def test_nothing_is_left_where_no_character_fits() -> None:
    assert cut_to("👨‍👩‍👧‍👦 and more", 3, count_bytes) == ""
    assert cut_to("word", 0, count_words) == ""
    with pytest.raises(ValueError, match="cap"):
        cut_to("word", -1, count_words)


def test_counting_stays_cheap_on_a_long_text() -> None:
    calls = 0

    def count(texts: Sequence[str]) -> list[int]:
        nonlocal calls
        calls += len(texts)
        return count_words(texts)

    text = "One two three four five. " * 20_000
    assert len(cut_to(text, 50_003, count).split()) == 50_000
    assert calls < 30
