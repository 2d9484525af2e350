"""What a program may do to pass, and what it may do to its surroundings.

Programs that would harm a machine without namespaces run only where a first look says that every protection is in force.
"""

from __future__ import annotations

import signal
import socket
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.tasks import sandbox
from lib.tasks.sandbox import VERDICTS, Limits, Program, SandboxError, Verdict, run_tests
from lib.tasks.sandbox_harness import NO_DROP, NO_NAMESPACES, Judge, verdict_of

MEMORY = 256 << 20
BOTH = pytest.mark.parametrize("namespaces", [True, False], ids=["namespaces", "without"])


def run(source: str, *, timeout: float = 20.0, namespaces: bool = True, **limits: Any) -> Verdict:
    limits = {"memory_bytes": MEMORY, "namespaces": namespaces, **limits}
    program = Program("p", textwrap.dedent(source))
    return run_tests([program], allow_code_execution=True, timeout=timeout, limits=Limits(**limits))[0]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of our own, open to every user, in which the sandbox makes its temporary folders."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield folder


@pytest.fixture(scope="session")
def protected() -> None:
    """Skip where not everything is in force: what follows would reach the machine itself."""
    if notes := run("x = 1").notes:
        pytest.skip(f"not in force here: {'; '.join(notes)}")


# ------------------------------------------------------------------------------------------------------------------------ permission


@pytest.mark.parametrize("value", [False, None, 1, "yes"])
def test_nothing_runs_without_the_callers_word(value: Any, tmp_path: Path) -> None:
    program = Program("p", f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(SandboxError, match=r"allow_code_execution is .*allow_code_execution=True"):
        run_tests([program], allow_code_execution=value, limits=Limits(namespaces=False))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "value"), [("timeout", 0), ("timeout", float("nan")), ("workers", 0)])
def test_parameters_out_of_range_are_named(name: str, value: float) -> None:
    with pytest.raises(SandboxError, match=f"{name} must be above 0"):
        run_tests([], allow_code_execution=True, **{name: value})  # type: ignore[arg-type]


def test_an_interpreter_that_does_not_start_is_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_HARNESS", Path("/nowhere.py"))
    with pytest.raises(SandboxError, match=r"nowhere\.py"):
        run("x = 1")
    monkeypatch.setattr(sandbox.sys, "executable", "/nowhere/python")
    with pytest.raises(SandboxError, match="cannot start /nowhere/python"):
        run("x = 1")


# -------------------------------------------------------------------------------------------------------------------------- verdicts

CASES = [
    ("assert sorted([2, 1]) == [1, 2]", "passed", ""),
    ("x = 1\nassert x == 2", "failed", "AssertionError (line 2: assert x == 2)"),
    ("def f(:", "failed", "SyntaxError"),
    ("import numpy", "failed", "ModuleNotFoundError"),
    ("def f(n): return f(n + 1)\nf(0)", "failed", "RecursionError"),
    ("input()", "failed", "EOFError"),
    ("if __name__ == '__main__': raise ValueError", "passed", ""),
    ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "failed", "E (line 3: raise E)"),
    ("", "no-code", "no code"),
    (" \n\t", "no-code", "no code"),
    ("exec('x' * 10)", "failed", "NameError"),
    ("raise KeyboardInterrupt", "failed", "KeyboardInterrupt"),
    # Leaving early, with or without a clean exit code, is not passing.
    ("import sys; sys.exit(0)", "failed", "left with SystemExit(0)"),
    ("exit(0)", "failed", "NameError"),
    ("import os; os._exit(0)", "failed", "left with exit code 0"),
    ("print('passed'); import os; os._exit(0)", "failed", "left with exit code 0"),
    (
        "import os\nfor end in range(3, 64):\n    try: os.write(end, b'passed\\n')\n    except OSError: pass\nos._exit(0)",
        "failed",
        "secret",
    ),
    ("import os; os.closerange(0, 64)\nwhile True: pass", "failed", "closed the pipe to its judge"),
    # Crashes
    ("import ctypes; ctypes.string_at(0)", "crash", "SIGSEGV"),
]


