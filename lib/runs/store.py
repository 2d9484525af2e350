"""Keep every model reply once, in one SQLite file of JSON values.

A row is named by kind ("reply" or "score"), receiver fingerprint, prompt key (exact token ids and schema), decoding
parameters and sample index. Replies that failed live in a table of their own and are never served. Two processes
may write at once; a killed process loses at most what it had not committed. A file that is not such a store -
another database, a pickle, a torn file - is refused by name. Nothing is ever unpickled.

Not covered: sharing over a network drive (SQLite's write-ahead log needs shared memory; such a place is refused),
eviction, and latency: the seconds of a stored reply are those of the machine that computed it, so they are kept for
the record only.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["reply", "score"]

APPLICATION = 0x41434C31  # "ACL1" in the file's header tells our stores from other databases
VERSION = 1
BUSY_SECONDS = 60.0
CHECKED_BYTES = 64 * 2**20  # stores up to this size are checked for damage whenever they are opened
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "afs"})
_FIELDS = "kind, receiver, prompt, decoding, sample"
_KEY = ", ".join(f"{field} {'INTEGER' if field == 'sample' else 'TEXT'} NOT NULL" for field in _FIELDS.split(", "))
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS reply (
  id INTEGER PRIMARY KEY, {_KEY}, name TEXT NOT NULL, value TEXT NOT NULL, created TEXT NOT NULL,
  UNIQUE ({_FIELDS}));
CREATE TABLE IF NOT EXISTS failure (
  id INTEGER PRIMARY KEY, {_KEY}, name TEXT NOT NULL, error TEXT NOT NULL, created TEXT NOT NULL);
"""


class StoreError(Exception):
    """The store's file is damaged, foreign, or lies where it cannot work; the message names file and remedy."""


class Key(msgspec.Struct, frozen=True):
    """What a row answers; see the module header. `decoding` is canonical JSON, see `decoding_key`."""

    kind: Kind
    receiver: str
    prompt: str
    decoding: str
    sample: int = 0


