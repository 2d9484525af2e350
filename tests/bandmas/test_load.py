"""Tests of lib/bandmas/load.py: common arrivals, one clock for all policies, and decisions that cannot see ahead."""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.bandmas.adaptive import (
    AdaptiveController,
    Backlog,
    Candidates,
    Prices,
    Pricing,
    Row,
    System,
    admit_adaptive,
    price_step,
)
from lib.bandmas.admission import WireSizes
from lib.bandmas.load import (
    RUN_COLUMNS,
    Arrivals,
    Sent,
    arrivals_of,
    calibration_ids,
    run_adaptive,
    run_static,
)
from lib.bandmas.queueing import unit_gaps
from lib.bandmas.results import ContextKey
from lib.bandmas.service import ServiceModel
from lib.seeds import generator
from lib.tasks.task import Split, split_tasks

MODEL = ServiceModel(0.3, 0.004, 0.01, new_tokens=10, floor=0.1)
PRICING = Pricing(bytes_scale=900.0, context_scale=40.0, latency_scale=2.5, eta=0.05)


class Table:
    """Service times by task, with a part that grows with what is read."""

    def __init__(self, base: dict[str, float], slope: float = 0.004) -> None:
        self.base = base
        self.slope = slope
        self.asked: list[ContextKey] = []

    def seconds(self, key: ContextKey, context_tokens: int) -> float:
        self.asked.append(key)
        return self.base[key[0]] + self.slope * context_tokens


def offers(count: int, seed: int = 0, packets: int = 6) -> dict[str, Candidates]:
    """Return ranked packets of `count` tasks with random values and sizes."""
    rng = generator("test-load", seed)
    made = {}
    for number in range(count):
        values, sizes = rng.normal(0.05, 0.08, packets).round(3).tolist(), rng.integers(180, 330, packets).tolist()
        tokens = rng.integers(3, 20, packets).tolist()
        rows = [
            Row(values[slot], f"t{number}|m{slot:02d}|s00", sizes[slot], sizes[slot], tokens[slot])
            for slot in range(packets)
        ]
        rows.sort(key=lambda row: (-row.value, row.packet_id))
        made[f"t{number}"] = Candidates(f"t{number}", tuple(rows), 1000, WireSizes({}))
    return made


def arrivals(count: int, seed: int = 0, warm_up: int = 2, rounds: int = 1) -> Arrivals:
    tasks = tuple(f"t{number}" for number in range(count))
    codes = np.tile(np.arange(count), rounds)
    return Arrivals(tasks, codes, unit_gaps(len(codes), "test", seed), warm_up)


def times_of(count: int, seed: int = 0) -> dict[str, float]:
    drawn = generator("test-service", seed).uniform(0.1, 1.2, count)
    return {f"t{number}": float(seconds) for number, seconds in enumerate(drawn)}


def run(count: int, rate: float, service: Table, seed: int = 0, **changes: object) -> pd.DataFrame:
    known = {"system": System(), "pricing": PRICING, "service": MODEL, **changes}
    controller = AdaptiveController(**known)  # type: ignore[arg-type]
    return run_adaptive(arrivals(count, seed, rounds=2), rate, offers(count, seed), service, controller)


# ----------------------------------------------------------------------------------------------------------- arrivals


def test_calibration_tasks_are_validation_tasks_and_never_final_ones() -> None:
    split = split_tasks([f"t{number}" for number in range(245)], 0)
    assert calibration_ids(split) == split.validation[:20]
    small = split_tasks([f"t{number}" for number in range(10)], 0)
    assert calibration_ids(small) == (*small.validation, *small.profile)
    assert calibration_ids(small, 3) == (*small.validation, small.profile[0])
    assert not set(calibration_ids(small, 100)) & set(small.final)
    with pytest.raises(ValueError, match="count must be at least 1"):
        calibration_ids(small, 0)


