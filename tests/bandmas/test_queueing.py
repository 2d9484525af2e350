"""Tests of lib/bandmas/queueing.py: the vectorised queue is the plain one, and the published tails are what it gives."""

from __future__ import annotations

import doctest
import heapq
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lib.bandmas.queueing
from lib.bandmas.published import SAME_DATA, published
from lib.bandmas.queueing import arrival_times, capacity, fcfs, published_tandem, tandem, unit_gaps

SECONDS = st.floats(0, 50, allow_subnormal=False)
TASKS = st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=40)  # gap, transfer, service


def event_simulation(
    arrivals: Sequence[float], transfers: Sequence[float], services: Sequence[float]
) -> list[tuple[float, float, float, float]]:
    """Move tasks through two servers event by event; return (link start, link end, service start, service end)."""
    marks: list[list[float]] = [[] for _ in arrivals]
    events = [(time, 0, number, "arrives") for number, time in enumerate(arrivals)]
    heapq.heapify(events)
    waiting: dict[str, list[int]] = {"link": [], "receiver": []}
    busy = {"link": False, "receiver": False}
    counter = len(events)

    def start_next(server: str, now: float) -> None:
        nonlocal counter
        if busy[server] or not waiting[server]:
            return
        number = waiting[server].pop(0)
        busy[server] = True
        length = transfers[number] if server == "link" else services[number]
        marks[number] += [now, now + length]
        heapq.heappush(events, (now + length, counter, number, server))
        counter += 1

    while events:
        now, _, number, kind = heapq.heappop(events)
        if kind == "arrives":
            waiting["link"].append(number)
        else:
            busy[kind] = False
            if kind == "link":
                waiting["receiver"].append(number)
        for server in ("link", "receiver"):
            start_next(server, now)
    return [tuple(mark) for mark in marks]  # type: ignore[misc]


@given(TASKS)
def test_the_cumulative_maximum_is_the_event_simulation(tasks: list[tuple[float, float, float]]) -> None:
    gaps, transfers, services = (np.array(column) for column in zip(*tasks, strict=True))
    arrivals = np.cumsum(gaps)
    passage = tandem(arrivals, transfers, services)
    expected = np.array(event_simulation(arrivals.tolist(), transfers.tolist(), services.tolist()))
    made = np.column_stack([passage.link_start, passage.link_end, passage.service_start, passage.service_end])
    np.testing.assert_allclose(made, expected, rtol=1e-12, atol=1e-9)


@given(TASKS)
def test_order_is_kept_and_latency_covers_transfer_and_service(tasks: list[tuple[float, float, float]]) -> None:
    gaps, transfers, services = (np.array(column) for column in zip(*tasks, strict=True))
    passage = tandem(np.cumsum(gaps), transfers, services)
    for times in passage:
        assert (np.diff(times) >= -1e-9).all()
    assert (passage.latency >= transfers + services - 1e-9).all()
    assert (passage.link_start >= passage.arrival).all() and (passage.service_start >= passage.link_end - 1e-9).all()
    assert (passage.service_start[1:] >= passage.service_end[:-1] - 1e-9).all(), "the receiver is one slot"


def test_a_task_that_sends_nothing_waits_its_turn_and_passes_at_once() -> None:
    passage = tandem([0.0, 1.0, 2.0], [5.0, 0.0, 1.0], [1.0, 1.0, 1.0])
    assert passage.link_end.tolist() == [5.0, 5.0, 6.0]
    assert passage.service_end.tolist() == [6.0, 7.0, 8.0]
    assert passage.latency.tolist() == [6.0, 6.0, 6.0]


def test_runs_side_by_side_are_runs_alone() -> None:
    rng = np.random.default_rng(3)
    arrivals = np.cumsum(rng.exponential(size=(4, 3, 50)), axis=-1)
    transfer, service = rng.exponential(0.6, (2, 4, 3, 50))
    whole = tandem(arrivals, transfer, service).service_end
    for place in np.ndindex(4, 3):
        np.testing.assert_array_equal(whole[place], tandem(arrivals[place], transfer[place], service[place])[4])


@given(st.floats(0.01, 100), st.integers(0, 5))
def test_twice_the_rate_is_exactly_half_of_every_gap(rate: float, seed: int) -> None:
    gaps = unit_gaps(60, "test", seed)
    slow, fast = arrival_times(gaps, rate), arrival_times(gaps, 2 * rate)
    assert (slow == 2 * fast).all()
    assert (np.diff(slow, prepend=0.0) == 2 * np.diff(fast, prepend=0.0)).all()


def test_draws_belong_to_their_names_and_a_longer_day_starts_the_same() -> None:
    assert (unit_gaps(100, "bridge", 0)[:30] == unit_gaps(30, "bridge", 0)).all()
    assert (unit_gaps(30, "bridge", 0) != unit_gaps(30, "bridge", 1)).all()
    assert abs(unit_gaps(200_000, "bridge", 0).mean() - 1) < 0.01


def test_one_server_with_equal_services_waits_as_the_textbook_says() -> None:
    """Mean wait of M/D/1 is rho s / (2 (1 - rho)) (Pollaczek-Khinchine)."""
    rho, service = 0.7, 0.5
    times = arrival_times(unit_gaps(400_000, "textbook"), rho / service)
    start, _ = fcfs(times, np.full(400_000, service))
    assert (start - times).mean() == pytest.approx(rho * service / (2 * (1 - rho)), rel=0.03)