def decoding_key(**parameters: Any) -> str:
    """Return decoding parameters as canonical JSON: equal parameters give equal text."""
    return json.dumps(parameters, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


class Store:
    """A file of stored replies.

    Parameters
    ----------
    path : path
        The SQLite file; it and its folder are created when missing.
    read_only : bool
        Read a file that is there, change nothing and create nothing.

    Attributes
    ----------
    hits, misses : int
        Rows found and not found by `get` since this object was made.

    Raises
    ------
    StoreError
        When the file is not a store, is damaged, or its drive cannot hold a write-ahead log.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path = Path(path).absolute()
        self.hits = 0
        self.misses = 0
        if read_only:
            self._open_to_read()
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self.path}: its folder cannot be made ({error.strerror}); set LAB_STORE to a file elsewhere"
            ) from error
        _refuse_network_drive(self.path)
        _refuse_foreign_file(self.path)
        with self._named_errors():
            # autocommit mode: transactions are opened by name below, never by the driver behind our back
            self._db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the last writer folds the write-ahead log into it."""
        self._db.close()

    def _open_to_read(self) -> None:
        _refuse_network_drive(self.path)
        _refuse_foreign_file(self.path)
        with self._named_errors():
            self._db = sqlite3.connect(
                f"{self.path.as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS, isolation_level=None
            )
            try:
                (application,) = self._db.execute("PRAGMA application_id").fetchone()
                (version,) = self._db.execute("PRAGMA user_version").fetchone()
                if (application, version) != (APPLICATION, VERSION):
                    raise StoreError(f"{self.path}: not a store of this version; choose another path (LAB_STORE)")
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        """Check identity, switch to write-ahead logging, create tables and look for damage."""
        with self._writing():
            (application,) = self._db.execute("PRAGMA application_id").fetchone()
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables and application != APPLICATION:
                raise StoreError(
                    f"{self.path}: a SQLite database of another program; choose another path for the store (LAB_STORE)"
                )
            if tables and version != VERSION:
                raise StoreError(
                    f"{self.path}: store layout {version}, this version reads {VERSION}; "
                    "move the file aside to have its replies computed anew"
                )
            if not tables:
                self._db.execute(f"PRAGMA application_id = {APPLICATION}")
                self._db.execute(f"PRAGMA user_version = {VERSION}")
                for statement in _SCHEMA.split(";"):
                    self._db.execute(statement)
        mode = self._switch_to_wal()
        if mode != "wal":
            raise StoreError(
                f"{self.path}: this drive does not support write-ahead logging (journal mode stays '{mode}'), "
                "as on network drives; "
                "set LAB_STORE to a path on a local disk"
            )
        self._db.execute("PRAGMA synchronous = NORMAL")  # with WAL a killed process loses nothing that was committed
        if self.path.stat().st_size <= CHECKED_BYTES:
            self._refuse_damage("quick_check")

    def _switch_to_wal(self) -> str:
        """Ask for write-ahead logging and return the mode in force."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                (mode,) = self._db.execute("PRAGMA journal_mode = WAL").fetchone()
                return str(mode)
            except sqlite3.OperationalError as error:
                # two processes that create the file together: SQLite does not wait for this lock by itself
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def check(self) -> int:
        """Check the whole file and every row's JSON; return the number of replies.

        Raises
        ------
        StoreError
            When SQLite finds damage or a value is not readable; the row is named.
        """
        self._refuse_damage("integrity_check")
        count = 0
        with self._named_errors():
            for row, value in self._db.execute("SELECT id, value FROM reply ORDER BY id"):
                self._value(row, value)
                count += 1
        return count

    def get(self, keys: Sequence[Key], *, count: bool = True) -> dict[Key, dict[str, Any]]:
        """Return the values of those `keys` that are stored; `count` adds to hits and misses."""
        found: dict[Key, dict[str, Any]] = {}
        groups: dict[tuple[Kind, str, str], set[str]] = {}
        for key in keys:
            groups.setdefault((key.kind, key.receiver, key.decoding), set()).add(key.prompt)
        wanted = set(keys)
        with self._named_errors():
            for (kind, receiver, decoding), prompts in groups.items():
                for some in _batches(sorted(prompts), 500):  # SQLite's limit on bound variables is 999 in old builds
                    marks = ",".join("?" * len(some))
                    rows = self._db.execute(
                        "SELECT id, prompt, sample, value FROM reply WHERE kind = ? AND receiver = ? AND decoding = ? "
                        f"AND prompt IN ({marks})",
                        (kind, receiver, decoding, *some),
                    )
                    for row, prompt, sample, value in rows:
                        key = Key(kind, receiver, prompt, decoding, sample)
                        if key in wanted:
                            found[key] = self._value(row, value)
        if count:
            self.hits += len(found)
            self.misses += len(wanted) - len(found)
        return found

    def put(self, rows: Iterable[tuple[Key, dict[str, Any]]], *, name: str = "") -> int:
        """Store values in one transaction and return how many were new; the first writer of a key wins."""
        now = _now()
        records = [(*msgspec.structs.astuple(key), _utf8(name), _dump(value), now) for key, value in rows]
        with self._named_errors(), self._writing():
            before = self._db.total_changes
            self._db.executemany(
                f"INSERT INTO reply ({_FIELDS}, name, value, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                f"ON CONFLICT ({_FIELDS}) DO NOTHING",
                records,
            )
            return self._db.total_changes - before

    def put_failures(self, rows: Iterable[tuple[Key, str]], *, name: str = "") -> None:
        """Record calls that failed and why. They are never served, so the next call tries again."""
        now = _now()
        records = [(*msgspec.structs.astuple(key), _utf8(name), json.dumps(error), now) for key, error in rows]
        with self._named_errors(), self._writing():
            self._db.executemany(
                f"INSERT INTO failure ({_FIELDS}, name, error, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", records
            )

    def rows(self, receiver: str) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Return every stored value of one receiver, by its fingerprint, in the order of writing."""
        with self._named_errors():
            for row, kind, prompt, decoding, sample, value in self._db.execute(
                "SELECT id, kind, prompt, decoding, sample, value FROM reply WHERE receiver = ? ORDER BY id",
                (receiver,),
            ):
                yield Key(kind, receiver, prompt, decoding, sample), self._value(row, value)

    def stats(self) -> dict[str, int]:
        """Return hits and misses of this object and the file's numbers of replies, scores and failures."""
        with self._named_errors():
            kinds = dict(self._db.execute("SELECT kind, COUNT(*) FROM reply GROUP BY kind"))
            (failures,) = self._db.execute("SELECT COUNT(*) FROM failure").fetchone()
        return {
            "hits": self.hits,
            "misses": self.misses,
            "replies": kinds.get("reply", 0),
            "scores": kinds.get("score", 0),
            "failures": failures,
        }

    def frame(self) -> pd.DataFrame:
        """Return every row, failures included, as a table; `status` is "ok" or "failed", missing values are null."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        with self._named_errors():
            for row, *key, name, value, created in self._db.execute(
                f"SELECT id, {_FIELDS}, name, value, created FROM reply ORDER BY id"
            ):
                rows.append({**_columns(key, name, created), "status": "ok", **_plain(self._value(row, value))})
            for *key, name, error, created in self._db.execute(
                f"SELECT {_FIELDS}, name, error, created FROM failure ORDER BY id"
            ):
                rows.append({**_columns(key, name, created), "status": "failed", "error": _utf8(json.loads(error))})
        columns = [*_columns(["", "", "", "", 0], "", ""), "status", "text", "token_ids", "prompt_tokens", "new_tokens"]
        frame = pd.DataFrame(rows, columns=[*columns, "seconds", "finish", "scores", "error"])
        # the name says what these seconds are: another run's clock, no latency of this one
        frame = frame.rename(columns={"seconds": "stored_seconds"})
        return frame.astype(
            {"sample": "Int64", "prompt_tokens": "Int64", "new_tokens": "Int64", "stored_seconds": "Float64"}
        )

    def export_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Write `frame()` to a parquet file, whole or not at all, and return its path."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        self.frame().to_parquet(partial, index=False)
        os.replace(partial, target)
        return target

    def _value(self, row: int, text: str) -> dict[str, Any]:
        """Read a row's JSON object; damage is named, not skipped."""
        try:
            value = json.loads(text)
        except (ValueError, TypeError):
            value = None
        if not isinstance(value, dict):
            raise StoreError(
                f"{self.path}: table reply, row {row}: value is not a JSON object; "
                "delete this row to have it computed anew"
            )
        return value

    def _refuse_damage(self, check: str) -> None:
        with self._named_errors():
            findings = [" ".join(str(text).split()) for (text,) in self._db.execute(f"PRAGMA {check}(3)")]
        if findings != ["ok"]:
            raise StoreError(f"{self.path}: damaged ({'; '.join(findings)}); {_REMEDY}")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the write lock from the start, so that a wait happens here and not in the middle of a transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk has ended it already, and a second end would hide the reason
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:
            raise  # a mistake of the caller (closed store, other thread), not of the file
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise StoreError(
                    f"{self.path}: another process kept the store locked for {BUSY_SECONDS:.0f} s; run again"
                ) from error
            raise StoreError(f"{self.path}: {error}; is the folder writable, on a local disk and not full?") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path}: {error}; {_REMEDY}") from error


