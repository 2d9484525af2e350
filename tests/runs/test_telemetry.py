"""Telemetry: a thermometer that tells what it reads, says why it reads nothing, and never ends a run."""

from __future__ import annotations

import mmap
import platform
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lib.runs import telemetry as module
from lib.runs.telemetry import UNITS, PeakMemory, Telemetry, peak_memory

GIB = 2**30


class BrokenDriver(Exception):
    """What a driver may raise."""


class FakeNvml:
    """The management library with `loads`: one list of utilisations a device; memory grows by a GiB a sample."""

    def __init__(self, *loads: list[int]) -> None:
        self.loads = loads
        self.opened = self.closed = 0
        self.asked = [0] * len(loads)
        self.uuids = {f"GPU-{index}": index for index in range(len(loads))}

    def nvmlInit(self) -> None:
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.loads)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return self.uuids[uuid]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        load = self.loads[handle]
        self.asked[handle] += 1
        return SimpleNamespace(gpu=load[min(self.asked[handle], len(load)) - 1])

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(used=self.asked[handle] * GIB)


@pytest.fixture(autouse=True)
def no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def until(telemetry: Telemetry, samples: int) -> pd.DataFrame:
    """Wait until a running block has so many samples; a busy machine may take its time."""
    end = time.monotonic() + 60
    while len(telemetry.frame()) < samples and time.monotonic() < end:
        time.sleep(0.005)
    return telemetry.frame()


def sampled(nvml: Any, samples: int = 3, every: float = 0.01) -> Telemetry:
    with Telemetry(every, nvml=nvml) as telemetry:
        until(telemetry, samples)
    return telemetry


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "telemetry"}


# ------------------------------------------------------------------------------------------------------------ processor


def test_the_real_processor_and_memory_are_sampled() -> None:
    size = 64_000_000
    with (
        mmap.mmap(-1, size) as held,
        Telemetry(0.06) as telemetry,
    ):  # fresh pages: an allocator may have room of its own
        until(telemetry, 2)
        for start in range(0, size, mmap.PAGESIZE):
            held[start] = 1
        until(telemetry, 5)
    frame = telemetry.frame()
    assert list(frame.columns) == ["seconds", *UNITS]
    assert frame["seconds"].is_monotonic_increasing and frame["seconds"].iloc[0] >= 0
    assert frame["rss_bytes"].notna().all()
    assert 50_000_000 < frame["rss_bytes"].iloc[-1] - frame["rss_bytes"].iloc[0] < 200_000_000
    shares = frame["cpu_percent"].dropna()
    assert len(shares) >= 2 and (shares >= 0).all()


def test_work_of_a_child_counts() -> None:
    """The shares sampled add up to the processor seconds of the child and of this process, however busy the machine is."""
    code = "x = bytearray(80_000_000)\nimport time\nend = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        known = module.psutil.Process(child.pid)
        with Telemetry(0.06) as telemetry:
            until(telemetry, 1)
            before, own_before = sum(known.cpu_times()[:2]), time.process_time()
            end = time.monotonic() + 60
            while sum(known.cpu_times()[:2]) < before + 0.5 and time.monotonic() < end:
                time.sleep(0.05)
            spent, own = sum(known.cpu_times()[:2]) - before, time.process_time() - own_before
            until(telemetry, len(telemetry.frame()) + 2)
        resident = module.psutil.Process().memory_info().rss
    finally:
        child.kill()
        child.wait()
    frame = telemetry.frame().dropna(subset=["cpu_percent"])
    sampled_seconds = (frame["cpu_percent"] / 100 * frame["seconds"].diff()).sum()
    assert spent >= 0.5 and sampled_seconds > own + 0.7 * spent
    assert telemetry.frame()["rss_bytes"].max() > resident + 70_000_000


def test_a_child_that_ends_is_no_fault() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with Telemetry(0.01) as telemetry:
        until(telemetry, 2)
        child.communicate(b"\n")
        until(telemetry, len(telemetry.frame()) + 3)
    assert not {"cpu_percent", "rss_bytes"} & set(telemetry.reasons)
    assert telemetry.frame()["rss_bytes"].notna().all()


