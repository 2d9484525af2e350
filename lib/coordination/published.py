"""The coordination paper's numbers beside the step families of this suite.

Each family has one benchmark of the paper as its counterpart: the same data set, or one that stands in for it. What
counts as a step is settled here (``data/cards``), not there, so even on the same data set a number of the paper is never a target:
models, steps and counts differ, and `difference_note` says so for every row it stands beside.

Not covered: whether a difference matters (`lib.evaluation`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from lib.tasks.published import published_rows
from lib.tasks.step_families import base_family

FOLDER = Path(__file__).resolve().parents[2] / "data" / "published" / "coordination"
BENCHMARKS = {
    "bfcl": "BFCL",
    "bfcl_multi_turn": "BFCL",
    "tau_bench": "tau-bench",
    "tau2": "tau-bench",
    "toolsandbox": "ToolSandbox",
    "contextbench": "ContextBench",
    "swebench_lite": "SWE-Lite",
    "repobench": "RepoBench",
    "repoeval": "RepoBench",
    "shared_episodes": "LongCLI",
}
SAME_DATA = ("bfcl", "tau_bench", "toolsandbox", "contextbench", "swebench_lite", "repobench")


def published(name: str, families: Iterable[str]) -> pd.DataFrame:
    """Return a published table with a ``family`` column: its rows once for each family with that benchmark.

    Parameters
    ----------
    name : ``anchors``, ``arms``, ``selector`` or ``text``; see ``data/published/coordination/``
    families : names of `lib.tasks.steps.FAMILIES`, or labels of `lib.tasks.step_families`

    Returns
    -------
    DataFrame in the order of `families`; rows on all benchmarks come for each of them

    Raises
    ------
    ValueError
        For a name that is no published table, or a family without a counterpart.
    """
    return published_rows(FOLDER, name, "family", families, benchmark_of)


def benchmark_of(family: str) -> str:
    """Return the benchmark of the paper that a family stands beside, whatever the knobs of its label.

    >>> benchmark_of("shared_episodes:fresh=0.9")
    'LongCLI'
    """
    name = base_family(family)
    if name not in BENCHMARKS:
        raise ValueError(f"family {family!r} has no counterpart in the paper; known: {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]


def difference_note(family: str, receiver: str, counts: str) -> str:
    """Say in one line why a number of this run and its counterpart in the paper are not the same measurement.

    Parameters
    ----------
    family, receiver : names
    counts : how much was measured, in words

    >>> difference_note("repoeval", "qwen-coder-0.5b", "40 steps")
    'stands in for RepoBench; steps as defined here; model qwen-coder-0.5b; 40 steps'
    """
    benchmark = benchmark_of(family)
    data = f"the same data set, {benchmark}" if base_family(family) in SAME_DATA else f"stands in for {benchmark}"
    return f"{data}; steps as defined here; model {receiver}; {counts}"
