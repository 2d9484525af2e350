from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lib.tasks.mmlu
from lib.tasks import WorkloadError, load_questions
from lib.tasks.grader_check import check_questions
from lib.tasks.mmlu import PER_SUBJECT, SUBJECTS, load
from lib.tasks.subsets import paper_rows
from tests.tasks.benchmark_files import write

SIZES = [20] * (SUBJECTS - 1) + [40]  # a small stand-in for the test split
WHOLE = sum(SIZES)
HEADING = {"question": "question", "correct_answer": "answer", "topic": "made 00"} | {
    f"answer_{x}": f"answer_{x}" for x in "abcd"
}


def registry_row(subject: int, row: int) -> dict[str, Any]:
    options = {f"answer_{letter}": f" {letter}{row} " for letter in "abcd"}
    return {
        "question": f"Question {subject}.{row}\u2028?",
        **options,
        "correct_answer": "ABCD"[row % 4],
        "topic": f"made {subject:02d}",
    }


def listed(row: dict[str, Any], number: int, **more: Any) -> dict[str, Any]:
    subject = row["topic"].replace(" ", "_")
    choices = [row[f"answer_{letter}"] for letter in "abcd"]
    return {
        "id": f"{subject}/{number}",
        "subject": subject,
        "question": row["question"],
        "choices": choices,
        "answer": row["correct_answer"],
    } | more


ROWS = [[registry_row(subject, row) for row in range(size)] for subject, size in enumerate(SIZES)]
# Subjects in another order than the alphabet's, and two heading rows, as in the registry's file.
REGISTRY = [row for rows in reversed(ROWS) for row in rows]
REGISTRY.insert(700, HEADING)
REGISTRY.append(HEADING)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lib.tasks.mmlu, "WHOLE", WHOLE)


@pytest.mark.usefixtures("small")
def test_both_forms_and_the_papers_list_give_the_same_set(tmp_path: Path) -> None:
    registry = load_questions("mmlu", path=write(tmp_path / "mmlu.jsonl", REGISTRY))
    whole = [listed(row, number) for rows in ROWS for number, row in enumerate(rows)]
    assert load_questions("mmlu", path=write(tmp_path / "test_full.jsonl.gz", whole[::-1])) == registry
    drawn = [(rows, number) for rows in ROWS for number in paper_rows(len(rows), PER_SUBJECT)]
    paper = [listed(rows[number], number, moc_index=mark) for mark, (rows, number) in enumerate(drawn)]
    assert load_questions("mmlu", path=write(tmp_path / "test_n5_per_subject.jsonl", paper[::-1])) == registry
    assert [q.id for q in registry.questions[:6]] == [
        *(f"mmlu/made_00/{row}" for row in paper_rows(20, 5)),
        f"mmlu/made_01/{paper_rows(20, 5)[0]}",
    ]
    row = paper_rows(20, 5)[0]
    assert len(registry.questions) == 285 and registry.questions[0].options == (
        f"a{row}",
        f"b{row}",
        f"c{row}",
        f"d{row}",
    )
    assert len(load(subset="all", path=str(tmp_path / "mmlu.jsonl"))) == WHOLE
    few = load_questions("mmlu", limit=57, path=str(tmp_path / "mmlu.jsonl"))
    assert len({q.subject for q in few.questions}) == 57  # one of each before a second of any
    assert load_questions("mmlu", limit=20, path=str(tmp_path / "mmlu.jsonl")).questions == few.questions[:20]
    assert load_questions("mmlu", limit=20, seed=1, path=str(tmp_path / "mmlu.jsonl")).questions != few.questions[:20]


@pytest.mark.usefixtures("small")
def test_a_repeated_question_stands_with_its_first_row(tmp_path: Path) -> None:
    drawn = paper_rows(20, 5)
    again = next(row for row in range(20) if row not in drawn and row < drawn[0])
    rows = [*ROWS[0][: drawn[0]], ROWS[0][again], *ROWS[0][drawn[0] + 1 :]]  # the row drawn first repeats another one
    path = write(tmp_path / "mmlu.jsonl", [*rows, *(row for others in ROWS[1:] for row in others)])
    assert load_questions("mmlu", path=path).questions[0].id == f"mmlu/made_00/{again}"
    assert len(load(subset="all", path=path)) == WHOLE


def test_a_part_of_the_file_cannot_give_the_papers_sample(tmp_path: Path) -> None:
    path = write(tmp_path / "mmlu.jsonl", REGISTRY[:50])
    with pytest.raises(
        WorkloadError, match=r"mmlu\.jsonl: 50 records, but the paper's sample is drawn from all 14,042"
    ):
        load_questions("mmlu", path=path)
    assert len(load_questions("mmlu", subset="all", path=path).questions) == 50


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (registry_row(0, 1) | {"answer_b": 3}, "line 2: field 'answer_b' is int"),
        (registry_row(0, 1) | {"correct_answer": "answer"}, "gold 'answer' is none of A, B, C, D"),
        (listed(registry_row(0, 1), 1, choices=["a", "b", "c"]), "line 2: 'choices' must hold four texts"),
        (listed(registry_row(0, 1), 1, id="elsewhere/1"), "line 2: 'id' must be '<subject>/<row>'"),
        (listed(registry_row(0, 1), 1, moc_index="0"), "line 2: field 'moc_index' is str"),
    ],
)
def test_broken_records_name_line_and_field(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "mmlu.jsonl", [registry_row(0, 0), row])
    with pytest.raises(WorkloadError, match=words):
        load_questions("mmlu", subset="all", path=path)


@pytest.mark.real("mmlu")
def test_the_real_questions() -> None:
    made = load_questions("mmlu")
    assert len(made.questions) == 285 and len({q.subject for q in made.questions}) == 57
    assert made.version == "mmlu-1+00422bf50d5a"  # whichever route delivered the file
    assert made.questions[0].id == "mmlu/abstract_algebra/88"
    whole = load_questions("mmlu", subset="all")  # an own copy may hold the paper's list alone
    assert len(whole.questions) in (285, 14_042) and set(made.questions) <= set(whole.questions)
    for extractor in ("robust", "official"):
        check = check_questions(whole, extractor)  # type: ignore[arg-type]
        assert (check.gold_mean, check.wrong_mean, check.failures) == (1.0, 0.0, ())
