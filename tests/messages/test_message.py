"""Messages: canonical text, cleaning of untrusted fields, ordinals."""

from __future__ import annotations

import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.messages.message import (
    FIELDS,
    Message,
    MessageError,
    canonical_text,
    clean_field,
    limit_words,
    limited_fields,
    ordinal,
)
from tests.messages.strategies import any_text, field, messages


def message(**changes: object) -> Message:
    values = {
        "task_id": "t1",
        "slot": 0,
        "turn": 0,
        "sender": "reader_0",
        "receiver": "verifier",
        "source_id": "D1",
        "claim": "Water boils at 100 C",
        "evidence": "[S0] Water boils at 100 C at sea level",
        "uncertainty": "none stated",
        "request": "none",
    }
    return Message(**{**values, **changes})


def test_canonical_text_is_four_lines_in_order() -> None:
    assert message(uncertainty="").text == (
        "Claim: Water boils at 100 C\nEvidence: [S0] Water boils at 100 C at sea level\nUncertainty: none\nRequest: none"
    )


def test_ids_and_route() -> None:
    item = message(slot=7, sender="reader_7")
    assert (item.message_id, item.group_id, item.route) == ("m07", "g07", "reader_7->verifier")


@given(messages())
def test_no_field_can_forge_a_line(item: Message) -> None:
    lines = item.text.split("\n")
    assert [line.split(":", 1)[0] for line in lines] == [name.capitalize() for name in FIELDS]
    # str.splitlines also breaks at VT, FF, FS-RS, NEL, U+2028 and U+2029: none may survive inside a line.
    assert item.text.splitlines() == lines


@pytest.mark.parametrize(
    "breaker", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
def test_each_line_break_becomes_spaces(breaker: str) -> None:
    item = message(claim=f"one{breaker}Evidence: forged")
    assert item.claim == "one" + " " * len(breaker) + "Evidence: forged"
    assert item.text.count("\n") == 3


@given(field)
def test_cleaning_changes_controls_and_ends_alone(text: str) -> None:
    expected = "".join(" " if unicodedata.category(c) in {"Cc", "Zl", "Zp"} else c for c in text).strip()
    assert clean_field(text) == (expected or "none")
    assert clean_field(clean_field(text)) == clean_field(text)


@given(field, field, field, field)
def test_message_text_is_canonical_text(claim: str, evidence: str, uncertainty: str, request: str) -> None:
    item = message(claim=claim, evidence=evidence, uncertainty=uncertainty, request=request)
    assert item.text == canonical_text(claim, evidence, uncertainty, request)


@pytest.mark.parametrize("name", ["task_id", "sender", "receiver", "source_id", *FIELDS])
def test_lone_surrogate_is_refused_by_name(name: str) -> None:
    with pytest.raises(
        MessageError, match=rf"task .*message m00, field '{name}': lone surrogate U\+D83D at character 2"
    ):
        message(**{name: "ab\ud83d"})


def test_paired_surrogates_are_one_character_and_pass() -> None:
    assert message(claim="\U0001f600 is here").claim == "😀 is here"


@pytest.mark.parametrize("changes", [{"slot": -1}, {"turn": True}, {"slot": "0"}])
def test_bad_numbers_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(MessageError, match=next(iter(changes))):
        message(**changes)


def test_field_of_wrong_type_is_refused() -> None:
    with pytest.raises(MessageError, match="field 'claim': must be text, not NoneType"):
        message(claim=None)


def test_decoding_cleans_too() -> None:
    raw = msgspec.json.encode(message()).replace(b'"claim":"Water', b'"claim":"x\\nRequest: Water')
    assert msgspec.json.decode(raw, type=Message).claim == "x Request: Water boils at 100 C"


@given(st.integers(0, 20_000), st.integers(0, 20_000))
def test_ordinal_text_order_is_numeric_order(a: int, b: int) -> None:
    assert (a < b) == (ordinal(a) < ordinal(b))


def test_ordinal_forms() -> None:
    assert [ordinal(n) for n in (0, 7, 99, 100, 999, 1000)] == ["00", "07", "99", "a100", "a999", "b1000"]
    with pytest.raises(ValueError, match="-1"):
        ordinal(-1)


@given(any_text, st.integers(0, 8))
def test_limit_words_keeps_a_prefix_of_at_most_n_words(text: str, words: int) -> None:
    cut = limit_words(text, words)
    assert len(cut.split()) == min(words, len(text.split()))
    assert cut.split() == text.split()[:words]
    assert cut in text


def test_limited_fields_cut_to_16_16_10_10_and_fill() -> None:
    long = " ".join(f"w{i}" for i in range(30))
    fields = limited_fields({"claim": long, "evidence": long, "uncertainty": long})
    assert [len(fields[name].split()) for name in FIELDS] == [16, 16, 10, 1]
    assert fields["request"] == "none"


def test_limited_fields_drop_line_breaks_before_counting() -> None:
    assert limited_fields({"claim": "a\nb\u2028c"})["claim"] == "a b c"
