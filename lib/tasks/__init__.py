"""What is asked: tasks with sources and questions without, gold apart from them, loaders, answers and scores."""

from __future__ import annotations

from lib.tasks.questions import QUESTION_SETS, Answer, Graded, Question, QuestionSet, grade, grade_all, load_questions
from lib.tasks.registry import WORKLOADS, load_workload
from lib.tasks.scoring import Score, ScoreSummary, score_reply, summarize_scores
from lib.tasks.task import LABELS, EvidenceId, Gold, Source, Split, Task, Workload, WorkloadError, split_tasks

__all__ = [
    "LABELS",
    "QUESTION_SETS",
    "WORKLOADS",
    "Answer",
    "EvidenceId",
    "Gold",
    "Graded",
    "Question",
    "QuestionSet",
    "Score",
    "ScoreSummary",
    "Source",
    "Split",
    "Task",
    "Workload",
    "WorkloadError",
    "grade",
    "grade_all",
    "load_questions",
    "load_workload",
    "score_reply",
    "split_tasks",
    "summarize_scores",
]
