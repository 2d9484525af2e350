"""A receiver that remembers: what is computed, what is served, and what a kill costs."""

from __future__ import annotations

import math
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.models.receiver import Prompt, Receiver, Reply, Turn
from lib.models.scripted import ScriptedReceiver
from lib.runs.store import Store
from lib.runs.stored import StoredReceiver

ROOT = Path(__file__).resolve().parents[2]


def ask(*texts: str) -> list[Prompt]:
    return [Prompt((Turn("user", text),)) for text in texts]


def echo(name: str = "echo") -> ScriptedReceiver:
    return ScriptedReceiver(lambda prompt: f"{name} {prompt.turns[-1].text}", name=name)


class Spy:
    """A receiver that notes every call and may break."""

    def __init__(self, inner: ScriptedReceiver) -> None:
        self.inner, self.name, self.fingerprint = inner, inner.name, inner.fingerprint
        self.calls: list[list[str]] = []
        self.break_at: int | None = None

    def reply(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        samples: int = 1,
    ) -> list[Reply]:
        if self.break_at is not None and len(self.calls) == self.break_at:
            raise RuntimeError("the machine went away")
        self.calls.append([prompt.turns[-1].text for prompt in prompts])
        return self.inner.reply(prompts, max_tokens=max_tokens, stop=stop, temperature=temperature, samples=samples)

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        self.calls.append([prompt.turns[-1].text for prompt in prompts])
        return self.inner.score(prompts, options)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self.inner.count_tokens(texts)

    def prompt_key(self, prompt: Prompt) -> str:
        return self.inner.prompt_key(prompt)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


def texts(replies: Sequence[Reply]) -> list[str]:
    return [reply.text for reply in replies]


def test_it_is_a_receiver(store: Store) -> None:
    stored = StoredReceiver(echo(), store)
    assert isinstance(stored, Receiver)
    assert stored.count_tokens(["a b"]) == [2]
    assert (stored.name, stored.fingerprint) == ("echo", echo().fingerprint)


def test_only_what_is_missing_is_computed_in_order(store: Store) -> None:
    spy = Spy(echo())
    stored = StoredReceiver(spy, store, chunk=2)
    stored.reply(ask("c"))
    spy.calls.clear()
    assert texts(stored.reply(ask("e", "c", "a", "e", "b"))) == ["echo e", "echo c", "echo a", "echo e", "echo b"]
    assert spy.calls == [["e", "a"], ["b"]]  # as given, each once, two a chunk
    assert stored.computed == 4


def test_row_32_two_models_never_share_an_answer(store: Store) -> None:
    """Case 32 (lm-evaluation-harness#4063, #2715): the key holds the model."""
    one, two = StoredReceiver(echo("one"), store), StoredReceiver(echo("two"), store)
    assert texts(one.reply(ask("q"))) == ["one q"]
    assert texts(two.reply(ask("q"))) == ["two q"]
    assert store.stats()["replies"] == 2


def test_row_33_samples_stay_apart_and_repeat(store: Store) -> None:
    """Case 33 (inspect_ai#2580, dspy#1231): k=3 at T=1 is three rows, the same three on a rerun; T=0 stores one."""
    spy = Spy(echo())
    stored = StoredReceiver(spy, store)
    first = texts(stored.reply(ask("q", "r"), temperature=1.0, samples=3))
    assert first == ["echo q", "echo q #1", "echo q #2", "echo r", "echo r #1", "echo r #2"]
    assert texts(StoredReceiver(spy, store).reply(ask("q", "r"), temperature=1.0, samples=3)) == first
    assert len(spy.calls) == 1
    assert texts(stored.reply(ask("q"), samples=3)) == ["echo q"] * 3
    assert store.stats()["replies"] == 6 + 1
    assert texts(stored.reply(ask("q"), temperature=0.5)) == ["echo q"]  # another temperature is another row
    assert store.stats()["replies"] == 6 + 2


def test_more_samples_keep_the_ones_that_are_there(store: Store) -> None:
    stored = StoredReceiver(echo(), store)
    stored.reply(ask("q"), temperature=1.0, samples=2)
    rows = texts(stored.reply(ask("q"), temperature=1.0, samples=4))
    assert rows == ["echo q", "echo q #1", "echo q #2", "echo q #3"]
    assert store.stats()["replies"] == 4


def test_decoding_and_schema_are_part_of_the_key(store: Store) -> None:
    stored = StoredReceiver(echo(), store)
    prompt = ask("a b c d")[0]
    assert texts(stored.reply([prompt])) == ["echo a b c d"]
    assert texts(stored.reply([prompt], max_tokens=2)) == ["echo a"]
    assert texts(stored.reply([prompt], stop=["c d"])) == ["echo a b"]
    assert texts(stored.reply([Prompt(prompt.turns, {"type": "string"})])) == ["echo a b c d"]
    assert store.stats()["replies"] == 4


