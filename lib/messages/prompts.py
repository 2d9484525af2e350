"""The two prompts of the suite: what a reader is asked, and what the receiver is asked.

Both are a fixed opening (instructions and worked examples, the same for every task of a kind), then the task's question, then
the text that varies. So prompts of one task share all but their ends, and prompts of one workload share the opening.

Every sentence and every packet stands on one line of its own behind a header that we write. Fields have no line breaks, so no
text can forge a header; special tokens are disabled when the text is tokenised. The schema admits only evidence ids that are shown in the prompt,
and nothing when nothing is shown.

The examples are about invented things that occur in no workload. No prompt contains a gold answer, and the receiver's prompt is the
same whatever policy chose the packets.

Not covered: retrieval, several turns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from lib.messages.message import clean_field
from lib.messages.packets import Packet
from lib.models.receiver import Prompt, Turn
from lib.seeds import digest
from lib.tasks.task import LABELS, Source, Task

PROMPTS = "prompts-1"  # raise when any text below changes
NO_EVIDENCE = "No evidence received."
QUOTE_WORDS = 14  # words of a sentence that a reader may quote behind its [Si] mark
_SHOWN = re.compile(r"\[S(\d+)\]")

READER_RULES = (
    "You are a reader. You see one source and one question or claim. Report only what the source says, in four short fields. "
    "claim: one sentence with the names and values that matter. evidence: the sentence of the source that shows it, or none. "
    "uncertainty: what the source leaves open. request: what another reader should look up."
)
RECEIVER_RULES = {
    "verification": (
        "You decide whether reports support a claim. SUPPORT: they state the same. CONTRADICT: they state something else about the same "
        "thing. NOT_ENOUGH_INFO: they do not speak of it. Cite the sentences that decide. Answer in JSON."
    ),
    "bridge": "You answer a question from reports of several readers; often one report leads to another. Cite the sentences used. Answer in JSON.",
    "fanout": "You answer a question about several things from reports of several readers. Give a value for each. Cite the pages used. Answer in JSON.",
}


def query_line(task: Task) -> str:
    """Return the question or claim on one line, with its header."""
    return f"{'Claim' if task.kind == 'verification' else 'Question'}: {clean_field(task.query)}"


# ---------------------------------------------------------------------------------------------------------------- readers


def quotations(source: Source) -> dict[str, str]:
    """Map what a reader may quote - the first words of each sentence - to the evidence text that is sent, `[Si] ` and the quote.

    The reader chooses by the words, since a small model cannot name a number before it has said the sentence; the number is
    added afterwards. The last entry is `none`.
    """
    quotes: dict[str, str] = {}
    for index, sentence in enumerate(source.sentences):
        quote = " ".join(clean_field(sentence).split()[:QUOTE_WORDS])
        quotes.setdefault(quote, f"[S{index}] {quote}")
    quotes["none"] = "none"
    return quotes


def reader_text(query: str, title: str, sentences: Sequence[str]) -> str:
    """Return the user turn of a reader: question, source title, numbered sentences."""
    lines = [query, f"Source: {clean_field(title)}"]
    lines += [f"[S{index}] {clean_field(sentence)}" for index, sentence in enumerate(sentences)]
    return "\n".join(lines)


def reader_schema(quotes: Iterable[str]) -> dict[str, Any]:
    """Return the schema of a reader's reply: four short strings, evidence quoted from the source."""
    fields = {
        "evidence": {"enum": list(quotes)},
        "claim": {"type": "string", "minLength": 1, "maxLength": 100},
        "uncertainty": {"type": "string", "minLength": 1, "maxLength": 70},
        "request": {"type": "string", "minLength": 1, "maxLength": 70},
    }
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


