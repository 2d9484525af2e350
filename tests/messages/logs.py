"""Logs in miniature, written to a file and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lib.messages.import_logs import Format, read_log
from lib.messages.logged import ImportedLog


def read(folder: Path, value: Any, format: Format = "auto") -> ImportedLog:
    """Write one JSON value and read it as a log."""
    path = folder / "log.json"
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return read_log(path, format)


def read_lines(folder: Path, *values: Any) -> ImportedLog:
    """Write one JSON value a line and read the file as a log."""
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return read_log(path)


def said(log: ImportedLog) -> list[tuple[str, str, str]]:
    """Return (sender, kind, text) of every message."""
    return [(message.sender, message.kind, message.text) for message in log.messages]
