"""Truncation: the longest beginning that fits, against a search by hand, under tokenizers that merge."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.budget import cut, deliver
from lib.models.scripted import ScriptedReceiver

WORDS = ScriptedReceiver()


class Merging:
    """Whole known words are one token, other words one token a letter; white space belongs to the word after it.

    So a further letter can lower a count: "fil" is three tokens, "file" one.
    """

    name = fingerprint = "merging"
    known = frozenset({"file", "edit", "ab", "abab"})

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [sum(self._word(piece.strip()) for piece in re.findall(r"\s*\S+|\s+$", text)) for text in texts]

    def _word(self, word: str) -> int:
        return 1 if word in self.known else max(1, len(word))


texts = st.lists(
    st.sampled_from(["file", "fil", "edit", "ab", "abab", "abc", " ", "  ", "\n", "é", '{"a":', "x" * 9]), max_size=12
).map("".join)
counters = st.sampled_from([WORDS, Merging()])
budgets = st.integers(0, 30)


@given(texts, budgets.filter(bool), counters)
def test_the_longest_beginning_that_fits(text: str, budget: int, counter: Merging) -> None:
    beginnings = [text[:end] for end in range(len(text) + 1)]
    fitting = [one for one, n in zip(beginnings, counter.count_tokens(beginnings), strict=True) if n <= budget]
    assert cut(text, budget, counter) == max(fitting, key=len)


@given(texts, budgets, budgets, counters)
def test_idempotent_monotone_and_nested(text: str, one: int, other: int, counter: Merging) -> None:
    small, large = sorted((one, other))
    shorter, longer = cut(text, small, counter), cut(text, large, counter)
    assert text.startswith(longer) and longer.startswith(shorter)
    assert cut(shorter, small, counter) == shorter
    assert cut(longer, small, counter) == shorter
    assert counter.count_tokens([longer])[0] <= large


@given(texts, counters)
def test_enough_budget_changes_nothing(text: str, counter: Merging) -> None:
    enough = max(1, counter.count_tokens([text])[0])
    assert cut(text, enough, counter) == text
    assert not deliver(text, enough, counter).truncated


def test_a_word_that_merges_is_kept_whole() -> None:
    """Two tokens: "fil" alone would be three, "file" is one; halving by characters would have stopped before it."""
    assert cut("ab file edit", 2, Merging()) == "ab file"


def test_broken_json_is_shown_as_it_is() -> None:
    shown = deliver('{"action_type": "edit", "target_artifact": "a.py"}', 3, WORDS)
    assert shown.text == '{"action_type": "edit", "target_artifact": '
    assert (shown.tokens, shown.full_tokens, shown.truncated, shown.empty) == (3, 4, True, False)


def test_nothing_sent_and_everything_cut_are_both_empty_and_told_apart() -> None:
    assert (deliver("", 8, WORDS).empty, deliver("", 8, WORDS).truncated) == (True, False)
    assert (deliver("a b", 0, WORDS).empty, deliver("a b", 0, WORDS).truncated) == (True, True)
    assert deliver("a b", None, WORDS).text == "a b"


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="budget"):
        cut("a", -1, WORDS)
