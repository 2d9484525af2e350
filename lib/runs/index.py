"""The list of runs, `outputs/index.jsonl`: one JSON object a line, appended when a run ends.

Appending holds a lock, so that runners in parallel do not mix lines, and first cuts a torn last line (a runner killed while
writing) back to the last whole record. Reading skips such a tail and says so; it never stops at it and never swallows the
record after it.

Not covered: editing. Later lines win; the run folders hold the same facts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

INDEX = "index.jsonl"


def append_index(outputs: Path, entry: Mapping[str, Any]) -> None:
    """Append one record, whole or not at all."""
    from filelock import FileLock

    line = json.dumps(dict(entry), ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
    outputs.mkdir(parents=True, exist_ok=True)
    with FileLock(outputs / f".{INDEX}.lock"), (outputs / INDEX).open("a+b") as file:
        file.seek(0)
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)
        file.seek(0, os.SEEK_END)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def read_index(outputs: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the records in the order they were written, and one sentence for each line that is none."""
    path = outputs / INDEX
    if not path.exists():
        return [], []
    entries, problems = [], []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError:  # half a character is a ValueError too
            entry = None
        if isinstance(entry, dict) and isinstance(entry.get("run_id"), str):
            entries.append(entry)
        else:
            problems.append(f"{path}, line {number}: no whole record ({line[:40]!r}); the run it was for is run again")
    return entries, problems


def index_frame(outputs: Path) -> pd.DataFrame:
    """Return the index as one table: parameters as `p.<name>`, headline numbers as `h.<name>` columns."""
    import pandas as pd

    rows = []
    for entry in read_index(outputs)[0]:
        row = {name: value for name, value in entry.items() if name not in ("parameters", "headline")}
        row |= {f"p.{name}": value for name, value in entry.get("parameters", {}).items()}
        row |= {f"h.{name}": value for name, value in entry.get("headline", {}).items()}
        rows.append(row)
    return pd.DataFrame(rows)


def newest(entries: list[dict[str, Any]], status: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the last record with this status of every (notebook, profile)."""
    found = {}
    for entry in entries:
        if entry.get("status") == status:
            found[(str(entry.get("notebook")), str(entry.get("profile")))] = entry
    return found
