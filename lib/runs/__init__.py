"""How it runs: stored replies, parameters, notebooks in processes of their own, reports.

Names are loaded when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.runs.progress import Progress as Progress
    from lib.runs.store import Store as Store
    from lib.runs.store import StoreError as StoreError
    from lib.runs.stored import StoredReceiver as StoredReceiver

_HOME = {"Progress": "progress", "Store": "store", "StoreError": "store", "StoredReceiver": "stored"}

__all__ = ["Progress", "Store", "StoreError", "StoredReceiver"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lib.runs' has no attribute {name!r}")
    return getattr(import_module(f"lib.runs.{_HOME[name]}"), name)
