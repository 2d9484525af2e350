"""HotpotQA, distractor setting: questions that need two paragraphs, among paragraphs that need not be read.

Only bridge questions are used. Readers get the two gold paragraphs and some of the distractors that come with the question. Reads the
official JSON list, the hub's table (dicts of lists) and JSON Lines of either shape.

Not covered: the fullwiki setting, comparison questions, training data.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from lib.seeds import hash_order
from lib.sources import locate
from lib.tasks.records import Record, draw_ids, first_file, read_records
from lib.tasks.task import EvidenceId, Gold, Source, Task, Workload, WorkloadError, build_workload

VERSION = "hotpotqa-1"
CAP = 400  # questions (BANDMAS specification, section 1)
_FILES = (
    "hotpot_dev_distractor_v1.json",
    "dev_distractor.jsonl.gz",
    "dev_distractor.jsonl",
    "dev_distractor.parquet",
)


class PoolReport(msgspec.Struct, frozen=True):
    """How many records were read, how many are bridge questions, and why some of those are not used."""

    records: int
    bridge: int
    kept: int
    gold_missing: int  # a supporting paragraph is not in the context, or has no such sentence
    title_repeated: int  # two paragraphs share a title, so that evidence would be ambiguous


class _Question(msgspec.Struct, frozen=True):
    id: str
    question: str
    answer: str
    paragraphs: dict[str, tuple[str, ...]]
    evidence: tuple[EvidenceId, ...]


def load(*, limit: int | None = None, seed: int = 0, distractors: int = 4, path: str | None = None) -> Workload:
    """Load bridge questions.

    Parameters
    ----------
    limit
        At most this many questions (None: 400), drawn by hash.
    seed
        Draws questions and distractors and shuffles the slots.
    distractors
        Distractor paragraphs a question, drawn by hash from those it comes with; fewer where it has fewer.
    path
        Data file or folder; None asks `lib.sources`.
    """
    if isinstance(distractors, bool) or not isinstance(distractors, int) or not 0 <= distractors <= 8:
        raise WorkloadError(f"hotpotqa: distractors must be a whole number from 0 to 8, got {distractors!r}")
    report, pool = _pool(path)
    if not pool:
        raise WorkloadError(f"hotpotqa: no usable bridge question among {report.records} records")
    chosen = draw_ids({"bridge": list(pool)}, CAP if limit is None else limit, "hotpotqa", seed)
    return build_workload("hotpotqa", VERSION, (_task(pool[qid], seed, distractors) for qid in chosen))


def pool_report(*, path: str | None = None) -> PoolReport:
    """Return how large the pool is and what was left out."""
    return _pool(path)[0]


def _pool(path: str | None) -> tuple[PoolReport, dict[str, _Question]]:
    file = first_file(locate("hotpotqa") if path is None else Path(path).expanduser(), _FILES, "HotpotQA questions")
    kept: dict[str, _Question] = {}
    records = bridge = gold_missing = title_repeated = 0
    for record in read_records(file):
        records += 1
        if record.need("type", str) != "bridge":
            continue
        bridge += 1
        paragraphs = list(_paragraphs(record))
        by_title = dict(paragraphs)
        evidence = tuple(dict.fromkeys(_facts(record)))
        if len(by_title) != len(paragraphs):
            title_repeated += 1
        elif not evidence or not all(index < len(by_title.get(title, ())) for title, index in evidence):
            gold_missing += 1
        else:
            question = _Question(
                id=record.text_id("_id", "id"),
                question=" ".join(record.need("question", str).split()),
                answer=record.need("answer", str),
                paragraphs=by_title,
                evidence=evidence,
            )
            if question.id in kept:
                raise WorkloadError(f"{record.place}: question id {question.id!r} appears twice")
            kept[question.id] = question
    return PoolReport(records, bridge, len(kept), gold_missing, title_repeated), kept


def _paragraphs(record: Record) -> Iterator[tuple[str, tuple[str, ...]]]:
    context = record.need("context", list, dict)
    pairs = _columns(record, "context", context, "title", "sentences") if isinstance(context, dict) else context
    for pair in pairs:
        if not (len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], list)):
            raise WorkloadError(f"{record.place}: 'context' must hold pairs of title and sentences")
        yield pair[0], tuple(str(sentence).strip() for sentence in pair[1])


def _facts(record: Record) -> Iterator[tuple[str, int]]:
    facts = record.need("supporting_facts", list, dict)
    pairs = _columns(record, "supporting_facts", facts, "title", "sent_id") if isinstance(facts, dict) else facts
    for pair in pairs:
        if not (len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], int) and pair[1] >= 0):
            raise WorkloadError(f"{record.place}: 'supporting_facts' must hold pairs of title and sentence index")
        yield pair[0], pair[1]


def _columns(record: Record, field: str, table: dict[str, Any], first: str, second: str) -> list[tuple[Any, Any]]:
    columns = Record(f"{record.place}, {field}", table)
    left, right = columns.need(first, list), columns.need(second, list)
    if len(left) != len(right):
        raise WorkloadError(f"{record.place}: {field} has {len(left)} of {first!r} but {len(right)} of {second!r}")
    return list(zip(left, right, strict=True))


def _task(question: _Question, seed: int, distractors: int) -> tuple[Task, Gold]:
    task_id = f"hp-{question.id}"
    gold_titles = list(dict.fromkeys(title for title, _ in question.evidence))
    others = [title for title in question.paragraphs if title not in gold_titles]
    drawn = hash_order(others, "distractors", seed, task_id)[:distractors]
    slots = hash_order(gold_titles + drawn, "slots", seed, task_id)
    task = Task(
        id=task_id,
        family="hotpotqa",
        kind="bridge",
        query=question.question,
        sources=tuple(Source(id=title, title=title, sentences=question.paragraphs[title]) for title in slots),
        version=VERSION,
    )
    return task, Gold(task_id=task_id, label=None, answer=question.answer, evidence=question.evidence)
