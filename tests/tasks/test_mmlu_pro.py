from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lib.tasks.mmlu_pro
from lib.tasks import WorkloadError, load_questions
from lib.tasks.subsets import paper_rows
from tests.tasks.benchmark_files import check_real, write

PRO_SIZES = [30] * 13 + [50]  # a small stand-in for the test split


def pro(number: int, category: int) -> dict[str, Any]:
    index = number % 4
    options = [f" option {number}.{i}" for i in range(4 + number % 7)]
    return {
        "question_id": number,
        "question": f"Which of {number}?",
        "options": options,
        "answer": "ABCD"[index],
        "answer_index": index,
        "category": f"made {category:02d}",
        "src": "made",
    }


def test_mmlu_pro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lib.tasks.mmlu_pro, "WHOLE", sum(PRO_SIZES))
    starts = [sum(PRO_SIZES[:category]) for category in range(14)]
    groups = [[pro(starts[c] + i, c) for i in range(size)] for c, size in enumerate(PRO_SIZES)]
    whole = [row for rows in groups for row in rows]
    made = load_questions("mmlu_pro", path=write(tmp_path / "test.parquet", whole[::-1]))
    assert len(made.questions) == 280 and [q.subject for q in made.questions[::20]] == [
        f"made {c:02d}" for c in range(14)
    ]
    assert made.questions[0].id == f"mmlu_pro/{paper_rows(30, 20)[0]}"
    assert {len(q.options) for q in made.questions} == set(range(4, 11))
    drawn = [rows[place] for rows in groups for place in paper_rows(len(rows), 20)]
    paper = [row | {"moc_index": mark} for mark, row in enumerate(drawn)]
    assert load_questions("mmlu_pro", path=write(tmp_path / "test_n20_per_category.jsonl", paper[::-1])) == made
    assert len(load_questions("mmlu_pro", subset="all", path=str(tmp_path / "test.parquet")).questions) == sum(
        PRO_SIZES
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (pro(1, 0) | {"options": ["x"]}, "'options' must hold 2 to 10 texts"),
        (pro(1, 0) | {"options": ["x", 2]}, "'options' must hold 2 to 10 texts"),
        (pro(1, 0) | {"answer": "A"}, "'answer' and 'answer_index' name different options"),
        (pro(1, 0) | {"answer_index": 99}, "'answer' and 'answer_index' name different options"),
    ],
)
def test_broken_records_name_line_and_field(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "test.jsonl", [row])
    with pytest.raises(WorkloadError, match=rf"test\.jsonl, line 1: .*{words}"):
        load_questions("mmlu_pro", subset="all", path=path)


@pytest.mark.real("mmlu_pro")
def test_the_real_questions() -> None:
    check_real("mmlu_pro", 280)
