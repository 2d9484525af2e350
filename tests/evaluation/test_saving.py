"""Saving: whole files, equal bytes for equal results, nulls kept, nested and hostile cells."""

from __future__ import annotations

import json
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from lib.evaluation.saving import save_figure, save_table, write_whole
from lib.evaluation.summary import Headline


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "policy": pd.Series(["full", "caus\ud83dal 😀", None], dtype=object),
            "bytes": [1, 2, 3],
            "utility": [0.5, np.nan, np.inf],
            "flag": [True, None, False],
            "tokens": pd.array([1, None, 3], dtype="Int64"),
            "contexts": [("full", "empty"), (), None],
            "mixed": [{"a": np.int64(1)}, [1, None], "text"],
            "whole": [np.int64(1), None, 2],
        }
    )


def test_nulls_stay_null_and_nested_cells_become_json(tmp_path: Path) -> None:
    paths = save_table(frame(), tmp_path / "deep", "effects")
    back = pd.read_parquet(paths["parquet"])
    assert back.columns.tolist() == frame().columns.tolist()
    assert back["utility"].isna().tolist() == [False, True, False]
    assert back["tokens"].isna().tolist() == [False, True, False]
    assert back["contexts"].iloc[0] == '["full", "empty"]'
    assert back["flag"].iloc[0]
    assert back["whole"].tolist()[0] == 1
    rows = json.loads(paths["json"].read_text(encoding="utf-8"))
    assert [row["utility"] for row in rows] == [0.5, None, None]
    assert rows[0]["contexts"] == ["full", "empty"]
    assert rows[0]["mixed"] == {"a": 1}
    assert rows[1]["policy"] == "caus?al 😀"
    assert rows[2]["policy"] is None


def test_repeated_runs_write_equal_bytes(tmp_path: Path) -> None:
    one, two = save_table(frame(), tmp_path / "a", "t"), save_table(frame(), tmp_path / "b", "t")
    for ending in ("parquet", "json"):
        assert one[ending].read_bytes() == two[ending].read_bytes()


def test_empty_table_keeps_its_columns(tmp_path: Path) -> None:
    paths = save_table(frame().iloc[:0], tmp_path, "none")
    assert pd.read_parquet(paths["parquet"]).columns.tolist() == frame().columns.tolist()
    assert json.loads(paths["json"].read_text(encoding="utf-8")) == []


def test_records_and_sets_are_written_as_json(tmp_path: Path) -> None:
    table = pd.DataFrame({"ids": [{"b", "a"}], "line": [Headline(0.8, 0.9, 100, 90, 0.89)]})
    paths = save_table(table, tmp_path, "records")
    assert json.loads(paths["json"].read_text(encoding="utf-8"))[0]["ids"] == ["a", "b"]
    assert "0.8" in pd.read_parquet(paths["parquet"])["line"].iloc[0]


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a b"])
def test_names_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        save_table(frame(), tmp_path, name)


def test_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    write_whole(path, b"old")

    def die(source: str, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["x.json"]


def test_equal_content_is_not_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_whole(path, b"same")
    before = path.stat().st_mtime_ns
    write_whole(path, b"same")
    assert path.stat().st_mtime_ns == before


def draw() -> Figure:
    figure, axes = plt.subplots(figsize=(3, 2))
    axes.plot([0, 1, 2], [1, 3, 2], label="line")
    axes.legend()
    plt.close(figure)
    return figure


def test_figures_are_equal_bytes_without_date_or_version(tmp_path: Path) -> None:
    one, two = save_figure(draw(), tmp_path / "a", "f"), save_figure(draw(), tmp_path / "b", "f")
    for ending in ("png", "svg"):
        assert one[ending].read_bytes() == two[ending].read_bytes()
    svg = one["svg"].read_text(encoding="utf-8")
    assert "Matplotlib v" not in svg
    assert "<dc:date>" not in svg
    png = one["png"].read_bytes()
    assert png.startswith(b"\x89PNG")
    assert b"Software" not in png
