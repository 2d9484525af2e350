"""How fast a receiver reads and writes on this machine, measured once in some seconds and kept.

Context
-------
A plan knows tokens; a person wants to know hours. Between them stand three rates of a machine and a model.

Intuition
---------
Reading is one number, seconds a token of the prefix tree. Decoding is a line: a step costs a fixed time, since the weights are read
once for all rows, plus a time for each row in it. So a block whose longest reply has m tokens, with k tokens in all, costs
``step * m + row * k`` seconds, and two batches of different width give both.

How to read the result
----------------------
The rates hold for prompts of a few hundred tokens on a machine that is as busy as it was. Expect an estimate to be right within a
factor of two, no better.

Not covered: endpoints, whose server has its own queue; loading; devices that slow down when they get warm.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from lib.models.prefix_tree import build_tree
from lib.models.receiver import Prompt, Turn
from lib.runs.tally import Tally
from lib.seeds import digest, generator
from lib.sources import cache_dir

if TYPE_CHECKING:
    from lib.models.transformers_receiver import TransformersReceiver
    from lib.runs.rehearse import Opened

SECONDS = 20.0
READ_PROMPTS, READ_WORDS = 4, 300  # a tree of some 2000 tokens
NARROW, WIDE, NEW_TOKENS = 2, 24, 32
_WORDS = (
    "harbour",
    "council",
    "report",
    "figure",
    "visit",
    "river",
    "claim",
    "museum",
    "letter",
    "bridge",
    "north",
    "owner",
)


class Rates(msgspec.Struct, frozen=True):
    """What was measured.

    Parameters
    ----------
    receiver, fingerprint : who
    machine : name of this machine and its settings, see `machine_key`
    measured : date and hour, UTC
    read : seconds a token of the tree
    step : seconds a decoding step
    row : seconds a row of a decoding step
    """

    receiver: str
    fingerprint: str
    machine: str
    measured: str
    read: float
    step: float
    row: float

    def seconds(self, tally: Tally) -> float:
        """Return the expected seconds of what a tally leaves to compute."""
        return self.read * tally.tree + self.step * tally.steps + self.row * tally.expected

    def at_most(self, tally: Tally) -> float:
        """Return the seconds if every reply were as long as its cap."""
        longer = tally.bound / tally.expected if tally.expected else 1.0
        return self.read * tally.tree + longer * (self.step * tally.steps + self.row * tally.expected)


def machine_key() -> str:
    """Return the name of this machine as far as speed hangs on it: processor, cores, threads, device."""
    import torch

    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu"
    parts = (platform.node(), platform.machine(), platform.processor(), os.cpu_count(), torch.get_num_threads(), device)
    return digest([str(part) for part in parts])[:16]


def known_rates(fingerprint: str) -> Rates | None:
    """Return the rates that were measured on this machine for a receiver; None where there are none."""
    path = _file()
    rows = msgspec.json.decode(path.read_bytes(), type=list[Rates]) if path.exists() else []
    mine = [row for row in rows if (row.fingerprint, row.machine) == (fingerprint, machine_key())]
    return mine[-1] if mine else None


def keep_rates(rates: Rates) -> None:
    """Keep rates in the cache, in the place of older ones of the same receiver and machine."""
    path = _file()
    rows = msgspec.json.decode(path.read_bytes(), type=list[Rates]) if path.exists() else []
    same = (rates.fingerprint, rates.machine)
    rows = [row for row in rows if (row.fingerprint, row.machine) != same] + [rates]
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(msgspec.to_builtins(rows), indent=1) + "\n", encoding="utf-8")
    os.replace(scratch, path)


def rates_of(opened: Mapping[str, Opened], probe: bool | None, say: Callable[[str], None]) -> dict[str, Rates]:
    """Return the rates of the receivers that a plan opened, by fingerprint; those that cannot be known are left out.

    Parameters
    ----------
    opened : fingerprint -> who
    probe : True measures all anew, None those that were never measured here, False none
    say : gets a line before a measurement
    """
    rates = {}
    for fingerprint, who in opened.items():
        known = None if probe else known_rates(fingerprint)
        if known is None and probe is not False and who.exact and not fingerprint.startswith("scripted:"):
            known = _measured(who, say)
        if known is not None:
            rates[fingerprint] = known
    return rates


def _measured(who: Opened, say: Callable[[str], None]) -> Rates:
    from lib.models.transformers_receiver import TransformersReceiver

    say(f"{who.options['model']}: loading it to measure its speed, some {SECONDS:.0f} s")
    rates = measure(TransformersReceiver(**who.options))
    keep_rates(rates)
    return rates


def measure(receiver: TransformersReceiver, seconds: float = SECONDS) -> Rates:
    """Measure a loaded receiver for about `seconds`, at least one round of three batches; the medians of the rounds count."""
    receiver.warm_up()
    rounds: list[tuple[float, float, float]] = []
    started = time.perf_counter()
    while not rounds or time.perf_counter() - started < seconds * len(rounds) / (len(rounds) + 1):
        rounds.append(_one_round(receiver, len(rounds)))
    read, step, row = np.median(np.asarray(rounds), axis=0)
    now = datetime.now(UTC).isoformat(timespec="minutes")
    return Rates(receiver.name, receiver.fingerprint, machine_key(), now, float(read), float(step), float(row))


def _one_round(receiver: TransformersReceiver, number: int) -> tuple[float, float, float]:
    """Return (seconds a token read, a step, a row of a step) of three batches."""
    long = [_prompt("read", number, place, words=READ_WORDS) for place in range(READ_PROMPTS)]
    took, _ = _timed(receiver, long, 1)
    read = took / _tree(receiver, long)
    times, tokens = [], []
    for width in (NARROW, WIDE):
        prompts = [_prompt(width, number, place, words=8) for place in range(width)]
        took, lengths = _timed(receiver, prompts, NEW_TOKENS)
        times.append(max(0.0, took - read * _tree(receiver, prompts)))
        tokens.append((max(lengths), sum(lengths)))
    step, row = np.linalg.lstsq(np.asarray(tokens, float), np.asarray(times), rcond=None)[0]
    if step < 0 or row < 0:  # noise; the wide batch alone gives what a row costs with its share of the steps
        step, row = 0.0, times[1] / tokens[1][1]
    return read, float(step), float(row)


def _timed(receiver: TransformersReceiver, prompts: list[Prompt], new: int) -> tuple[float, list[int]]:
    started = time.perf_counter()
    replies = receiver.reply(prompts, max_tokens=new)
    return time.perf_counter() - started, [max(1, reply.new_tokens or 1) for reply in replies]


def _tree(receiver: TransformersReceiver, prompts: list[Prompt]) -> int:
    return len(build_tree([receiver.encoder.encode(prompt) for prompt in prompts]))


def _prompt(*parts: object, words: int) -> Prompt:
    """Return a prompt of drawn words that is its own from the first one on, and asks for a long reply."""
    draw = generator("probe", *parts).integers(0, len(_WORDS), size=words)
    text = " ".join(_WORDS[index] for index in draw)
    return Prompt((Turn("user", f"{text}\n\nTell a long story in which all of these words occur."),))


def _file() -> Path:
    return cache_dir() / "probes.json"
