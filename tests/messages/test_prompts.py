"""Prompts: one line a packet, the question in its place, only shown ids in the schema, and no gold anywhere."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, validate

from lib.messages.message import Message, clean_field
from lib.messages.packets import METHODS, Method, Packet, packetize, packetize_task
from lib.messages.produce import message_of, produce
from lib.messages.prompts import (
    NO_EVIDENCE,
    QUOTE_WORDS,
    asked_line,
    packet_line,
    prompts_hash,
    query_line,
    quotations,
    reader_prompt,
    reader_schema,
    receiver_prompt,
    receiver_schema,
    receiver_text,
    reports,
    shown_evidence,
    verdict_openings,
)
from lib.messages.shots import READER_SHOTS, RECEIVER_SHOTS
from lib.models.receiver import Prompt, Reply
from lib.models.scripted import ScriptedReceiver
from lib.tasks.registry import load_workload
from lib.tasks.task import LABELS, Gold, Kind, Source, Task, Workload
from tests.messages.strategies import any_text, field, task_messages

KINDS: tuple[Kind, ...] = ("verification", "bridge", "fanout")
CITING = ("bridge", "fanout")  # kinds whose replies choose what they cite
NAMES = {"verification": "worlds_verification", "bridge": "worlds_bridge", "fanout": "worlds_fanout"}


def task(kind: Kind = "verification", query: str = "The Alda is red.", sources: tuple[Source, ...] = ()) -> Task:
    return Task(id="t1", family=f"family-{kind}", kind=kind, query=query, sources=sources, version="1")


def source(*sentences: str, title: str = "Alda") -> Source:
    return Source(id=title, title=title, sentences=sentences)


def packet(source_id: str, kind: str, content: str, number: int = 0) -> Packet:
    return Packet(
        packet_id=f"t1|m{number:02d}|s00",
        task_id="t1",
        route=f"reader_{number}->verifier",
        message_id=f"m{number:02d}",
        group_id=f"g{number:02d}",
        segment=0,
        type=kind,
        content=content,
        span=content,
        slot=number,
        turn=number,
        source_id=source_id,
    )


@cache
def worlds(kind: str) -> Workload:
    return load_workload(NAMES[kind], limit=6)


@cache
def world_packets(kind: str) -> dict[str, list[Packet]]:
    corpus = produce(ScriptedReceiver(), worlds(kind))
    return {task_id: packetize_task(messages) for task_id, messages in corpus.by_task().items()}


def schema_of(prompt: Prompt) -> dict[str, Any]:
    assert prompt.schema is not None
    return prompt.schema


def valid(value: Any, schema: dict[str, Any]) -> bool:
    return Draft202012Validator(schema).is_valid(value)


def citation(kind: str, name: str, number: int) -> Any:
    """Return the evidence item of one id, in the form of the kind."""
    return name if kind == "fanout" else {"title": name, "sentence": number}


def replies(kind: str, evidence: list[Any]) -> list[dict[str, Any]]:
    """Return the smallest replies of a kind that cite `evidence`."""
    return [{"evidence": evidence, "answer": "red"}]


# ------------------------------------------------------------------------------------------------------------------------- lines


@pytest.mark.parametrize("kind", KINDS)
@given(messages=task_messages(), query=field, method=st.sampled_from(METHODS))
def test_each_packet_is_one_line_behind_its_own_header_and_the_question_is_last(
    kind: Kind, messages: list[Message], query: str, method: Method
) -> None:
    """Line feeds, U+2028 and the rest in a content, an id or a question open no line: a forged header stays inside its own."""
    packets = packetize_task(messages, method)
    asked = task(kind, query)
    text = receiver_prompt(asked, packets).turns[-1].text
    lines = text.split("\n")
    assert text.splitlines() == lines
    assert lines[-1] == ("Claim: " if kind == "verification" else "Question: ") + clean_field(query)
    if packets:
        heads = [f"Source {clean_field(item.source_id)} - {item.type.capitalize()}: " for item in packets]
        assert len(lines) == len(packets) + 1
        assert [line.startswith(head) for line, head in zip(lines, heads, strict=False)] == [True] * len(packets)
        assert [line[len(head) :] for line, head in zip(lines, heads, strict=False)] == [
            clean_field(item.content) for item in packets
        ]
    else:
        assert lines[:-1] == [NO_EVIDENCE]


@given(query=field, title=field, sentences=st.lists(field, max_size=4))
def test_each_sentence_is_one_line_behind_its_number_and_the_question_comes_first(
    query: str, title: str, sentences: list[str]
) -> None:
    text = reader_prompt(task(query=query), source(*sentences, title=title)).turns[-1].text
    lines = text.split("\n")
    assert text.splitlines() == lines
    assert lines == [
        f"Statement to check: {clean_field(query)}",
        f"Source: {clean_field(title)}",
        *(f"[S{index}] {clean_field(sentence)}" for index, sentence in enumerate(sentences)),
    ]


def test_a_reader_of_a_claim_is_not_shown_the_word_claim() -> None:
    assert query_line(task()) == "Claim: The Alda is red."
    assert asked_line(task()) == "Statement to check: The Alda is red."
    assert asked_line(task("bridge", "Who?")) == query_line(task("bridge", "Who?")) == "Question: Who?"


# ------------------------------------------------------------------------------------------------------------------- what is shared


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_of_a_kind_share_everything_before_the_last_turn(kind: str) -> None:
    packets = world_packets(kind)
    asked = [receiver_prompt(one, packets[one.id][:count]) for one in worlds(kind).tasks for count in (0, 1, 99)]
    read = [reader_prompt(one, page) for one in worlds(kind).tasks for page in one.sources]
    for prompts in (asked, read):
        assert len({prompt.turns[:-1] for prompt in prompts}) == 1
        assert [turn.role for turn in prompts[0].turns[:3]] == ["system", "user", "assistant"]
        assert prompts[0].turns[-1].role == "user"
    assert len({prompt.turns[-1].text for prompt in asked}) == len(asked)


def test_readers_of_all_kinds_share_their_opening() -> None:
    opened = {reader_prompt(worlds(kind).tasks[0], worlds(kind).tasks[0].sources[0]).turns[:-1] for kind in KINDS}
    assert len(opened) == 1


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_the_prompt_is_the_same_whatever_the_order_of_the_packets(kind: str, data: st.DataObject) -> None:
    one = data.draw(st.sampled_from(worlds(kind).tasks))
    chosen = data.draw(st.lists(st.sampled_from(world_packets(kind)[one.id]), unique_by=lambda p: p.packet_id))
    ordered = receiver_prompt(one, sorted(chosen, key=lambda item: item.packet_id))
    assert msgspec.json.encode(receiver_prompt(one, chosen)) == msgspec.json.encode(ordered)


@pytest.mark.parametrize("kind", KINDS)
def test_gold_cannot_change_a_prompt(kind: str) -> None:
    """Every answer, label and evidence id is replaced; what readers and receiver are asked stays the same to the byte."""

    def asked(workload: Workload) -> bytes:
        prompts: list[Prompt] = []

        def script(prompt: Prompt) -> str:
            prompts.append(prompt)
            return ScriptedReceiver().reply([prompt])[0].text

        corpus = produce(ScriptedReceiver(script), workload)
        cut = {task_id: packetize_task(messages) for task_id, messages in corpus.by_task().items()}
        prompts += [receiver_prompt(one, cut[one.id]) for one in workload.tasks]
        return msgspec.json.encode(prompts)

    other = {
        task_id: Gold(task_id=task_id, label="CONTRADICT", answer="Zyzzyva", evidence=(("Zyzzyva", 7),))
        for task_id in worlds(kind).gold
    }
    assert other != worlds(kind).gold
    assert asked(msgspec.structs.replace(worlds(kind), gold=other)) == asked(worlds(kind))
    assert not set(Gold.__struct_fields__) & set(Task.__struct_fields__)


def admitted(schema: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Return every (report, label, evidence) that a verification schema admits."""
    options = [option["properties"] for option in schema["anyOf"]]
    return [tuple(option[name]["const"] for name in ("report", "label", "evidence")) for option in options]


