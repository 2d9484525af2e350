"""The doctor looks instead of assuming, and each finding names its remedy."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from lib.runs import doctor
from lib.runs.doctor import Finding, examine
from lib.runs.layout import Layout
from lib.runs.store import Key, Store
from tests.runs.books import make_checkout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_checkout(tmp_path)


def findings(layout: Layout, **options: object) -> dict[str, Finding]:
    return {finding.topic: finding for finding in examine(layout, quick=True, **options)}  # type: ignore[arg-type]


def test_a_kernel_really_starts() -> None:
    assert doctor._kernel() == Finding("ok", "kernel", "a Jupyter kernel starts and answers")


def test_a_kernel_that_cannot_start_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.sys, "executable", "/nowhere/python")
    found = doctor._kernel()
    assert found.state == "missing" and "ipykernel_launcher" in found.remedy


def test_bytes_that_are_not_the_pinned_ones_are_missing(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = doctor.catalogue()["minilm"]
    for file in entry.files:
        (tmp_path / "m" / file.name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "m" / file.name).write_bytes(b"other bytes")
    monkeypatch.setattr(doctor, "catalogue", lambda: {"minilm": entry})
    monkeypatch.setattr(doctor, "available", lambda name: True)
    monkeypatch.setattr(doctor, "locate", lambda name, fetch: tmp_path / "m")
    (found,) = doctor._materials(quick=False)
    assert found.state == "missing" and "not the pinned bytes" in found.text
    (quick,) = doctor._materials(quick=True)
    assert quick.state == "ok"


def test_the_store_is_read_to_its_end_and_not_changed(layout: Layout) -> None:
    path = layout.outputs / "store.sqlite"
    with Store(path) as store:
        store.put([(Key("reply", "r", "p", "{}"), {"text": "yes"})])
    before = path.read_bytes()
    found = doctor._store(layout, quick=False)
    assert found.state == "ok" and found.text.startswith("whole; 1 replies")
    with Store(path) as store:
        store._db.execute("UPDATE reply SET value = '[1]'")
    assert path.read_bytes() != before
    assert doctor._store(layout, quick=True).state == "ok"
    assert "table reply, row 1" in doctor._store(layout, quick=False).text


def test_an_unknown_variable_is_named_with_the_nearest_known_and_a_key_is_not_shown(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_STROE", "x")
    monkeypatch.setenv("LAB_ENDPOINT_KEY", "secret-word")
    found = findings(layout)["variables"]
    assert found.remedy == "LAB_STROE: did you mean LAB_STORE?"
    assert "secret-word" not in str(found)


def test_receivers_are_looked_for_by_name_and_by_server(layout: Layout) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"endpoint:http://127.0.0.1:{free.getsockname()[1]}/v1#m"
    found = findings(layout, receivers=["scripted", closed, "scriptd"])
    assert found["receiver scripted"].state == "ok"
    assert found[f"receiver {closed}"].state == "missing"
    assert found["receiver scriptd"].remedy == "did you mean scripted?"


def test_a_folder_is_writable_when_a_file_can_be_made(tmp_path: Path) -> None:
    assert doctor._unwritable(tmp_path) == ""
    (tmp_path / "file").touch()
    assert doctor._unwritable(tmp_path / "file") == "is a file"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