def test_the_shortest_block_has_a_first_and_a_last_sample() -> None:
    with Telemetry(30.0) as telemetry:
        pass
    assert len(telemetry.frame()) == 2
    assert telemetry.summary().set_index("measure").loc["rss_bytes", "samples"] == 2


def test_samples_keep_their_distance_and_none_pile_up() -> None:
    with Telemetry(0.05) as telemetry:
        until(telemetry, 6)
    seconds = telemetry.frame()["seconds"].to_numpy()[:-1]  # the last sample comes with the end
    assert (seconds >= 0.05 * np.arange(len(seconds))).all()

    slow = FakeNvml([10])
    slow.nvmlDeviceGetMemoryInfo = lambda handle: time.sleep(0.1) or SimpleNamespace(used=1)  # type: ignore[method-assign]
    late = sampled(slow, samples=4, every=0.01).frame()
    assert (late["seconds"].diff().dropna() >= 0.1).all(), (
        "a driver that is slow has fewer samples, not a queue of them"
    )


# --------------------------------------------------------------------------------------------------------- graphics card


def test_a_device_is_sampled_beside_the_processor_and_closed() -> None:
    nvml = FakeNvml([10, 40, 100])
    frame = sampled(nvml).frame()
    assert frame["gpu_percent"].tolist()[:3] == [10.0, 40.0, 100.0]
    assert frame["gpu_memory_bytes"].tolist()[:3] == [GIB, 2 * GIB, 3 * GIB]
    assert frame["rss_bytes"].notna().all()
    assert (nvml.opened, nvml.closed) == (1, 1)


def test_several_devices_are_a_mean_load_and_a_sum_of_memory() -> None:
    first = sampled(FakeNvml([10], [50])).frame().iloc[0]
    assert (first["gpu_percent"], first["gpu_memory_bytes"]) == (30.0, 2 * GIB)


@pytest.mark.parametrize(
    ("mask", "seen"),
    [("1", [50.0]), ("GPU-2,0", [90.0, 10.0]), ("1, 2", [50.0, 90.0]), ("2,7,0", [90.0]), ("", []), ("-1", [])],
)
def test_only_devices_that_cuda_may_use_are_sampled(
    monkeypatch: pytest.MonkeyPatch, mask: str, seen: list[float]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    nvml = FakeNvml([10], [50], [90])
    telemetry = sampled(nvml)
    if seen:
        assert telemetry.frame()["gpu_percent"].iloc[0] == sum(seen) / len(seen)
    else:
        assert telemetry.frame()["gpu_percent"].isna().all()
        assert telemetry.reasons["gpu_percent"] == "LookupError: no CUDA device is visible"
    assert nvml.closed == 1


def test_one_measure_without_support_leaves_the_others() -> None:
    nvml = FakeNvml([10])
    nvml.nvmlDeviceGetUtilizationRates = _raiser("not supported")  # type: ignore[method-assign]
    telemetry = sampled(nvml)
    frame = telemetry.frame()
    assert frame["gpu_percent"].isna().all() and frame["gpu_memory_bytes"].notna().all()
    assert telemetry.reasons == {"gpu_percent": "BrokenDriver: not supported"}


def test_a_device_that_fails_later_keeps_what_was_read() -> None:
    nvml = FakeNvml([10, 20])
    rates = nvml.nvmlDeviceGetUtilizationRates

    def failing(handle: int) -> SimpleNamespace:
        if nvml.asked[handle] >= 2:
            raise BrokenDriver("device is lost")
        return rates(handle)

    nvml.nvmlDeviceGetUtilizationRates = failing  # type: ignore[method-assign]
    telemetry = sampled(nvml, samples=4)
    row = telemetry.summary().set_index("measure").loc["gpu_percent"]
    assert (row["samples"], row["mean"], row["peak"]) == (2, 15.0, 20.0)
    assert row["reason"] == "BrokenDriver: device is lost"


# ------------------------------------------------------------------------------------------------------- nothing breaks


def _raiser(text: str) -> Any:
    def fail(*_: object) -> None:
        raise BrokenDriver(text)

    return fail


@pytest.mark.parametrize(
    "broken",
    ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo", "nvmlShutdown"],
)
def test_a_driver_broken_anywhere_gives_a_reason_and_no_error(broken: str) -> None:
    nvml = FakeNvml([10])
    setattr(nvml, broken, _raiser(f"{broken} is broken"))
    telemetry = sampled(nvml)
    assert telemetry.reasons["gpu_memory_bytes"] == f"BrokenDriver: {broken} is broken"
    assert telemetry.frame()["rss_bytes"].notna().all()


def test_a_machine_without_a_driver_or_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    telemetry = sampled(None)
    summary = telemetry.summary().set_index("measure")
    assert summary.loc["gpu_percent", "reason"].startswith("ModuleNotFoundError")
    numbers = summary.loc[["gpu_percent", "gpu_memory_bytes"], ["mean", "p50", "p95", "peak"]]
    assert numbers.isna().all(axis=None), "missing is null, never 0"
    assert summary.loc["gpu_percent", "samples"] == 0 and pd.isna(summary.loc["rss_bytes", "reason"])


def test_a_processor_that_cannot_be_read_gives_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.psutil, "Process", _raiser("no /proc here"))
    telemetry = sampled(FakeNvml([10]))
    assert telemetry.reasons == dict.fromkeys(["cpu_percent", "rss_bytes"], "BrokenDriver: no /proc here")
    assert telemetry.frame()["gpu_percent"].notna().all()


