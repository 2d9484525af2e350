"""A majority vote in place of the decision agent, from what the workers said anyway.

Context
-------
The paper's answer is the reply of a decision agent that reads all last outputs. Its public code also has a node that
counts the workers' answers. As an ablation the vote needs no model: it is counted from stored runs.

Intuition
---------
Where the vote is as good as the decision, reading and judging the outputs added nothing. A vote hears every worker
equally, the decision agent may follow the better argument, or the louder one.

How to read the result
----------------------
Workers count in index order, and the first answer that reaches the largest count wins a tie. A worker that failed, or whose
answer cannot be read, has no vote; ``valid`` counts the others. Without any vote there is no winner: null, not wrong.

Not covered: code (two programs are rarely the same text), weighted votes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from lib.moc.record import TeamRun
from lib.tasks.questions import Extractor, Question, extract_answer


def majority(answers: Sequence[str | None]) -> str | None:
    """Return the most frequent answer; of several the one that reached that count first. None is no vote.

    >>> majority(["B", "A", None, "A", "B"])
    'A'
    """
    counts: Counter[str] = Counter(answer for answer in answers if answer is not None)
    if not counts:
        return None
    most = max(counts.values())
    running: Counter[str] = Counter()
    for answer in answers:
        if answer is not None:
            running[answer] += 1
            if running[answer] == most:
                return answer
    raise AssertionError("the largest count is reached")


def vote_table(runs: Iterable[TeamRun], questions: Iterable[Question], extractor: Extractor = "robust") -> pd.DataFrame:
    """Return the vote of every run that has workers.

    Parameters
    ----------
    extractor : reads the answers, see `lib.tasks.questions.extract_answer`; what it reads equal counts together

    Returns
    -------
    DataFrame: ``question_id``, ``arm``, ``k``, ``vote`` (null without votes), ``votes`` (for the winner), ``valid``,
    ``workers``, ``tie`` (another answer has as many), ``answers`` (one a worker, null where there is none), ``decision`` (what
    the decision agent's reply is read as), ``agrees`` (vote and decision are the same; null where one is missing)

    Raises
    ------
    ValueError
        For a code question.
    """
    known = {question.id: question for question in questions}
    rows: list[dict[str, Any]] = []
    for run in runs:
        question = known[run.question_id]
        if question.domain == "code":
            raise ValueError(f"question {question.id!r} asks for code, on which no vote can be counted; leave it out")
        if not run.messages:
            continue
        answers = [extract_answer(question, one.text, extractor) if one.ok else None for one in run.messages]
        counts = Counter(answer for answer in answers if answer is not None)
        winner = majority(answers)
        decided = extract_answer(question, run.decision.text, extractor) if run.decision.ok else None
        rows.append(
            {
                "question_id": run.question_id,
                "arm": run.arm,
                "k": run.k,
                "vote": winner,
                "votes": counts[winner] if winner is not None else 0,
                "valid": counts.total(),
                "workers": len(answers),
                "tie": winner is not None and list(counts.values()).count(counts[winner]) > 1,
                "answers": answers,
                "decision": decided,
                "agrees": None if winner is None or decided is None else winner == decided,
            }
        )
    columns = ["question_id", "arm", "k", "vote", "votes", "valid", "workers", "tie", "answers", "decision", "agrees"]
    return pd.DataFrame(rows, columns=columns).astype({"agrees": "boolean"})
