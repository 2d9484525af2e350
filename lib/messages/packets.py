"""Cut a message into packets without losing a character.

A packet is an application-layer record: one segment of one message with the metadata that routes, orders and audits it.
Three boundaries exist. `typed` splits the canonical text at the four markers at line start; text without any marker
falls back to sentences. `sentence` splits after `.`, `!` or `?` followed by white space and an upper-case letter or
digit, except after a known abbreviation or initial. `message` keeps the whole. Then, left to right, a fragment whose
content has fewer than three words joins the packet before it, marker included, and the host keeps its type; the first
fragment always stays.

The spans of a message's packets, concatenated in segment order, are the canonical text byte for byte. `content` is
the span without its own marker and without white space at the ends; that is what crosses the wire.

Not covered: dependency closure. A claim packet links to the evidence packets of its message for audit; no scheduler
enforces it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from lib.messages.message import FIELDS, Message, ordinal

Method = Literal["typed", "sentence", "message"]
METHODS: tuple[Method, ...] = ("typed", "sentence", "message")
TYPES = (*FIELDS, "sentence", "message")
MIN_WORDS = 3  # a fragment with fewer words of content is not a packet of its own

_MARKER = re.compile(r"^(Claim|Evidence|Uncertainty|Request):", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?]\s+")
# Words after which a full stop rarely ends a sentence; compared in lower case without the stop.
ABBREVIATIONS = frozenset(
    {
        *(
            "al",
            "approx",
            "ca",
            "cf",
            "co",
            "corp",
            "dept",
            "dr",
            "e.g",
            "ed",
            "eds",
            "fig",
            "figs",
            "gen",
            "gov",
            "i.e",
            "inc",
        ),
        *(
            "jr",
            "lt",
            "ltd",
            "mr",
            "mrs",
            "ms",
            "mt",
            "pp",
            "prof",
            "ref",
            "refs",
            "rev",
            "sen",
            "sgt",
            "sr",
            "st",
            "u.k",
            "u.n",
        ),
        *("u.s", "vol", "vs"),
    }
)
NUMBERED = frozenset({"no", "nos", "p"})  # abbreviations only before a number: "no. 7", but "... is no. The ..."


class Segment(msgspec.Struct, frozen=True):
    """A typed stretch of text: `span` is the exact substring, `content` the span without marker and outer white space."""

    type: str
    span: str
    content: str


class Packet(msgspec.Struct, frozen=True):
    """One schedulable record.

    Parameters
    ----------
    packet_id : ``task|mSS|sSS``; within a task, text order is message order, then segment order
    task_id, route, message_id, group_id : where it belongs; route is ``sender->receiver``
    segment : 0-based place within the message after merging
    type : claim, evidence, uncertainty, request, sentence or message
    content : text that crosses the wire, without its own marker
    span : exact substring of the canonical message
    slot, turn, source_id : the message's reader, emission index and source
    links : for claim packets, ids of the evidence packets of the same message (audit only, never sent)
    """

    packet_id: str
    task_id: str
    route: str
    message_id: str
    group_id: str
    segment: int
    type: str
    content: str
    span: str
    slot: int
    turn: int
    source_id: str
    links: tuple[str, ...] = ()


def packetize(message: Message, method: Method = "typed") -> list[Packet]:
    """Cut one message into packets.

    Parameters
    ----------
    message : a cleaned message
    method : ``typed`` (four fields), ``sentence`` or ``message``

    Returns
    -------
    list of Packet, in segment order; ``reassemble`` of it is ``message.text``
    """
    segments = segment_text(message.text, method)
    stem = f"{message.task_id}|{message.message_id}|s"
    ids = [stem + ordinal(index) for index in range(len(segments))]
    evidence = tuple(packet_id for packet_id, part in zip(ids, segments, strict=True) if part.type == "evidence")
    return [
        Packet(
            packet_id=packet_id,
            task_id=message.task_id,
            route=message.route,
            message_id=message.message_id,
            group_id=message.group_id,
            segment=index,
            type=part.type,
            content=part.content,
            span=part.span,
            slot=message.slot,
            turn=message.turn,
            source_id=message.source_id,
            links=evidence if part.type == "claim" else (),
        )
        for index, (packet_id, part) in enumerate(zip(ids, segments, strict=True))
    ]


def packetize_task(messages: Iterable[Message], method: Method = "typed") -> list[Packet]:
    """Cut the messages of one task, in packet-id order.

    Raises
    ------
    ValueError
        If the messages belong to several tasks or two of them share a slot (their packet ids would collide).
    """
    by_slot = sorted(messages, key=lambda message: message.slot)
    for before, after in pairwise(by_slot):
        if before.task_id != after.task_id:
            raise ValueError(
                f"messages of two tasks, {before.task_id!r} and {after.task_id!r}: packetize one task at a time"
            )
        if before.slot == after.slot:
            raise ValueError(
                f"task {after.task_id!r}: two messages in slot {after.slot}: give each message its own slot"
            )
    return [packet for message in by_slot for packet in packetize(message, method)]


def reassemble(packets: Sequence[Packet]) -> str:
    """Return the canonical message of a complete set of one message's packets, given in any order.

    Raises
    ------
    ValueError
        If the packets come from several messages, or a segment is missing or doubled.
    """
    ordered = sorted(packets, key=lambda packet: packet.segment)
    owners = {(packet.task_id, packet.message_id) for packet in ordered}
    if len(owners) > 1:
        raise ValueError(f"packets of {len(owners)} messages: reassemble one message at a time")
    for expected, packet in enumerate(ordered):
        if packet.segment != expected:
            raise ValueError(f"packet {packet.packet_id!r}: segment {expected} is missing or doubled")
    return "".join(packet.span for packet in ordered)


def segment_text(text: str, method: Method = "typed") -> list[Segment]:
    """Split any text into segments whose spans concatenate to `text`, short fragments merged.

    Unlike `packetize`, this also serves text that never was a canonical message (logs of other systems): words before
    the first marker form a segment of type ``sentence``, and text without a marker is split into sentences.
    """
    if method == "message":
        return [Segment("message", text, text.strip())]
    if method == "sentence":
        return merge_short(_sentences(text))
    if method == "typed":
        markers = list(_MARKER.finditer(text))
        return merge_short(_fields(text, markers) if markers else _sentences(text))
    raise ValueError(f"packet method {method!r} is unknown: use one of {', '.join(METHODS)}")


def own_content(packet: Packet) -> str:
    """Return the content without fragments merged into it: for typed packets, the text before the first inner marker.

    Features describe a packet by this part, so that evidence that swallowed `Request: none` does not look empty.
    """
    if packet.type not in FIELDS:
        return packet.content
    inner = _MARKER.search(packet.content, 1)
    return packet.content[: inner.start()].rstrip() if inner else packet.content


def _fields(text: str, markers: list[re.Match[str]]) -> list[Segment]:
    starts = [match.start() for match in markers]
    parts = [] if starts[0] == 0 else [_segment("sentence", text[: starts[0]])]
    for match, end in zip(markers, [*starts[1:], len(text)], strict=True):
        span = text[match.start() : end]
        parts.append(Segment(match.group(1).lower(), span, span[len(match.group(0)) :].strip()))
    return parts


def _sentences(text: str) -> list[Segment]:
    parts, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        following = text[match.end() : match.end() + 1]
        if not (following.isupper() or following.isdigit()) or _is_abbreviation(text, match.start(), following):
            continue
        parts.append(_segment("sentence", text[start : match.end()]))
        start = match.end()
    if start < len(text) or not parts:
        parts.append(_segment("sentence", text[start:]))
    return parts


def _is_abbreviation(text: str, stop: int, following: str) -> bool:
    """Tell whether the full stop at `stop`, before the character `following`, ends an abbreviation or an initial like `J.`."""
    if text[stop] != ".":
        return False
    # Abbreviations are short: looking at a few characters keeps the scan linear on a text without spaces.
    tail = text[max(0, stop - 16) : stop].split()
    if not tail or text[stop - 1].isspace():
        return False
    word = tail[-1].lstrip("([\"'")
    if word.lower() in NUMBERED:
        return following.isdigit()
    return word.lower() in ABBREVIATIONS or (len(word) == 1 and word.isupper())


def _segment(kind: str, span: str) -> Segment:
    return Segment(kind, span, span.strip())


def merge_short(parts: list[Segment]) -> list[Segment]:
    """Join every fragment with fewer than `MIN_WORDS` words of content to the segment before it; the host keeps its type."""
    groups: list[list[Segment]] = []
    for part in parts:
        if groups and len(part.content.split()) < MIN_WORDS:
            groups[-1].append(part)
        else:
            groups.append([part])
    return [_join(group) for group in groups]


def _join(group: list[Segment]) -> Segment:
    head = group[0]
    if len(group) == 1:
        return head
    span = "".join(part.span for part in group)
    marker = len(head.type) + 1 if head.type in FIELDS else 0
    return Segment(head.type, span, span[marker:].strip())
