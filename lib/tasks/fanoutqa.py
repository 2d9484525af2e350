"""FanOutQA: questions whose answer needs one fact from each of several pages.

The package ships questions, answers, human decompositions and page titles, but no page text. The text of a source is therefore an
*annotation-derived note*: the sub-questions that the annotators answered from that page, with their answers. Such a note says no
more than the annotation, so a reader of it works under easier conditions than a reader of Wikipedia; every source says so in its
``note``. A user who has page text gives it with ``pages``.

Not covered: fetching Wikipedia, the test split (its answers are hidden), categories.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from lib.seeds import hash_order
from lib.sources import local_root, locate
from lib.tasks.answers import normalize_answer
from lib.tasks.fanoutqa_answers import flatten_answer
from lib.tasks.records import Record, draw_ids, first_file, read_records
from lib.tasks.task import Gold, Source, Task, Workload, WorkloadError, build_workload

VERSION = "fanoutqa-1"
NOTE = "annotation-derived"
_FILES = ("fanout-final-dev.json", "dev.jsonl.gz", "dev.jsonl", "fanoutqa/data/fanout-final-dev.json")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'“(\[]?[A-Z0-9])")


class PoolReport(msgspec.Struct, frozen=True):
    """How many questions there are, how many stay under the page limit, and how many of those have every page's text."""

    questions: int
    within_limit: int
    kept: int
    max_pages: int


class _Question(msgspec.Struct, frozen=True):
    id: str
    question: str
    answer: Any
    pages: dict[str, list[str]]  # title -> sentences of the note, pages in annotation order
    page_ids: dict[str, str]  # title -> page id


def load(
    *,
    limit: int | None = None,
    seed: int = 0,
    max_pages: int = 8,
    max_sources: int = 6,
    pages: str | None = None,
    page_chars: int = 1500,
    path: str | None = None,
) -> Workload:
    """Load the development questions.

    Parameters
    ----------
    limit
        At most this many questions, drawn by hash; None takes the whole pool.
    seed
        Orders the pool and shuffles the slots.
    max_pages
        Questions with more evidence pages are left out.
    max_sources
        At most this many sources a task, the first ones in annotation order. Gold evidence names *all* evidence pages.
    pages
        JSON Lines file of page texts: ``title`` or ``pageid``, and ``text``. Questions without text for each of their sources are
        left out; see `pool_report`.
    page_chars
        A page text is cut to the run of whole sentences of at most this many characters that shares most words with the question.
    path
        The official JSON file or its JSON Lines form; None asks `lib.sources`.

    Returns
    -------
    Workload
        Sources are titled like their page; gold evidence is (title, None).
    """
    report, pool, texts = _pool(path, max_pages, max_sources, pages)
    if not pool:
        raise WorkloadError(
            f"fanoutqa: none of {report.questions} questions fits max_pages={max_pages} and the page texts"
        )
    chosen = draw_ids({"all": list(pool)}, len(pool) if limit is None else limit, "fanoutqa", seed)
    drawn = (_task(pool[qid], seed, max_sources, texts, page_chars) for qid in chosen)
    return build_workload("fanoutqa", VERSION, drawn)


def pool_report(
    *, max_pages: int = 8, max_sources: int = 6, pages: str | None = None, path: str | None = None
) -> PoolReport:
    """Return how large the pool is under the same knobs as `load`."""
    return _pool(path, max_pages, max_sources, pages)[0]


def _pool(
    path: str | None, max_pages: int, max_sources: int, pages: str | None
) -> tuple[PoolReport, dict[str, _Question], dict[str, str] | None]:
    if min(max_pages, max_sources) < 1:
        raise WorkloadError(
            f"fanoutqa: max_pages and max_sources must be at least 1, got {max_pages} and {max_sources}"
        )
    questions = [_question(record) for record in read_records(_data_file(path))]
    texts = None if pages is None else _page_texts(Path(pages).expanduser())
    within = [q for q in questions if 1 <= len(q.pages) <= max_pages]
    kept = {}
    for question in within:
        shown = list(question.pages)[:max_sources]
        if texts is None or all(_text_of(question, title, texts) for title in shown):
            if question.id in kept:
                raise WorkloadError(f"fanoutqa: question id {question.id!r} appears twice in the data file")
            kept[question.id] = question
    return PoolReport(len(questions), len(within), len(kept), max_pages), kept, texts


def _data_file(path: str | None) -> Path:
    if path is not None:
        return first_file(Path(path).expanduser(), _FILES, "FanOutQA questions")
    # The JSON Lines form of a user's own folder holds the same records as the package's file.
    own = local_root("LAB_DATA") / "fanoutqa"
    if own.is_dir() and any((own / name).is_file() for name in _FILES):
        return first_file(own, _FILES, "FanOutQA questions")
    return first_file(locate("fanoutqa"), _FILES, "FanOutQA questions")


