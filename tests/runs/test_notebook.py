"""The runner: what is run, what is kept, how it fails, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from lib.runs.execute import TEXT_LIMIT
from lib.runs.index import read_index
from lib.runs.layout import Layout
from lib.runs.notebook import RunResult, plan_runs, run_notebooks
from lib.runs.params import ParameterError
from tests.runs.books import make_checkout, processes_naming, run_all, write_notebook

ROOT = Path(__file__).resolve().parents[2]
KEEPS = """
import os
import matplotlib.pyplot as plt
import pandas as pd
from lib.runs import start_run
run = start_run()
run.record(seed=seed, gain=0.5, cwd=os.path.basename(os.getcwd()), profile=run.profile)
run.table(pd.DataFrame({"a": [1, 2]}), "numbers")
figure, axes = plt.subplots()
axes.plot([seed, 1])
run.figure(figure, "line")
"""


def result_of(run: RunResult) -> dict[str, object]:
    return json.loads((run.folder / "result.json").read_text())


def executed(run: RunResult) -> nbformat.NotebookNode:
    return nbformat.read(next(run.folder.glob("*.ipynb")), as_version=4)


def text_of(cell: nbformat.NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def test_a_run_keeps_everything_and_is_made_once(tmp_path: Path) -> None:
    layout = make_checkout(tmp_path / "with {braces} and blanks")
    write_notebook(layout.notebooks / "00_keep.ipynb", KEEPS)
    (layout.params / "smoke" / "00_keep.yaml").write_text("seed: 3\n")
    lines: list[str] = []
    (run,) = run_all(layout, lines)
    assert run.status == "ok", lines
    result = result_of(run)
    assert result["headline"] == {"seed": 3, "gain": 0.5, "cwd": "notebooks", "profile": "smoke"}
    assert (result["tables"], result["figures"]) == (["numbers.json", "numbers.parquet"], ["line.png", "line.svg"])
    assert result["parameters"] == {"seed": 3}
    assert sorted(path.name for path in run.folder.iterdir()) == ["00_keep.ipynb", "figures", "result.json", "tables"]
    book = executed(run)
    assert [cell.metadata.get("tags") for cell in book.cells[1:3]] == [["parameters"], ["injected-parameters"]]
    assert any("image/png" in output.get("data", {}) for output in book.cells[3].outputs)
    (entry,) = read_index(layout.outputs)[0]
    assert (entry["run_id"], entry["status"], entry["headline"]["gain"]) == (run.plan.run_id, "ok", 0.5)

    before = (run.folder / "result.json").stat().st_mtime_ns
    assert [again.status for again in run_all(layout)] == ["skipped"]
    assert (run.folder / "result.json").stat().st_mtime_ns == before
    assert [again.status for again in run_all(layout, force=True)] == ["ok"]
    assert (run.folder / "result.json").stat().st_mtime_ns > before
    assert len(read_index(layout.outputs)[0]) == 2
    assert sorted(path.name for path in layout.outputs.iterdir() if not path.name.startswith(".")) == [
        run.plan.run_id,
        "index.jsonl",
    ]


def test_profiles_that_ask_the_same_share_a_run(tmp_path: Path) -> None:
    layout = make_checkout(tmp_path)
    write_notebook(layout.notebooks / "00_a.ipynb", "1")
    (layout.params / "laptop").mkdir()
    for profile in ("smoke", "laptop", "laptop"):
        plans = plan_runs(layout, [layout.notebooks / "00_a.ipynb"], profile, say=lambda _: None)
        run_notebooks(layout, plans, say=lambda _: None)
    assert [entry["profile"] for entry in read_index(layout.outputs)[0]] == ["smoke", "laptop"]


FAILURES = {
    "10_raises": ("before = 1", "import warnings\nraise ValueError('no such packet\\x1b]0;\\x07')", "after = 1"),
    "11_sleeps": ("import time\ntime.sleep(600)",),
    "12_dies": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",),
    "13_prints": (
        "print('x' * 10**6)",
        "import sys\nfor i in range(3000): print('y' * 100)\nprint('e', file=sys.stderr)",
    ),
    "14_redraws": ("for i in range(5): print(f'\\rstep {i}', end='')\nprint()\nprint('done\\r')",),
    "15_leaves": ("import subprocess\nsubprocess.Popen(['sleep', '987654'], start_new_session=True)\nprint('left')",),
    "16_exits": ("import sys\nsys.exit(3)",),
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    layout = make_checkout(tmp_path_factory.mktemp("failures"))
    for stem, cells in FAILURES.items():
        write_notebook(layout.notebooks / f"{stem}.ipynb", *cells)
    lines: list[str] = []
    started = time.monotonic()
    runs = run_all(layout, lines, timeout=8, jobs=2)
    by_name = {run.plan.notebook.stem: run for run in runs}
    return SimpleNamespace(layout=layout, text="\n".join(lines), seconds=time.monotonic() - started, **by_name)


def test_a_failed_run_is_kept_with_the_cell_that_failed(failures: SimpleNamespace) -> None:
    run = vars(failures)["10_raises"]
    assert (run.status, run.folder.name) == ("failed", f"{run.plan.run_id}-failed")
    assert run.error["source"] == FAILURES["10_raises"][1]
    assert "ValueError: no such packet?]0;?\n  in cell 5:\n    import warnings\n    raise ValueError" in failures.text
    assert "\x1b" not in failures.text  # a message cannot steer the terminal
    statuses = [cell.metadata.papermill["status"] for cell in executed(run).cells if "papermill" in cell.metadata]
    assert statuses == ["completed", "completed", "completed", "completed", "failed", "pending"]
    assert result_of(run)["status"] == "failed"
    assert not (failures.layout.outputs / run.plan.run_id).exists()


def test_row_44_a_cell_over_its_limit_fails_with_its_source(failures: SimpleNamespace) -> None:
    """Case 44 (papermill#426, redis-vl-python PR#665): a hung cell ends at its limit and counts as failed."""
    run = vars(failures)["11_sleeps"]
    assert (run.status, run.error["name"], run.error["source"]) == (
        "failed",
        "CellTimeoutError",
        FAILURES["11_sleeps"][0],
    )
    assert "the cell ran longer than 8 s" in failures.text
    assert run.seconds < 60
    cell = executed(run).cells[-1]
    assert cell.metadata.papermill["status"] == "failed"
    assert cell.outputs[-1].ename == "CellTimeoutError"


def test_a_dead_kernel_is_reported_in_its_cell(failures: SimpleNamespace) -> None:
    run = vars(failures)["12_dies"]
    assert (run.status, run.error["name"], run.error["source"]) == ("failed", "DeadKernelError", FAILURES["12_dies"][0])
    assert "out of memory, or killed" in failures.text


def test_row_44_output_is_capped_with_a_note(failures: SimpleNamespace) -> None:
    """Case 44: a million characters are cut, and the notebook says how many are missing."""
    run = vars(failures)["13_prints"]
    assert run.status == "ok"
    one_line, many_lines = executed(run).cells[-2:]
    for cell, printed in ((one_line, 10**6 + 1), (many_lines, 3000 * 101 + 2)):
        assert len(cell.outputs) == 2
        assert len(cell.outputs[0].text) == TEXT_LIMIT
        assert f"{printed - TEXT_LIMIT:,} characters were left out" in cell.outputs[1].text
    assert next(run.folder.glob("*.ipynb")).stat().st_size < 300_000


def test_lines_that_redraw_themselves_keep_their_last_state(failures: SimpleNamespace) -> None:
    run = vars(failures)["14_redraws"]
    assert text_of(executed(run).cells[-1]) == "step 4\ndone\n"


def test_row_42_no_process_of_a_run_survives_it(failures: SimpleNamespace) -> None:
    """Case 42 (papermill#478): neither kernels nor what their cells started are left, however the run ended."""
    assert vars(failures)["15_leaves"].status == "ok"
    assert processes_naming(str(failures.layout.root)) == []
    assert processes_naming("987654") == []


def test_an_exit_code_in_a_cell_is_a_failure(failures: SimpleNamespace) -> None:
    assert vars(failures)["16_exits"].status == "failed"


def test_a_failed_run_is_run_again_and_a_finished_one_replaces_it(tmp_path: Path) -> None:
    layout = make_checkout(tmp_path)
    marker = tmp_path / "marker"
    write_notebook(layout.notebooks / "00_a.ipynb", f"open({str(marker)!r})")
    (failed,) = run_all(layout)
    assert failed.status == "failed"
    marker.touch()
    (fine,) = run_all(layout)
    assert fine.status == "ok"
    assert not failed.folder.exists()
    assert fine.plan.run_id == failed.plan.run_id
    marker.unlink()
    (forced,) = run_all(layout, force=True)
    assert forced.status == "failed"
    assert fine.folder.exists()  # what was finished stays finished
    assert [run.status for run in run_all(layout)] == ["skipped"]


def test_row_42_eight_notebooks_two_at_a_time(tmp_path: Path) -> None:
    """Case 42 (papermill#511, ipython#12372): parallel kernels do not race for ports, all end, none is left."""
    layout = make_checkout(tmp_path)
    for i in range(8):
        write_notebook(layout.notebooks / f"{i:02d}_n.ipynb", f"import os\nprint({i}, os.environ['OMP_NUM_THREADS'])")
    lines: list[str] = []
    runs = run_all(layout, lines, jobs=2)
    assert [run.status for run in runs] == ["ok"] * 8, "\n".join(lines)
    assert [run.plan.notebook.stem for run in runs] == [f"{i:02d}_n" for i in range(8)]
    running = most = 0
    for line in lines:
        running += (": start" in line) - (": ok after" in line)
        most = max(most, running)
    assert most == 2
    assert len(read_index(layout.outputs)[0]) == 8
    assert processes_naming(str(tmp_path)) == []


def test_parameters_are_checked_before_anything_starts(tmp_path: Path) -> None:
    layout = make_checkout(tmp_path)
    first = write_notebook(layout.notebooks / "00_a.ipynb", "1")
    second = write_notebook(layout.notebooks / "01_b.ipynb", "1", parameters="caps: list[float] = [0.5]  # range: 0..1")
    file = layout.params / "smoke" / "01_b.yaml"
    both = [first, second]

    def plan(**overrides: str) -> list[dict[str, object]]:
        return [found.parameters for found in plan_runs(layout, both, "smoke", overrides, say=said.append)]

    said: list[str] = []
    assert plan(caps="0.1,0.2") == [{"seed": 0}, {"caps": [0.1, 0.2]}]
    assert "00_a: does not have the parameter caps; it keeps to its profile there" in said
    assert "00_a: no params/smoke/00_a.yaml, the notebook's own defaults are used" in said
    with pytest.raises(ParameterError, match="-p cap: no notebook has this parameter; did you mean 'caps'"):
        plan(cap="1")
    with pytest.raises(ParameterError, match=r"01_b\.ipynb, -p: caps: 2 is outside 0\.\.1"):
        plan(caps="2")
    file.write_text("cap: [0.5]\n")
    with pytest.raises(ParameterError, match=r"smoke/01_b\.yaml: unknown parameter 'cap'; did you mean 'caps'"):
        plan()
    file.write_text("caps: [half]\n")
    with pytest.raises(ParameterError, match=r"smoke/01_b\.yaml: caps: \[0\] 'half' is of type str"):
        plan()
    with pytest.raises(ParameterError, match="--profile smok: no folder params/smok; did you mean 'smoke'"):
        plan_runs(layout, both, "smok")
    assert not layout.outputs.exists()


def test_long_cells_report_their_own_progress(tmp_path: Path) -> None:
    layout = make_checkout(tmp_path)
    write_notebook(
        layout.notebooks / "00_a.ipynb",
        "import time\nfrom lib.runs import Progress\n"
        "with Progress(20, 'replies') as progress:\n"
        "    for _ in range(20):\n        time.sleep(0.15)\n        progress.advance()",
    )
    lines: list[str] = []
    (run,) = run_all(layout, lines, every=0.5)
    assert run.status == "ok"
    reports = [line for line in lines if "replies " in line]
    assert reports
    assert all(line.startswith("00_a (smoke): cell 4/4, replies ") for line in reports)
    assert executed(run).cells[-1].outputs == []  # the notebook stays clean

    drawn: list[str] = []
    lines.clear()
    run_all(layout, lines, force=True, show=drawn.append)
    assert any("cell 4/4, replies " in line for line in drawn)
    assert len(lines) == 3  # no profile file, start, end


RUNNER = """
import sys
from pathlib import Path
from tests.runs.books import run_all
from lib.runs.layout import Layout
root = Path(sys.argv[1])
run_all(Layout(root, root / "outputs", root / "lib"), jobs=int(sys.argv[2]))
"""
REPLIES = """
import json, time
from pathlib import Path
import pandas as pd
from lib.models import Prompt, ScriptedReceiver, Turn
from lib.runs import start_run
run = start_run()
log = Path(log_file).open("a")
def script(prompt):
    print(prompt.turns[-1].text, file=log, flush=True)
    time.sleep(0.02)
    return prompt.turns[-1].text.upper()
receiver = run.stored(ScriptedReceiver(script), chunk=4)
replies = receiver.reply([Prompt((Turn("user", f"prompt {i}"),)) for i in range(120)])
run.table(pd.DataFrame({"text": [reply.text for reply in replies]}), "replies")
"""


def start_runner(layout: Layout, jobs: int = 1) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RUNNER, str(layout.root), str(jobs)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)


