"""What is asked: tasks with sources, questions without, steps of longer tasks; gold apart from them; loaders and scores."""

from __future__ import annotations

from lib.tasks.questions import QUESTION_SETS, Answer, Graded, Question, QuestionSet, grade, grade_all, load_questions
from lib.tasks.registry import WORKLOADS, load_workload
from lib.tasks.scoring import Score, ScoreSummary, score_reply, summarize_scores
from lib.tasks.step_families import family_origins, load_families
from lib.tasks.steps import FAMILIES, Step, StepGold, StepSet, load_steps
from lib.tasks.task import LABELS, EvidenceId, Gold, Source, Split, Task, Workload, WorkloadError, split_tasks

__all__ = [
    "FAMILIES",
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
    "Step",
    "StepGold",
    "StepSet",
    "Task",
    "Workload",
    "WorkloadError",
    "family_origins",
    "grade",
    "grade_all",
    "load_families",
    "load_questions",
    "load_steps",
    "load_workload",
    "score_reply",
    "split_tasks",
    "summarize_scores",
]
