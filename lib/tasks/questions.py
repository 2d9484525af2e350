"""Questions that a team of agents answers, their gold apart from them, and how an answer is graded.

Context
-------
Six benchmarks with one question and one short answer each: MMLU, MMLU-Pro and AQuA (a letter), GSM8K and SVAMP (a number), HumanEval (a
function); and arithmetic stories of our own, which need no download. Unlike a `lib.tasks.task.Task`, a `Question` brings no sources: agents
know the answer, work it out, or hear it from each other.

Intuition
---------
A `Question` is everything that an agent, a graph or a scheduler may see; an `Answer` is what only the grading may see. `grade` reads an
answer out of a reply by a named extractor and compares. Nothing is hidden: each `Graded` holds raw text, extracted answer, gold and reason.

How to read the result
----------------------
``correct`` is True, False, or None where there is nothing to judge: no reply (the agent failed), or code that nobody may run. A reply
without a readable answer is wrong, with ``extracted`` None. Accuracy is right answers by *all* questions asked; say beside it how many were
graded and how many could be read.

Not covered: accuracy tables and intervals (`lib.evaluation`), running code (`lib.tasks.sandbox`), fetching (`lib.sources`).
"""

from __future__ import annotations

import importlib
import json
import string
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from lib.seeds import digest
from lib.tasks.choices import official_aqua_letter, official_letter, robust_letter
from lib.tasks.loaders import check_limit, suggestion
from lib.tasks.numbers import official_number, read_number, robust_number, same_number
from lib.tasks.sandbox import Verdict
from lib.tasks.subsets import PAPER_SEED, stratified_order
from lib.tasks.task import WorkloadError

Domain = Literal["choice", "math", "code"]
Extractor = Literal["robust", "official"]
Subset = Literal["moc", "all"]


class Question(msgspec.Struct, frozen=True):
    """One question. No gold in here.

    Parameters
    ----------
    id
        Unique within a set, and over all families.
    family
        Name of the benchmark, as in `load_questions`.
    domain
        "choice", "math" or "code": which roles a team takes. AQuA is "math" with options.
    text
        The statement; for code the prompt (signature and docstring).
    options
        Texts of the options without their letters; empty where the answer is no letter.
    subject
        Subject or category that samples are stratified by; empty where there is none.
    entry_point
        Function that a code question asks for.
    version
        Version of the loader's rules.
    """

    id: str
    family: str
    domain: Domain
    text: str
    options: tuple[str, ...] = ()
    subject: str = ""
    entry_point: str = ""
    version: str = ""


class Answer(msgspec.Struct, frozen=True):
    """The gold of one question, for metrics alone.

    Parameters
    ----------
    question_id
        Id of the question.
    answer
        A letter, a number as text, or the canonical solution.
    tests
        Tests of a code question.
    canonical
        Its canonical solution: the body that completes the prompt.
    """

    question_id: str
    answer: str
    tests: str = ""
    canonical: str = ""


class QuestionSet(msgspec.Struct, frozen=True):
    """A named, versioned set of questions with its gold beside it."""

    name: str
    version: str
    questions: tuple[Question, ...]
    answers: dict[str, Answer]


class Graded(msgspec.Struct, frozen=True):
    """One graded reply.

    Parameters
    ----------
    question_id
        Id of the question.
    raw
        The reply as it came; None where there is none.
    extracted
        What was taken for the answer: a letter, a number in canonical text, or code; None where nothing was found.
    gold
        The gold answer.
    reason
        How the answer was found and why it counts or not.
    correct
        None where there is nothing to judge.
    """

    question_id: str
    raw: str | None
    extracted: str | None
    gold: str
    reason: str
    correct: bool | None


RunCode = Callable[[Sequence[tuple[Question, Answer, str]]], Sequence[Verdict]]
"""Runs the tests of (question, answer, reply) triples: `lib.tasks.code_answer.check_answers` with its consent given by `partial`."""


# ------------------------------------------------------------------------------------------------------------------------------ loading


class _Family(NamedTuple):
    module: str
    has_subset: bool


