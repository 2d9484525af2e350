"""One payload in five encodings: nothing added, nothing lost, fixed texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.exchange import ENCODINGS, Payload
from lib.coordination.payload import FIELDS, canonical_json, filled_fields, read_payload, render

FULL = Payload("edit", "src/a.py", "it sets the flag.", "the test wants 3", "keep the signature")
payloads = st.builds(Payload, *[st.text(max_size=20) for _ in FIELDS])


def test_the_five_encodings_to_the_letter() -> None:
    line = (
        '{"action_type":"edit","constraints":"keep the signature","context":"the test wants 3",'
        '"rationale":"it sets the flag.","target_artifact":"src/a.py"}'
    )
    bullets = (
        "- action_type: edit\n- target_artifact: src/a.py\n- rationale: it sets the flag.\n"
        "- context: the test wants 3\n- constraints: keep the signature"
    )
    assert {encoding: render(FULL, encoding) for encoding in ENCODINGS} == {
        "json": line,
        "header": f"DECISION action_type=edit target_artifact=src/a.py\n{line}",
        "prose": "The next action is edit. Its target is src/a.py. The reason: it sets the flag. "
        "What to know: the test wants 3. What to heed: keep the signature.",
        "bullets": bullets,
        "bullets_json": f"{bullets}\n{line}",
    }


@given(payloads, st.sampled_from(ENCODINGS))
def test_every_filled_field_is_shown_word_for_word(payload: Payload, encoding: str) -> None:
    text = render(payload, encoding)
    for value in filled_fields(payload).values():
        assert value in text or json.dumps(value, ensure_ascii=False)[1:-1] in text
    if encoding in ("bullets", "prose"):
        assert text.count("\n") == max(0, len(filled_fields(payload)) - 1) * (encoding == "bullets")


@given(payloads)
def test_reading_back_what_was_written(payload: Payload) -> None:
    cleaned = Payload(**filled_fields(payload))
    found = read_payload(f"Here: {canonical_json(payload)}.")
    assert found == (cleaned if filled_fields(payload) else None)


def test_an_empty_field_is_not_shown_and_lists_become_a_line() -> None:
    read = read_payload(
        '{"action": "read", "tool": "find", "constraints": ["once", "", "no\\nretry"], "context": null}'
    )
    assert read == Payload("read", "find", constraints="once; no retry")
    assert render(read, "json") == '{"action_type":"read","constraints":"once; no retry","target_artifact":"find"}'


@pytest.mark.parametrize(
    "text", ["", "edit a.py", "{}", '{"answer": 3}', '{"action_type": "edit"', '{"rationale": " "}']
)
def test_what_is_no_payload(text: str) -> None:
    assert read_payload(text) is None


def test_a_field_cannot_forge_a_bullet() -> None:
    assert render(Payload(rationale="so\n- action_type: delete"), "bullets") == "- rationale: so - action_type: delete"


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(ValueError, match="bullets_json"):
        render(FULL, "yaml")
