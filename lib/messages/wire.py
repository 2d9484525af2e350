"""The exact bytes of a batch of packets on the wire.

A batch is JSON Lines in UTF-8: one compact object per packet, keys in a fixed order, one line feed after each. Text
is written as itself (no ASCII escapes); only what JSON must escape is escaped, and that is charged. Records are
written in packet-id order, so the bytes depend on the set of packets alone. An empty batch is zero bytes. With
`shared_header=True` one first line carries the task, the receiver and the count, the records drop `task_id` and
`route`, and the header is charged once if any packet is sent.

`WireAccount` keeps the running size of a growing batch, so that an admission pass asks "how large with this packet
too?" at the cost of encoding that packet alone; it always agrees with `len(encode_batch(...))`.

Not covered: transport and link headers, retransmission, compression, encryption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import pandas as pd

from lib.messages.packets import Packet


class WireError(ValueError):
    """A batch that cannot be encoded or decoded; the text names the packet or the line."""


class _ShortRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a record carries when a header line holds the rest. Field order is key order on the wire."""

    message_id: str
    group_id: str
    segment: int
    type: str
    content: str


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record that stands alone."""

    task_id: str
    route: str
    message_id: str
    group_id: str
    segment: int
    type: str
    content: str


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The optional first line of a batch for one task and one receiver."""

    task_id: str
    receiver: str
    n: int


KEYS = _Record.__struct_fields__
HEADER_KEYS = _Header.__struct_fields__
Line = TypeVar("Line", _ShortRecord, _Record, _Header)


def encode_batch(packets: Iterable[Packet], *, shared_header: bool = False) -> bytes:
    """Return the batch as compact UTF-8 JSON Lines in packet-id order.

    Raises
    ------
    WireError
        If a packet occurs twice, has no UTF-8 form, or, with a shared header, belongs to another task or receiver.
    """
    ordered = sorted(packets, key=lambda packet: packet.packet_id)
    for before, after in pairwise(ordered):
        if before.packet_id == after.packet_id:
            raise WireError(f"packet {after.packet_id!r} occurs twice in one batch")
    records = [_record(packet, shared_header) for packet in ordered]
    if not (shared_header and ordered):
        return b"".join(records)
    for packet in ordered[1:]:
        _check_shared(ordered[0], packet)
    return _header(ordered[0], len(ordered)) + b"".join(records)


def batch_bytes(packets: Iterable[Packet], *, shared_header: bool = False) -> int:
    """Return B(S), the exact size of the batch in bytes; 0 for no packets."""
    return len(encode_batch(packets, shared_header=shared_header))


def packet_bytes(packet: Packet, *, shared_header: bool = False) -> int:
    """Return c_wire(p) = B({p}) in bytes (paper, resource vector of eq. 3)."""
    return batch_bytes([packet], shared_header=shared_header)


def decode_batch(data: bytes) -> list[dict[str, Any]]:
    """Return the records of an encoded batch, in the order written.

    A shared header is recognised by its keys and folded back: each record then carries `task_id` and `receiver`.

    Raises
    ------
    WireError
        Naming the 1-based line, if the last line has no line feed, a line is not the expected object, or the count is
        wrong.
    """
    if not data:
        return []
    lines = data.split(b"\n")  # only LF separates records: U+2028 and NEL may stand unescaped inside JSON text
    if lines.pop():
        raise WireError(f"line {len(lines) + 1}: torn record (no line feed at its end); resend the batch")
    if not _is_header(lines[0]):
        return [msgspec.structs.asdict(_parse(line, number, _Record)) for number, line in enumerate(lines, start=1)]
    header = _parse(lines[0], 1, _Header)
    short = [_parse(line, number, _ShortRecord) for number, line in enumerate(lines[1:], start=2)]
    if header.n != len(short):
        raise WireError(f"line 1: header announces {header.n} records, {len(short)} follow")
    shared = {"task_id": header.task_id, "receiver": header.receiver}
    return [{**shared, **msgspec.structs.asdict(record)} for record in short]


