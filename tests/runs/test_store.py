"""The store: what is kept, what is refused, and two processes at once."""

from __future__ import annotations

import ast
import json
import os
import pickle
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.runs import store as store_module
from lib.runs.store import Key, Store, StoreError, decoding_key

LIB = Path(store_module.__file__).parents[1]


def key(prompt: str = "p", sample: int = 0, receiver: str = "weights:float32", **decoding: object) -> Key:
    return Key("reply", receiver, prompt, decoding_key(**decoding), sample)


def reply(text: str) -> dict[str, object]:
    return {"text": text, "token_ids": [1], "prompt_tokens": None, "new_tokens": 1, "seconds": 0.5, "finish": "stop"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store.sqlite"


def test_values_come_back_as_they_were_stored(path: Path) -> None:
    with Store(path) as store:
        assert store.put([(key(), reply("é\u2028\x00\ud800"))]) == 1
    with Store(path) as store:
        assert store.get([key()])[key()] == reply("é\u2028\x00\ud800")
        assert store.check() == 1


@pytest.mark.parametrize(
    "other",
    [
        key("other"),
        key(sample=1),
        key(receiver="weights:bfloat16"),
        key(temperature=0.7),
        Key("score", "weights:float32", "p", decoding_key(), 0),
    ],
)
def test_every_part_of_the_key_counts(path: Path, other: Key) -> None:
    with Store(path) as store:
        store.put([(key(), reply("mine"))])
        assert store.get([other]) == {}
        assert (store.hits, store.misses) == (0, 1)


def test_the_first_writer_of_a_key_wins(path: Path) -> None:
    with Store(path) as one, Store(path) as two:
        assert one.put([(key(), reply("first"))]) == 1
        assert two.put([(key(), reply("second")), (key("b"), reply("new"))]) == 1
        assert two.get([key()])[key()]["text"] == "first"


def test_more_keys_than_one_query_can_bind(path: Path) -> None:
    keys = [key(f"p{i}") for i in range(2500)]
    with Store(path) as store:
        store.put([(one, reply(one.prompt)) for one in keys])
        assert {one.prompt: value["text"] for one, value in store.get(keys).items()} == {
            k.prompt: k.prompt for k in keys
        }
        assert store.stats() == {"hits": 2500, "misses": 0, "replies": 2500, "scores": 0, "failures": 0}


def test_a_transaction_is_whole_or_absent(path: Path) -> None:
    with Store(path) as store:
        with pytest.raises(ValueError, match="seconds"):
            store.put([(key("a"), reply("a")), (key("b"), {**reply("b"), "seconds": float("nan")})])
        assert store.stats()["replies"] == 0


def test_a_full_disk_is_named_and_costs_the_transaction_only(path: Path) -> None:
    with Store(path) as store:
        store.put([(key("a"), reply("a"))])
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages + 3}")
        with pytest.raises(StoreError, match=r"store\.sqlite: database or disk is full"):
            store.put([(key(f"b{i}"), reply("x" * 3000)) for i in range(50)])
        assert store.put([(key("c"), reply("c"))]) == 1
        assert store.check() == 2


DYING = """
import os, signal, sys
from lib.runs.store import Key, Store
rows = [(Key("reply", "r", f"new{i}", "{}"), {"text": "x" * 200_000}) for i in range(20)]
for statements in range(24):
    pid = os.fork()
    if pid == 0:
        store, seen = Store(sys.argv[1]), []
        def before(statement):
            if len(seen) == statements:
                os.kill(os.getpid(), signal.SIGKILL)
            seen.append(statement)
        store._db.set_trace_callback(before)
        store.put(rows)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with Store(sys.argv[1]) as store:
        print(code, store.check())
"""


def test_killed_before_any_statement_of_a_transaction_it_leaves_nothing_of_it(path: Path) -> None:
    """4 MB a transaction: more than SQLite's page cache, so that parts of it are in the file before it is committed."""
    with Store(path) as store:
        store.put([(key("a"), reply("a"))])
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(path)], cwd=LIB.parent, capture_output=True, text=True, timeout=300
    )
    # BEGIN, 20 rows and COMMIT; the 23rd life is the first that ends by itself
    assert done.stdout.splitlines() == ["-9 1"] * 22 + ["0 21"] * 2, done.stderr