def wait_for(condition: object, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def test_row_41_the_runner_killed_in_the_middle_resumes_with_what_is_missing(tmp_path: Path) -> None:
    """Case 41 (papermill#824, #429): SIGKILL the runner; its kernel dies with it, and a rerun asks only what is missing."""
    layout = make_checkout(tmp_path / "stormy")
    log = tmp_path / "calls.log"
    write_notebook(layout.notebooks / "00_a.ipynb", REPLIES, parameters=f"log_file: str = {str(log)!r}")
    for goal in (10, 60):
        runner = start_runner(layout)
        assert wait_for(lambda goal=goal: log.exists() and len(log.read_text().splitlines()) >= goal)
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait()
        assert wait_for(lambda: processes_naming(str(layout.root)) == [], 15), processes_naming(str(layout.root))
        assert list(layout.outputs.glob(".partial-*"))
    (run,) = run_all(layout)
    assert run.status == "ok"
    calls = log.read_text().splitlines()
    assert set(calls) == {f"prompt {i}" for i in range(120)}
    assert len(calls) - 120 <= 2 * 4  # a chunk for each kill
    assert not list(layout.outputs.glob(".partial-*"))

    calm = make_checkout(tmp_path / "calm")
    write_notebook(calm.notebooks / "00_a.ipynb", REPLIES, parameters=f"log_file: str = {str(log)!r}")
    (undisturbed,) = run_all(calm)
    for name in ("replies.parquet", "replies.json"):
        assert (run.folder / "tables" / name).read_bytes() == (undisturbed.folder / "tables" / name).read_bytes()


def test_two_runners_make_a_run_once(tmp_path: Path) -> None:
    layout = make_checkout(tmp_path)
    log = tmp_path / "calls.log"
    write_notebook(
        layout.notebooks / "00_a.ipynb",
        "import time\nprint('run', file=open(log_file, 'a'))\ntime.sleep(1)",
        parameters=f"log_file: str = {str(log)!r}",
    )
    runners = [start_runner(layout) for _ in range(2)]
    assert [runner.wait(timeout=120) for runner in runners] == [0, 0]
    assert log.read_text().splitlines() == ["run"]
    assert len(read_index(layout.outputs)[0]) == 1


def test_ctrl_c_ends_the_kernels_and_keeps_the_run_as_interrupted(tmp_path: Path) -> None:
    layout = make_checkout(tmp_path)
    log = tmp_path / "calls.log"
    write_notebook(
        layout.notebooks / "00_a.ipynb",
        "import time\nprint('run', file=open(log_file, 'a'))\ntime.sleep(600)",
        parameters=f"log_file: str = {str(log)!r}",
    )
    runner = start_runner(layout)
    assert wait_for(log.exists)
    os.kill(runner.pid, signal.SIGINT)
    assert runner.wait(timeout=120) != 0
    assert processes_naming(str(tmp_path)) == []
    (entry,) = read_index(layout.outputs)[0]
    assert (entry["status"], entry["error"]) == ("interrupted", "cell 4: Interrupted: the runner was stopped")
    assert [path.name for path in layout.outputs.glob("00_a-*")] == [f"{entry['run_id']}-failed"]
