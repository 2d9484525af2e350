"""MMLU: multiple choice over 57 subjects, four options each.

Reads the test questions from either of two forms: one record a row with fields for each option (the registry's file, which has no ids), or
records with ``id`` and ``choices``. An id is "mmlu/<subject>/<row>", the row counted within the subject as in the official CSV files, so
both forms give the same questions.

Not covered: the five-shot examples, the auxiliary training data, errors in the gold answers (some are known).
"""

from __future__ import annotations

from pathlib import Path

from lib.sources import locate
from lib.tasks.questions import Answer, Question
from lib.tasks.records import Record, first_file, read_records
from lib.tasks.subsets import mark_of, marked, need_whole, paper_rows
from lib.tasks.task import WorkloadError

VERSION = "mmlu-1"
PER_SUBJECT = 5
SUBJECTS = 57
WHOLE = 14_042  # questions of the test split
_FILES = ("mmlu.jsonl", "test_full.jsonl.gz", "test_full.jsonl", "test_n5_per_subject.jsonl")
_OPTIONS = ("answer_a", "answer_b", "answer_c", "answer_d")


def load(*, subset: str = "moc", path: str | None = None) -> list[tuple[Question, Answer]]:
    """Load test questions.

    Parameters
    ----------
    subset
        "moc": 5 a subject, those of the paper: by ``moc_index`` where the file has it, else drawn by the paper's rule. "all": every
        question of the file, by subject and row.
    path
        Data file or folder; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field, or the file does not hold the paper's sample.
    SourceError
        The data are not there.
    """
    file = first_file(locate("mmlu") if path is None else Path(path).expanduser(), _FILES, "MMLU questions")
    rows: dict[str, int] = {}
    found = []
    for record in read_records(file):
        if not _is_heading(record):
            pair = _pair(record, rows)
            found.append((mark_of(record), pair))
    if subset == "moc" and (chosen := marked(found, PER_SUBJECT * SUBJECTS, str(file))) is not None:
        return chosen
    by_subject: dict[str, list[tuple[Question, Answer]]] = {}
    for _, pair in found:
        by_subject.setdefault(pair[0].subject, []).append(pair)
    ordered = [sorted(by_subject[subject], key=_row) for subject in sorted(by_subject)]
    if subset == "all":
        return [pair for pairs in ordered for pair in pairs]
    need_whole(len(found), WHOLE, str(file))
    return [pair for pairs in ordered for pair in _sample(pairs)]


def _is_heading(record: Record) -> bool:
    """The registry's file holds two heading rows of the CSV files it was made from."""
    return record.data.get("correct_answer") == "answer" and record.data.get("question") == "question"


def _pair(record: Record, rows: dict[str, int]) -> tuple[Question, Answer]:
    if "topic" in record.data:
        subject = record.need("topic", str).replace(" ", "_")
        row = rows[subject] = rows.get(subject, -1) + 1
        name, letter = f"{subject}/{row}", record.need("correct_answer", str)
        options = [record.need(field, str) for field in _OPTIONS]
    else:
        subject, name = record.need("subject", str), record.text_id("id")
        letter, options = record.need("answer", str), record.need("choices", list)
        if len(options) != 4 or not all(isinstance(option, str) for option in options):
            raise WorkloadError(f"{record.place}: 'choices' must hold four texts")
        if not (name.startswith(f"{subject}/") and name.removeprefix(f"{subject}/").isdecimal()):
            raise WorkloadError(f"{record.place}: 'id' must be '<subject>/<row>', got {name!r}")
    question = Question(
        id=f"mmlu/{name}",
        family="mmlu",
        domain="choice",
        text=record.need("question", str).strip(),
        options=tuple(option.strip() for option in options),
        subject=subject,
        version=VERSION,
    )
    return question, Answer(question_id=question.id, answer=letter)


def _row(pair: tuple[Question, Answer]) -> int:
    return int(pair[0].id.rsplit("/", 1)[1])


def _sample(pairs: list[tuple[Question, Answer]]) -> list[tuple[Question, Answer]]:
    """Return the paper's sample of one subject. A question that the test split repeats stands with its first row."""
    first: dict[tuple[object, ...], tuple[Question, Answer]] = {}
    for question, answer in pairs:
        first.setdefault((question.text, question.options, answer.answer), (question, answer))
    drawn = [pairs[row] for row in paper_rows(len(pairs), PER_SUBJECT)]
    return [first[question.text, question.options, answer.answer] for question, answer in drawn]