_READER_SHOTS = (
    (
        "Question: Which river flows past the Ostrel Mill?",
        "Ostrel Mill",
        ("The Ostrel Mill has a roof of slate.", "The Ostrel Mill stands on the bank of the Pennow River."),
        ("The Ostrel Mill stands on the bank of the Pennow River.", "The Pennow River flows past the Ostrel Mill.", "none stated", "none"),
    ),
    (
        "Claim: The Dunlo Tower has 212 steps.",
        "Dunlo Tower",
        ("Visitors climb 148 steps to the top of the Dunlo Tower.", "The Dunlo Tower is painted white."),
        ("Visitors climb 148 steps to the top of the Dunlo Tower.", "The Dunlo Tower has 148 steps.", "none stated", "none"),
    ),
    (
        "Question: In which town was the painter of the Blue Harbour born?",
        "Tervo Lighthouse",
        ("The Tervo Lighthouse was lit by oil lamps.", "The keeper of the Tervo Lighthouse kept goats."),
        (
            "none",
            "The source is about the Tervo Lighthouse only.",
            "The painter of the Blue Harbour is not mentioned.",
            "Who painted the Blue Harbour, and where was the painter born?",
        ),
    ),
    (
        "Question: In which town was the painter of the Blue Harbour born?",
        "Blue Harbour",
        ("The Blue Harbour hangs in a library.", "The Blue Harbour was painted by Milo Arvens in one summer."),
        (
            "The Blue Harbour was painted by Milo Arvens in one summer.",
            "The Blue Harbour was painted by Milo Arvens.",
            "The birthplace of Milo Arvens is not given.",
            "In which town was Milo Arvens born?",
        ),
    ),
)


def _reader_reply(values: Sequence[str]) -> str:
    return json.dumps(dict(zip(("evidence", "claim", "uncertainty", "request"), values, strict=True)), ensure_ascii=False, separators=(",", ":"))


def reader_prompt(task: Task, source: Source) -> Prompt:
    """Return the prompt of the reader of one source."""
    turns = [Turn("system", READER_RULES)]
    for query, title, sentences, values in _READER_SHOTS:
        turns += [Turn("user", reader_text(query, title, sentences)), Turn("assistant", _reader_reply(values))]
    turns.append(Turn("user", reader_text(query_line(task), source.title, source.sentences)))
    return Prompt(tuple(turns), reader_schema(quotations(source)))


# ---------------------------------------------------------------------------------------------------------------- receiver


def packet_line(packet: Packet) -> str:
    """Return the line that shows a delivered packet to the receiver (spec: Source <public id> - <Type>: content)."""
    return f"Source {clean_field(packet.source_id)} - {packet.type.capitalize()}: {clean_field(packet.content)}"


def receiver_text(query: str, lines: Sequence[str]) -> str:
    """Return the user turn of the receiver: the question, then one line a packet."""
    return "\n".join([query, *(lines or [NO_EVIDENCE])])


def shown_evidence(packets: Sequence[Packet]) -> dict[str, list[int]]:
    """Return the source ids that delivered packets show, in order, each with the sentence numbers shown for it."""
    shown: dict[str, list[int]] = {}
    for packet in packets:
        marks = shown.setdefault(clean_field(packet.source_id), [])
        for mark in _SHOWN.findall(packet.content):
            if int(mark) not in marks:
                marks.append(int(mark))
    return {source: sorted(marks) for source, marks in shown.items()}


def receiver_schema(kind: str, packets: Sequence[Packet]) -> dict[str, Any]:
    """Return the schema of the receiver's reply, evidence limited to the ids in `packets`."""
    shown = shown_evidence(packets)
    if kind == "fanout":
        text = {"type": "string", "maxLength": 120}
        entries = {"type": "object", "properties": dict.fromkeys(shown, {"type": "string", "maxLength": 40}), "additionalProperties": False}
        fields: dict[str, Any] = {
            "evidence": _array([{"const": source} for source in shown], 8),
            "answer": {"anyOf": [entries, text]} if shown else text,
        }
    else:
        key, items = ("doc", _cited_documents) if kind == "verification" else ("title", _cited_sentences)
        choices = [item for source, marks in shown.items() for item in items(key, source, marks)]
        first = {"label": {"enum": list(LABELS)}} if kind == "verification" else {"answer": {"type": "string", "maxLength": 60}}
        fields = {"evidence": _array(choices, 2 if kind == "verification" else 4), **first}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _array(choices: list[dict[str, Any]], most: int) -> dict[str, Any]:
    if not choices:
        return {"type": "array", "items": {"type": "string"}, "maxItems": 0}
    return {"type": "array", "items": {"anyOf": choices}, "maxItems": min(most, len(choices))}


def _cited_documents(key: str, source: str, marks: list[int]) -> list[dict[str, Any]]:
    """One choice a document: its id and some of its shown sentences."""
    if not marks:
        return []
    sentences = {"type": "array", "items": {"enum": marks}, "minItems": 1, "maxItems": min(3, len(marks))}
    return [_object({key: {"const": source}, "sentences": sentences})]


