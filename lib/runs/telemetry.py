"""What the machine did meanwhile: processor, memory and graphics card, sampled beside the work.

    with Telemetry() as telemetry:
        replies = receiver.reply(prompts)
    telemetry.frame()      # one row a sample
    telemetry.summary()    # mean, median, 95th percentile and peak of each measure

    with peak_memory("cpu") as peak:
        work()
    peak.increase_bytes

Context
-------
Bytes saved on the wire are no seconds saved on the device. The BANDMAS paper samples GPU telemetry every 100 ms beside
its runs (section V-A) and finds the memory deltas of a warm server uninformative (section V-F); so do not expect packet
counts to show in these numbers.

Intuition
---------
A thread of its own looks at the clock, at this process with its children, and, where NVIDIA's management library finds
devices that CUDA may use, at those. It is a thermometer: whatever goes wrong in it becomes a null with a reason and never an
error of the run.

How to read the result
----------------------
`cpu_percent` is 100 for one busy core, so several cores give more; the first sample has none, because a share needs an
interval. `rss_bytes` sums the resident memory of the process and its children, pages that they share counted for each.
`gpu_percent` is the mean over the visible devices and `gpu_memory_bytes` their sum, both of the whole device, other
programs included. A measure without samples has its reason in the summary, e.g. that there is no driver. Work that
holds Python's global lock delays samples; `seconds` tells when each was taken.

A peak between two samples is not seen: for memory use `peak_memory`, which asks the kernel's or the allocator's own mark.

Not covered: energy, temperatures, cards of other makers, children that live for less than a second, and unlike cards
without `CUDA_DEVICE_ORDER=PCI_BUS_ID`, which CUDA and the management library may number differently.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd
import psutil

UNITS = {
    "cpu_percent": "% of one core",
    "rss_bytes": "bytes",
    "gpu_percent": "% of a device",
    "gpu_memory_bytes": "bytes",
}
GPU = ("gpu_percent", "gpu_memory_bytes")
LONGEST_WAIT = 5.0  # seconds that the end of a block waits for a driver that does not answer
CPU_INTERVAL = 0.05  # seconds; the kernel counts processor time in ticks of 10 ms, so a shorter share is only noise
CHILDREN_EVERY = 1.0  # seconds; listing all processes of a machine costs milliseconds
BETWEEN = 0.002  # seconds between two looks at the resident memory, where the kernel keeps no mark
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_HIGH_WATER = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


class Telemetry:
    """Samples the machine in a thread of its own while its block runs; see the module header.

    Parameters
    ----------
    every : seconds between two samples
    nvml : the management library's module; default `pynvml`, imported when the block starts

    Attributes
    ----------
    reasons : measure -> why a sample of it is missing, the first time that it was

    Raises
    ------
    ValueError
        If `every` is not above 0.
    RuntimeError
        If a block is entered while another one of the same object runs. Nothing else is raised.
    """

    def __init__(self, every: float = 0.1, *, nvml: Any = None) -> None:
        if not every > 0:
            raise ValueError(f"every must be above 0 seconds, not {every!r}")
        self.every = every
        self.reasons: dict[str, str] = {}
        self._nvml = nvml
        self._samples: list[dict[str, float | None]] = []
        self._reading = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Telemetry:
        if self._thread is not None:
            raise RuntimeError("this Telemetry is sampling already: make one for each block")
        self.reasons, self._samples, self._stop = {}, [], threading.Event()
        reasons = self.reasons
        nvml = self._nvml or self._attempt(reasons, GPU, lambda: import_module("pynvml"))
        sampled = (nvml, self._samples, reasons, self._stop)
        self._thread = threading.Thread(target=self._run, args=sampled, name="telemetry", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the machine has no thread left
            self._thread = None
            _blame(reasons, UNITS, error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stop.set()
        thread.join(LONGEST_WAIT)
        if thread.is_alive():
            # What the thread may still see comes too late to count, for this block and for the next one.
            self._samples, self.reasons = list(self._samples), dict(self.reasons)
            self.reasons[self._reading] = f"no answer within {LONGEST_WAIT:g} s; the rest was not sampled"

    def frame(self) -> pd.DataFrame:
        """Return the samples so far: ``seconds`` since the start and the measures of `UNITS`; missing is null."""
        columns = ["seconds", *UNITS]
        frame = pd.DataFrame([dict(sample) for sample in self._samples], columns=columns).astype("float64")
        return frame.astype({"rss_bytes": "Int64", "gpu_memory_bytes": "Int64"})

    def summary(self) -> pd.DataFrame:
        """Return one row a measure: ``measure``, ``unit``, ``samples``, ``mean``, ``p50``, ``p95``, ``peak``, ``reason``.

        Percentiles interpolate linearly. Without samples the numbers are null and the reason says why.
        """
        frame = self.frame()
        rows = []
        for measure, unit in UNITS.items():
            values = frame[measure].dropna().astype("float64")
            rows.append(
                {
                    "measure": measure,
                    "unit": unit,
                    "samples": len(values),
                    "mean": values.mean(),
                    "p50": values.quantile(0.5),
                    "p95": values.quantile(0.95),
                    "peak": values.max(),
                    "reason": self.reasons.get(measure),
                }
            )
        return pd.DataFrame(rows)

    def _run(
        self, nvml: Any, samples: list[dict[str, float | None]], reasons: dict[str, str], stop: threading.Event
    ) -> None:
        started = time.perf_counter()
        tree = self._attempt(reasons, ("cpu_percent", "rss_bytes"), _Tree)
        devices = None if nvml is None else self._attempt(reasons, GPU, lambda: _Devices(nvml))
        reads: dict[str, Callable[[], float | None]] = {}
        if tree is not None:
            reads |= {"cpu_percent": tree.cpu_percent, "rss_bytes": tree.rss_bytes}
        if devices is not None:
            reads |= {"gpu_percent": devices.percent, "gpu_memory_bytes": devices.memory_bytes}
        due, last = started, False
        while True:
            now = time.perf_counter()
            sample: dict[str, float | None] = {"seconds": now - started}
            samples.append(sample | {name: self._attempt(reasons, (name,), read) for name, read in reads.items()})
            if last:
                break
            due = max(due + self.every, time.perf_counter())  # a late sample delays the next ones, none pile up
            stop.wait(min(due - time.perf_counter(), threading.TIMEOUT_MAX))  # every=inf samples first and last
            last = stop.is_set()  # the last sample is taken after the work ended
        if devices is not None:
            self._attempt(reasons, GPU, devices.close)

    def _attempt(self, reasons: dict[str, str], measures: tuple[str, ...], read: Callable[[], Any]) -> Any:
        if reasons is self.reasons:  # else the thread was left behind
            self._reading = measures[0]
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - drivers raise what they like, and a run must not end by its thermometer
            _blame(reasons, measures, error)
            return None


def _blame(reasons: dict[str, str], measures: Iterable[str], error: Exception) -> None:
    for measure in measures:
        reasons.setdefault(measure, f"{type(error).__name__}: {error}")


class _Tree:
    """This process and its children."""

    def __init__(self) -> None:
        self._root = psutil.Process()
        self._members = {self._root.pid: self._root}
        self._looked = self._shared = time.perf_counter()
        self._root.cpu_percent()  # starts the first interval
        self._find_children()

    def cpu_percent(self) -> float | None:
        """Return the processor share since the last call that returned one; None where the interval is too short."""
        now = time.perf_counter()
        if now - self._looked >= CHILDREN_EVERY:
            self._looked = now
            self._find_children()
        if now - self._shared < CPU_INTERVAL:
            return None
        self._shared = now
        return sum(self._of_each(lambda process: float(process.cpu_percent())))

    def rss_bytes(self) -> float:
        return sum(self._of_each(lambda process: float(process.memory_info().rss)))

    def _find_children(self) -> None:
        for child in self._root.children(recursive=True):
            # A known process keeps its object, which remembers the processor time it had at the last look.
            if self._members.get(child.pid) != child:
                self._members[child.pid] = child
                self._of(child, lambda process: float(process.cpu_percent()))

    def _of_each(self, read: Callable[[psutil.Process], float]) -> list[float]:
        values = (self._of(process, read) for process in list(self._members.values()))
        return [value for value in values if value is not None]

    def _of(self, process: psutil.Process, read: Callable[[psutil.Process], float]) -> float | None:
        try:
            return read(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            if process is self._root:
                raise
            self._members.pop(process.pid, None)  # a child that ended or became another user's
            return None


class _Devices:
    """The NVIDIA devices that CUDA may use."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        try:
            self._handles = self._visible()
            if not self._handles:
                raise LookupError("no CUDA device is visible")
        except BaseException:
            nvml.nvmlShutdown()
            raise

    def percent(self) -> float:
        return sum(float(self._nvml.nvmlDeviceGetUtilizationRates(one).gpu) for one in self._handles) / len(
            self._handles
        )

    def memory_bytes(self) -> float:
        return float(sum(self._nvml.nvmlDeviceGetMemoryInfo(one).used for one in self._handles))

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def _visible(self) -> list[Any]:
        count = self._nvml.nvmlDeviceGetCount()
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        if named is None:
            return [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        handles = []
        for name in (part.strip() for part in named.split(",")):
            if name.startswith(("GPU-", "MIG-")):
                handles.append(self._nvml.nvmlDeviceGetHandleByUUID(name))
            elif name.isdecimal() and int(name) < count:
                handles.append(self._nvml.nvmlDeviceGetHandleByIndex(int(name)))
            else:
                break  # as CUDA does: what stands behind the first name without a device is not looked at
        return handles


# ---------------------------------------------------------------------------------------------------------- peak memory


@dataclass
class PeakMemory:
    """The most memory that a block of work held.

    Parameters
    ----------
    start_bytes, peak_bytes : memory at the start of the block, and its peak within; None where it could not be read
    method : how it was measured
    reason : why a number is missing
    """

    start_bytes: int | None = None
    peak_bytes: int | None = None
    method: str = ""
    reason: str | None = None

    @property
    def increase_bytes(self) -> int | None:
        """Peak minus start, never below 0; None where either is missing."""
        if self.start_bytes is None or self.peak_bytes is None:
            return None
        return max(0, self.peak_bytes - self.start_bytes)


@contextmanager
def peak_memory(device: str = "cpu") -> Iterator[PeakMemory]:
    """Measure the peak memory of a block of work; its numbers are there when the block has ended.

    Parameters
    ----------
    device : ``cpu``: resident memory of this process, children not included, by the kernel's own mark where it can be reset
        (Linux), else sampled every 2 ms, which may miss a short peak. ``cuda`` or ``cuda:1``: bytes of tensors by the
        allocator's own mark, `torch.cuda.max_memory_allocated`; the peak includes what was there at the start

    Notes
    -----
    Both marks are reset at the start, so blocks must not be nested. Memory that was freed before the block would be used
    again without an increase, so on a processor it is given back to the system first (glibc; elsewhere measure a first
    block as warm-up, or each way in a process of its own). Nothing is raised by the measurement.
    """
    peak = PeakMemory()
    if str(device).startswith("cuda"):
        meter = _allocator_mark(str(device), peak)
    else:
        _give_back()
        meter = _kernel_mark(peak) if _reset_high_water() else _looks(peak)
    with meter:
        yield peak


@contextmanager
def _allocator_mark(device: str, peak: PeakMemory) -> Iterator[None]:
    peak.method = "torch.cuda.max_memory_allocated"

    def start() -> None:
        cuda = import_module("torch").cuda
        if not cuda.is_available():
            raise RuntimeError("torch finds no CUDA device")
        cuda.reset_peak_memory_stats(device)
        peak.start_bytes = int(cuda.memory_allocated(device))

    def end() -> None:
        peak.peak_bytes = int(import_module("torch").cuda.max_memory_allocated(device))

    _or_reason(peak, start)
    try:
        yield
    finally:
        if peak.reason is None:
            _or_reason(peak, end)


@contextmanager
def _kernel_mark(peak: PeakMemory) -> Iterator[None]:
    peak.method = "high-water mark of the kernel"

    def end() -> None:
        peak.peak_bytes = _high_water()

    peak.start_bytes = _high_water()  # just reset: it is what is resident now
    try:
        yield
    finally:
        _or_reason(peak, end)


@contextmanager
def _looks(peak: PeakMemory) -> Iterator[None]:
    peak.method = f"sampled every {1000 * BETWEEN:g} ms"
    stop = threading.Event()

    def look() -> None:
        peak.peak_bytes = max(peak.peak_bytes or 0, psutil.Process().memory_info().rss)

    def watch() -> None:
        while not stop.wait(BETWEEN):
            _or_reason(peak, look)

    _or_reason(peak, look)
    peak.start_bytes = peak.peak_bytes
    thread = threading.Thread(target=watch, daemon=True)
    _or_reason(peak, thread.start)
    try:
        yield
    finally:
        stop.set()
        if thread.is_alive():
            thread.join(LONGEST_WAIT)
        _or_reason(peak, look)


def _or_reason(peak: PeakMemory, act: Callable[[], None]) -> None:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - a measurement must not end the work that it measures
        peak.reason = f"{type(error).__name__}: {error}"


def _give_back() -> None:
    """Return freed memory to the system, where the C library can be asked to."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        pass  # another C library: see the notes of `peak_memory`


def _reset_high_water() -> bool:
    """Set the kernel's mark of this process's resident memory to what is resident now; False where it keeps none."""
    try:
        _CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return False
    return _high_water() is not None


def _high_water() -> int | None:
    """Return the kernel's mark of the most resident memory since its last reset, bytes; None where it keeps none."""
    try:
        found = _HIGH_WATER.search(_STATUS.read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None
    return None if found is None else 1024 * int(found[1])
