"""A whole replay sweep as a process that can be killed: readers, replay, effects table, export.

`python -m tests.runs.sweeps FOLDER` is one life of the sweep, imports included. `--serve [MODULES]` imports once and forks one life
for each line it reads, killing it where the line says: importing takes seconds, a scripted sweep a third of one, and fifty kills of
whole interpreters would spend their time on imports. A forked life that gets SIGKILL dies as any other process does: the kernel ends it
without running another instruction of it, its locks and file descriptors vanish, and what it had written stays. It shares nothing with
the process it was forked from, which never opens the store.

Each life appends to `computed.log` the key of every prompt that the receiver computed, synced to the disk after the call and before its
replies can be stored, and writes `marks`: where it is, one line with the time for each phase and each call.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lib.bandmas.results import scorer_of
from lib.bandmas.study import replay_all, splits_of
from lib.bandmas.traffic import frozen_corpora, load_workloads, traffics_of
from lib.models.choose import SCRIPTED, open_receiver
from lib.models.receiver import Prompt, Receiver, Reply
from lib.runs.context import Run
from lib.runs.store import Store
from lib.runs.stored import StoredReceiver
from lib.tasks.task import Workload

CHUNK = 6  # prompts between two commits: what a kill may cost
PHASES = ("receiver", "store", "readers", "replay", "export")  # of a life, after its imports
MARKS, COMPUTED, STORE = "marks", "computed.log", "store.sqlite"
END = "end"


class Order(msgspec.Struct):
    """One life: its folder, its receiver, and when to kill it (`delay` seconds after `mark`; never without one)."""

    folder: str
    receiver: str = SCRIPTED
    mark: str | None = None
    delay: float = 0.0


class Marks:
    """Where a life is, for whoever wants to kill it there."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / MARKS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def set(self, mark: str) -> None:
        os.write(self._file, f"{mark} {time.monotonic()}\n".encode())


class Logged:
    """A receiver whose computed prompts are on the disk before anyone can store their replies."""

    def __init__(self, inner: Receiver, path: Path, marks: Marks) -> None:
        self.inner, self.name, self.fingerprint = inner, inner.name, inner.fingerprint
        self._log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._marks, self._calls = marks, 0

    def reply(self, prompts: Sequence[Prompt], **options: Any) -> list[Reply]:
        replies = self.inner.reply(prompts, **options)
        os.write(self._log, "".join(f"{self.prompt_key(prompt)}\n" for prompt in prompts).encode())
        os.fsync(self._log)
        self._calls += 1
        self._marks.set(call_mark(self._calls))  # what follows is the commit of these replies
        return replies

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        raise AssertionError("a replay sweep scores nothing")

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self.inner.count_tokens(texts)

    def prompt_key(self, prompt: Prompt) -> str:
        return self.inner.prompt_key(prompt)


def call_mark(number: int) -> str:
    """Return the mark of a life's n-th call of its receiver, counted from 1."""
    return f"call-{number}"


def workloads_for(receiver: str) -> dict[str, Workload]:
    """Return the tasks of a sweep: two families for the scripted receiver, a few short prompts for a model."""
    if receiver == SCRIPTED:
        return load_workloads(["worlds_verification", "worlds_bridge"], 6)
    return load_workloads(["worlds_bridge"], 2, readers={"worlds_bridge": 2}, distractors={"worlds_bridge": 0})


def sweep(folder: Path, name: str = SCRIPTED) -> None:
    """Live once: replay every task that a seed may replay, and write the tables `effects` and `outcomes`."""
    marks = Marks(folder)
    marks.set("receiver")
    logged = Logged(open_receiver(name, exact=name != SCRIPTED), folder / COMPUTED, marks)
    marks.set("store")
    with Store(folder / STORE) as store:
        receiver = StoredReceiver(logged, store, chunk=CHUNK, progress=False)
        marks.set("readers")
        workloads = workloads_for(name)
        traffics = traffics_of(workloads, frozen_corpora(receiver, workloads, folder / "corpora"))
        marks.set("replay")
        outcomes, effects = replay_all(receiver, traffics, splits_of(traffics, (0, 1)), scorer_of(workloads))
        marks.set("export")
        run = Run(folder, "smoke", folder / STORE, no_cache=False)
        run.table(effects, "effects")
        run.table(outcomes.drop(columns=["score", "seconds"]), "outcomes")  # a clock is no part of a result
    marks.set(END)


def marks_of(folder: Path) -> dict[str, float]:
    """Return when (seconds of the monotonic clock) the latest life of `folder` came to each mark."""
    path = folder / MARKS
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return {mark: float(moment) for mark, moment in (line.split() for line in lines)}


def live(order: Order) -> int:
    """Fork one life, kill it where the order says, and return its exit code: -9 when the kill came before its end."""
    folder = Path(order.folder)
    (folder / MARKS).unlink(missing_ok=True)
    life = multiprocessing.get_context("fork").Process(target=sweep, args=(folder, order.receiver))
    life.start()
    if order.mark is not None:
        while (reached := marks_of(folder).get(order.mark)) is None and life.is_alive():
            time.sleep(0.001)
        if reached is not None:
            time.sleep(max(0.0, reached + order.delay - time.monotonic()))
            life.kill()  # SIGKILL; nothing happens to a life that has ended
    life.join()
    assert life.exitcode is not None
    return life.exitcode


def serve() -> None:
    """Import the modules named; fork a life for each `Order` (a line of JSON) on standard input; answer with its exit code."""
    for module in sys.argv[2:]:
        importlib.import_module(module)
    for line in sys.stdin:
        print(live(msgspec.json.decode(line, type=Order)), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve()
    else:
        sweep(Path(sys.argv[1]))
