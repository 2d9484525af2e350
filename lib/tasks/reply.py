"""Read a receiver's reply: JSON, strict or mended once, and the evidence it cites.

What is read is what stands there. A wrong type is read for what it plainly says ("S2" is sentence 2, 7 is document "7", a quoted
sentence is the sentence it quotes); what cannot be read is kept as a citation of nothing, which counts against the reply.

Not covered: whether the answer is right (`lib.tasks.scoring`).
"""

from __future__ import annotations

import json
import re
from typing import Any

import json_repair
import msgspec

from lib.tasks.answers import comparable_title, token_f1
from lib.tasks.task import EvidenceId, Source, Task

QUOTE_F1 = 0.8  # a quotation counts as a sentence of the document from this token F1 on
MAX_DEPTH = 20  # JSON nested deeper is no reply to any question here
MAX_CITATION = 300  # characters; a longer text is read as a quotation only
_SOURCE_FIELDS = ("doc", "title", "source", "id", "page")
_SENTENCE_FIELDS = ("sentences", "sentence")
_INDEX = re.compile(r"\[?\s*(?:sentences?\s*|s)?(-?\d{1,9})\s*\]?", re.IGNORECASE)
_INDEX_LIST = re.compile(r"(?:\[?\s*(?:sentences?\s*|s)?-?\d{1,9}\s*\]?(?:\s*(?:,|;|and|&)\s*|\s*$))+", re.IGNORECASE)
_MARKED_QUOTE = re.compile(r"^\s*\[S(\d{1,9})\]\s*\S", re.IGNORECASE)
_TITLE_INDEX = re.compile(
    r"^(?P<title>.+?)[\s,:;#(\[]*\[?(?:sentence\s*|s)?(?P<index>\d{1,9})[\])]*$", re.IGNORECASE | re.DOTALL
)


class ReadReply(msgspec.Struct, frozen=True):
    """A reply as a JSON object, or None with the reason; ``repaired`` says that the text was no JSON and was mended."""

    parsed: dict[str, Any] | None
    repaired: bool
    reason: str


class ReadEvidence(msgspec.Struct, frozen=True):
    """Cited evidence ids without repeats, whether an evidence field was there at all, and remarks."""

    ids: tuple[EvidenceId, ...]
    present: bool
    remarks: tuple[str, ...]


def read_reply(raw: str) -> ReadReply:
    """Parse a reply as a JSON object: strictly, else after exactly one repair (balanced braces).

    Examples
    --------
    >>> read_reply('{"answer": "red", "evidence": [{"title": "A"').parsed
    {'answer': 'red', 'evidence': [{'title': 'A'}]}
    >>> read_reply("I cannot tell.").reason
    'reply holds no JSON object'
    """
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        try:
            value, repaired = json_repair.loads(raw), True
        except (ValueError, RecursionError):
            return ReadReply(None, True, "reply is not JSON and could not be repaired")
    else:
        repaired = False
    if isinstance(value, list):
        objects = [item for item in value if isinstance(item, dict)]
        if len(objects) > 1:
            return ReadReply(None, repaired, "reply holds several JSON objects")
        value = objects[0] if objects else None
    if not isinstance(value, dict):
        return ReadReply(None, repaired, "reply holds no JSON object")
    if not _shallow(value, MAX_DEPTH):
        return ReadReply(None, repaired, f"reply nests deeper than {MAX_DEPTH} levels")
    return ReadReply(storable(value), repaired, "reply was not JSON: repaired" if repaired else "")


def read_evidence(task: Task, parsed: dict[str, Any]) -> ReadEvidence:
    """Return the evidence ids that a parsed reply cites.

    Parameters
    ----------
    task
        Gives the source ids and sentences that citations are read against. There is no gold in it.
    parsed
        The reply. ``evidence`` is a list of ``{"doc" | "title": id, "sentences" | "sentence": index}`` (verification, bridge) or
        of titles (fan-out); single items, strings and quotations are understood too.

    Returns
    -------
    ReadEvidence
        (source id, index) pairs, or (title, None) for fan-out. A document that is not in the task keeps its name. A citation
        without a readable sentence, where one is needed, is (document, None): it can match no gold id.
    """
    if "evidence" not in parsed:
        return ReadEvidence((), False, ("evidence missing",))
    field = parsed["evidence"]
    if field is None:
        return ReadEvidence((), False, ("evidence is null",))
    items = field if isinstance(field, list) else [field]
    ids: dict[EvidenceId, None] = {}
    remarks: list[str] = []
    for item in items:
        found = _read_pages(task, item) if task.kind == "fanout" else _read_sentences(task, item)
        if not found and item not in ("", [], {}):
            remarks.append(f"cites nothing: {_short(item)}")
        ids.update(dict.fromkeys(found))
    return ReadEvidence(tuple(ids), True, tuple(remarks))