def test_labels_are_offered_alike_for_every_report() -> None:
    """No report is tied to a label, whatever it says."""
    packets = world_packets("verification")
    for one in worlds("verification").tasks:
        offered: dict[str, list[str]] = {}
        for report, label, _ in admitted(schema_of(receiver_prompt(one, packets[one.id]))):
            offered.setdefault(report, []).append(label)
        assert offered and all(tuple(labels) == LABELS for labels in offered.values())


# ------------------------------------------------------------------------------------------------------------------------ schema


@pytest.mark.parametrize("kind", CITING)
@settings(max_examples=40)
@given(data=st.data())
def test_a_reply_may_cite_the_shown_ids_and_no_other(kind: str, data: st.DataObject) -> None:
    """For any subset of a task's packets: each id of the task is admitted exactly if a delivered packet shows it."""
    one = data.draw(st.sampled_from(worlds(kind).tasks))
    chosen = data.draw(st.lists(st.sampled_from(world_packets(kind)[one.id]), unique_by=lambda p: p.packet_id))
    schema = receiver_schema(kind, chosen)
    for page in one.sources:
        mine = [item.content for item in chosen if item.source_id == page.id]
        for number in range(len(page.sentences) + 1):
            shown = bool(mine) if kind == "fanout" else any(f"[S{number}]" in content for content in mine)
            cited = replies(kind, [citation(kind, page.id, number)])
            assert [valid(reply, schema) for reply in cited] == [shown] * len(cited), (page.id, number)
    assert all(valid(reply, schema) for reply in replies(kind, []))


