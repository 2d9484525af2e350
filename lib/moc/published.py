"""The MOC paper's numbers beside the question sets of this suite.

Each question set has one benchmark of the paper as its counterpart: the same questions by origin and count, or for made
arithmetic the benchmark of word problems. A number of the paper is never a target here: models, prompts, graphs and counts
differ, and `difference_note` says so for every row it stands beside.

The paper's *agent tokens* leave the distiller out; so do its Figures 3b and 4. Where tokens are compared, compare the same part
(`lib.moc.accounting.tokens_table`: ``agent_tokens``, ``distiller_tokens``).

Not covered: whether a difference matters (`lib.evaluation`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from lib.tasks.published import published_rows

FOLDER = Path(__file__).resolve().parents[2] / "data" / "published" / "moc"
BENCHMARKS = {
    "mmlu": "MMLU",
    "mmlu_pro": "MMLU-Pro",
    "gsm8k": "GSM8K",
    "svamp": "SVAMP",
    "aqua": "AQuA",
    "humaneval": "HumanEval",
    "arithmetic": "GSM8K",
}
MADE = ("arithmetic",)


def published(name: str, question_sets: Iterable[str]) -> pd.DataFrame:
    """Return a published table with a ``question_set`` column: its rows once for each set with that benchmark.

    Parameters
    ----------
    name : ``table1`` to ``table6`` or ``text``; see ``data/published/moc/``. Arms and K are named as in `lib.moc.arms`
    question_sets : names of `lib.tasks.questions.QUESTION_SETS`

    Returns
    -------
    DataFrame in the order of `question_sets`; empty where the table has none of their benchmarks. The paper's average over its
    six benchmarks is no row of any set

    Raises
    ------
    ValueError
        For a name that is no published table, or a question set without a counterpart.
    """
    return published_rows(FOLDER, name, "question_set", question_sets, benchmark_of)


def benchmark_of(question_set: str) -> str:
    """Return the benchmark of the paper that a question set stands beside."""
    if question_set not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise ValueError(f"question set {question_set!r} has no counterpart in the paper; known: {known}")
    return BENCHMARKS[question_set]


def difference_note(question_set: str, receiver: str, counts: str) -> str:
    """Say in one line why a number of this run and its counterpart in the paper are not the same measurement.

    Parameters
    ----------
    question_set, receiver : names
    counts : how much was measured, in words

    >>> difference_note("mmlu", "qwen-coder-1.5b", "40 questions")
    'drawn from the same benchmark, MMLU; model qwen-coder-1.5b; 40 questions'
    """
    benchmark = benchmark_of(question_set)
    made = f"made stories, easier than {benchmark} and beside it only as word problems"
    data = made if question_set in MADE else f"drawn from the same benchmark, {benchmark}"
    return f"{data}; model {receiver}; {counts}"
