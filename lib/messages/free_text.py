"""Cut free text into packets, exactly.

Context
-------
The messages of this suite's own readers have four fields. Those of other systems are prose, lists, code, sometimes
JSON. A packet must be a piece that means something alone and whose bytes on the wire are exact.

Intuition
---------
Writers part their thoughts by blank lines, so a paragraph is the natural packet; one of more than `LONG` words is cut
into sentences, and a fenced block of code stays whole. A message that is a JSON object with at least two of the four
fields, or that has two of their markers at line starts, is cut at the fields, as everywhere in this suite.

How to read the result
----------------------
The spans of a message's packets, joined, are the message's text, character by character. For a JSON object they are
its canonical four lines, and each further key is a packet of type ``field``, so that nothing is lost. Fragments of
fewer than three words join the packet before them. `message_id` is the place among the messages given, `source_id`
the sender.

Not covered: tables, quoted replies, languages without sentence punctuation (their paragraphs stay whole).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Literal

from lib.messages.log_content import as_text
from lib.messages.logged import LogError, LoggedMessage
from lib.messages.message import FIELDS, canonical_text, clean_field, ordinal
from lib.messages.packets import Packet, Segment, merge_short, segment_text

Cut = Literal["auto", "typed", "paragraph", "sentence", "message"]
CUTS: tuple[Cut, ...] = ("auto", "typed", "paragraph", "sentence", "message")
LONG = 60  # words of a paragraph that "auto" leaves whole
SPOKEN = ("message", "handoff", "tool_result")  # kinds that carry content to another agent

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_MARKER = re.compile(r"^(?:Claim|Evidence|Uncertainty|Request):", re.MULTILINE)
_FENCE = re.compile(r"\s{0,3}(```|~~~)")


def heard_by(
    messages: Sequence[LoggedMessage],
    agent: str = "",
    *,
    without: Collection[str] = (),
    kinds: Collection[str] = SPOKEN,
) -> tuple[list[LoggedMessage], dict[str, int]]:
    """Return the messages that an agent had heard when it spoke last, and counts of the others by reason.

    Parameters
    ----------
    messages : one conversation, in order
    agent : whose place a receiver is to take; empty takes every message
    without : senders to leave out, e.g. the user whose request is the question
    kinds : kinds of messages that count as heard

    Raises
    ------
    LogError
        When the agent never speaks in these messages; the text names those who do.
    """
    places = [place for place, message in enumerate(messages) if message.sender == agent]
    if agent and not places:
        speakers = ", ".join(dict.fromkeys(message.sender for message in messages))
        raise LogError(f"agent {agent!r} says nothing in this conversation; speakers are: {speakers}")
    kept: list[LoggedMessage] = []
    left: Counter[str] = Counter()
    for place, message in enumerate(messages):
        if agent and place > places[-1]:
            left[f"said after the last message of {agent}"] += 1
        elif message.kind not in kinds:
            left[f"of kind {message.kind}"] += 1
        elif message.sender == agent:
            left[f"said by {agent} itself"] += 1
        elif message.sender in without:
            left[f"said by {message.sender}"] += 1
        elif agent and agent not in message.receivers:
            left[f"not heard by {agent}"] += 1
        elif not message.text.strip():
            left["without text"] += 1
        else:
            kept.append(message)
    return kept, dict(left)


def log_packets(
    messages: Sequence[LoggedMessage], cut: Cut = "auto", *, task_id: str = "log", receiver: str = "receiver"
) -> list[Packet]:
    """Cut messages into packets, in packet-id order.

    Parameters
    ----------
    messages : in order; the n-th is message ``m<n>``
    cut : where to cut, see the module header; "typed" cuts as "auto" does where a message has fields and leaves others to sentences
    task_id : first part of every packet id
    receiver : second half of every route
    """
    return [
        packet for place, message in enumerate(messages) for packet in _packets(message, place, cut, task_id, receiver)
    ]


def cut_text(text: str, cut: Cut = "auto") -> list[Segment]:
    """Return the segments of one text; their spans, joined, are the text (of a JSON object with fields: its canonical form).

    >>> [segment.span for segment in cut_text("First thought here.\\n\\nSecond thought here.")]
    ['First thought here.\\n\\n', 'Second thought here.']
    """
    if cut not in CUTS:
        raise ValueError(f"cut {cut!r} is unknown: use one of {', '.join(CUTS)}")
    if cut in ("message", "sentence"):
        return segment_text(text, "message" if cut == "message" else "sentence")
    if cut != "paragraph":
        fields = typed_fields(text)
        if fields is not None:
            return _field_segments(fields)
        if len(_MARKER.findall(text)) > 1 or cut == "typed":
            return segment_text(text, "typed")
    parts: list[Segment] = []
    for span in _paragraphs(text):
        if cut == "auto" and len(span.split()) > LONG and not _FENCE.match(span):
            parts += segment_text(span, "sentence")
        else:
            parts.append(Segment("paragraph", span, span.strip()))
    return merge_short(parts)


def typed_fields(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is, if it has at least two of the four fields, known names in lower case; else None."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    named = {key.lower() if key.lower() in FIELDS else key: item for key, item in value.items()}
    return named if len(set(FIELDS) & set(named)) > 1 and len(named) == len(value) else None


def _packets(message: LoggedMessage, place: int, cut: Cut, task_id: str, receiver: str) -> list[Packet]:
    name = ordinal(place)
    segments = cut_text(message.text, cut)
    ids = [f"{task_id}|m{name}|s{ordinal(index)}" for index in range(len(segments))]
    evidence = tuple(one for one, part in zip(ids, segments, strict=True) if part.type == "evidence")
    return [
        Packet(
            packet_id=packet_id,
            task_id=task_id,
            route=f"{message.sender}->{receiver}",
            message_id=f"m{name}",
            group_id=f"g{name}",
            segment=index,
            type=part.type,
            content=part.content,
            span=part.span,
            slot=place,
            turn=place,
            source_id=message.sender,
            links=evidence if part.type == "claim" else (),
        )
        for index, (packet_id, part) in enumerate(zip(ids, segments, strict=True))
    ]


def _field_segments(fields: dict[str, Any]) -> list[Segment]:
    """Return the packets of the four fields, and one for every other key."""
    known = {name: as_text(fields.get(name)) for name in FIELDS}
    parts = segment_text(canonical_text(**known), "typed")
    for name, value in fields.items():
        if name not in FIELDS:
            line = f"{clean_field(name)}: {clean_field(as_text(value))}"
            parts.append(Segment("field", f"\n{line}", line))
    return parts


def _paragraphs(text: str) -> list[str]:
    """Cut after blank lines, outside fenced code; the pieces, joined, are the text."""
    pieces: list[str] = []
    start, position, fence, blank = 0, 0, "", False
    for match in _LINE.finditer(text):
        line = match.group()
        if not line.strip() and not fence:
            blank = position > start or start > 0  # blank lines before the first word belong to the first piece
        else:
            mark = _FENCE.match(line)
            if not fence and (blank and text[start:position].strip()):
                pieces.append(text[start:position])
                start = position
            blank = False
            if mark:
                fence = "" if fence == mark[1] else fence or mark[1]
        position = match.end()
    return [*pieces, text[start:]] if start < len(text) or not pieces else pieces
