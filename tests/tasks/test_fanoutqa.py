from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lib.sources import available
from lib.tasks import WorkloadError, fanoutqa, load_workload, score_reply
from lib.tasks.fanoutqa import NOTE, best_passage, pool_report
from lib.tasks.grader_check import check_grader, gold_reply


def node(question: str, answer: Any, page: str | None, parts: list[Any] | None = None) -> dict[str, Any]:
    evidence = None if page is None else {"pageid": sum(map(ord, page)), "revid": 1, "title": page, "url": "u"}
    return {
        "id": question,
        "question": question,
        "answer": answer,
        "depends_on": [],
        "decomposition": parts or [],
        "evidence": evidence,
    }


BATTING = {
    "id": "q1",
    "question": "What is the batting hand of each pick?",
    "answer": {"Pat": "Right", "Jo": "Left"},
    "decomposition": [
        node("Who were the picks?", ["Pat", "Jo"], "Draft"),
        node("What is the batting hand of Pat?", "Right", "Pat"),
        node("Batting hand of Jo", "left", "Jo (player)"),
        node("Was Jo a captain?", True, "Jo (player)"),
    ],
    "categories": [],
}
TOWN = node("How many live there?", 1200, "Town A", [node("Census?", "2001", "Census")])
NESTED = {
    "id": "q2",
    "question": "How many people live in each capital?",
    "answer": {"A": 1200, "B": 3.5},
    "decomposition": [
        node("Which countries?", {"first": "A", "second": ["B", "C"]}, "List"),
        node("Capital of A?", 1200, None, [node("What is it?", "Town A.", "A"), TOWN]),
    ],
    "categories": [],
}
WIDE = {
    "id": "q3",
    "question": "Each?",
    "answer": 1,
    "decomposition": [node(f"Q{i}?", i, f"Page {i}") for i in range(9)],
    "categories": [],
}
EIGHT = {
    "id": "q4",
    "question": "Each?",
    "answer": [1],
    "decomposition": [node(f"Q{i}?", i, f"Page {i}") for i in range(8)],
    "categories": [],
}
ALL = [BATTING, NESTED, WIDE, EIGHT]


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "fanout-final-dev.json"
    path.write_text(json.dumps(ALL), encoding="utf-8")
    return str(path)


def by_id(path: str, **knobs: Any) -> dict[str, Any]:
    workload = load_workload("fanoutqa", path=path, **knobs)
    return {t.id: (t, workload.gold[t.id]) for t in workload.tasks}


def test_notes_are_made_from_the_sub_questions_of_each_page(data: str) -> None:
    task, gold = by_id(data)["fq-q1"]
    assert task.kind == "fanout" and task.query == BATTING["question"]
    assert {s.title: s.sentences for s in task.sources} == {
        "Draft": ("Who were the picks? Pat, Jo.",),
        "Pat": ("What is the batting hand of Pat? Right.",),
        "Jo (player)": ("Batting hand of Jo? Left.", "Was Jo a captain? Yes."),
    }
    assert all(s.note == NOTE == "annotation-derived" for s in task.sources)
    assert gold.answer == BATTING["answer"]
    assert gold.evidence == (("Draft", None), ("Pat", None), ("Jo (player)", None))


def test_nested_decompositions_are_walked(data: str) -> None:
    task, gold = by_id(data)["fq-q2"]
    pages = {s.title: s.sentences for s in task.sources}
    assert pages["A"] == ("What is it? Town A.",) and pages["Census"] == ("Census? 2001.",)
    assert pages["Town A"] == ("How many live there? 1200.",)
    assert pages["List"] == ("Which countries? First: A; second: B, C.",)
    assert [title for title, _ in gold.evidence] == ["List", "A", "Town A", "Census"]


