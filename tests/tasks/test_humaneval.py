from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lib.sources import catalogue
from lib.tasks.code_answer import check_answers, docstring_examples, extract_code, run_examples
from lib.tasks.humaneval import check_canonical, load
from lib.tasks.task import WorkloadError

RECORDS = [
    {
        "task_id": f"HumanEval/{number}",
        "prompt": f'def add{number}(a, b):\n    """ Add.\n    >>> add{number}(1, 2)\n    {3 + number}\n    """\n',
        "entry_point": f"add{number}",
        "canonical_solution": f"    return a + b + {number}\n",
        "test": f"def check(candidate):\n    assert candidate(1, 1) == {2 + number}\n",
    }
    for number in range(2)
]


def written(folder: Path, records: list[dict[str, Any]], name: str = "HumanEval.jsonl") -> str:
    text = "".join(json.dumps(record) + "\n" for record in records).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return str(folder)


@pytest.mark.parametrize("name", ["HumanEval.jsonl.gz", "HumanEval.jsonl", "test.jsonl"])
def test_fields_are_read_and_gold_stays_apart(tmp_path: Path, name: str) -> None:
    question, answer = load(path=written(tmp_path, RECORDS, name))[1]
    assert (question.id, question.family, question.domain, question.entry_point) == (
        "HumanEval/1",
        "humaneval",
        "code",
        "add1",
    )
    assert question.text == RECORDS[1]["prompt"]
    assert (answer.question_id, answer.tests, answer.canonical) == (
        question.id,
        RECORDS[1]["test"],
        RECORDS[1]["canonical_solution"],
    )
    assert "return a + b" not in str(question) and "candidate" not in str(question)


def test_broken_records_are_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"line 1: field 'entry_point' is missing"):
        load(path=written(tmp_path, [{k: v for k, v in RECORDS[0].items() if k != "entry_point"}]))
    with pytest.raises(WorkloadError, match=r"'HumanEval/0' appears twice"):
        load(path=written(tmp_path, [RECORDS[0], RECORDS[0]]))
    with pytest.raises(WorkloadError, match="no HumanEval problems here"):
        load(path=str(tmp_path / "nothing"))


def test_canonical_solutions_that_fail_are_listed(tmp_path: Path) -> None:
    broken = {**RECORDS[1], "canonical_solution": "    return 0\n"}
    failures = check_canonical(load(path=written(tmp_path, [RECORDS[0], broken])), allow_code_execution=True)
    assert [(verdict.id, verdict.verdict) for verdict in failures] == [("HumanEval/1", "failed")]


def test_the_registry_pins_the_published_file() -> None:
    entry = catalogue()["humaneval"]
    assert [(file.name, file.size) for file in entry.files] == [("HumanEval.jsonl.gz", 44877)]
    assert (entry.licence, entry.card) == ("MIT", "humaneval.md")


@pytest.mark.real("humaneval")
@pytest.mark.slow
def test_all_canonical_solutions_pass_and_a_constant_passes_none() -> None:
    """The grader's self-test: 164 of 164; every fifth also as a model would write it, and with a wrong reply."""
    pairs = load()
    assert len(pairs) == 164
    assert check_canonical(pairs, allow_code_execution=True, timeout=10) == []
    some = pairs[::5]
    fenced = [(q, a, f"Here it is:\n```python\n{q.text}{a.canonical}\n```\nIt works.") for q, a in some]
    wrong = [(q, a, "    return None") for q, a in some]
    verdicts = check_answers(fenced + wrong, allow_code_execution=True, timeout=10)
    assert [verdict.verdict for verdict in verdicts] == ["passed"] * len(some) + ["failed"] * len(some)


@pytest.mark.real("humaneval")
def test_docstring_examples_agree_with_the_canonical_solutions_but_for_known_errors() -> None:
    pairs = load()
    counts = run_examples([(q, a.canonical) for q, a in pairs], allow_code_execution=True, timeout=10)
    assert sum(run > 0 for _, run in counts) == 76 and sum(run for _, run in counts) == 181
    off = {q.id: count for (q, _), count in zip(pairs, counts, strict=True) if count[0] != count[1]}
    assert off == {"HumanEval/47": (1, 2), "HumanEval/116": (0, 2)}, "the data set's own slips, see its card"
    assert all(
        extract_code(q.text + a.canonical, q.entry_point) == (q.text + a.canonical).strip("\n").rstrip()
        for q, a in pairs
    )
    assert all(docstring_examples(q) for q, _ in pairs if ">>>" in q.text)