# Loaders are imported when asked for, since they import this module.
_FAMILIES = {
    "mmlu": _Family("lib.tasks.mmlu", True),
    "mmlu_pro": _Family("lib.tasks.mmlu_pro", True),
    "gsm8k": _Family("lib.tasks.gsm8k", True),
    "svamp": _Family("lib.tasks.svamp", True),
    "aqua": _Family("lib.tasks.aqua", False),
    "humaneval": _Family("lib.tasks.humaneval", False),
    "arithmetic": _Family("lib.tasks.arithmetic", False),
}

QUESTION_SETS = tuple(_FAMILIES)
"""Names that `load_questions` knows."""


def load_questions(
    name: str, limit: int | None = None, seed: int = PAPER_SEED, *, subset: Subset = "moc", path: str | None = None
) -> QuestionSet:
    """Load a question set.

    Parameters
    ----------
    name
        One of `QUESTION_SETS`.
    limit
        At most this many questions, drawn by hash and stratified by subject; a smaller draw is the beginning of a larger one. None takes
        all of the subset, in the paper's order.
    seed
        Of that draw; without a limit it changes nothing.
    subset
        "moc": the questions that the MOC paper scores on (MMLU 57 x 5, MMLU-Pro 14 x 20, GSM8K 300, SVAMP 300, AQuA 254, HumanEval 164).
        "all": everything that the data file holds.
    path
        Data file or folder; None asks `lib.sources`.

    Returns
    -------
    QuestionSet
        Its version is that of the loader and a digest of the content.

    Raises
    ------
    WorkloadError
        Unknown name or subset, a limit below 1, or data that cannot be used; the message says what would work.
    SourceError
        The data set is not there; the message names the file and the fix.
    """
    if name not in _FAMILIES:
        hint = suggestion(name, QUESTION_SETS)
        raise WorkloadError(f"question set {name!r} is unknown{hint}; known: {', '.join(QUESTION_SETS)}")
    check_limit("question set", name, limit)
    if subset not in get_args(Subset):
        raise WorkloadError(f"question set {name}: subset must be 'moc' or 'all', got {subset!r}")
    family = _FAMILIES[name]
    load: Callable[..., list[tuple[Question, Answer]]] = importlib.import_module(family.module).load
    pairs = load(subset=subset, path=path) if family.has_subset else load(path=path)
    if limit is not None:
        order = stratified_order([q.id for q, _ in pairs], [q.subject for q, _ in pairs], name, seed)
        pairs = [pairs[place] for place in order[:limit]]
    return build_questions(name, pairs)


def build_questions(name: str, pairs: Iterable[tuple[Question, Answer]]) -> QuestionSet:
    """Return a question set whose version carries a digest of its content.

    Raises
    ------
    WorkloadError
        No question; an id that repeats; gold that belongs to another question, is none of the options, or is no number where one is asked.
    """
    questions: list[Question] = []
    answers: dict[str, Answer] = {}
    for question, answer in pairs:
        if question.id in answers:
            raise WorkloadError(f"question set {name}: id {question.id!r} appears twice; ids must be unique")
        if answer.question_id != question.id:
            raise WorkloadError(f"question set {name}: gold of {answer.question_id!r} was given for {question.id!r}")
        if question.options and answer.answer not in letters_of(question):
            raise WorkloadError(
                f"question set {name}: {question.id}: gold {answer.answer!r} is none of {', '.join(letters_of(question))}"
            )
        if not question.options and question.domain == "math" and read_number(answer.answer) is None:
            raise WorkloadError(f"question set {name}: {question.id}: gold {answer.answer!r} is no number")
        questions.append(question)
        answers[question.id] = answer
    if not questions:
        raise WorkloadError(f"question set {name}: no question; is this the right file?")
    content = digest(json.loads(msgspec.json.encode([questions, list(answers.values())])))
    return QuestionSet(name, f"{questions[0].version}+{content[:12]}", tuple(questions), answers)


def letters_of(question: Question) -> tuple[str, ...]:
    """Return the letters of a question's options, "A" first."""
    return tuple(string.ascii_uppercase[: len(question.options)])


def question_text(question: Question) -> str:
    """Return what an agent is shown: the statement, and each option on a line of its own behind its letter."""
    options = [f"{letter}) {text}" for letter, text in zip(letters_of(question), question.options, strict=True)]
    return "\n".join([question.text, *options])


# ------------------------------------------------------------------------------------------------------------------------------ grading


