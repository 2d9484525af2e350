from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lib.tasks.repoeval import CODE_LINES, load, load_repobench, used_files
from lib.tasks.steps import load_steps
from lib.tasks.task import WorkloadError
from tests.tasks.benchmark_files import write
from tests.tasks.step_checks import check_steps, check_untold

CODE = "import sys\nfrom lab.nodes import (\n    Node,\n    Edge as Line,\n)\nfrom lab import tools\n\n\ndef draw(x):\n"


def function(file: str, body: str, code: str = CODE, repo: str = "org_lab") -> dict[str, Any]:
    metadata = {"task_id": f"{repo}/idx", "ground_truth": body, "fpath_tuple": [repo, *file.split("/")], "lineno": 9}
    return {"prompt": code, "metadata": metadata}


OTHERS = [function(f"lab/{name}.py", "    return 1\n", "x = 1\n") for name in ("nodes", "tools", "__init__")]


@pytest.mark.parametrize(
    ("body", "files"),
    [
        ("return Node(x)", {"lab/nodes.py"}),
        ("return Line(x)", {"lab/nodes.py"}),
        ("return Edge(x)", set()),  # the file knows it as Line
        ("return tools.f(Node)", {"lab/nodes.py", "lab/tools.py"}),
        ("return sys.path", set()),
    ],
)
def test_files_are_found_by_the_names_that_a_body_uses(body: str, files: set[str]) -> None:
    assert used_files(CODE, body, "lab/draw.py", {"lab/nodes.py", "lab/tools.py", "lab/draw.py"}) == files


@pytest.mark.parametrize(
    ("code", "file", "found"),
    [
        ("from .nodes import Node", "lab/draw.py", "lab/nodes.py"),
        ("from . import Node", "lab/draw.py", "lab/Node.py"),
        ("from ..nodes import Node", "lab/deep/draw.py", "lab/nodes.py"),
        ("    from lab import Node  # late", "lab/draw.py", "lab/Node.py"),
        ("from lab.sub import Node", "lab/draw.py", "lab/sub/__init__.py"),
        ("from nodes import Node", "draw.py", "nodes.py"),
    ],
)
def test_imports_of_every_form_are_followed(code: str, file: str, found: str) -> None:
    assert used_files(code, "Node()", file, {found}) == {found}
    assert used_files(code, "Node()", found, {found}) == set(), "a file does not read itself"


def test_repoeval(tmp_path: Path) -> None:
    rows = [*OTHERS, function("lab/draw.py", "    return Node(x)\n"), function("zoo/a.py", "", repo="zoo")]
    made = load_steps("repoeval", path=write(tmp_path / "function_level.jsonl.gz", rows))
    assert [step.id for step in made.steps] == ["org_lab/003/0"]
    step = made.steps[0]
    assert made.gold[step.id].pairs == (("lab/nodes.py", "read"),)
    assert "def draw(x):" in step.local_view and "import" not in step.local_view.replace("without imports", "")
    assert "from lab.nodes import (" in step.context
    assert {"lab/tools.py", "zoo/a.py"} <= set(step.artifacts) and "lab/draw.py" not in step.artifacts


def test_gold_is_not_told(tmp_path: Path) -> None:
    one, other = (
        load(path=write(tmp_path / f"{name}.jsonl", [*OTHERS, function("lab/draw.py", f"    return {name}(x)\n")]))
        for name in ("Node", "tools")
    )
    check_untold(one, other, 0)


def snippet(path: str) -> dict[str, str]:
    return {"identifier": path[0].upper(), "path": path, "snippet": f"class {path[0].upper()}: ..."}


def completion(gold: int, paths: tuple[str, ...] = ("a.py", "b.py"), **more: Any) -> dict[str, Any]:
    fields = {"repo_name": "org/lab", "file_path": "main.py", "context": [snippet(path) for path in paths]}
    code = "\n".join(f"line{number}" for number in range(CODE_LINES + 5))
    fields |= {"import_statement": "from a import A\nfrom b import B", "cropped_code": code, "next_line": "A()"}
    return fields | {"gold_snippet_index": gold, "level": "2k"} | more


def test_repobench(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "cross_file_first-0.parquet", [completion(1), completion(0, ("c.py",), repo_name="z/z")])
    write(tmp_path / "data" / "cross_file_random-0.parquet", [completion(0), completion(-1)])
    write(tmp_path / "data" / "in_file-0.parquet", [completion(-1)])
    made = load_steps("repobench", path=str(tmp_path))
    assert [step.id for step in made.steps] == ["org/lab#0/0", "z/z#1/0", "org/lab#2/0"]
    step = made.steps[0]
    assert made.gold[step.id].pairs == (("b.py", "read"),)
    assert "File to go on with: main.py" in step.local_view and "A()" not in step.local_view + step.context
    assert "line5\n" in step.local_view and "line4\n" not in step.local_view
    assert "a.py: A\nclass A: ..." in step.context and {"a.py", "c.py"} <= set(step.artifacts)


def test_repobench_s_gold_is_not_told(tmp_path: Path) -> None:
    one, other = (load_repobench(path=write(tmp_path / f"{gold}.jsonl", [completion(gold)])) for gold in (0, 1))
    check_untold(one, other, 0)


def test_broken_records_are_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="'gold_snippet_index' is 2, but 'context' has 2 snippets"):
        load_repobench(path=write(tmp_path / "x.jsonl", [completion(2)]))
    with pytest.raises(WorkloadError, match="no RepoBench files here; expected cross_file_first or"):
        load_repobench(path=str(tmp_path))
    with pytest.raises(WorkloadError, match="'metadata.fpath_tuple' must hold a repository and a path"):
        load(path=write(tmp_path / "y.jsonl", [{"prompt": "", "metadata": {}}]))


@pytest.mark.real("repoeval")
def test_the_real_functions() -> None:
    check_steps(load_steps("repoeval"), 93, 93)


@pytest.mark.real("repobench")
def test_the_real_completions() -> None:
    made = load_steps("repobench")
    check_steps(made, len(made.steps), len(made.steps))
