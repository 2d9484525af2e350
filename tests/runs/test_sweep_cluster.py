"""A sweep on real workers: one is killed in the middle, one run fails, Ctrl-C ends all, and nothing is made twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pandas as pd
import psutil
import pytest

from lib.runs.index import read_index
from lib.runs.layout import Layout
from lib.runs.sweep import Sweep, read_sweep
from lib.runs.sweep_cluster import run_sweep
from tests.runs.books import make_checkout, processes_naming, write_notebook

ROOT = Path(__file__).resolve().parents[2]
# Each life of a run leaves a line; the first life of seed 0 lasts until it is killed.
CELL = """
import time
from pathlib import Path
lives = Path(folder) / "lives.txt"
with lives.open("a") as file:
    file.write(f"{seed}\\n")
while seed == 0 and lives.read_text().split().count("0") == 1:
    time.sleep(0.05)
assert seed != 3, "three is refused"
from lib.runs import start_run
start_run().record(double=2 * seed)
"""


def checkout_with(tmp_path: Path, seeds: str, more: str = "") -> tuple[Layout, Path, Path]:
    """Return a checkout with one notebook, its sweep file and the log of lives."""
    layout, log = make_checkout(tmp_path), tmp_path / "lives.txt"
    write_notebook(layout.notebooks / "10_a.ipynb", CELL, parameters='seed: int = 9\nfolder: str = ""')
    (layout.params / "sweeps").mkdir()
    file = layout.params / "sweeps" / "trial.yaml"
    file.write_text(f"notebook: 10\nparameters: {{folder: {tmp_path}}}\ngrid: {{seed: {seeds}}}\n{more}")
    return layout, file, log


def wait_for(true: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def lives(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def kill_worker_of(sweep: Sweep, place: int, log: Path, killed: list[int]) -> None:
    """Wait until the run is under way and another one is finished, then kill the worker that has it."""
    identity = sweep.plans[place].run_id
    wait_for(lambda: "0" in lives(log) and "2" in lives(log))
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if "lib.runs.execute" in words and identity in words:
            worker = process.parent()
            assert worker is not None and worker.pid != os.getpid()
            killed.append(worker.pid)
            worker.kill()


@pytest.mark.slow
def test_a_killed_worker_costs_one_run_a_failure_is_tried_again_and_nothing_is_made_twice(tmp_path: Path) -> None:
    layout, file, log = checkout_with(tmp_path, "[0, 2, 3]")
    sweep, lines, killed = read_sweep(file, layout), list[str](), list[int]()
    killer = threading.Thread(target=kill_worker_of, args=(sweep, 0, log, killed))
    killer.start()
    outcomes = run_sweep(layout, sweep, workers=2, say=lines.append, every=0.5)
    killer.join()
    text = "\n".join(lines)
    assert [outcomes[plan.run_id].status for plan in sweep.plans] == ["ok", "ok", "failed"], text
    assert len(killed) == 1
    assert sorted(lives(log)) == ["0", "0", "2", "3", "3"], "only what was lost or failed is made again"
    assert "worker tcp://" in text and "is lost; the run it was at starts again" in text
    assert "seed=3: failed, cell 4: AssertionError: three is refused; try 2 of 2 follows" in text
    assert "seed=3: failed 2 times, cell 4: AssertionError: three is refused" in text
    assert "dashboard http://127.0.0.1:" in text and "3 runs, 0 finished before" in text
    assert any("/3 runs" in line and "under way" in line and "2 workers" in line for line in lines)
    frame = pd.read_parquet(layout.outputs / "sweeps" / "trial" / "runs.parquet")
    assert list(frame["p.seed"]) == [0, 2, 3] and list(frame["h.double"].dropna()) == [0, 4]
    assert "three is refused" in frame.loc[2, "error"] and frame["seconds"].notna().all()
    entries, problems = read_index(layout.outputs)
    assert sorted(entry["status"] for entry in entries) == ["failed", "failed", "ok", "ok"] and problems == []
    assert {entry["profile"] for entry in entries} == {"sweep-trial"}
    assert processes_naming(str(layout.outputs)) == [], "the run of a dead worker does not go on"

    before = (layout.outputs / "index.jsonl").read_bytes()
    lines.clear()
    again = read_sweep(file, layout)
    done = msgspec.structs.replace(again, plans=again.plans[:-1])  # without the one that fails
    assert {one.status for one in run_sweep(layout, done, say=lines.append).values()} == {"skipped"}
    assert lines == ["trial: 2 runs, 2 finished before"], "no cluster is started for nothing"
    assert (layout.outputs / "index.jsonl").read_bytes() == before and len(lives(log)) == 5


@pytest.mark.slow
def test_ctrl_c_ends_the_runs_with_their_kernels_and_keeps_what_was_finished(tmp_path: Path) -> None:
    layout, file, log = checkout_with(tmp_path, "[2, 0]")
    program = (
        "import lib.runs.layout as l, lib.__main__ as m\n"
        f"from pathlib import Path; root = Path({str(layout.root)!r})\n"
        "l.checkout = lambda outputs=None: l.Layout(root, root / 'outputs', root / 'lib')\n"
        f"raise SystemExit(m.main(['sweep', {str(file)!r}, '--workers', '1']))\n"
    )
    script = tmp_path / "start.py"  # a file: workers are started by running the main module again
    script.write_text("if __name__ == '__main__':\n    " + program.replace("\n", "\n    "))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, str(script)]
    sweep = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes)  # type: ignore[call-overload]
    wait_for(lambda: "0" in lives(log))
    os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does: to everyone in the foreground
    said, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 130, said
    assert "stopping what is under way: 1 of 2 runs" in said and "Traceback" not in said
    assert "error: stopped; what was finished is kept" in said
    assert processes_naming(str(layout.outputs)) == []
    entries = read_index(layout.outputs)[0]
    assert [(entry["parameters"]["seed"], entry["status"]) for entry in entries] == [(2, "ok"), (0, "interrupted")]
    frame = pd.read_parquet(layout.outputs / "sweeps" / "trial" / "runs.parquet")
    assert list(frame["status"]) == ["ok", "interrupted"]
    assert not list(layout.outputs.glob(".partial-*"))


def test_a_scheduler_that_is_not_there_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.runs.sweep_cluster.CONNECT", 0.5)
    layout, file, _ = checkout_with(tmp_path, "[1]")
    with pytest.raises(OSError, match="--scheduler tcp://127.0.0.1:9: not reached"):
        run_sweep(layout, read_sweep(file, layout), scheduler="tcp://127.0.0.1:9", say=lambda _: None)


def test_dask_is_loaded_by_no_other_command_and_not_by_reading_a_sweep() -> None:
    program = (
        "import sys, lib.__main__, lib.runs.sweep, lib.runs.notebook, lib.runs.sweep_table, lib.runs.sweep_cluster\n"
        "print(sorted({'dask', 'distributed', 'bokeh'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert loaded.stdout.strip() == "[]", loaded.stderr
