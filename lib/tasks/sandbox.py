"""Run programs that a model wrote, one process each, and say whether they pass their tests.

Context
-------
An answer to a programming task is right if its tests pass, so somebody has to run it. Such a program may loop, print without end, take
all memory, start processes, leave with exit code 0 before a test has run, or worse; most do so by mistake.

Intuition
---------
Each program gets a fresh interpreter without site packages, an empty environment, an empty folder and no input. A judge process beside it
keeps the clock (`lib.tasks.sandbox_harness`). "Passed" is not an exit code: it is a secret number that the runner receives and sends back
only after the last line of the tests has run, so `sys.exit(0)`, `os._exit(0)` or printing "ok" do not pass.

What holds a program back, where the system offers it:

===================  ======================================================================  ==========================================
what                 with namespaces (Linux)                                                 without (macOS, many containers)
===================  ======================================================================  ==========================================
time                 wall clock, processor time; then everything is killed                   the same, for what stays in its group
memory               1 GiB of addresses a process                                            the same; macOS does not keep it
files                an empty file system in memory; only the interpreter and shared         temporary folder as working folder;
                     libraries are visible, read-only                                        everything else as the user's rights go
network              none, not even loopback                                                 the machine's
processes, threads   8; no others are visible                                                8 beside all others of the user: often none
user                 root becomes nobody                                                     the same, if nobody can read the interpreter
===================  ======================================================================  ==========================================

How to read the result
----------------------
`Verdict.verdict` is one of `VERDICTS`; only "passed" counts as right. `Verdict.notes` names each protection that was *not* in force; an
empty tuple means that all were. The hash seed is fixed, so a program that walks a set of strings does the same every time.

Not covered
-----------
- This is no security boundary. A hole in the kernel is a way out. Without namespaces a program can read and write what the user can,
  use the network, signal the user's processes, and leave a process behind that changed its group. Run the programs of strangers in a
  virtual machine.
- A program written to deceive the tests can: it shares the interpreter with them. It may find the pipe of the secret, patch a module
  that the tests use, or return an object whose ``__eq__`` always says yes.
- With namespaces the program is process 1 of its own little system, which ignores signals that it sends to itself.
- The memory limit counts addresses, process by process; all processes together may take `Limits.processes` times as much.
- The wall clock of a busy machine: a program that is just fast enough alone may time out beside other work.
- Tests that need packages beyond the standard library. Windows.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal, get_args

import msgspec

Outcome = Literal["passed", "failed", "timeout", "crash", "out-of-memory", "no-code"]

VERDICTS: tuple[str, ...] = get_args(Outcome)
"""passed; failed (an exception, a failed assertion, or an early exit); timeout; crash (ended by a signal); out-of-memory; no-code."""

_HARNESS = Path(__file__).with_name("sandbox_harness.py")
# -P, -s and an environment of our own are what -I stands for; -I itself would also drop the fixed hash seed.
_COMMAND = ("-P", "-s", "-S", "-B")
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "MALLOC_ARENA_MAX": "2"}
_PATIENCE = 45.0  # seconds beyond the time limit after which a judge that says nothing is given up
_BLOCK = 1 << 16  # bytes read at a time
_LINES = 5  # of a whole report: runner, notes, verdict, seconds, detail


class SandboxError(RuntimeError):
    """Programs cannot be run as asked; the message names the parameter or the cause, and the fix."""


class Program(msgspec.Struct, frozen=True):
    """A whole program: the solution, its tests and the call of the tests. An empty `source` stands for an answer without code."""

    id: str
    source: str


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one program may take.

    Parameters
    ----------
    memory_bytes
        Addresses of each of its processes.
    file_bytes, folder_bytes
        Largest file; with namespaces also all files together, which lie in memory.
    processes
        Processes and threads at the same time, itself included.
    open_files
        File descriptors of each process.
    output_bytes
        Bytes of what it prints that are kept; the rest is read and thrown away.
    namespaces
        False does without them, as on a system that has none.
    """

    memory_bytes: int = 1 << 30
    file_bytes: int = 16 << 20
    folder_bytes: int = 32 << 20
    processes: int = 8
    open_files: int = 64
    output_bytes: int = 4096
    namespaces: bool = True


