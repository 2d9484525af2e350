"""Tests of lib/bandmas/adaptive.py: prices, charges, the order of the branches, deferral, and what a decision may know."""

from __future__ import annotations

import doctest
import inspect

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lib.bandmas.adaptive
from lib.bandmas.adaptive import (
    ADMITTED,
    DEFERRED,
    NO_VALUE,
    OVER_CAP,
    STATES,
    TOO_LATE,
    AdaptiveController,
    Backlog,
    Candidates,
    Decision,
    Prices,
    Pricing,
    Row,
    System,
    admit_adaptive,
    candidates_of,
    charges,
    price_step,
)
from lib.bandmas.admission import admit_static
from lib.bandmas.service import ServiceModel
from lib.messages.packets import Packet
from lib.messages.wire import WireAccount, batch_bytes, packet_bytes
from tests.bandmas.games import packets_of

INSTANT = ServiceModel(0.0, 0.0, 0.0, new_tokens=0.0)
PRICING = Pricing(bytes_scale=400.0, context_scale=20.0)
FREE = Prices()
VALUES = st.floats(-1, 1, allow_nan=False).map(lambda value: round(value, 3))
PRICE = st.floats(0, 3)


def tokens_of(packets: list[Packet], each: int = 5) -> dict[str, int]:
    return {packet.packet_id: each for packet in packets}


def offer(
    values: list[float], *, cap: int = 10_000, each: int = 5, header: bool = False
) -> tuple[list[Packet], Candidates]:
    packets = packets_of("t1", len(values))
    return packets, candidates_of("t1", packets, values, tokens_of(packets, each), cap, shared_header=header)


def decided(candidates: Candidates, **known: object) -> Decision:
    arguments = {"backlog": Backlog(0.0), "prices": FREE, "system": System(), "pricing": PRICING, "service": INSTANT}
    return admit_adaptive(candidates, **{**arguments, **known})  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- prices


def test_prices_of_the_specification() -> None:
    """Section 7: eta = .1, C_l = 2.5, u = (2.5, 5, 1, .5) gives lambda 0, .1, .04, 0."""
    price, seen = 0.0, []
    for used in (2.5, 5.0, 1.0, 0.5):
        price = price_step(price, used, 2.5, 0.1)
        seen.append(price)
    assert seen == pytest.approx([0.0, 0.1, 0.04, 0.0], abs=1e-15)
    controller = AdaptiveController(System(), Pricing(400, 20, latency_scale=2.5, eta=0.1), INSTANT)
    for at, used in enumerate((2.5, 5.0, 1.0, 0.5)):
        controller.served(float(at), used, 20)
        assert controller.prices == pytest.approx((0.0, seen[at], 0.0), abs=1e-15)


@given(st.lists(st.floats(0, 1e4), max_size=30), st.floats(0.1, 1e3), st.floats(0, 1))
def test_prices_never_fall_below_zero_and_rest_at_their_scale(used: list[float], scale: float, eta: float) -> None:
    price = 0.0
    for one in used:
        before, price = price, price_step(price, one, scale, eta)
        assert price >= 0
        assert price_step(price, scale, scale, eta) == price
        assert (price > before) <= (one > scale) and (price < before) <= (one < scale)


def test_each_resource_moves_its_own_price_from_its_own_observation() -> None:
    controller = AdaptiveController(System(), Pricing(400, 20, latency_scale=2.0, eta=0.5), INSTANT)
    controller.transferred(1.0, 800)
    assert controller.prices == (0.5, 0.0, 0.0)
    controller.served(2.0, latency=4.0, context_tokens=60)
    assert controller.prices == (0.5, 0.5, 1.0)
    controller.transferred(3.0, 0)
    assert controller.prices == (0.0, 0.5, 1.0)


@given(PRICE, PRICE, PRICE, st.floats(0, 20), st.integers(1, 2000), st.integers(0, 500))
def test_charges_are_equation_ten(
    first: float, second: float, third: float, wait: float, wire: int, tokens: int
) -> None:
    pricing, rate = Pricing(413.0, 23.5, latency_scale=2.5), 25_000.0
    link = wait + 8 * wire / rate  # c_link: queue in front of the link and the packet's own transfer
    expected = first * wire / 413.0 + second * link / 2.5 + third * tokens / 23.5
    charge = charges(wait, Prices(first, second, third), pricing, rate).of(wire, tokens)
    assert charge == pytest.approx(expected, rel=1e-12, abs=1e-12)


