"""The two prompts of the suite: what a reader is asked, and what the receiver is asked.

Both open with fixed instructions and worked examples (shots.py), the same for every task of a kind. A reader then sees the
question and its source; the question comes first, since a small reader copies what it read last into its report. The receiver
sees the delivered packets and last the question, since a small receiver judges best what it read last. Prompts of one workload share
the opening, replays of one task share the packets they have in common from the first on.

Every sentence and every packet stands on one line of its own behind a header that we write. Fields have no line breaks, so no
text can forge a header; special tokens are disabled when the text is tokenised. The schema admits only evidence ids that are
shown in the prompt, and nothing when nothing is shown. The receiver's prompt is the same whatever policy chose the packets, and no
prompt contains a gold answer.

Not covered: retrieval, several turns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lib.messages.message import clean_field
from lib.messages.packets import Packet
from lib.messages.shots import READER_RULES, READER_SHOTS, RECEIVER_RULES, RECEIVER_SHOTS
from lib.models.receiver import Prompt, Turn
from lib.seeds import digest
from lib.tasks.task import LABELS, Source, Task

PROMPTS = "prompts-4"  # raise when the layout of a prompt or a schema changes
NO_EVIDENCE = "No evidence received."
QUOTE_WORDS = 14  # words of a sentence that a reader may quote behind its [Si] mark
NOTHING = "none"  # what is copied where nothing is shown
_FIELD = re.compile(r"(?:^|\s)(Claim|Evidence|Uncertainty|Request):\s")
_MARKS = re.compile(r"^(?:\[S\d+\]\s*)+")
_SHOWN = re.compile(r"\[S(\d{1,9})\]")  # a longer number is no sentence, and Python may refuse to read it


def query_line(task: Task) -> str:
    """Return the question or claim on one line, with its header."""
    return f"{'Claim' if task.kind == 'verification' else 'Question'}: {clean_field(task.query)}"


# ---------------------------------------------------------------------------------------------------------------- readers


def asked_line(task: Task) -> str:
    """Return the reader's question on one line.

    A claim is called a statement here: a small reader that sees the word claim copies it into the field of that name.
    """
    return f"{'Statement to check' if task.kind == 'verification' else 'Question'}: {clean_field(task.query)}"


def quotation(sentence: str) -> str:
    """Return the part of a sentence that is quoted: its first words."""
    return " ".join(clean_field(sentence).split()[:QUOTE_WORDS])


def quotations(source: Source) -> dict[str, str]:
    """Map what a reader may quote - the first words of each sentence - to the evidence text that is sent, `[Si] ` and the quote.

    The reader chooses by the words, since a small model cannot name a number before it has said the sentence; the number is
    added afterwards. The last entry is `none`.
    """
    quotes: dict[str, str] = {}
    for index, sentence in enumerate(source.sentences):
        quote = quotation(sentence)
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


def _reader_reply(values: Sequence[str]) -> str:
    return json.dumps(
        dict(zip(("evidence", "claim", "uncertainty", "request"), values, strict=True)),
        ensure_ascii=False,
        separators=(",", ":"),
    )


def reader_prompt(task: Task, source: Source, quotable: Sequence[int] | None = None) -> Prompt:
    """Return the prompt of the reader of one source.

    Parameters
    ----------
    quotable : sequence of int, optional
        Sentences the reader may quote, at least one (see shortlist.py); None leaves it every sentence, and none at all.
    """
    turns = [Turn("system", READER_RULES)]
    for query, title, sentences, values in READER_SHOTS:
        turns += [Turn("user", reader_text(query, title, sentences)), Turn("assistant", _reader_reply(values))]
    turns.append(Turn("user", reader_text(asked_line(task), source.title, source.sentences)))
    quotes: Iterable[str] = quotations(source)
    if quotable is not None:
        quotes = dict.fromkeys(quotation(source.sentences[index]) for index in sorted(quotable))
    return Prompt(tuple(turns), reader_schema(quotes))


# ---------------------------------------------------------------------------------------------------------------- receiver


def packet_line(packet: Packet) -> str:
    """Return the line that shows a delivered packet to the receiver (spec: Source <public id> - <Type>: content)."""
    return f"Source {clean_field(packet.source_id)} - {packet.type.capitalize()}: {clean_field(packet.content)}"


def receiver_text(query: str, lines: Sequence[str]) -> str:
    """Return the user turn of the receiver: one line a packet, then the question."""
    return "\n".join([*(lines or [NO_EVIDENCE]), query])


def shown_evidence(packets: Sequence[Packet]) -> dict[str, list[int]]:
    """Return the source ids that delivered packets show, in order, each with the sentence numbers shown for it."""
    shown: dict[str, list[int]] = {}
    for packet in packets:
        marks = shown.setdefault(clean_field(packet.source_id), [])
        for mark in _SHOWN.findall(packet.content):
            if int(mark) not in marks:
                marks.append(int(mark))
    return {source: sorted(marks) for source, marks in shown.items()}


def reports(packets: Sequence[Packet]) -> dict[str, tuple[str, list[int]]]:
    """Return what a receiver may copy from delivered packets: the first words of each claim and piece of evidence.

    Returns
    -------
    dict of report to (source id, up to three numbers of the sentences it shows), in the order shown. Of equal reports the first that
    shows a sentence counts. What a reader leaves open or asks for says nothing about a claim and is left out.
    """
    found: dict[str, tuple[str, list[int]]] = {}
    for packet in packets:
        pieces = _FIELD.split(clean_field(packet.content))
        fields = [packet.type, *(name.lower() for name in pieces[1::2])]
        for name, text in zip(fields, pieces[::2], strict=True):
            report = quotation(_MARKS.sub("", text))
            if name in ("uncertainty", "request") or report in ("", NOTHING):
                continue
            marks = sorted(dict.fromkeys(int(mark) for mark in _SHOWN.findall(text)))[:3]
            if report not in found or (marks and not found[report][1]):
                found[report] = (clean_field(packet.source_id), marks)
    return found


def receiver_schema(kind: str, packets: Sequence[Packet]) -> dict[str, Any]:
    """Return the schema of the receiver's reply, evidence limited to the ids in `packets`."""
    shown = shown_evidence(packets)
    if kind == "fanout":
        text = {"type": "string", "maxLength": 120}
        entries = {
            "type": "object",
            "properties": {source: {"type": "string", "maxLength": 40} for source in shown},
            "additionalProperties": False,
        }
        fields: dict[str, Any] = {
            "evidence": _array([{"const": source} for source in shown], 8),
            "answer": {"anyOf": [entries, text]} if shown else text,
        }
    elif kind == "verification":
        # One choice settles the report, one the label; what stands where is then forced. Where nothing is shown nothing is known.
        verdicts = []
        for report, (source, marks) in reports(packets).items():
            cited = [{"doc": source, "sentences": marks}] if marks else []
            verdicts += [_verdict(report, label, [] if label == "NOT_ENOUGH_INFO" else cited) for label in LABELS]
        return {"anyOf": verdicts or [_verdict(NOTHING, "NOT_ENOUGH_INFO", [])]}
    else:
        sentences = [item for source, marks in shown.items() for item in _cited_sentences("title", source, marks)]
        fields = {"evidence": _array(sentences, 4), "answer": {"type": "string", "maxLength": 60}}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _array(choices: list[dict[str, Any]], most: int) -> dict[str, Any]:
    if not choices:
        return {"type": "array", "items": {"type": "string"}, "maxItems": 0}
    return {"type": "array", "items": {"anyOf": choices}, "maxItems": min(most, len(choices))}


