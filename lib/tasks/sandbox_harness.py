"""The two small processes inside the sandbox: a judge that no program can touch, and a runner that runs one program.

Started by `lib.tasks.sandbox` as a script in a fresh interpreter; imports nothing of the laboratory and nothing that is slow.

1. The **judge** reads the program from its input, enters new namespaces where the system lets it, and forks the runner. It holds the
   clock and a secret number. It never runs a line of the program.
2. The **runner** gives up everything it can (files, network, rights, memory, processes), then runs the program. Only after the last
   line has run does it read the secret from a pipe and send it back; a program that leaves earlier, however politely, never gets there.
3. The judge kills the runner, and with a process namespace everything the program started, and writes one verdict.

What could not be put in force is a list of notes that travels with the verdict; nothing fails silently.

Not covered: see `lib.tasks.sandbox`. Windows.
"""

# ruff: noqa: PTH102, PTH103, PTH112, PTH114, PTH115, PTH120, PTH211
# No pathlib here: its import would cost a fifth of the time that a program takes.

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

PROGRAM = "<program>"  # the name under which the program is compiled, to find its lines in a traceback
NOBODY = 65534
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x20000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
APART = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "arm64": 41}  # the C library has no function for this system call
HOME = "/sandbox"  # the working folder inside
READABLE = ("/usr", "/lib", "/lib32", "/lib64")  # shared libraries; the interpreter's own folders are added

NO_NAMESPACES = "network, other processes and files of the machine are within reach: no namespaces here"
NO_ROOT = "files of the machine are within reach as far as the user's rights go"
NO_DROP = "the program runs as root, and the number of its processes is not limited"
NO_COUNT = "processes are counted together with all others of this user, so the program may be unable to start any"
NO_PDEATH = "a program that ends the judge lives on until its time is up or its group is killed"


# ------------------------------------------------------------------------------------------------------------------------- the system


def _libc() -> Any:
    """Return the C library on Linux, else None."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _call(function: Any, *arguments: object) -> None:
    """Call a function of the C library; raises OSError where it returns an error."""
    import ctypes

    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _mount(libc: Any, source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    import ctypes

    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    _call(libc.mount, texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])


def enter_namespaces(libc: Any) -> bool:
    """Put this process's future children behind their own mounts, network, processes and IPC; say whether that worked.

    Root can do it directly; anyone else, and root without that right, needs a user namespace of his own around it.
    """
    if libc is None:
        return False
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        with suppress(OSError):
            _call(libc.unshare, APART)
            return True
    try:
        _call(libc.unshare, APART | CLONE_NEWUSER)
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            handle = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(handle, text.encode())
            os.close(handle)
    except OSError:
        return False
    return True


def enter_root(libc: Any, folder: str, size: int) -> None:
    """Replace the whole file system by one in memory: read-only what the interpreter needs, and one empty folder.

    The folder is ``/sandbox``, and ``/tmp`` leads to it unless the interpreter itself lives there.

    Parameters
    ----------
    folder
        Empty folder that serves as mount point; nothing is written into the real one.
    size
        Bytes that the empty folder may hold.
    """
    _mount(libc, "none", "/", None, MS_REC | MS_PRIVATE)
    _mount(libc, "sandbox", folder, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    wanted = {*READABLE, sys.base_prefix, sys.base_exec_prefix, *(path for path in sys.path if path.startswith("/"))}
    shown: list[str] = []
    for path in sorted(wanted):
        if not os.path.isdir(path) or any(f"{path}/".startswith(f"{above}/") for above in shown):
            continue
        target = folder + path
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
            continue
        os.mkdir(target, 0o755)
        _mount(libc, path, target, None, MS_BIND | MS_REC)
        kept = os.statvfs(path).f_flag & 0b1111  # flags that a mount brings along may not be dropped
        _mount(libc, "none", target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | kept)
        shown.append(path)
    os.mkdir(f"{folder}/dev", 0o755)
    for name in ("null", "zero", "urandom", "random"):
        os.close(os.open(f"{folder}/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        _mount(libc, f"/dev/{name}", f"{folder}/dev/{name}", None, MS_BIND)
    os.mkdir(folder + HOME, 0o755)
    if not os.path.lexists(f"{folder}/tmp"):
        os.symlink(HOME, f"{folder}/tmp")
    _mount(libc, "sandbox", folder + HOME, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size},nr_inodes=4096,mode=1777")
    _mount(libc, "none", folder, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    # The old root is stacked on the new one and taken off again, so no name leads back to it.
    os.chdir(folder)
    _call(libc.syscall, PIVOT_ROOT[os.uname().machine], b".", b".")
    _call(libc.umount2, b".", MNT_DETACH)
    os.chdir(HOME)


def limit_resources(limits: dict[str, int]) -> list[str]:
    """Set the limits of this process and its children, and return a note for each that the system does not take."""
    notes = []
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        try:
            if kind is None:
                raise ValueError(name)
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))
        except (ValueError, OSError):
            notes.append(f"limit {name} is not in force")
    if sys.platform == "darwin":
        notes.append("limit AS is taken but not kept by macOS")
    return notes


def drop_root(folder: str) -> list[str]:
    """Let root become nobody, if nobody can still read the interpreter's library; return notes."""
    try:
        os.setgroups([])
        os.chown(folder, NOBODY, NOBODY)
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        with open(os.__file__, "rb"):
            pass
        os.seteuid(0)
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    except OSError:
        os.seteuid(0)
        os.setegid(0)
        return [NO_DROP]
    return []


