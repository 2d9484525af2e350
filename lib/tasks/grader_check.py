"""Test the graders on whole data sets: gold against gold must score 1, a constant wrong reply 0.

A grader that fails this is broken for that family, whatever it says about models.

Not covered: partial credit; that is what the worked values of the measures are for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from lib.tasks.scoring import score_reply
from lib.tasks.task import EvidenceId, Gold, Task, Workload

_NOTHING = "qqxxnothingqqxx"  # one token that no answer holds


class GraderCheck(msgspec.Struct, frozen=True):
    """Means of U over a workload for gold replies and for the constant wrong reply, and the tasks that are off."""

    tasks: int
    gold_mean: float
    wrong_mean: float
    failures: tuple[str, ...]


def gold_reply(task: Task, gold: Gold) -> str:
    """Return the reply that a receiver knowing the gold would give, in the format of the task's kind."""
    if task.kind == "verification":
        return _json({"label": gold.label, "evidence": _grouped(gold.evidence)})
    if task.kind == "bridge":
        cited = [{"title": source, "sentence": index} for source, index in gold.evidence]
        return _json({"answer": gold.answer, "evidence": cited})
    return _json({"answer": gold.answer, "evidence": [source for source, _ in gold.evidence]})


def wrong_reply(task: Task) -> str:
    """Return a well-formed reply that is wrong for every task of the kind."""
    if task.kind == "verification":
        return _json({"label": _NOTHING, "evidence": [{"doc": _NOTHING, "sentences": [0]}]})
    if task.kind == "bridge":
        return _json({"answer": _NOTHING, "evidence": [{"title": _NOTHING, "sentence": 0}]})
    return _json({"answer": _NOTHING, "evidence": [_NOTHING]})


def check_grader(workload: Workload) -> GraderCheck:
    """Score gold and wrong replies on every task of a workload."""
    right, wrong, failures = [], [], []
    for task in workload.tasks:
        gold = workload.gold[task.id]
        best, worst = score_reply(task, gold, gold_reply(task, gold)), score_reply(task, gold, wrong_reply(task))
        right.append(best.utility)
        wrong.append(worst.utility)
        if best.utility != 1.0 or worst.utility != 0.0:
            failures.append(f"{task.id}: gold {best.utility} ({best.reason}), wrong {worst.utility} ({worst.reason})")
    count = max(1, len(right))
    return GraderCheck(len(right), sum(right) / count, sum(wrong) / count, tuple(failures))


def _grouped(evidence: Iterable[EvidenceId]) -> list[dict[str, object]]:
    pages: dict[str, list[int | None]] = {}
    for source, index in evidence:
        pages.setdefault(source, []).append(index)
    return [{"doc": source, "sentences": indices} for source, indices in pages.items()]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