def test_a_torn_write_ahead_log_costs_whole_transactions_from_its_end(path: Path, tmp_path: Path) -> None:
    with Store(path) as store:
        for i in range(10):
            store.put([(key(f"{i}{part}"), reply("x" * 1500)) for part in "abc"])
        database, log = path.read_bytes(), path.with_name("store.sqlite-wal").read_bytes()
    left = []
    for number, cut in enumerate([*range(0, len(log), len(log) // 50), len(log)]):
        torn = tmp_path / f"torn{number}.sqlite"
        torn.write_bytes(database)
        torn.with_name(f"{torn.name}-wal").write_bytes(log[:cut])
        with Store(torn) as store:
            whole, rest = divmod(store.check(), 3)
            assert rest == 0
            assert len(store.get([key(f"{i}{part}") for i in range(whole) for part in "abc"])) == 3 * whole
        left.append(whole)
    assert left == sorted(left)
    assert {*left} == {*range(11)}


def test_failures_are_counted_and_never_served(path: Path) -> None:
    with Store(path) as store:
        store.put_failures([(key(), "OutOfMemory: 8 GiB")], name="tiny")
        assert store.get([key()]) == {}
        assert store.stats()["failures"] == 1
        row = store.frame().iloc[0]
        assert (row["status"], row["error"], row["name"]) == ("failed", "OutOfMemory: 8 GiB", "tiny")


def test_export_has_every_row_and_null_for_missing(path: Path, tmp_path: Path) -> None:
    with Store(path) as store:
        store.put([(key("a"), reply("yes \ud800")), (Key("score", "r", "a", "{}"), {"scores": [-1.5, "-inf"]})])
        store.put_failures([(key("b"), "lost \udcff")], name="odd \udcff folder")
        frame = pd.read_parquet(store.export_parquet(tmp_path / "out" / "store.parquet"))
    assert list(frame["status"]) == ["ok", "ok", "failed"]
    assert (frame["error"].iloc[2], frame["name"].iloc[2]) == ("lost \\udcff", "odd \\udcff folder")
    assert frame["text"].iloc[0] == "yes \\ud800"
    assert list(frame["scores"].iloc[1]) == [-1.5, float("-inf")]
    assert frame["prompt_tokens"].isna().all()  # not told by the backend: null, never 0
    assert "seconds" not in frame.columns
    assert frame["stored_seconds"].iloc[0] == 0.5
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["store.parquet"]


def test_an_empty_store_exports_a_table_with_columns(path: Path, tmp_path: Path) -> None:
    with Store(path) as store:
        frame = pd.read_parquet(store.export_parquet(tmp_path / "empty.parquet"))
    assert len(frame) == 0
    assert {"text", "status", "stored_seconds"} <= set(frame.columns)


def test_row_37_a_pickle_is_refused_by_name_and_never_opened(tmp_path: Path) -> None:
    """Case 37 (python-diskcache#362, CVE-2025-69872): a pickle in the store's place or folder executes nothing."""
    marker = tmp_path / "executed"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (marker,))  # type: ignore[return-value]

    for name in ["store.sqlite", "beside.pkl", "cache.db"]:
        (tmp_path / name).write_bytes(pickle.dumps(Evil()))
    with pytest.raises(StoreError, match=r"store\.sqlite: not a store \(a Python pickle, which is never opened\)"):
        Store(tmp_path / "store.sqlite")
    with Store(tmp_path / "good.sqlite") as store:
        store.put([(key(), reply("fine"))])
        assert store.check() == 1
    assert not marker.exists()


def test_row_37_no_module_imports_a_format_that_executes_code() -> None:
    """Case 37: no module of the library can unpickle anything."""
    banned = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "diskcache"}
    found = []
    for file in sorted(LIB.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                names = ["pickle"]
            found += [(file.name, name) for name in names if name.split(".")[0] in banned]
    assert found == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"id": 7, "tex', "not a store"),
        (b"\xf0", "not a store"),
        (b"\x80", "not a store"),
        (b"SQLite format 3\0" + b"\xff" * 4096, "malformed|not a database"),
    ],
)
def test_files_that_are_no_store_are_refused_by_name(path: Path, content: bytes, words: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StoreError, match=words) as caught:
        Store(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content  # what is refused is left alone


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE recipes (name TEXT)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store(path)
    assert path.read_bytes() == before


def test_another_layout_is_refused(path: Path) -> None:
    with Store(path) as store:
        store._db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="store layout 99"):
        Store(path)


def test_a_folder_or_a_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        Store(tmp_path)
    with pytest.raises(StoreError, match="is no regular file; LAB_STORE names a file"):
        Store(os.devnull)


def test_a_file_that_may_not_be_written_is_refused_before_anything_is_computed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(path).close()
    monkeypatch.setattr(os, "access", lambda file, mode: mode != os.W_OK)  # a mode would not stop the superuser
    with pytest.raises(StoreError, match=r"store\.sqlite: cannot be written"):
        Store(path)