# ---------------------------------------------------------------------------------------------------------------------------- runner


def confine(libc: Any, apart: bool, root: bool, folder: str, limits: dict[str, int], room: int) -> list[str]:
    """Give up, for good, whatever the program does not need; return what could not be given up.

    Parameters
    ----------
    apart
        Whether `enter_namespaces` worked.
    root
        Whether the laboratory runs as root; inside a user namespace this process looks like root either way.
    """
    notes = [] if apart else [NO_NAMESPACES]
    os.setsid()  # so that a program which kills its own group does not meet the judge there
    rooted = False
    if apart:
        try:
            enter_root(libc, folder, room)
            rooted = True
        except (OSError, KeyError):
            notes.append(NO_ROOT)
    home = HOME if rooted else folder
    os.chdir(home)
    if apart and not root:
        limits["NPROC"] += 1  # the judge belongs to the same user and the same namespace
    notes += limit_resources(limits)
    if root:
        notes += drop_root(home)
    if apart:
        # A further user namespace takes away the rights over the ones above, and counts processes afresh.
        try:
            _call(libc.unshare, CLONE_NEWUSER)
        except OSError:
            notes.append(NO_COUNT)
    elif not root:
        notes.append(NO_COUNT)
    if libc is not None:
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # last: a change of user clears it
    else:
        notes.append(NO_PDEATH)
    os.environ.clear()
    os.environ.update(HOME=home, TMPDIR=home, PATH="/usr/bin:/bin", LANG="C.UTF-8")
    return notes


def describe(error: BaseException, source: str) -> str:
    """Return an exception in one line: type, message, line number and that line of the program."""
    line, trace = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == PROGRAM:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        said = str(error)[:300]
    except Exception:  # noqa: BLE001  (the program's own __str__)
        said = ""
    if isinstance(error, SystemExit):
        return f"the program left with SystemExit({said}) before its tests were through"
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    lines = source.split("\n")
    if line is not None and 0 < line <= len(lines):
        text += f" (line {line}: {lines[line - 1].strip()[:200]})"
    return " ".join(text.split())


def run_program(source: str, secret_end: int, result_end: int) -> NoReturn:
    """Run the program in a module of its own and report; never returns."""
    # Local names: the program may replace what modules hold.
    read, write, leave, said = os.read, os.write, os._exit, describe
    out, err = sys.stdout, sys.stderr
    module = types.ModuleType("program")  # not "__main__": a program's own demonstration must not run
    sys.modules["program"] = module
    try:
        exec(compile(source, PROGRAM, "exec", dont_inherit=True), module.__dict__)
        message = "passed "
    except MemoryError:
        message = "memory the limit of memory was reached"
    except BaseException as error:  # noqa: BLE001  (whatever the program raises is its verdict)
        message = f"failed {said(error, source)}"
    for stream in (out, err):
        with suppress(BaseException):
            stream.flush()
    line = message.encode("utf-8", "replace")[:1000]
    if line == b"passed ":
        line += read(secret_end, 64)
    write(result_end, line + b"\n")
    leave(0)


# ----------------------------------------------------------------------------------------------------------------------------- judge


