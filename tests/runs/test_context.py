"""What a notebook asks of its run, in a batch and in JupyterLab."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib.models.receiver import Prompt, Turn
from lib.models.scripted import ScriptedReceiver
from lib.runs import run_folder, start_run
from lib.runs.context import Run

VARIABLES = ["LAB_RUN_FOLDER", "LAB_RUN_PROFILE", "LAB_STORE", "LAB_NO_CACHE", "JPY_SESSION_NAME"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAB_OUTPUTS", str(tmp_path / "outputs"))
    return start_run("10_build", {"seed": 1})


def result(run: Run) -> dict[str, object]:
    return json.loads((run.folder / "result.json").read_text())


def test_an_interactive_run_has_a_folder_of_its_own(run: Run, tmp_path: Path) -> None:
    assert run.folder == tmp_path / "outputs" / "interactive" / "10_build"
    assert run.profile == "interactive"
    assert result(run) == {"status": "interactive", "parameters": {"seed": 1}, "headline": {}}


def test_the_front_end_tells_the_notebooks_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_folder().name == "notebook"
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/notebooks/12_compare.ipynb")
    assert run_folder().name == "12_compare"
    monkeypatch.delenv("JPY_SESSION_NAME")
    shell = SimpleNamespace(user_ns={"__vsc_ipynb_file__": "/home/me/11_replay.ipynb"})
    monkeypatch.setitem(__import__("sys").modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert run_folder().name == "11_replay"


def test_a_batch_run_goes_where_the_runner_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_RUN_FOLDER", str(tmp_path / "r"))
    monkeypatch.setenv("LAB_RUN_PROFILE", "laptop")
    monkeypatch.setenv("LAB_STORE", str(tmp_path / "s.sqlite"))
    monkeypatch.setenv("LAB_NO_CACHE", "1")
    run = start_run("ignored")
    assert (run.folder, run.profile, run.no_cache) == (tmp_path / "r", "laptop", True)
    assert run.store.path == tmp_path / "s.sqlite"
    assert not (run.folder / "result.json").exists()


def test_headline_numbers_are_single_json_values(run: Run) -> None:
    run.record(tasks=np.int64(30), gain=np.float32(0.5), name="x", exact=np.bool_(True), missing=float("nan"))
    run.record(gain=0.25, none=None, big=float("inf"))
    assert result(run)["headline"] == {
        "tasks": 30,
        "gain": 0.25,
        "name": "x",
        "exact": True,
        "missing": None,
        "none": None,
        "big": "inf",
    }
    for refused in ({"a": 1}, [1], np.array([1, 2]), object()):
        with pytest.raises(TypeError, match="of type object|is no single value"):
            run.record(wrong=refused)
    assert "wrong" not in result(run)["headline"]


def test_tables_are_written_for_machines(run: Run) -> None:
    frame = pd.DataFrame({"policy": ["full", None], "gain": [0.1 + 0.2, np.nan], "ids": [["a"], []]})
    frame["n"] = pd.array([1, None], dtype="Int64")
    frame["when"] = pd.to_datetime(["2026-11-30", None])
    run.table(frame, "by_policy")
    assert json.loads((run.folder / "tables" / "by_policy.json").read_text()) == [
        {"policy": "full", "gain": 0.1 + 0.2, "ids": ["a"], "n": 1, "when": "2026-11-30T00:00:00"},
        {"policy": None, "gain": None, "ids": [], "n": None, "when": None},
    ]
    back = pd.read_parquet(run.folder / "tables" / "by_policy.parquet")
    assert back["gain"].iloc[0] == 0.1 + 0.2
    assert sorted(path.name for path in (run.folder / "tables").iterdir()) == ["by_policy.json", "by_policy.parquet"]


def test_an_index_and_levels_become_columns(run: Run) -> None:
    frame = pd.DataFrame({"policy": ["a", "a", "b"], "gain": [1.0, 3.0, 5.0]})
    written = run.table(frame.groupby("policy").agg({"gain": ["mean", "std"]}), "means")
    assert list(written.columns) == ["policy", "gain_mean", "gain_std"]
    assert list(run.table(frame[frame["gain"] > 2], "some").columns) == ["policy", "gain"]
    assert list(frame.columns) == ["policy", "gain"]  # the caller's table is left alone


def test_equal_tables_give_equal_bytes(run: Run) -> None:
    files = [run.folder / "tables" / f"t.{suffix}" for suffix in ("parquet", "json")]
    contents = []
    for _ in range(2):
        run.table(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), "t")
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]


def test_what_parquet_cannot_hold_is_named(run: Run) -> None:
    with pytest.raises(TypeError, match="table 'mixed'"):
        run.table(pd.DataFrame({"a": [1, "x"]}), "mixed")
    for name in ["A b", "../x", "", "x.json"]:
        with pytest.raises(ValueError, match="table name"):
            run.table(pd.DataFrame({"a": [1]}), name)


def test_figures_are_written_twice_and_repeat(run: Run) -> None:
    import matplotlib.pyplot as plt

    contents = []
    for _ in range(2):
        figure, axes = plt.subplots()
        axes.plot([1, 2], [3, 4])
        run.figure(axes, "line")
        plt.close(figure)
        contents.append([(run.folder / "figures" / f"line.{suffix}").read_bytes() for suffix in ("png", "svg")])
    assert contents[0][0].startswith(b"\x89PNG")
    assert b"<svg" in contents[0][1]
    assert contents[0] == contents[1]


def test_the_store_is_shared_and_used(run: Run, tmp_path: Path) -> None:
    receiver = run.stored(ScriptedReceiver(lambda prompt: "yes"))
    receiver.reply([Prompt((Turn("user", "q"),))])
    assert start_run("another").store.stats()["replies"] == 1
    assert (tmp_path / "outputs" / "store.sqlite").exists()
    assert run.stored(ScriptedReceiver(), no_cache=True).no_cache
