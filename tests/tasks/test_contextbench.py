from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lib.tasks.contextbench import CODE_CHARACTERS, load
from lib.tasks.steps import load_steps
from lib.tasks.task import WorkloadError
from tests.tasks.benchmark_files import write
from tests.tasks.step_checks import check_steps, check_untold
from tests.tasks.test_swebench import patch


def span(file: str, code: str = "some code") -> dict[str, Any]:
    return {"file": file, "start_line": 1, "end_line": 2, "content": code}


def instance(number: int, spans: list[dict[str, Any]], change: str, repo: str = "lab") -> dict[str, Any]:
    fields = {"instance_id": f"bench__{number}", "repo": repo, "language": "go", "gold_context": spans, "patch": change}
    return fields | {"problem_statement": "The title\n\nThe rest of the issue, see lib/named.go."}


FIRST = instance(
    1,
    [span("/workspace/org__lab__0.1/lib/a.go"), span("lib/b.go", "b" * 9999), span("lib/a.go", "more code")],
    patch("lib/b.go") + patch("lib/new.go", "new file mode 100644\n"),
)
SECOND = instance(2, [span("/workspace/run.js"), span("lib/c.go")], patch("lib/c.go"))


def test_all_is_read_before_anything_is_changed(tmp_path: Path) -> None:
    made = load_steps("contextbench", path=write(tmp_path / "verified_test.jsonl.gz", [FIRST, SECOND]))
    steps = [step for step in made.steps if step.instance_id == "bench__1"]
    assert [made.gold[step.id].pairs for step in steps] == [
        (("lib/a.go", "read"), ("lib/b.go", "read")),
        (("lib/b.go", "read"),),
        (("lib/b.go", "edit"), ("lib/new.go", "create")),
        (("lib/new.go", "create"),),
    ]
    assert "Issue, its beginning: The title\n" in steps[0].local_view and "The rest" not in steps[0].local_view
    assert "Done so far: nothing" in steps[0].local_view and "read lib/a.go\nread lib/b.go" in steps[2].local_view
    assert "The rest" in steps[0].context and "some code" not in steps[0].context
    assert "lib/a.go\nsome code\nmore code" in steps[1].context and len(steps[2].context) < CODE_CHARACTERS + 500
    assert {"lib/c.go", "lib/named.go", "run.js"} <= set(steps[0].artifacts)


def test_gold_is_not_told(tmp_path: Path) -> None:
    spare = instance(3, [span("lib/x.go"), span("lib/y.go")], patch("lib/x.go"))
    one, other = (
        load(path=write(tmp_path / f"{file}.jsonl", [instance(1, [span(f"lib/{file}.go")], patch("lib/z.go")), spare]))
        for file in "xy"
    )
    check_untold(one, other, 0)
    assert not any("lib/x.go" in text for text in (one[0][0].local_view, one[0][0].context))


def test_instances_without_context_or_change_are_refused(tmp_path: Path) -> None:
    for broken in (FIRST | {"gold_context": []}, FIRST | {"patch": ""}):
        with pytest.raises(WorkloadError, match="line 1: 'gold_context' or 'patch' names no file"):
            load(path=write(tmp_path / "verified_test.jsonl", [broken]))


@pytest.mark.real("contextbench")
def test_the_real_instances() -> None:
    made = load_steps("contextbench")
    check_steps(made, len(made.steps), len({step.instance_id for step in made.steps}))
    assert len(made.steps) >= 178 and not any("/workspace/" in name for step in made.steps for name in step.artifacts)