def _cited_sentences(key: str, source: str, marks: list[int]) -> list[dict[str, Any]]:
    """One choice a document: its id and one of its shown sentences."""
    return [_object({key: {"const": source}, "sentence": {"enum": marks}})] if marks else []


def _verdict(report: str, label: str, cited: list[Any]) -> dict[str, Any]:
    return _object({"report": {"const": report}, "label": {"const": label}, "evidence": {"const": cited}})


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def verdict_openings(report: str) -> list[str]:
    """Return how a verification reply that copies `report` begins for each label, in the order of `LABELS`.

    An opening ends with the label's first word, which settles it. What follows is forced by the schema, so its probability must
    not count: neither the rest of a longer label, nor the closing quote, a token that also holds what comes next.
    """
    copied = json.dumps(report, ensure_ascii=False)
    return [f'{{"report":{copied},"label":"{label.split("_")[0]}' for label in LABELS]


def receiver_prompt(task: Task, packets: Sequence[Packet], offsets: Mapping[str, float] | None = None) -> Prompt:
    """Return the receiver's prompt for a delivered packet set, the same for every policy and for the empty set.

    Packets are shown in (message, segment) order whatever order they come in. `offsets` are nats a label, for verification
    tasks (see calibrate.py).
    """
    delivered = sorted(packets, key=lambda packet: packet.packet_id)
    turns = [Turn("system", RECEIVER_RULES[task.kind])]
    for lines, query, reply in RECEIVER_SHOTS[task.kind]:
        turns += [
            Turn("user", receiver_text(query, lines)),
            Turn("assistant", json.dumps(reply, ensure_ascii=False, separators=(",", ":"))),
        ]
    turns.append(Turn("user", receiver_text(query_line(task), [packet_line(packet) for packet in delivered])))
    bias = tuple(offsets.items()) if offsets and task.kind == "verification" else ()
    return Prompt(tuple(turns), receiver_schema(task.kind, delivered), bias)


def prompts_hash() -> str:
    """Return the SHA-256 of every fixed text of this module, for manifests."""
    return digest(PROMPTS, READER_RULES, RECEIVER_RULES, repr(READER_SHOTS), repr(RECEIVER_SHOTS), QUOTE_WORDS)
