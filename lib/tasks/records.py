"""Read frozen data sets record by record and say exactly where one is broken.

Frozen data are never mended: a line that is cut off or half a character is an error with file and line number, since dropping it
would change the data set without a word. (A growing log is another matter; see the stores.)

Not covered: finding the files (`lib.sources`).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lib.seeds import hash_order
from lib.tasks.task import WorkloadError


class Record(NamedTuple):
    """A record and the place it came from, for error messages."""

    place: str
    data: dict[str, Any]

    def need(self, field: str, *kinds: type) -> Any:
        """Return a field, or raise an error that names place, field and the types it may have."""
        if field not in self.data:
            raise WorkloadError(f"{self.place}: field {field!r} is missing; is this the right file?")
        value = self.data[field]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise WorkloadError(f"{self.place}: field {field!r} is {type(value).__name__}, expected {wanted}")
        return value

    def text_id(self, *fields: str) -> str:
        """Return the first of `fields` that is there, as text."""
        for field in fields:
            if field in self.data:
                return str(self.need(field, str, int))
        raise WorkloadError(f"{self.place}: field {fields[0]!r} is missing; is this the right file?")


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a data file.

    Parameters
    ----------
    path
        ``.jsonl`` or ``.json`` (a list of objects), either of them with ``.gz``, or ``.parquet``.

    Raises
    ------
    WorkloadError
        The file is missing, damaged, or holds something else; the message names file, line or record, and the fix.
    """
    if not path.is_file():
        raise WorkloadError(f"{path}: no such file; fetch the data set or set LAB_DATA to the folder that holds it")
    name = path.name.removesuffix(".gz")
    if name.endswith(".jsonl"):
        yield from _json_lines(path)
    elif name.endswith(".json"):
        yield from _json_list(path)
    elif name.endswith(".parquet"):
        yield from _parquet(path)
    else:
        raise WorkloadError(f"{path}: expected .jsonl, .json (also with .gz) or .parquet")


def first_file(folder: Path, names: tuple[str, ...], what: str) -> Path:
    """Return the first of `names` that exists in a folder (or in its ``data`` folder); a file is returned as it is."""
    if folder.is_file():
        return folder
    for name in names:
        for place in (folder / name, folder / "data" / name):
            if place.is_file():
                return place
    raise WorkloadError(f"{folder}: no {what} here; expected one of {', '.join(names)}")


def stratified(groups: dict[str, list[str]], count: int) -> list[str]:
    """Return `count` ids, each group in proportion to its size (largest remainder); within a group the first ones.

    Examples
    --------
    >>> stratified({"a": ["a1", "a2", "a3", "a4"], "b": ["b1", "b2"]}, 3)
    ['a1', 'a2', 'b1']
    """
    total = sum(len(ids) for ids in groups.values())
    if count >= total:
        return [item for ids in groups.values() for item in ids]
    exact = {name: count * len(ids) / total for name, ids in groups.items()}
    take = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(groups, key=lambda name: (-(exact[name] - take[name]), name))
    for name in by_remainder[: count - sum(take.values())]:
        take[name] += 1
    return [item for name, ids in groups.items() for item in ids[: take[name]]]


def draw_ids(groups: dict[str, list[str]], count: int, family: str, seed: int) -> list[str]:
    """Return `count` ids drawn by SHA-256 of (family, seed, id), stratified by group, in that same order."""
    ordered = {name: hash_order(ids, "pool", family, seed) for name, ids in groups.items()}
    return hash_order(stratified(ordered, count), "pool", family, seed)


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _json_lines(path: Path) -> Iterator[Record]:
    number = 0
    try:
        with _open(path) as file:
            # Bytes, split at "\n" alone: texts may hold U+2028 and friends, which str.splitlines would cut at.
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield Record(
                        f"{path}, line {number}", _object(line, f"{path}, line {number}", line.endswith(b"\n"))
                    )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(
            f"{path}, after line {number}: compressed data end early or are damaged ({error}); restore it"
        ) from error


def _object(line: bytes, place: str, complete: bool) -> dict[str, Any]:
    end = "" if complete else " (the last line has no end: the file is cut off)"
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise WorkloadError(
            f"{place}: not UTF-8 at byte {error.start}{end}; restore the file from its source"
        ) from error
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{place}: not JSON: {error}{end}; restore the file from its source") from error
    if not isinstance(value, dict):
        raise WorkloadError(f"{place}: expected a JSON object, found {type(value).__name__}")
    return value


def _json_list(path: Path) -> Iterator[Record]:
    try:
        with _open(path) as file:
            value = json.loads(file.read().decode("utf-8-sig"))
    except (ValueError, RecursionError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(f"{path}: not a whole JSON file ({error}); restore it from its source") from error
    if not isinstance(value, list):
        raise WorkloadError(f"{path}: expected a JSON list of records, found {type(value).__name__}")
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            raise WorkloadError(f"{path}, record {number}: expected an object, found {type(item).__name__}")
        yield Record(f"{path}, record {number}", item)


def _parquet(path: Path) -> Iterator[Record]:
    import pyarrow.parquet  # slow to import, and only the hub's files need it

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise WorkloadError(f"{path}: not a whole parquet file ({error}); restore it from its source") from error
    for number, row in enumerate(rows):
        yield Record(f"{path}, row {number}", row)
