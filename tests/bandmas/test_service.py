"""Tests of lib/bandmas/service.py: the fit, replayed times, and times by the clock."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lib.bandmas.service
from lib.bandmas.service import ContextAnswers, LiveService, ReplayedService, ServiceModel, fit_service
from lib.bandmas.traffic import Traffic
from lib.messages.wire import batch_bytes
from lib.models.receiver import Prompt
from lib.models.scripted import ScriptedReceiver
from lib.runs.store import Store
from lib.runs.stored import StoredReceiver
from tests.bandmas.games import Recorder, packets_of, render, task

COUNTS = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 200)), min_size=5, max_size=30, unique=True)


def traffics() -> dict[str, Traffic]:
    packets = {name: tuple(packets_of(name, 3)) for name in ("t1", "t2")}
    full = {name: batch_bytes(cut) for name, cut in packets.items()}
    return {"game": Traffic("game", "typed", {name: task(name) for name in packets}, {}, packets, full)}


def answers(receiver: ScriptedReceiver) -> ContextAnswers:
    return ContextAnswers(receiver, traffics(), render=render)


def ids(name: str, *slots: int) -> tuple[str, tuple[str, ...]]:
    packets = packets_of(name, 3)
    return name, tuple(packets[slot].packet_id for slot in slots)


def ticking(*lengths: float) -> Callable[[], float]:
    """Return a clock whose successive intervals are `lengths`, with a second between them."""
    marks = iter([mark for start, length in enumerate(lengths) for mark in (100 * start, 100 * start + length)])
    return lambda: next(marks)


# ---------------------------------------------------------------------------------------------------------------- fit


@given(COUNTS, st.floats(0.1, 1), st.floats(0.0001, 0.01), st.floats(0.001, 0.05))
def test_a_linear_truth_is_found(counts: list[tuple[int, int]], base: float, read: float, write: float) -> None:
    context, new = (np.array(column, dtype=float) for column in zip(*counts, strict=True))
    truth = base + read * context + write * new
    model = fit_service(context, new, truth)
    assert [model.seconds(c, n) for c, n in counts] == pytest.approx(truth.tolist(), rel=1e-6)
    assert model.new_tokens == pytest.approx(new.mean()) and model.floor == pytest.approx(truth.min())
    assert max(map(abs, model.residuals)) < 1e-6
    design = np.column_stack([np.ones_like(context), context, new])
    if np.linalg.matrix_rank(design) == 3 and np.linalg.cond(design) < 1e5:
        assert (model.base, model.per_context_token, model.per_new_token) == pytest.approx(
            (base, read, write), rel=1e-4
        )


def test_residuals_sum_to_zero_and_are_the_least() -> None:
    rng = np.random.default_rng(0)
    context, new = rng.integers(0, 300, 20), rng.integers(5, 60, 20)
    seconds = 0.3 + 0.001 * context + 0.01 * new + rng.normal(0, 0.05, 20)
    model = fit_service(context, new, seconds)
    assert sum(model.residuals) == pytest.approx(0, abs=1e-12)
    design = np.column_stack([np.ones(20), context, new])
    expected = np.linalg.lstsq(design, seconds, rcond=None)[0]
    assert [model.base, model.per_context_token, model.per_new_token] == pytest.approx(expected.tolist())


def test_what_does_not_vary_explains_nothing() -> None:
    model = fit_service([10, 20, 30], [7, 7, 7], [1.0, 2.0, 3.0])
    assert (model.per_new_token, model.per_context_token) == (0.0, pytest.approx(0.1))
    assert model.seconds(40, 70) == pytest.approx(4.0)
    lone = fit_service([10], [7], [1.5])
    assert lone.seconds(0) == lone.seconds(500, 500) == 1.5


def test_no_prediction_is_shorter_than_the_shortest_call() -> None:
    model = fit_service([100, 200], [10, 10], [0.5, 1.5])
    assert model.base == pytest.approx(-0.5) and model.seconds(0) == 0.5


def test_before_the_reply_its_length_is_the_calibration_mean() -> None:
    model = ServiceModel(0.4, 0.001, 0.01, new_tokens=20)
    assert model.seconds(100) == model.seconds(100, 20) != model.seconds(100, 21)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (([], [], []), "at least one measured call"),
        (([1, 2], [1], [1.0, 2.0]), "at least one measured call"),
        (([1], [1], [math.nan]), "missing or negative; leave failed calls out"),
        (([1], [math.nan], [1.0]), "missing or negative"),
        (([1], [1], [-1.0]), "missing or negative"),
    ],
)
def test_calls_that_cannot_be_fitted_are_refused(columns: tuple[list[float], ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        fit_service(*columns)


# ----------------------------------------------------------------------------------------------------------- replayed


def test_answers_are_asked_once_and_together() -> None:
    receiver = Recorder()
    known = answers(receiver)
    known.ask([ids("t1", 0, 1), ids("t2"), ids("t1", 0, 1)])
    assert [len(batch) for batch in receiver.batches] == [2]
    assert known.reply(ids("t1", 0, 1)).text == known.replies[ids("t1", 0, 1)].text
    known.ask([ids("t2")])
    assert receiver.calls == 2
    known.reply(ids("t1", 2))
    assert [len(batch) for batch in receiver.batches] == [2, 1]


def test_replayed_times_take_each_reply_as_long_as_it_is() -> None:
    receiver = ScriptedReceiver(lambda prompt: "word " * prompt.turns[-1].text.count("|m"))
    service = ReplayedService(ServiceModel(0.5, 0.01, 0.1, new_tokens=50), answers(receiver))
    assert service.seconds(ids("t1", 0, 2), 30) == pytest.approx(0.5 + 0.3 + 0.2)
    assert service.seconds(ids("t1"), 0) == pytest.approx(0.5)
    assert service.seconds(ids("t1", 0, 2), 30) == pytest.approx(1.0) and receiver.calls == 2
    alone = ReplayedService(service.model)
    assert alone.seconds(ids("t1", 0, 2), 30) == pytest.approx(0.5 + 0.3 + 5.0), "no receiver: the calibration mean"


def test_residuals_are_off_unless_a_seed_draws_them_by_name() -> None:
    model = ServiceModel(1.0, 0.0, 0.0, new_tokens=0, floor=0.2, residuals=(-5.0, 0.25, 0.5, 0.75))
    keys = [ids(name, *slots) for name in ("t1", "t2") for slots in ((), (0,), (0, 1), (1, 2), (0, 1, 2))]
    plain, drawn, again = ReplayedService(model), ReplayedService(model, residual_seed=1), None
    assert {plain.seconds(key, 0) for key in keys} == {1.0}
    times = [drawn.seconds(key, 0) for key in keys]
    assert set(times) <= {0.2, 1.25, 1.5, 1.75} and len(set(times)) > 1, "never below the floor"
    again = ReplayedService(model, residual_seed=1)
    assert [again.seconds(key, 0) for key in reversed(keys)] == times[::-1]
    assert [ReplayedService(model, residual_seed=2).seconds(key, 0) for key in keys] != times


# --------------------------------------------------------------------------------------------------------------- live


def test_live_times_are_the_clock_of_each_set_alone_after_warm_up() -> None:
    receiver = Recorder()
    live = LiveService(answers(receiver), warm_up=3, clock=ticking(0.7, 0.2))
    assert live.seconds(ids("t1", 0), 4) == pytest.approx(0.7)
    assert [len(batch) for batch in receiver.batches] == [1, 1, 1, 1], "three discarded, one timed"
    assert live.seconds(ids("t2", 1), 6) == pytest.approx(0.2) and receiver.calls == 5
    assert live.seconds(ids("t1", 0), 4) == pytest.approx(0.7) and receiver.calls == 5, "timed once"
    assert live.timed == {ids("t1", 0): pytest.approx(0.7), ids("t2", 1): pytest.approx(0.2)}
    assert set(live.answers.replies) == set(live.timed)


def test_a_live_reply_is_timed_even_if_it_was_answered_before() -> None:
    """An answer that policies share has no time of its own until it is measured."""
    known = answers(receiver := Recorder())
    known.ask([ids("t1", 0)])
    live = LiveService(known, warm_up=0, clock=ticking(0.4))
    assert live.seconds(ids("t1", 0), 4) == pytest.approx(0.4) and receiver.calls == 2


def test_a_failed_call_took_its_time_too() -> None:
    def script(prompt: Prompt) -> str:
        raise RuntimeError("down")

    live = LiveService(answers(ScriptedReceiver(script)), warm_up=0, clock=ticking(0.4))
    assert live.seconds(ids("t1", 0), 4) == pytest.approx(0.4)
    assert live.answers.replies[ids("t1", 0)].finish == "error"


def test_a_stored_receiver_cannot_be_timed(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = Store(tmp_path_factory.mktemp("store") / "store.sqlite")
    stored = StoredReceiver(ScriptedReceiver(), store, progress=False)
    with pytest.raises(ValueError, match="needs the bare receiver"):
        LiveService(ContextAnswers(stored, traffics(), render=render))
    assert ReplayedService(ServiceModel(1, 0, 0, 0), ContextAnswers(stored, traffics(), render=render)).seconds(
        ids("t1"), 0
    ) == pytest.approx(1.0)


def test_examples() -> None:
    result = doctest.testmod(lib.bandmas.service)
    assert (result.attempted > 0, result.failed) == (True, 0)