class Verdict(msgspec.Struct, frozen=True):
    """What became of one program.

    Parameters
    ----------
    id
        Id of the program.
    verdict
        One of `VERDICTS`.
    seconds
        Wall time of the program itself, without the start of the interpreter; None where nothing ran.
    detail
        Why it is not "passed", in one line; text of the program may be in it, so escape it where it is shown.
    output
        The beginning of what it printed, on both streams.
    notes
        Protections that were not in force, in words.
    """

    id: str
    verdict: Outcome
    seconds: float | None
    detail: str = ""
    output: str = ""
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the tests ran to their end without a complaint."""
        return self.verdict == "passed"


def run_tests(
    programs: Sequence[Program],
    *,
    allow_code_execution: bool,
    timeout: float = 3.0,
    workers: int = 2,
    limits: Limits | None = None,
    on_verdict: Callable[[Verdict], None] | None = None,
) -> list[Verdict]:
    """Run programs, each in a sandbox of its own.

    Parameters
    ----------
    programs
        Programs that end by running their own tests (`lib.tasks.code_answer.program_of`).
    allow_code_execution
        Must be True: the caller says that he wants code of a model to run on this machine.
    timeout
        Seconds of wall time a program.
    workers
        Programs that run at the same time.
    limits
        What a program may take; None: the defaults of `Limits`.
    on_verdict
        Called with each verdict in the order of `programs`, for a progress bar.

    Returns
    -------
    list of Verdict
        One a program, in the same order.

    Raises
    ------
    SandboxError
        Not allowed, a parameter out of range, not a POSIX system, or the interpreter cannot be started.

    Examples
    --------
    >>> programs = [
    ...     Program("right", "assert 1 + 1 == 2"),
    ...     Program("early", "import os; os._exit(0)"),
    ...     Program("none", ""),
    ... ]
    >>> [verdict.verdict for verdict in run_tests(programs, allow_code_execution=True)]
    ['passed', 'failed', 'no-code']

    Notes
    -----
    Source: scorers specification, section 7. A program takes some 20 to 40 ms beside its own time.
    """
    if allow_code_execution is not True:
        raise SandboxError(
            f"allow_code_execution is {allow_code_execution!r}: this would run programs that a model wrote; pass "
            "allow_code_execution=True once you have read what lib.tasks.sandbox does not cover"
        )
    if os.name != "posix":
        raise SandboxError("the sandbox needs Linux or macOS; on Windows use WSL")
    for name, value in (("timeout", timeout), ("workers", workers)):
        if not value > 0:
            raise SandboxError(f"{name} must be above 0, got {value!r}")
    limits = Limits() if limits is None else limits
    verdicts = []
    pool = ThreadPoolExecutor(workers, thread_name_prefix="sandbox")
    try:
        for verdict in pool.map(lambda program: _run(program, timeout, limits), programs):
            verdicts.append(verdict)
            if on_verdict is not None:
                on_verdict(verdict)
    finally:
        pool.shutdown(cancel_futures=True)  # stopped by hand: what runs ends by its own clock, the rest never starts
    return verdicts


def _run(program: Program, timeout: float, limits: Limits) -> Verdict:
    if not program.source.strip():
        return Verdict(program.id, "no-code", None, "the answer holds no code")
    # Where a process has taken rights away from a folder of its own, the clean-up gives them back and goes on.
    with tempfile.TemporaryDirectory(prefix="sandbox-", ignore_cleanup_errors=True) as folder:
        numbers = (
            timeout,
            limits.memory_bytes,
            limits.file_bytes,
            limits.folder_bytes,
            limits.processes,
            limits.open_files,
            int(limits.namespaces),
        )
        try:
            judge = subprocess.Popen(
                [sys.executable, *_COMMAND, str(_HARNESS), folder, *map(str, numbers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=_ENVIRONMENT,
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"cannot start {sys.executable or 'an interpreter'}: {error}") from error
        report = b""
        try:
            report, output = _listen(judge, program.source.encode("utf-8", "replace"), timeout, limits.output_bytes)
        finally:
            _end(judge, report)
    return _verdict(program.id, report.decode("utf-8", "replace"), output.decode("utf-8", "replace"))


def _listen(judge: subprocess.Popen[bytes], source: bytes, timeout: float, keep: int) -> tuple[bytes, bytes]:
    """Hand over the program; return the judge's report and the first `keep` bytes of what the program printed."""
    assert judge.stdin and judge.stdout and judge.stderr
    with suppress(BrokenPipeError), judge.stdin:
        judge.stdin.write(source)  # the judge reads all of it before it does anything else
    until = time.monotonic() + timeout + _PATIENCE
    kept: dict[IO[bytes], bytes] = {judge.stdout: b"", judge.stderr: b""}
    room = {judge.stdout: _BLOCK, judge.stderr: keep}
    with judge.stdout, judge.stderr, selectors.DefaultSelector() as selector:
        for stream in kept:
            selector.register(stream, selectors.EVENT_READ)
        while judge.stdout in selector.get_map():
            left = until - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                break
            for key, _ in ready:
                _take(key.fileobj, kept, room, selector)  # type: ignore[arg-type]
        # The judge has spoken. What lies in the pipe is still taken, but nobody waits for a process that was left behind.
        if judge.stderr in selector.get_map() and selector.select(0):
            _take(judge.stderr, kept, room, selector)
    return kept[judge.stdout], kept[judge.stderr]


def _take(
    stream: IO[bytes], kept: dict[IO[bytes], bytes], room: dict[IO[bytes], int], selector: selectors.BaseSelector
) -> None:
    block = os.read(stream.fileno(), _BLOCK)
    if not block:
        selector.unregister(stream)
    kept[stream] += block[: max(0, room[stream] - len(kept[stream]))]


def _end(judge: subprocess.Popen[bytes], report: bytes) -> None:
    """End the judge and, if it left without a verdict, the runner that it named."""
    if judge.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(judge.pid, signal.SIGKILL)
    judge.wait()
    if report.startswith(b"runner ") and report.count(b"\n") < _LINES - 1:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(int(report.split()[1]), signal.SIGKILL)


def _verdict(name: str, report: str, output: str) -> Verdict:
    lines = report.split("\n", _LINES - 1)
    if not lines[0].startswith("runner "):
        raise SandboxError(
            f"{sys.executable} cannot run the sandbox: {' '.join(output.split())[-300:] or 'no message'}"
        )
    notes = tuple(note for note in lines[1].split("|") if note) if len(lines) > 2 else ("the judge ended too early",)
    if len(lines) < _LINES:
        return Verdict(name, "crash", None, "the program ended its judge, or the judge did not answer", output, notes)
    verdict, seconds, detail = lines[2:]
    if verdict == "broken":
        raise SandboxError(f"{detail}: {' '.join(output.split())[-300:]}")
    return Verdict(name, msgspec.convert(verdict, Outcome), float(seconds), detail, output, notes)