class WireAccount:
    """Running exact size of a growing batch.

    `bytes_if_added(p)` costs the encoding of `p` alone, whatever is in the batch already.

    Parameters
    ----------
    shared_header : count the batch with one shared header line

    Attributes
    ----------
    bytes : size of the batch so far
    count : packets in the batch so far
    """

    def __init__(self, *, shared_header: bool = False) -> None:
        self.shared_header = shared_header
        self.count = 0
        self._records = 0  # bytes of the records alone, without header
        self._ids: set[str] = set()
        self._first: Packet | None = None

    @property
    def bytes(self) -> int:
        return self._records + self._header_bytes(self._first, self.count)

    def bytes_if_added(self, packet: Packet) -> int:
        """Return the size of the batch with `packet` too, in bytes; the batch stays as it is."""
        if packet.packet_id in self._ids:
            raise WireError(f"packet {packet.packet_id!r} occurs twice in one batch")
        first = self._first or packet
        if self.shared_header:
            _check_shared(first, packet)
        # The header holds the count, whose digits grow: it is sized anew, not added once.
        return self._records + len(_record(packet, self.shared_header)) + self._header_bytes(first, self.count + 1)

    def add(self, packet: Packet) -> int:
        """Add `packet` and return the new size in bytes."""
        total = self.bytes_if_added(packet)
        self._records += len(_record(packet, self.shared_header))
        self._ids.add(packet.packet_id)
        self._first = self._first or packet
        self.count += 1
        return total

    def _header_bytes(self, first: Packet | None, count: int) -> int:
        return len(_header(first, count)) if self.shared_header and first is not None else 0


def cut_bytes(text: str, limit: int) -> str:
    """Return the longest prefix of `text` of at most `limit` UTF-8 bytes, cut between code points.

    >>> cut_bytes("é" * 3, 5)
    'éé'
    """
    if limit < 0:
        raise ValueError(f"limit must be >= 0 bytes, not {limit}")
    # Valid text cut at any byte is broken in its last character at most, and that part is what `ignore` drops.
    return text.encode("utf-8")[:limit].decode("utf-8", errors="ignore")


def context_tokens(
    packets: Sequence[Packet], count_tokens: Callable[[list[str]], list[int]] | None = None
) -> list[int]:
    """Return c_ctx(p) of each packet: tokens of its content, by the receiver's own counter.

    Without a counter the estimate is a quarter of the characters, rounded up (the paper's parity mode).
    """
    contents = [packet.content for packet in packets]
    if count_tokens is None:
        return [-(-len(content) // 4) for content in contents]
    return [int(count) for count in count_tokens(contents)]


def size_table(
    packets: Sequence[Packet],
    count_tokens: Callable[[list[str]], list[int]] | None = None,
    *,
    shared_header: bool = False,
) -> pd.DataFrame:
    """Return sizes per packet in separate columns: characters, content bytes, wire bytes, tokens.

    `tokens` is null without a counter: characters are never passed off as tokens.
    """
    tokens: list[int | None] = [None] * len(packets)
    if count_tokens is not None:
        tokens = list(context_tokens(packets, count_tokens))
    return pd.DataFrame(
        {
            "packet_id": [packet.packet_id for packet in packets],
            "type": [packet.type for packet in packets],
            "chars": [len(packet.content) for packet in packets],
            "content_bytes": [len(packet.content.encode("utf-8")) for packet in packets],
            "wire_bytes": [packet_bytes(packet, shared_header=shared_header) for packet in packets],
            "tokens": pd.array(tokens, dtype="Int64"),
        }
    )


def _record(packet: Packet, shared_header: bool) -> bytes:
    kind = _ShortRecord if shared_header else _Record
    return _line(kind(*(getattr(packet, key) for key in kind.__struct_fields__)), packet.packet_id)


def _header(first: Packet, count: int) -> bytes:
    return _line(_Header(first.task_id, _receiver(first), count), first.packet_id)


def _receiver(packet: Packet) -> str:
    return packet.route.rpartition("->")[2]


def _check_shared(first: Packet, packet: Packet) -> None:
    if (packet.task_id, _receiver(packet)) != (first.task_id, _receiver(first)):
        raise WireError(
            f"packet {packet.packet_id!r}: a shared header holds one task and one receiver, this batch is for "
            f"{first.task_id!r} and {_receiver(first)!r}"
        )


def _line(record: _ShortRecord | _Record | _Header, packet_id: str) -> bytes:
    try:
        return msgspec.json.encode(record) + b"\n"
    except UnicodeEncodeError as error:
        raise WireError(f"packet {packet_id!r}: text without a UTF-8 form ({error.reason})") from None


def _is_header(line: bytes) -> bool:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(value, dict) and set(value) == set(HEADER_KEYS)


def _parse(line: bytes, number: int, kind: type[Line]) -> Line:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"line {number}: not a record of keys {', '.join(kind.__struct_fields__)} ({error})") from None
