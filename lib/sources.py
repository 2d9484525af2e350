"""Find a model or data set by name, fetching it once if it is not here.

`data/sources.toml` lists every name with its routes in order of preference. `locate` looks, in this order,

1. at the user's own copy under ``LAB_DATA`` (default: ``data/`` of the checkout) or ``LAB_MODELS`` (default: ``data/models/``);
   a relative value counts from the checkout, so it means the same in a shell, a test and a notebook kernel;
2. in the per-user cache ``LAB_CACHE`` (default: the platform's cache folder), which all checkouts share;
3. at the model hub, then in the package registry; what they deliver goes to the cache.

A hash in the list pins the bytes: every route must deliver the same ones. A file is hashed once; its SHA-256 is remembered with its size
and modification time. Two processes that want the same name wait for each other.

Not covered: how the bytes travel (`lib.fetch`), what is inside them (`lib.tasks`, `lib.models`), deleting old cache entries.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import filelock
import msgspec
import platformdirs

from lib.fetch import Log, SourceError, clear_leftovers, safe_name, sha256_of, take_from_hub, take_from_wheels

__all__ = [
    "SourceEntry",
    "SourceError",
    "available",
    "cache_dir",
    "catalogue",
    "exclusive",
    "fetch_all",
    "known_sha256",
    "locate",
]

CHECKOUT = Path(__file__).resolve().parents[1]
CATALOGUE = CHECKOUT / "data" / "sources.toml"


class FileSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pinned file: name below the entry's folder, SHA-256 (hexadecimal), size in bytes."""

    name: str
    sha256: str
    size: int


class LocalRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="local"):
    """A user's own file or folder. `needs`: names that the folder must hold, alternatives split by "|"."""

    root: Literal["LAB_DATA", "LAB_MODELS"]
    path: str
    needs: tuple[str, ...] = ()


class HubRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="hub"):
    """A hub repository at a commit. `names`: our file name -> path in the repository, where they differ."""

    repo: str
    revision: str
    repo_type: Literal["model", "dataset"] = "model"
    names: dict[str, str] = {}


class WheelRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="wheel"):
    """Files inside wheels: `member` is the pattern of a single file (joined over `parts`), `folder` holds several."""

    package: str
    version: str
    parts: int = 1
    member: str = ""
    folder: str = ""

    def requirements(self) -> list[str]:
        """Return "package==version" of every part, in numeric order."""
        return [f"{self.package.replace('{n}', str(n))}=={self.version}" for n in range(1, self.parts + 1)]

    def patterns(self, name: str) -> list[str]:
        """Return the member pattern in each wheel for our file `name`."""
        if self.folder:
            return [f"{self.folder}/{name}"]
        return [self.member.replace("{n}", str(n)) for n in range(1, self.parts + 1)]


class SourceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One name of `data/sources.toml`."""

    kind: Literal["model", "data", "generated"]
    title: str
    licence: str
    home: str
    card: str
    files: tuple[FileSpec, ...] = ()
    returns: Literal["file", "folder", "auto"] = "auto"
    routes: tuple[LocalRoute | HubRoute | WheelRoute, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all pinned files."""
        return sum(file.size for file in self.files)


def say(line: str) -> None:
    """Print a progress line to standard error."""
    print(line, file=sys.stderr, flush=True)


# --------------------------------------------------------------------------------------------------------------------------- catalogue


def catalogue() -> dict[str, SourceEntry]:
    """Read `data/sources.toml`; raises `SourceError` naming the file and the field."""
    try:
        entries = msgspec.convert(tomllib.loads(CATALOGUE.read_text(encoding="utf-8")), dict[str, SourceEntry])
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SourceError(f"{CATALOGUE}: {error}") from error
    for name, entry in entries.items():
        for route in entry.routes:
            if isinstance(route, HubRoute) and not is_commit(route.revision):
                raise SourceError(
                    f"{CATALOGUE}: {name}: revision {route.revision!r} is not a full commit hash (40 hex digits)"
                )
        if bad := [file.name for file in entry.files if not safe_name(file.name)]:
            raise SourceError(f"{CATALOGUE}: {name}: file name {bad[0]!r} is not a plain relative path")
    return entries


