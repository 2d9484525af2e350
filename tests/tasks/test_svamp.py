from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lib.tasks import WorkloadError, load_questions
from tests.tasks.benchmark_files import check_real, write


def svamp(number: int, **more: Any) -> dict[str, Any]:
    fields = {"Body": f"There are {number} pens.", "Question": "How many are left?", "Answer": float(number)}
    return {"ID": f"chal-{number}", **fields, "Equation": "( 1.0 )", "Type": "Subtraction"} | more


def test_svamp(tmp_path: Path) -> None:
    rows = [svamp(number) for number in range(300)]
    made = load_questions("svamp", path=write(tmp_path / "test.json", rows))
    assert (
        made.questions[7].text == "There are 7 pens. How many are left?" and made.answers["svamp/chal-7"].answer == "7"
    )
    lower = [
        {name.lower(): value for name, value in row.items()} | {"moc_index": mark} for mark, row in enumerate(rows)
    ]
    assert load_questions("svamp", path=write(tmp_path / "test300.jsonl", lower[::-1])) == made
    with pytest.raises(WorkloadError, match=r"SVAMP\.json: 301 records, but the paper uses the test split of 300"):
        load_questions("svamp", path=write(tmp_path / "SVAMP.json", [*rows, svamp(300, Body="If there are 3 pens")]))
    every = load_questions("svamp", subset="all", path=str(tmp_path / "SVAMP.json"))
    assert every.questions[-1].text == "If there are 3 pens, How many are left?"
    assert not any(
        "Subtraction" in str(q) or "1.0" in str(q) for q in every.questions
    )  # type and equation tell the answer


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (svamp(1) | {"Answer": "many"}, "field 'answer' holds 'many', which is no number"),
        (svamp(1) | {"Answer": float("nan")}, "field 'answer' holds nan, which is no number"),
    ],
)
def test_broken_records_name_line_and_field(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "test.jsonl", [row])
    with pytest.raises(WorkloadError, match=rf"test\.jsonl, line 1: .*{words}"):
        load_questions("svamp", subset="all", path=path)


@pytest.mark.real("svamp")
def test_the_real_questions() -> None:
    check_real("svamp", 300)
