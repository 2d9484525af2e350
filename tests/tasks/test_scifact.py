from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lib.sources import locate
from lib.tasks import LABELS, WorkloadError, load_workload
from lib.tasks.grader_check import check_grader
from lib.tasks.scifact_metrics import GoldAbstract, PredictedAbstract, scifact_metrics

TOPICS = ["sleep", "bones", "insulin", "zinc", "lungs", "memory", "salt", "viruses", "muscle", "light"]
CORPUS = [
    {
        "doc_id": 10 + i,
        "title": f"A study of {topic}",
        "abstract": [
            f" {topic.title()} was studied in mice.",
            f"Mice with more {topic} lived longer.",
            "More work is needed.",
        ],
        "structured": False,
    }
    for i, topic in enumerate(TOPICS)
]


def claim(number: int, text: str, cited: list[int], **evidence: tuple[str, list[list[int]]]) -> dict[str, Any]:
    """Build an official record; evidence is d<doc> = (label, rationales)."""
    found = {d[1:]: [{"sentences": r, "label": label} for r in rs] for d, (label, rs) in evidence.items()}
    return {"id": number, "claim": text, "evidence": found, "cited_doc_ids": cited}


def rationale(sentences: list[int], label: str) -> dict[str, Any]:
    return {"sentences": sentences, "label": label}


AGAINST, FOR = ("CONTRADICT", [[1]]), ("SUPPORT", [[1]])
DEV = [
    claim(1, "Sleep makes mice live longer.", [10, 11], d10=("SUPPORT", [[0, 1], [2]])),
    claim(2, "Zinc shortens life.", [13], d13=("REFUTES", [[1]])),
    claim(3, "Salt and memory interact.", [16]),
    claim(4, "Light tie.", [19, 18], d19=AGAINST, d18=FOR),
    claim(5, "Light majority.", [19, 18, 17], d19=AGAINST, d18=FOR, d17=("SUPPORT", [[0]])),
    claim(6, "Lungs of mice and insulin.", []),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "claims_dev.jsonl", DEV)
    write(tmp_path / "data" / "claims_train.jsonl", [{**c, "id": c["id"] + 100} for c in DEV[:3]])
    write(tmp_path / "data" / "corpus.jsonl", CORPUS)
    return tmp_path


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def by_id(folder: Path, **knobs: Any) -> dict[str, Any]:
    workload = load_workload("scifact", path=str(folder), **{"splits": "dev"} | knobs)
    return {t.id: (t, workload.gold[t.id]) for t in workload.tasks}


def test_official_files(folder: Path) -> None:
    pairs = by_id(folder)
    task, gold = pairs["sf-1"]
    assert task.kind == "verification" and task.query == "Sleep makes mice live longer."
    assert {s.id for s in task.sources} == {"10", "11"}
    assert next(s for s in task.sources if s.id == "10").sentences[0] == "Sleep was studied in mice."
    assert gold.label == gold.answer == "SUPPORT"
    assert gold.evidence == (("10", 0), ("10", 1), ("10", 2))  # union of the rationales
    assert pairs["sf-2"][1].label == "CONTRADICT" and pairs["sf-2"][1].evidence == (("13", 1),)
    assert pairs["sf-3"][1].label == "NOT_ENOUGH_INFO" and pairs["sf-3"][1].evidence == ()


def test_labels_of_several_abstracts(folder: Path) -> None:
    pairs = by_id(folder)
    assert pairs["sf-4"][1].label == "CONTRADICT"  # a tie: the first cited
    assert pairs["sf-5"][1].label == "SUPPORT"
    assert len(pairs["sf-5"][1].evidence) == 3


def test_every_claim_has_a_reader_and_distractors_are_similar_and_uncited(folder: Path) -> None:
    plain = by_id(folder)
    assert {s.id for s in plain["sf-6"][0].sources} <= {"12", "14"} and len(plain["sf-6"][0].sources) == 1
    assert len(plain["sf-2"][0].sources) == 1
    more = by_id(folder, distractors=2)
    for name, (task, _) in more.items():
        cited = {str(d) for d in DEV[int(name[3:]) - 1]["cited_doc_ids"]}
        extra = {s.id for s in task.sources} - cited
        assert cited < {s.id for s in task.sources} and len(extra) == 2
    assert {"12", "14"} == {s.id for s in more["sf-6"][0].sources}  # lungs and insulin, by their words


