from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks import WorkloadError
from lib.tasks.records import draw_ids, first_file, read_records, stratified


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_json_lines_with_line_separators_inside(tmp_path: Path, name: str) -> None:
    """Line separators of Unicode inside a text do not end a record (as `str.splitlines` would have it)."""
    texts = ["one\u2028two", "three\u0085four", "five\x0bsix", "\ufeffbom"]
    lines = "".join(json.dumps({"id": i, "text": t}, ensure_ascii=False) + "\n" for i, t in enumerate(texts))
    records = list(read_records(write(tmp_path / name, lines.encode())))
    assert [r.data["text"] for r in records] == texts
    assert records[2].place.endswith(f"{name}, line 3")


def test_windows_line_ends_blank_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"id": 1}\r\n\r\n{"id": 2}')
    assert [r.data["id"] for r in read_records(path)] == [1, 2]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"id": 1}\n{"id": 7, "tex', "line 2: not JSON.*cut off"),
        (b'{"id": 1}\n{"id": 7, "tex\n', "line 2: not JSON"),
        (b'{"id": 1}\n{"id": "\xf0', "line 2: not UTF-8 at byte 8.*cut off"),
        (b'{"id": 1}\n{"id": 2}{"id": 3}\n', "line 2: not JSON"),
        (b"[1, 2]\n", "line 1: expected a JSON object, found list"),
        (b"\x00\x00\n", "line 1: not JSON"),
    ],
)
def test_a_torn_line_is_an_error_with_file_and_line(tmp_path: Path, content: bytes, words: str) -> None:
    """Case 34: frozen data are never mended or shortened in silence."""
    for name in ("a.jsonl", "a.jsonl.gz"):
        with pytest.raises(WorkloadError, match=words) as error:
            list(read_records(write(tmp_path / name, content)))
        assert str(tmp_path / name) in str(error.value) and "\n" not in str(error.value)


def test_a_cut_gzip_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(json.dumps({"id": i, "x": "y" * i}).encode() + b"\n" for i in range(500)), mtime=0)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WorkloadError, match="compressed data end early"):
        list(read_records(path))
    path.write_bytes(b"no gzip at all")
    with pytest.raises(WorkloadError, match="damaged"):
        list(read_records(path))


def test_json_lists_and_parquet(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [
        {"id": "a", "context": {"title": ["T"], "sentences": [["x", "y"]]}},
        {"id": "b", "context": {"title": [], "sentences": []}},
    ]
    write(tmp_path / "a.json", json.dumps(rows).encode())
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert (
        [r.data for r in read_records(tmp_path / "a.json")]
        == rows
        == [r.data for r in read_records(tmp_path / "a.parquet")]
    )


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", b'[{"id": 1}', "not a whole JSON file"),
        ("a.json", b'{"id": 1}', "expected a JSON list"),
        ("a.json", b"[1]", "record 0: expected an object"),
        ("a.parquet", b"PAR1 no", "not a whole parquet file"),
        ("a.csv", b"id", "expected .jsonl, .json"),
    ],
)
def test_other_damage_is_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        list(read_records(write(tmp_path / name, content)))


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="LAB_DATA"):
        list(read_records(tmp_path / "none.jsonl"))
    with pytest.raises(WorkloadError, match=r"no claims here; expected one of a\.json, b\.json"):
        first_file(tmp_path, ("a.json", "b.json"), "claims")


def test_a_field_of_the_wrong_type_is_named(tmp_path: Path) -> None:
    record = next(read_records(write(tmp_path / "a.jsonl", b'{"id": 1, "flag": true, "text": null}\n')))
    for field, words in (
        ("none", "'none' is missing"),
        ("text", "'text' is NoneType, expected str"),
        ("flag", "'flag' is bool"),
    ):
        with pytest.raises(WorkloadError, match=f"line 1: field {words}"):
            record.need(field, str, int)
    assert record.text_id("_id", "id") == "1"


@given(st.dictionaries(st.sampled_from("abc"), st.integers(0, 40), min_size=1), st.integers(0, 100))
def test_strata_keep_their_shares(sizes: dict[str, int], count: int) -> None:
    groups = {name: [f"{name}{i}" for i in range(size)] for name, size in sizes.items()}
    total = sum(sizes.values())
    drawn = draw_ids(groups, count, "test", 0)
    assert len(drawn) == len(set(drawn)) == min(count, total)
    for name, size in sizes.items():
        taken = sum(item in groups[name] for item in drawn)
        assert taken <= size and (not total or abs(taken - min(count, total) * size / total) < 1)
    assert sorted(stratified(groups, total)) == sorted(x for ids in groups.values() for x in ids)