@pytest.mark.parametrize("kind", CITING)
@given(messages=task_messages(), data=st.data())
def test_hostile_packets_keep_the_schema_sound(kind: str, messages: list[Message], data: st.DataObject) -> None:
    packets = packetize_task(messages, data.draw(st.sampled_from(METHODS)))
    schema = receiver_schema(kind, packets)
    for name, marks in shown_evidence(packets).items():
        for number in marks:
            assert all(valid(reply, schema) for reply in replies(kind, [citation(kind, name, number)]))
    stranger = data.draw(any_text.filter(lambda text: text not in shown_evidence(packets)))
    assert not any(valid(reply, schema) for reply in replies(kind, [citation(kind, stranger, 0)]))


@pytest.mark.parametrize("kind", CITING)
def test_nothing_can_be_cited_when_nothing_is_shown(kind: str) -> None:
    unmarked = [] if kind == "fanout" else [packet("Alda", "claim", "The Alda is red, says the page.")]
    for packets in ([], unmarked):
        schema = receiver_schema(kind, packets)
        assert all(valid(reply, schema) for reply in replies(kind, []))
        items: list[Any] = ["Alda", "", {}, citation(kind, "Alda", 0)]
        for item in items:
            assert not any(valid(reply, schema) for reply in replies(kind, [item]))


def test_values_of_a_fanout_answer_are_named_after_shown_pages() -> None:
    schema = receiver_schema(
        "fanout", [packet("Alda", "claim", "The Alda is red."), packet("Boro", "claim", "x y z", 1)]
    )
    assert valid({"evidence": ["Alda"], "answer": {"Alda": "red", "Boro": "blue"}}, schema)
    assert valid({"evidence": [], "answer": "red and blue"}, schema)
    assert not valid({"evidence": ["Alda"], "answer": {"Cyra": "red"}}, schema)


def test_marks_are_read_from_every_packet_of_a_source_once_and_in_order() -> None:
    packets = [
        packet("Alda", "evidence", "[S7] It is red. [S2] It is old.", 0),
        packet("Boro", "claim", "No sentence is named.", 1),
        packet("Alda", "claim", "As [S2] says, and [S11].", 2),
    ]
    assert shown_evidence(packets) == {"Alda": [2, 7, 11], "Boro": []}