@BOTH
def test_verdicts(namespaces: bool) -> None:
    programs = [Program(str(index), source) for index, (source, _, _) in enumerate(CASES)]
    limits = Limits(memory_bytes=MEMORY, namespaces=namespaces)
    seen: list[str] = []
    verdicts = run_tests(
        programs,
        allow_code_execution=True,
        timeout=20,
        limits=limits,
        on_verdict=lambda verdict: seen.append(verdict.id),
    )
    assert [verdict.id for verdict in verdicts] == seen == [program.id for program in programs]
    for verdict, (source, wanted, detail) in zip(verdicts, CASES, strict=True):
        assert verdict.verdict == wanted and detail in verdict.detail, (source, verdict)
        assert verdict.verdict in VERDICTS and verdict.passed == (wanted == "passed")
        assert (verdict.seconds is None) == (wanted == "no-code"), "missing is null, never 0"
        assert (NO_NAMESPACES in verdict.notes) == (not namespaces and wanted != "no-code")


@BOTH
def test_endless_programs_time_out_and_their_output_is_thrown_away(namespaces: bool) -> None:
    before = psutil.Process().memory_info().rss
    for source in ("while True: pass", "while True: print('x' * 10_000)", "import time; time.sleep(60)"):
        verdict = run(source, timeout=0.4, namespaces=namespaces, output_bytes=100)
        assert verdict.verdict == "timeout" and 0.4 <= (verdict.seconds or 0) < 3, verdict
        assert len(verdict.output) <= 100
    assert psutil.Process().memory_info().rss - before < 64 << 20


@pytest.mark.parametrize(
    ("ended_by", "cpu", "verdict"),
    [(signal.SIGKILL, 5.0, "timeout"), (signal.SIGKILL, 0.1, "crash"), (signal.SIGSEGV, 5.0, "crash")],
)
def test_a_kill_at_the_limit_of_processor_time_is_a_timeout(ended_by: int, cpu: float, verdict: str) -> None:
    judge = Judge(0, 0, True)
    judge.status, judge.cpu = ended_by, cpu
    assert verdict_of("", judge, "secret", 3.0, 5)[0] == verdict


def test_a_program_may_lower_its_limits_but_not_lift_them() -> None:
    assert run("from resource import *\nsetrlimit(RLIMIT_CPU, (1, 1))\nwhile True: pass").detail == "ended by SIGKILL"
    lift = run(f"from resource import *\nsetrlimit(RLIMIT_AS, ({2 * MEMORY}, {2 * MEMORY}))")
    assert lift.verdict == "failed" or NO_DROP in lift.notes, lift


@BOTH
def test_a_memory_hog_stops_at_its_limit(namespaces: bool) -> None:
    for source in ("x = bytearray(1 << 32)", "x = [bytearray(1 << 20) for _ in range(10_000)]", "x = 'y' * (1 << 31)"):
        verdict = run(source, namespaces=namespaces)
        assert verdict.verdict == "out-of-memory", (source, verdict)


def test_a_caught_memory_error_is_the_programs_own_business() -> None:
    assert run("try: x = bytearray(1 << 32)\nexcept MemoryError: pass").passed


@BOTH
def test_much_output_before_the_end_neither_blocks_nor_counts(namespaces: bool) -> None:
    verdict = run(
        "import sys\nfor _ in range(300): print('x' * 10_000); print('y', file=sys.stderr)", namespaces=namespaces
    )
    assert verdict.passed and len(verdict.output) == Limits().output_bytes


def test_output_of_both_streams_is_kept_and_null_bytes_do_no_harm() -> None:
    verdict = run(
        "import sys, os\nprint('out', flush=True); print('err', file=sys.stderr); os.write(1, b'\\xff\\x00'); assert 0"
    )
    assert (
        verdict.verdict == "failed"
        and "out" in verdict.output
        and "err" in verdict.output
        and "\ufffd" in verdict.output
    )


@BOTH
def test_closed_streams_and_running_threads_do_not_stand_in_the_way(namespaces: bool) -> None:
    assert run(
        "import os, sys\nsys.stdout.close(); os.close(1); os.close(2)\nassert True", namespaces=namespaces
    ).passed
    thread = "import threading, time\nthreading.Thread(target=lambda: time.sleep(60)).start()\nassert True"
    verdict = run(thread, namespaces=True)
    assert verdict.passed and verdict.seconds is not None and verdict.seconds < 3


def test_a_lying_eq_is_not_noticed() -> None:
    """Documented as not covered: a program that wants to deceive an `==` can."""
    assert run("class Yes:\n    def __eq__(self, other): return True\nassert Yes() == 5").passed


def test_the_hash_seed_is_fixed() -> None:
    source = "print(list({str(i) for i in range(50)}))"
    assert len({run(source).output for _ in range(3)}) == 1


