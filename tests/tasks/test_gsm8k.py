from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lib.tasks import WorkloadError, load_questions
from lib.tasks.subsets import paper_rows
from tests.tasks.benchmark_files import check_real, write


def gsm(number: int) -> dict[str, Any]:
    return {"question": f"How many\u2028are {number}?", "answer": f"That is {number} + 1.\n#### {number + 1:,}"}


def test_gsm8k(tmp_path: Path) -> None:
    whole = [gsm(number) for number in range(1319)]
    made = load_questions("gsm8k", path=write(tmp_path / "test.jsonl", whole))
    assert load_questions("gsm8k", path=write(tmp_path / "test.parquet", whole)) == made
    assert [q.id for q in made.questions[:3]] == ["gsm8k/1145", "gsm8k/326", "gsm8k/839"] and len(made.questions) == 300
    assert made.answers["gsm8k/1145"].answer == "1146"
    rows = paper_rows(1319, 300)
    part = [gsm(row) | {"id": f"gsm8k-test-{row}", "moc_index": mark} for mark, row in enumerate(rows)]
    part.insert(9, gsm(3) | {"id": "gsm8k-test-3", "moc_index": None})
    assert load_questions("gsm8k", path=write(tmp_path / "slice.jsonl", part)) == made
    with pytest.raises(WorkloadError, match="'moc_index' must hold 0 to 299"):
        load_questions("gsm8k", path=write(tmp_path / "less.jsonl", part[:-1]))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (gsm(1) | {"answer": "1"}, "field 'answer': no number behind '####'"),
    ],
)
def test_broken_records_name_line_and_field(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "test.jsonl", [row])
    with pytest.raises(WorkloadError, match=rf"test\.jsonl, line 1: .*{words}"):
        load_questions("gsm8k", subset="all", path=path)


@pytest.mark.real("gsm8k")
def test_the_real_questions() -> None:
    check_real("gsm8k", 300)
