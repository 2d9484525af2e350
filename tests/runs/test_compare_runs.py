"""Notebook 91 where there is nothing, or little, to compare: it says so and stops at nothing."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from lib.runs.layout import READS_OUTPUTS, checkout

BOOK = checkout().notebooks / "91_compare_runs.ipynb"
RECORDED = {"source": "data/examples/runs"}


def run_cells(folder: Path, monkeypatch: pytest.MonkeyPatch, **parameters: Any) -> tuple[dict[str, Any], str]:
    """Execute the notebook's code in this process; return its variables and what its Markdown outputs say."""
    monkeypatch.setenv("LAB_OUTPUTS", str(folder))
    monkeypatch.setenv("LAB_RUN_FOLDER", str(folder))
    names: dict[str, Any] = {}
    said = []
    for cell in json.loads(BOOK.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        *rest, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(rest, []), cell["id"], "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)
            said.append(shown.data if type(shown).__name__ == "Markdown" else "")
        else:
            exec(compile(ast.Module([last], []), cell["id"], "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            names |= parameters
    return names, "\n".join(said)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "There is nothing in"),
        ({**RECORDED, "notebook": "99_none"}, "No run is of the notebook `99_none`"),
        (
            {**RECORDED, "conditions": ["p.tasks > 99"]},
            "None of the 24 runs of `12_compare_policies_under_caps` fulfils",
        ),
        ({**RECORDED, "conditions": ["run_id ~ 0e4b92a20b9b"]}, "One run is left"),
    ],
)
def test_nothing_to_compare_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, Any], words: str
) -> None:
    names, said = run_cells(tmp_path, monkeypatch, **parameters)
    assert words in said and "No figure" in said and "No map" in said
    assert not list(tmp_path.glob("figures/*")) and len(names["picked"]) <= 1


def test_what_is_drawn_is_picked_by_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, said = run_cells(
        tmp_path, monkeypatch, **RECORDED, conditions=["p.receiver = scripted"], x="p.main_cap.worlds_bridge", value="h.coverage"
    )  # fmt: skip
    assert len(names["picked"]) == 12 and "Averaged over `worlds.seed`" in said
    assert names["cells"]["counted"].tolist() == [4, 4, 4] and names["cells"]["mean"].tolist() == [1.0, 1.0, 1.0]
    assert sorted(path.name for path in tmp_path.glob("figures/*.png")) == ["by_parameter.png"]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["headline"]["compared"] == 12 and result["headline"]["without_number"] == 0


def test_it_is_run_again_when_there_are_new_runs() -> None:
    tags = [tag for cell in json.loads(BOOK.read_text())["cells"] for tag in cell["metadata"].get("tags", [])]
    assert sorted(tags) == ["parameters", READS_OUTPUTS]