@settings(max_examples=12)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40))
def test_any_text_in_source_and_output_comes_through(text: str) -> None:
    verdict = run(f"import sys\nsys.stdout.write({text!r})\nassert {text!r} == {text!r}")
    assert verdict.passed and verdict.output == text
    assert run(f"# {text!a}\nraise ValueError({text!r})").verdict == "failed"


def test_a_long_program_and_a_lone_surrogate_arrive() -> None:
    assert run("x = [\n" + "1,\n" * 200_000 + "]\nassert len(x) == 200_000").passed
    assert run("x = '\udcff'").passed


# ------------------------------------------------------------------------------------------------------------------------ surroundings


@BOTH
def test_input_is_empty_and_no_pipe(namespaces: bool) -> None:
    assert run(
        "import os, stat\nassert stat.S_ISCHR(os.fstat(0).st_mode) and os.read(0, 1) == b''", namespaces=namespaces
    ).passed


def test_environment_is_scrubbed_and_the_secret_is_nowhere_to_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "deadbeef" * 4)
    verdict = run(
        """
        import gc, os, re, sys
        assert set(os.environ) == {"HOME", "TMPDIR", "PATH", "LANG"}, sorted(os.environ)
        texts, seen, todo = [], set(), [sys.argv, dict(os.environ), gc.get_objects()]
        frame = sys._getframe()
        while frame:
            todo += [dict(frame.f_locals), dict(frame.f_globals)]
            frame = frame.f_back
        while todo:
            thing = todo.pop()
            if id(thing) in seen: continue
            seen.add(id(thing))
            if isinstance(thing, (str, bytes)): texts.append(thing)
            elif isinstance(thing, (dict, list, tuple, set)): todo += gc.get_referents(thing)
        assert len(texts) > 100
        secrets = [t for t in texts if re.fullmatch("[0-9a-f]{32}", t if isinstance(t, str) else t.decode("latin1"))]
        assert secrets == [], secrets
        """
    )
    assert verdict.passed, verdict


@BOTH
def test_the_folder_is_empty_at_first_and_gone_afterwards(namespaces: bool, place: Path) -> None:
    verdict = run(
        """
        import os
        assert os.listdir() == [] and os.path.samefile(os.getcwd(), os.environ["TMPDIR"])
        os.makedirs("a/b"); open("a/b/c", "w").write("x" * 1000); os.symlink("/", "a/root"); os.chmod("a/b", 0); os.chmod("a", 0)
        """,
        namespaces=namespaces,
    )
    assert verdict.passed, verdict
    assert list(place.iterdir()) == []


@BOTH
def test_files_have_a_largest_size(namespaces: bool) -> None:
    source = "try:\n    with open('x', 'wb') as f: f.write(b'x' * 200_000)\nexcept OSError: pass\nelse: assert False"
    assert run(source, namespaces=namespaces, file_bytes=100_000).passed


def test_all_files_together_have_a_largest_size(protected: None) -> None:
    source = """
        import os
        for i in range(100):
            try: open(f"x{i}", "wb").write(b"x" * 100_000)
            except OSError: break
        assert 5 < i < 12, i
        """
    assert run(source, folder_bytes=1_000_000).passed


def test_files_outside_are_neither_seen_nor_written(protected: None, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "private").write_text("private")
    verdict = run(
        f"""
        import os
        for path in ({str(tmp_path / "private")!r}, "/etc/passwd", "/proc/self/environ", "/proc/1/root/etc/passwd"):
            try: open(path)
            except OSError: continue
            assert False, path
        for folder in ({str(tmp_path)!r}, os.path.dirname(os.__file__), "/", "/usr", "/usr/lib", "/dev", "/etc", "/home"):
            try: open(folder + "/sandbox-was-here", "w")
            except OSError: continue
            assert False, folder
        assert all(os.statvfs(path).f_flag & os.ST_RDONLY for path in ("/", "/usr", os.path.dirname(os.__file__)))
        try: os.remove(os.__file__)
        except OSError: pass
        else: assert False
        """
    )
    assert verdict.passed, verdict
    assert [path.name for path in tmp_path.iterdir()] == ["private"]
    assert not (Path(tempfile.__file__).parent / "sandbox-was-here").exists()


