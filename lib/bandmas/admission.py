"""Admit whole packets under a byte cap.

Context
-------
All packets of a task are scored; the link to the receiver takes at most floor(beta B_full) bytes of this task, B_full
being what all its packets cost under the same serializer.

Intuition
---------
Take packets by score, best first, and add each one whose batch would still fit (Algorithm 1 of the BANDMAS paper,
static mode). One that does not fit is skipped and costs nothing; smaller ones behind it may still fit. In static mode
scores only order: packets of zero or negative score are admitted too when there is room. Scores are compared after
rounding to 12 digits and ties go to the smaller packet id, so that float noise and input order cannot change a
schedule.

How to read the result
----------------------
`admitted` is what the receiver will read, in message and segment order; `bytes` is exactly `batch_bytes(admitted)`. A
larger cap never shortens the run of top-ranked packets admitted without a skip, but the admitted *sets* need not be
nested: a packet that fits at the larger cap can use up room that others had.

What a pass costs
-----------------
Records do not change with their company, so the stream is serialised once (`wire_sizes`) and the pass adds integers:
one sort and n additions, where serialising S and p anew for every candidate takes O(n^2) records (paper, section
IV-D). `lib.runs.bench.admission` shows both curves.

Not covered: deadlines, queues, context limits and prices (adaptive mode), and dependency between packets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import msgspec
import numpy as np

from lib.messages.packets import Packet
from lib.messages.wire import WireError, encode_batch

DIGITS = 12  # scores equal after rounding to this many digits are ties


class WireSizes(msgspec.Struct, frozen=True):
    """What each packet of one task adds to a batch, and what the batch adds once.

    Parameters
    ----------
    records : packet id -> bytes of its record, line feed included
    header : bytes of the shared header line without the digits of its count; 0 where there is no header
    """

    records: dict[str, int]
    header: int = 0

    def batch(self, record_bytes: int, count: int) -> int:
        """Return B(S), the exact bytes of a batch of `count` packets whose records take `record_bytes` in all."""
        # The header tells the count, so it grows by a byte at the tenth packet, the hundredth, ...
        return record_bytes + (self.header + len(str(count)) if self.header and count else 0)


class Admission(msgspec.Struct, frozen=True):
    """What was sent of one task and what was not.

    Parameters
    ----------
    admitted, skipped : packets in message and segment order
    bytes : exact size of the admitted batch
    cap_bytes : the cap; None without one
    full_bytes : size of the batch of all packets
    """

    admitted: tuple[Packet, ...]
    skipped: tuple[Packet, ...]
    bytes: int
    cap_bytes: int | None
    full_bytes: int

    @property
    def rate(self) -> float | None:
        """Achieved share of the full bytes; None where full is empty. It is at most beta, and mostly below it: packets are indivisible."""
        return self.bytes / self.full_bytes if self.full_bytes else None

    @property
    def saving(self) -> float | None:
        """1 - rate; None where full is empty."""
        return None if self.rate is None else 1 - self.rate


def wire_cap(beta: float | str | Fraction | Decimal, full_bytes: int) -> int:
    """Return floor(beta * full_bytes) in exact rational arithmetic.

    A float is read as the decimal it prints as, so 0.29 of 100 bytes is 29 and not the 28 that float multiplication
    gives.

    Parameters
    ----------
    beta : share of the full traffic, in [0, 1]
    full_bytes : B_full of the task, bytes

    >>> wire_cap(0.29, 100)
    29
    """
    if full_bytes < 0:
        raise ValueError(f"full_bytes must be >= 0, not {full_bytes}")
    try:
        share = (
            beta
            if isinstance(beta, Fraction)
            else Fraction(str(float(beta)) if isinstance(beta, np.floating) else str(beta))
        )
    except ValueError:
        raise ValueError(f"beta must be a number in [0, 1], not {beta!r}") from None
    if not 0 <= share <= 1:
        raise ValueError(f"beta must lie in [0, 1], not {beta!r}; 50 % is 0.5")
    return math.floor(share * full_bytes)


def wire_sizes(packets: Sequence[Packet], *, shared_header: bool = False) -> WireSizes:
    """Serialise the packets of one task once and return what each of them costs in any batch.

    Raises
    ------
    WireError
        If a packet occurs twice, has no UTF-8 form, or, with a shared header, belongs to another task or receiver.
    """
    # A line feed inside a text is escaped, so each line is a whole record; records stand in packet-id order.
    lines = encode_batch(packets, shared_header=shared_header).split(b"\n")[:-1]
    header = len(lines.pop(0)) + 1 - len(str(len(packets))) if shared_header and lines else 0
    ids = sorted(packet.packet_id for packet in packets)
    return WireSizes({packet_id: len(line) + 1 for packet_id, line in zip(ids, lines, strict=True)}, header)


def rank(packets: Sequence[Packet], scores: Sequence[float] | np.ndarray) -> list[Packet]:
    """Return the packets by descending score, rounded to 12 digits, ties by packet id.

    Raises
    ------
    ValueError
        If there is not one finite score for each packet.
    """
    values = np.asarray(scores, dtype=float)
    if values.shape != (len(packets),) or not np.isfinite(values).all():
        raise ValueError(f"needs one finite score for each of {len(packets)} packets, got shape {values.shape}")
    keyed = [
        (-round(value, DIGITS), packet.packet_id, place)
        for place, (value, packet) in enumerate(zip(values.tolist(), packets, strict=True))
    ]
    return [packets[place] for _, _, place in sorted(keyed)]


def admit_static(
    packets: Sequence[Packet],
    scores: Sequence[float] | np.ndarray,
    cap_bytes: int | None,
    *,
    shared_header: bool = False,
    sizes: WireSizes | None = None,
) -> Admission:
    """Admit the packets of one task greedily by score under a byte cap.

    Parameters
    ----------
    packets : packets of one task, in any order
    scores : (n_packets,) one score each, same order
    cap_bytes : largest size of the batch; None for full communication, which admits all
    shared_header : serialise with one shared header line
    sizes : from `wire_sizes` of these packets or of more of the same task and cut (ids do not tell the packet boundary);
        by default they are serialised here, once

    Raises
    ------
    WireError
        If a packet occurs twice, `sizes` lacks one, or the packets cannot be serialised, see `wire_sizes`.
    ValueError
        If there is not one finite score for each packet, or `sizes` were made without the shared header that is asked.
    """
    known = wire_sizes(packets, shared_header=shared_header) if sizes is None else sizes
    records = _records(packets, known, shared_header)
    admitted: list[Packet] = []
    skipped: list[Packet] = []
    used = 0  # bytes of the admitted records, without header
    for packet in rank(packets, scores):
        asked = used + records[packet.packet_id]
        if cap_bytes is None or known.batch(asked, len(admitted) + 1) <= cap_bytes:
            used = asked
            admitted.append(packet)
        else:
            skipped.append(packet)
    return Admission(
        admitted=_in_order(admitted),
        skipped=_in_order(skipped),
        bytes=known.batch(used, len(admitted)),
        cap_bytes=cap_bytes,
        full_bytes=known.batch(sum(records.values()), len(records)),
    )


def _records(packets: Sequence[Packet], sizes: WireSizes, shared_header: bool) -> dict[str, int]:
    """Return the record sizes of exactly these packets, after checking that `sizes` fit them."""
    if packets and shared_header and not sizes.header:
        raise ValueError("sizes: made without the shared header; call wire_sizes(packets, shared_header=True)")
    try:
        records = {packet.packet_id: sizes.records[packet.packet_id] for packet in packets}
    except KeyError as error:
        raise WireError(f"packet {error.args[0]!r} has no size: make `sizes` of this task's packets") from None
    if len(records) != len(packets):
        raise WireError(f"{len(packets) - len(records)} of {len(packets)} packets occur twice in one batch")
    return records


def _in_order(packets: Sequence[Packet]) -> tuple[Packet, ...]:
    return tuple(sorted(packets, key=lambda packet: packet.packet_id))
