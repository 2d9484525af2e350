"""Sweep files: what they mean, which mistakes they stop at, and their table."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lib.runs.layout
from lib.__main__ import main
from lib.runs.index import append_index
from lib.runs.layout import READS_OUTPUTS, Layout, checkout, content_hashes
from lib.runs.params import ParameterError
from lib.runs.sweep import Sweep, find_sweep, labels_of, read_sweep
from lib.runs.sweep_cluster import Local, _room, local_places
from lib.runs.sweep_table import MISSING, read_runs, write_table
from lib.runs.sweep_worker import Outcome, failure, own_devices
from tests.runs.books import make_checkout, write_notebook

PARAMETERS = """cap: float = 0.5  # share of bytes; range: 0..1
seed: int = 0
name: str = "a"
limits: dict[str, float] = {"x": 0.1}  # range: 0..1
seeds: list[int] = [0]"""
VALID = "notebook: 10_a\ngrid:\n  cap: [0.25, 0.5]\n  name: [a, b]\nseeds:\n  seed: [0, 1, 2]\n"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = make_checkout(tmp_path)
    write_notebook(made.notebooks / "10_a.ipynb", "1", parameters=PARAMETERS)
    write_notebook(made.notebooks / "11_b.ipynb", "1")
    (made.params / "smoke" / "10_a.yaml").write_text("name: base\ncap: 0.75\n")
    (made.params / "sweeps").mkdir()
    return made


def sweep_of(layout: Layout, text: str) -> Sweep:
    path = layout.params / "sweeps" / "trial.yaml"
    path.write_text(text)
    return read_sweep(path, layout)


# ------------------------------------------------------------------------------------------------------------------- what a file means


def test_a_grid_is_a_product_times_seeds_and_the_last_name_varies_fastest(layout: Layout) -> None:
    sweep = sweep_of(layout, VALID)
    cells = [(plan.parameters["cap"], plan.parameters["name"], plan.parameters["seed"]) for plan in sweep.plans]
    assert cells == [(cap, name, seed) for cap in (0.25, 0.5) for name in "ab" for seed in (0, 1, 2)]
    assert (sweep.grid, sweep.seeds, sweep.duplicates) == (("cap", "name"), ("seed",), 0)
    assert sweep.labels[sweep.plans[4].run_id] == "cap=0.25 name=b seed=1"
    assert {plan.profile for plan in sweep.plans} == {"sweep-trial"}


def test_values_come_from_the_base_unless_the_file_says_otherwise(layout: Layout) -> None:
    bases = ("base: smoke", "base: params/smoke/10_a.yaml")
    for base in bases:
        (plan, other) = sweep_of(
            layout, f"notebook: 10\n{base}\nparameters: {{name: mine}}\ngrid: {{seed: [4, 5]}}"
        ).plans
        assert plan.parameters == {"cap": 0.75, "seed": 4, "name": "mine", "limits": {"x": 0.1}, "seeds": [0]}
        assert other.parameters["seed"] == 5
    assert sweep_of(layout, "notebook: 10\nseeds: {seed: [4]}").plans[0].parameters["cap"] == 0.5


def test_a_list_is_taken_as_it_stands(layout: Layout) -> None:
    sweep = sweep_of(layout, "notebook: 10_a\nlist: [{cap: 0.1, name: x}, {name: y}]\nseeds: {seed: [1, 2]}")
    found = [(plan.parameters["cap"], plan.parameters["name"], plan.parameters["seed"]) for plan in sweep.plans]
    assert found == [(0.1, "x", 1), (0.1, "x", 2), (0.5, "y", 1), (0.5, "y", 2)]
    assert sweep.grid == ("cap", "name")


def test_equal_combinations_are_one_run(layout: Layout) -> None:
    """1 and 1.0 are the same cap; a run is named by what the notebook gets."""
    sweep = sweep_of(layout, "notebook: 10_a\ngrid: {cap: [1, 1.0, 0.5]}\nseeds: {seed: [0, 0]}")
    assert (len(sweep.plans), sweep.duplicates) == (2, 4)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_every_combination_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, grid: list[int], seeds: list[int]
) -> None:
    made = make_checkout(tmp_path_factory.mktemp("product"))
    write_notebook(made.notebooks / "10_a.ipynb", "1", parameters="a: int = 9\nseed: int = 9")
    path = made.root / "one.yaml"
    path.write_text(json.dumps({"notebook": "10_a", "grid": {"a": grid}, "seeds": {"seed": seeds}}))
    sweep = read_sweep(path, made)
    pairs = [(plan.parameters["a"], plan.parameters["seed"]) for plan in sweep.plans]
    assert pairs == list(dict.fromkeys((a, seed) for a in grid for seed in seeds))
    assert sweep.duplicates == len(grid) * len(seeds) - len(pairs)
    assert set(sweep.labels) == {plan.run_id for plan in sweep.plans}


def test_a_run_has_the_identity_that_the_runner_gives_it(layout: Layout) -> None:
    from lib.runs.notebook import plan_runs

    book = layout.notebooks / "10_a.ipynb"
    (plan,) = plan_runs(layout, [book], "smoke", {"seed": "3"}, say=lambda _: None)
    assert sweep_of(layout, "notebook: 10\nbase: smoke\ngrid: {seed: [3]}").plans[0].run_id == plan.run_id


def test_labels_tell_members_apart() -> None:
    values = {"a": {"caps": {"x": 0.5, "y": 1}, "m": "s"}, "b": {"caps": {"x": 0.7, "y": 1}, "m": "s"}}
    assert labels_of(values) == {"a": "caps.x=0.5", "b": "caps.x=0.7"}
    assert labels_of({"a": {"m": "s"}}) == {"a": "as its base"}


# ---------------------------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("grid: {cap: [0.5]}", "notebook: expected the number or name of one notebook"),
        ("notebook: 10_b\ngrid: {cap: [0.5]}", "notebook: 10_b: no such notebook"),
        ("notebook: 1\ngrid: {cap: [0.5]}", "notebook: 1 means 10_a, 11_b; name one"),
        ("notebook: 10\ngird: {cap: [0.5]}", "unknown field 'gird'; did you mean 'grid'?"),
        ("notebook: 10\ngrid: {cat: [0.5]}", "grid.cat, value 1: unknown parameter 'cat'; did you mean 'cap'?"),
        ("notebook: 10\nseeds: {sed: [0]}", "seeds.sed, value 1: unknown parameter 'sed'"),
        ("notebook: 10\nparameters: {nam: x}\ngrid: {cap: [0.5]}", "unknown parameter 'nam'"),
        ("notebook: 10\ngrid: {cap: [0.5, 1.5]}", "grid.cap, value 2: 1.5 is outside 0..1"),
        ("notebook: 10\ngrid: {seed: [0, x]}", "grid.seed, value 2: 'x' is of type str, expected int"),
        ("notebook: 10\nlist: [{cap: 0.5}, {limits: {x: 3}}]", "list, entry 2, limits: 3 is outside 0..1"),
        ("notebook: 10\ngrid: {cap: 0.5}", "grid.cap: expected a list of values, such as [0.5]"),
        ("notebook: 10\ngrid: {cap: []}", "grid.cap: no values"),
        ("notebook: 10\ngrid: {}", "grid: it is empty"),
        ("notebook: 10\nlist: []", "list: it is empty"),
        ("notebook: 10\nlist: {cap: 1}", "list: expected a list of mappings"),
        ("notebook: 10", "nothing to vary"),
        ("notebook: 10\ngrid: {cap: [0.5]}\nlist: [{cap: 0.5}]", "both grid and list"),
        ("notebook: 10\ngrid: {seed: [1]}\nseeds: {seed: [1]}", "'seed' stands in grid or list and in seeds"),
        ("notebook: 10\nparameters: {cap: 1}\ngrid: {cap: [1]}", "'cap' stands in parameters and in grid or list"),
        ("notebook: 10\nbase: smok\ngrid: {cap: [1]}", "base: 'smok' is neither a profile nor a .yaml file"),
        ("notebook: 11\nbase: smoke\ngrid: {seed: [1]}", "11_b.yaml is not there"),
        ("notebook: 10\ngrid: {cap: [1]}\nresources: {GPU: 0}", "resources.GPU: 0 is not a number above 0"),
        ("notebook: 10\ngrid: {cap: [1]}\nretries: -1", "retries: -1 is not a whole number"),
        ("notebook: 10\ngrid: {cap: [1], cap: [2]}", "cap stands twice"),
        (f"notebook: 10\ngrid: {{seed: {list(range(400))}, cap: {[0.5] * 400}}}", "160000 combinations"),
    ],
)
def test_a_mistake_is_told_with_its_place_before_anything_starts(
    layout: Layout,
    text: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(lib.runs.layout, "checkout", lambda outputs=None: layout)
    monkeypatch.setattr("lib.__main__._stop_on_signals", lambda: None)
    path = layout.params / "sweeps" / "trial.yaml"
    path.write_text(text)
    assert main(["sweep", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path}: ") and words in line
    assert not layout.outputs.exists()


def test_all_mistakes_are_told_at_once(layout: Layout) -> None:
    with pytest.raises(ParameterError) as caught:
        sweep_of(layout, "notebook: 10\ngrid: {cap: [2, 3], nam: [a]}\nseeds: {seed: [x]}")
    for words in ("cap, value 1: 2", "cap, value 2: 3", "nam, value 1", "seed, value 1"):
        assert words in str(caught.value)


def test_a_sweep_is_found_by_path_or_by_name(layout: Layout, tmp_path: Path) -> None:
    path = layout.params / "sweeps" / "trial.yaml"
    path.write_text(VALID)
    assert find_sweep(layout, "trial") == find_sweep(layout, "trial.yaml") == find_sweep(layout, str(path)) == path
    with pytest.raises(ParameterError, match="did you mean 'trial'"):
        find_sweep(layout, "trail")


@pytest.mark.parametrize("path", sorted((checkout().params / "sweeps").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_sweeps_of_this_checkout_fit_their_notebooks(path: Path) -> None:
    sweep = read_sweep(path, checkout())
    assert len(sweep.plans) > 1 and sweep.duplicates == 0 and sweep.seeds
    assert f"{len(sweep.plans)} runs" in path.read_text().partition("notebook:")[0], (
        "the head of the file says how many"
    )


def test_a_dry_run_lists_and_starts_nothing(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lib.runs.layout, "checkout", lambda outputs=None: layout)
    monkeypatch.setattr("lib.__main__._stop_on_signals", lambda: None)
    (layout.params / "sweeps" / "trial.yaml").write_text(VALID + "retries: 0\n")
    assert main(["sweep", "trial", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 13 and lines[0].startswith("to run    10_a-") and "cap=0.25 name=a seed=0" in lines[0]
    assert lines[-1] == "12 runs, 0 finished before; nothing was started"
    assert not layout.outputs.exists()


# --------------------------------------------------------------------------------------------------------------------------- resources


def test_this_machine_gives_what_it_has(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7")
    monkeypatch.setattr("lib.runs.sweep_cluster._memory_gb", lambda: 30.0)

    def places(resources: str, workers: int = 8) -> Local:
        return local_places(sweep_of(layout, VALID + f"resources: {resources}\n"), workers)

    assert (places("{GPU: 1}").workers, places("{GPU: 1}").devices) == (3, ("3", "5", "7"))
    assert [places(text).workers for text in ("{GPU: 2}", "{GPU: 0.5}", "{memory_gb: 8}")] == [1, 6, 3]
    assert places("{GPU: 1, memory_gb: 14}").workers == 2 and places("{memory_gb: 1}", 2).workers == 2
    for text, words in (
        ("{GPU: 4}", "a run takes 4, this machine has 3"),
        ("{memory_gb: 31}", "has 30"),
        ("{TPU: 1}", "give --scheduler"),
    ):
        with pytest.raises(ParameterError, match=words):
            places(text)


@given(st.integers(1, 4), st.integers(1, 4))
def test_workers_of_one_machine_share_no_card(gpus: int, workers: int) -> None:
    devices = tuple(str(number) for number in range(gpus * workers))
    own = [own_devices(devices, gpus, place) for place in range(workers)]
    assert [device for one in own for device in one] == list(devices)


def test_a_worker_takes_a_run_a_thread_and_no_more_than_it_offers() -> None:
    worker = {"nthreads": 4, "resources": {"GPU": 2.0, "memory_gb": 30.0}}
    needs = [{}, {"GPU": 1.0}, {"GPU": 1.0, "memory_gb": 20.0}, {"TPU": 1.0}]
    assert [_room(worker, one) for one in needs] == [4, 2, 1, 0]


# ------------------------------------------------------------------------------------------------------------------------------- table


def finished(layout: Layout, sweep: Sweep, place: int, **numbers: object) -> None:
    plan = sweep.plans[place]
    folder = layout.outputs / plan.run_id
    folder.mkdir(parents=True)
    result = {"status": "ok", "seconds": 2.5, "started": "2026-01-01", "headline": numbers, "error": None}
    (folder / "result.json").write_text(json.dumps(result))


def test_the_table_has_a_row_for_every_run_and_missing_stays_missing(layout: Layout) -> None:
    sweep = sweep_of(layout, "notebook: 10\ngrid: {limits: [{x: 0.1}, {x: 0.2}], seeds: [[0], [1, 2]]}")
    finished(layout, sweep, 0, gain=0.5, note="x")
    failed = Outcome("failed", error=failure("WorkerLost", "twice"))
    frame = write_table(layout.outputs, sweep, {sweep.plans[1].run_id: failed})
    read = pd.read_parquet(layout.outputs / "sweeps" / "trial" / "runs.parquet")
    assert list(read["status"]) == list(frame["status"]) == ["ok", "failed", MISSING, MISSING]
    assert list(read["p.limits.x"]) == [0.1, 0.1, 0.2, 0.2] and list(read["p.seeds"]) == ["[0]", "[1, 2]"] * 2
    assert read.loc[0, "h.gain"] == 0.5 and read["h.gain"].isna().tolist() == [False, True, True, True]
    assert read["seconds"].isna().tolist() == [False, True, True, True]
    assert read.loc[1, "error"] == "WorkerLost: twice" and read.loc[0, "folder"] == sweep.plans[0].run_id
    runs = read_runs("trial", layout=layout)
    assert (runs.grid, runs.seeds, len(runs.frame)) == (("limits", "seeds"), (), 4)
    assert runs.origin == "outputs/sweeps/trial/runs.parquet"


def test_numbers_and_texts_in_one_column_fit_parquet(layout: Layout) -> None:
    sweep = sweep_of(layout, "notebook: 10\ngrid: {seed: [0, 1, 2]}")
    for place, number in enumerate((0.5, "none", True)):
        finished(layout, sweep, place, gain=number)
    assert list(write_table(layout.outputs, sweep, {})["h.gain"]) == ["0.5", "none", "true"]


def test_the_index_is_read_once_a_run_and_without_the_reader_itself(layout: Layout) -> None:
    assert read_runs(layout=layout).frame.empty
    for run, notebook, status in (("a-1", "10_a", "failed"), ("a-1", "10_a", "ok"), ("n-1", "91_n", "ok")):
        append_index(layout.outputs, {"run_id": run, "notebook": notebook, "status": status, "parameters": {"x": 1}})
    runs = read_runs(layout=layout, without="91_n")
    assert runs.frame[["run_id", "status", "p.x"]].to_numpy().tolist() == [["a-1", "ok", 1]]
    assert read_runs("outputs", layout=layout).origin == "outputs/index.jsonl"
    with pytest.raises(ParameterError, match="source: nowhere is no sweep"):
        read_runs("nowhere", layout=layout)


def test_a_notebook_about_other_runs_is_a_new_run_when_there_are_new_ones(layout: Layout) -> None:
    import nbformat

    plain, reader = layout.notebooks / "10_a.ipynb", layout.notebooks / "91_n.ipynb"
    book = nbformat.read(plain, as_version=4)
    book.cells[2].metadata["tags"] = [READS_OUTPUTS]
    nbformat.write(book, reader)
    before = content_hashes(reader, layout), content_hashes(plain, layout)
    append_index(layout.outputs, {"run_id": "91_n-1", "notebook": "91_n"})
    assert (content_hashes(reader, layout), content_hashes(plain, layout)) == before, "its own run is nothing new"
    append_index(layout.outputs, {"run_id": "10_a-1", "notebook": "10_a"})
    assert content_hashes(reader, layout) != before[0] and content_hashes(plain, layout) == before[1]