def test_page_limits_and_the_pool(data: str) -> None:
    report = pool_report(path=data)
    assert (report.questions, report.within_limit, report.kept, report.max_pages) == (4, 3, 3, 8)
    task, gold = by_id(data)["fq-q4"]
    assert {s.title for s in task.sources} == {f"Page {i}" for i in range(6)}  # annotation order, then shuffled slots
    assert len(gold.evidence) == 8
    assert set(by_id(data, max_pages=3)) == {"fq-q1"}
    with pytest.raises(WorkloadError, match="none of 4 questions"):
        by_id(data, max_pages=2)


def test_lines_and_list_give_the_same_workload(data: str, tmp_path: Path) -> None:
    lines = tmp_path / "dev.jsonl.gz"
    extra = [{**q, "evidence_pages": []} for q in ALL]
    lines.write_bytes(gzip.compress("".join(json.dumps(q) + "\n" for q in extra).encode()))
    assert load_workload("fanoutqa", path=str(lines)) == load_workload("fanoutqa", path=data)


def test_real_page_text_replaces_the_notes(data: str, tmp_path: Path) -> None:
    pages = tmp_path / "pages.jsonl"
    filler = " ".join(f"Sentence {i} says nothing at all." for i in range(60))
    rows = [
        {"title": "Draft", "text": "The draft had picks. " + filler},
        {"pageid": sum(map(ord, "Pat")), "text": filler + " The batting hand of Pat is right. " + filler},
        {"title": "Jo (player)", "text": "Jo bats left."},
    ]
    pages.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    assert pool_report(path=data, pages=str(pages)).kept == 1
    task, _ = by_id(data, pages=str(pages), page_chars=200)["fq-q1"]
    pat = next(s for s in task.sources if s.title == "Pat")
    assert "The batting hand of Pat is right." in pat.sentences and pat.note == ""
    assert len(" ".join(pat.sentences)) <= 200 and " ".join(pat.sentences) in rows[1]["text"]


def test_best_passage_takes_whole_contiguous_sentences() -> None:
    text = "Cats sleep. Dogs bark at night. Birds sing. Dogs chase cats."
    assert best_passage(text, "Do dogs chase cats?", 40) == ("Birds sing.", "Dogs chase cats.")
    assert best_passage(text, "", 30) == ("Cats sleep.",)  # no shared word: the earliest run
    assert best_passage("One very long sentence without an end", "x", 12) == ("One very",)
    assert best_passage("", "x", 10) == ()


def test_slots_are_shuffled_by_seed(data: str) -> None:
    orders = {tuple(s.title for s in by_id(data, seed=seed)["fq-q4"][0].sources) for seed in range(12)}
    assert len(orders) > 6
    assert by_id(data, seed=3) == by_id(data, seed=3)


def test_the_test_split_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "test.json"
    path.write_text(
        json.dumps([{"id": "x", "question": "?", "necessary_evidence": [], "categories": []}]), encoding="utf-8"
    )
    with pytest.raises(WorkloadError, match="use the development file"):
        load_workload("fanoutqa", path=str(path))


def test_grader(data: str) -> None:
    assert check_grader(load_workload("fanoutqa", path=data)).failures == ()


def _here() -> bool:
    return available("fanoutqa") or any(
        (fanoutqa.local_root("LAB_DATA") / "fanoutqa" / name).is_file() for name in fanoutqa._FILES
    )


@pytest.mark.skipif(not _here(), reason="FanOutQA is not on this machine: `python -m lib data --only fanoutqa`")
def test_the_whole_development_set() -> None:
    report = pool_report()
    assert (report.questions, report.kept) == (310, 268)
    workload = load_workload("fanoutqa")
    check = check_grader(workload)
    assert (check.tasks, check.gold_mean, check.wrong_mean) == (268, 1.0, 0.0)
    for task in workload.tasks:
        gold = workload.gold[task.id]
        assert {s.id for s in task.sources} <= {title for title, _ in gold.evidence} and 1 <= len(task.sources) <= 6
        assert all(line.strip() and "\n" not in line for s in task.sources for line in s.sentences)
        assert score_reply(task, gold, gold_reply(task, gold)).utility == 1.0
