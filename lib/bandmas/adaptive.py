"""Admit packets at what link, receiver and context cost at the moment.

Context
-------
Static admission fills a byte cap whatever the queues look like. Adaptive admission keeps the cap and adds a deadline,
a context limit and three prices: on bytes, on delay and on context tokens (BANDMAS paper, section IV-D, eq. 9 and 10).

Intuition
---------
A price rises when more of its resource was used than its scale and falls otherwise, never below zero:
lambda <- max(0, lambda + eta (u / C - 1)), once for every *completed* transfer or service. A packet is worth its
predicted value minus what it costs at these prices, g = s - lambda_b c_wire / C_b - lambda_l c_link / C_l -
lambda_q c_ctx / C_q. Packets come by value s, not by g, and each goes through the same branches in this order: over
the cap, dropped; expired or too late, dropped; over the context limit, deferred; g > 0, admitted; else dropped. Even
at prices of zero a packet of no value is dropped here, which static admission sends: the two modes differ at any load.

How to read the result
----------------------
`Decision.states` tells for every packet which branch it took. Prices start at zero and belong to one run; after it
they say which resource was short. The delay charge holds the wait of the whole link in front of the task, so a long
queue makes every packet of the task dearer, and the first one no less than the last.

What a decision may know is its arguments: packets, their frozen values and sizes, what is completed, the backlog of
the link (bytes already accepted at a known rate) and the calibrated service model. Completions are handed over with
their time, and one that lies after the decision is an error.

Not covered: the simulation of arrivals and queues (`lib.bandmas.load`), learning the step eta, several receivers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from lib.bandmas.admission import DIGITS, WireSizes, rank, wire_sizes
from lib.bandmas.queueing import RATE
from lib.bandmas.service import ServiceModel
from lib.messages.packets import Packet

ADMITTED, OVER_CAP, TOO_LATE, DEFERRED, NO_VALUE = "admitted", "over_cap", "too_late", "deferred", "no_value"
STATES = (ADMITTED, OVER_CAP, TOO_LATE, DEFERRED, NO_VALUE)
_NOTHING = 0.5 * 10**-DIGITS  # a net value up to this is zero after rounding


class System(msgspec.Struct, frozen=True):
    """What the packets travel through.

    Parameters
    ----------
    rate : bit/s of the link
    deadline : seconds from emission to answer
    context_limit : most tokens of content that the receiver takes in one call
    deadline_includes_receiver_wait : add the expected work in front of the receiver to the deadline test. Off, as the
        text names queued transfer and receiver service only; when on, an overloaded receiver empties most batches
    """

    rate: float = RATE
    deadline: float = 2.5
    context_limit: int = 2048
    deadline_includes_receiver_wait: bool = False

    def __post_init__(self) -> None:
        for name in ("rate", "deadline", "context_limit"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)!r}")


class Pricing(msgspec.Struct, frozen=True):
    """How use becomes prices.

    Parameters
    ----------
    bytes_scale, context_scale : C_b and C_q: mean bytes and context tokens that static admission sends on calibration
        tasks
    latency_scale : C_l, seconds; the deadline
    eta : step of every price
    """

    bytes_scale: float
    context_scale: float
    latency_scale: float = 2.5
    eta: float = 0.05

    def __post_init__(self) -> None:
        for name in ("bytes_scale", "context_scale", "latency_scale"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)!r}: the price would have no unit")
        if not self.eta >= 0:
            raise ValueError(f"eta must be at least 0, not {self.eta!r}")


class Prices(NamedTuple):
    """lambda_b, lambda_l and lambda_q: value a packet loses for each C_b bytes, C_l seconds, C_q tokens."""

    bytes: float = 0.0
    latency: float = 0.0
    context: float = 0.0


class Charges(NamedTuple):
    """What sending a packet costs, in units of value: linear in its bytes and tokens at one moment."""

    fixed: float
    per_byte: float
    per_token: float

    def of(self, wire_bytes: int, context_tokens: int) -> float:
        """Return the charge of one packet; g is its value minus this."""
        return self.fixed + self.per_byte * wire_bytes + self.per_token * context_tokens


class Row(NamedTuple):
    """One packet as a scheduler sees it: its frozen value, id, record and whole-batch bytes if sent alone, tokens."""

    value: float
    packet_id: str
    record_bytes: int
    wire_bytes: int
    context_tokens: int


class Candidates(msgspec.Struct, frozen=True):
    """The packets of one task, ranked, with their sizes.

    Parameters
    ----------
    task_id : whose packets
    rows : by descending value, ties by packet id
    cap_bytes : hard cap of the batch
    sizes : tells the size of a batch from those of its records
    """

    task_id: str
    rows: tuple[Row, ...]
    cap_bytes: int
    sizes: WireSizes


class Backlog(NamedTuple):
    """What lies in front of a task when it arrives.

    Parameters
    ----------
    now : seconds, the moment of decision
    link_wait : W_link, seconds until the link is free
    receiver_work : expected seconds of work that was accepted before and is not answered yet
    """

    now: float
    link_wait: float = 0.0
    receiver_work: float = 0.0


class Decision(NamedTuple):
    """What is sent of one task.

    Parameters
    ----------
    packet_ids : admitted, in message and segment order
    bytes, context_tokens : exact size of the admitted batch, and the tokens of its contents
    deferred : ids that only the context limit kept back, in rank order
    rows, states : what was offered in rank order, and the branch that each packet took (one of `STATES`)
    """

    packet_ids: tuple[str, ...]
    bytes: int
    context_tokens: int
    deferred: tuple[str, ...]
    rows: tuple[Row, ...]
    states: list[str]


def candidates_of(
    task_id: str,
    packets: Sequence[Packet],
    values: Sequence[float] | np.ndarray,
    tokens: Mapping[str, int],
    cap_bytes: int,
    *,
    shared_header: bool = False,
) -> Candidates:
    """Rank the packets of one task and look up their sizes, once for any number of decisions.

    Parameters
    ----------
    packets, values : (n_packets,) packets in any order and their frozen values, same order
    tokens : packet id -> tokens of its content
    cap_bytes : hard cap of the batch
    """
    sizes = wire_sizes(packets, shared_header=shared_header)
    known = {packet.packet_id: round(float(value), DIGITS) for packet, value in zip(packets, values, strict=True)}
    rows = []
    for packet in rank(packets, values):
        name = packet.packet_id
        record = sizes.records[name]
        rows.append(Row(known[name], name, record, sizes.batch(record, 1), int(tokens[name])))
    return Candidates(task_id, tuple(rows), cap_bytes, sizes)


def price_step(price: float, used: float, scale: float, eta: float) -> float:
    """Return max(0, price + eta (used / scale - 1)): one completed observation (paper, eq. 9).

    >>> price_step(0.0, 5.0, 2.5, 0.1), price_step(0.1, 2.5, 2.5, 0.1)
    (0.1, 0.1)
    """
    return max(0.0, price + eta * (used / scale - 1.0))


def charges(link_wait: float, prices: Prices, pricing: Pricing, rate: float) -> Charges:
    """Return what a packet costs at the present prices (paper, eq. 10), with c_link = W_link + 8 c_wire / R.

    Parameters
    ----------
    link_wait : W_link, seconds in front of the link
    rate : R, bit/s

    >>> charge = charges(1.0, Prices(0.0, 0.5, 0.0), Pricing(400, 20, latency_scale=2.5), rate=8000.0)
    >>> round(charge.of(wire_bytes=250, context_tokens=10), 6)
    0.25
    """
    delay = prices.latency / pricing.latency_scale  # value a second
    return Charges(
        fixed=delay * link_wait,
        per_byte=prices.bytes / pricing.bytes_scale + delay * 8 / rate,
        per_token=prices.context / pricing.context_scale,
    )


def admit_adaptive(
    candidates: Candidates,
    backlog: Backlog,
    prices: Prices,
    system: System,
    pricing: Pricing,
    service: ServiceModel,
    *,
    emitted: float | None = None,
) -> Decision:
    """Admit the packets of one task at the present prices.

    Parameters
    ----------
    candidates, backlog, prices, system, pricing, service : what is known at the moment of decision
    emitted : seconds at which the messages were made; default the arrival. The deadline counts from there: messages
        that arrive late may have expired

    Notes
    -----
    A packet p is too late if W_link + 8 B(S + p) / R + s_hat(ctx(S + p)) exceeds what is left until the deadline.
    """
    now, link_wait, receiver_work = backlog
    left = system.deadline if emitted is None else emitted + system.deadline - now
    batch, cap, limit = candidates.sizes.batch, candidates.cap_bytes, system.context_limit
    per_byte = 8 / system.rate  # seconds on the link
    wait_counts = system.deadline_includes_receiver_wait
    # Charges are linear in a packet's size, and s_hat in the context, with a floor: their parts leave the loop.
    fixed, price_of_byte, price_of_token = charges(link_wait, prices, pricing, system.rate)
    slope, floor = service.per_context_token, service.floor
    first = service.base + service.per_new_token * service.new_tokens
    used = context = 0  # record bytes and tokens of what is admitted
    admitted: list[str] = []
    states: list[str] = []
    for value, packet_id, record, wire, tokens in candidates.rows:
        size = batch(used + record, len(admitted) + 1)
        if size > cap:
            states.append(OVER_CAP)
            continue
        work = link_wait + size * per_byte
        if wait_counts and receiver_work > work:
            work = receiver_work
        read = context + tokens
        answer = first + slope * read
        if left <= 0 or work + (answer if answer > floor else floor) > left:
            states.append(TOO_LATE)
        elif read > limit:
            states.append(DEFERRED)
        elif value - fixed - price_of_byte * wire - price_of_token * tokens > _NOTHING:
            used, context = used + record, read
            admitted.append(packet_id)
            states.append(ADMITTED)
        else:
            states.append(NO_VALUE)
    deferred: tuple[str, ...] = ()
    if DEFERRED in states:
        deferred = tuple(row.packet_id for row, state in zip(candidates.rows, states, strict=True) if state == DEFERRED)
    return Decision(tuple(sorted(admitted)), batch(used, len(admitted)), context, deferred, candidates.rows, states)


class AdaptiveController:
    """Prices and deferred packets of one run; it learns from completed observations alone.

    Parameters
    ----------
    system, pricing : limits, and how use becomes prices
    service : calibrated on other tasks

    Attributes
    ----------
    prices : the present prices; zero at the start
    deferred : task id -> packets that its last decision put off and that may be offered once more
    """

    def __init__(self, system: System, pricing: Pricing, service: ServiceModel) -> None:
        self.system = system
        self.pricing = pricing
        self.service = service
        self.prices = Prices()
        self.deferred: dict[str, tuple[Row, ...]] = {}
        self._latest = 0.0  # seconds, the last completion that was handed over

    def transferred(self, at: float, sent_bytes: int) -> None:
        """Take in a transfer of `sent_bytes` that was completed at `at` seconds."""
        self._latest = max(self._latest, at)
        spent, scale, eta = self.prices, self.pricing.bytes_scale, self.pricing.eta
        self.prices = Prices(price_step(spent.bytes, sent_bytes, scale, eta), spent.latency, spent.context)

    def served(self, at: float, latency: float, context_tokens: int) -> None:
        """Take in an answer that was completed at `at` seconds, `latency` seconds after its task arrived."""
        self._latest = max(self._latest, at)
        spent, pricing = self.prices, self.pricing
        self.prices = Prices(
            spent.bytes,
            price_step(spent.latency, latency, pricing.latency_scale, pricing.eta),
            price_step(spent.context, context_tokens, pricing.context_scale, pricing.eta),
        )

    def decide(self, candidates: Candidates, backlog: Backlog, *, emitted: float | None = None) -> Decision:
        """Decide what is sent of a task that arrives now.

        Packets that the last decision on this task deferred are offered once more; a second deferral is final.

        Raises
        ------
        ValueError
            If a completion after `backlog.now` was handed over: the decision would know the future.
        """
        if self._latest > backlog.now:
            raise ValueError(
                f"a completion at {self._latest} s was handed over before the decision at {backlog.now} s; hand over "
                "only what is completed"
            )
        waiting = self.deferred.pop(candidates.task_id, ())
        if waiting:
            rows = {row.packet_id: row for row in (*waiting, *candidates.rows)}
            ranked = sorted(rows.values(), key=lambda row: (-row.value, row.packet_id))
            candidates = msgspec.structs.replace(candidates, rows=tuple(ranked))
        decision = admit_adaptive(
            candidates, backlog, self.prices, self.system, self.pricing, self.service, emitted=emitted
        )
        if decision.deferred:
            second = {row.packet_id for row in waiting}
            put_off = set(decision.deferred) - second
            kept = tuple(row for row in decision.rows if row.packet_id in put_off)
            if kept:
                self.deferred[candidates.task_id] = kept
        return decision
