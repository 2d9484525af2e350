"""Run notebooks, each once, each in a process of its own, and keep what they made.

All parameters are checked before the first kernel starts. A run is made in `outputs/.partial-<run id>.<token>`, which is
renamed to `outputs/<run id>` when it has finished: what has that name is complete. A run that failed is kept as
`outputs/<run id>-failed` and is made again next time. When a run ends, by itself or by Ctrl-C, every process that it
started is ended too.

Not covered: other machines, and other kernels than this interpreter's. Windows has no process groups; there the kernel dies
with its parent.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock
import msgspec

from lib.runs import context
from lib.runs.context import RESULT, write_json
from lib.runs.execute import OUTCOME, STATUS, Job
from lib.runs.index import append_index, read_index
from lib.runs.layout import LIBRARY, Layout, content_hashes, run_id
from lib.runs.params import ParameterError, did_you_mean, load_profile, read_parameters, resolve
from lib.runs.progress import PROGRESS_FILE, duration

TOKEN = "LAB_RUN_TOKEN"  # environment variable that marks every process of a run
CELL_SECONDS = 7200
GRACE_SECONDS = 60.0  # a child that overran its cell's limit by this much does not answer any more
Say = Callable[[str], None]


class Plan(msgspec.Struct, frozen=True):
    """One notebook with its checked parameters and the id that they give it."""

    notebook: Path
    profile: str
    parameters: dict[str, Any]
    hashes: dict[str, str]
    run_id: str


class RunResult(msgspec.Struct, frozen=True):
    """How a run ended: `status` is "ok", "failed", "interrupted" or "skipped" (it was finished before)."""

    plan: Plan
    status: str
    seconds: float
    folder: Path
    error: dict[str, Any] | None = None


def plan_runs(
    layout: Layout,
    notebooks: Sequence[Path],
    profile: str,
    overrides: Mapping[str, str] | None = None,
    *,
    say: Say = print,
) -> list[Plan]:
    """Check every notebook's parameters and return what is to be run.

    An override applies to each notebook that declares its name; a name that none declares is an error.

    Raises
    ------
    ParameterError
        Naming profile, notebook, parameter and fix, before anything has been started.
    """
    if profile not in layout.profiles():
        raise ParameterError(
            f"--profile {profile}: no folder params/{profile}{did_you_mean(profile, layout.profiles())}"
        )
    overrides = dict(overrides or {})
    specs = {notebook: read_parameters(notebook) for notebook in notebooks}
    known = sorted({name for declared in specs.values() for name in declared})
    for name in overrides:
        if name not in known:
            raise ParameterError(f"-p {name}: no notebook has this parameter{did_you_mean(name, known)}")
    plans = []
    for notebook, declared in specs.items():
        file = layout.params / profile / f"{notebook.stem}.yaml"
        if file.exists():
            values = load_profile(file)
        else:
            say(f"{notebook.stem}: no params/{profile}/{file.name}, the notebook's own defaults are used")
            values = {}
        mine = {name: text for name, text in overrides.items() if name in declared}
        resolve(declared, values, where=str(file))  # so that a message names the file where the mistake is
        parameters = resolve(declared, values, mine, where=f"{notebook.name}, -p")
        hashes = content_hashes(notebook, layout)
        plans.append(Plan(notebook, profile, parameters, hashes, run_id(notebook, parameters, hashes)))
        if len(mine) < len(overrides):
            absent = ", ".join(sorted(set(overrides) - set(mine)))
            say(f"{notebook.stem}: does not have the parameter {absent}; it keeps to its profile there")
    return plans


def run_notebooks(
    layout: Layout,
    plans: Iterable[Plan],
    *,
    force: bool = False,
    timeout: int = CELL_SECONDS,
    jobs: int = 1,
    no_cache: bool = False,
    say: Say = print,
    show: Say | None = None,
    every: float = 5.0,
) -> list[RunResult]:
    """Make the runs that are not finished, `jobs` at a time; return how each ended, in the order of `plans`.

    Parameters
    ----------
    force : bool
        Make finished runs again; implied by `no_cache`.
    timeout : int
        Seconds a cell may take; 0 for no limit.
    no_cache : bool
        Have every model call computed, for latency measurements.
    say : callable
        Receives each line of progress.
    show : callable, optional
        Receives the state of all active runs as one line to draw over the last one, for a terminal. Without it each
        run's state is said every few seconds.
    every : float
        Seconds between two progress lines of a run.
    """
    layout.outputs.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(layout.outputs)
    waiting, active, results, announced = list(plans), list[_Active](), dict[str, RunResult](), set[str]()
    order = [plan.run_id for plan in waiting]
    try:
        while waiting or active:
            for run in [run for run in active if run.ended()]:
                active.remove(run)
                results[run.plan.run_id] = run.finish()
            if show is not None and active:
                show(" | ".join(run.state() for run in active))
            for run in active if show is None else []:
                run.say_state(every)
            while waiting and len(active) < max(1, jobs):
                plan = waiting.pop(0)
                if plan.run_id in results or any(run.plan.run_id == plan.run_id for run in active):
                    continue
                lock = _locked(layout.outputs, plan.run_id)
                if lock is None:
                    if plan.run_id not in announced:
                        say(f"{plan.notebook.stem} ({plan.profile}): another runner is at it; waiting for it to end")
                    announced.add(plan.run_id)
                    waiting.append(plan)
                    break
                finished = None if force or no_cache else _finished(layout.outputs, plan)
                if finished is not None:
                    say(f"{plan.notebook.stem} ({plan.profile}): finished before, kept in {finished.folder.name}")
                    results[plan.run_id] = finished
                    lock.release()
                    continue
                active.append(_Active(layout, plan, lock, timeout, jobs, no_cache, say))
                break  # one start each round: kernels that start together slow each other most
            time.sleep(0.2)
    except KeyboardInterrupt:
        for run in active:
            results[run.plan.run_id] = run.finish(interrupted=True)
        raise
    return [results[name] for name in dict.fromkeys(order)]


class _Active:
    """A run in progress: its child process, its folder, and what it last said."""

    def __init__(
        self,
        layout: Layout,
        plan: Plan,
        lock: filelock.BaseFileLock,
        timeout: int,
        jobs: int,
        no_cache: bool,
        say: Say,
    ) -> None:
        self.plan, self.layout, self.lock, self.timeout, self.say = plan, layout, lock, timeout, say
        self.title = f"{plan.notebook.stem} ({plan.profile})"
        self.token = uuid.uuid4().hex
        # a name of its own: a dying child of a killed runner must not write into this run's folder
        self.folder = layout.outputs / f".partial-{plan.run_id}.{self.token[:8]}"
        self.folder.mkdir(parents=True)
        self.started = datetime.now(UTC)
        self.clock = time.monotonic()
        self.said, self.said_at = "", self.clock
        self.overrun = False
        job = Job(str(plan.notebook), str(self.folder), plan.notebook.stem, plan.parameters, timeout)
        (self.folder / "job.json").write_bytes(msgspec.json.encode(job))
        say(f"{self.title}: start, {plan.run_id}")
        with (self.folder / "runner.log").open("wb") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "lib.runs.execute", str(self.folder / "job.json")],
                cwd=LIBRARY.parent,
                env=self._environment(jobs, no_cache),
                stdin=subprocess.PIPE,  # its closing tells the child that we are gone
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self, jobs: int, no_cache: bool) -> dict[str, str]:
        environment = dict(os.environ)
        environment.pop(context.NO_CACHE, None)
        environment |= {
            TOKEN: self.token,
            context.FOLDER: str(self.folder),
            context.PROFILE: self.plan.profile,
            context.OUTPUTS: str(self.layout.outputs),
            context.STORE: os.environ.get(context.STORE) or str(self.layout.outputs / "store.sqlite"),
            PROGRESS_FILE: str(self.folder / "progress.txt"),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(LIBRARY.parent), os.environ.get("PYTHONPATH")])),
            "JUPYTER_PLATFORM_DIRS": "1",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        if no_cache:
            environment[context.NO_CACHE] = "1"
        if jobs > 1:  # kernels that each take all cores slow each other far more than `jobs` times
            threads = max(1, (os.cpu_count() or 1) // jobs)
            environment.setdefault("OMP_NUM_THREADS", str(threads))
        return environment

    def ended(self) -> bool:
        """Tell whether the run has ended, or has to be: its child does not answer any more."""
        if self.child.poll() is not None:
            return True
        status = _read(self.folder / STATUS)
        self.overrun = bool(self.timeout and status and time.time() - status["since"] > self.timeout + GRACE_SECONDS)
        return self.overrun

    def state(self) -> str:
        """Return one line: which cell, how far its own progress is, and for how long the run has gone on."""
        return f"{self.title}: {self._place()}, {duration(time.monotonic() - self.clock)}"

    def say_state(self, every: float) -> None:
        """Say the state when `every` seconds have passed and something is new."""
        if time.monotonic() - self.said_at >= every:
            self.said_at = time.monotonic()
            if self._place() != self.said:
                self.said = self._place()
                self.say(self.state())

    def _place(self) -> str:
        status = _read(self.folder / STATUS)
        if status is None:
            return "kernel is starting"
        line = f"cell {status['cell']}/{status['cells']}"
        try:
            progress = self.folder / "progress.txt"
            if progress.stat().st_mtime >= status["since"]:
                line += f", {progress.read_text(encoding='utf-8')}"
        except OSError:
            pass  # this cell has not reported any
        return line

    def finish(self, interrupted: bool = False) -> RunResult:
        """End every process of the run, write its result, and move its folder to where it belongs."""
        end_processes(self.token, self.child)
        seconds = round(time.monotonic() - self.clock, 3)
        outcome = self._outcome(interrupted)
        status = outcome["status"]
        result = _read(self.folder / RESULT) or {}
        files = {kind: sorted(p.name for p in (self.folder / kind).glob("[!.]*")) for kind in ("tables", "figures")}
        result = {
            "run_id": self.plan.run_id,
            "notebook": self.plan.notebook.stem,
            "profile": self.plan.profile,
            "status": status,
            "seconds": seconds,
            "started": self.started.isoformat(timespec="seconds"),
            "parameters": self.plan.parameters,
            "headline": result.get("headline", {}),
            **files,
            "error": outcome["error"],
            "hashes": self.plan.hashes,
            "git": _git_commit(self.layout.root),
            "python": sys.version.split()[0],
        }
        for name in ("job.json", STATUS, OUTCOME, "progress.txt"):
            (self.folder / name).unlink(missing_ok=True)
        if status == "ok" or not (self.folder / "runner.log").stat().st_size:
            (self.folder / "runner.log").unlink()
        write_json(self.folder / RESULT, result)
        target = self.layout.outputs / (self.plan.run_id if status == "ok" else f"{self.plan.run_id}-failed")
        _move(self.folder, target)
        if status == "ok":
            shutil.rmtree(self.layout.outputs / f"{self.plan.run_id}-failed", ignore_errors=True)
        _to_index(self.layout.outputs, result, target)
        self.lock.release()
        self.say(_ending(self.title, result, target))
        return RunResult(self.plan, status, seconds, target, outcome["error"])

    def _outcome(self, interrupted: bool) -> dict[str, Any]:
        """Return how the child ended, also where it could not say so itself."""
        outcome = _read(self.folder / OUTCOME)
        if outcome is not None and not interrupted:
            return outcome
        status = _read(self.folder / STATUS) or {}
        if interrupted:
            name, value = "Interrupted", "the runner was stopped"
        elif self.overrun:
            name, value = "CellTimeoutError", f"the cell ran longer than {self.timeout} s and nothing answered any more"
        else:
            log = (self.folder / "runner.log").read_text(encoding="utf-8", errors="replace").strip()
            tail = log.splitlines()[-1] if log else "it left no message"
            name, value = "ProcessDied", f"the notebook's process ended with code {self.child.returncode}: {tail}"
        error = {"cell": status.get("cell"), "name": name, "value": value, "source": status.get("source", "")}
        return {"status": "interrupted" if interrupted else "failed", "error": {**error, "traceback": []}}


def end_processes(token: str, child: subprocess.Popen[bytes]) -> None:
    """End every process that carries the run's token: the child, its kernel and whatever a cell started."""
    import psutil

    if child.stdin is not None:
        child.stdin.close()
    deadline = time.monotonic() + 10
    while True:
        mine = [process for process in psutil.process_iter() if _carries(process, token)]
        for process in mine:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        if not mine or time.monotonic() > deadline:
            break
        psutil.wait_procs(mine, timeout=1)  # a process started meanwhile is found in the next round
    child.kill()
    child.wait()


