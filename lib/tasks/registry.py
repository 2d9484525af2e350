"""One door to every workload: a name, a seed, a limit and the knobs of that family.

Not covered: fetching files (`lib.sources`), splits (`lib.tasks.task.split_tasks`).
"""

from __future__ import annotations

from typing import Any

from lib.tasks.loaders import check_limit, find_loader
from lib.tasks.task import Workload

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
    loader, _ = find_loader("workload", name, _LOADERS, knobs)
    check_limit("workload", name, limit)
    workload: Workload = loader(limit=limit, seed=seed, **knobs)
    return workload