def test_a_million_tasks_in_overload_keep_their_digits() -> None:
    times = arrival_times(unit_gaps(1_000_000, "million"), 1.5)
    start, end = fcfs(times, np.ones(1_000_000))
    free = 0.0
    for now in times.tolist():
        free = max(now, free) + 1.0
    assert end[-1] == pytest.approx(free, abs=1e-6)
    assert (start >= times).all() and end[-1] >= 1_000_000


def test_reference_capacities_of_the_paper() -> None:
    """Specification, finding F4: SciFact is bound by the receiver, the other two by the link."""
    rows = published("table1", SAME_DATA).query("policy == 'full'").set_index("benchmark")
    slower = {name: 1 / capacity(row["bytes_mean"], row["latency_ms_mean"] / 1000) for name, row in rows.iterrows()}
    assert {name: round(seconds, 3) for name, seconds in slower.items()} == {
        "SciFact": 0.620,
        "HotpotQA": 1.406,
        "FanOutQA": 1.383,
    }


def test_published_tails_of_fanoutqa_are_what_the_tandem_gives_and_one_of_scifact_is_not() -> None:
    """Specification, finding F4: 3.12 s [2.80, 3.44] and 5.03 s [4.07, 6.01] on FanOutQA, from 180 runs."""
    table = published_tandem(runs=4000).set_index(["benchmark", "rho"])
    fanout = table.loc["FanOutQA"]
    assert fanout["p95_s"].tolist() == pytest.approx([3.12, 5.03], rel=0.04)
    assert fanout["low_s"].tolist() == pytest.approx([2.80, 4.07], rel=0.04)
    assert fanout["high_s"].tolist() == pytest.approx([3.44, 6.01], rel=0.08)
    assert fanout["paper_s"].tolist() == [3.054, 4.668] and fanout["consistent"].all()
    scifact = table.loc["SciFact"]
    assert scifact["consistent"].tolist() == [True, False], "22.9 s at 1.5 stays unexplained"
    assert scifact.loc[1.5, "paper_s"] < 0.85 * scifact.loc[1.5, "low_s"]
    assert table.loc["HotpotQA"]["paper_s"].isna().all() and table.loc["HotpotQA"]["consistent"].isna().all()
    assert published_tandem(runs=20).equals(published_tandem(runs=20))


def test_no_admission_gives_the_published_gain_on_scifact() -> None:
    """Nothing sent at all saves 2 to 5 % of the tail there, since the receiver takes as long; the paper tells of 18 and 24 %."""
    table = published_tandem(runs=1000).set_index(["benchmark", "rho"])
    possible, told = 1 - table["least_s"] / table["p95_s"], 1 - table["paper_adaptive_s"] / table["paper_s"]
    assert told["SciFact"].tolist() == pytest.approx([0.244, 0.180], abs=0.001)
    assert (possible["SciFact"] < 0.07).all() and (possible["SciFact"] > 0).all()
    assert (table.loc["SciFact", "paper_adaptive_s"] < table.loc["SciFact", "least_low_s"]).all()
    assert (told["FanOutQA"] < possible["FanOutQA"] + 0.01).all(), "within reach there, where the link matters"
    bare = 0.6153 - (0.6203 - 0.6153) / (53.7 - 23.5) * 23.5
    lone = published_tandem([0.001], {"SciFact": 20}, runs=20, service_spread=0)
    assert lone["least_s"].item() == pytest.approx(bare, rel=1e-3)


def test_fewer_arrivals_have_shorter_tails_in_overload() -> None:
    """Finding F4: some 110 to 120 arrivals would give the published SciFact overload, a fit after the fact."""
    few = published_tandem([1.5], {"SciFact": 110}, runs=200)
    many = published_tandem([1.5], {"SciFact": 160}, runs=200)
    assert few["p95_s"].item() < many["low_s"].item()
    assert few["consistent"].item() and not many["consistent"].item()


def test_without_variation_only_arrivals_vary() -> None:
    calm = published_tandem([0.2], {"FanOutQA": 98}, runs=50, bytes_spread=0, service_spread=0)
    alone = 8 * 2028.3 / 25_000 + 0.7408
    assert alone < calm["p95_s"].item() < 2 * alone


@pytest.mark.parametrize(
    ("ready", "service", "told"),
    [
        ([0.0, 1.0], [1.0], "give each task one of both"),
        ([1.0, 0.0], [1.0, 1.0], "in the order in which they arrive"),
        ([0.0, 1.0], [1.0, -1.0], "negative or not finite"),
        ([0.0, 1.0], [1.0, float("nan")], "negative or not finite"),
    ],
)
def test_what_is_no_queue_is_refused(ready: list[float], service: list[float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        fcfs(ready, service)


def test_no_load_without_a_rate() -> None:
    with pytest.raises(ValueError, match="rate must be above 0 tasks/s"):
        arrival_times([1.0], 0.0)
    with pytest.raises(ValueError, match="no load to offer"):
        capacity(0.0, 0.0)
    assert fcfs([], [])[0].tolist() == []


def test_examples() -> None:
    result = doctest.testmod(lib.bandmas.queueing)
    assert (result.attempted > 0, result.failed) == (True, 0)
