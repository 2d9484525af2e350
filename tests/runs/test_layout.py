"""Which notebooks there are, which are meant, and what changes a run's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lib.runs.layout import checkout, content_hashes, find_notebooks, run_id, select
from lib.runs.params import ParameterError
from tests.runs.books import make_checkout, write_notebook

STEMS = ["00_tour", "2_second", "10_build_packets", "11_replay", "12_compare", "sketch"]


@pytest.fixture
def books(tmp_path: Path) -> list[Path]:
    layout = make_checkout(tmp_path)
    for stem in [*reversed(STEMS), ".hidden", "_draft"]:
        write_notebook(layout.notebooks / f"{stem}.ipynb", "1")
    return find_notebooks(layout)


def test_notebooks_come_in_the_order_of_their_numbers(books: list[Path]) -> None:
    assert [path.stem for path in books] == STEMS


@pytest.mark.parametrize(
    ("only", "stems"),
    [
        ([], STEMS),
        (["11"], ["11_replay"]),
        (["0"], ["00_tour"]),
        (["1"], ["10_build_packets", "11_replay", "12_compare"]),
        (["10_b"], ["10_build_packets"]),
        (["12_compare", "00_tour"], ["00_tour", "12_compare"]),
        (["notebooks/11_replay.ipynb"], ["11_replay"]),
        (["sk"], ["sketch"]),
    ],
)
def test_a_notebook_is_named_by_number_stem_or_start(books: list[Path], only: list[str], stems: list[str]) -> None:
    assert [path.stem for path in select(books, only)] == stems


def test_a_name_that_fits_nothing_is_an_error_that_helps(books: list[Path]) -> None:
    with pytest.raises(ParameterError, match="--only 11_repley: no such notebook; did you mean '11_replay'"):
        select(books, ["11_repley"])
    with pytest.raises(ParameterError, match="--only 99: no such notebook"):
        select(books, ["99"])
    with pytest.raises(ParameterError, match="no such notebook"):
        select(books, [""])


def test_a_file_that_a_parameter_names_counts_with_its_content(tmp_path: Path) -> None:
    """Another log under the same name is another run; a copy of the same log has another name and is one too."""
    log = tmp_path / "log.json"
    log.write_text("[1]")
    names = [
        run_id(tmp_path / "01_a.ipynb", {"log": value}, {})
        for value in (str(log), str(tmp_path / "no.json"), "x" * 9999, "a\0b")
    ]
    assert len(set(names)) == 4
    log.write_text("[2]")
    assert run_id(tmp_path / "01_a.ipynb", {"log": str(log)}, {}) != names[0]
    log.write_text("[1]")
    assert run_id(tmp_path / "01_a.ipynb", {"log": str(log)}, {}) == names[0]


def test_content_names_a_run_and_noise_does_not(tmp_path: Path) -> None:
    layout = make_checkout(tmp_path)
    book = write_notebook(layout.notebooks / "00_a.ipynb", "x = seed")
    (tmp_path / "data" / "published").mkdir(parents=True)
    (tmp_path / "data" / "sources.toml").write_text("a = 1\n")
    (tmp_path / "data" / "published" / "table.csv").write_text("1\n")

    def name(**parameters: object) -> str:
        return run_id(book, {"seed": 0, **parameters}, content_hashes(book, layout))

    first = name()
    assert first.startswith("00_a-")
    assert len(first) == len("00_a-") + 12
    assert name() == first
    assert name(seed=1) != first

    content = json.loads(book.read_text())
    content["metadata"]["widgets"] = {"state": 1}
    content["cells"][2] |= {"execution_count": 5, "id": "other", "source": ["x = ", "seed"]}
    content["cells"][2]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "old"}]
    book.write_text(json.dumps(content))
    assert name() == first

    for path, text in [
        (tmp_path / "lib" / "model.py", "VERSION = 2\n"),
        (tmp_path / "data" / "sources.toml", "a = 2\n"),
        (tmp_path / "data" / "published" / "table.csv", "2\n"),
    ]:
        before = path.read_text()
        path.write_text(text)
        assert name() != first, path
        path.write_text(before)
        assert name() == first
    (tmp_path / "lib" / "notes.txt").write_text("no source")
    assert name() == first
    content["cells"][2]["source"] = "x = seed + 1"
    book.write_text(json.dumps(content))
    assert name() != first


def test_this_checkout_is_found() -> None:
    layout = checkout()
    assert (layout.root / "pyproject.toml").exists()
    assert layout.outputs == layout.root / "outputs"
    assert checkout("elsewhere").outputs == Path.cwd() / "elsewhere"


def test_a_file_cannot_hold_runs(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello")
    for outputs in (file, file / "deeper" / "still"):
        with pytest.raises(ParameterError, match=r"notes\.txt is a file; name a folder"):
            checkout(outputs)
    assert file.read_text() == "hello"
