from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lib.tasks import WorkloadError, load_questions
from tests.tasks.benchmark_files import check_real, write


def aqua(number: int, **more: Any) -> dict[str, Any]:
    options = [f"{letter}){number}.{letter}" for letter in "ABCDE"]
    return {"question": f"Solve {number}", "options": options, "rationale": "?", "correct": "ABCDE"[number % 5]} | more


def test_aqua(tmp_path: Path) -> None:
    made = load_questions("aqua", path=write(tmp_path / "test.jsonl", [aqua(number) for number in range(9)]))
    assert (
        made.questions[8].id == "aqua/8"
        and made.questions[8].options[0] == "8.A"
        and made.questions[8].domain == "math"
    )
    assert made.answers["aqua/8"].answer == "D"
    named = [aqua(number) | {"id": f"aqua-test-{number}"} for number in range(9)]
    assert load_questions("aqua", path=write(tmp_path / "named.jsonl", named)) == made


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            aqua(1) | {"options": ["A)1", "B)2", "C)3", "D)4"]},
            r"'options' must hold five texts that start with A\)",
        ),
        (aqua(1) | {"options": ["A)1", "C)2", "B)3", "D)4", "E)5"]}, "'options' must hold five texts"),
    ],
)
def test_broken_records_name_line_and_field(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "test.jsonl", [row])
    with pytest.raises(WorkloadError, match=rf"test\.jsonl, line 1: .*{words}"):
        load_questions("aqua", subset="all", path=path)


@pytest.mark.real("aqua")
def test_the_real_questions() -> None:
    check_real("aqua", 254)
