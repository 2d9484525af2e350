"""Run notebooks with stand-ins for receivers and store, to count what they would ask: the child of `python -m lib plan`.

The code cells are executed in order in this process, one notebook after the other, so that libraries are loaded once. What a notebook
writes goes to a folder of the plan, which the parent removes; the true store is read, nothing else of the outputs is touched.

The jobs are a JSON list, the outcomes JSON lines, one as soon as each rehearsal has ended. A child that a notebook takes down
loses that notebook alone: the parent starts another one behind it.

Not covered: which notebooks, with how many tasks (`lib.runs.plan`); IPython's own syntax in cells.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec

from lib.runs import context
from lib.runs.planned import RehearsedRun
from lib.runs.progress import PROGRESS_FILE
from lib.runs.tally import Ledger, Tally


class Rehearsal(msgspec.Struct, frozen=True):
    """One notebook to rehearse.

    Parameters
    ----------
    notebook : path
    profile : name, for the run
    parameters : as the parameters cell gets them
    folder : a folder of the plan for the run's files
    store : the plan's store; rehearsals that share it find each other's answers
    true_store : the store of the runs
    """

    notebook: str
    profile: str
    parameters: dict[str, Any]
    folder: str
    store: str
    true_store: str


class Opened(msgspec.Struct, frozen=True):
    """Who a stand-in stood for: its fingerprint, how it was opened, and whether its tokens are its own."""

    fingerprint: str
    options: dict[str, Any]
    exact: bool


class Outcome(msgspec.Struct, frozen=True):
    """What a rehearsal counted.

    Parameters
    ----------
    tallies, opened : by receiver
    seconds : of the whole rehearsal
    store_bytes : growth of the stores
    error : what ended it early
    """

    tallies: dict[str, Tally]
    opened: dict[str, Opened]
    seconds: float
    store_bytes: int
    error: str | None = None


def rehearse(job: Rehearsal) -> Outcome:
    """Execute the cells of a notebook with stand-ins; an exception of a cell ends the rehearsal and is told."""
    ledger, runs = Ledger(), list[RehearsedRun]()

    def make(*arguments: Any, **options: Any) -> RehearsedRun:
        runs.append(RehearsedRun(*arguments, **options, ledger=ledger, true_store=Path(job.true_store)))
        return runs[-1]

    before = _size(Path(job.store))
    started, error = time.perf_counter(), None
    with _surroundings(job), _replaced(make):
        try:
            _execute(job)
        except CellError as problem:
            error = str(problem)
        seconds = time.perf_counter() - started
        for run in runs:
            run.finish()
    opened = {
        receiver.name: Opened(receiver.fingerprint, receiver.options, receiver.reader.exact)
        for run in runs
        for receiver in run.opened.values()
    }
    return Outcome(ledger.tallies, opened, seconds, _size(Path(job.store)) - before, error)


class CellError(RuntimeError):
    """A cell raised; the text names cell and reason."""


def _execute(job: Rehearsal) -> None:
    book = msgspec.json.decode(Path(job.notebook).read_bytes())
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(book["cells"], start=1):
        if cell["cell_type"] != "code":
            continue
        source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        try:
            exec(compile(source, f"{Path(job.notebook).name}, cell {number}", "exec"), names)
        except Exception as problem:
            where = traceback.extract_tb(problem.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            raise CellError(f"cell {number}: {type(problem).__name__}: {str(problem)[:300]} ({place})") from problem
        if "parameters" in cell["metadata"].get("tags", []):
            names.update(copy.deepcopy(job.parameters))
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@contextlib.contextmanager
def _surroundings(job: Rehearsal) -> Any:
    """Give the notebook the environment of a run, in silence, and take it back."""
    Path(job.folder).mkdir(parents=True, exist_ok=True)
    kept, there = dict(os.environ), Path.cwd()
    os.environ |= {
        context.FOLDER: job.folder,
        context.PROFILE: job.profile,
        context.STORE: job.store,
        PROGRESS_FILE: str(Path(job.folder) / "progress.txt"),
        "MPLBACKEND": "Agg",
    }
    os.environ.pop(context.NO_CACHE, None)
    os.chdir(Path(job.notebook).parent)
    try:
        with (
            open(os.devnull, "w", encoding="utf-8") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            yield
    finally:
        os.chdir(there)
        os.environ.clear()
        os.environ.update(kept)


@contextlib.contextmanager
def _replaced(make: Any) -> Any:
    before, context.make_run = context.make_run, make
    try:
        yield
    finally:
        context.make_run = before


def _size(store: Path) -> int:
    """Return the bytes of a store and of the noise control's beside it."""
    files = (store, store.with_name(context.CONTROL))
    return sum(file.stat().st_size for file in files if file.exists())


def main(jobs_path: str, outcomes_path: str) -> int:
    """Rehearse every job of a file and write the outcomes as JSON lines."""
    jobs = msgspec.json.decode(Path(jobs_path).read_bytes(), type=list[Rehearsal])
    with Path(outcomes_path).open("ab") as out:
        for job in jobs:
            out.write(msgspec.json.encode(rehearse(job)) + b"\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
