from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lib.tasks import WorkloadError, load_workload
from lib.tasks.grader_check import check_grader
from lib.tasks.hotpotqa import PoolReport, pool_report


def official(number: int, **changes: Any) -> dict[str, Any]:
    paragraphs = [[f"Page {number}.{i}", [f" First of {i}.", f"Second of {i}."]] for i in range(10)]
    record = {
        "_id": f"q{number}",
        "question": f"Question {number}?",
        "answer": "Paris",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [[f"Page {number}.3", 0], [f"Page {number}.7", 1], [f"Page {number}.3", 1]],
        "context": paragraphs,
    }
    return record | changes


def hub(record: dict[str, Any]) -> dict[str, Any]:
    facts, context = record["supporting_facts"], record["context"]
    table = {
        "supporting_facts": {"title": [t for t, _ in facts], "sent_id": [i for _, i in facts]},
        "context": {"title": [t for t, _ in context], "sentences": [s for _, s in context]},
    }
    return {"id": record["_id"], **{k: v for k, v in record.items() if k != "_id"}} | table


RECORDS = [official(i) for i in range(5)] + [official(9, type="comparison")]


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "hotpot_dev_distractor_v1.json"
    path.write_text(json.dumps(RECORDS), encoding="utf-8")
    return str(path)


def test_two_gold_paragraphs_and_four_distractors(data: str) -> None:
    workload = load_workload("hotpotqa", path=data)
    assert len(workload.tasks) == 5  # the comparison question stays out
    for task in workload.tasks:
        gold = workload.gold[task.id]
        number = task.id.removeprefix("hp-q")
        titles = {s.title for s in task.sources}
        assert task.kind == "bridge" and len(titles) == 6 and {f"Page {number}.3", f"Page {number}.7"} <= titles
        assert gold.evidence == ((f"Page {number}.3", 0), (f"Page {number}.7", 1), (f"Page {number}.3", 1))
        assert gold.answer == "Paris" and task.sources[0].sentences[0].startswith("First of")
    assert all(len(t.sources) == 2 for t in load_workload("hotpotqa", path=data, distractors=0).tasks)
    assert all(len(t.sources) == 10 for t in load_workload("hotpotqa", path=data, distractors=8).tasks)


def test_all_file_forms_give_the_same_workload(data: str, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    wanted = load_workload("hotpotqa", path=data)
    lines = tmp_path / "dev_distractor.jsonl.gz"
    plain = [{"id" if k == "_id" else k: v for k, v in r.items()} | {"sf_in_range": True} for r in RECORDS]
    lines.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in plain).encode()))
    parquet = tmp_path / "dev_distractor.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([hub(r) for r in RECORDS]), parquet)
    table = tmp_path / "hub.json"
    table.write_text(json.dumps([hub(r) for r in RECORDS]), encoding="utf-8")
    for path in (lines, parquet, table):
        assert load_workload("hotpotqa", path=str(path)) == wanted


def test_seeds_draw_other_questions_distractors_and_slots(data: str) -> None:
    first, second = load_workload("hotpotqa", path=data, limit=3), load_workload("hotpotqa", path=data, limit=3, seed=1)
    assert first == load_workload("hotpotqa", path=data, limit=3) and first != second
    assert [s.id for s in first.tasks[0].sources] != sorted(s.id for s in first.tasks[0].sources)


def test_unusable_questions_are_counted_not_hidden(tmp_path: Path) -> None:
    doubled = official(3)
    doubled["context"] = [*doubled["context"], ["Page 3.0", ["again"]]]
    rows = [
        official(0),
        official(1, supporting_facts=[["Page 1.3", 9]]),
        official(2, supporting_facts=[["Elsewhere", 0]]),
        doubled,
        RECORDS[-1],
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    assert pool_report(path=str(path)) == PoolReport(records=5, bridge=4, kept=1, gold_missing=2, title_repeated=1)
    path.write_text(json.dumps(rows[-1:]), encoding="utf-8")
    with pytest.raises(WorkloadError, match="no usable bridge question among 1"):
        load_workload("hotpotqa", path=str(path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": None}, "'type' is NoneType"),
        ({"answer": 3}, "'answer' is int"),
        ({"context": [["title"]]}, "'context' must hold pairs"),
        ({"context": {"title": ["a"], "sentences": []}}, "context has 1 of 'title' but 0 of 'sentences'"),
        ({"supporting_facts": [["a", "0"]]}, "'supporting_facts' must hold pairs"),
        ({"supporting_facts": "x"}, "'supporting_facts' is str, expected list or dict"),
    ],
)
def test_broken_records_name_file_record_and_field(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([official(0), official(1, **change)]), encoding="utf-8")
    with pytest.raises(WorkloadError, match=rf"a\.json, record 1.*{words}"):
        load_workload("hotpotqa", path=str(path))


def test_grader(data: str) -> None:
    assert check_grader(load_workload("hotpotqa", path=data)).failures == ()


@pytest.mark.real("hotpotqa")
def test_the_real_questions() -> None:
    report = pool_report()
    assert report.bridge >= 100 and report.kept > 0.97 * report.bridge
    workload = load_workload("hotpotqa")
    assert len(workload.tasks) == min(400, report.kept)
    check = check_grader(workload)
    assert (check.gold_mean, check.wrong_mean, check.failures) == (1.0, 0.0, ())
    slots = [0] * 6
    for task in workload.tasks:
        gold = {title for title, _ in workload.gold[task.id].evidence}
        assert gold <= {s.id for s in task.sources}
        for i, source in enumerate(task.sources):
            slots[i] += source.id in gold
    assert min(slots) > 0.5 * sum(slots) / 6