# ----------------------------------------------------------------------------------------------------------- branches


def plain_admission(
    packets: list[Packet],
    values: list[float],
    tokens: dict[str, int],
    cap: int,
    backlog: Backlog,
    prices: Prices,
    system: System,
    service: ServiceModel,
    shared_header: bool,
) -> list[tuple[str, str]]:
    """Return (packet id, state) by Algorithm 1 and equation 10, written out packet by packet."""
    account, read, made = WireAccount(shared_header=shared_header), 0, []
    for value, packet in sorted(zip(values, packets, strict=True), key=lambda pair: (-pair[0], pair[1].packet_id)):
        size, wire = account.bytes_if_added(packet), packet_bytes(packet, shared_header=shared_header)
        token = tokens[packet.packet_id]
        ready = backlog.link_wait + 8 * size / system.rate
        if system.deadline_includes_receiver_wait:
            ready = max(ready, backlog.receiver_work)
        delay = backlog.link_wait + 8 * wire / system.rate
        worth = value - prices.bytes * wire / PRICING.bytes_scale - prices.latency * delay / PRICING.latency_scale
        worth -= prices.context * token / PRICING.context_scale
        if size > cap:
            state = OVER_CAP
        elif ready + service.seconds(read + token) > system.deadline:
            state = TOO_LATE
        elif read + token > system.context_limit:
            state = DEFERRED
        elif worth > 0:
            state = ADMITTED
            account.add(packet)
            read += token
        else:
            state = NO_VALUE
        made.append((packet.packet_id, state))
    return made


@given(
    st.lists(VALUES, min_size=1, max_size=9),
    st.integers(0, 1500),
    st.tuples(PRICE, PRICE, PRICE).map(lambda prices: Prices(*(round(price, 2) / 5 for price in prices))),
    st.sampled_from([0.0, 0.3, 1.9, 2.4, 9.0]),
    st.sampled_from([0.0, 2.3, 8.0]),
    st.integers(1, 40),
    st.booleans(),
    st.booleans(),
)
def test_admission_is_the_algorithm_written_out(
    values: list[float],
    cap: int,
    prices: Prices,
    wait: float,
    work: float,
    limit: int,
    includes: bool,
    header: bool,
) -> None:
    packets, tokens = packets_of("t1", len(values)), {}
    for place, packet in enumerate(packets):
        tokens[packet.packet_id] = 3 + 4 * (place % 3)
    system = System(deadline=2.5, context_limit=limit, deadline_includes_receiver_wait=includes)
    service = ServiceModel(0.05, 0.004, 0.001, new_tokens=10, floor=0.08)
    backlog = Backlog(7.0, wait, work)
    ranked = candidates_of("t1", packets, values, tokens, cap, shared_header=header)
    made = decided(ranked, backlog=backlog, prices=prices, system=system, service=service)
    assert [(row.packet_id, state) for row, state in zip(made.rows, made.states, strict=True)] == plain_admission(
        packets, values, tokens, cap, backlog, prices, system, service, header
    )
    sent = [packet for packet in packets if packet.packet_id in made.packet_ids]
    assert made.packet_ids == tuple(packet.packet_id for packet in sent), "message and segment order"
    assert made.bytes == batch_bytes(sent, shared_header=header) <= cap
    assert made.context_tokens == sum(tokens[packet.packet_id] for packet in sent) <= limit
    assert set(made.states) <= set(STATES)


@given(st.lists(VALUES, min_size=1, max_size=9), st.integers(0, 1500), st.permutations(range(9)))
def test_at_free_prices_it_is_static_admission_without_the_worthless(
    values: list[float], cap: int, order: list[int]
) -> None:
    packets = packets_of("t1", len(values))
    shuffled = [place for place in order if place < len(values)]
    ranked = candidates_of("t1", [packets[i] for i in shuffled], [values[i] for i in shuffled], tokens_of(packets), cap)
    made = decided(ranked)
    static = admit_static(packets, values, cap)
    positive = {packet.packet_id for packet, value in zip(packets, values, strict=True) if value > 0}
    assert set(made.packet_ids) == {packet.packet_id for packet in static.admitted} & positive


