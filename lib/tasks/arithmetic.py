"""Arithmetic stories of our own: word problems with exact answers, made by rule, there without a download.

Context
-------
Benchmarks of word problems have been read by every model. These stories are made from names, things and numbers that a
seed draws; each has one to six operations, and its answer is what the operations come to. They serve the smoke
profile, tests and teaching: a wrong answer can be traced to the step that went wrong.

Intuition
---------
Each sentence of a story is one operation on one running count: bought, given away, doubled, shared out, sold. An agent
that overlooks a sentence gets a wrong whole number, which looks as good as the right one; only another agent's
calculation tells.

How to read the result
----------------------
`subject` is the number of operations ("3 steps"), by which draws are stratified. The pool is fixed: `SIZE` questions that
depend on `VERSION` alone; `load_questions("arithmetic", limit, seed)` draws from it.

Not covered: language. The sentences are plain and few, so a model that reads well gets most of them right; nothing here
stands for GSM8K or SVAMP.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lib.seeds import generator
from lib.tasks.questions import Answer, Question
from lib.tasks.task import WorkloadError

VERSION = "arithmetic-1"
SIZE = 240
_NAMES = ("Ada", "Bruno", "Chidi", "Dalia", "Emre", "Farah", "Goran", "Hana", "Ines", "Jonas", "Kavya", "Lwazi")
_THINGS = ("shells", "stamps", "pears", "marbles", "tickets", "buttons", "candles", "postcards", "walnuts", "badges")
_BOXES = ("boxes", "bags", "trays", "drawers", "baskets")
_LARGEST = 2000  # of any count on the way


def load(*, path: str | None = None) -> list[tuple[Question, Answer]]:
    """Make all questions of the pool.

    Raises
    ------
    WorkloadError
        If a path is given: there is no file to read.

    Examples
    --------
    >>> question, answer = load()[0]
    >>> question.subject, answer.answer.isdigit()
    ('4 steps', True)
    """
    if path is not None:
        raise WorkloadError(f"question set arithmetic: it is made by rule and reads no file; leave path {path!r} out")
    return [_pair(index) for index in range(SIZE)]


def _pair(index: int) -> tuple[Question, Answer]:
    draw = generator(VERSION, index)
    name, thing, box = (str(draw.choice(words)) for words in (_NAMES, _THINGS, _BOXES))
    sentences, value, steps = _opening(draw, name, thing, box)
    for _ in range(int(draw.integers(1, 4))):
        sentence, value = _change(draw, value, thing)
        sentences.append(sentence)
        steps += 1
    ending, value, further = _ending(draw, value, thing)
    question = Question(
        id=f"arithmetic/{index}",
        family="arithmetic",
        domain="math",
        text=" ".join([*sentences, *ending]).replace("{name}", name),
        subject=f"{steps + further} step{'s' if steps + further != 1 else ''}",
        version=VERSION,
    )
    return question, Answer(question_id=question.id, answer=str(value))


def _opening(draw: np.random.Generator, name: str, thing: str, box: str) -> tuple[list[str], int, int]:
    """Return the first sentence, the count after it, and its number of operations."""
    if draw.random() < 0.5:
        start = int(draw.integers(20, 90))
        return [f"{name} has {start} {thing}."], start, 0
    boxes, each = int(draw.integers(3, 12)), int(draw.integers(4, 15))
    return [f"{name} fills {boxes} {box} with {each} {thing} each."], boxes * each, 1


def _change(draw: np.random.Generator, value: int, thing: str) -> tuple[str, int]:
    """Return a sentence that changes the count, and the count after it."""
    some = int(draw.integers(5, 40))
    changes: list[tuple[str, int]] = [(f"{{name}} buys {some} more.", value + some)]
    if value > some + 10:
        changes.append((f"{{name}} gives {some} of them to a neighbour.", value - some))
    if 2 * value <= _LARGEST // 4:
        changes.append((f"A box from an aunt doubles the number of {thing}.", 2 * value))
    return changes[int(draw.integers(len(changes)))]


def _ending(draw: np.random.Generator, value: int, thing: str) -> tuple[list[str], int, int]:
    """Return the last sentences, the answer and their number of operations."""
    endings: list[Callable[[], tuple[list[str], int, int]]] = [
        lambda: ([f"How many {thing} does {{name}} have now?"], value, 0),
        lambda: _shared(draw, value, thing),
        lambda: _sold(draw, value, thing),
    ]
    return endings[int(draw.integers(len(endings)))]()


def _shared(draw: np.random.Generator, value: int, thing: str) -> tuple[list[str], int, int]:
    friends = int(draw.integers(2, 7))
    left, rest = divmod(value, friends)
    broken = [f"{rest} of them {'breaks and is' if rest == 1 else 'break and are'} thrown away."] if rest else []
    shared = f"{{name}} shares the {thing} equally among {friends} friends. How many does each friend get?"
    return [*broken, shared], left, len(broken) + 1


def _sold(draw: np.random.Generator, value: int, thing: str) -> tuple[list[str], int, int]:
    price = int(draw.integers(2, 6))
    return [f"{{name}} sells all {thing} for {price} coins each. How many coins is that?"], value * price, 1
