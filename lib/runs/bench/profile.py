"""Where the engine's own time goes: matrix products, attention, everything else.

The profiler's operators are put into three groups by name and their own times summed; what no operator accounts for is the time of
Python and of the profiler itself. Beside the floor (module `roof`) it says what keeps the engine from it.

Not covered: call stacks; memory.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pandas as pd
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from lib.runs.bench.engines import Engine
from lib.runs.bench.roof import wait

GROUPS = {  # in this order: kernels of attention hold products of their own
    "attention": ("attention", "fmha", "flash"),
    "matrix products": ("linear", "mm", "matmul", "gemm"),
}
OTHER, OUTSIDE = "other operators", "outside operators"


def group_of(operator: str) -> str:
    """Return the group of an operator by its name in small letters."""
    return next((group for group, parts in GROUPS.items() if any(part in operator for part in parts)), OTHER)


def profiled(engine: Engine, encoded: Sequence[Sequence[int]], new_tokens: int, device: torch.device) -> pd.DataFrame:
    """Return seconds and share of each group in one call of `engine`; one row a group, the largest first."""
    on_card = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_card else [])]
    with profile(activities=activities) as seen:
        started = time.perf_counter()
        engine.generate(encoded, new_tokens)
        wait(device)
        wall = time.perf_counter() - started
    seconds = dict.fromkeys((*GROUPS, OTHER), 0.0)
    for event in seen.key_averages():
        if event.device_type != DeviceType.CPU:
            continue  # a kernel: the operator that launched it has its time already
        own = event.self_device_time_total if on_card else event.self_cpu_time_total
        seconds[group_of(event.key.lower())] += own / 1e6
    seconds[OUTSIDE] = max(0.0, wall - sum(seconds.values()))
    rows = [{"group": group, "seconds": taken, "share": taken / wall} for group, taken in seconds.items()]
    return pd.DataFrame(rows).sort_values("seconds", ascending=False, ignore_index=True)