def test_a_driver_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.2)
    release = threading.Event()
    nvml = FakeNvml([10])
    nvml.nvmlDeviceGetMemoryInfo = lambda handle: release.wait(60) and None  # type: ignore[method-assign]
    with Telemetry(0.01, nvml=nvml) as telemetry:
        end = time.monotonic() + 60
        while not nvml.asked[0] and time.monotonic() < end:
            time.sleep(0.005)
    assert telemetry.reasons == {"gpu_memory_bytes": "no answer within 0.2 s; the rest was not sampled"}
    assert telemetry.frame().empty and threads(), "the thread waits for its driver"
    release.set()
    (left,) = threads()
    left.join(60)
    assert nvml.closed == 1 and telemetry.frame().empty, "what comes after the end does not count"


def test_a_thread_left_behind_says_nothing_of_the_next_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.2)
    release = threading.Event()
    hung, well = FakeNvml([10]), FakeNvml([10])
    hung.nvmlDeviceGetMemoryInfo = lambda handle: release.wait(60) and _raiser("device is lost")()  # type: ignore[method-assign]
    telemetry = Telemetry(0.01, nvml=hung)
    with telemetry:
        end = time.monotonic() + 60
        while not hung.asked[0] and time.monotonic() < end:
            time.sleep(0.005)
    (left,) = threads()
    telemetry._nvml = well
    with telemetry:
        release.set()
        left.join(60)
        until(telemetry, 2)
    assert telemetry.reasons == {} and telemetry.frame()["gpu_memory_bytes"].notna().all()


def test_endless_distance_leaves_the_first_and_the_last_sample() -> None:
    with Telemetry(float("inf"), nvml=FakeNvml([10])) as telemetry:
        until(telemetry, 1)
    assert len(telemetry.frame()) == 2 and threads() == set()


def test_no_thread_left_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.threading.Thread, "start", lambda self: (_ for _ in ()).throw(RuntimeError("no thread")))
    with Telemetry() as telemetry:
        pass
    assert telemetry.frame().empty and set(telemetry.reasons.values()) == {"RuntimeError: no thread"}
    assert telemetry.summary()["peak"].isna().all()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_of_the_work_passes_through_and_the_thread_ends(error: type[BaseException]) -> None:
    nvml = FakeNvml([10])
    with pytest.raises(error), Telemetry(0.01, nvml=nvml) as telemetry:
        until(telemetry, 1)
        raise error
    assert threads() == set() and nvml.closed == 1
    assert len(telemetry.frame()) >= 2


def test_one_object_serves_block_after_block_but_not_block_in_block() -> None:
    telemetry = sampled(FakeNvml([10]))
    first = len(telemetry.frame())
    with telemetry:
        with pytest.raises(RuntimeError, match="sampling already"):
            telemetry.__enter__()
        until(telemetry, 1)
    assert threads() == set() and first >= 3
    with pytest.raises(ValueError, match="every must be above 0"):
        Telemetry(0)


