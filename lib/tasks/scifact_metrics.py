"""SciFact's corpus measures: precision, recall and F1 counted over claim-abstract pairs and over sentences.

They differ from the per-task evidence F1 of `lib.tasks.scoring`: here a predicted sentence is right only if the *whole* rationale it
belongs to was predicted, and all claims share one count.

Not covered: retrieval of abstracts, difficulty splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from lib.tasks.answers import Overlap

FIRST_SENTENCES = 3  # the official script reads a rationale among the first three predicted sentences


class GoldAbstract(msgspec.Struct, frozen=True):
    """What the annotators say about one abstract: a label and one or more rationales (sets of sentence indices)."""

    label: str
    rationales: tuple[frozenset[int], ...]


class PredictedAbstract(msgspec.Struct, frozen=True):
    """What is predicted about one abstract: a label and sentence indices, best first."""

    label: str
    sentences: tuple[int, ...]


class ScifactMetrics(msgspec.Struct, frozen=True):
    """The four official measures; ``exact`` of each is unused and 0."""

    sentence_selection: Overlap
    sentence_label: Overlap
    abstract_label_only: Overlap
    abstract_rationalized: Overlap


def scifact_metrics(
    claims: Iterable[tuple[Mapping[str, GoldAbstract], Mapping[str, PredictedAbstract]]],
) -> ScifactMetrics:
    """Return the official corpus measures.

    Parameters
    ----------
    claims
        For every claim, gold and predicted abstracts by document id. Predictions labelled NOT_ENOUGH_INFO count as not made;
        a claim without evidence has no gold abstracts.

    Notes
    -----
    Source: SciFact, ``verisci/evaluate/lib/metrics.py``; scorers specification, section 3. Where the script would divide by zero
    (nothing retrieved) the value is 0.

    Examples
    --------
    >>> gold = {"7": GoldAbstract("SUPPORT", (frozenset({1, 2}), frozenset({5})))}
    >>> metrics = scifact_metrics([(gold, {"7": PredictedAbstract("SUPPORT", (1, 5))})])
    >>> round(metrics.sentence_selection.f1, 4)
    0.4
    """
    retrieved_sentences = relevant_sentences = right_sentences = right_labelled = 0
    retrieved_abstracts = relevant_abstracts = right_labels = right_rationales = 0
    for gold, predicted in claims:
        made = {doc: p for doc, p in predicted.items() if p.label != "NOT_ENOUGH_INFO"}
        retrieved_abstracts += len(made)
        relevant_abstracts += len(gold)
        retrieved_sentences += sum(len(set(p.sentences)) for p in made.values())
        relevant_sentences += sum(len(rationale) for g in gold.values() for rationale in g.rationales)
        for doc, prediction in made.items():
            if doc not in gold:
                continue
            listed = set(prediction.sentences)
            whole = {i for rationale in gold[doc].rationales if rationale <= listed for i in rationale}
            agrees = prediction.label == gold[doc].label
            right_sentences += len(whole)
            right_labelled += len(whole) * agrees
            right_labels += agrees
            right_rationales += agrees and rationale_found(prediction.sentences[:FIRST_SENTENCES], gold[doc].rationales)
    return ScifactMetrics(
        sentence_selection=_counts(right_sentences, retrieved_sentences, relevant_sentences),
        sentence_label=_counts(right_labelled, retrieved_sentences, relevant_sentences),
        abstract_label_only=_counts(right_labels, retrieved_abstracts, relevant_abstracts),
        abstract_rationalized=_counts(right_rationales, retrieved_abstracts, relevant_abstracts),
    )


def rationale_found(sentences: Sequence[int], rationales: Iterable[frozenset[int]]) -> bool:
    """Return whether some rationale is predicted whole: the all-or-nothing view of one task's evidence."""
    listed = set(sentences)
    return any(rationale <= listed for rationale in rationales)


def _counts(right: int, retrieved: int, relevant: int) -> Overlap:
    precision = right / retrieved if retrieved else 0.0
    recall = right / relevant if relevant else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return Overlap(precision, recall, f1, 0.0)
