"""Look at this machine and say in plain lines what the laboratory finds, what is missing, and the command that mends it.

Not covered: mending. Nothing is installed, fetched or written.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from lib.runs import context
from lib.runs.layout import Layout, find_notebooks
from lib.runs.store import Store, StoreError
from lib.sources import SourceError, available, cache_dir, catalogue, local_root

_GIB = 2**30
_KNOWN = ("LAB_CACHE", "LAB_DATA", "LAB_MODELS", context.STORE, context.OUTPUTS, context.NO_CACHE)


class Finding(msgspec.Struct, frozen=True):
    """One line: `state` is "ok", "note" (works without it) or "missing" (something will fail)."""

    state: str
    topic: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        arrow = f"\n           -> {self.remedy}" if self.remedy else ""
        return f"{self.state:<8} {self.topic}: {self.text}{arrow}"


def examine(layout: Layout) -> Iterator[Finding]:
    """Yield the findings, the quick ones first."""
    yield _python()
    yield from _packages(layout)
    yield _torch()
    yield from _machine(layout)
    yield from _materials()
    yield _store(layout)
    yield _notebooks(layout)
    yield _variables()


def _python() -> Finding:
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Finding("ok", "python", f"{version} at {sys.executable}")
    return Finding("missing", "python", f"{version}; 3.11, 3.12 or 3.13 is needed", "make run  (builds .venv with one)")


def _packages(layout: Layout) -> Iterator[Finding]:
    """Compare what is installed with the lock file."""
    lock = layout.root / "requirements.lock"
    if not lock.exists():
        yield Finding("note", "packages", f"{lock} is not here, versions are not compared")
        return
    wanted = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", lock.read_text(encoding="utf-8"), re.MULTILINE))
    absent, other = [], []
    for name, version in wanted.items():
        try:
            found = importlib.metadata.version(name).split("+")[0]  # 2.13.0+cpu is 2.13.0
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
            continue
        if found != version.split("+")[0]:
            other.append(f"{name} {found} (lock: {version})")
    remedy = f"{sys.executable} -m pip install -r requirements.lock"
    if absent:
        yield Finding("missing", "packages", f"not installed: {', '.join(absent)}", remedy)
    if other:
        yield Finding("note", "packages", f"other versions than locked: {', '.join(other)}", remedy)
    if not absent and not other:
        yield Finding("ok", "packages", f"{len(wanted)} as locked")


def _torch() -> Finding:
    try:
        import torch
    except ImportError as error:
        return Finding("missing", "torch", str(error), f"{sys.executable} -m pip install -r requirements.lock")
    if torch.cuda.is_available():
        device = f"cuda, {torch.cuda.get_device_name(0)}, {torch.cuda.mem_get_info(0)[1] / _GIB:.0f} GiB"
    else:
        device = f"cpu, {torch.get_num_threads()} threads"
    return Finding("ok", "torch", f"{torch.__version__} on {device}")


def _machine(layout: Layout) -> Iterator[Finding]:
    try:
        import psutil
    except ImportError as error:
        yield Finding("missing", "memory", str(error), f"{sys.executable} -m pip install -r requirements.lock")
    else:
        yield _memory(psutil)
    for topic, path in (("disk for outputs", layout.outputs), ("disk for the cache", cache_dir())):
        there = next(parent for parent in [path, *path.parents] if parent.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            reason = "is not writable" if there.is_dir() else "is a file"
            yield Finding("missing", topic, f"{there} {reason}", "set LAB_CACHE / --outputs to a folder of yours")
            continue
        free = shutil.disk_usage(there).free / _GIB
        remedy = "make room, or set LAB_CACHE / --outputs to another drive" if free < 5 else ""
        yield Finding("note" if free < 5 else "ok", topic, f"{free:.0f} GiB free at {path}", remedy)


def _memory(psutil: Any) -> Finding:
    memory = psutil.virtual_memory()
    text = f"{memory.available / _GIB:.1f} of {memory.total / _GIB:.1f} GiB free, {os.cpu_count()} cores"
    low = memory.available < 4 * _GIB
    return Finding("note" if low else "ok", "memory", text, "use receiver=qwen-coder-0.5b, about 3 GiB" if low else "")


def _materials() -> Iterator[Finding]:
    """Say which models and data sets are here."""
    try:
        entries = catalogue()
    except SourceError as error:
        yield Finding("missing", "data/sources.toml", str(error))
        return
    for name, entry in entries.items():
        if entry.kind == "generated":
            continue
        if available(name):
            yield Finding("ok", f"{entry.kind} {name}", entry.title)
        elif entry.files:
            size = f"{entry.title}; not here yet, {entry.size / 1e6:.0f} MB"
            yield Finding("note", f"{entry.kind} {name}", size, f"python -m lib data {name}")
        else:
            remedy = f"put your copy where data/cards/{entry.card} says, or set LAB_DATA"
            yield Finding("note", f"{entry.kind} {name}", f"{entry.title}; your own copy is needed", remedy)


def _store(layout: Layout) -> Finding:
    path = Path(os.environ.get(context.STORE) or layout.outputs / "store.sqlite")
    if not path.exists():
        return Finding("ok", "store", f"none yet, will be {path}")
    try:
        with Store(path) as store:
            stats = store.stats()
    except StoreError as error:
        return Finding("missing", "store", str(error))
    text = f"{stats['replies']} replies, {stats['scores']} scores, {stats['failures']} failed calls"
    return Finding("ok", "store", f"{text}, {path.stat().st_size / 1e6:.1f} MB at {path}")


def _notebooks(layout: Layout) -> Finding:
    text = f"{len(find_notebooks(layout))} in {layout.notebooks}, profiles {', '.join(layout.profiles()) or 'none'}"
    return Finding("ok", "notebooks", text)


def _variables() -> Finding:
    lab = {name: value for name, value in os.environ.items() if name.startswith("LAB_")}
    unknown = sorted(set(lab) - set(_KNOWN))
    text = ", ".join(f"{name}={value}" for name, value in sorted(lab.items())) or "none set"
    for name in ("LAB_DATA", "LAB_MODELS"):
        if lab.get(name) and not local_root(name).is_dir():  # type: ignore[arg-type]
            return Finding("note", "variables", f"{text}; {name} names no folder", f"set {name} to the folder you mean")
    if unknown:
        return Finding("note", "variables", f"{text}; not known: {', '.join(unknown)}", f"known: {', '.join(_KNOWN)}")
    return Finding("ok", "variables", text)
