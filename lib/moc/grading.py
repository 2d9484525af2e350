"""What teams got right: every run with raw reply, extracted answer, gold and reason.

Context
-------
The paper grades the reply of the decision agent. Its public code reads that reply by rules of its own (first letter, last
number), which differ from ours where a reply says more than the answer. As an ablation the workers' answers are counted
(`lib.moc.vote`), without a further call.

Intuition
---------
The model's replies do not depend on who reads them. So both extractors read the same runs, and the difference between their
accuracies is one of reading alone.

How to read the result
----------------------
One row a run and extractor. ``correct`` is null where nothing could be judged: the decision agent failed, or nobody may run
code. Accuracy is right answers by all questions asked, so such a row counts as not right; say beside it how many there are.

Not covered: intervals and tests (`lib.evaluation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from lib.moc.record import TeamRun
from lib.moc.vote import vote_table
from lib.tasks.questions import Answer, Extractor, Graded, Question, QuestionSet, RunCode, grade, grade_all

EXTRACTORS: tuple[Extractor, ...] = ("robust", "official")
_COLUMNS = (
    *("question_set", "subject", "question_id", "arm", "k", "agents", "requested_density", "extractor"),
    *("raw", "extracted", "gold", "reason", "correct", "parsed", "judged"),
)


def graded_runs(
    runs: Iterable[TeamRun],
    sets: Mapping[str, QuestionSet],
    *,
    run_code: RunCode | None = None,
    extractors: Sequence[Extractor] = EXTRACTORS,
) -> pd.DataFrame:
    """Grade the decision of every run by each extractor.

    Parameters
    ----------
    run_code : runs the tests of code answers, once whatever the number of extractors; None leaves them ungraded
    extractors : of `lib.tasks.questions`; code is read by the same rule under all

    Returns
    -------
    DataFrame, one row a run and extractor: ``question_set``, ``subject``, ``question_id``, ``arm``, ``k``, ``agents``
    (0 for a single model), ``requested_density``, ``extractor``, ``raw``, ``extracted``, ``gold``, ``reason``, ``correct``
    (null: not judged), ``parsed`` (an answer could be read), ``judged``
    """
    runs = list(runs)
    known = _questions(sets)
    rows: list[dict[str, Any]] = []
    code: dict[int, Graded] = {}
    for extractor in extractors:
        items = {}
        for place, run in enumerate(runs):
            _, question, answer = known[run.question_id]
            if place not in code:
                items[place] = (question, answer, run.decision.text if run.decision.ok else None)
        graded = dict(zip(items, grade_all(list(items.values()), extractor, run_code), strict=True))
        code |= {place: one for place, one in graded.items() if known[runs[place].question_id][1].domain == "code"}
        rows += [_row(run, known, extractor, (graded | code)[place]) for place, run in enumerate(runs)]
    return _typed(rows)


def graded_votes(
    runs: Iterable[TeamRun], sets: Mapping[str, QuestionSet], extractor: Extractor = "robust"
) -> pd.DataFrame:
    """Grade the majority vote of the workers of every run, from what they said anyway.

    Returns
    -------
    DataFrame as from `graded_runs`, without code questions and runs without workers, where no vote can be counted; ``raw`` is
    the list of the workers' answers, as text; plus ``votes`` (for the winner), ``valid``, ``workers``, ``tie``, ``agrees`` (with the
    decision agent; null where one is missing)
    """
    known = _questions(sets)
    voting = [run for run in runs if run.messages and known[run.question_id][1].domain != "code"]
    votes = vote_table(voting, [known[run.question_id][1] for run in voting], extractor)
    rows = []
    for run, vote in zip(voting, votes.to_dict("records"), strict=True):
        _, question, answer = known[run.question_id]
        said = vote["vote"] if isinstance(vote["vote"], str) else None
        graded = grade(question, answer, said if said is None else f"The answer is {said}", extractor)
        row = _row(run, known, extractor, graded)
        row["raw"] = ", ".join("-" if one is None else one for one in vote["answers"])
        rows.append(row | {name: vote[name] for name in ("votes", "valid", "workers", "tie", "agrees")})
    extra = ("votes", "valid", "workers", "tie", "agrees")
    return _typed(rows, extra).astype({"tie": "boolean", "agrees": "boolean"})


Known = dict[str, tuple[str, Question, Answer]]


def _questions(sets: Mapping[str, QuestionSet]) -> Known:
    return {
        question.id: (name, question, one.answers[question.id])
        for name, one in sets.items()
        for question in one.questions
    }


def _row(run: TeamRun, known: Known, extractor: str, graded: Graded) -> dict[str, Any]:
    name, question, _ = known[run.question_id]
    return {
        "question_set": name,
        "subject": question.subject,
        "question_id": run.question_id,
        "arm": run.arm,
        "k": run.k,
        "agents": len(run.messages),
        "requested_density": run.dag.requested if run.dag else None,
        "extractor": extractor,
        "raw": graded.raw,
        "extracted": graded.extracted,
        "gold": graded.gold,
        "reason": graded.reason,
        "correct": graded.correct,
        "parsed": graded.extracted is not None,
        "judged": graded.correct is not None,
    }


def _typed(rows: list[dict[str, Any]], extra: Sequence[str] = ()) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=[*_COLUMNS, *extra])
    kinds = {"correct": "boolean", "parsed": "bool", "judged": "bool", "requested_density": "float64"}
    return frame.astype(kinds)