def test_a_number_too_long_to_be_a_sentence_is_no_mark() -> None:
    """Python refuses to read a number of 5,000 digits; text that a source made up must not stop a run."""
    assert shown_evidence([packet("Alda", "claim", f"[S{'9' * 5000}] and [S3] tell.")]) == {"Alda": [3]}


# ------------------------------------------------------------------------------------------------------------- verification


def test_a_verdict_copies_a_shown_report_and_cites_what_it_shows() -> None:
    packets = [
        packet("Alda", "evidence", "[S4] The Alda is red. Uncertainty: none stated Request: How old?", 0),
        packet("Boro", "claim", "The Boro is old.", 1),
        packet("Boro", "uncertainty", "Its colour is open.", 2),
        packet("Cyra", "request", "Who painted it?", 3),
    ]
    assert reports(packets) == {"The Alda is red.": ("Alda", [4]), "The Boro is old.": ("Boro", [])}
    cited = [{"doc": "Alda", "sentences": [4]}]
    schema = receiver_schema("verification", packets)
    assert admitted(schema) == [
        ("The Alda is red.", "SUPPORT", cited),
        ("The Alda is red.", "CONTRADICT", cited),
        ("The Alda is red.", "NOT_ENOUGH_INFO", []),
        ("The Boro is old.", "SUPPORT", []),
        ("The Boro is old.", "CONTRADICT", []),
        ("The Boro is old.", "NOT_ENOUGH_INFO", []),
    ]
    assert not valid({"report": "Its colour is open.", "label": "SUPPORT", "evidence": []}, schema)
    assert not valid({"report": "The Alda is red.", "label": "SUPPORT", "evidence": []}, schema)


def test_a_whole_message_is_copied_field_by_field() -> None:
    text = "Claim: The Alda is red.\nEvidence: [S4] Painters made the Alda red.\nUncertainty: Its age.\nRequest: none"
    found = reports([packet("Alda", "message", text)])
    assert found == {"The Alda is red.": ("Alda", []), "Painters made the Alda red.": ("Alda", [4])}


def test_of_equal_reports_the_first_that_shows_a_sentence_counts() -> None:
    packets = [
        packet("Alda", "claim", "It is red.", 0),
        packet("Boro", "evidence", "[S2] It is red.", 1),
        packet("Cyra", "evidence", "[S5] It is red.", 2),
    ]
    assert reports(packets) == {"It is red.": ("Boro", [2])}


def test_a_report_is_as_long_as_a_quote_and_names_three_sentences_at_most() -> None:
    long = " ".join(f"w{i}" for i in range(30))
    found = reports([packet("Alda", "evidence", f"[S7] [S1] {long} [S3] [S0]")])
    assert found == {" ".join(long.split()[:QUOTE_WORDS]): ("Alda", [0, 1, 3])}


@given(messages=task_messages(), method=st.sampled_from(METHODS))
def test_hostile_packets_keep_a_verdict_sound(messages: list[Message], method: Method) -> None:
    packets = packetize_task(messages, method)
    schema, shown = receiver_schema("verification", packets), shown_evidence(packets)
    for report, label, evidence in admitted(schema):
        assert valid({"report": report, "label": label, "evidence": evidence}, schema)
        assert all(set(item["sentences"]) <= set(shown[item["doc"]]) for item in evidence)
        assert label != "NOT_ENOUGH_INFO" or not evidence
    settled = [("none", "NOT_ENOUGH_INFO", [])]
    assert (admitted(schema) == settled) == (not reports(packets))


def test_without_a_report_nothing_is_known() -> None:
    only = [("none", "NOT_ENOUGH_INFO", [])]
    assert admitted(receiver_schema("verification", [])) == only
    assert admitted(receiver_schema("verification", [packet("Alda", "evidence", "none")])) == only


