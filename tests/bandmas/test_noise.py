"""Noise control: another batch mix, flips in text and utility, no answers from a store."""

from __future__ import annotations

import pytest

from lib.bandmas.noise import aa_control, flip_rate
from lib.bandmas.replay import replay_outcomes
from lib.models import Prompt
from tests.bandmas.games import Recorder, echo, packets_of, render, task, utility_of
from tests.bandmas.test_replay import additive


def noisy_jobs() -> list:
    return [(task(f"t{i}"), packets_of(f"t{i}", 2)) for i in range(6)]


ALLOWED = {f"t{i}" for i in range(6)}


def test_steady_receiver_never_flips_and_is_asked_in_another_mix() -> None:
    receiver = Recorder()
    jobs = noisy_jobs()
    first = replay_outcomes(receiver, jobs, utility_of(additive), render, ALLOWED)
    control = aa_control(receiver, jobs, utility_of(additive), render, ALLOWED, first=first)
    assert [len(batch) for batch in receiver.batches] == [24, 5, 5, 2]
    assert receiver.batches[1] != receiver.batches[0][:5]
    assert sorted(text for batch in receiver.batches[1:] for text in batch) == sorted(
        raw for raw, names in zip(first["raw"], first["contexts"], strict=True) if {"full", "empty"} & set(names)
    )
    assert len(control) == 12
    rate = flip_rate(control)
    assert (rate.text, rate.utility, rate.asked, rate.failed) == (0.0, 0.0, 12, 0)


def test_flips_are_counted_in_text_and_in_utility() -> None:
    """A receiver that adds a space from its second call on, and forgets the packets of one task."""
    receiver = Recorder()

    def drifting(prompt: Prompt) -> str:
        text = echo(prompt)
        if len(receiver.batches) > 1:
            text = '["t3", []]' if text.startswith('["t3", ["') else " " * text.startswith('["t2"') + text
        return text

    receiver.script = drifting
    control = aa_control(receiver, noisy_jobs(), utility_of(additive), render, ALLOWED)
    changed = control[~control["same_text"]]
    assert changed[["task_id", "context", "same_utility"]].to_numpy().tolist() == [
        ["t2", "full", True],
        ["t2", "empty", True],
        ["t3", "full", False],
    ]
    rate = flip_rate(control)
    assert (rate.text, rate.utility) == (3 / 12, 1 / 12)


def test_failed_second_answer_is_no_flip_but_counted() -> None:
    receiver = Recorder()

    def failing(prompt: Prompt) -> str:
        if len(receiver.batches) > 1 and "t0" in echo(prompt):
            raise RuntimeError("gone")
        return echo(prompt)

    receiver.script = failing
    rate = flip_rate(aa_control(receiver, noisy_jobs(), utility_of(additive), render, ALLOWED))
    assert (rate.text, rate.asked, rate.failed) == (0.0, 10, 2)


def test_nothing_asked_has_no_rate() -> None:
    rate = flip_rate(aa_control(Recorder(), [], utility_of(additive), render, ALLOWED))
    assert (rate.text, rate.utility, rate.asked) == (None, None, 0)


def test_stored_receiver_is_refused_unless_its_store_is_separate() -> None:
    receiver = Recorder()
    receiver.store = object()
    jobs = noisy_jobs()
    with pytest.raises(ValueError, match="needs the bare receiver"):
        aa_control(receiver, jobs, utility_of(additive), render, ALLOWED)
    first = replay_outcomes(Recorder(), jobs, utility_of(additive), render, ALLOWED)
    control = aa_control(receiver, jobs, utility_of(additive), render, ALLOWED, first=first, separate_store=True)
    assert flip_rate(control).asked == 12
    receiver.no_cache = True
    assert flip_rate(aa_control(receiver, jobs, utility_of(additive), render, ALLOWED)).asked == 12


def test_first_outcomes_of_other_prompts_are_refused() -> None:
    jobs = noisy_jobs()
    first = replay_outcomes(Recorder(), jobs, utility_of(additive), render, ALLOWED)
    with pytest.raises(ValueError, match="'t0', context 'full'"):
        aa_control(Recorder(), jobs, utility_of(additive), render, ALLOWED, first=first.assign(prompt_key="other"))
