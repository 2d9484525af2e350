"""Say what runs would ask and cost, before any of them runs.

Context
-------
A study can take a processor days. Whoever starts it wants to know beforehand how many questions it asks, how many tokens these are,
what is stored already, and when it will be done.

Intuition
---------
Every notebook is rehearsed in a child process (`lib.runs.rehearse`): its own code asks its own questions, a stand-in counts them. In
the order of the runs, on one store of the plan, so that what two notebooks share is counted once, as it is computed once. Where
thousands of tasks are wanted, two rehearsals with a few tasks give the straight line to all of them.

How to read the result
----------------------
`Foreseen.tallies` are counts a receiver; `remarks` say what was left out, scaled or guessed. A finished run costs nothing: it is
kept. Nothing here is recorded: no run, no reply, no line of the index.

Not covered: seconds a token (`lib.runs.probe`), printing (`lib.runs.plan_page`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from lib.runs import context
from lib.runs.inputs import Inputs, inputs_of
from lib.runs.layout import LIBRARY, Layout
from lib.runs.notebook import TOKEN, Plan, end_processes, is_finished
from lib.runs.rehearse import Opened, Outcome, Rehearsal
from lib.runs.tally import Tally

LIMIT_SECONDS = 600.0  # of one rehearsal
_ASKS = ".receiver("  # how a notebook opens who answers
Say = Callable[[str], None]


class Foreseen(msgspec.Struct, frozen=True):
    """What one run would ask.

    Parameters
    ----------
    plan : the run
    state : "finished" (kept, nothing to do), "refused" (its inputs are not here), "silent" (it asks no receiver), "failed" (the
        rehearsal broke off; counts up to there) or "rehearsed"
    tallies : by receiver, for all its tasks
    opened : who the receivers are, by name
    seconds : of everything but the receivers
    store_bytes : growth of the store
    remarks : what to know about these numbers
    """

    plan: Plan
    state: str
    tallies: dict[str, Tally] = {}
    opened: dict[str, Opened] = {}
    seconds: float = 0.0
    store_bytes: float = 0.0
    remarks: tuple[str, ...] = ()


def foresee(layout: Layout, plans: Sequence[Plan], *, say: Say = print) -> list[Foreseen]:
    """Rehearse the runs that are not finished, and return what each would ask, in the order of `plans`."""
    looked: dict[int, Inputs] = {}
    found: dict[int, Foreseen] = {}
    for place, plan in enumerate(plans):
        if is_finished(layout.outputs, plan):
            found[place] = Foreseen(plan, "finished", remarks=(f"finished, kept in {plan.run_id}",))
        elif _ASKS not in plan.notebook.read_text(encoding="utf-8"):
            found[place] = Foreseen(plan, "silent", remarks=("asks no receiver; its own time is not foreseen",))
        else:
            inputs = looked[place] = inputs_of(plan.parameters)
            if inputs.parameters is None:
                found[place] = Foreseen(plan, "refused", remarks=tuple(_absent(inputs)))
    left = [place for place in range(len(plans)) if place not in found]
    sampled = any(looked[place].sizes() for place in left)
    true = Path(os.environ.get(context.STORE) or layout.outputs / "store.sqlite")
    with tempfile.TemporaryDirectory(prefix="lab-plan-", ignore_cleanup_errors=True) as folder:
        jobs: list[tuple[int, Rehearsal]] = []
        for place in left:
            inputs, plan = looked[place], plans[place]
            # Both passes go through all notebooks, so that each finds in its store what earlier ones of its size have asked.
            for which, tasks in enumerate(inputs.sizes() or (None, None)):
                if which == 0 and not sampled:
                    continue
                own = Path(folder) / f"pass{which}"
                job = Rehearsal(
                    str(plan.notebook),
                    plan.profile,
                    inputs.rehearsed(tasks),
                    str(own / f"run{place}"),
                    str(own / "store.sqlite"),
                    str(true),
                )
                jobs.append((place, job))
        outcomes: dict[int, list[Outcome]] = {}
        rehearsed = _rehearsed([job for _, job in jobs], Path(folder), layout)
        for number, ((place, _), outcome) in enumerate(zip(jobs, rehearsed, strict=True), start=1):
            outcomes.setdefault(place, []).append(outcome)
            say(f"{plans[place].notebook.stem}: rehearsal {number} of {len(jobs)}, {outcome.seconds:.0f} s")
    for place in left:
        found[place] = _extended(plans[place], looked[place], outcomes[place])
    return [found[place] for place in range(len(plans))]


def _extended(plan: Plan, inputs: Inputs, outcomes: Sequence[Outcome]) -> Foreseen:
    """Return what all tasks would ask, from one rehearsal or two."""
    small, large = outcomes[0], outcomes[-1]
    remarks = _absent(inputs)
    tallies, seconds, size = dict(large.tallies), large.seconds, float(large.store_bytes)
    if large.error or small.error:
        remarks.append(f"the rehearsal broke off, counts are of what came before: {large.error or small.error}")
    sizes = inputs.sizes()
    if sizes:
        place = (inputs.wanted - sizes[0]) / (sizes[1] - sizes[0])
        tallies = {name: tally.beyond(small.tallies.get(name, Tally()), place) for name, tally in tallies.items()}
        seconds = max(seconds, small.seconds + place * (seconds - small.seconds))
        size = small.store_bytes + place * (size - small.store_bytes)
        remarks.append(
            f"sampled: {inputs.counter} {sizes[0]} and {sizes[1]} rehearsed, extended by a straight line to {inputs.wanted:.0f}"
        )
    if inputs.share < 1:
        tallies = {name: tally.times(1 / inputs.share) for name, tally in tallies.items()}
        seconds, size = seconds / inputs.share, size / inputs.share
        remarks.append(f"what is missing is counted as if it cost what the rest does (times {1 / inputs.share:.2g})")
    state = "failed" if large.error or small.error else "rehearsed"
    return Foreseen(plan, state, tallies, large.opened, seconds, size, tuple(remarks))


def _absent(inputs: Inputs) -> list[str]:
    return [f"{name} is not here: {remedy}" for name, remedy in inputs.missing.items()]


def _rehearsed(jobs: Sequence[Rehearsal], folder: Path, layout: Layout) -> Iterator[Outcome]:
    """Yield the outcome of every job; a child that dies or takes too long loses the job it was at."""
    done = 0
    while done < len(jobs):
        with _Child(jobs[done:], folder, layout) as child:
            for outcome in child.outcomes():
                done += 1
                yield outcome


class _Child:
    """A process that rehearses jobs in order."""

    def __init__(self, jobs: Sequence[Rehearsal], folder: Path, layout: Layout) -> None:
        self.count, self.token = len(jobs), uuid.uuid4().hex
        self.results, self.log = folder / f"{self.token}.jsonl", folder / f"{self.token}.log"
        self.results.touch()
        listed = folder / f"{self.token}.json"
        listed.write_bytes(msgspec.json.encode(list(jobs)))
        environment = dict(os.environ) | {
            TOKEN: self.token,
            context.OUTPUTS: str(folder / "outputs"),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(LIBRARY.parent), os.environ.get("PYTHONPATH")])),
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lib.runs.rehearse", str(listed), str(self.results)],
                cwd=LIBRARY.parent,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *error: object) -> None:
        end_processes(self.token, self.process)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield outcomes as they come; the last one says so when the child died or took too long."""
        seen, since = 0, time.monotonic()
        while seen < self.count:
            ended = self.process.poll() is not None  # asked before reading: what it wrote last is seen
            lines = self.results.read_bytes().split(b"\n")[:-1]
            for line in lines[seen:]:
                seen, since = seen + 1, time.monotonic()
                yield msgspec.json.decode(line, type=Outcome)
            if seen == self.count:
                return
            slow = time.monotonic() - since > LIMIT_SECONDS
            if ended or slow:
                tail = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
                why = f"no end within {LIMIT_SECONDS:.0f} s" if slow else f"its process ended: {' '.join(tail)}"
                yield Outcome({}, {}, time.monotonic() - since, 0, why)
                return
            time.sleep(0.1)