def _question(record: Record) -> _Question:
    if "answer" not in record.data or "decomposition" not in record.data:
        raise WorkloadError(
            f"{record.place}: no 'answer' or 'decomposition'; the test split hides them, use the development file"
        )
    pages: dict[str, list[str]] = {}
    page_ids: dict[str, str] = {}
    for node in _nodes(record.need("decomposition", list), record.place):
        evidence = node.get("evidence")
        if not evidence:
            continue  # an inner question: its parts have the pages
        page = Record(f"{record.place}, evidence of {node.get('question')!r}", evidence)
        title = page.need("title", str).strip()
        sentence = _note(str(node.get("question", "")), node.get("answer"))
        page_ids[title] = page.text_id("pageid")
        lines = pages.setdefault(title, [])
        if sentence not in lines:
            lines.append(sentence)
    return _Question(
        id=record.text_id("id"),
        question=_one_line(record.need("question", str)),
        answer=record.data["answer"],
        pages=pages,
        page_ids=page_ids,
    )


def _nodes(nodes: list[Any], place: str) -> Iterator[dict[str, Any]]:
    for node in nodes:
        if not isinstance(node, dict):
            raise WorkloadError(f"{place}: 'decomposition' holds {type(node).__name__}, expected objects")
        yield node
        yield from _nodes(node.get("decomposition") or [], place)


def _note(question: str, answer: Any) -> str:
    """Return "What is the batting hand of Pat Burrell? Right." """
    text = _one_line(question).rstrip(".")
    text = text if text.endswith("?") else f"{text}?"
    said = _said(answer)
    said = said[:1].upper() + said[1:]
    return f"{text} {said}" if said.endswith((".", "!", "?")) else f"{text} {said}."


def _said(answer: Any) -> str:
    if isinstance(answer, dict):
        return "; ".join(f"{key}: {_said(value)}" for key, value in answer.items())
    if isinstance(answer, list):
        return ", ".join(_said(item) for item in answer)
    return _one_line(flatten_answer(answer))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _page_texts(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for record in read_records(path):
        text = record.need("text", str)
        keys = [str(record.data[field]) for field in ("title", "pageid") if record.data.get(field) is not None]
        if not keys:
            raise WorkloadError(f"{record.place}: needs 'title' or 'pageid' beside 'text'")
        texts.update((key, text) for key in keys if text.strip())
    return texts


def _text_of(question: _Question, title: str, texts: dict[str, str]) -> str:
    return texts.get(question.page_ids[title]) or texts.get(title) or ""


def best_passage(text: str, query: str, max_chars: int) -> tuple[str, ...]:
    """Return the run of whole sentences of at most `max_chars` characters that shares most words with the query.

    Overlap is the number of distinct query words found; among equals the earliest run, then the longest. A first sentence that is
    longer than `max_chars` by itself is cut at a word.
    """
    sentences = [_one_line(part) for part in _SENTENCE_END.split(_one_line(text)) if part.strip()]
    wanted = set(normalize_answer(query).split())
    words = [wanted & set(normalize_answer(sentence).split()) for sentence in sentences]
    best: tuple[int, int, int] | None = None  # (shared words, -start, end)
    for start in range(len(sentences)):
        size, shared = 0, set[str]()
        for end in range(start, len(sentences)):
            size += len(sentences[end]) + (end > start)
            if size > max_chars:
                break
            shared |= words[end]
            found = (len(shared), -start, end)
            if best is None or found > best:
                best = found
    if best is None:
        return (sentences[0][:max_chars].rsplit(" ", 1)[0],) if sentences else ()
    return tuple(sentences[-best[1] : best[2] + 1])


def _task(
    question: _Question, seed: int, max_sources: int, texts: dict[str, str] | None, page_chars: int
) -> tuple[Task, Gold]:
    sources = []
    for title in list(question.pages)[:max_sources]:
        if texts is None:
            sources.append(Source(id=title, title=title, sentences=tuple(question.pages[title]), note=NOTE))
        else:
            passage = best_passage(_text_of(question, title, texts), question.question, page_chars)
            sources.append(Source(id=title, title=title, sentences=passage))
    task_id = f"fq-{question.id}"
    order = {title: i for i, title in enumerate(hash_order([s.id for s in sources], "slots", seed, task_id))}
    task = Task(
        id=task_id,
        family="fanoutqa",
        kind="fanout",
        query=question.question,
        sources=tuple(sorted(sources, key=lambda source: order[source.id])),
        version=VERSION,
    )
    evidence = tuple((title, None) for title in question.pages)
    return task, Gold(task_id=task_id, label=None, answer=question.answer, evidence=evidence)
