"""SciFact: scientific claims to be supported or contradicted by abstracts.

Readers get one cited abstract each; ``distractors`` adds abstracts that look similar (TF-IDF) but are not cited. The label of a claim
is that of its evidence (majority over abstracts, the first cited on a tie); a claim without evidence is NOT_ENOUGH_INFO.

Not covered: retrieval over the whole corpus, the hidden test labels, corpus measures (`lib.tasks.scifact_metrics`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from lib.seeds import hash_order
from lib.sources import locate
from lib.tasks.answers import parse_label
from lib.tasks.records import Record, draw_ids, first_file, read_records
from lib.tasks.task import LABELS, EvidenceId, Gold, Source, Task, Workload, WorkloadError, build_workload

VERSION = "scifact-1"
CAP = 400  # claims, stratified by label (BANDMAS specification, section 1)
SPLITS = ("train", "dev")
_CORPORA = ("corpus.jsonl", "corpus.jsonl.gz", "corpus_full.jsonl.gz", "corpus_full.jsonl", "corpus_dev_cited.jsonl")


class _Claim(msgspec.Struct, frozen=True):
    id: str
    text: str
    label: str
    cited: tuple[str, ...]
    evidence: tuple[EvidenceId, ...]
    place: str


def load(
    *,
    limit: int | None = None,
    seed: int = 0,
    splits: str = "train,dev",
    distractors: int = 0,
    path: str | None = None,
) -> Workload:
    """Load claims with their cited abstracts.

    Parameters
    ----------
    limit
        At most this many claims (None: 400), drawn by hash and stratified by label.
    seed
        Draws the claims and shuffles the slots.
    splits
        "train", "dev" or "train,dev".
    distractors
        Uncited abstracts a claim, the most similar ones by TF-IDF; a claim that cites nothing gets one in any case.
    path
        Folder with ``claims_<split>.jsonl`` and ``corpus.jsonl`` (official) or ``corpus_full.jsonl.gz`` /
        ``corpus_dev_cited.jsonl``; None asks `lib.sources`.
    """
    if isinstance(distractors, bool) or not isinstance(distractors, int) or not 0 <= distractors <= 10:
        raise WorkloadError(f"scifact: distractors must be a whole number from 0 to 10, got {distractors!r}")
    folder = locate("scifact") if path is None else Path(path).expanduser()
    corpus = _corpus(first_file(folder, _CORPORA, "SciFact corpus"))
    claims = {claim.id: claim for claim in _claims(folder, splits, corpus)}
    groups = {label: [c.id for c in claims.values() if c.label == label] for label in LABELS}
    chosen = [claims[cid] for cid in draw_ids(groups, CAP if limit is None else limit, "scifact", seed)]
    extra = _similar(chosen, corpus, distractors)
    return build_workload("scifact", VERSION, (_task(c, corpus, extra.get(c.id, []), seed) for c in chosen))


def _corpus(path: Path) -> dict[str, Source]:
    corpus: dict[str, Source] = {}
    for record in read_records(path):
        doc = record.text_id("doc_id")
        sentences = record.need("abstract", list)
        if not all(isinstance(sentence, str) for sentence in sentences):
            raise WorkloadError(f"{record.place}: 'abstract' must be a list of sentences")
        title = record.need("title", str).strip()
        corpus[doc] = Source(id=doc, title=title, sentences=tuple(sentence.strip() for sentence in sentences))
    return corpus


def _claims(folder: Path, splits: str, corpus: dict[str, Source]) -> list[_Claim]:
    wanted = [split.strip() for split in splits.split(",") if split.strip()]
    if not wanted or set(wanted) - set(SPLITS):
        raise WorkloadError(
            f"scifact: splits must name {' or '.join(SPLITS)} (the test labels are hidden), got {splits!r}"
        )
    claims: dict[str, _Claim] = {}
    for split in wanted:
        for record in read_records(
            first_file(folder, (f"claims_{split}.jsonl", f"claims_{split}.jsonl.gz"), "SciFact claims")
        ):
            claim = _claim(record)
            if claim.id in claims:
                raise WorkloadError(f"{record.place}: claim id {claim.id} appears twice")
            for doc, index in [*claim.evidence, *((doc, 0) for doc in claim.cited)]:
                if doc not in corpus:
                    raise WorkloadError(
                        f"{record.place}: abstract {doc} is not in the corpus file; use the full corpus or splits='dev'"
                    )
                if index is not None and not 0 <= index < len(corpus[doc].sentences):
                    raise WorkloadError(
                        f"{record.place}: abstract {doc} has no sentence {index}; claims and corpus do not match"
                    )
            claims[claim.id] = claim
    return list(claims.values())


def _claim(record: Record) -> _Claim:
    labels: dict[str, str] = {}
    evidence: dict[EvidenceId, None] = {}
    for doc, rationales in record.need("evidence", dict).items():
        for item in _rationales(record, str(doc), rationales):
            labels[str(doc)] = item[0]
            evidence.update(dict.fromkeys((str(doc), index) for index in item[1]))
    cited = dict.fromkeys(str(doc) for doc in record.data.get("cited_doc_ids") or [])
    # Evidence abstracts are cited ones; should a file list fewer, they are added in its order.
    cited.update(dict.fromkeys(labels))
    return _Claim(
        id=record.text_id("id"),
        text=" ".join(record.need("claim", str).split()),
        label=_majority(labels, list(cited)),
        cited=tuple(cited),
        evidence=tuple(evidence),
        place=record.place,
    )


def _rationales(record: Record, doc: str, rationales: Any) -> list[tuple[str, list[int]]]:
    place = f"{record.place}, evidence of abstract {doc}"
    if not isinstance(rationales, list):
        raise WorkloadError(f"{place}: expected a list of rationales, found {type(rationales).__name__}")
    out = []
    for item in rationales:
        rationale = Record(place, item if isinstance(item, dict) else {})
        label = parse_label(rationale.need("label", str))
        if label not in ("SUPPORT", "CONTRADICT"):
            raise WorkloadError(f"{place}: label {rationale.data['label']!r} is neither SUPPORT nor CONTRADICT")
        sentences = rationale.need("sentences", list)
        if not all(isinstance(index, int) and not isinstance(index, bool) for index in sentences):
            raise WorkloadError(f"{place}: 'sentences' must be whole numbers")
        out.append((label, sentences))
    return out


def _majority(labels: dict[str, str], cited: list[str]) -> str:
    if not labels:
        return "NOT_ENOUGH_INFO"
    counts = Counter(labels.values())
    most = max(counts.values())
    tied = {label for label, count in counts.items() if count == most}
    return next(labels[doc] for doc in cited if labels.get(doc) in tied)


def _similar(claims: list[_Claim], corpus: dict[str, Source], count: int) -> dict[str, list[str]]:
    """Return the most similar uncited abstracts of every claim that needs some; ties by document id."""
    needs = {claim.id: max(count, 0 if claim.cited else 1) for claim in claims}
    wanting = [claim for claim in claims if needs[claim.id]]
    if not wanting:
        return {}
    # Imported here: it costs a second, and only distractors need it.
    from sklearn.feature_extraction.text import TfidfVectorizer

    docs = sorted(corpus)
    vectorizer = TfidfVectorizer(stop_words="english", sublinear_tf=True)
    matrix = vectorizer.fit_transform([" ".join((corpus[doc].title, *corpus[doc].sentences)) for doc in docs])
    scores = vectorizer.transform([claim.text for claim in wanting]) @ matrix.T  # (n_claims, n_docs) cosine
    out = {}
    for row, claim in enumerate(wanting):
        dense = scores[row].toarray().ravel()
        # Rounded, so that the last bits of a sum cannot reorder equals on another processor.
        ranked = sorted(range(len(docs)), key=lambda i: (-round(float(dense[i]), 9), docs[i]))
        fresh = [docs[i] for i in ranked[: len(claim.cited) + needs[claim.id]] if docs[i] not in claim.cited]
        out[claim.id] = fresh[: needs[claim.id]]
    return out


def _task(claim: _Claim, corpus: dict[str, Source], extra: list[str], seed: int) -> tuple[Task, Gold]:
    task_id = f"sf-{claim.id}"
    slots = hash_order([*claim.cited, *extra], "slots", seed, task_id)
    task = Task(
        id=task_id,
        family="scifact",
        kind="verification",
        query=claim.text,
        sources=tuple(corpus[doc] for doc in slots),
        version=VERSION,
    )
    return task, Gold(task_id=task_id, label=claim.label, answer=claim.label, evidence=claim.evidence)