def test_slice_format_with_label_and_compressed_corpus(folder: Path, tmp_path: Path) -> None:
    slim = tmp_path / "slice"
    slim.mkdir()
    write(slim / "claims_dev.jsonl", [{**c, "label": "x"} for c in DEV])
    (slim / "corpus_full.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in CORPUS).encode()))
    assert by_id(slim) == by_id(folder)


def test_splits_join_and_stratify(folder: Path) -> None:
    both = load_workload("scifact", path=str(folder))
    assert len(both.tasks) == 9
    six = load_workload("scifact", path=str(folder), limit=6)
    assert Counter(g.label for g in six.gold.values()) == {"SUPPORT": 2, "CONTRADICT": 2, "NOT_ENOUGH_INFO": 2}
    for splits in ("test", "", "dev,final"):
        with pytest.raises(WorkloadError, match="splits must name"):
            load_workload("scifact", path=str(folder), splits=splits)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"evidence": {"99": [rationale([0], "SUPPORT")]}}, "abstract 99 is not in the corpus"),
        ({"evidence": {"10": [rationale([3], "SUPPORT")]}}, "abstract 10 has no sentence 3"),
        ({"evidence": {"10": [rationale([0], "MAYBE")]}}, "neither SUPPORT nor CONTRADICT"),
        ({"evidence": {"10": [rationale([0], "NEI")]}}, "neither SUPPORT nor CONTRADICT"),
        ({"evidence": {"10": [{"label": "SUPPORT"}]}}, "'sentences' is missing"),
        ({"evidence": {"10": {"label": "SUPPORT"}}}, "expected a list of rationales"),
        ({"evidence": None}, "'evidence' is NoneType"),
        ({"claim": 5}, "'claim' is int"),
        ({"id": 1}, "claim id 1 appears twice"),
    ],
)
def test_broken_claims_name_file_and_line(folder: Path, change: dict[str, Any], words: str) -> None:
    write(folder / "data" / "claims_dev.jsonl", [DEV[0], {**DEV[1], **change}])
    with pytest.raises(WorkloadError, match=rf"claims_dev\.jsonl, line 2.*{words}"):
        by_id(folder)


def test_hidden_test_labels_are_named(folder: Path) -> None:
    write(folder / "data" / "claims_dev.jsonl", [{"id": 1, "claim": "x"}])
    with pytest.raises(WorkloadError, match="'evidence' is missing"):
        by_id(folder)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"no SciFact corpus here; expected one of corpus\.jsonl"):
        by_id(tmp_path)


def test_grader(folder: Path) -> None:
    assert check_grader(load_workload("scifact", path=str(folder), distractors=1)).failures == ()


@pytest.mark.real("scifact")
def test_the_real_claims() -> None:
    workload = load_workload("scifact", distractors=1)
    assert len(workload.tasks) == 400
    labels = Counter(g.label for g in workload.gold.values())
    assert set(labels) == set(LABELS) and min(labels.values()) > 60
    check = check_grader(workload)
    assert (check.gold_mean, check.wrong_mean, check.failures) == (1.0, 0.0, ())
    assert workload == load_workload("scifact", distractors=1)
    for task in workload.tasks:
        assert len(task.sources) >= 2 and all(s.sentences for s in task.sources)


@pytest.mark.real("scifact")
def test_the_real_development_set_as_annotated() -> None:
    workload = load_workload("scifact", splits="dev", limit=1000)
    assert Counter(g.label for g in workload.gold.values()) == {
        "SUPPORT": 124,
        "CONTRADICT": 64,
        "NOT_ENOUGH_INFO": 112,
    }
    # Gold rationales predicted as such are perfect under the official measures.
    claims = []
    with (locate("scifact") / "claims_dev.jsonl").open(encoding="utf-8") as file:
        for line in file:
            evidence = json.loads(line)["evidence"]
            gold = {
                d: GoldAbstract(r[0]["label"], tuple(frozenset(x["sentences"]) for x in r)) for d, r in evidence.items()
            }
            predicted = {
                d: PredictedAbstract(g.label, tuple(i for r in g.rationales for i in sorted(r)))
                for d, g in gold.items()
            }
            claims.append((gold, predicted))
    metrics = scifact_metrics(claims)
    assert metrics.sentence_label.f1 == metrics.abstract_label_only.f1 == metrics.abstract_rationalized.f1 == 1.0
