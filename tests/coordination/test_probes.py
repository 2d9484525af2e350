"""Probes: own first tokens, actions of a step, equal prompts once, and receivers that cannot be probed."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from lib.coordination import probes as module
from lib.coordination.arms import Exposure
from lib.coordination.probes import NoLogProbabilities, Probe, gain, probe
from lib.models.receiver import Prompt
from tests.coordination.exchanges import Listening, decide, step_at
from tests.coordination.sure import Mute, Sure

STEP = step_at(1)
SILENT, SENT = Exposure(STEP, "none"), Exposure(STEP, "message", "edit src/file_1.py")


def test_surprisal_of_the_own_first_token() -> None:
    receiver = Sure()
    found = probe(receiver, [SILENT, SENT])
    assert [one.surprisal for one in found.probes] == [2.0, 0.2]
    assert gain(*found.probes) == pytest.approx(1.8) and gain(*found.probes[::-1]) == 0
    assert (receiver.batches, receiver.score_batches, found.calls) == (1, 1, 2)
    assert all(prompt.schema is None for prompt in receiver.prompts), "a forced opening would say nothing"
    words = sum(len(turn.text.split()) for turn in receiver.prompts[0].turns)
    assert found.probes[0].tokens == words + 1


def test_several_tokens_are_a_mean_and_never_above_the_cap() -> None:
    found = probe(Sure(), [SENT], tokens=4)
    assert found.probes[0].surprisal == pytest.approx(0.2 / 4)
    with pytest.raises(ValueError, match="looks at 1 to 4 tokens, not 5"):
        probe(Sure(), [SENT], tokens=5)


def test_surprisal_of_the_likeliest_action() -> None:
    receiver = Sure()
    one = probe(receiver, [SENT], signal="action").probes[0]
    shares = np.exp([0.0, -1.0, -2.0])
    assert one.surprisal == pytest.approx(-np.log(shares[0] / shares.sum())), "scores fall by 1 from action to action"
    assert receiver.score_batches == 1


def test_equal_prompts_are_asked_once() -> None:
    receiver = Sure()
    found = probe(receiver, [SILENT, SENT, SILENT, SENT, SILENT])
    assert (found.calls, receiver.calls, receiver.scored) == (2, 2, 2)
    assert [one.surprisal for one in found.probes] == [2.0, 0.2, 2.0, 0.2, 2.0]
    assert probe(receiver, []).probes == [] and receiver.calls == 2


def test_a_receiver_without_log_probabilities_is_refused() -> None:
    for signal in ("first_token", "action"):
        with pytest.raises(NoLogProbabilities, match="'rules' gives no log-probabilities.*threshold controller"):
            probe(Mute(), [SENT], signal=signal)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="signal: 'hit' is not known"):
        probe(Sure(), [SENT], signal="hit")  # type: ignore[arg-type]


def test_nothing_said_and_failed_calls_are_null_for_their_own_row_alone() -> None:
    def script(prompt: Prompt) -> str:
        if "src/file_1.py" in prompt.turns[-1].text.split("Message of another agent:")[-1]:
            raise RuntimeError("too long")
        return "" if "hush" in prompt.turns[-1].text else decide(prompt)

    asked = [SILENT, SENT, Exposure(STEP, "message", "hush"), Exposure(STEP, "message", "go on")]
    for signal in ("first_token", "action"):
        found = [one.surprisal for one in probe(Sure(script=script), asked, signal=signal).probes]  # type: ignore[arg-type]
        assert found[1] is None and found[3] is not None
    assert probe(Sure(script=script), asked).probes[2].surprisal is None
    assert gain(Probe(None, 1), Probe(1.0, 1)) is None
    assert probe(Sure(lambda prompt: float("inf")), [SENT]).probes[0].surprisal is None


def test_a_scripted_model_can_be_probed() -> None:
    assert probe(Listening(), [SENT]).probes[0].surprisal > 0


def test_examples() -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
