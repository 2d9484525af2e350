"""What is asked: tasks, gold apart from them, loaders, answers and scores."""

from __future__ import annotations

from lib.tasks.registry import WORKLOADS, load_workload
from lib.tasks.scoring import Score, ScoreSummary, score_reply, summarize_scores
from lib.tasks.task import LABELS, EvidenceId, Gold, Source, Split, Task, Workload, WorkloadError, split_tasks

__all__ = [
    "LABELS",
    "WORKLOADS",
    "EvidenceId",
    "Gold",
    "Score",
    "ScoreSummary",
    "Source",
    "Split",
    "Task",
    "Workload",
    "WorkloadError",
    "load_workload",
    "score_reply",
    "split_tasks",
    "summarize_scores",
]
