"""One door to every workload: a name, a seed, a limit and the knobs of that family.

Not covered: fetching files (`lib.sources`), splits (`lib.tasks.task.split_tasks`).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from lib.tasks.task import Workload, WorkloadError

# Loaders are imported when asked for: one of them needs scikit-learn, whose import costs a second.
_LOADERS = {
    "worlds_verification": ("lib.tasks.worlds.generate", "load_verification"),
    "worlds_bridge": ("lib.tasks.worlds.generate", "load_bridge"),
    "worlds_fanout": ("lib.tasks.worlds.generate", "load_fanout"),
    "fanoutqa": ("lib.tasks.fanoutqa", "load"),
    "scifact": ("lib.tasks.scifact", "load"),
    "hotpotqa": ("lib.tasks.hotpotqa", "load"),
}

WORKLOADS = tuple(_LOADERS)
"""Names that `load_workload` knows."""


def load_workload(name: str, *, limit: int | None = None, seed: int = 0, **knobs: Any) -> Workload:
    """Load or generate a workload.

    Parameters
    ----------
    name
        One of `WORKLOADS`.
    limit
        At most this many tasks; None takes the family's own cap.
    seed
        Chooses which tasks are drawn and how slots are shuffled.
    knobs
        Knobs of the family, for example ``readers=4, redundancy=0.3`` for worlds or ``pages="pages.jsonl"`` for fanoutqa.

    Raises
    ------
    WorkloadError
        Unknown name or knob, a limit below 1, or data that cannot be used; the message says what would work.
    SourceError
        The data set is not there; the message names the file and the fix.
    """
    if name not in _LOADERS:
        raise WorkloadError(f"workload {name!r} is unknown{_suggest(name, WORKLOADS)}; known: {', '.join(WORKLOADS)}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise WorkloadError(f"workload {name}: limit must be a whole number of at least 1 or None, got {limit!r}")
    module, function = _LOADERS[name]
    loader: Callable[..., Workload] = getattr(importlib.import_module(module), function)
    known = tuple(p for p in inspect.signature(loader).parameters if p not in {"limit", "seed"})
    for knob in knobs:
        if knob not in known:
            raise WorkloadError(
                f"workload {name}: unknown knob {knob!r}{_suggest(knob, known)}; knobs: {', '.join(known)}"
            )
    return loader(limit=limit, seed=seed, **knobs)


def _suggest(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
