"""Small notebooks and checkouts for the tests of the runner."""

from __future__ import annotations

from pathlib import Path

import nbformat
import psutil

from lib.runs.layout import Layout
from lib.runs.notebook import RunResult, plan_runs, run_notebooks


def write_notebook(path: Path, *cells: str, parameters: str = "seed: int = 0", title: str = "A question?") -> Path:
    """Write a notebook: a title, the parameters cell, then `cells`."""
    book = nbformat.v4.new_notebook()
    book.cells = [
        nbformat.v4.new_markdown_cell(f"# {title}\n\nWhat is claimed."),
        nbformat.v4.new_code_cell(parameters),
    ]
    book.cells[1].metadata["tags"] = ["parameters"]
    book.cells += [nbformat.v4.new_code_cell(cell) for cell in cells]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(book, path)
    return path


def make_checkout(root: Path, *, profile: str = "smoke") -> Layout:
    """Make an empty checkout with one profile."""
    (root / "notebooks").mkdir(parents=True)
    (root / "params" / profile).mkdir(parents=True)
    (root / "lib").mkdir()
    (root / "lib" / "model.py").write_text("VERSION = 1\n")
    return Layout(root, root / "outputs", library=root / "lib")


def run_all(layout: Layout, lines: list[str] | None = None, **options: object) -> list[RunResult]:
    """Plan and run every notebook of the checkout with the smoke profile."""
    said = lines if lines is not None else []
    notebooks = sorted(layout.notebooks.glob("*.ipynb"))
    overrides = options.pop("overrides", None)
    plans = plan_runs(layout, notebooks, "smoke", overrides, say=said.append)  # type: ignore[arg-type]
    return run_notebooks(layout, plans, say=said.append, **options)  # type: ignore[arg-type]


def processes_naming(text: str) -> list[str]:
    """Return the command lines of living processes that name `text`, in arguments or environment."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
            if process.status() != psutil.STATUS_ZOMBIE and any(text in word for word in words):
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, OSError):
            continue
    return found
