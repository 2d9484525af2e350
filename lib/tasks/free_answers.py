"""Judge a free answer in one of three ways: against a gold answer, by a rule, or by whether it is still the same
answer.

Context
-------
Whoever brings a log of his own rarely has gold answers. Three utilities serve him, each a function (task id, raw
reply) -> `FreeScore`: `gold_utility` compares with a gold answer, `rule_utility` looks for words or a pattern, and
`answer_change` needs neither: it compares with the reply to the unchanged log.

Intuition
---------
If the answer stays the same without a packet, nobody needed the packet; that holds whether or not the answer is
right. So with `answer_change` a utility of 1 means "the answer of the whole log" and an effect is how much a packet
holds that answer up. It says nothing about truth: a packet that keeps a wrong answer in place counts as one that
matters.

How to read the result
----------------------
`extracted` is the answer that was read, None where there is none; that scores 0 and stays in every mean. Sameness is
equality after normalisation: Unicode compatibility form, case, articles, punctuation around words, and numbers by
value ("29.00" is "29"). With an embedder two answers are the same, too, when the cosine of their embeddings reaches a
threshold; `reason` says by which of the two.

Not covered: entailment. Two answers that differ by a "not" may be close in an embedding; look at the replies beside
the effects.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from lib.tasks.answers import token_f1
from lib.tasks.numbers import same_number
from lib.tasks.reply import read_reply
from lib.tasks.task import WorkloadError

Rule = Literal["contains", "regex"]
Encode = Callable[[Sequence[str]], np.ndarray]  # texts -> unit vectors, (n_texts, dimension)
_ARTICLES = frozenset({"a", "an", "the"})
_AROUND = ".,;:!?\"'`´“”‘’„«»()[]{}*_$€£¥"
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"))


class FreeScore(msgspec.Struct, frozen=True):
    """One judged reply.

    Parameters
    ----------
    task_id, raw : the task and the reply as it came
    extracted : the answer in it; None where there is none
    wanted : the gold answer, the rule, or the answer of the unchanged log
    utility, task_utility : in [0, 1], the same number
    evidence_utility : always None; a log's reply cites nothing
    reason : why, in words
    """

    task_id: str
    raw: str
    extracted: str | None
    wanted: str
    utility: float
    task_utility: float
    reason: str
    evidence_utility: float | None = None


FreeUtility = Callable[[str, str], FreeScore]


def read_answer(raw: str) -> str | None:
    """Return the answer of a reply: the field ``answer`` of its JSON, else the text itself; None where nothing is said.

    >>> read_answer('{"answer": "tax-lookup 7.3"}'), read_answer(" Thursday. "), read_answer("")
    ('tax-lookup 7.3', 'Thursday.', None)
    """
    if not raw.lstrip().startswith("{"):
        return raw.strip() or None
    parsed = read_reply(raw).parsed
    answer = None if parsed is None else parsed.get("answer")
    if answer is None or isinstance(answer, dict | list):
        return None
    return str(answer).strip() or None


def answer_form(text: str) -> str:
    """Return the form in which answers are compared. Punctuation inside a word stays: 7.3 is not 73.

    >>> answer_form("The  tax-lookup 7.3!") == answer_form("“Tax–lookup” 7.3")
    True
    """
    plain = unicodedata.normalize("NFKC", text).translate(_DASHES).casefold()
    words = [word.strip(_AROUND) for word in plain.split()]
    kept = [word for word in words if word and word not in _ARTICLES]
    return " ".join(kept) or " ".join(plain.split())


def same_answer(first: str, second: str) -> bool:
    """Tell whether two answers are the same after normalisation.

    >>> same_answer("$29.00", "29"), same_answer("-3", "3"), same_answer("the Benno", "Benno.")
    (True, False, True)
    """
    one, other = answer_form(first), answer_form(second)
    return one == other or same_number(one, other)


def gold_utility(gold: str) -> FreeUtility:
    """Return the utility against a gold answer: 1 for the same answer, else the token F1; for two numbers 1 or 0.

    Raises
    ------
    WorkloadError
        When the gold answer is empty.
    """
    if not gold.strip():
        raise WorkloadError("gold is empty: give the right answer, or use another utility (rule, answer_change)")

    def judge(task_id: str, raw: str) -> FreeScore:
        answer = read_answer(raw)
        if answer is None:
            return _score(task_id, raw, None, gold, 0.0, "no answer")
        if same_answer(answer, gold):
            return _score(task_id, raw, answer, gold, 1.0, "the gold answer")
        numbers = same_number(answer_form(gold), answer_form(gold)) and same_number(*[answer_form(answer)] * 2)
        f1 = 0.0 if numbers else token_f1(answer, gold)
        return _score(task_id, raw, answer, gold, f1, f"token F1 {f1:.2f} with the gold answer")

    return judge


def rule_utility(rule: str, kind: Rule = "contains") -> FreeUtility:
    """Return the utility by a rule: 1 where the answer contains the words, or where the pattern is found; else 0.

    Parameters
    ----------
    rule : words (compared in normal form, at word boundaries, never as a part of a longer number), or a regular expression
    kind : ``contains`` or ``regex`` (searched in the answer as written, case matters unless the pattern says ``(?i)``)

    Raises
    ------
    WorkloadError
        When the rule is empty or is no regular expression; the message says where.
    """
    if kind not in ("contains", "regex"):
        raise WorkloadError(f"rule_kind {kind!r} is unknown: use contains or regex")
    if not rule.strip():
        raise WorkloadError("rule is empty: give words that a good answer contains, or a regular expression")
    try:
        pattern = re.compile(rule if kind == "regex" else _at_boundaries(answer_form(rule)))
    except re.error as error:
        raise WorkloadError(f"rule {rule!r} is no regular expression: {error}") from None

    def judge(task_id: str, raw: str) -> FreeScore:
        answer = read_answer(raw)
        if answer is None:
            return _score(task_id, raw, None, rule, 0.0, "no answer")
        found = pattern.search(answer if kind == "regex" else answer_form(answer)) is not None
        said = {"contains": ("contains the words", "lacks the words"), "regex": ("matches", "does not match")}[kind]
        return _score(task_id, raw, answer, rule, float(found), said[0] if found else said[1])

    return judge


def answer_change(reference: str, *, encode: Encode | None = None, same_above: float = 0.9) -> FreeUtility:
    """Return the utility 1 for the answer of the unchanged log, 0 for another one.

    Parameters
    ----------
    reference : the receiver's raw reply to the unchanged log
    encode : embeds answers, for a second chance by meaning; None compares normal forms alone
    same_above : cosine from which two answers mean the same, in [-1, 1]

    Raises
    ------
    WorkloadError
        When the reference holds no answer, so that there is nothing to compare with.
    """
    wanted = read_answer(reference)
    if wanted is None:
        raise WorkloadError(
            f"the receiver gave no answer to the unchanged log ({reference[:60]!r}); ask a simpler question, or judge by gold or rule"
        )
    if not -1 <= same_above <= 1:
        raise WorkloadError(f"same_above must be a cosine in [-1, 1], not {same_above!r}")
    known: dict[str, float] = {}  # answer -> cosine; replays repeat a few answers many times

    def judge(task_id: str, raw: str) -> FreeScore:
        answer = read_answer(raw)
        if answer is None:
            return _score(task_id, raw, None, wanted, 0.0, "no answer")
        if same_answer(answer, wanted):
            return _score(task_id, raw, answer, wanted, 1.0, "the same answer")
        if encode is None:
            return _score(task_id, raw, answer, wanted, 0.0, "another answer")
        if answer not in known:
            vectors = np.asarray(encode([answer, wanted]), dtype=float)
            known[answer] = float(vectors[0] @ vectors[1])
        near = known[answer] >= same_above
        reason = f"{'the same meaning' if near else 'another answer'}, cosine {known[answer]:.2f}"
        return _score(task_id, raw, answer, wanted, float(near), reason)

    return judge


def _score(task_id: str, raw: str, answer: str | None, wanted: str, utility: float, reason: str) -> FreeScore:
    fields: dict[str, Any] = {"utility": utility, "task_utility": utility, "reason": reason}
    return FreeScore(task_id=task_id, raw=raw, extracted=answer, wanted=wanted, **fields)


def _at_boundaries(words: str) -> str:
    return rf"(?<!\w)(?<!\d[.,]){re.escape(words)}(?!\w)(?![.,]\d)"
