"""Answer measures: normalised match, token F1, set F1, joint F1, and labels read from text.

All are pure functions with values in [0, 1]. They follow the SQuAD and HotpotQA scripts: lower case, ASCII punctuation deleted,
then the articles, then white space collapsed. Typographic dashes and quotes are no punctuation here, as upstream.

Not covered: numbers and multiple choice; FanOutQA's string measure (`lib.tasks.fanoutqa_answers`); SciFact's corpus measures
(`lib.tasks.scifact_metrics`).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Collection, Hashable, Iterable

import msgspec

from lib.tasks.task import LABELS

_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CLOSED = frozenset({"yes", "no", "noanswer"})

_SYNONYMS = {
    "SUPPORT": ("SUPPORT", "SUPPORTS", "SUPPORTED", "TRUE", "ENTAILMENT"),
    "CONTRADICT": ("CONTRADICT", "CONTRADICTS", "CONTRADICTED", "REFUTE", "REFUTES", "REFUTED", "FALSE"),
    "NOT_ENOUGH_INFO": ("NOT ENOUGH INFO", "NOT ENOUGH INFORMATION", "NEI", "UNKNOWN"),
}
_LABEL_OF = {synonym: label for label, synonyms in _SYNONYMS.items() for synonym in synonyms}


class Overlap(msgspec.Struct, frozen=True):
    """Precision, recall, F1 and exact match of a prediction against gold, all in [0, 1]."""

    precision: float
    recall: float
    f1: float
    exact: float


def normalize_answer(text: str) -> str:
    """Return the SQuAD normal form of a text.

    Examples
    --------
    >>> normalize_answer(" The  Beatles! "), normalize_answer("a.n apple")
    ('beatles', 'apple')
    """
    bare = text.lower().translate(_DELETE_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def comparable_title(title: str) -> str:
    """Return the form in which titles and ids are compared: the normal form, or the text itself where that is empty ("The The")."""
    return normalize_answer(title) or title.strip().casefold()


def exact_match(prediction: str, gold: str) -> float:
    """Return 1.0 if both have the same normal form, else 0.0."""
    return float(normalize_answer(prediction) == normalize_answer(gold))


def token_overlap(prediction: str, gold: str) -> Overlap:
    """Return precision, recall and F1 over the multiset of normalised tokens; no shared token gives 0 (also for two empty texts)."""
    predicted, wanted = normalize_answer(prediction).split(), normalize_answer(gold).split()
    shared = sum((Counter(predicted) & Counter(wanted)).values())
    exact = float(predicted == wanted)
    if not shared:
        return Overlap(0.0, 0.0, 0.0, exact)
    return _overlap(shared / len(predicted), shared / len(wanted), exact)


def token_f1(prediction: str, gold: str) -> float:
    """Return the token F1 of SQuAD.

    Examples
    --------
    >>> round(token_f1("Paris, France", "Paris"), 4), token_f1("cat sat mat", "cat mat"), token_f1("", "x")
    (0.6667, 0.8, 0.0)
    """
    return token_overlap(prediction, gold).f1


def squad_f1(prediction: str, golds: Iterable[str], *, both_empty: float = 1.0) -> float:
    """Return the best token F1 over gold aliases; two empty normal forms give `both_empty` (1 in SQuAD 2)."""
    empty = not normalize_answer(prediction)
    return max(
        (both_empty if empty and not normalize_answer(gold) else token_f1(prediction, gold) for gold in golds),
        default=0.0,
    )


def hotpot_answer(prediction: str, gold: str) -> Overlap:
    """Return the answer measure of HotpotQA: token overlap, but a yes/no/noanswer on either side must match whole."""
    sides = normalize_answer(prediction), normalize_answer(gold)
    if sides[0] != sides[1] and not _CLOSED.isdisjoint(sides):
        return Overlap(0.0, 0.0, 0.0, 0.0)
    return token_overlap(prediction, gold)


def hotpot_answer_f1(prediction: str, gold: str) -> float:
    """Return the answer F1 of HotpotQA.

    Examples
    --------
    >>> hotpot_answer_f1("yes it is", "yes"), hotpot_answer_f1("Yes.", "yes")
    (0.0, 1.0)
    """
    return hotpot_answer(prediction, gold).f1


def set_overlap(predicted: Iterable[Hashable], gold: Iterable[Hashable], *, empty_empty: float = 0.0) -> Overlap:
    """Return precision, recall and F1 over sets of ids; repeated ids count once.

    Parameters
    ----------
    predicted, gold
        Ids, for example (title, sentence index). An id that exists nowhere is a false positive like any other.
    empty_empty
        F1 when both sets are empty; 0 as in the HotpotQA script (whose exact match is 1 there).
    """
    listed, wanted = set(predicted), set(gold)
    exact = float(listed == wanted)
    if not listed and not wanted:
        return Overlap(empty_empty, empty_empty, empty_empty, exact)
    shared = len(listed & wanted)
    return _overlap(shared / len(listed) if listed else 0.0, shared / len(wanted) if wanted else 0.0, exact)


def set_f1(predicted: Iterable[Hashable], gold: Iterable[Hashable], *, empty_empty: float = 0.0) -> float:
    """Return the F1 of `set_overlap`.

    Examples
    --------
    >>> set_f1([("A", 0), ("B", 1), ("C", 0)], [("A", 0), ("B", 2)])
    0.4
    """
    return set_overlap(predicted, gold, empty_empty=empty_empty).f1


def joint_overlap(answer: Overlap, support: Overlap) -> Overlap:
    """Return HotpotQA's joint measure: precisions, recalls and exact matches multiplied, F1 from the products."""
    return _overlap(answer.precision * support.precision, answer.recall * support.recall, answer.exact * support.exact)


def parse_label(text: object, labels: Collection[str] = LABELS) -> str | None:
    """Return the label that a text names, or None.

    Case, underscores, hyphens and punctuation around the word do not matter, and synonyms in use are known. Everything else is
    None: an answer that names no label is wrong, never silently NOT_ENOUGH_INFO.

    Examples
    --------
    >>> parse_label("Refutes."), parse_label("not enough information"), parse_label("maybe")
    ('CONTRADICT', 'NOT_ENOUGH_INFO', None)
    """
    if not isinstance(text, str):
        return None
    words = re.sub(r"[\s_-]+", " ", text.strip().strip(string.punctuation + " ").upper()).strip()
    label = _LABEL_OF.get(words)
    return label if label in labels else None


def _overlap(precision: float, recall: float, exact: float) -> Overlap:
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return Overlap(precision, recall, f1, exact)
