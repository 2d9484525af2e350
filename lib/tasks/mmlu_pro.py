"""MMLU-Pro: multiple choice with up to ten options over 14 categories.

Reads JSON Lines and the hub's table; both hold ``question_id``, ``question``, ``options``, ``answer``, ``category``.

Not covered: the chain-of-thought examples of the validation split. Upstream has corrected single questions over time; the digest in a set's
version tells two states of the data apart.
"""

from __future__ import annotations

import string
from pathlib import Path

from lib.sources import locate
from lib.tasks.questions import Answer, Question
from lib.tasks.records import Record, first_file, read_records
from lib.tasks.subsets import mark_of, marked, need_whole, paper_rows
from lib.tasks.task import WorkloadError

VERSION = "mmlu_pro-1"
PER_CATEGORY = 20
CATEGORIES = 14
WHOLE = 12_032  # questions of the test split
_FILES = (
    "test.parquet",
    "test-00000-of-00001.parquet",
    "test_full.jsonl.gz",
    "test_full.jsonl",
    "test_n20_per_category.jsonl",
)


def load(*, subset: str = "moc", path: str | None = None) -> list[tuple[Question, Answer]]:
    """Load test questions.

    Parameters
    ----------
    subset
        "moc": 20 a category, those of the paper: by ``moc_index`` where the file has it, else drawn by the paper's rule. "all": every
        question of the file, by category and id.
    path
        Data file or folder; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field, or the file does not hold the paper's sample.
    SourceError
        The data are not there.
    """
    file = first_file(locate("mmlu_pro") if path is None else Path(path).expanduser(), _FILES, "MMLU-Pro questions")
    found = [(record.need("question_id", int), mark_of(record), _pair(record)) for record in read_records(file)]
    if subset == "moc":
        chosen = marked([(mark, pair) for _, mark, pair in found], PER_CATEGORY * CATEGORIES, str(file))
        if chosen is not None:
            return chosen
        need_whole(len(found), WHOLE, str(file))
    by_category: dict[str, list[tuple[Question, Answer]]] = {}
    for _, _, pair in sorted(found, key=lambda row: (row[2][0].subject, row[0])):
        by_category.setdefault(pair[0].subject, []).append(pair)
    if subset == "all":
        return [pair for pairs in by_category.values() for pair in pairs]
    return [pairs[row] for pairs in by_category.values() for row in paper_rows(len(pairs), PER_CATEGORY)]


def _pair(record: Record) -> tuple[Question, Answer]:
    options = record.need("options", list)
    if not 2 <= len(options) <= 10 or not all(isinstance(option, str) for option in options):
        raise WorkloadError(f"{record.place}: 'options' must hold 2 to 10 texts")
    letter = record.need("answer", str)
    index = record.need("answer_index", int) if "answer_index" in record.data else None
    if index is not None and letter != string.ascii_uppercase[:10][index : index + 1]:
        raise WorkloadError(f"{record.place}: 'answer' and 'answer_index' name different options; restore the file")
    question = Question(
        id=f"mmlu_pro/{record.text_id('question_id')}",
        family="mmlu_pro",
        domain="choice",
        text=record.need("question", str).strip(),
        options=tuple(option.strip() for option in options),
        subject=record.need("category", str),
        version=VERSION,
    )
    return question, Answer(question_id=question.id, answer=letter)
