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
from lib.messages.wire import WireAccount, batch_bytes

DIGITS = 12  # scores equal after rounding to this many digits are ties


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
        (-round(float(value), DIGITS), packet.packet_id, packet) for value, packet in zip(values, packets, strict=True)
    ]
    return [packet for _, _, packet in sorted(keyed, key=lambda item: item[:2])]


def admit_static(
    packets: Sequence[Packet],
    scores: Sequence[float] | np.ndarray,
    cap_bytes: int | None,
    *,
    shared_header: bool = False,
) -> Admission:
    """Admit the packets of one task greedily by score under a byte cap.

    Parameters
    ----------
    packets : packets of one task, in any order
    scores : (n_packets,) one score each, same order
    cap_bytes : largest size of the batch; None for full communication, which admits all
    shared_header : serialise with one shared header line

    Notes
    -----
    One sort and one pass: `WireAccount` tells the exact size of the batch with one more packet at the cost of
    encoding that packet.
    """
    account = WireAccount(shared_header=shared_header)
    admitted: list[Packet] = []
    skipped: list[Packet] = []
    for packet in rank(packets, scores):
        if cap_bytes is None or account.bytes_if_added(packet) <= cap_bytes:
            account.add(packet)
            admitted.append(packet)
        else:
            skipped.append(packet)
    return Admission(
        admitted=_in_order(admitted),
        skipped=_in_order(skipped),
        bytes=account.bytes,
        cap_bytes=cap_bytes,
        full_bytes=batch_bytes(packets, shared_header=shared_header),
    )


def _in_order(packets: Sequence[Packet]) -> tuple[Packet, ...]:
    return tuple(sorted(packets, key=lambda packet: packet.packet_id))