def test_adaptive_differs_from_static_even_without_load() -> None:
    packets, ranked = offer([0.2, 0.0, -0.1])
    assert len(admit_static(packets, [0.2, 0.0, -0.1], 10_000).admitted) == 3
    assert decided(ranked).states == [ADMITTED, NO_VALUE, NO_VALUE]


def test_float_noise_in_a_value_is_no_value() -> None:
    _, ranked = offer([1e-13, 2e-12])
    assert dict(zip([row.packet_id[-7:-4] for row in ranked.rows], decided(ranked).states, strict=True)) == {
        "m01": ADMITTED,
        "m00": NO_VALUE,
    }


def test_the_branches_come_in_the_order_of_the_algorithm() -> None:
    """Every later reason holds as well; the first one is what counts."""
    everything_wrong = {
        "backlog": Backlog(0.0, link_wait=99.0),
        "system": System(context_limit=1),
        "prices": Prices(9.0, 9.0, 9.0),
    }
    _, small_cap = offer([0.5], cap=10)
    _, roomy = offer([0.5])
    assert decided(small_cap, **everything_wrong).states == [OVER_CAP]
    assert decided(roomy, **everything_wrong).states == [TOO_LATE]
    in_time = {**everything_wrong, "backlog": Backlog(0.0)}
    assert decided(roomy, **in_time).states == [DEFERRED]
    assert decided(roomy, prices=Prices(9.0, 9.0, 9.0)).states == [NO_VALUE]
    assert decided(roomy).states == [ADMITTED]


def test_a_packet_that_is_not_admitted_uses_nothing() -> None:
    packets, _ = offer([0.4, 0.3, 0.2])
    two = batch_bytes(packets[:1]) * 2
    ranked = candidates_of("t1", packets, [0.4, 0.3, 0.2], dict.fromkeys(tokens_of(packets), 5), two)
    dear = Row(0.35, "t1|m09|s00", 10, 10, 10_000)
    between = msgspec.structs.replace(ranked, rows=(ranked.rows[0], dear, *ranked.rows[1:]))
    made = decided(between)
    assert made.states == [ADMITTED, DEFERRED, ADMITTED, OVER_CAP]
    assert made.deferred == ("t1|m09|s00",)


def test_the_deadline_holds_to_the_instant() -> None:
    _, ranked = offer([0.5])
    service = ServiceModel(0.5, 0.0, 0.0, new_tokens=0.0)
    transfer = 8 * ranked.rows[0].wire_bytes / 25_000
    exact = System(deadline=1.0 + transfer + 0.5)
    assert decided(ranked, backlog=Backlog(0.0, 1.0), system=exact, service=service).states == [ADMITTED]
    assert decided(ranked, backlog=Backlog(0.0, 1.0 + 1e-9), system=exact, service=service).states == [TOO_LATE]


def test_receiver_wait_counts_only_where_it_is_asked_for() -> None:
    """Specification, finding F5: off by default."""
    _, ranked = offer([0.5])
    behind = Backlog(0.0, link_wait=0.0, receiver_work=3.0)
    assert decided(ranked, backlog=behind).states == [ADMITTED]
    counted = System(deadline_includes_receiver_wait=True)
    assert decided(ranked, backlog=behind, system=counted).states == [TOO_LATE]
    assert decided(ranked, backlog=Backlog(0.0, 0.0, 2.4), system=counted).states == [ADMITTED]


def test_messages_that_arrive_after_their_deadline_have_expired() -> None:
    _, ranked = offer([0.5])
    assert decided(ranked, backlog=Backlog(10.0), emitted=8.0).states == [ADMITTED]
    assert decided(ranked, backlog=Backlog(10.0), emitted=7.5).states == [TOO_LATE]
    assert decided(ranked, backlog=Backlog(10.0), emitted=2.0).states == [TOO_LATE]