_REMEDY = "move the file aside (its replies are computed anew) or rescue it with `sqlite3 FILE .recover`"


def _columns(key: Sequence[Any], name: str, created: str) -> dict[str, Any]:
    kind, receiver, prompt, decoding, sample = key
    return {
        "kind": kind,
        "receiver": receiver,
        "name": name,
        "prompt": prompt,
        "decoding": decoding,
        "sample": sample,
        "created": created,
    }


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return a row's value as columns that parquet can hold."""
    columns = dict(value)
    if "scores" in value:
        columns["scores"] = [float(score) for score in value["scores"]]
    if "text" in value:  # stored as it came
        columns["text"] = _utf8(value["text"])
    return columns


def _utf8(text: str) -> str:
    """Return a text as UTF-8 can hold it: half a surrogate pair, as in an odd file name, becomes \\ud800."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _batches(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _dump(value: dict[str, Any]) -> str:
    """Return a value as plain JSON; a number that JSON does not know is refused where it is made."""
    for field, content in value.items():
        if isinstance(content, float) and not math.isfinite(content):
            raise ValueError(f"store value, field '{field}': {content} is not a finite number")
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _refuse_foreign_file(path: Path) -> None:
    """Refuse anything at `path` that is not a SQLite file, before SQLite touches it."""
    if not path.exists():
        return
    if not path.is_file():
        raise StoreError(f"{path}: is {'a folder' if path.is_dir() else 'no regular file'}; LAB_STORE names a file")
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); choose another path (LAB_STORE)") from error
    if not os.access(path, os.W_OK):  # SQLite would open it all the same and fail when the first replies are computed
        raise StoreError(f"{path}: cannot be written; make it writable or choose another path (LAB_STORE)")
    if not head or head == b"SQLite format 3\0":
        return
    pickled = head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")
    kind = "a Python pickle, which is never opened" if pickled else f"it starts with {head!r}"
    raise StoreError(f"{path}: not a store ({kind}); choose another path (LAB_STORE) or move the file aside")


def _refuse_network_drive(path: Path) -> None:
    """Refuse a path on a mounted network drive, where write-ahead logging breaks between hosts (seen on Linux)."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return
    best, kind = "", ""
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        if len(point) >= len(best) and path.is_relative_to(point):
            best, kind = point, fields[2]
    if kind in _NETWORK:
        raise StoreError(f"{path}: lies on a network drive ({kind} at {best}); set LAB_STORE to a path on a local disk")
