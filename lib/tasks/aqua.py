"""AQuA: algebra word problems with five options.

Reads JSON Lines: ``question``, ``options`` ("A)21", ...), ``correct``. The official file has no ids; an id is "aqua/<row>". All 254 test
questions are used, as in the paper.

Not covered: the rationales, the training and development splits. Some options and rationales are faulty as published.
"""

from __future__ import annotations

import string
from pathlib import Path

from lib.sources import locate
from lib.tasks.questions import Answer, Question
from lib.tasks.records import Record, first_file, read_records
from lib.tasks.task import WorkloadError

VERSION = "aqua-1"
_FILES = ("test.jsonl",)
_ID = "aqua-test-"


def load(*, path: str | None = None) -> list[tuple[Question, Answer]]:
    """Load the test questions in the published order.

    Parameters
    ----------
    path
        Data file or folder; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field, or its options do not carry the letters A to E.
    SourceError
        The data are not there.
    """
    file = first_file(locate("aqua") if path is None else Path(path).expanduser(), _FILES, "AQuA questions")
    return [_pair(record, row) for row, record in enumerate(read_records(file))]


def _pair(record: Record, row: int) -> tuple[Question, Answer]:
    options = record.need("options", list)
    letters = string.ascii_uppercase[:5]
    if len(options) != 5 or not all(
        isinstance(option, str) and option.lstrip().startswith(f"{letter})")
        for letter, option in zip(letters, options, strict=True)
    ):
        raise WorkloadError(f"{record.place}: 'options' must hold five texts that start with A) to E)")
    name = record.text_id("id").removeprefix(_ID) if "id" in record.data else str(row)
    question = Question(
        id=f"aqua/{name}",
        family="aqua",
        domain="math",
        text=record.need("question", str).strip(),
        options=tuple(option.lstrip()[2:].strip() for option in options),
        version=VERSION,
    )
    return question, Answer(question_id=question.id, answer=record.need("correct", str))
