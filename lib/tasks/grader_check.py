"""Test the graders on whole data sets: gold against gold must score 1, a constant wrong reply 0.

A grader that fails this is broken for that family, whatever it says about models.

Not covered: partial credit; that is what the worked values of the measures are for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from lib.tasks.numbers import number_text, read_number
from lib.tasks.questions import Answer, Extractor, Question, QuestionSet, RunCode, grade_all, letters_of
from lib.tasks.scoring import score_reply
from lib.tasks.task import EvidenceId, Gold, Task, Workload

_NOTHING = "qqxxnothingqqxx"  # one token that no answer holds
_NOTHING_AT_ALL = "qqxxzzqqxx"  # holds no letter of an option and no digit; as code an unknown name


class GraderCheck(msgspec.Struct, frozen=True):
    """Means of U (of questions: accuracy) for gold replies and for wrong replies, and the tasks that are off."""

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


def check_questions(
    questions: QuestionSet, extractor: Extractor = "robust", run_code: RunCode | None = None
) -> GraderCheck:
    """Grade gold, a constant that answers nothing, and a well-formed wrong answer, on every question of a set.

    Parameters
    ----------
    questions
        The set, whole.
    extractor
        As in `lib.tasks.questions.grade`. For "official" replies are the bare answer, the only form that rule reads safely.
    run_code
        Needed where a question asks for code.

    Raises
    ------
    ValueError
        A code question without `run_code`.
    """
    if run_code is None and any(question.domain == "code" for question in questions.questions):
        raise ValueError(f"check_questions: {questions.name} asks for code; pass run_code")
    said = "{}" if extractor == "official" else "After some thought: the answer is {}."
    golds = [questions.answers[question.id] for question in questions.questions]
    pairs = list(zip(questions.questions, golds, strict=True))

    def replies(answers: Iterable[str]) -> list[bool | None]:
        items = [
            (question, gold, text if question.domain == "code" else said.format(text))
            for (question, gold), text in zip(pairs, answers, strict=True)
        ]
        return [graded.correct for graded in grade_all(items, extractor, run_code)]

    right = replies(gold.canonical or gold.answer for gold in golds)
    nothing = replies(_NOTHING_AT_ALL for _ in golds)
    wrong = replies(_other(question, gold) for question, gold in pairs)
    failures = [
        f"{question.id}: gold {best}, nothing {none}, wrong {worst}"
        for question, best, none, worst in zip(questions.questions, right, nothing, wrong, strict=True)
        if (best, none, worst) != (True, False, False)
    ]
    bad = [*nothing, *wrong]
    return GraderCheck(len(right), _share(right), _share(bad), tuple(failures))


def _other(question: Question, gold: Answer) -> str:
    """Return an answer in the right form that is not the gold one."""
    if question.options:
        letters = letters_of(question)
        return letters[(letters.index(gold.answer) + 1) % len(letters)]
    if question.domain == "code":
        return "    return NotImplemented\n"
    value = read_number(gold.answer)
    assert value is not None, "`build_questions` refuses gold that is no number"
    return number_text(value + 1)


def _share(marks: list[bool | None]) -> float:
    return sum(mark is True for mark in marks) / max(1, len(marks))


def _grouped(evidence: Iterable[EvidenceId]) -> list[dict[str, object]]:
    pages: dict[str, list[int | None]] = {}
    for source, index in evidence:
        pages.setdefault(source, []).append(index)
    return [{"doc": source, "sentences": indices} for source, indices in pages.items()]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