class Judge:
    """Reads what the runner sends, keeps the time, and ends the runner."""

    def __init__(self, runner: int, result_end: int, apart: bool) -> None:
        self.runner = runner
        self.result_end = result_end
        self.apart = apart
        self.buffer = b""
        self.status: int | None = None
        self.killed = False  # whether it was still there at the end
        self.cpu = 0.0  # seconds of processor time, of the runner and what it waited for

    def line(self, seconds: float) -> str | None:
        """Return the next line from the runner; "" if it ended or closed the pipe without one; None when the time is up."""
        until = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0:
                return None
            # The pipe may stay open in a process that the runner left behind, hence the look at the runner itself.
            if select.select([self.result_end], [], [], min(left, 0.02))[0]:
                block = os.read(self.result_end, 4096)
                self.buffer += block
                if not block or len(self.buffer) > 65536:
                    self.wait(0.2)  # a pipe closes a moment before its process has ended
                    return ""
            elif self.ended() and not select.select([self.result_end], [], [], 0)[0]:
                return ""
        text, _, self.buffer = self.buffer.partition(b"\n")
        return text.decode("utf-8", "replace")

    def wait(self, seconds: float) -> None:
        """Wait at most so long for the end of the runner."""
        until = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < until:
            time.sleep(0.002)

    def ended(self, options: int = os.WNOHANG) -> bool:
        """Say whether the runner has ended, and keep how."""
        if self.status is None:
            pid, status, usage = os.wait4(self.runner, options)
            if pid:
                self.status, self.cpu = status, usage.ru_utime + usage.ru_stime
        return self.status is not None

    def end(self) -> None:
        """Kill the runner and its group; with a process namespace everything in it goes too."""
        self.killed = self.status is None
        kills: list[Callable[[int, int], None]] = [] if self.status is not None else [os.kill]
        for kill in [*kills, *([] if self.apart else [os.killpg])]:
            with suppress(ProcessLookupError, PermissionError):
                kill(self.runner, signal.SIGKILL)
        self.ended(0)


def verdict_of(message: str | None, judge: Judge, secret: str, seconds: float, cpu_limit: int) -> tuple[str, str]:
    """Return verdict and detail from what the runner sent and how it ended."""
    if message is None:
        return "timeout", f"not finished after {seconds:g} s"
    word, _, rest = message.partition(" ")
    if word == "passed" and rest == secret:
        return "passed", ""
    if word == "memory":
        return "out-of-memory", rest
    if word in ("failed", "passed"):
        return "failed", rest if word == "failed" else "a wrong secret came back"
    if judge.killed:
        return "failed", "the program closed the pipe to its judge"
    status = judge.status
    if status is not None and os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        if name in ("SIGKILL", "SIGXCPU") and judge.cpu >= cpu_limit - 0.5:
            return "timeout", f"{cpu_limit} s of processor time used up"
        return "crash", f"ended by {name}"
    code = "unknown" if status is None else os.WEXITSTATUS(status)
    return "failed", f"the program left with exit code {code} before its tests were through"


def main(arguments: list[str]) -> None:
    """Judge one program: read it from standard input, write runner, notes, verdict, seconds and detail to standard output."""
    folder, seconds, memory, file_bytes, room, processes, files, namespaces = arguments
    cpu = int(float(seconds)) + 2
    limits = {
        "CORE": 0,
        "CPU": cpu,
        "AS": int(memory),
        "FSIZE": int(file_bytes),
        "NPROC": int(processes),
        "NOFILE": int(files),
    }
    with open(0, "rb", closefd=False) as stream:
        source = stream.read().decode("utf-8", "replace")
    libc = _libc()
    root = os.geteuid() == 0
    apart = namespaces == "1" and enter_namespaces(libc)
    result_read, result_write = os.pipe()
    secret_read, secret_write = os.pipe()
    runner = os.fork()
    if runner == 0:
        os.close(result_read)
        os.close(secret_write)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)  # what the program prints goes with its errors; the verdict's pipe is the judge's alone
        os.close(nothing)
        notes = confine(libc, apart, root, folder, limits, int(room))
        os.write(result_write, ("ready " + "|".join(notes) + "\n").encode())
        os.read(secret_read, 1)  # the judge says go
        run_program(source, secret_read, result_write)
    os.close(result_write)
    os.close(secret_read)
    os.write(1, f"runner {runner}\n".encode())
    judge = Judge(runner, result_read, apart)
    ready = judge.line(30.0)  # entering the sandbox is not the program's time
    if ready is None or not ready.startswith("ready "):
        judge.end()
        os.write(1, f"\nbroken\n0\nthe runner did not start ({ready!r})".encode())
        return
    os.write(1, f"{ready.removeprefix('ready ')}\n".encode())  # now, since a program may yet end its judge
    secret = os.urandom(16).hex()  # made after the fork: the runner's memory has never held it
    started = time.monotonic()
    with suppress(BrokenPipeError):
        os.write(secret_write, f"!{secret}".encode())
    message = judge.line(float(seconds))
    spent = time.monotonic() - started
    judge.end()
    verdict, detail = verdict_of(message, judge, secret, float(seconds), cpu)
    os.write(1, f"{verdict}\n{spent:.6f}\n{detail}".encode("utf-8", "replace"))


if __name__ == "__main__":
    main(sys.argv[1:])