def test_a_file_that_may_not_be_read_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(path).close()

    opened = Path.open

    def refuse(self: Path, *given: Any, **options: Any) -> Any:
        if self == path.absolute():
            raise PermissionError(13, "Permission denied")
        return opened(self, *given, **options)

    monkeypatch.setattr(Path, "open", refuse)  # a mode of 0 would not stop the superuser
    with pytest.raises(StoreError, match=r"store\.sqlite: cannot be read \(Permission denied\)"):
        Store(path)


def test_a_place_where_no_folder_can_be_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with pytest.raises(StoreError, match=r"file/store\.sqlite: its folder cannot be made .*; set LAB_STORE"):
        Store(tmp_path / "file" / "store.sqlite")


def test_a_torn_file_is_reported(path: Path) -> None:
    with Store(path) as store:
        store.put([(key(f"p{i}"), reply("x" * 2000)) for i in range(200)])
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 + 100])
    with pytest.raises(StoreError, match=r"store\.sqlite.*(damaged|malformed)"):
        Store(path)


def test_overwritten_pages_are_reported_on_one_line(path: Path) -> None:
    with Store(path) as store:
        store.put([(key(f"p{i}"), reply("x" * 2000)) for i in range(200)])
    content = bytearray(path.read_bytes())
    content[5 * 4096 : 9 * 4096] = b"\xa5" * 4 * 4096
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged .*move the file aside") as caught:
        Store(path)
    assert "\n" not in str(caught.value)


def test_a_damaged_value_is_reported_with_its_row(path: Path) -> None:
    with Store(path) as store:
        store.put([(key("a"), reply("a")), (key("b"), reply("b"))])
        store._db.execute("UPDATE reply SET value = '{\"id\": 7, \"tex' WHERE prompt = 'b'")
        assert store.get([key("a")])
        with pytest.raises(StoreError, match="row 2"):
            store.get([key("b")])
        with pytest.raises(StoreError, match="row 2"):
            store.check()


def test_a_drive_without_write_ahead_logging_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dot-file locking that stands in for a network drive has no shared memory, so WAL stays off there."""
    connect = sqlite3.connect

    def on_network_drive(target: Path, **options: object) -> sqlite3.Connection:
        return connect(f"file:{target}?vfs=unix-dotfile", uri=True, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(store_module.sqlite3, "connect", on_network_drive)
    with pytest.raises(StoreError, match="set LAB_STORE to a path on a local disk"):
        Store(path)


def test_a_mounted_network_drive_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = f"/dev/sda1 / ext4 rw 0 0\nserver:/home {path.parent.parent} nfs4 rw 0 0\n"
    read = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda self, **kw: table if str(self) == "/proc/mounts" else read(self, **kw), raising=True
    )
    monkeypatch.setattr(Path, "exists", lambda self: True)
    with pytest.raises(StoreError, match="network drive \\(nfs4"):
        Store(path)


WRITER = """
import sys
from lib.runs.store import Key, Store
store, name = Store(sys.argv[1]), sys.argv[2]
for i in range(500):
    mine, both = (Key("reply", "r", f"{start}{i}", "{}") for start in (name, "both"))
    store.put([(mine, {"text": f"{name}{i}"}), (both, {"text": name})])
print(store.stats()["replies"])
"""


def test_two_processes_write_500_rows_each_at_once(path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, name], cwd=LIB.parent, stderr=subprocess.PIPE) for name in "ab"]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert (writer.returncode, errors.decode()) == (0, "")
    with Store(path) as store:
        assert store.check() == 1500  # 500 of each, and 500 that both wrote, once
        frame = store.frame()
    shared = frame[frame["prompt"].str.startswith("both")]
    assert set(shared["text"]) <= {"a", "b"}
    assert len(shared) == 500


@given(
    st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=5), st.lists(st.text(max_size=3))))
)
def test_decoding_keys_depend_on_content_alone(parameters: dict[str, object]) -> None:
    forwards, backwards = decoding_key(**parameters), decoding_key(**dict(reversed(parameters.items())))
    assert forwards == backwards
    assert json.loads(forwards) == parameters


def test_a_store_that_is_read_only_changes_and_creates_nothing(tmp_path: Path) -> None:
    key = Key("reply", "r", "p", "{}")
    with pytest.raises(StoreError):
        Store(tmp_path / "none.sqlite", read_only=True)
    assert not list(tmp_path.iterdir())
    with Store(tmp_path / "store.sqlite") as store:
        store.put([(key, {"text": "yes"})])
    with Store(tmp_path / "store.sqlite", read_only=True) as store:
        assert store.get([key]) == {key: {"text": "yes"}}
        with pytest.raises(StoreError):
            store.put([(Key("reply", "r", "q", "{}"), {"text": "no"})])
    (tmp_path / "torn.sqlite").write_bytes(b"nothing")
    with pytest.raises(StoreError, match="not a store"):
        Store(tmp_path / "torn.sqlite", read_only=True)
