"""The BANDMAS paper's numbers beside the workloads of this suite.

Each workload has one benchmark of the paper as its counterpart: the same data set, or for generated worlds the data
set whose structure they share (one decisive rationale, two complementary documents, one fact in each of many
documents). A number of the paper is never a target here: models, texts and counts differ, and `difference_note` says
so for every row it stands beside.

Not covered: whether a difference matters (`lib.evaluation`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from lib.tasks.published import published_rows

FOLDER = Path(__file__).resolve().parents[2] / "data" / "published"
BENCHMARKS = {
    "scifact": "SciFact",
    "hotpotqa": "HotpotQA",
    "fanoutqa": "FanOutQA",
    "worlds_verification": "SciFact",
    "worlds_bridge": "HotpotQA",
    "worlds_fanout": "FanOutQA",
}
SAME_DATA = ("scifact", "hotpotqa", "fanoutqa")
_REMARKS = {"fanoutqa": "; sources are notes derived from the annotation unless page texts are supplied"}


def published(name: str, workloads: Iterable[str]) -> pd.DataFrame:
    """Return a published table with a ``workload`` column: its rows once for each workload with that benchmark.

    Parameters
    ----------
    name : ``table1``, ``figure3`` or ``text``; see ``data/published/``
    workloads : names of `lib.tasks.load_workload`

    Returns
    -------
    DataFrame in the order of `workloads`; rows on all benchmarks come for each of them

    Raises
    ------
    ValueError
        For a name that is no published table, or a workload without a counterpart.
    """
    return published_rows(FOLDER, name, "workload", workloads, benchmark_of, prefix="bandmas_")


def benchmark_of(workload: str) -> str:
    """Return the benchmark of the paper that a workload stands beside."""
    if workload not in BENCHMARKS:
        raise ValueError(f"workload {workload!r} has no counterpart in the paper; known: {', '.join(BENCHMARKS)}")
    return BENCHMARKS[workload]


def difference_note(workload: str, receiver: str, counts: str) -> str:
    """Say in one line why a number of this run and its counterpart in the paper are not the same measurement.

    Parameters
    ----------
    workload, receiver : names
    counts : how much was measured, in words

    >>> difference_note("worlds_bridge", "qwen-coder-0.5b", "8 final tasks a seed")
    'generated stand-in for HotpotQA; model qwen-coder-0.5b; 8 final tasks a seed'
    """
    benchmark = benchmark_of(workload)
    data = f"the same data set, {benchmark}" if workload in SAME_DATA else f"generated stand-in for {benchmark}"
    return f"{data}{_REMARKS.get(workload, '')}; model {receiver}; {counts}"
