"""Kill -9 anywhere in a replay sweep, run it again: the tables are those of an undisturbed run, and nothing stored is computed twice."""

from __future__ import annotations

import random
import re
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from lib.runs.store import Store
from tests.runs.sweeps import CHUNK, COMPUTED, END, PHASES, STORE, Order, call_mark, marks_of

ROOT = Path(__file__).resolve().parents[2]
SWEEP = [sys.executable, "-m", "tests.runs.sweeps"]
IMPORTS = "imports"  # the phase before the first mark
CALLS = "calls"  # kills at the commit of some call, or in the next call
# Fifty kills, in every phase of a life and most where the store is written; five in sequence on each of ten stores.
KILLS = {IMPORTS: 4, "receiver": 1, "store": 8, "readers": 4, CALLS: 20, "replay": 4, "export": 9}
STORES = 10


class Sweep:
    """One folder in which a sweep is started, killed and started again, with the accounts kept."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.kills = 0
        self.before = self.held()
        self.log_before: list[str] = []

    def held(self) -> set[str]:
        """Return the prompts whose replies the store holds, read from a copy: recovery is left to the sweep itself."""
        if not (self.folder / STORE).exists():
            return set()
        look = self.folder / "look"
        shutil.rmtree(look, ignore_errors=True)
        look.mkdir()
        for file in self.folder.glob(f"{STORE}*"):
            if not file.name.endswith("-shm"):  # an index of the log, made anew by whoever opens it
                shutil.copy(file, look)
        database = sqlite3.connect(look / STORE)
        try:
            made = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'reply'").fetchone() == (1,)
            rows = database.execute("SELECT prompt FROM reply").fetchall() if made else []
        finally:
            database.close()
        return {prompt for (prompt,) in rows}

    def computed(self) -> list[str]:
        """Return the keys of all prompts computed so far; the line that a kill tore is none."""
        path = self.folder / COMPUTED
        return re.findall(r"[0-9a-f]{64}(?=\n)", path.read_text()) if path.exists() else []

    def account(self, code: int) -> None:
        """Check the life that just ended, with its exit code, against what the store held when it started."""
        assert code in (0, -signal.SIGKILL), "the sweep failed"
        killed = code != 0
        log, held = self.computed(), self.held()
        fresh = log[len(self.log_before) :]
        assert len(set(fresh)) == len(fresh), "computed twice in one life"
        assert not set(fresh) & self.before, "computed although it was stored"
        assert self.before <= held <= self.before | set(fresh), "a stored reply vanished, or came from nowhere"
        assert len(set(fresh) - held) <= (CHUNK if killed else 0), "a kill costs more than the chunk in flight"
        self.kills += killed
        self.before, self.log_before = held, log

    def tables(self) -> dict[str, bytes]:
        """Return every finished file of tables and corpora; names of unfinished ones start with a dot."""
        files = [path for part in ("tables", "corpora") for path in (self.folder / part).rglob("[!.]*")]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in sorted(files) if path.is_file()}

    def rows(self) -> set[tuple[object, ...]]:
        """Return what the store holds, without its clocks and the order of its rows."""
        with Store(self.folder / STORE) as store:
            frame = store.frame()
            assert store.check() == len(frame)
        assert (frame["status"] == "ok").all()
        columns = ["kind", "receiver", "prompt", "decoding", "sample", "text", "prompt_tokens", "new_tokens", "finish"]
        return {tuple(row) for row in frame[columns].itertuples(index=False)}


def life_of(folder: Path, started: float) -> dict[str, float]:
    """Return the seconds of each phase of the latest life, which began at `started`, and those between two of its calls."""
    marks = marks_of(folder)
    order = [started, *(marks[phase] for phase in (*PHASES, END))]
    seconds = {phase: order[place + 1] - order[place] for place, phase in enumerate([IMPORTS, *PHASES])}
    calls = [moment for mark, moment in marks.items() if mark.startswith("call-")]
    return {**seconds, CALLS: statistics.median(after - before for before, after in pairwise(calls))}


@contextmanager
def server(*modules: str) -> Iterator[subprocess.Popen[str]]:
    """Start the process that forks a life for each order."""
    command = [*SWEEP, "--serve", *modules]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
    assert process.returncode == 0


def order(
    process: subprocess.Popen[str], sweep: Sweep, receiver: str, mark: str | None = None, delay: float = 0.0
) -> int:
    """Have one life lived, check its accounts, and return its exit code."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(msgspec.json.encode(Order(str(sweep.folder), receiver, mark, delay)).decode() + "\n")
    process.stdin.flush()
    code = int(process.stdout.readline())
    sweep.account(code)
    return code


