"""Make one run of a sweep on whatever machine the scheduler chose: the function that a worker of the cluster calls.

The run is made as `python -m lib run` makes it, in a process and a folder of its own under the sweep's outputs, and by content
that is the same as where the sweep was planned: a worker with other files says so instead of making a run under a false name.
When the worker dies, the run's process sees its input close and ends with its kernel.

Not covered: choosing workers and trying again (`lib.runs.sweep_cluster`).
"""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from typing import Any

import msgspec

from lib.runs.layout import Layout, content_hashes
from lib.runs.notebook import Plan, run_notebooks

STATES = "lab-sweep"  # topic of the cluster under which runs say how far they are
EVERY = 2.0  # seconds between two such messages of a run
_stopped: set[str] = set()  # sweeps that were stopped by hand; a cluster may serve several


class Order(msgspec.Struct, frozen=True):
    """What a worker is asked to do.

    Attributes
    ----------
    plan, layout, timeout
        As in `lib.runs.notebook.run_notebooks`.
    jobs : int
        Runs at a time on this machine, for the share of cores that each may take.
    sweep : str
        Names this start of the sweep.
    devices : tuple of str
        Graphics cards of this machine to divide among its workers; empty: the worker's own choice stands.
    gpus : float
        Cards a run takes of them.
    """

    plan: Plan
    layout: Layout
    timeout: int
    jobs: int
    sweep: str
    devices: tuple[str, ...] = ()
    gpus: float = 0.0


class Outcome(msgspec.Struct, frozen=True):
    """How one try of a run ended: as in `RunResult`, and whether another try could end otherwise."""

    status: str
    seconds: float = 0.0
    error: dict[str, Any] | None = None
    host: str = ""
    final: bool = False


def make_run(order: Order) -> Outcome:
    """Make the run on this worker and return how it ended."""
    from distributed import get_worker

    worker, host = get_worker(), socket.gethostname()
    here = content_hashes(order.plan.notebook, order.layout)
    other = [name for name in ("notebook", "library", "data") if here[name] != order.plan.hashes[name]]
    if other:
        value = f"on {host}, {' and '.join(other)} differ from what the sweep was planned with; start the sweep again"
        return Outcome("failed", error=failure("OtherContent", value), host=host, final=True)
    if order.devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(own_devices(order.devices, order.gpus, int(worker.name)))
    told = 0.0

    def show(line: str) -> None:
        nonlocal told
        if order.sweep in _stopped:
            raise KeyboardInterrupt  # ends the run as Ctrl-C ends it in the runner itself
        if time.monotonic() - told >= EVERY:
            told = time.monotonic()
            worker.log_event(STATES, {"sweep": order.sweep, "run": order.plan.run_id, "state": line})

    try:
        (result,) = run_notebooks(
            order.layout, [order.plan], timeout=order.timeout, jobs=order.jobs, say=lambda _: None, show=show
        )
    except KeyboardInterrupt:
        return Outcome("interrupted", host=host, final=True)
    return Outcome(result.status, result.seconds, result.error, host)


def own_devices(devices: tuple[str, ...], gpus: float, place: int) -> tuple[str, ...]:
    """Return the cards of a machine's worker number `place` when each worker takes `gpus` of them.

    >>> own_devices(("0", "1", "2", "3"), 2, 1)
    ('2', '3')
    >>> own_devices(("0", "1"), 0.5, 1)
    ('0',)
    """
    return devices[math.floor(place * gpus) : math.ceil((place + 1) * gpus)]


def failure(name: str, value: str) -> dict[str, Any]:
    """Return an error that no cell raised, in the form of a run's errors."""
    return {"cell": None, "name": name, "value": value, "source": "", "traceback": []}


def stop(sweep: str) -> None:
    """Have the runs of this sweep end on this worker; called on every worker."""
    _stopped.add(sweep)


def dask_setup(worker: Any) -> None:
    """Leave Ctrl-C to the process that started the workers: a terminal sends it to all of them at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
