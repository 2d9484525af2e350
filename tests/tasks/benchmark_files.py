"""Small data files in every form that the loaders of questions read, and the check of a whole real set."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from lib.tasks import load_questions
from lib.tasks.grader_check import check_questions


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    """Write records as the file's suffix says: .parquet, .json (a list), .jsonl or .jsonl.gz."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return str(path)


def check_real(name: str, count: int) -> None:
    """Load a real set and grade it with gold and with wrong answers, by both extractors."""
    made = load_questions(name)
    assert len(made.questions) == count
    for extractor in ("robust", "official"):
        check = check_questions(made, extractor)  # type: ignore[arg-type]
        assert (check.tasks, check.gold_mean, check.wrong_mean, check.failures) == (count, 1.0, 0.0, ())
