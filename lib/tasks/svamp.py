"""SVAMP: one-step word problems, varied so that surface cues mislead; the answer is a number.

Reads the official JSON list (``ID``, ``Body``, ``Question``, ``Answer``) and JSON Lines of the same fields in lower case.

Not covered: equation and type of a problem, which tell the answer and are left out.
"""

from __future__ import annotations

from pathlib import Path

from lib.sources import locate
from lib.tasks.numbers import number_text, read_number
from lib.tasks.questions import Answer, Question
from lib.tasks.records import Record, first_file, read_records
from lib.tasks.subsets import mark_of, marked
from lib.tasks.task import WorkloadError

VERSION = "svamp-1"
SAMPLE = 300
_FILES = ("test300.jsonl", "test.jsonl", "test.json", "SVAMP.json")


def load(*, subset: str = "moc", path: str | None = None) -> list[tuple[Question, Answer]]:
    """Load problems.

    Parameters
    ----------
    subset
        "moc": the 300 problems of the test split that the paper uses, by ``moc_index`` where the file has it, else a file of exactly 300.
        "all": every problem of the file.
    path
        Data file or folder; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field, or the file does not hold the paper's sample.
    SourceError
        The data are not there.
    """
    file = first_file(locate("svamp") if path is None else Path(path).expanduser(), _FILES, "SVAMP problems")
    found = [(mark_of(record), _pair(record)) for record in read_records(file)]
    if subset == "moc" and (chosen := marked(found, SAMPLE, str(file))) is not None:
        return chosen
    if subset == "moc" and len(found) != SAMPLE:
        raise WorkloadError(
            f"{file}: {len(found)} records, but the paper uses the test split of {SAMPLE}, which cannot be told from the whole "
            "set; give that file, or ask for subset='all'"
        )
    return [pair for _, pair in found]


def _pair(record: Record) -> tuple[Question, Answer]:
    name = record.text_id("id", "ID")
    body, asked = _text(record, "body"), _text(record, "question")
    gold = record.need("answer" if "answer" in record.data else "Answer", int, float, str)
    value = read_number(str(gold))
    if value is None:
        raise WorkloadError(f"{record.place}: field 'answer' holds {gold!r}, which is no number")
    # Many bodies are a condition that the question goes on with: "If they pay 5 dollars", "how much ...".
    joint = " " if body.endswith((".", "!", "?")) or not body else ", "
    question = Question(
        id=f"svamp/{name}",
        family="svamp",
        domain="math",
        text=f"{body}{joint}{asked}".strip(),
        version=VERSION,
    )
    return question, Answer(question_id=question.id, answer=number_text(value))


def _text(record: Record, field: str) -> str:
    value: str = record.need(field if field in record.data else field.capitalize(), str)
    return value.strip()