def test_summary_by_hand() -> None:
    telemetry = Telemetry()
    telemetry._samples = [
        {"seconds": 0.1 * place, "cpu_percent": value} for place, value in enumerate([None, 10.0, 20.0, 60.0])
    ]
    row = telemetry.summary().set_index("measure").loc["cpu_percent"]
    assert (row["samples"], row["mean"], row["p50"], row["peak"]) == (3, 30.0, 20.0, 60.0)
    assert row["p95"] == pytest.approx(20 + 0.9 * 40)
    assert Telemetry().frame().empty and Telemetry().summary()["samples"].tolist() == [0, 0, 0, 0]


# --------------------------------------------------------------------------------------------------------- peak memory

MIB = 2**20
needs_mark = pytest.mark.skipif(not module._reset_high_water(), reason="this system keeps no mark that can be reset")


def hold(mebibytes: int) -> None:
    np.ones(mebibytes * MIB // 8).sum()


@needs_mark
def test_the_kernels_mark_sees_a_peak_that_is_gone_and_starts_anew() -> None:
    with peak_memory() as large:
        hold(120)
    with peak_memory() as small:
        hold(20)
    assert 110 * MIB < (large.increase_bytes or 0) < 180 * MIB
    assert 15 * MIB < (small.increase_bytes or 0) < 60 * MIB, "the earlier peak does not count"
    assert (large.method, large.reason) == ("high-water mark of the kernel", None)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps freed memory")
def test_memory_freed_before_counts_again() -> None:
    """Small pieces under a kept one stay with the process when they are freed; using them again is an increase all the same."""
    pieces = [bytearray(b"x" * 2**16) for _ in range(1600)]
    kept = pieces.pop()
    pieces.clear()
    with peak_memory() as peak:
        pieces = [bytearray(b"x" * 2**16) for _ in range(1280)]
    assert (peak.increase_bytes or 0) > 70 * MIB
    assert len(pieces) == 1280 and kept


def test_without_a_mark_memory_is_sampled(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(module, "_CLEAR", tmp_path / "none" / "clear_refs")
    with peak_memory() as peak:
        end, known = time.monotonic() + 60, peak.peak_bytes or 0
        held = np.ones(64 * MIB // 8)
        while (peak.peak_bytes or 0) < known + 50 * MIB and time.monotonic() < end:
            time.sleep(0.005)
        del held
    assert 50 * MIB < (peak.increase_bytes or 0) < 120 * MIB
    assert peak.method == "sampled every 2 ms" and peak.reason is None


def test_the_allocators_mark_on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    cuda = SimpleNamespace(
        is_available=lambda: True,
        reset_peak_memory_stats=lambda device: calls.append(device),
        memory_allocated=lambda device: 100,
        max_memory_allocated=lambda device: 350,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    with peak_memory("cuda:1") as peak:
        assert calls == ["cuda:1"] and peak.peak_bytes is None
    assert peak == PeakMemory(100, 350, "torch.cuda.max_memory_allocated", None) and peak.increase_bytes == 250


def test_a_card_that_is_not_there_gives_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    with peak_memory("cuda") as peak:
        pass
    assert (peak.peak_bytes, peak.increase_bytes, peak.reason) == (
        None,
        None,
        "RuntimeError: torch finds no CUDA device",
    )


@pytest.mark.parametrize("marked", [True, False])
def test_an_error_of_the_work_passes_and_the_peak_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, marked: bool
) -> None:
    if not marked:
        monkeypatch.setattr(module, "_CLEAR", tmp_path / "none" / "clear_refs")
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), peak_memory() as peak:
        1 / 0
    assert peak.peak_bytes and peak.reason is None
    assert threading.active_count() == before


def test_memory_that_cannot_be_read_gives_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(module, "_CLEAR", tmp_path / "none" / "clear_refs")
    monkeypatch.setattr(module.psutil, "Process", _raiser("no /proc here"))
    with peak_memory() as peak:
        pass
    assert (peak.start_bytes, peak.peak_bytes, peak.reason) == (None, None, "BrokenDriver: no /proc here")