def test_order_is_by_value_and_not_by_net_value() -> None:
    """A dear packet of high value stands before a cheap one, and its bytes count first."""
    packets = packets_of("t1", 2)
    tokens = {packets[0].packet_id: 200, packets[1].packet_id: 1}
    ranked = candidates_of("t1", packets, [0.6, 0.5], tokens, packet_bytes(packets[0]))
    prices = Prices(context=0.04)  # 0.4 for the first packet, 0.002 for the second
    assert decided(ranked, prices=prices).packet_ids == (packets[0].packet_id,)


# ----------------------------------------------------------------------------------------------------------- deferral


def test_deferred_packets_are_offered_once_more_with_the_next_packets_of_their_task() -> None:
    packets = packets_of("t1", 3)
    tokens = {packet.packet_id: count for packet, count in zip(packets, (20, 10, 5), strict=True)}
    controller = AdaptiveController(System(context_limit=25), PRICING, INSTANT)
    first = controller.decide(candidates_of("t1", packets[:2], [0.5, 0.4], tokens, 10_000), Backlog(0.0))
    assert first.states == [ADMITTED, DEFERRED] and first.deferred == (packets[1].packet_id,)
    other = packets_of("t2", 1)
    controller.decide(candidates_of("t2", other, [0.5], tokens_of(other), 10_000), Backlog(1.0))
    assert list(controller.deferred) == ["t1"], "another task offers nothing of this one"
    second = controller.decide(candidates_of("t1", packets[2:], [0.3], tokens, 10_000), Backlog(2.0))
    assert second.packet_ids == (packets[1].packet_id, packets[2].packet_id)
    assert [row.packet_id for row in second.rows] == [packets[1].packet_id, packets[2].packet_id], "by value"
    assert controller.deferred == {}


def test_a_second_deferral_is_final() -> None:
    packets, ranked = offer([0.5], each=30)
    controller = AdaptiveController(System(context_limit=25), PRICING, INSTANT)
    assert controller.decide(ranked, Backlog(0.0)).deferred == (packets[0].packet_id,)
    nothing_new = msgspec.structs.replace(ranked, rows=())
    assert controller.decide(nothing_new, Backlog(1.0)).deferred == (packets[0].packet_id,)
    assert controller.deferred == {}
    assert controller.decide(nothing_new, Backlog(2.0)).rows == ()


# ------------------------------------------------------------------------------------------------- what may be known


def test_a_completion_after_the_decision_is_refused() -> None:
    _, ranked = offer([0.5])
    controller = AdaptiveController(System(), PRICING, INSTANT)
    controller.transferred(3.0, 100)
    assert controller.decide(ranked, Backlog(3.0)).states == [ADMITTED], "completed at the moment of decision counts"
    controller.served(3.5, 1.0, 10)
    with pytest.raises(ValueError, match=r"a completion at 3.5 s was handed over before the decision at 3.2 s"):
        controller.decide(ranked, Backlog(3.2))


def test_nothing_that_decides_has_a_place_for_an_outcome() -> None:
    fields = {name for kind in (System, Pricing, Candidates) for name in kind.__struct_fields__}
    fields |= {name for kind in (Prices, Backlog, Row, Decision) for name in kind._fields}
    for function in (admit_adaptive, candidates_of, AdaptiveController.decide, AdaptiveController.served):
        fields |= set(inspect.signature(function).parameters)
    assert not {name for name in fields if any(word in name for word in ("gold", "reply", "score", "utility", "rce"))}


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: System(rate=0), "rate must be above 0"),
        (lambda: System(deadline=float("nan")), "deadline must be above 0"),
        (lambda: System(context_limit=0), "context_limit must be above 0"),
        (lambda: Pricing(0, 20), "bytes_scale must be above 0, not 0: the price would have no unit"),
        (lambda: Pricing(400, 0), "context_scale must be above 0"),
        (lambda: Pricing(400, 20, eta=-0.1), "eta must be at least 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(made: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        made()  # type: ignore[operator]


def test_examples() -> None:
    result = doctest.testmod(lib.bandmas.adaptive)
    assert (result.attempted > 0, result.failed) == (True, 0)
