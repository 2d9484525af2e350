"""Look at this machine and say in plain lines what the laboratory finds, what is missing, and the command that mends it.

Everything is looked at, not assumed: pinned files are hashed again, a kernel is started, the store is read from end to end, a file
is written and removed in each folder that runs write to. `quick` leaves out what takes longer than a second.

Not covered: mending. Nothing is installed or fetched.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lib.fetch import sha256_of
from lib.models.endpoint_settings import KEY_VARIABLES, PREFIX
from lib.runs import context
from lib.runs.journal import JOURNAL
from lib.runs.layout import Layout, find_notebooks
from lib.runs.progress import PROGRESS_FILE
from lib.runs.store import Store, StoreError
from lib.sources import SourceEntry, SourceError, available, cache_dir, catalogue, local_root, locate

_GIB = 2**30
_KNOWN = (
    *("LAB_CACHE", "LAB_DATA", "LAB_MODELS", "LAB_REAL", KEY_VARIABLES[0], JOURNAL, PROGRESS_FILE),
    *(context.STORE, context.OUTPUTS, context.NO_CACHE, context.FROZEN_FOLDER, context.FOLDER, context.PROFILE),
)
_KERNEL_SECONDS = 120  # a busy machine starts kernels slowly


class Finding(msgspec.Struct, frozen=True):
    """One line: `state` is "ok", "note" (works without it) or "missing" (something will fail)."""

    state: str
    topic: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        arrow = f"\n           -> {self.remedy}" if self.remedy else ""
        return f"{self.state:<8} {self.topic}: {self.text}{arrow}"


def examine(layout: Layout, *, quick: bool = False, receivers: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield the findings.

    Parameters
    ----------
    layout : the checkout
    quick : leave out hashing, starting a kernel and reading the whole store
    receivers : names that runs are to use; a server behind an endpoint is asked what it has
    """
    yield _python()
    yield from _packages(layout)
    yield _torch()
    yield from _machine(layout)
    yield from _materials(quick)
    yield _store(layout, quick)
    yield _notebooks(layout)
    if not quick:
        yield _kernel()
    yield _variables()
    for name in receivers:
        yield _receiver(name)


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
        bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        from lib.models.weights import cpu_has_bfloat16

        device, bfloat16 = f"cpu, {torch.get_num_threads()} threads", cpu_has_bfloat16()
    text = f"{torch.__version__} on {device}, bfloat16 {'computed natively' if bfloat16 else 'not native'}"
    remedy = "" if bfloat16 else "dtype=fast and auto take float32 here: twice the memory"
    return Finding("ok" if bfloat16 else "note", "torch", text, remedy)


def _machine(layout: Layout) -> Iterator[Finding]:
    try:
        import psutil
    except ImportError as error:
        yield Finding("missing", "memory", str(error), f"{sys.executable} -m pip install -r requirements.lock")
    else:
        yield _memory(psutil)
    for topic, path in (("disk for outputs", layout.outputs), ("disk for the cache", cache_dir())):
        there = next(parent for parent in [path, *path.parents] if parent.exists())
        if reason := _unwritable(there):
            yield Finding("missing", topic, f"{there} {reason}", "set LAB_CACHE / --outputs to a folder of yours")
            continue
        free = shutil.disk_usage(there).free / _GIB
        remedy = "make room, or set LAB_CACHE / --outputs to another drive" if free < 5 else ""
        yield Finding("note" if free < 5 else "ok", topic, f"{free:.0f} GiB free at {path}", remedy)


def _unwritable(folder: Path) -> str:
    """Return why nothing can be written into a folder; empty where it can, which a file is the proof of."""
    if not folder.is_dir():
        return "is a file"
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"is not writable ({error.strerror})"
    return ""


def _memory(psutil: Any) -> Finding:
    memory = psutil.virtual_memory()
    text = f"{memory.available / _GIB:.1f} of {memory.total / _GIB:.1f} GiB free, {os.cpu_count()} cores"
    low = memory.available < 4 * _GIB
    return Finding("note" if low else "ok", "memory", text, "use receiver=qwen-coder-0.5b, about 3 GiB" if low else "")


def _materials(quick: bool) -> Iterator[Finding]:
    """Say which models and data sets are here, and whether their bytes are the pinned ones."""
    try:
        entries = catalogue()
    except SourceError as error:
        yield Finding("missing", "data/sources.toml", str(error))
        return
    for name, entry in entries.items():
        if entry.kind == "generated":
            continue
        if available(name):
            wrong = [] if quick else _wrong_files(name, entry)
            if wrong:
                text = f"{entry.title}; not the pinned bytes: {', '.join(map(str, wrong))}"
                yield Finding("missing", f"{entry.kind} {name}", text, f"remove it, then python -m lib data {name}")
            else:
                checked = "" if quick or not entry.files else f", SHA-256 of {len(entry.files)} as pinned"
                yield Finding("ok", f"{entry.kind} {name}", f"{entry.title}{checked}")
        elif entry.files:
            size = f"{entry.title}; not here yet, {entry.size / 1e6:.0f} MB"
            yield Finding("note", f"{entry.kind} {name}", size, f"python -m lib data {name}")
        else:
            remedy = f"put your copy where data/cards/{entry.card} says, or set LAB_DATA"
            yield Finding("note", f"{entry.kind} {name}", f"{entry.title}; your own copy is needed", remedy)