def _carries(process: Any, token: str) -> bool:
    import psutil

    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(TOKEN) == token
    except (psutil.Error, OSError):
        return False  # another user's, or gone


def _ending(title: str, result: dict[str, Any], target: Path) -> str:
    """Return what to tell about the end of a run; a failure shows the cell."""
    head = f"{title}: {result['status']} after {duration(result['seconds'])}"
    if result["status"] == "ok":
        numbers = ", ".join(f"{name} {short(value)}" for name, value in result["headline"].items())
        return f"{head}, {target.name}" + (f"; {numbers}" if numbers else "")
    error = result["error"]
    lines = [f"{head}: {error['name']}: {error['value']}"]
    if error["source"]:
        lines += [f"  in cell {error['cell']}:", *(f"    {line}" for line in error["source"].splitlines())]
    trace = "\n".join(error["traceback"])
    shown = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", trace).splitlines() if line.strip()][-12:]
    text = "\n".join([*lines, *(f"  | {line}" for line in shown), f"  kept in {target}"])
    return re.sub(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]", "?", text)  # an error may quote a model; a terminal obeys


def short(value: Any) -> str:
    """Return a headline number with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def is_finished(outputs: Path, plan: Plan) -> bool:
    """Say whether the run was finished before; changes nothing."""
    folder = outputs / plan.run_id
    result = _read(folder / RESULT)
    return result is not None and result.get("status") == "ok" and (folder / f"{plan.notebook.stem}.ipynb").exists()


def _finished(outputs: Path, plan: Plan) -> RunResult | None:
    """Return the run if it was finished before; a profile that shares it with another one gets its own index entry."""
    if not is_finished(outputs, plan):
        return None
    folder = outputs / plan.run_id
    result = _read(folder / RESULT) or {}
    known = {(entry["run_id"], entry.get("profile")) for entry in read_index(outputs)[0] if entry.get("status") == "ok"}
    if (plan.run_id, plan.profile) not in known:
        _to_index(outputs, {**result, "profile": plan.profile}, folder)
    return RunResult(plan, "skipped", 0.0, folder)


def _to_index(outputs: Path, result: dict[str, Any], folder: Path) -> None:
    names = ("run_id", "notebook", "profile", "status", "seconds", "started", "parameters", "headline", "git")
    error = result["error"]
    append_index(
        outputs,
        {
            **{name: result[name] for name in names},
            "folder": folder.name,
            "error": f"cell {error['cell']}: {error['name']}: {error['value'][:300]}" if error else None,
        },
    )


def _locked(outputs: Path, name: str) -> filelock.BaseFileLock | None:
    """Take a run's lock, or return None while another runner has it; a killed holder frees it."""
    folder = outputs / ".locks"
    folder.mkdir(exist_ok=True)
    lock = filelock.FileLock(folder / f"{name}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return None
    return lock


def _clear_leftovers(outputs: Path) -> None:
    """Remove the unfinished folders of runners that were killed; those of living ones are locked."""
    for folder in [*outputs.glob(".partial-*"), *outputs.glob(".old-*")]:
        name = folder.name.split("-", 1)[1].rsplit(".", 1)[0]
        (outputs / ".locks").mkdir(exist_ok=True)
        lock = filelock.FileLock(outputs / ".locks" / f"{name}.lock")
        try:
            with lock.acquire(timeout=0):
                shutil.rmtree(folder, ignore_errors=True)
        except filelock.Timeout:
            continue


def _move(folder: Path, target: Path) -> None:
    """Put a folder in the place of an older one. The older one is complete until the rename."""
    old = target.with_name(f".old-{folder.name.removeprefix('.partial-')}")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    folder.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _read(path: Path) -> dict[str, Any] | None:
    """Return a JSON object, or None where there is none (yet)."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _git_commit(root: Path) -> str | None:
    """Return the checkout's commit, with "+" when files differ from it; None where there is no git."""
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
