"""Rules that choose the next step of a task, and rules that write messages for such a choice.

Context
-------
The smoke profile and tests run receiver-relative coordination without a model: arms, budgets, formats, probes, instructed
senders and protocol actions. What is asked is recognised by the prompt (`lib.models.scripted_views`).

Intuition
---------
A `Reader` is a bounded agent. Alone it follows its own view, which may be out of date. A message helps it if it names a
candidate within the words that it reads; a message that is cut may leave a name that is not the target, and misleads.
Readers differ in how far they read, how often they slip, and whether they heed others at all. Slips are drawn by hash from
reader and prompt, so the same prompt always gets the same reply, and the same step may be missed in one arm only.

How to read the result
----------------------
From weak to strong: ``scripted-hasty`` reads a dozen words of a message or context, ``scripted-stubborn`` reads none of it,
``scripted`` reads all and slips now and then, ``scripted-careful`` rarely does. As senders the same rules write what they would
do themselves. `how_sure` is the probability that a rule gives its own reply; it falls with the age of what was seen.

Not covered: language and knowledge. Accuracies and gains of these rules say nothing about models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from lib.models.receiver import Prompt
from lib.models.scripted_views import (
    Asked,
    first_words,
    fitting_action,
    most_alike,
    named_in,
    parts,
    read_board,
    take_apart,
)
from lib.seeds import seed_of

_ACTION = re.compile(r"(?:action_type\W{1,5}|next action is )(\w+)")
_TARGET = re.compile(r"(?:target_artifact\W{1,5}|[Ii]ts target is )([^\"\n]+)")
_PLACE = re.compile(r"number (\d+) of the work order")
_LENGTHS = {"rationale": 200, "context": 200, "constraints": 120}


class Reader(NamedTuple):
    """How a rule reads: `words` of a message or context (None for all), `slips` and `silences` in percent of prompts."""

    name: str
    words: int | None = None
    slips: int = 10
    silences: int = 0


STEADY = Reader("steady")
CAREFUL = Reader("careful", slips=2)
HASTY = Reader("hasty", words=12, slips=20, silences=30)
STUBBORN = Reader("stubborn", words=0)


class Choice(NamedTuple):
    """What a rule would do, how sure it is, and why, in words without the name of the file."""

    artifact: str
    action: str
    sure: float
    why: str
    known: str = ""


def step_script(prompt: Prompt, reader: Reader = STEADY) -> str | None:
    """Return the reply of a reader to a prompt of coordination, or None for any other prompt."""
    asked = take_apart(prompt)
    if asked is None:
        return None
    draw = seed_of("scripted step", reader.name, [turn.text for turn in prompt.turns])
    choice = _slipped(asked, _choose(asked, reader), reader, draw)
    if asked.writes:
        silent = draw // 1000 % 100 < reader.silences
        return "" if silent else _message(asked, choice)
    if prompt.schema is None and reader.words and draw // 1000 % 3 == 0:
        return f"I would {choice.action} {choice.artifact}."  # a hasty reader forgets the form where nothing holds it
    return json.dumps({"action_type": choice.action, "target_artifact": choice.artifact}, ensure_ascii=False)


def how_sure(prompt: Prompt, reader: Reader = STEADY) -> float | None:
    """Return the probability that a reader gives its own reply, or None where the prompt is none of coordination."""
    asked = take_apart(prompt)
    return None if asked is None else _choose(asked, reader).sure


def script_of(reader: Reader, otherwise: Callable[[Prompt], str]) -> Callable[[Prompt], str]:
    """Return a script that answers steps as `reader` and all other prompts as `otherwise`."""

    def script(prompt: Prompt) -> str:
        said = step_script(prompt, reader)
        return otherwise(prompt) if said is None else said

    return script


def _choose(asked: Asked, reader: Reader) -> Choice:
    read = first_words(asked.text, reader.words)
    if asked.shown == "message":
        return _followed(asked, read, _alone(asked, ""))
    return _alone(asked, read if asked.shown == "context" else "")


def _alone(asked: Asked, context: str) -> Choice:
    """Return the choice by the view and what was read of a context."""
    board = read_board(asked.view, context)
    pair = board.next_pair() if board else None
    if board and pair:
        place = board.order.index(pair[0])
        why = f"it is number {place + 1} of the work order and its state is {board.states[pair[0]]}"
        before = ", ".join(f"{path} is {board.states.get(path, 'unknown')}" for path in board.order[:place])
        return Choice(*pair, max(0.3, 0.9 - 0.2 * board.age), why, before or "nothing stands before it")
    text = f"{asked.view}\n{context}"
    named = named_in(text, asked.artifacts)
    artifact, shared = (named, 3) if named else most_alike(text, asked.artifacts)
    common = sorted(parts(artifact) & parts(text))
    why = f"the words {', '.join(common)} ask for it" if common else "nothing else fits better"
    about = " ".join(context.split()[:12])
    return Choice(artifact, fitting_action(artifact, asked.actions), min(0.8, 0.3 + 0.15 * shared), why, about)


def _followed(asked: Asked, read: str, alone: Choice) -> Choice:
    """Return the choice by a message as far as it was read; what it leaves open comes from `alone`."""
    said = next((word for word in _ACTION.findall(read) if word in asked.actions), None)
    targets = [
        sorted((name for name in asked.artifacts if text.startswith(name)), key=len) for text in _TARGET.findall(read)
    ]
    target = next((names[-1] for names in targets if names), None)
    described = _PLACE.search(read)
    board = read_board(asked.view, "")
    if target:
        return alone._replace(artifact=target, action=said or alone.action, sure=0.9 if said else 0.7)
    if described and board and 0 < int(described[1]) <= len(board.order):
        return alone._replace(artifact=board.order[int(described[1]) - 1], action=said or alone.action, sure=0.65)
    named = named_in(read, asked.artifacts)  # of a message that was cut, perhaps not the target
    if named:
        return alone._replace(artifact=named, action=said or alone.action, sure=0.55)
    return alone._replace(action=said or alone.action, sure=min(alone.sure, 0.5)) if said else alone


def _slipped(asked: Asked, choice: Choice, reader: Reader, draw: int) -> Choice:
    """Return the choice, or in `slips` percent of all draws one with the next artifact or the next action of the lists."""
    if draw % 100 >= reader.slips:
        return choice
    if draw // 100 % 2:
        names = asked.artifacts
        return choice._replace(artifact=names[(names.index(choice.artifact) + 1) % len(names)])
    actions = asked.actions
    place = actions.index(choice.action) if choice.action in actions else 0
    return choice._replace(action=actions[(place + 1) % len(actions)])


def _message(asked: Asked, choice: Choice) -> str:
    """Return a message in the form that the request names."""
    fields = {"action_type": choice.action, "target_artifact": choice.artifact, "rationale": choice.why}
    if not asked.short:
        fields |= {"context": choice.known, "constraints": "leave the other artifacts alone"}
    fields = {name: text[: _LENGTHS.get(name)] for name, text in fields.items()}
    whole = json.dumps(fields, ensure_ascii=False)
    bullets = "\n".join(f"- {name}: {text}" for name, text in fields.items())
    if "DECISION" in asked.request:
        return f"DECISION action_type={choice.action} target_artifact={choice.artifact}\n{whole}"
    if "plain sentences" in asked.request:
        return f"The next action is {choice.action}. Its target is {choice.artifact}. The reason: {choice.why}."
    if "bullet points" in asked.request:
        return f"{bullets}\n{whole}" if "JSON" in asked.request else bullets
    return whole