def test_arrivals_warm_up_first_and_then_pass_through_the_final_tasks() -> None:
    split = split_tasks([f"t{number}" for number in range(50)], 0)
    once = arrivals_of("bridge", split, warm_up=4)
    assert once.tasks == (*calibration_ids(split, 4), *split.final) and once.warm_up == 4
    assert once.codes.tolist() == list(range(24))
    more = arrivals_of("bridge", split, warm_up=4, count=50)
    arrived = [more.tasks[code] for code in more.codes]
    assert arrived[:24] == list(once.tasks)
    assert sorted(arrived[24:44]) == sorted(split.final) and arrived[24:44] != list(split.final)
    assert len(set(arrived[44:])) == 10 and set(arrived[44:]) <= set(split.final)
    assert (more.gaps[:24] == once.gaps).all(), "a longer day starts the same"
    assert arrivals_of("bridge", split, warm_up=4, count=7).codes.tolist() == list(range(11))
    with pytest.raises(ValueError, match="bridge, seed 0: no final task arrives"):
        arrivals_of("bridge", split, count=0)
    with pytest.raises(ValueError, match="no final task arrives"):
        arrivals_of("bridge", Split(0, ("a",), ("b",), ()))


# ------------------------------------------------------------------------------------------------------------- static


def test_a_static_run_by_hand() -> None:
    """25 kb/s: 3,125 bytes a second. Task b arrives while a is on the link, c finds everything free."""
    day = Arrivals(("a", "b", "c"), np.array([0, 1, 2]), np.array([0.0, 0.5, 9.5]), 1)
    sent = {"a": Sent(("a|m00|s00",), 3125, 10), "b": Sent((), 0, 0), "c": Sent(("c|m00|s00", "c|m01|s00"), 6250, 20)}
    frame = run_static(day, 1.0, sent, Table({"a": 1.0, "b": 2.0, "c": 0.5}, slope=0.0), System())
    assert tuple(frame.columns) == RUN_COLUMNS
    expected = {
        "arrival_s": [0.0, 0.5, 10.0],
        "link_wait_s": [0.0, 0.5, 0.0],
        "transfer_s": [1.0, 0.0, 2.0],
        "receiver_wait_s": [0.0, 1.0, 0.0],
        "service_s": [1.0, 2.0, 0.5],
        "latency_s": [2.0, 3.5, 2.5],
        "missed": [False, True, False],
        "bytes": [3125, 0, 6250],
        "n_sent": [1, 0, 2],
        "warm_up": [True, False, False],
        "packet_ids": ["a|m00|s00", "", "c|m00|s00 c|m01|s00"],
    }
    assert {name: frame[name].tolist() for name in expected} == expected
    assert frame[["price_bytes", "price_latency", "price_context"]].isna().all().all()


@given(st.floats(0.05, 4), st.integers(0, 3))
def test_twice_the_rate_is_the_same_day_at_twice_the_speed(rate: float, seed: int) -> None:
    day = arrivals(8, seed)
    sent = {task_id: Sent((), 500, 5) for task_id in day.tasks}
    slow, fast = (run_static(day, r, sent, Table(times_of(8)), System()) for r in (rate, 2 * rate))
    assert (slow["arrival_s"] == 2 * fast["arrival_s"]).all()
    assert (slow[["transfer_s", "service_s", "bytes"]] == fast[["transfer_s", "service_s", "bytes"]]).all().all()
    assert (fast["latency_s"] >= slow["latency_s"] - 1e-9).all(), "more load, no shorter wait"


# ----------------------------------------------------------------------------------------------------------- adaptive


