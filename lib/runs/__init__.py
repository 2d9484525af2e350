"""How it runs: stored replies, parameters, notebooks in processes of their own, reports.

Names are loaded when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.runs.context import Run as Run
    from lib.runs.context import run_folder as run_folder
    from lib.runs.context import start_run as start_run
    from lib.runs.index import index_frame as index_frame
    from lib.runs.progress import Progress as Progress
    from lib.runs.store import Store as Store
    from lib.runs.store import StoreError as StoreError
    from lib.runs.stored import StoredReceiver as StoredReceiver

_HOME = {
    "Progress": "progress",
    "Run": "context",
    "Store": "store",
    "StoreError": "store",
    "StoredReceiver": "stored",
    "index_frame": "index",
    "run_folder": "context",
    "start_run": "context",
}

__all__ = ["Progress", "Run", "Store", "StoreError", "StoredReceiver", "index_frame", "run_folder", "start_run"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lib.runs' has no attribute {name!r}")
    return getattr(import_module(f"lib.runs.{_HOME[name]}"), name)
