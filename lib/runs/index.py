"""The list of runs, `outputs/index.jsonl`: one JSON object a line, appended when a run ends.

Appending holds a lock, so that runners in parallel do not mix lines, and first cuts a torn last line (a runner killed while
writing) back to the last whole record. Reading skips such a tail and says so; it never stops at it and never swallows the
record after it.

Not covered: editing. Later lines win; the run folders hold the same facts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
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
    """Return the index as one table; see `runs_frame`."""
    return runs_frame(read_index(outputs)[0])


def runs_frame(entries: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return records of runs as one table: parameters as `p.<name>`, headline numbers as `h.<name>` columns.

    Members of a mapping have columns of their own, `p.<name>.<member>`; a list is its JSON text, and so is every value of a column that
    would else mix texts with numbers. So the table fits parquet.
    """
    import pandas as pd

    rows = []
    for entry in entries:
        row = {name: value for name, value in entry.items() if name not in ("parameters", "headline")}
        row |= dict(flat_values(entry.get("parameters") or {}, "p."))
        rows.append(row | dict(flat_values(entry.get("headline") or {}, "h.")))
    frame = pd.DataFrame(rows)
    for name in frame.columns:
        kinds = {type(value) for value in frame[name] if not pd.isna(value)}
        if len(kinds) > 1 and not kinds <= {int, float}:
            texts = [value if pd.isna(value) or isinstance(value, str) else json.dumps(value) for value in frame[name]]
            frame[name] = texts
    return frame


def flat_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and value of each member, those of inner mappings as `name.member`, lists as JSON text.

    >>> dict(flat_values({"seeds": [0], "caps": {"bridge": 0.5}}, "p."))
    {'p.seeds': '[0]', 'p.caps.bridge': 0.5}
    """
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat_values(value, f"{prefix}{name}.")
        else:
            text = json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
            yield f"{prefix}{name}", text


def newest(entries: list[dict[str, Any]], status: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the last record with this status of every (notebook, profile)."""
    found = {}
    for entry in entries:
        if entry.get("status") == status:
            found[(str(entry.get("notebook")), str(entry.get("profile")))] = entry
    return found
