"""GSM8K: grade-school word problems whose answer is a whole number.

Reads JSON Lines and the hub's table: ``question`` and ``answer``, a rationale that ends with ``#### <number>``. The official files have no
ids; an id is "gsm8k/<row>" of the test split.

Not covered: the training split, the rationales (only their final number is used).
"""

from __future__ import annotations

from pathlib import Path

from lib.sources import locate
from lib.tasks.numbers import gold_number
from lib.tasks.questions import Answer, Question
from lib.tasks.records import Record, first_file, read_records
from lib.tasks.subsets import mark_of, marked, need_whole, paper_rows
from lib.tasks.task import WorkloadError

VERSION = "gsm8k-1"
SAMPLE = 300
WHOLE = 1319  # questions of the test split
_FILES = ("test.parquet", "test-00000-of-00001.parquet", "test.jsonl")
_ID = "gsm8k-test-"


def load(*, subset: str = "moc", path: str | None = None) -> list[tuple[Question, Answer]]:
    """Load test questions.

    Parameters
    ----------
    subset
        "moc": the paper's 300, by ``moc_index`` where the file has it, else drawn by the paper's rule. "all": every question of the file.
    path
        Data file or folder; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field or its final number, or the file does not hold the paper's sample.
    SourceError
        The data are not there.
    """
    file = first_file(locate("gsm8k") if path is None else Path(path).expanduser(), _FILES, "GSM8K questions")
    found = [(mark_of(record), _pair(record, row)) for row, record in enumerate(read_records(file))]
    if subset == "all":
        return [pair for _, pair in found]
    chosen = marked(found, SAMPLE, str(file))
    if chosen is not None:
        return chosen
    need_whole(len(found), WHOLE, str(file))
    return [found[row][1] for row in paper_rows(WHOLE, SAMPLE)]


def _pair(record: Record, row: int) -> tuple[Question, Answer]:
    try:
        number = gold_number(record.need("answer", str))
    except ValueError as error:
        raise WorkloadError(f"{record.place}: field 'answer': {error}; restore the file") from error
    # A slice of the test split carries the row in its ids.
    name = record.text_id("id").removeprefix(_ID) if "id" in record.data else str(row)
    question = Question(
        id=f"gsm8k/{name}",
        family="gsm8k",
        domain="math",
        text=record.need("question", str).strip(),
        version=VERSION,
    )
    return question, Answer(question_id=question.id, answer=number)
