"""Freeze the messages of a workload and load them back byte for byte.

A corpus folder holds `manifest.json` and one messages file, JSON Lines sorted by (task id, slot). The manifest
records what produced the messages (hashes of prompts and sources, the model's fingerprint, decoding) and the SHA-256
of the file and of each line. It names the messages file by content hash and is replaced last, so a write that is cut
anywhere leaves the previous corpus whole. Nothing in a corpus depends on the time or the machine: equal messages give
equal bytes.

Not covered: producing messages (`lib.messages.produce`), and gold answers, which never enter a corpus.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from lib.messages.message import Message

FORMAT = 1
MANIFEST = "manifest.json"
ORIGIN_KEYS = ("prompts_sha256", "sources_sha256", "model", "model_fingerprint", "decoding")


class CorpusError(ValueError):
    """A corpus that cannot be frozen or loaded; the text names the file, the line and the fix."""


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """The fields every manifest has, with their kinds."""

    format: int
    workload: str
    version: str
    messages: int
    tasks: int
    fallbacks: int
    prompts_sha256: str
    sources_sha256: str
    model: str
    model_fingerprint: str
    decoding: dict[str, Any]
    messages_sha256: str
    lines_sha256: list[str]


class Corpus(msgspec.Struct, frozen=True):
    """Frozen messages with the record of their origin.

    Parameters
    ----------
    workload, version : the workload the messages answer, and its version
    messages : sorted by (task id, slot), at most one per pair
    manifest : see `freeze`; plain JSON values
    """

    workload: str
    version: str
    messages: tuple[Message, ...]
    manifest: dict[str, Any]

    def by_task(self) -> dict[str, list[Message]]:
        """Return the messages of each task in slot order, tasks in id order."""
        tasks: dict[str, list[Message]] = {}
        for message in self.messages:
            tasks.setdefault(message.task_id, []).append(message)
        return tasks

    @property
    def fallback_rate(self) -> float:
        """Share of messages built by rule because the reply could not be parsed; NaN without messages."""
        if not self.messages:
            return float("nan")
        return sum(message.fallback for message in self.messages) / len(self.messages)


def freeze(workload: str, version: str, messages: Iterable[Message], origin: Mapping[str, Any]) -> Corpus:
    """Return the corpus of `messages` with a manifest of hashes.

    Parameters
    ----------
    workload, version : name and version of the workload
    messages : in any order
    origin : exactly the keys ``prompts_sha256``, ``sources_sha256``, ``model``, ``model_fingerprint`` and
        ``decoding``, as JSON values

    Raises
    ------
    CorpusError
        If an origin key is missing or unknown, or two messages share task and slot.
    """
    missing = [key for key in ORIGIN_KEYS if key not in origin]
    unknown = sorted(set(origin) - set(ORIGIN_KEYS))
    if missing or unknown:
        raise CorpusError(
            f"corpus {workload!r}: origin lacks {missing} and has unknown {unknown}; give {list(ORIGIN_KEYS)}"
        )
    ordered = tuple(sorted(messages, key=lambda message: (message.task_id, message.slot)))
    for before, after in pairwise(ordered):
        if (before.task_id, before.slot) == (after.task_id, after.slot):
            raise CorpusError(f"corpus {workload!r}: task {after.task_id!r} has two messages in slot {after.slot}")
    lines = _lines(ordered)
    manifest = {
        "format": FORMAT,
        "workload": workload,
        "version": version,
        "messages": len(ordered),
        "tasks": len({message.task_id for message in ordered}),
        "fallbacks": sum(message.fallback for message in ordered),
        **{key: origin[key] for key in ORIGIN_KEYS},
        "messages_sha256": hashlib.sha256(b"".join(lines)).hexdigest(),
        "lines_sha256": [hashlib.sha256(line).hexdigest()[:16] for line in lines],
    }
    # One trip through JSON turns tuples into lists here and now, so that a reloaded manifest compares equal.
    plain = json.loads(_dump(manifest))
    try:
        msgspec.convert(plain, _Manifest)
    except msgspec.ValidationError as error:
        raise CorpusError(f"corpus {workload!r}: origin: {error}") from None
    return Corpus(workload, version, ordered, plain)


def save_corpus(folder: Path | str, corpus: Corpus) -> Path:
    """Write `corpus` into `folder` and return the folder. Writing the same corpus again changes nothing.

    Raises
    ------
    CorpusError
        If the manifest does not belong to the messages (a corpus put together by hand).
    """
    folder = Path(folder)
    data = b"".join(_lines(corpus.messages))
    if hashlib.sha256(data).hexdigest() != corpus.manifest.get("messages_sha256"):
        raise CorpusError(f"{folder}: the manifest does not match the messages; build the corpus with freeze()")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / _messages_name(corpus.manifest["messages_sha256"])
    write_whole(target, data)
    write_whole(folder / MANIFEST, _dump(corpus.manifest).encode("utf-8"))
    # Only now is an older messages file out of use.
    for old in folder.glob("messages-*.jsonl"):
        if old != target:
            old.unlink(missing_ok=True)
    return folder


def load_corpus(folder: Path | str, *, version: str | None = None) -> Corpus:
    """Load the corpus in `folder` after checking every hash.

    Parameters
    ----------
    folder : a folder written by `save_corpus`
    version : if given, the workload version the corpus must have been made for

    Raises
    ------
    CorpusError
        Naming file and line, for a missing, torn, tampered or foreign corpus.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder / MANIFEST)
    if version is not None and manifest["version"] != version:
        raise CorpusError(
            f"{folder / MANIFEST}: made for workload version {manifest['version']!r}, not {version!r}; produce the messages anew"
        )
    path = folder / _messages_name(manifest["messages_sha256"])
    messages = tuple(_read_messages(path, manifest))
    return Corpus(manifest["workload"], manifest["version"], messages, manifest)