def _cited_sentences(key: str, source: str, marks: list[int]) -> list[dict[str, Any]]:
    """One choice a document: its id and one of its shown sentences."""
    return [_object({key: {"const": source}, "sentence": {"enum": marks}})] if marks else []


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


_RECEIVER_SHOTS: dict[str, tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...]] = {
    "verification": (
        (
            "Claim: The Dunlo Tower has 212 steps.",
            ("Source Dunlo Tower - Claim: The Dunlo Tower has 148 steps.", "Source Dunlo Tower - Evidence: [S0] Visitors climb 148 steps to the top of the Dunlo Tower."),
            {"evidence": [{"doc": "Dunlo Tower", "sentences": [0]}], "label": "CONTRADICT"},
        ),
        (
            "Claim: The roof of the Ostrel Mill is made of slate.",
            ("Source Ostrel Farm - Claim: The Ostrel Farm has a roof of straw.", "Source Ostrel Mill - Evidence: [S0] The Ostrel Mill has a roof of slate."),
            {"evidence": [{"doc": "Ostrel Mill", "sentences": [0]}], "label": "SUPPORT"},
        ),
        (
            "Claim: The Tervo Lighthouse was built by Milo Arvens.",
            (
                "Source Tervo Lighthouse - Claim: The source is about the lamps of the Tervo Lighthouse.",
                "Source Tervo Lighthouse - Uncertainty: The builder of the Tervo Lighthouse is not mentioned.",
            ),
            {"evidence": [], "label": "NOT_ENOUGH_INFO"},
        ),
    ),
    "bridge": (
        (
            "Question: In which town was the painter of the Blue Harbour born?",
            (
                "Source Blue Harbour - Claim: The Blue Harbour was painted by Milo Arvens.",
                "Source Blue Harbour - Evidence: [S1] The Blue Harbour was painted by Milo Arvens in one summer.",
                "Source Dunlo Tower - Claim: The source is about the Dunlo Tower only.",
                "Source Milo Arvens - Evidence: [S3] Milo Arvens was born in the town of Pellick.",
            ),
            {"evidence": [{"title": "Blue Harbour", "sentence": 1}, {"title": "Milo Arvens", "sentence": 3}], "answer": "Pellick"},
        ),
        (
            "Question: What colour is the roof of the house in which Senna Brool lived?",
            ("Source Senna Brool - Evidence: [S0] Senna Brool lived in Corvin House.", "Source Corvin House - Claim: Corvin House has a green roof."),
            {"evidence": [{"title": "Senna Brool", "sentence": 0}], "answer": "green"},
        ),
    ),
    "fanout": (
        (
            "Question: What is the colour of each of these boats: the Arla, the Benno and the Calda?",
            (
                "Source Arla - Claim: The Arla is red.",
                "Source Dorro - Evidence: [S2] The Dorro is white.",
                "Source Benno - Evidence: [S0] The hull of the Benno is painted blue.",
            ),
            {"evidence": ["Arla", "Benno"], "answer": {"Arla": "red", "Benno": "blue"}},
        ),
    ),
}


def receiver_prompt(task: Task, packets: Sequence[Packet]) -> Prompt:
    """Return the receiver's prompt for a delivered packet set, the same for every policy and for the empty set.

    Packets are shown in (message, segment) order whatever order they come in.
    """
    delivered = sorted(packets, key=lambda packet: packet.packet_id)
    turns = [Turn("system", RECEIVER_RULES[task.kind])]
    for query, lines, reply in _RECEIVER_SHOTS[task.kind]:
        turns += [Turn("user", receiver_text(query, lines)), Turn("assistant", json.dumps(reply, ensure_ascii=False, separators=(",", ":")))]
    turns.append(Turn("user", receiver_text(query_line(task), [packet_line(packet) for packet in delivered])))
    return Prompt(tuple(turns), receiver_schema(task.kind, delivered))


def prompts_hash() -> str:
    """Return the SHA-256 of every fixed text of this module, for manifests."""
    return digest(PROMPTS, READER_RULES, RECEIVER_RULES, repr(_READER_SHOTS), repr(_RECEIVER_SHOTS), QUOTE_WORDS)
