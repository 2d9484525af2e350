"""Read the JSON values of a log file, line by line where it is JSON Lines, with the number of every line that is none.

A byte order mark says the encoding (UTF-8, UTF-16 or UTF-32, as some shells write); without one it is UTF-8. Only a
line feed ends a line: U+2028 and its like may stand inside a text. A line that is not JSON, or not UTF-8, is reported
and the next one is read. A torn last line is such a line. One value in the whole file, over however many lines, is
read at once.

Not covered: compressed files, several values on one line, YAML.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from lib.messages.logged import LogError, Problem

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_PROBE = 50  # non-blank lines that are tried when the file is no JSON value as a whole


class Value(NamedTuple):
    """One JSON value of a file and where it stands: ``line 3``, or empty for the whole file."""

    place: str
    content: Any


def read_values(path: str | Path) -> Iterator[Value | Problem]:
    """Yield the JSON values of a file and, in their place, the lines that are none.

    Raises
    ------
    LogError
        When the file is missing, empty, or neither JSON nor JSON Lines; the message names line and column.
    """
    file = Path(path)
    if not file.is_file():
        raise LogError(f"{file}: no such file; name a log file (JSON or JSON Lines)")
    encoding, skip = _encoding(file)
    first, more = _opening(file, encoding, skip)
    if first and (more or file.suffix in (".jsonl", ".ndjson")):
        yield from _lines(file, encoding, skip)
        return
    try:
        whole = _whole(file, encoding, skip)
    except LogError:
        if not _mostly_lines(file, encoding, skip):
            raise
        yield from _lines(file, encoding, skip)
        return
    yield Value("", whole)


def _whole(file: Path, encoding: str, skip: int) -> Any:
    """Return the one JSON value of a file, or raise `LogError`."""
    try:
        text = file.read_bytes()[skip:].decode(encoding)
    except UnicodeDecodeError as error:
        raise LogError(f"{file}: not {encoding} at byte {error.start + skip}; save the log as UTF-8") from None
    if not text.strip("\0 \t\r\n"):
        raise LogError(f"{file}: the file is empty")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        begins = text.strip()[:40]
        raise LogError(
            f"{file}: neither JSON nor JSON Lines: line {error.lineno}, column {error.colno}: {error.msg}; "
            f"it begins with {begins!r}. A log that was cut off as one JSON value cannot be read; write JSON Lines"
        ) from None
    except (RecursionError, ValueError) as error:
        raise LogError(f"{file}: not readable as JSON: {error}") from None


def _encoding(file: Path) -> tuple[str, int]:
    with file.open("rb") as handle:
        head = handle.read(4)
    return next(((name, len(mark)) for mark, name in _MARKS if head.startswith(mark)), ("utf-8", 0))


def _raw_lines(file: Path, encoding: str, skip: int) -> Iterator[tuple[int, bytes]]:
    """Yield (number, bytes) of the lines that are not blank."""
    feed = "\n".encode(encoding)
    with file.open("rb") as handle:
        handle.seek(skip)
        if len(feed) == 1:
            lines: Iterator[bytes] = iter(handle)
        else:  # in UTF-16 and UTF-32 a byte 0A alone is no line feed
            lines = (line.encode(encoding) for line in handle.read().decode(encoding, "replace").split("\n"))
        for number, line in enumerate(lines, start=1):
            if line.strip(b" \t\r\n\0"):
                yield number, line


def _opening(file: Path, encoding: str, skip: int) -> tuple[bool, bool]:
    """Tell whether the first line is a JSON value of its own, and whether more lines follow."""
    lines = _raw_lines(file, encoding, skip)
    first = next(lines, None)
    return first is not None and _is_value(_parse(*first, encoding)), next(lines, None) is not None


def _mostly_lines(file: Path, encoding: str, skip: int) -> bool:
    """Tell whether most of the first lines are JSON values: lines that are none then stand among JSON Lines."""
    found = [_is_value(_parse(*line, encoding)) for line in islice(_raw_lines(file, encoding, skip), _PROBE)]
    return 2 * sum(found) > len(found)


def _is_value(found: Value | Problem) -> bool:
    return isinstance(found, Value) and isinstance(found.content, dict | list)


def _lines(file: Path, encoding: str, skip: int) -> Iterator[Value | Problem]:
    for number, line in _raw_lines(file, encoding, skip):
        yield _parse(number, line, encoding)


def _parse(number: int, line: bytes, encoding: str) -> Value | Problem:
    place = f"line {number}"
    try:
        return Value(place, json.loads(line.decode(encoding)))
    except UnicodeDecodeError as error:
        return Problem(place, "", f"not {encoding} at byte {error.start} of the line")
    except json.JSONDecodeError as error:
        return Problem(place, "", f"not JSON at column {error.colno}: {error.msg}")
    except (RecursionError, ValueError) as error:
        return Problem(place, "", f"not readable as JSON: {error}")