def test_rights_cannot_be_won_back(protected: None) -> None:
    """Neither a mount nor a fresh set of namespaces makes the library writable or the old files visible."""
    verdict = run(
        """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        assert os.getuid() != 0
        for _ in range(2):
            for target in (os.path.dirname(os.__file__), "/usr", "/"):
                assert libc.mount(b"none", target.encode(), None, ctypes.c_ulong(32 | 4096), None) == -1, target
                assert libc.umount2(target.encode(), 2) == -1, target
            try: open(os.path.dirname(os.__file__) + "/sandbox-was-here", "w")
            except OSError: pass
            else: assert False
            assert not os.path.exists("/etc/passwd") and not os.path.exists("/proc/1")
            libc.unshare(0x10000000 | 0x20000 | 0x40000000)  # once more with rights in namespaces of its own
        """
    )
    assert verdict.passed, verdict


@BOTH
def test_the_network_is_cut_off_where_namespaces_allow(namespaces: bool, request: pytest.FixtureRequest) -> None:
    if namespaces:
        request.getfixturevalue("protected")
    with socket.create_server(("127.0.0.1", 0)) as server:
        verdict = run(
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), timeout=2)",
            namespaces=namespaces,
        )
    # Without namespaces the program gets through: the note must say so.
    assert verdict.passed != namespaces
    assert any("network" in note for note in verdict.notes) != namespaces
    assert not namespaces or "OSError" in verdict.detail


# --------------------------------------------------------------------------------------------------------------------------- processes


def left_behind(place: Path) -> list[int]:
    """Return the processes of sandboxes whose folder lay in `place`."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(word.startswith(str(place)) for word in process.info["cmdline"] or []):
            found.append(process.pid)
    return found


def test_a_fork_bomb_stays_small_and_ends(protected: None, place: Path) -> None:
    verdict = run(
        """
        import os
        started = 0
        while True:
            try:
                if os.fork() == 0:
                    started = 0
                    continue
                started += 1
            except OSError:
                break
        if os.getpid() == 1:
            print(started)
        while True: pass
        """,
        timeout=0.5,
        processes=4,
        memory_bytes=128 << 20,
    )
    assert verdict.verdict == "timeout", verdict
    assert left_behind(place) == []


def test_processes_are_counted(protected: None) -> None:
    source = """
        import os, signal, time
        children = []
        try:
            while len(children) < 50:
                child = os.fork()
                if child == 0:
                    time.sleep(20)
                children.append(child)
        except OSError: pass
        assert len(children) == 3, len(children)
        """
    assert run(source, processes=4).passed


def test_a_child_that_left_its_group_is_killed_too(protected: None, place: Path) -> None:
    verdict = run(
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(60)
            os._exit(0)
        time.sleep(0.1)
        """
    )
    assert verdict.passed, verdict
    assert left_behind(place) == []


@BOTH
def test_a_child_in_its_group_is_killed(namespaces: bool, place: Path, request: pytest.FixtureRequest) -> None:
    if namespaces:
        request.getfixturevalue("protected")
    elif sandbox.os.geteuid() != 0:
        pytest.skip("without namespaces a user with other processes may be unable to start one here")
    verdict = run("import os, time\nif os.fork() == 0: time.sleep(60)\nassert True", namespaces=namespaces)
    assert verdict.passed, verdict
    assert left_behind(place) == []


def test_the_parent_is_out_of_reach(protected: None) -> None:
    source = """
        import os, signal
        assert os.getppid() == 0 and os.getpid() == 1
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for target in (0, -1):
            try: os.kill(target, signal.SIGTERM)
            except OSError: pass
        for target in range(2, 2000):
            try: os.kill(target, signal.SIGKILL)
            except ProcessLookupError: continue
            assert False, target
        """
    assert run(source).passed


def test_without_namespaces_a_killed_judge_is_a_crash(place: Path) -> None:
    verdict = run("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass", namespaces=False)
    if verdict.verdict == "failed":
        assert "PermissionError" in verdict.detail, "root became nobody, who may not"
    else:
        assert verdict.verdict == "crash" and "judge" in verdict.detail, verdict
    assert NO_NAMESPACES in verdict.notes
    for process in psutil.process_iter():
        if process.pid in left_behind(place):
            process.wait(3)
    assert left_behind(place) == []


@BOTH
def test_a_judge_that_says_nothing_is_given_up_with_all_it_started(
    namespaces: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sandbox, "_PATIENCE", -59.0
    )  # seconds, so the caller waits one second where the judge waits sixty
    verdict = run("import time; time.sleep(60)", timeout=60, namespaces=namespaces)
    assert verdict.verdict == "crash" and "did not answer" in verdict.detail
    for process in [psutil.Process(pid) for pid in left_behind(place)]:
        process.wait(3)
    assert left_behind(place) == []