def _wrong_files(name: str, entry: SourceEntry) -> list[Path]:
    """Return the files of a source whose bytes are not the pinned ones; they are read anew, whatever is remembered of them."""
    place = locate(name, fetch=False)
    folder = place if place.is_dir() else place.parent
    paths = {folder / file.name: file.sha256 for file in entry.files}
    return [path for path, pinned in paths.items() if path.is_file() and sha256_of(path) != pinned]


def _store(layout: Layout, quick: bool) -> Finding:
    path = Path(os.environ.get(context.STORE) or layout.outputs / "store.sqlite")
    if not path.exists():
        return Finding("ok", "store", f"none yet, will be {path}")
    try:
        with Store(path, read_only=True) as store:
            stats = store.stats()
            if not quick:
                store.check()
    except StoreError as error:
        return Finding("missing", "store", str(error))
    text = f"{'' if quick else 'whole; '}{stats['replies']} replies, {stats['scores']} scores, {stats['failures']} failed calls"
    return Finding("ok", "store", f"{text}, {path.stat().st_size / 1e6:.1f} MB at {path}")


def _notebooks(layout: Layout) -> Finding:
    text = f"{len(find_notebooks(layout))} in {layout.notebooks}, profiles {', '.join(layout.profiles()) or 'none'}"
    return Finding("ok", "notebooks", text)


def _kernel() -> Finding:
    """Start a Jupyter kernel of this interpreter, as a run does, and have it add."""
    try:
        from jupyter_client.manager import KernelManager
    except ImportError as error:
        return Finding("missing", "kernel", str(error), f"{sys.executable} -m pip install -r requirements.lock")
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as folder:
        manager = KernelManager(kernel_name="python3", connection_file=str(Path(folder) / "kernel.json"))
        client = None
        try:
            spec = manager.kernel_spec
            if spec is None:
                raise FileNotFoundError("no kernel specification python3")
            spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            manager.start_kernel(env={**os.environ, "IPYTHONDIR": folder}, stdout=-3, stderr=-3)
            client = manager.client()
            client.start_channels()
            client.wait_for_ready(timeout=_KERNEL_SECONDS)
            reply = client.execute_interactive("assert 1 + 1 == 2", timeout=_KERNEL_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever keeps a kernel from starting is what is asked here
            remedy = f"{sys.executable} -m ipykernel_launcher  (shows why)"
            return Finding("missing", "kernel", f"does not start: {type(error).__name__}: {error}", remedy)
        finally:
            if client is not None:
                client.stop_channels()
            if manager.has_kernel:
                manager.shutdown_kernel(now=True)
    if reply["content"]["status"] != "ok":
        return Finding("missing", "kernel", f"starts and cannot compute: {reply['content'].get('evalue')}")
    return Finding("ok", "kernel", "a Jupyter kernel starts and answers")


def _receiver(name: str) -> Finding:
    """Say whether who is to answer is here: a server that lists the model, or weights."""
    topic = f"receiver {name}"
    if name.startswith(PREFIX):
        from lib.models.endpoint_health import examine as ask
        from lib.models.endpoint_settings import EndpointError, read_settings

        try:
            served = ask(read_settings(name))
        except EndpointError as error:
            return Finding("missing", topic, str(error), "start the server, or mend the address (docs/endpoints.md)")
        return Finding("ok", topic, f"{served.kind} {served.version} serves {served.model}".replace("  ", " "))
    from lib.models.choose import SCRIPTS
    from lib.models.unloaded import weights_are_here

    if name in SCRIPTS:
        return Finding("ok", topic, "made of rules")
    if weights_are_here(name):
        return Finding("ok", topic, "its weights are here")
    if name in catalogue():
        return Finding("missing", topic, "its weights are not here", f"python -m lib data {name}")
    near = difflib.get_close_matches(name, [*SCRIPTS, *catalogue()], n=1)
    hint = f"did you mean {near[0]}?" if near else "a hub id is fetched by the run itself, with revision=<commit>"
    return Finding("note", topic, "no short name, folder or file here", hint)


def _variables() -> Finding:
    """Say what the LAB_ variables are; a key is never shown."""
    lab = {name: value for name, value in os.environ.items() if name.startswith("LAB_")}
    unknown = sorted(set(lab) - set(_KNOWN))
    shown = {name: "(set)" if name in KEY_VARIABLES else value for name, value in lab.items()}
    text = ", ".join(f"{name}={value}" for name, value in sorted(shown.items())) or "none set"
    for name in ("LAB_DATA", "LAB_MODELS"):
        if lab.get(name) and not local_root(name).is_dir():  # type: ignore[arg-type]
            return Finding("note", "variables", f"{text}; {name} names no folder", f"set {name} to the folder you mean")
    if unknown:
        meant = [f"{name}: did you mean {near[0]}?" for name in unknown if (near := _near(name))]
        text += f"; not known: {', '.join(unknown)}"
        return Finding("note", "variables", text, "; ".join(meant) or f"known: {', '.join(_KNOWN)}")
    return Finding("ok", "variables", text)


def _near(name: str) -> list[str]:
    return difflib.get_close_matches(name, _KNOWN, n=1)