def plain_adaptive(
    day: Arrivals, rate: float, ranked: dict[str, Candidates], service: Table, system: System
) -> list[tuple[tuple[str, ...], Prices, float]]:
    """Return (packets sent, prices, latency) of each arrival, from a list of all events that is read anew each time."""
    sent: list[tuple[tuple[str, ...], Prices, float]] = []
    transfers: list[tuple[float, int]] = []
    answered: list[tuple[float, float, int]] = []
    now = link = receiver = 0.0
    for code, gap in zip(day.codes, day.gaps, strict=True):
        now += gap / rate
        over_bytes = over_latency = over_context = 0.0
        for end, size in sorted(transfers, key=lambda one: one[0]):  # of equal ends, the earlier task first
            if end <= now:
                over_bytes = price_step(over_bytes, size, PRICING.bytes_scale, PRICING.eta)
        for end, latency, tokens in sorted(answered, key=lambda one: one[0]):
            if end <= now:
                over_latency = price_step(over_latency, latency, PRICING.latency_scale, PRICING.eta)
                over_context = price_step(over_context, tokens, PRICING.context_scale, PRICING.eta)
        prices = Prices(over_bytes, over_latency, over_context)
        name = day.tasks[code]
        made = admit_adaptive(ranked[name], Backlog(now, max(0.0, link - now)), prices, system, PRICING, MODEL)
        link = max(link, now) + 8 * made.bytes / system.rate
        receiver = max(link, receiver) + service.seconds((name, made.packet_ids), made.context_tokens)
        transfers.append((link, made.bytes))
        answered.append((receiver, receiver - now, made.context_tokens))
        sent.append((made.packet_ids, prices, receiver - now))
    return sent