def test_row_25_a_missing_token_count_stays_null(store: Store) -> None:
    """Case 25 (ollama#2068): a count that the backend does not tell is null in the store and after it, never 0."""

    class Silent(Spy):
        def reply(self, prompts: Sequence[Prompt], **options: object) -> list[Reply]:  # type: ignore[override]
            return [Reply(text="x") for _ in prompts]

    stored = StoredReceiver(Silent(echo()), store)
    for _ in range(2):
        reply = stored.reply(ask("q"))[0]
        assert (reply.prompt_tokens, reply.new_tokens) == (None, None)


def test_row_30_every_call_is_accounted_with_inputs_and_outputs(store: Store) -> None:
    """Case 30 (MASLab `mas_base.py`): the first call of a new model counts, and both directions are in its row."""
    StoredReceiver(echo("x"), store).reply(ask("one two", "three"))
    frame = store.frame()
    assert list(frame["name"]) == ["x", "x"]
    assert list(frame["prompt_tokens"]) == [2, 1]
    assert list(frame["new_tokens"]) == [3, 2]


def test_latency_is_never_taken_from_the_store(store: Store) -> None:
    stored = StoredReceiver(echo(), store)
    assert stored.reply(ask("q"))[0].seconds == 0.0
    assert math.isnan(stored.reply(ask("q"))[0].seconds)


def test_no_cache_neither_reads_nor_writes(store: Store) -> None:
    spy = Spy(echo())
    StoredReceiver(spy, store).reply(ask("a"))
    fresh = StoredReceiver(spy, store, no_cache=True)
    assert fresh.reply(ask("a", "b"))[0].seconds == 0.0
    assert fresh.score(ask("a"), ["x", "y"]).shape == (1, 2)
    assert spy.calls == [["a"], ["a", "b"], ["a"]]
    assert store.stats()["replies"] == 1
    assert store.stats()["scores"] == 0


def test_error_replies_are_recorded_and_tried_again(store: Store) -> None:
    broken = True

    def script(prompt: Prompt) -> str:
        if broken and prompt.turns[-1].text == "bad":
            raise OSError("no memory")
        return prompt.turns[-1].text

    stored = StoredReceiver(ScriptedReceiver(script), store)
    replies = stored.reply(ask("good", "bad", "bad"))
    assert [reply.finish for reply in replies] == ["stop", "error", "error"]
    assert replies[1].error == "OSError: no memory"
    assert (store.stats()["replies"], store.stats()["failures"]) == (1, 1)
    broken = False
    assert texts(stored.reply(ask("good", "bad"))) == ["good", "bad"]
    assert stored.computed == 3  # good once, bad twice


def test_an_exception_costs_the_chunk_in_flight_only(store: Store) -> None:
    spy = Spy(echo())
    spy.break_at = 2
    stored = StoredReceiver(spy, store, chunk=3)
    with pytest.raises(RuntimeError, match="went away"):
        stored.reply(ask(*"abcdefghi"))
    assert store.stats()["replies"] == 6
    assert store.stats()["failures"] == 3
    spy.break_at = None
    spy.calls.clear()
    stored.reply(ask(*"abcdefghi"))
    assert spy.calls == [["g", "h", "i"]]


def test_scores_are_stored_per_prompt_and_options(store: Store) -> None:
    spy = Spy(echo())
    stored = StoredReceiver(spy, store)
    prompts = ask("a", "b", "a")
    first = stored.score(prompts, ["yes", "no"])
    assert np.array_equal(first, echo().score(prompts, ["yes", "no"]))
    assert np.array_equal(stored.score(prompts, ["yes", "no"]), first)
    assert spy.calls == [["a", "b"]]
    swapped = stored.score(prompts, [["no", "yes"], ["yes", "no"], ["yes", "no"]])
    assert np.array_equal(swapped[0], first[0][::-1])
    assert spy.calls == [["a", "b"], ["a"]]
    assert stored.score([], ["yes"]).shape[0] == 0


def test_an_impossible_option_survives_and_a_nan_does_not(store: Store) -> None:
    class Odd(Spy):
        def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
            self.calls.append([])
            return np.array([[-np.inf, np.nan if prompt.turns[-1].text == "nan" else -0.1] for prompt in prompts])

    odd = Odd(echo())
    stored = StoredReceiver(odd, store)
    for _ in range(2):
        assert stored.score(ask("a"), ["x", "y"]).tolist() == [[-math.inf, -0.1]]
    assert len(odd.calls) == 1
    stored.score(ask("nan"), ["x", "y"])
    assert store.stats()["failures"] == 1


