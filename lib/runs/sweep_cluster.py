"""Run a sweep on a cluster: one notebook run a task, so that a worker lost in the middle costs only the run it was at.

Context: by default the cluster is this machine, some processes of dask's LocalCluster. Any other one is reached by the address of
its scheduler; its workers see the same checkout and the same outputs.

How it works: no more runs are handed out than there are free places, so a lost worker takes no waiting run with it and the count
of tries stays honest. A run that failed goes to the end of the line until its tries are used up; one whose worker died starts
again on another. Ctrl-C ends the runs on all workers, with their kernels, before the cluster is left.

Not covered: starting workers on other machines (docs/sweeps.md shows how) and moving files: outputs lie on a shared folder.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import math
import os
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import msgspec

from lib.runs.index import append_index
from lib.runs.layout import Layout
from lib.runs.notebook import Plan, Say, is_finished
from lib.runs.params import ParameterError
from lib.runs.progress import Progress, duration
from lib.runs.sweep import Sweep
from lib.runs.sweep_table import write_table
from lib.runs.sweep_worker import STATES, Order, Outcome, failure, make_run, stop

GPU, MEMORY = "GPU", "memory_gb"  # what a cluster on this machine can divide
STEP, LOOK, SAVE = 0.2, 2.0, 30.0  # seconds between looks at the runs, at the workers, and between tables
ENDING = 20.0  # seconds that runs have to end after Ctrl-C
CONNECT = 15.0  # seconds to reach a scheduler


class Local(msgspec.Struct, frozen=True):
    """A cluster on this machine: so many workers, one run each, and the cards they share."""

    workers: int
    resources: dict[str, float]
    devices: tuple[str, ...] = ()


class _Try(msgspec.Struct):
    """A run on its way: its plan, and how often it failed before."""

    plan: Plan
    failures: int = 0


def local_places(sweep: Sweep, workers: int) -> Local:
    """Return how many of `workers` this machine has room for.

    Raises
    ------
    ParameterError
        When one run takes more than there is, or a resource that only other clusters offer.
    """
    devices: tuple[str, ...] = ()
    for name, amount in sweep.resources.items():
        if name == GPU:
            devices = _devices()
            offered: float = len(devices)
        elif name == MEMORY:
            offered = _memory_gb()
        else:
            raise ParameterError(
                f"resources.{name}: this machine divides {GPU} and {MEMORY} only; "
                "give --scheduler, whose workers were started with it"
            )
        if amount > offered:
            raise ParameterError(f"resources.{name}: a run takes {amount:g}, this machine has {offered:g}")
        workers = min(workers, int(offered / amount))
    return Local(workers, sweep.resources, devices)


def run_sweep(
    layout: Layout,
    sweep: Sweep,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    retries: int | None = None,
    say: Say = print,
    show: Say | None = None,
    every: float = 10.0,
) -> dict[str, Outcome]:
    """Make the runs that are missing or failed, and write their table; return run id -> how its last try ended.

    Parameters
    ----------
    workers : int, optional
        Runs at a time: workers of a cluster on this machine (default 2), or at most so many of another cluster's places.
    scheduler : str, optional
        Address of a cluster's scheduler, such as ``tcp://10.0.0.1:8786``.
    retries : int, optional
        In place of the file's own.
    say, show : callable
        As in `lib.runs.notebook.run_notebooks`.
    every : float
        Seconds between two status lines without `show`.

    Raises
    ------
    ParameterError
        When this machine cannot give what a run takes.
    OSError
        When the scheduler cannot be reached.
    """
    todo = [plan for plan in sweep.plans if not is_finished(layout.outputs, plan)]
    outcomes = {plan.run_id: Outcome("skipped") for plan in sweep.plans if plan not in todo}
    say(f"{sweep.name}: {len(sweep.plans)} runs, {len(outcomes)} finished before")
    tries = sweep.retries if retries is None else retries
    if todo:
        local = None if scheduler else local_places(sweep, min(workers or 2, len(todo)))
        layout.outputs.mkdir(parents=True, exist_ok=True)
        with _client(local, scheduler, tries) as client:
            say(f"{sweep.name}: dashboard {client.dashboard_link}")
            work = _Work(layout, sweep, client, local, workers, tries, outcomes, say, show, every)
            try:
                work.go(todo)
            except KeyboardInterrupt:
                work.end()
                raise
            finally:
                write_table(layout.outputs, sweep, outcomes)
    else:
        write_table(layout.outputs, sweep, outcomes)
    return outcomes


class _Work:
    """The runs on their way through one cluster."""

    def __init__(
        self,
        layout: Layout,
        sweep: Sweep,
        client: Any,
        local: Local | None,
        limit: int | None,
        retries: int,
        outcomes: dict[str, Outcome],
        say: Say,
        show: Say | None,
        every: float,
    ) -> None:
        self.layout, self.sweep, self.client, self.local, self.limit = layout, sweep, client, local, limit
        self.retries, self.outcomes, self.say, self.show, self.every = retries, outcomes, say, show, every
        self.token = uuid.uuid4().hex
        self.active: dict[Any, _Try] = {}
        self.states: dict[str, str] = {}
        self.workers: dict[str, Any] = {}
        self.looked = self.saved = self.told = 0.0
        self.submitted = 0
        self.progress = Progress(len(sweep.plans), sweep.name, "runs", done=len(outcomes), quiet=math.inf)

    def go(self, plans: list[Plan]) -> None:
        """Hand out the runs until each has ended."""
        self.client.subscribe_topic(STATES, self._hear)
        waiting = collections.deque(_Try(plan) for plan in plans)
        while waiting or self.active:
            self._look()
            for future in [future for future in self.active if future.status != "pending"]:
                run = self.active.pop(future)
                self.states.pop(run.plan.run_id, None)
                again = self._ended(run, _outcome_of(future))
                if again is not None:
                    waiting.append(again)
            while waiting and len(self.active) < self._places():
                self._submit(waiting.popleft())
            self._tell(len(waiting))
            time.sleep(STEP)

    def end(self) -> None:
        """End the runs on their way; each keeps what its store holds."""
        self.say(f"{self.sweep.name}: stopping what is under way: {len(self.active)} of {len(self.sweep.plans)} runs")
        with contextlib.suppress(OSError):  # a scheduler that is gone cannot be asked
            self.client.run(stop, self.token, on_error="ignore")
        deadline = time.monotonic() + ENDING
        while time.monotonic() < deadline and any(future.status == "pending" for future in self.active):
            time.sleep(STEP)
        for future, run in self.active.items():
            done = future.status != "pending"
            self.outcomes[run.plan.run_id] = _outcome_of(future) if done else Outcome("interrupted")
            future.cancel()

    def _submit(self, run: _Try) -> None:
        local, resources = self.local, self.sweep.resources
        order = Order(
            run.plan,
            self.layout,
            self.sweep.timeout,
            jobs=local.workers if local else 1,
            sweep=self.token,
            devices=local.devices if local else (),
            gpus=resources.get(GPU, 0.0),
        )
        self.submitted += 1
        future = self.client.submit(
            make_run,
            order,
            key=f"{run.plan.run_id}-{self.token[:8]}-{self.submitted}",
            resources=resources or None,
            priority=-self.submitted,
            pure=False,
        )
        self.active[future] = run

    def _ended(self, run: _Try, outcome: Outcome) -> _Try | None:
        """Take note of how a try ended; return the run when it is to be tried again."""
        identity = run.plan.run_id
        label = self.sweep.labels[identity]
        if outcome.status == "failed" and not outcome.final and run.failures < self.retries:
            run.failures += 1
            self.say(f"{label}: failed, {_told(outcome)}; try {run.failures + 1} of {self.retries + 1} follows")
            return run
        self.outcomes[identity] = outcome
        self.progress.advance()
        if outcome.status == "failed":
            tries = f" {run.failures + 1} times" if run.failures else ""
            self.say(f"{label}: failed{tries}, {_told(outcome)}; {identity}-failed")
            if outcome.error is not None and outcome.error["cell"] is None:
                self._to_index(run.plan, outcome)
        else:
            self.say(f"{label}: {outcome.status} after {duration(outcome.seconds)}, {identity}")
        if time.monotonic() - self.saved >= SAVE:
            self.saved = time.monotonic()
            write_table(self.layout.outputs, self.sweep, self.outcomes)
        return None

    def _to_index(self, plan: Plan, outcome: Outcome) -> None:
        """Write the line of a run that could not write its own: it lost its worker, or never began."""
        folder = self.layout.outputs / f"{plan.run_id}-failed"
        entry: dict[str, Any] = {
            "run_id": plan.run_id,
            "notebook": plan.notebook.stem,
            "profile": plan.profile,
            "status": "failed",
        }
        entry |= {"seconds": outcome.seconds, "parameters": plan.parameters, "headline": {}, "error": _told(outcome)}
        append_index(self.layout.outputs, {**entry, "folder": folder.name})

    def _places(self) -> int:
        """Return how many runs may be on their way: one at least, so that a cluster that grows on demand starts to."""
        free = sum(_room(worker, self.sweep.resources) for worker in self.workers.values())
        return max(1, free if self.limit is None else min(free, self.limit))

    def _look(self) -> None:
        """See which workers there are, and tell of those that are gone."""
        if time.monotonic() - self.looked < LOOK:
            return
        self.looked = time.monotonic()
        # client.scheduler_info() shares its answer with a timer that asks for totals only: now and then it has no workers
        workers = self.client.sync(self.client.scheduler.identity, n_workers=-1)["workers"]
        for address in self.workers.keys() - workers.keys():
            self.say(f"{self.sweep.name}: worker {address} is lost; the run it was at starts again")
        if (
            self.sweep.resources
            and self.active
            and not any(_room(one, self.sweep.resources) for one in workers.values())
        ):
            needs = ", ".join(f"{name}={amount:g}" for name, amount in self.sweep.resources.items())
            self.states["workers"] = f"waiting for a worker that offers {needs}"
        else:
            self.states.pop("workers", None)
        self.workers = workers

    def _hear(self, event: tuple[float, Any]) -> None:
        _, message = event
        if isinstance(message, dict) and message.get("sweep") == self.token:
            label, (_, _, place) = self.sweep.labels[message["run"]], message["state"].partition(": ")
            self.states[message["run"]] = f"{label}: {place}"

    def _tell(self, waiting: int) -> None:
        """Show where the sweep stands, as one line."""
        if self.show is None and time.monotonic() - self.told < self.every:
            return
        self.told = time.monotonic()
        failed = sum(outcome.status == "failed" for outcome in self.outcomes.values())
        line = f"{self.progress.line()}; {len(self.active)} under way, {waiting} waiting, {failed} failed, "
        line += f"{len(self.workers)} workers"
        longest = next(iter(list(self.states.values())), "")
        (self.show or self.say)(f"{line}; {longest}" if longest else line)


def _outcome_of(future: Any) -> Outcome:
    """Return how a task ended, also where its worker could not say so."""
    from distributed import KilledWorker

    if future.status == "finished":
        return future.result()
    if future.status != "error":
        return Outcome("failed", error=failure("Lost", f"the cluster gave the run up ({future.status})"))
    error = future.exception()
    if isinstance(error, KilledWorker):
        told = f"{error.allowed_failures + 1} workers died at this run; the last was {error.last_worker.address}"
        return Outcome("failed", error=failure("WorkerLost", told), final=True)
    return Outcome("failed", error=failure(type(error).__name__, str(error)))


def _told(outcome: Outcome) -> str:
    error = outcome.error or failure("Unknown", "no reason was given")
    cell = f"cell {error['cell']}: " if error["cell"] is not None else ""
    return " ".join(f"{cell}{error['name']}: {error['value'][:300]}".split())


def _room(worker: Any, resources: dict[str, float]) -> int:
    """Return how many runs a worker takes at once: one a thread, and no more than its resources allow."""
    offered = worker["resources"]
    return min([int(worker["nthreads"]), *(int(offered.get(name, 0) / amount) for name, amount in resources.items())])


@contextlib.contextmanager
def _client(local: Local | None, scheduler: str | None, retries: int) -> Iterator[Any]:
    """Open the cluster, and close it again if it is ours."""
    import dask
    from distributed import Client, LocalCluster

    with contextlib.ExitStack() as stack:
        if local is None:
            try:
                client = stack.enter_context(Client(scheduler, timeout=CONNECT, set_as_default=False))
            except (OSError, ValueError) as error:
                raise OSError(f"--scheduler {scheduler}: not reached ({error})") from error
            yield client
            return
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # a lost worker is told in one line of our own
        stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": retries}))
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True))
        threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // local.workers))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a dashboard port in use is answered by another one
            cluster = LocalCluster(
                n_workers=local.workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=None,  # the kernels are not the worker's memory
                resources=local.resources or None,
                env={"OMP_NUM_THREADS": threads},  # else a worker has its kernels compute on one core each
                preload=["lib.runs.sweep_worker"],
                dashboard_address="127.0.0.1:8787",
                silence_logs=logging.CRITICAL,
                local_directory=scratch,
            )
        yield stack.enter_context(Client(stack.enter_context(cluster), set_as_default=False))


def _devices() -> tuple[str, ...]:
    """Return the graphics cards that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(name.strip() for name in named.split(",") if name.strip())
    nvml = import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        return tuple(str(number) for number in range(nvml.nvmlDeviceGetCount()))
    finally:
        nvml.nvmlShutdown()


def _memory_gb() -> float:
    """Return this machine's memory in units of 10^9 bytes."""
    import psutil

    return psutil.virtual_memory().total / 1e9
