"""Steps from code completion in repositories: which file to read before the next lines can be written.

Context
-------
The paper's sixth family is RepoBench: code of a file, snippets of other files, and the one snippet that the next line
needs. `load_repobench` reads its official records (version 1.1), which a user has to bring. `load` makes steps of the
same kind from the functions of RepoEval, whose records are small; it is a stand-in and not RepoBench.

Intuition
---------
RepoBench: the receiver sees the end of its own file with its imports; the sender also sees the snippets. RepoEval: the
receiver sees the end of the file without its imports; the sender also sees the imports. Right is every file of the
repository that the missing body uses by an imported name.

How to read the result
----------------------
The action is always ``read``; the local view explains all six and names none. In RepoEval the gold is derived, and only
from imports of files that the records themselves name, so functions that use other files of the repository, or none, are
left out.

Not covered: the completion itself; RepoBench's in-file setting, where no other file is needed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from lib.sources import locate
from lib.tasks.candidates import candidate_names, cut_text, lines_of, make_step
from lib.tasks.code_steps import LEGEND
from lib.tasks.records import Record, first_file, read_records
from lib.tasks.steps import Step, StepGold
from lib.tasks.task import WorkloadError

FAMILY, VERSION = "repoeval", "repoeval-1"
REPOBENCH_FAMILY, REPOBENCH_VERSION = "repobench", "repobench-1"
CODE_LINES = 40  # of the file's end in the local view
SNIPPET_CHARACTERS = 600  # of each snippet in the sender's context
_FILES = ("function_level.jsonl.gz", "function_level.jsonl")
_REPOBENCH_SPLITS = ("cross_file_first", "cross_file_random")
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))\n?", re.M)
_NAME = re.compile(r"[A-Za-z_]\w*")


# -------------------------------------------------------------------------------------------------------------------------- RepoBench


def load_repobench(*, path: str | None = None) -> list[tuple[Step, StepGold]]:
    """Load RepoBench's records: one step a record whose gold snippet lies in another file.

    Parameters
    ----------
    path
        A file, or a folder with files ``cross_file_first*`` and ``cross_file_random*`` (parquet or JSON Lines, also in ``data/``);
        None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        No such file, a record lacks a field, or its ``gold_snippet_index`` points nowhere.
    SourceError
        The data are not there.
    """
    folder = locate("repobench") if path is None else Path(path).expanduser()
    records = [record for file in _repobench_files(folder) for record in read_records(file)]
    by_repository: dict[str, set[str]] = defaultdict(set)
    for record in records:
        by_repository[record.need("repo_name", str)].update(snippet["path"] for snippet in record.need("context", list))
    pairs = []
    for number, record in enumerate(records):
        gold = record.need("gold_snippet_index", int)
        if gold >= 0:
            pairs.append(_repobench_step(record, f"{record.data['repo_name']}#{number}", gold, by_repository))
    return pairs


def _repobench_files(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    found = [
        file
        for split in _REPOBENCH_SPLITS
        for place in (folder, folder / "data")
        for file in sorted(place.glob(f"{split}*"))
        if file.name.endswith((".parquet", ".jsonl", ".jsonl.gz"))
    ]
    if not found:
        raise WorkloadError(f"{folder}: no RepoBench files here; expected {' or '.join(_REPOBENCH_SPLITS)}*.parquet")
    return found


def _repobench_step(record: Record, name: str, gold: int, by_repository: dict[str, set[str]]) -> tuple[Step, StepGold]:
    snippets, repo = record.data["context"], record.data["repo_name"]
    if gold >= len(snippets):
        raise WorkloadError(
            f"{record.place}: 'gold_snippet_index' is {gold}, but 'context' has {len(snippets)} snippets"
        )
    near = {snippet["path"] for snippet in snippets}
    others = [path for other, paths in by_repository.items() if other != repo for path in sorted(paths)[:2]]
    shown = sorted(
        {f"{it['path']}: {it['identifier']}\n{cut_text(it['snippet'], SNIPPET_CHARACTERS)}" for it in snippets}
    )
    return make_step(
        family=REPOBENCH_FAMILY,
        instance=name,
        index=0,
        version=REPOBENCH_VERSION,
        local_view=lines_of(
            ("Repository", repo),
            ("File to go on with", record.need("file_path", str)),
            ("Its imports", record.need("import_statement", str).strip()),
            ("Its code so far, the end", _end(record.need("cropped_code", str))),
            ("Actions", LEGEND),
        ),
        context="Snippets of other files:\n" + "\n\n".join(shown),
        artifacts=candidate_names(
            {snippets[gold]["path"]}, near, by_repository[repo], others, family=REPOBENCH_FAMILY, instance=name
        ),
        pairs=[(snippets[gold]["path"], "read")],
    )


# --------------------------------------------------------------------------------------------------------------------------- RepoEval


def load(*, path: str | None = None) -> list[tuple[Step, StepGold]]:
    """Load RepoEval's functions: one step a function whose body uses a known file of its repository.

    Parameters
    ----------
    path
        Data file or folder; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field.
    SourceError
        The data are not there.
    """
    folder = locate("repoeval") if path is None else Path(path).expanduser()
    records = list(read_records(first_file(folder, _FILES, "RepoEval functions")))
    files: dict[str, set[str]] = defaultdict(set)
    for record in records:
        repo, file = _place(record)
        files[repo].add(file)
    pairs, numbers = [], dict.fromkeys(files, 0)
    for record in records:
        repo, file = _place(record)
        used = used_files(record.need("prompt", str), record.data["metadata"]["ground_truth"], file, files[repo])
        name = f"{repo}/{numbers[repo]:03d}"
        numbers[repo] += 1
        if used:
            pairs.append(_repoeval_step(record, name, used, files))
    return pairs


def used_files(code: str, body: str, file: str, known: set[str]) -> set[str]:
    """Return the files of a repository that a body uses by names which its own file imports.

    Parameters
    ----------
    code
        The file up to the body.
    body
        The body.
    file
        Path of the file in its repository.
    known
        Paths of the repository's files.

    Examples
    --------
    >>> used_files(
    ...     "from lab.nodes import Node\\nfrom lab import io",
    ...     "return Node(x)",
    ...     "lab/a.py",
    ...     {"lab/nodes.py", "lab/io.py"},
    ... )
    {'lab/nodes.py'}
    """
    names, found = set(_NAME.findall(body)), set()
    for match in _IMPORT.finditer(code):
        if not match[1]:
            continue  # "import a.b" binds "a" alone: which file of it is used is not told
        folder = _folder_of(match[1], file)
        for part in re.sub(r"[()]|#[^\n]*", " ", match[2]).split(","):
            words = part.split()
            if words and words[-1] in names:
                options = (f"{folder}/{words[0]}.py", f"{folder}.py", f"{folder}/__init__.py")
                found |= {option.lstrip("/") for option in options if option.lstrip("/") in known - {file}}
    return found


def _folder_of(module: str, file: str) -> str:
    """Return a module's path without its ending; leading dots count from the file's own folder."""
    inner = module.lstrip(".")
    dots = len(module) - len(inner)
    base = file.split("/")[:-dots] if dots else []
    return "/".join([*base, *inner.split(".")] if inner else base)


def _repoeval_step(record: Record, name: str, used: set[str], files: dict[str, set[str]]) -> tuple[Step, StepGold]:
    repo, file = _place(record)
    code = record.data["prompt"]
    imports = "\n".join(match[0].strip() for match in _IMPORT.finditer(code))
    others = [other for place, found in files.items() if place != repo for other in sorted(found)]
    return make_step(
        family=FAMILY,
        instance=name,
        index=0,
        version=VERSION,
        local_view=lines_of(
            ("File to go on with", file),
            ("Its code so far, the end, without imports", _end(_IMPORT.sub("", code))),
            ("Actions", LEGEND),
        ),
        context=lines_of(("Repository", repo), ("What the file imports", imports)),
        artifacts=candidate_names(used, files[repo] - {file}, others, family=FAMILY, instance=name),
        pairs=[(path, "read") for path in used],
    )


def _place(record: Record) -> tuple[str, str]:
    """Return the repository and the path of the file that a record is from."""
    metadata = record.need("metadata", dict)
    if not isinstance(metadata.get("fpath_tuple"), list) or len(metadata["fpath_tuple"]) < 2:
        raise WorkloadError(f"{record.place}: 'metadata.fpath_tuple' must hold a repository and a path")
    repo, *parts = metadata["fpath_tuple"]
    return str(repo), "/".join(parts)


def _end(code: str) -> str:
    lines = code.rstrip().split("\n")
    return "\n".join(lines[-CODE_LINES:])
