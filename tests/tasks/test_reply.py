from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks import Source, Task
from lib.tasks.reply import quoted_sentence, read_evidence, read_reply

PAGES = (
    Source(
        id="Vendock Bridge",
        title="Vendock Bridge",
        sentences=("The Vendock Bridge is a landmark.", "Workers completed the Vendock Bridge in 1820."),
    ),
    Source(
        id="42",
        title="A study of bridges, part 2",
        sentences=("Bridges age.", "Iron bridges age faster than others.", "We measured forty."),
    ),
)


def make(kind: str = "verification") -> Task:
    return Task(id="t", family="made", kind=kind, query="?", sources=PAGES, version="1")  # type: ignore[arg-type]


def ids(evidence: Any, kind: str = "verification") -> tuple[tuple[str, int | None], ...]:
    return read_evidence(make(kind), {"evidence": evidence}).ids


def test_strict_json_is_not_marked_repaired() -> None:
    reply = read_reply('{"label": "SUPPORT", "evidence": []}')
    assert reply.parsed == {"label": "SUPPORT", "evidence": []} and not reply.repaired and reply.reason == ""


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        (
            '{"label": "SUPPORT", "evidence": [{"doc": "42", "sentences": [1',
            {"label": "SUPPORT", "evidence": [{"doc": "42", "sentences": [1]}]},
        ),
        ('```json\n{"label": "SUPPORT"}\n```', {"label": "SUPPORT"}),
        ("{'label': 'SUPPORT',}", {"label": "SUPPORT"}),
        ('Sure! {"label": "SUPPORT"}', {"label": "SUPPORT"}),
    ],
)
def test_one_repair(raw: str, parsed: dict[str, Any]) -> None:
    reply = read_reply(raw)
    assert reply.parsed == parsed and reply.repaired and "repaired" in reply.reason


@pytest.mark.parametrize(
    "raw", ["", "I do not know.", "[]", "3", "null", '"SUPPORT"', '{"a": 1} {"b": 2}', "[" * 5000, '{"a":' * 5000]
)
def test_no_object_is_said_and_nothing_is_invented(raw: str) -> None:
    reply = read_reply(raw)
    assert reply.parsed is None and reply.reason


def test_a_list_of_one_object_is_that_object() -> None:
    assert read_reply('[{"label": "SUPPORT"}]').parsed == {"label": "SUPPORT"}


def test_lone_surrogates_are_replaced_so_that_the_reply_can_be_stored() -> None:
    parsed = read_reply('{"answer": "a\\ud800b", "\\udc00": ["\\udfff"]}').parsed
    assert parsed is not None and msgspec.json.decode(msgspec.json.encode(parsed)) == parsed
    assert read_reply('{"answer": "\\ud83d\\ude00"}').parsed == {"answer": "😀"}


@pytest.mark.parametrize(
    "evidence",
    [
        [{"doc": "42", "sentences": [1]}],
        [{"doc": 42, "sentences": [1]}],
        {"doc": "42", "sentences": 1},
        [{"doc": "42", "sentences": ["S1"]}],
        [{"doc": "42", "sentences": "[S1]"}],
        [{"doc": "42", "sentences": "1"}],
        [{"doc": "42", "sentences": [[1]]}],
        [{"doc": "42", "sentences": [1.0]}],
        [{"doc": "42", "sentence": 1}],
        [{"title": "A study of bridges, part 2", "sentence": "sentence 1"}],
        [{"doc": "42", "sentences": ["Iron bridges age faster than the others"]}],
        [{"doc": "42", "sentences": "[S1] Iron bridges"}],
        [["42", 1]],
        ["42 [S1]"],
        "42, S1",
        "A study of bridges, part 2 (S1)",
        ["Iron bridges age faster than others."],
        [{"doc": "42", "sentences": [1, 1]}, {"doc": "42", "sentences": [1]}],
    ],
)
def test_ways_to_cite_the_same_sentence(evidence: Any) -> None:
    assert ids(evidence) == (("42", 1),)


def test_several_sentences_in_one_text() -> None:
    assert ids([{"doc": "42", "sentences": "S0, S2 and [S1]"}]) == (("42", 0), ("42", 2), ("42", 1))


def test_ids_are_matched_by_normal_form_and_never_guessed() -> None:
    assert ids([{"doc": "the vendock bridge", "sentences": [0]}]) == (("Vendock Bridge", 0),)
    assert ids([{"doc": "Vendok Bridge", "sentences": [0]}]) == (("Vendok Bridge", 0),)


def test_what_cannot_be_read_stays_a_citation_of_nothing() -> None:
    assert ids([{"doc": "42", "sentences": ["Quite another sentence than any in the document."]}]) == (("42", None),)
    assert ids([{"doc": "nowhere", "sentences": ["Bridges age."]}]) == (("nowhere", None),)
    assert ids([{"doc": "42", "sentences": [7, -1, 1.5, {"a": 1}]}]) == (("42", 7), ("42", -1), ("42", None))
    assert ids(["Lorem ipsum"]) == (("Lorem ipsum", None),)


@pytest.mark.parametrize(
    "evidence",
    [
        [],
        "",
        {},
        [None],
        [{"doc": "42", "sentences": []}],
        [{"doc": "42"}],
        [{"doc": "42", "sentences": [True, None, ""]}],
        [{}],
    ],
)
def test_naming_no_sentence_cites_nothing(evidence: Any) -> None:
    assert ids(evidence) == ()


def test_missing_and_empty_evidence_differ() -> None:
    assert read_evidence(make(), {"evidence": []}).present
    assert not read_evidence(make(), {}).present and not read_evidence(make(), {"evidence": None}).present


def test_fanout_cites_pages() -> None:
    assert ids(["Vendock Bridge", 42, "the vendock bridge", {"title": "Vendock Bridge"}], "fanout") == (
        ("Vendock Bridge", None),
        ("42", None),
    )
    assert ids("Vendock Bridge", "fanout") == (("Vendock Bridge", None),)
    assert ids(["Elsewhere", None, 1.5], "fanout") == (("Elsewhere", None),)


def test_the_best_quotation_wins_and_the_first_of_equals() -> None:
    page = Source(id="p", title="p", sentences=("Red cats run fast today.", "Red cats run fast.", "Red cats run fast."))
    assert quoted_sentence(page, "red cats run fast") == 1
    assert quoted_sentence(page, "red dogs walk") is None
    assert quoted_sentence(page, "") is None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["42", "Vendock Bridge", "S1"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["doc", "title", "sentences", "sentence", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(json_values, st.sampled_from(["verification", "bridge", "fanout"]))
def test_any_evidence_is_read_without_error_and_without_repeats(evidence: Any, kind: str) -> None:
    found = ids(evidence, kind)
    assert len(set(found)) == len(found)
    assert all(
        isinstance(source, str) and source and (index is None or isinstance(index, int)) for source, index in found
    )
    assert ids(evidence, kind) == found


@given(st.text(max_size=200))
def test_any_text_is_read_without_error(raw: str) -> None:
    reply = read_reply(raw)
    assert (reply.parsed is None) <= bool(reply.reason)


def test_long_hostile_texts_are_read_quickly() -> None:
    raw = json.dumps({"evidence": ["1" * 200_000 + "x", "[S1], " * 20_000 + "x"]})
    parsed = read_reply(raw).parsed
    assert parsed is not None and len(read_evidence(make(), parsed).ids) == 2