def test_openings_are_how_a_verdict_begins_and_offsets_name_the_same_words() -> None:
    for label, opening in zip(LABELS, verdict_openings('Say "red".'), strict=True):
        reply = {"report": 'Say "red".', "label": label, "evidence": []}
        assert json.dumps(reply, separators=(",", ":")).startswith(opening)
    offsets = {"SUPPORT": 1.0, "CONTRADICT": -2.0, "NOT_ENOUGH_INFO": 0.0}
    assert receiver_prompt(task(), [], offsets).bias == tuple(offsets.items())
    assert receiver_prompt(task(), []).bias == receiver_prompt(task("bridge"), [], offsets).bias == ()


# ----------------------------------------------------------------------------------------------------------------------- readers


def reader_replies(quotes: list[str]) -> list[dict[str, str]]:
    return [{"evidence": q, "claim": "It is red.", "uncertainty": "none stated", "request": "none"} for q in quotes]


def test_a_reader_may_quote_each_sentence_or_none() -> None:
    page = source("It is red.", "It is old.", "It is red.")
    schema = schema_of(reader_prompt(task(), page))
    offered = schema["properties"]["evidence"]["enum"]
    assert offered == ["It is red.", "It is old.", "none"]
    assert all(valid(reply, schema) for reply in reader_replies(offered))
    assert not any(valid(reply, schema) for reply in reader_replies(["It is blue.", "", "[S0] It is red."]))


def test_quotable_restricts_what_is_quoted_and_changes_nothing_else() -> None:
    page = source("It is red.", "It is old.", "It is big.")
    free, bound = reader_prompt(task(), page), reader_prompt(task(), page, [2, 0])
    assert bound.turns == free.turns
    assert schema_of(bound)["properties"]["evidence"] == {"enum": ["It is red.", "It is big."]}
    schema_of(bound)["properties"]["evidence"] = schema_of(free)["properties"]["evidence"]
    assert bound == free


def test_a_quote_is_the_first_words_of_a_sentence() -> None:
    long = " ".join(f"w{i}" for i in range(30))
    quotes = quotations(source(long, "two\u2028lines  here"))
    assert quotes == {
        " ".join(long.split()[:QUOTE_WORDS]): "[S0] " + " ".join(long.split()[:QUOTE_WORDS]),
        "two lines here": "[S1] two lines here",
        "none": "none",
    }


def test_equal_quotes_stand_for_the_first_sentence() -> None:
    opening = " ".join(["word"] * QUOTE_WORDS)
    quotes = quotations(source("It is red.", f"{opening} one", "It is red.", f"{opening} two"))
    assert list(quotes.values()) == ["[S0] It is red.", f"[S1] {opening}", "none"]


def test_a_sentence_that_spells_none_is_no_evidence() -> None:
    assert quotations(source("none", "  ", "It is red.")) == {"none": "none", "It is red.": "[S2] It is red."}
    assert quotations(source()) == {"none": "none"}


# ----------------------------------------------------------------------------------------------------------------- worked examples

RECEIVER_SHOTS_OF = [(kind, shot) for kind in KINDS for shot in RECEIVER_SHOTS[kind]]
_PACKET = re.compile(r"Source (?P<id>.+?) - (?P<type>[A-Z][a-z]+): (?P<content>.+)")


def shot_packets(lines: tuple[str, ...]) -> list[Packet]:
    matches = [_PACKET.fullmatch(line) for line in lines]
    return [
        packet(match["id"], match["type"].lower(), match["content"], number)
        for number, match in enumerate(matches)
        if match
    ]


@pytest.mark.parametrize(("kind", "shot"), RECEIVER_SHOTS_OF)
def test_a_worked_reply_obeys_the_schema_of_its_own_lines(kind: Kind, shot: Any) -> None:
    """So what it cites is among the ids its lines show, and what it copies is one of them."""
    lines, query, reply = shot
    packets = shot_packets(lines)
    assert tuple(packet_line(item) for item in packets) == lines
    assert query.startswith("Claim: " if kind == "verification" else "Question: ")
    validate(reply, receiver_schema(kind, packets))
    assert list(reply)[-1 if kind == "verification" else 0] == "evidence"
    turns = [turn.text for turn in receiver_prompt(task(kind), []).turns]
    asked = turns.index(receiver_text(query, lines))
    assert json.loads(turns[asked + 1]) == reply