def extract_answer(question: Question, raw: str, extractor: Extractor = "robust") -> str | None:
    """Return the answer that a reply gives in canonical form, or None where none can be read.

    Parameters
    ----------
    question
        Its domain and options say what is looked for: a letter, a number or code.
    raw
        The reply.
    extractor
        "robust", or "official" for the rule of the authors' scorer (the same for code; see `lib.tasks.choices`, `lib.tasks.numbers`).
    """
    if extractor not in get_args(Extractor):
        raise WorkloadError(f"extract_answer: extractor must be 'robust' or 'official', got {extractor!r}")
    return _extract(question, raw, extractor)[0]


def grade(
    question: Question,
    answer: Answer,
    raw: str | None,
    extractor: Extractor = "robust",
    run_code: RunCode | None = None,
) -> Graded:
    """Grade one reply; see `grade_all`, which runs the code of many replies side by side."""
    return grade_all([(question, answer, raw)], extractor, run_code)[0]


def grade_all(
    items: Sequence[tuple[Question, Answer, str | None]],
    extractor: Extractor = "robust",
    run_code: RunCode | None = None,
) -> list[Graded]:
    """Grade replies; one result each, in order.

    Parameters
    ----------
    items
        (question, gold, reply) triples; the reply is None where an agent failed.
    extractor
        As in `extract_answer`.
    run_code
        Runs the tests of all code questions in one call. None leaves code ungraded, and says so.

    Raises
    ------
    WorkloadError
        Unknown extractor, or gold of another question.

    Notes
    -----
    Source: scorers specification, sections 5 to 7. "robust" compares numbers with a tolerance of 1e-6, "official" compares their text.
    """
    if extractor not in get_args(Extractor):
        raise WorkloadError(f"grade: extractor must be 'robust' or 'official', got {extractor!r}")
    for question, answer, _ in items:
        if answer.question_id != question.id:
            raise WorkloadError(f"grade: gold of {answer.question_id!r} was given for question {question.id!r}")
    code = {
        place: (question, answer, raw)
        for place, (question, answer, raw) in enumerate(items)
        if question.domain == "code" and raw is not None
    }
    run = run_code(list(code.values())) if run_code and code else ()
    verdicts = dict(zip(code, run, strict=True)) if run_code else {}
    return [_grade(*item, extractor, verdicts.get(place)) for place, item in enumerate(items)]


def _grade(
    question: Question, answer: Answer, raw: str | None, extractor: Extractor, verdict: Verdict | None
) -> Graded:
    correct: bool | None
    if raw is None:
        return Graded(question.id, None, None, answer.answer, "not graded: there is no reply", None)
    extracted, how = _extract(question, raw, extractor)
    if question.domain == "code":
        correct, reason = _judge_code(verdict)
    elif extracted is None:
        correct, reason = False, f"unparsed: {how}"
    else:
        correct = _same(question, extracted, answer.answer, extractor)
        reason = f"{how}: {extracted}, {'right' if correct else f'but gold is {answer.answer}'}"
    return Graded(question.id, raw, extracted, answer.answer, reason, correct)


def _extract(question: Question, raw: str, extractor: Extractor) -> tuple[str | None, str]:
    if question.domain == "code":
        from lib.tasks.code_answer import extract_code  # it imports this module

        code = extract_code(raw, question.entry_point)
        return (code, "code of the reply") if code else (None, "no code found")
    if question.options:
        if extractor == "robust":
            return robust_letter(raw, question.options)
        if question.family == "aqua":
            return official_aqua_letter(raw)
        return official_letter(raw, 10 if question.family == "mmlu_pro" else len(question.options))
    return robust_number(raw) if extractor == "robust" else official_number(raw)


def _same(question: Question, extracted: str, gold: str, extractor: Extractor) -> bool:
    if question.options:
        return extracted == gold
    return same_number(extracted, gold) if extractor == "robust" else extracted == official_number(gold)[0]


def _judge_code(verdict: Verdict | None) -> tuple[bool | None, str]:
    if verdict is None:
        return None, "not graded: code is judged by running its tests; pass run_code"
    return verdict.passed, f"{verdict.verdict}: {verdict.detail}" if verdict.detail else verdict.verdict
