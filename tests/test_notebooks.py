"""Every notebook of the checkout: in order, stripped, and executed with the smoke profile through the runner."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from lib.runs.layout import Layout, checkout, find_notebooks
from lib.runs.notebook import plan_runs, run_notebooks
from lib.runs.params import load_profile, read_parameters, resolve
from lib.runs.report import build_report

NOTEBOOKS = find_notebooks(checkout())
PROFILES = checkout().profiles()


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """The checkout with outputs of its own: the store starts empty, nothing is skipped."""
    return checkout(tmp_path_factory.mktemp("outputs"))


def test_profiles_and_notebooks_fit() -> None:
    """A profile has no file without a notebook, and each value fits what its notebook declares."""
    stems = {path.stem for path in NOTEBOOKS}
    for profile in PROFILES:
        for file in sorted((checkout().params / profile).iterdir()):
            assert file.suffix == ".yaml", file
            assert file.stem in stems, f"{file}: no notebook of this name"
            specs = read_parameters(checkout().notebooks / f"{file.stem}.ipynb")
            resolve(specs, load_profile(file), where=str(file))


if NOTEBOOKS:
    # without notebooks there are no tests to collect; nothing is skipped

    @pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
    def test_a_notebook_is_stripped_and_has_one_parameters_cell(path: Path) -> None:
        book = nbformat.read(path, as_version=4)
        nbformat.validate(book)
        code = [cell for cell in book.cells if cell.cell_type == "code"]
        assert [cell.outputs for cell in code] == [[]] * len(code)
        assert [cell.execution_count for cell in code] == [None] * len(code)
        assert not {"widgets", "papermill"} & set(book.metadata)
        assert all(not {"execution", "papermill"} & set(cell.metadata) for cell in book.cells)
        assert sum("parameters" in cell.metadata.get("tags", []) for cell in code) == 1
        assert read_parameters(path)
        assert path.stat().st_size < 2**20
        assert book.cells[0].cell_type == "markdown"  # the question comes first
        assert max(cell.source.count("\n") for cell in code) < 25

    @pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
    def test_a_notebook_runs_with_the_smoke_profile(path: Path, layout: Layout) -> None:
        assert (layout.params / "smoke" / f"{path.stem}.yaml").exists()
        lines: list[str] = []
        (run,) = run_notebooks(
            layout, plan_runs(layout, [path], "smoke", say=lines.append), timeout=300, say=lines.append
        )
        assert run.status == "ok", "\n".join(lines)
        result = json.loads((run.folder / "result.json").read_text(encoding="utf-8"))
        assert (result["status"], result["notebook"], result["profile"]) == ("ok", path.stem, "smoke")
        assert result["headline"], "no headline number: end the notebook with run.record(...)"
        report = build_report(layout, say=lines.append)
        assert report.problems == ()
        page = report.folder / f"{path.stem}-smoke.html"
        assert 'class="output' in page.read_text(encoding="utf-8")
