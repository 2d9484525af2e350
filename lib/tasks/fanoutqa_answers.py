"""FanOutQA's answer measures: share of gold strings found in the reply (loose), all of them (strict), and ROUGE.

Normal form, as upstream: lower case, mojibake mended, commas inside numbers removed, words lemmatised, punctuation deleted, white
space collapsed. Upstream lemmatises with spaCy's small English model; where that is not installed the Porter stemmer is applied to
both sides, and every result names the lemmatiser, since the two can differ on single words.

Known quirks kept for parity: a gold number with a minus sign is never found (no word boundary before "-"), and the decimal point is
deleted, so that "3.5" equals "35".

Not covered: BLEURT and judgement by a language model.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import ftfy
import msgspec
import snowballstemmer
from rouge_score.rouge_scorer import RougeScorer

Lemmatizer = Literal["auto", "spacy", "porter", "identity"]
_SPACY_MODEL = "en_core_web_sm"
_TOKEN = re.compile(r"\w+(?:\.\w+)*|[^\w\s]")


class FanoutAccuracy(msgspec.Struct, frozen=True):
    """Share of gold strings found, whether all were, which were not (normal forms), and with which lemmatiser."""

    loose: float
    strict: float
    missing: tuple[str, ...]
    lemmatizer: str


def flatten_answer(answer: Any) -> str:
    """Return an answer as text: lists and dicts one item a line ("key - value"), booleans as yes or no, None as "".

    Examples
    --------
    >>> flatten_answer({"A": 1, "B": True}), flatten_answer(["x", None])
    ('A - 1\\nB - yes', 'x\\n')
    """
    if answer is None:
        return ""
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if isinstance(answer, dict):
        return "\n".join(f"{flatten_answer(key)} - {flatten_answer(value)}" for key, value in answer.items())
    if isinstance(answer, list | tuple):
        return "\n".join(flatten_answer(item) for item in answer)
    return str(answer)


def fanout_accuracy(gold: Any, reply: Any, lemmatizer: Lemmatizer = "auto") -> FanoutAccuracy:
    """Return the loose and strict accuracy of a reply.

    Parameters
    ----------
    gold
        Text, number, bool, list or dict; of a dict both keys and values are looked for.
    reply
        Text, or an answer that `flatten_answer` turns into text.
    lemmatizer
        "auto" takes spaCy with its small English model if installed, else the Porter stemmer.

    Returns
    -------
    FanoutAccuracy
        Loose and strict are in [0, 1]; an empty list or dict gives 0.

    Notes
    -----
    Source: FanOutQA, ``eval/string.py``; scorers specification, section 4. Nested answers count by their leaves.

    Examples
    --------
    >>> fanout_accuracy({"A": 1, "B": 2}, "a is 1, b unknown").loose
    0.75
    """
    name, lemmatize = _lemmatizer(lemmatizer)
    text = _normalize(flatten_answer(reply), lemmatize)
    leaves = [_normalize(leaf, lemmatize) for leaf in _leaves(gold)]
    missing = tuple(leaf for leaf in leaves if not re.search(rf"\b{re.escape(leaf)}\b", text))
    loose = (len(leaves) - len(missing)) / len(leaves) if leaves else 0.0
    return FanoutAccuracy(loose=loose, strict=float(loose == 1.0), missing=missing, lemmatizer=name)


def normalize_fanout(text: Any, lemmatizer: Lemmatizer = "auto") -> str:
    """Return the normal form in which gold strings are looked for."""
    return _normalize(str(text), _lemmatizer(lemmatizer)[1])


def rouge(gold: Any, reply: Any) -> dict[str, float]:
    """Return the F-measures of ROUGE-1, ROUGE-2 and ROUGE-L with stemming, on flattened answers."""
    scores = _rouge_scorer().score(target=flatten_answer(gold), prediction=flatten_answer(reply))
    return {name: float(score.fmeasure) for name, score in scores.items()}


def _leaves(gold: Any) -> list[str]:
    if isinstance(gold, dict):
        return [leaf for pair in gold.items() for part in pair for leaf in _leaves(part)]
    if isinstance(gold, list | tuple):
        return [leaf for item in gold for leaf in _leaves(item)]
    return [flatten_answer(gold)]


def _normalize(text: str, lemmatize: Callable[[str], str]) -> str:
    text = ftfy.fix_text(text.lower())
    text = re.sub(r"(\d+,)+\d+", lambda m: m.group().replace(",", ""), text)
    text = re.sub(r"[,.?!:;]", "", lemmatize(text))
    return " ".join(text.split())


def _lemmatizer(choice: Lemmatizer) -> tuple[str, Callable[[str], str]]:
    if choice == "auto":
        choice = "spacy" if all(importlib.util.find_spec(name) for name in ("spacy", _SPACY_MODEL)) else "porter"
    if choice == "spacy":
        return f"spacy:{_SPACY_MODEL}", _spacy_lemmas()
    if choice == "porter":
        return "porter", _porter_stems
    return "identity", lambda text: text


@cache
def _spacy_lemmas() -> Callable[[str], str]:
    import spacy  # optional: only where the user installed it

    pipeline = spacy.load(_SPACY_MODEL)
    return lambda text: " ".join(token.lemma_ for token in pipeline(text))


@cache
def _porter() -> Any:
    return snowballstemmer.stemmer("porter")


def _porter_stems(text: str) -> str:
    # Porter's rules are meant for words of three letters and more; the library would stem "s" to nothing.
    return " ".join(word if len(word) < 3 else _porter().stemWord(word) for word in _TOKEN.findall(text))


@cache
def _rouge_scorer() -> RougeScorer:
    return RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