def test_a_receiver_that_loses_a_reply_is_named(store: Store) -> None:
    class Short(Spy):
        def reply(self, prompts: Sequence[Prompt], **options: object) -> list[Reply]:  # type: ignore[override]
            return []

    with pytest.raises(ValueError, match="echo: 0 replies to 2 prompts"):
        StoredReceiver(Short(echo()), store).reply(ask("a", "b"))


def test_the_first_of_two_processes_decides_a_sample(store: Store, tmp_path: Path) -> None:
    """Both report what is stored, so that tables of two racing runs agree."""
    other = Store(tmp_path / "store.sqlite")

    class Late(Spy):
        def reply(self, prompts: Sequence[Prompt], **options: object) -> list[Reply]:  # type: ignore[override]
            StoredReceiver(ScriptedReceiver(lambda _: "theirs", name="echo"), other).reply(prompts, temperature=1.0)
            return [Reply(text="mine") for _ in prompts]

    assert texts(StoredReceiver(Late(echo()), store).reply(ask("q"), temperature=1.0)) == ["theirs"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=8), max_size=4),
    st.integers(1, 4),
    st.sampled_from([(0.0, 1), (0.0, 3), (0.8, 1), (0.8, 3)]),
)
def test_the_store_never_changes_an_answer(calls: list[list[str]], chunk: int, mode: tuple[float, int]) -> None:
    """Any sequence of calls gives what the receiver alone gives, and computes each prompt once."""
    temperature, samples = mode
    import tempfile

    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.sqlite") as store:
        stored = StoredReceiver(echo(), store, chunk=chunk, progress=False)
        for call in calls:
            expected = echo().reply(ask(*call), temperature=temperature, samples=samples)
            assert texts(stored.reply(ask(*call), temperature=temperature, samples=samples)) == texts(expected)
        assert stored.computed == len({text for call in calls for text in call})


SWEEP = """
import json, os, sys, time
from pathlib import Path
from lib.models.receiver import Prompt, Turn
from lib.models.scripted import ScriptedReceiver
from lib.runs.store import Store
from lib.runs.stored import StoredReceiver
folder = Path(sys.argv[1])
log = os.open(folder / "calls.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def script(prompt):
    os.write(log, (prompt.turns[-1].text + "\\n").encode())
    time.sleep(0.002)
    return prompt.turns[-1].text.upper()
stored = StoredReceiver(ScriptedReceiver(script), Store(folder / "store.sqlite"), chunk=5)
(folder / "started").touch()
replies = stored.reply([Prompt((Turn("user", f"prompt {i}"),)) for i in range(200)])
table = json.dumps([[reply.text, reply.new_tokens, reply.finish] for reply in replies])
(folder / "table.json").write_text(table)
"""


def test_row_41_killed_at_random_points_it_resumes_with_what_is_missing(tmp_path: Path) -> None:
    """Case 41 (papermill#824): SIGKILL costs the chunk in flight at most, and the tables end up byte-identical."""
    kills = 12
    moments = random.Random(20261130)
    command = [sys.executable, "-c", SWEEP]
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    calm.mkdir()
    stormy.mkdir()
    subprocess.run([*command, str(calm)], cwd=ROOT, check=True, timeout=120)
    for _ in range(kills):
        (stormy / "started").unlink(missing_ok=True)
        run = subprocess.Popen([*command, str(stormy)], cwd=ROOT)
        while not (stormy / "started").exists() and run.poll() is None:
            time.sleep(0.002)
        time.sleep(moments.uniform(0.0, 0.06))
        run.send_signal(signal.SIGKILL)
        run.wait()
    with Store(stormy / "store.sqlite") as store:
        assert 0 < store.check() < 200  # the kills did hit the sweep in the middle
    subprocess.run([*command, str(stormy)], cwd=ROOT, check=True, timeout=120)
    assert (stormy / "table.json").read_bytes() == (calm / "table.json").read_bytes()
    calls = (stormy / "calls.log").read_text().splitlines()
    assert len(set(calls)) == 200
    assert len(calls) - 200 <= kills * 5
    assert len((calm / "calls.log").read_text().splitlines()) == 200


def test_chunk_must_hold_a_prompt(store: Store) -> None:
    with pytest.raises(ValueError, match="chunk: 0"):
        StoredReceiver(echo(), store, chunk=0)
    with pytest.raises(ValueError, match="samples: 0"):
        StoredReceiver(echo(), store).reply(ask("a"), samples=0)


def test_progress_reaches_the_runner(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_PROGRESS_FILE", str(tmp_path / "progress"))
    clock = iter(range(10_000))
    monkeypatch.setattr("lib.runs.progress.time.monotonic", lambda: float(next(clock)))
    StoredReceiver(echo(), store, chunk=1).reply(ask("a", "b", "c"))
    assert "echo 3/3 prompts, 100 %" in (tmp_path / "progress").read_text()
