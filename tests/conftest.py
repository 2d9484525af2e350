"""Shared pytest set-up: the Hypothesis profile and the rule for tests that need fetched models or data."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from lib.sources import WheelRoute, available, entry_of, locate

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
