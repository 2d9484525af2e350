"""The command line: what it accepts, what it answers, and its exit codes."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import lib.runs.layout
from lib import sources
from lib.__main__ import main
from lib.runs.index import append_index, read_index
from lib.runs.layout import Layout
from tests.runs.books import make_checkout, processes_naming, write_notebook

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    made = make_checkout(tmp_path)
    (made.params / "laptop").mkdir()

    def checkout(outputs: str | None = None) -> Layout:
        return Layout(made.root, Path(outputs).absolute() if outputs else made.outputs, made.library)

    monkeypatch.setattr(lib.runs.layout, "checkout", checkout)
    monkeypatch.setattr("lib.__main__._stop_on_signals", lambda: None)
    return made


def test_help_answers_at_once_and_loads_little() -> None:
    started = time.perf_counter()
    shown = subprocess.run(
        [sys.executable, "-m", "lib", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert time.perf_counter() - started < 5  # 0.05 s on an idle machine
    for command in ("run", "sweep", "report", "data", "params", "runs", "doctor"):
        assert command in shown.stdout
    program = "import sys, lib.__main__\nprint(sorted({'numpy', 'torch', 'pandas', 'papermill'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert loaded.stdout.strip() == "[]"


def test_run_report_and_runs(layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_notebook(
        layout.notebooks / "00_a.ipynb",
        "from lib.runs import start_run\nrun = start_run()\nrun.record(gain=seed / 3)\nprint(run.no_cache)",
    )
    write_notebook(layout.notebooks / "10_b.ipynb", "assert seed == 7, 'wrong seed'")
    assert main(["run", "--profile", "smoke", "-p", "seed", "7"]) == 0
    out = capsys.readouterr().out
    assert "00_a (smoke): ok after" in out
    assert "gain 2.333" in out
    assert "2 run, 0 finished before, 0 failed" in out
    assert main(["run", "--profile", "smoke", "-p", "seed=7"]) == 0
    assert "0 run, 2 finished before, 0 failed" in capsys.readouterr().out

    assert main(["run", "--profile", "smoke", "--only", "10"]) == 1
    out = capsys.readouterr().out
    assert "in cell 4:\n    assert seed == 7" in out
    assert "failed: 10_b: AssertionError: wrong seed" in out

    assert main(["run", "--profile", "smoke", "--only", "0", "--no-cache", "-p", "seed=7"]) == 0
    assert "1 run, 0 finished before" in capsys.readouterr().out
    assert "True" in (layout.outputs / read_index(layout.outputs)[0][-1]["folder"] / "00_a.ipynb").read_text()

    assert main(["report"]) == 1  # 10_b printed nothing: its page would be empty
    captured = capsys.readouterr()
    assert "no cell has any output" in captured.err
    assert f"report: {layout.outputs}/report/index.html" in captured.out

    assert main(["runs", "--last", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("00_a-")
    assert "gain 2.333" in line
    assert main(["runs", "--csv", str(tmp_path / "runs.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "runs.csv").open()))
    assert [row["status"] for row in rows] == ["ok", "ok", "failed", "ok"]
    assert rows[0]["p.seed"] == "7"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--profile", "smok"], "did you mean 'smoke'"),
        (["run", "--only", "00_b"], "did you mean '00_a'"),
        (["run", "-p", "sed=1"], "did you mean 'seed'"),
        (["run", "-p", "seed=x"], "seed: 'x' is not int"),
        (["run", "-p", "seed"], "expected name=value"),
        (["data", "--profile", "none"], "no folder params/none"),
        (["params", "99"], "no such notebook"),
    ],
)
def test_mistakes_are_one_clear_line(
    layout: Layout, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_notebook(layout.notebooks / "00_a.ipynb", "1")
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert not layout.outputs.exists()


@pytest.mark.parametrize(
    "arguments", [[], ["rum"], ["run", "--jobs", "0"], ["run", "--timeout", "-1"], ["run", "--jobs", "x"]]
)
def test_usage_mistakes_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_without_notebooks_there_is_nothing_to_run(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run"]) == 2
    assert "no notebooks" in capsys.readouterr().err
    assert main(["runs"]) == 0
    assert "no runs in" in capsys.readouterr().out


def test_params_lists_what_may_be_asked(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    write_notebook(
        layout.notebooks / "00_a.ipynb", "1", parameters="cap: float = 0.5  # share of bytes; range: 0..1\nx = 'a'"
    )
    assert main(["params"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "00_a",
        "  cap: float = 0.5 0..1  # share of bytes",
        "  x: str = 'a'",
    ]


def test_data_fetches_what_the_profile_names(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sources, "fetch_all", lambda names, log: asked.extend(names) or 0)
    write_notebook(
        layout.notebooks / "00_a.ipynb", "1", parameters="receiver: str = 'scripted'\nworkloads: list[str] = []"
    )
    (layout.params / "laptop" / "00_a.yaml").write_text(
        "receiver: qwen-coder-0.5b\nworkloads: [fanoutqa, worlds_bridge]\n"
    )
    assert main(["data"]) == 0
    assert set(asked) == {"qwen-coder-0.5b", "fanoutqa"}
    asked.clear()
    assert main(["data", "--profile", "smoke"]) == 0
    assert asked == []
    assert main(["data", "minilm"]) == 0
    assert asked == ["minilm"]
    assert "profile smoke needs: nothing to fetch" in capsys.readouterr().out


def test_doctor_names_what_is_missing_and_its_remedy(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (layout.root / "requirements.lock").write_text("numpy==1.0\nno-such-package==2.0 ; python_version > '3'\n")
    layout.outputs.mkdir()
    (layout.outputs / "store.sqlite").write_bytes(b"\x80\x04nothing")
    monkeypatch.setenv("LAB_DATTA", "x")
    monkeypatch.setattr("lib.runs.doctor.available", lambda name: name != "smollm2-135m")
    assert main(["doctor", "--quick"]) == 1
    out = capsys.readouterr().out
    assert "missing  packages: not installed: no-such-package\n           -> " in out
    assert "note     packages: other versions than locked: numpy" in out
    assert "-> python -m lib data smollm2-135m" in out
    assert "missing  store: " in out
    assert "not known: LAB_DATTA" in out
    assert "2 things are missing" in out


def test_doctor_names_places_that_cannot_be_used(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("hello")
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "file"))
    monkeypatch.setenv("LAB_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setattr("lib.runs.doctor.available", lambda name: True)
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert main(["doctor", "--quick"]) == 1
    out = capsys.readouterr().out
    assert f"missing  disk for the cache: {tmp_path / 'file'} is a file" in out
    assert "ok       disk for outputs: " in out
    assert "LAB_DATA names no folder" in out
    assert "missing  memory: " in out
    assert out.splitlines()[-1] == "2 things are missing"


@pytest.mark.parametrize("arguments", [["runs"], ["run"], ["report"], ["doctor"]])
def test_a_missing_package_is_one_clear_line(arguments: list[str], tmp_path: Path) -> None:
    """A Python that is not the laboratory's own is told where to look, without a traceback."""
    (tmp_path / "msgspec.py").write_text("raise ModuleNotFoundError(\"No module named 'msgspec'\", name='msgspec')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "lib", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: No module named 'msgspec'; ")
    assert "requirements.lock" in line