def quoted_sentence(source: Source, quote: str) -> int | None:
    """Return the index of the sentence that a text quotes, or None.

    An explicit marker at the start ("[S3] ...") wins; else the sentence with the highest token F1, if that reaches `QUOTE_F1`; the
    first of equals.
    """
    marked = _MARKED_QUOTE.match(quote)
    if marked:
        return int(marked.group(1))
    scores = [token_f1(quote, sentence) for sentence in source.sentences]
    best = max(scores, default=0.0)
    return scores.index(best) if best >= QUOTE_F1 else None


def _read_pages(task: Task, item: Any) -> list[EvidenceId]:
    name = _field(item, _SOURCE_FIELDS) if isinstance(item, dict) else item
    if isinstance(name, list):
        return [page for part in name for page in _read_pages(task, part)]
    text = _id_text(name)
    return [(_known(task, text), None)] if text else []


def _read_sentences(task: Task, item: Any) -> list[EvidenceId]:
    if isinstance(item, dict):
        name = _id_text(_field(item, _SOURCE_FIELDS))
        which = _field(item, _SENTENCE_FIELDS)
        if not name:
            # Only a quotation without a document is left to go by.
            return [pair for text in _texts(which) for pair in _read_text(task, text)]
        return _indices(task, _known(task, name), which)
    if isinstance(item, list):
        if len(item) == 2 and _id_text(item[0]) and not isinstance(item[0], list):
            known = _known(task, _id_text(item[0]))
            if any(source.id == known for source in task.sources):
                return _indices(task, known, item[1])
        return [pair for part in item for pair in _read_sentences(task, part)]
    return _read_text(task, item) if isinstance(item, str) and item.strip() else []


def _read_text(task: Task, text: str) -> list[EvidenceId]:
    """Read a bare text: "Title [S2]", or a sentence quoted from any source."""
    named = _TITLE_INDEX.match(text.strip()) if len(text) <= MAX_CITATION else None
    if named:
        known = _known(task, named.group("title").strip())
        if any(source.id == known for source in task.sources):
            return [(known, int(named.group("index")))]
    best: tuple[float, EvidenceId] | None = None
    for source in task.sources:
        for i, sentence in enumerate(source.sentences):
            score = token_f1(text, sentence)
            if score >= QUOTE_F1 and (best is None or score > best[0]):
                best = (score, (source.id, i))
    return [best[1]] if best else [(_known(task, text.strip()), None)]


def _indices(task: Task, source_id: str, which: Any) -> list[EvidenceId]:
    if isinstance(which, list):
        return [pair for part in which for pair in _indices(task, source_id, part)]
    if isinstance(which, bool) or which is None or which == "":
        return []
    if isinstance(which, int):
        return [(source_id, which)]
    if isinstance(which, float):
        return [(source_id, int(which))] if which.is_integer() else [(source_id, None)]
    if isinstance(which, str):
        if _INDEX_LIST.fullmatch(which.strip()):
            return [(source_id, int(number)) for number in _INDEX.findall(which)]
        source = next((s for s in task.sources if s.id == source_id), None)
        return [(source_id, quoted_sentence(source, which) if source else None)]
    return [(source_id, None)]


def _known(task: Task, name: str) -> str:
    """Return the source id that a name means: itself, the only one of equal normal form, or the name as it is (an invention)."""
    if any(source.id == name for source in task.sources):
        return name
    same = [s.id for s in task.sources if comparable_title(name) in {comparable_title(s.id), comparable_title(s.title)}]
    return same[0] if len(same) == 1 else name


def _field(item: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((item[name] for name in names if name in item), None)


def _id_text(name: Any) -> str:
    if isinstance(name, str):
        return name.strip()
    return str(name) if isinstance(name, int) and not isinstance(name, bool) else ""


def _texts(value: Any) -> list[str]:
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, str) and v.strip()]


def _shallow(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_shallow(item, levels - 1) for item in inner)


def storable(value: Any) -> Any:
    """Return the value with lone surrogates (from escapes such as ``\\ud800``) replaced, so that it can be stored as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8") if _LONE.search(value) else value
    if isinstance(value, list):
        return [storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    return value


_LONE = re.compile("[\ud800-\udfff]")


def _short(item: Any) -> str:
    text = json.dumps(item, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."