@pytest.mark.parametrize("rate", [0.4, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_loop_is_the_plain_simulation(rate: float, seed: int) -> None:
    frame = run(30, rate, Table(times_of(30, seed)), seed)
    plain = plain_adaptive(arrivals(30, seed, rounds=2), rate, offers(30, seed), Table(times_of(30, seed)), System())
    assert frame["packet_ids"].tolist() == [" ".join(ids) for ids, _, _ in plain]
    names = ["price_bytes", "price_latency", "price_context"]
    np.testing.assert_allclose(frame[names], np.array([prices for _, prices, _ in plain]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(frame["latency_s"], [latency for _, _, latency in plain], rtol=1e-9)
    assert (frame["bytes"] <= 1000).all() and (frame[names] >= 0).all().all()
    assert (frame["latency_s"] >= frame["transfer_s"] + frame["service_s"] - 1e-9).all()


DECIDED = ["bytes", "context_tokens", "n_sent", "price_bytes", "price_latency", "price_context", "packet_ids"]


@given(st.integers(0, 30), st.floats(0.01, 60), st.sampled_from([0.5, 1.0, 3.0]), st.integers(0, 4))
def test_no_decision_knows_a_completion_that_lies_ahead(place: int, other: float, rate: float, seed: int) -> None:
    """Another service time of one task changes no decision made before that task was answered, either way."""
    before = run(31, rate, Table(times_of(31, seed)), seed)
    changed = {**times_of(31, seed), f"t{place}": other}
    after = run(31, rate, Table(changed), seed)
    ends = [float(frame["arrival_s"][place] + frame["latency_s"][place]) for frame in (before, after)]
    blind = before["arrival_s"] < min(ends) - 1e-9
    pd.testing.assert_frame_equal(before.loc[blind, DECIDED], after.loc[blind, DECIDED])


def test_a_completion_is_used_once_it_is_there() -> None:
    """The counterpart: the test above would also hold for a controller that never learns."""
    slow = {**times_of(31), "t3": 30.0}
    before, after = (run(31, 1.0, Table(times)) for times in (times_of(31), slow))
    end = float(after["arrival_s"][3] + after["latency_s"][3])
    seeing = after["arrival_s"] >= end
    assert seeing.any() and (after["price_latency"] > before["price_latency"])[seeing].all()
    assert (after["n_sent"] < before["n_sent"])[seeing].any()


@given(st.integers(1, 59), st.integers(0, 3))
def test_no_decision_knows_a_later_arrival(place: int, seed: int) -> None:
    day = arrivals(30, seed, rounds=2)
    later = msgspec.structs.replace(
        day, gaps=np.concatenate([day.gaps[:place], 3 * unit_gaps(60 - place, "other", seed)])
    )
    frames = [
        run_adaptive(
            one, 1.0, offers(30, seed), Table(times_of(30, seed)), AdaptiveController(System(), PRICING, MODEL)
        )
        for one in (day, later)
    ]
    pd.testing.assert_frame_equal(*(frame.loc[: place - 1, DECIDED] for frame in frames))


def test_prices_rise_under_load_and_the_queue_is_shorter_for_it() -> None:
    ranked = offers(60)
    day = arrivals(60, rounds=4)
    static = {
        name: Sent(tuple(row.packet_id for row in one.rows[:4]), sum(r.record_bytes for r in one.rows[:4]), 40)
        for name, one in ranked.items()
    }
    service = Table(times_of(60), slope=0.0)
    fixed = run_static(day, 2.2, static, service, System())
    adapted = run_adaptive(day, 2.2, ranked, service, AdaptiveController(System(), PRICING, MODEL))
    assert adapted["bytes"].sum() < fixed["bytes"].sum()
    assert adapted["latency_s"].quantile(0.95) < fixed["latency_s"].quantile(0.95)
    calm = run_adaptive(day, 0.1, ranked, service, AdaptiveController(System(), PRICING, MODEL))
    assert calm["price_latency"].max() < adapted["price_latency"].max()


def test_receiver_wait_in_the_deadline_empties_batches_of_a_receiver_that_is_behind() -> None:
    """Specification, finding F5."""
    busy = Table(dict.fromkeys((f"t{number}" for number in range(40)), 1.0), slope=0.0)
    without = run(40, 2.0, busy)
    counted = run(40, 2.0, busy, system=System(deadline_includes_receiver_wait=True))
    assert (counted["n_sent"] == 0).mean() > 0.5 > (without["n_sent"] == 0).mean()


def test_expected_work_ahead_is_told_from_starts_and_calibrated_times() -> None:
    """One task is answered at a time; what is in work counts for what is left of its expected time."""
    seen: list[Backlog] = []

    class Watching(AdaptiveController):
        def decide(self, candidates: Candidates, backlog: Backlog, **more: object) -> object:  # type: ignore[override]
            seen.append(backlog)
            return super().decide(candidates, backlog)

    day = Arrivals(("a",), np.zeros(4, dtype=int), np.array([1.0, 1.0, 1.0, 17.0]), 0)
    nothing = {"a": Candidates("a", (), 100, WireSizes({}))}
    service = Table({"a": 5.0})
    run_adaptive(day, 1.0, nothing, service, Watching(System(), PRICING, MODEL))
    guess = MODEL.seconds(0)  # 0.4 s, while the calls take 5 s
    assert [backlog.receiver_work for backlog in seen] == pytest.approx([0.0, 0.0, guess, 0.0])
    assert [backlog.now for backlog in seen] == [1.0, 2.0, 3.0, 20.0]


def test_deferred_packets_are_counted_and_not_delivered() -> None:
    ranked = offers(10)
    frame = run(10, 0.5, Table(times_of(10)), system=System(context_limit=25))
    assert (frame["context_tokens"] <= 25).all()
    assert frame["deferred"].sum() > 0
    first = frame.iloc[0]
    made = admit_adaptive(ranked["t0"], Backlog(0.0), Prices(), System(context_limit=25), PRICING, MODEL)
    assert (first["deferred"], first["packet_ids"]) == (len(made.deferred), " ".join(made.packet_ids))


def test_equal_runs_are_equal() -> None:
    frames = [run(20, 1.0, Table(times_of(20))) for _ in range(2)]
    pd.testing.assert_frame_equal(*frames)


def test_a_task_without_packets_passes_with_nothing() -> None:
    ranked = {name: msgspec.structs.replace(one, rows=()) for name, one in offers(5).items()}
    day = arrivals(5)
    frame = run_adaptive(day, 1.0, ranked, Table(times_of(5)), AdaptiveController(System(), PRICING, MODEL))
    assert (frame["bytes"] == 0).all() and (frame["transfer_s"] == 0).all() and (frame["latency_s"] > 0).all()