def interpreter(sweep: Sweep, delay: float) -> int:
    """Have one life lived by a process of its own, imports included, killed after `delay` seconds; return its exit code."""
    life = subprocess.Popen([*SWEEP, str(sweep.folder)], cwd=ROOT)
    time.sleep(delay)
    life.kill()
    sweep.account(life.wait())
    return life.returncode


def killing_mark(phase: str, missing: int, draw: random.Random) -> str:
    """Return the mark to wait for: of the phase, or of a call in the first half of those that `missing` prompts still take."""
    calls = missing // CHUNK
    if phase == CALLS and calls:
        return call_mark(1 + draw.randrange(1 + calls // 2))
    return "replay" if phase == CALLS else phase


@pytest.mark.slow
def test_row_41_fifty_kills_anywhere_in_a_replay_sweep_change_nothing(tmp_path: Path) -> None:
    """Case 41 (papermill#824): from the first import to the last write, several on the same store, and on fresh ones."""
    draw = random.Random(20261201)
    calm = Sweep(tmp_path / "calm")
    started = time.monotonic()
    subprocess.run([*SWEEP, str(calm.folder)], cwd=ROOT, check=True, timeout=300)
    calm.account(0)
    seconds, total = life_of(calm.folder, started), len(calm.computed())
    points = [(phase, (place + draw.random()) / count) for phase, count in KILLS.items() for place in range(count)]
    draw.shuffle(points)
    halfway = 0
    with server() as process:
        for number in range(STORES):
            sweep = Sweep(tmp_path / f"stormy-{number}")
            for phase, share in sorted(points[number::STORES], key=lambda point: point[0] == "export"):
                for _ in range(50):
                    if phase == IMPORTS:
                        code = interpreter(sweep, share * seconds[phase])
                    else:
                        mark = killing_mark(phase, total - len(sweep.before), draw)
                        code = order(process, sweep, "scripted", mark, share * seconds[phase])
                    if code == -signal.SIGKILL:
                        break
                    # What is stored need not be computed, so a later life is shorter: after a kill that came too late, kill earlier.
                    share *= draw.random()
                halfway += 0 < len(sweep.before) < total
            assert sweep.kills == len(points) // STORES, "lives end before they can be killed"
            assert order(process, sweep, "scripted") == 0
            assert sweep.tables() == calm.tables()
            assert sweep.rows() == calm.rows()
    assert halfway >= STORES / 2, "hardly a kill hit a sweep in the middle"
    assert len(calm.tables()) == 2 * 2 + 2 * 2  # two tables in two forms; messages and manifest of two workloads
    assert len(calm.rows()) == total > 200


@pytest.mark.slow
@pytest.mark.real("smollm2-135m")
def test_three_kills_of_a_sweep_with_a_real_model_change_nothing(tmp_path: Path) -> None:
    """Killed while it loads and twice between replies.

    A kill costs whole chunks, so the chunks that are left are those of the undisturbed run: each prompt is read in the same company.
    """
    model = "smollm2-135m"
    calm, stormy = Sweep(tmp_path / "calm"), Sweep(tmp_path / "stormy")
    modules = ("lib.models.transformers_receiver", "transformers.models.llama.modeling_llama")
    with server(*modules) as process:
        assert order(process, calm, model) == 0
        seconds = life_of(calm.folder, 0.0)
        points = [("receiver", seconds["receiver"] / 2), (call_mark(1), 0.0), (call_mark(1), seconds["replay"] / 5)]
        for mark, delay in points:
            assert order(process, stormy, model, mark, delay) == -signal.SIGKILL
        assert 0 < len(stormy.before) < len(calm.before)
        assert order(process, stormy, model) == 0
    assert stormy.tables() == calm.tables()
    assert stormy.rows() == calm.rows()
