"""HumanEval: 164 Python functions to be completed from signature and docstring, each with its tests.

The question is the prompt as published, imports and helper functions included; its id is the official one. Tests and canonical solution
are gold. `check_canonical` runs the canonical solutions through the same path as replies: a sandbox in which one of them does not pass
says nothing about a model.

Not covered: running code (`lib.tasks.sandbox`), reading replies (`lib.tasks.code_answer`), the variants with more tests (HumanEval+).
"""

from __future__ import annotations

from pathlib import Path

from lib.sources import locate
from lib.tasks.code_answer import check_answers
from lib.tasks.questions import Answer, Question
from lib.tasks.records import Record, first_file, read_records
from lib.tasks.sandbox import Limits, Verdict
from lib.tasks.task import WorkloadError

VERSION = "humaneval-1"
_FILES = ("HumanEval.jsonl.gz", "HumanEval.jsonl", "test.jsonl")


def load(*, path: str | None = None) -> list[tuple[Question, Answer]]:
    """Load the problems in the published order.

    Parameters
    ----------
    path
        The official file or a folder that holds it; None asks `lib.sources`.

    Returns
    -------
    list of (Question, Answer)
        ``Question.text`` is the prompt, ``entry_point`` the function; ``Answer.tests`` defines ``check(candidate)``, and
        ``Answer.canonical`` is the body that completes the prompt.

    Raises
    ------
    WorkloadError
        A record without one of the five fields, or an id that repeats.
    SourceError
        The data are not there; the message says how to get them.
    """
    place = locate("humaneval") if path is None else Path(path).expanduser()
    pairs = [_pair(record) for record in read_records(first_file(place, _FILES, "HumanEval problems"))]
    ids = [question.id for question, _ in pairs]
    if len(set(ids)) != len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise WorkloadError(f"{place}: task_id {twice!r} appears twice; restore the file from its source")
    return pairs


def _pair(record: Record) -> tuple[Question, Answer]:
    name = record.text_id("task_id")
    question = Question(
        id=name,
        family="humaneval",
        domain="code",
        text=record.need("prompt", str),
        entry_point=record.need("entry_point", str),
        version=VERSION,
    )
    canonical = record.need("canonical_solution", str)
    return question, Answer(question_id=name, answer=canonical, tests=record.need("test", str), canonical=canonical)


def check_canonical(
    pairs: list[tuple[Question, Answer]],
    *,
    allow_code_execution: bool,
    timeout: float = 3.0,
    workers: int = 2,
    limits: Limits | None = None,
) -> list[Verdict]:
    """Run every canonical solution against its tests and return the verdicts that are *not* "passed".

    An empty list says that tests, sandbox and time limit are fit for use on this machine. Parameters and errors: `run_tests`.
    """
    replies = [(question, answer, answer.canonical) for question, answer in pairs]
    verdicts = check_answers(
        replies, allow_code_execution=allow_code_execution, timeout=timeout, workers=workers, limits=limits
    )
    return [verdict for verdict in verdicts if not verdict.passed]