def test_a_bench_that_cannot_be_kept_does_not_begin(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lib.runs.bench.admission.bench_admission", lambda folder, log: pytest.fail("it began"))
    layout.outputs.mkdir(parents=True, exist_ok=True)
    (layout.outputs / "bench").write_text("a file of another kind", encoding="utf-8")
    assert main(["bench", "--admission"]) == 1
    assert str(layout.outputs / "bench") in capsys.readouterr().err


def test_a_stopped_bench_does_not_promise_to_go_on(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(folder: Path, log: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("lib.runs.bench.admission.bench_admission", stop)
    assert main(["bench", "--admission"]) == 130
    assert capsys.readouterr().err == "error: stopped; what was finished is kept\n"


def test_a_torn_index_is_reported_by_runs(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    append_index(layout.outputs, {"run_id": "a-1"})
    with (layout.outputs / "index.jsonl").open("ab") as file:
        file.write(b'{"run_id": "b')
    assert main(["runs"]) == 1
    captured = capsys.readouterr()
    assert "a-1" in captured.out
    assert "no whole record" in captured.err


def test_a_polite_kill_leaves_no_kernel(tmp_path: Path) -> None:
    layout = make_checkout(tmp_path)
    log = tmp_path / "log"
    write_notebook(layout.notebooks / "00_a.ipynb", f"import time\nopen({str(log)!r}, 'w').close()\ntime.sleep(600)")
    program = (
        "import sys, lib.runs.layout as layout\nfrom pathlib import Path\nfrom lib.__main__ import main\n"
        f"root = Path({str(tmp_path)!r})\n"
        "layout.checkout = lambda outputs=None: layout.Layout(root, root / 'outputs', root / 'lib')\n"
        "sys.exit(main(['run', '--profile', 'smoke']))"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(runner.pid, signal.SIGTERM)
    _, errors = runner.communicate(timeout=60)
    assert runner.returncode == 130
    assert b"error: stopped; what was finished is kept" in errors
    assert processes_naming(str(tmp_path)) == []
