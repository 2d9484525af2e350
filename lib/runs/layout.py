"""Where things are, which notebooks there are, and what names a run.

A run is named by its content: the notebook's cells, its parameters, the library's source and the data's version. Equal content
gives an equal id on every machine, so a finished run never needs to be made twice; time is no part of it.

Not covered: package versions (the lock file pins them) and environment variables.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lib.runs.index import read_index
from lib.runs.params import ParameterError, did_you_mean
from lib.seeds import digest

LIBRARY = Path(__file__).resolve().parents[1]
READS_OUTPUTS = "reads-outputs"  # tag of a cell that reads what other runs left


class Layout(msgspec.Struct, frozen=True):
    """The folders of a checkout; every path is absolute."""

    root: Path
    outputs: Path
    library: Path = LIBRARY  # whose content names a run

    @property
    def notebooks(self) -> Path:
        """Folder of the notebooks."""
        return self.root / "notebooks"

    @property
    def params(self) -> Path:
        """Folder of the profiles."""
        return self.root / "params"

    def profiles(self) -> list[str]:
        """Names of the profiles there are."""
        if not self.params.is_dir():
            return []
        return sorted(path.name for path in self.params.iterdir() if path.is_dir() and path.name != "sweeps")


def checkout(outputs: str | Path | None = None) -> Layout:
    """Return the layout of this checkout; `outputs` defaults to its own `outputs/`.

    Raises
    ------
    ParameterError
        When `outputs`, or what should be a folder above it, is a file.
    """
    root = LIBRARY.parent
    folder = Path(outputs).absolute() if outputs else root / "outputs"
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        raise ParameterError(f"--outputs {folder}: {there} is a file; name a folder")
    return Layout(root, folder)


def find_notebooks(layout: Layout) -> list[Path]:
    """Return the notebooks in the order of their numbers, then by name; names without a number come last."""
    paths = [path for path in layout.notebooks.glob("*.ipynb") if not path.name.startswith((".", "_"))]
    return sorted(paths, key=lambda path: (_number(path.stem) is None, _number(path.stem) or 0, path.stem))


def select(notebooks: Sequence[Path], only: Iterable[str]) -> list[Path]:
    """Return the notebooks that the texts in `only` name: a number, a stem (or file), or the start of a stem.

    A number that no notebook has is read as a start, so `1` means all of 10 to 19 where there is no notebook 1.

    Raises
    ------
    ParameterError
        When a text names none; the message says what may have been meant.
    """
    chosen: list[Path] = []
    for text in only:
        name = Path(text).name.removesuffix(".ipynb")
        found = [path for path in notebooks if path.stem == name]
        if not found and name.isdecimal():
            found = [path for path in notebooks if _number(path.stem) == int(name)]
        if not found and name:
            found = [path for path in notebooks if path.stem.startswith(name)]
        if not found:
            raise ParameterError(f"--only {text}: no such notebook{did_you_mean(name, [p.stem for p in notebooks])}")
        chosen += found
    return [path for path in notebooks if path in chosen] if chosen else list(notebooks)


def content_hashes(notebook: Path, layout: Layout) -> dict[str, str]:
    """Return SHA-256 of the notebook's cells, of the library's source and of the data's version.

    A notebook with a cell tagged `reads-outputs` is about other runs, so their index and data/examples count too: with new runs it
    is a new run.
    """
    published = sorted((layout.root / "data" / "published").rglob("*"))
    frozen = sorted((layout.root / "data" / "frozen").glob("*/manifest.json"))  # it holds the hashes of the other files
    hashes = {
        "notebook": _notebook_hash(notebook),
        "library": _files_hash(sorted(layout.library.rglob("*.py")), layout.library),
        "data": _files_hash([layout.root / "data" / "sources.toml", *published, *frozen], layout.root),
    }
    if any(READS_OUTPUTS in cell["metadata"].get("tags", []) for cell in _cells(notebook)):
        others = [entry for entry in read_index(layout.outputs)[0] if entry.get("notebook") != notebook.stem]
        examples = sorted((layout.root / "data" / "examples").rglob("*"))
        hashes["outputs"] = digest([others, _files_hash(examples, layout.root)])
    return hashes


def run_id(notebook: Path, parameters: Mapping[str, Any], hashes: Mapping[str, str]) -> str:
    """Return `<stem>-<12 hexadecimal digits>` for a notebook with these parameters and contents.

    A parameter that names a file, from the checkout or with its whole path, counts with the file's content: another log under the same name
    is another run.
    """
    named = {name: path for name, value in parameters.items() if (path := _named_file(value)) is not None}
    contents = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in named.items()}
    counted = {**hashes, "files": contents} if contents else dict(hashes)
    return f"{notebook.stem}-{digest(notebook.stem, dict(parameters), counted)[:12]}"


def _named_file(value: Any) -> Path | None:
    """Return the file that a parameter names, or None; model weights are not read here, a receiver's fingerprint names them."""
    if not isinstance(value, str) or value.endswith((".gguf", ".safetensors")):
        return None
    try:
        path = LIBRARY.parent / value
        return path if path.is_file() else None
    except (OSError, ValueError):  # a text that can be no path
        return None


def _number(stem: str) -> int | None:
    match = re.match(r"\d+", stem)
    return int(match.group()) if match else None


def _notebook_hash(path: Path) -> str:
    """Hash what decides a run: kinds, sources and tags of the cells; outputs, ids and other metadata are noise."""
    cells = []
    for cell in _cells(path):
        source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        cells.append([cell["cell_type"], source.replace("\r\n", "\n"), sorted(cell["metadata"].get("tags", []))])
    return digest(cells)


def _cells(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = msgspec.json.decode(path.read_bytes())["cells"]
    return cells


def _files_hash(paths: Iterable[Path], base: Path) -> str:
    return digest(
        [
            [path.relative_to(base).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()]
            for path in paths
            if path.is_file()
        ]
    )