def _read_manifest(path: Path) -> dict[str, Any]:
    data = _read(path)
    try:
        manifest = json.loads(data.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise CorpusError(
            f"{path}, line {error.lineno}: torn or not JSON ({error.msg}); produce the messages anew"
        ) from None
    except ValueError as error:
        raise CorpusError(f"{path}, line 1: not UTF-8 text ({error}); produce the messages anew") from None
    try:
        msgspec.convert(manifest, _Manifest)
    except msgspec.ValidationError as error:
        raise CorpusError(f"{path}: {error}; produce the messages anew") from None
    if manifest["format"] != FORMAT:
        raise CorpusError(
            f"{path}: corpus format {manifest['format']}, this library reads {FORMAT}; produce the messages anew"
        )
    return manifest


def _read_messages(path: Path, manifest: dict[str, Any]) -> Iterable[Message]:
    lines = _read(path).split(b"\n")
    if lines.pop():
        raise CorpusError(f"{path}, line {len(lines) + 1}: torn record (no line feed at its end); restore the file")
    hashes = manifest["lines_sha256"]
    for number, (line, expected) in enumerate(zip(lines, hashes, strict=False), start=1):
        if hashlib.sha256(line + b"\n").hexdigest()[:16] != expected:
            raise CorpusError(
                f"{path}, line {number}: changed since it was frozen; restore the file or produce the messages anew"
            )
    if len(lines) != len(hashes):
        first = min(len(lines), len(hashes)) + 1
        raise CorpusError(
            f"{path}, line {first}: {len(lines)} records where {len(hashes)} were frozen; restore the file"
        )
    if hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest() != manifest["messages_sha256"]:
        raise CorpusError(f"{path}: the file's sha256 is not the manifest's; restore the file")
    for number, line in enumerate(lines, start=1):
        try:
            yield msgspec.json.decode(line, type=Message)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorpusError(f"{path}, line {number}: not a message ({error}); produce the messages anew") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CorpusError(f"{path}: no such file; freeze and save the corpus first") from None


def _lines(messages: Iterable[Message]) -> list[bytes]:
    return [msgspec.json.encode(message) + b"\n" for message in messages]


def _messages_name(sha256: str) -> str:
    return f"messages-{sha256[:16]}.jsonl"


def _dump(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def write_whole(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step, so that no reader ever sees half a file; an equal file is left untouched."""
    if path.is_file() and path.read_bytes() == data:
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(0o644)  # mkstemp makes it private; a corpus may be shared
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