def test_verdicts_of_the_examples_cite_where_and_only_where_they_judge() -> None:
    seen = set()
    for _, _, reply in RECEIVER_SHOTS["verification"]:
        assert reply["report"] != "none"
        assert bool(reply["evidence"]) == (reply["label"] != "NOT_ENOUGH_INFO")
        seen.add(reply["label"])
    assert seen == set(LABELS)


@pytest.mark.parametrize("shot", READER_SHOTS)
def test_a_worked_message_obeys_its_schema_and_is_no_fallback(shot: Any) -> None:
    query, title, sentences, values = shot
    page = source(*sentences, title=title)
    quotes = quotations(page)
    reply = dict(zip(("evidence", "claim", "uncertainty", "request"), values, strict=True))
    validate(reply, reader_schema(quotes))
    said = message_of(task(sources=(page,)), 0, Reply(text=json.dumps(reply)))
    assert not said.fallback
    assert said.evidence == quotes[reply["evidence"]]
    assert query.startswith(("Statement to check: ", "Question: "))


def shot_names() -> set[str]:
    """Return every id and title of the examples, and the capitalised words in them that are no common nouns."""
    names = {title for _, title, _, _ in READER_SHOTS}
    names |= {item.source_id for _, (lines, _, _) in RECEIVER_SHOTS_OF for item in shot_packets(lines)}
    texts = [text for shot in READER_SHOTS for text in (shot[0], *shot[2], *shot[3])]
    texts += [text for _, (lines, query, _) in RECEIVER_SHOTS_OF for text in (*lines, query)]
    names |= {word for text in texts for word in re.findall(r"(?<=[a-z] )[A-Z][a-z]+", text)}
    common = {"Mill", "River", "Tower", "Blue", "Harbour", "Lighthouse", "Farm", "Bridge", "House"}
    return names - common - {"Evidence", "Claim"}


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_of_the_examples_occurs_in_a_generated_task(kind: str) -> None:
    names = shot_names()
    assert {"Ostrel", "Milo", "Arvens", "Pellick", "Blue Harbour", "Senna Brool"} <= names
    for one in load_workload(NAMES[kind], limit=300).tasks:
        text = " ".join([one.query, *(t for s in one.sources for t in (s.id, s.title, *s.sentences))])
        found = names & set(re.findall(r"\w+", text))
        found |= {name for name in names if " " in name and name in text}
        assert not found, (one.id, found)


def test_the_hash_names_the_fixed_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    import lib.messages.prompts as module

    before = prompts_hash()
    assert re.fullmatch(r"[0-9a-f]{64}", before)
    hashes = {before}
    for name, value in (
        ("READER_RULES", "Read."),
        ("RECEIVER_RULES", {**module.RECEIVER_RULES, "bridge": "Answer."}),
        ("READER_SHOTS", READER_SHOTS[1:]),
        ("RECEIVER_SHOTS", {**RECEIVER_SHOTS, "fanout": ()}),
        ("QUOTE_WORDS", 3),
        ("PROMPTS", "other"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            hashes.add(prompts_hash())
    assert len(hashes) == 7
    assert prompts_hash() == before


def test_a_packet_says_its_source_type_and_content() -> None:
    said = Message(
        "t1", 0, 0, "reader_0", "verifier", "Alda", "It is red", "[S0] The Alda is red", "none stated", "none"
    )
    assert [packet_line(item) for item in packetize(said)] == [
        "Source Alda - Claim: It is red",
        "Source Alda - Evidence: [S0] The Alda is red Uncertainty: none stated Request: none",
    ]