def entry_of(name: str) -> SourceEntry:
    """Return the entry of `name`; raises `SourceError` with the nearest known name."""
    entries = catalogue()
    if name in entries:
        return entries[name]
    near = difflib.get_close_matches(name, entries, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known names: {', '.join(entries)}"
    raise SourceError(f"{name}: not in data/sources.toml; {hint}")


def is_commit(revision: str) -> bool:
    """Say whether `revision` is a full commit hash; a branch or tag can move and pins nothing."""
    return len(revision) == 40 and all(c in "0123456789abcdef" for c in revision)


# ------------------------------------------------------------------------------------------------------------------------------ places


def cache_dir() -> Path:
    """Return the per-user cache: $LAB_CACHE or the platform's cache folder for "agent-communication-lab"."""
    chosen = os.environ.get("LAB_CACHE")
    return _from_checkout(chosen) if chosen else Path(platformdirs.user_cache_dir("agent-communication-lab"))


def local_root(variable: Literal["LAB_DATA", "LAB_MODELS"]) -> Path:
    """Return the folder of the user's own copies: the variable's value, or its default in the checkout."""
    chosen = os.environ.get(variable)
    return _from_checkout(chosen) if chosen else CHECKOUT / {"LAB_DATA": "data", "LAB_MODELS": "data/models"}[variable]


def _from_checkout(text: str) -> Path:
    return (CHECKOUT / Path(text).expanduser()).resolve()


def known_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, remembered in the cache until its size or modification time changes."""
    path = path.resolve()
    state = path.stat()
    memo = cache_dir() / "hashes" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    try:
        known = json.loads(memo.read_text(encoding="utf-8"))
        if known["path"] == str(path) and (known["size"], known["mtime_ns"]) == (state.st_size, state.st_mtime_ns):
            return str(known["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no memo, or one that a killed process tore: hash again
    sha256 = sha256_of(path)
    row = {"path": str(path), "size": state.st_size, "mtime_ns": state.st_mtime_ns, "sha256": sha256}
    memo.parent.mkdir(parents=True, exist_ok=True)
    scratch = memo.with_suffix(f".{os.getpid()}.part")
    scratch.write_text(json.dumps(row), encoding="utf-8")
    os.replace(scratch, memo)
    return sha256


@contextmanager
def exclusive(name: str, log: Log = say) -> Iterator[None]:
    """Hold the lock of a cache entry; waits, and says so, while another process holds it. A killed holder frees it."""
    folder = cache_dir() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / f"{name.replace('/', '--')}.lock")
    try:
        lock.acquire(timeout=0.5)
    except filelock.Timeout:
        log(f"{name}: another process is preparing it; waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


# ----------------------------------------------------------------------------------------------------------------------------- look-up


def locate(name: str, *, fetch: bool = True, log: Log = say) -> Path:
    """Return the file or folder of a model or data set, fetching it into the cache if needed.

    Parameters
    ----------
    name : str
        A name of `data/sources.toml`.
    fetch : bool
        False: only look, never touch the network.
    log : callable
        Receives one progress line at a time; default prints to standard error.

    Returns
    -------
    Path
        A file where the entry is one file, else a folder.

    Raises
    ------
    SourceError
        One line: the name, what each route answered, and what to do.
    """
    entry = entry_of(name)
    if entry.kind == "generated":
        raise SourceError(f"{name}: generated from a seed by {entry.home}; there is no file to locate")
    for route in entry.routes:
        if isinstance(route, LocalRoute) and (own := _own_copy(name, entry, route)):
            return own
    folder = cache_dir() / ("models" if entry.kind == "model" else "data") / name
    if entry.files and _complete(folder, entry):
        return _result(folder, entry)
    if not fetch:
        raise SourceError(f"{name}: not on this machine yet; run `python -m lib data {name}`")
    try:
        with exclusive(name, log):
            if not (entry.files and _complete(folder, entry)):  # another process may have delivered it meanwhile
                _deliver(name, entry, folder, log)
    except OSError as error:
        where = error.filename or folder
        raise SourceError(
            f"{name}: cannot write {where}: {error.strerror or error}; free space or set LAB_CACHE"
        ) from error
    return _result(folder, entry)


def available(name: str) -> bool:
    """Say whether `locate(name)` would answer without fetching anything."""
    try:
        locate(name, fetch=False)
    except SourceError:
        return False
    return True


def fetch_all(names: Iterable[str], log: Log = print) -> int:
    """Fetch every name, one line each; return an exit code: 0 if all are here, 1 if any failed.

    Failures are printed as one line and do not stop the others.
    """
    failed = 0
    for name in names:
        try:
            entry = entry_of(name)
            if entry.kind == "generated":
                log(f"{name}: generated from a seed, nothing to fetch")
                continue
            log(f"{name}: ready at {locate(name, log=log)}  [{entry.licence}]")
        except SourceError as error:
            failed += 1
            log(f"error: {error}")
    return 1 if failed else 0


def _own_copy(name: str, entry: SourceEntry, route: LocalRoute) -> Path | None:
    """Return the user's own copy if it is there and whole."""
    place = local_root(route.root) / route.path
    if not place.exists():
        return None
    if place.is_dir():
        lacking = [need for need in route.needs if not any((place / option).is_file() for option in need.split("|"))]
        if lacking or not any(place.iterdir()):
            return None
    for file in entry.files:
        # A file that carries a pinned name must carry the pinned bytes; other names are the user's own choice.
        mine = place if place.is_file() and place.name == file.name else place / file.name
        if mine.is_file() and known_sha256(mine) != file.sha256:
            raise SourceError(
                f"{name}: {mine} differs from the sha256 that data/sources.toml pins; replace it or rename it"
            )
    return _result(place, entry) if place.is_dir() and entry.kind == "model" else place


def _result(folder: Path, entry: SourceEntry) -> Path:
    """Return what `locate` hands out for a complete folder."""
    single = folder / entry.files[0].name if len(entry.files) == 1 and entry.returns != "folder" else None
    return single if single is not None and single.is_file() else folder


def _complete(folder: Path, entry: SourceEntry) -> bool:
    """Say whether every pinned file is in `folder` with the pinned bytes; a spoilt one is removed."""
    for file in entry.files:
        path = folder / file.name
        if not path.is_file():
            return False
        if path.stat().st_size != file.size or known_sha256(path) != file.sha256:
            say(f"{path}: spoilt (size or sha256 differ from data/sources.toml); fetching it again")
            path.unlink()
            return False
    return True


def _deliver(name: str, entry: SourceEntry, folder: Path, log: Log) -> None:
    """Try the hub and the registry in the order of the list; raise with every route's answer if none delivers."""
    answers: list[str] = []
    if entry.files:
        log(f"{name}: {entry.title}, {entry.size / 1e6:,.1f} MB")
        folder.mkdir(parents=True, exist_ok=True)
        clear_leftovers(folder)
        free, wanted = shutil.disk_usage(folder).free, 3 * entry.size  # wheels, pip's copy of them, the joined file
        if free < wanted:
            raise SourceError(
                f"{name}: {free / 1e6:,.0f} MB free in {folder}, {wanted / 1e6:,.0f} MB needed; free some or set LAB_CACHE"
            )
    for route in entry.routes:
        if isinstance(route, LocalRoute):
            answers.append(f"no own copy in {local_root(route.root) / route.path}")
            continue
        lacking = [file for file in entry.files if not (folder / file.name).is_file()]
        try:
            if isinstance(route, HubRoute):
                paths = {file.name: (route.names.get(file.name, file.name), file.sha256) for file in lacking}
                take_from_hub(folder, paths, route.repo, route.revision, route.repo_type, log)
            else:
                members = {file.name: (route.patterns(file.name), file.sha256) for file in lacking}
                take_from_wheels(folder, members, route.requirements(), log)
        except SourceError as error:
            log(f"  {error}")
            answers.append(str(error))
            continue
        if _complete(folder, entry):
            return
    raise SourceError(f"{name}: {'; '.join(answers)}. By hand: {entry.home}; see data/cards/{entry.card}")
