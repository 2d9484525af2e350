"""The list of runs: appending in parallel, and files that were torn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lib.runs.index import append_index, index_frame, newest, read_index

ROOT = Path(__file__).resolve().parents[2]


def entry(run: str, status: str = "ok", **more: object) -> dict[str, object]:
    return {"run_id": run, "notebook": run.split("-")[0], "profile": "smoke", "status": status, **more}


@pytest.mark.parametrize("tail", [b'{"id": 7, "tex', b'{"run_id": "\xf0', b"\xf0", b"{}", b'{"run_id": "c-1"}'])
def test_row_34_a_torn_tail_costs_its_own_record_only(tmp_path: Path, tail: bytes) -> None:
    """Case 34 (verifiers PR#803, hermes-agent PR#112575): the tail is cut to the last record, nothing else is lost."""
    append_index(tmp_path, entry("a-1"))
    append_index(tmp_path, entry("b-1", title="é\u2028"))
    with (tmp_path / "index.jsonl").open("ab") as file:
        file.write(tail)  # no newline: the writer died here
    entries, problems = read_index(tmp_path)
    assert [found["run_id"] for found in entries][:2] == ["a-1", "b-1"]
    assert len(entries) + len(problems) == 3
    append_index(tmp_path, entry("d-1"))
    entries, problems = read_index(tmp_path)
    assert [found["run_id"] for found in entries] == ["a-1", "b-1", "d-1"]
    assert problems == []


def test_a_line_that_is_no_record_is_named_and_the_next_is_kept(tmp_path: Path) -> None:
    append_index(tmp_path, entry("a-1"))
    with (tmp_path / "index.jsonl").open("ab") as file:
        file.write(b'{"half": \n[1]\n')
    append_index(tmp_path, entry("b-1"))
    entries, problems = read_index(tmp_path)
    assert [found["run_id"] for found in entries] == ["a-1", "b-1"]
    assert ["line 2" in problems[0], "line 3" in problems[1], len(problems)] == [True, True, 2]


def test_there_may_be_no_index_yet(tmp_path: Path) -> None:
    assert read_index(tmp_path) == ([], [])
    assert len(index_frame(tmp_path)) == 0


def test_the_index_is_one_table(tmp_path: Path) -> None:
    append_index(tmp_path, entry("a-1", parameters={"seed": 1}, headline={"gain": 0.5}))
    append_index(tmp_path, entry("a-2", parameters={"seed": 2}, headline={"gain": None}))
    frame = index_frame(tmp_path)
    assert list(frame["p.seed"]) == [1, 2]
    assert frame["h.gain"].isna().tolist() == [False, True]


def test_the_newest_run_of_a_status_counts(tmp_path: Path) -> None:
    entries = [entry("a-1"), entry("a-2"), entry("a-3", status="failed")]
    assert newest(entries, "ok")[("a", "smoke")]["run_id"] == "a-2"
    assert newest(entries, "failed")[("a", "smoke")]["run_id"] == "a-3"


def test_numbers_that_json_does_not_know_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        append_index(tmp_path, entry("a-1", headline={"gain": float("nan")}))
    assert read_index(tmp_path)[0] == []


def test_writers_in_parallel_do_not_mix_lines(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from lib.runs.index import append_index\n"
        "for i in range(60): append_index(Path(sys.argv[1]), {'run_id': f'{sys.argv[2]}-{i}', 'pad': 'x' * 3000})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name], cwd=ROOT) for name in "ab"]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    entries, problems = read_index(tmp_path)
    assert (len(entries), problems) == (120, [])
    for name in "ab":
        mine = [found["run_id"] for found in entries if found["run_id"].startswith(name)]
        assert mine == [f"{name}-{i}" for i in range(60)]
