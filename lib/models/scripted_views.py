"""What a rule makes of a step: the parts of its prompt, a board of files, names and the action that fits one.

Context
-------
Receivers and senders of coordination are asked with fixed headers, material behind ``> `` and candidates behind ``- ``
(`lib.coordination.prompts`). Rules that answer (`lib.models.scripted_steps`) take such a prompt apart here.

Intuition
---------
Of shared episodes the rule of the game is known: the first file of the work order that is not settled comes next. A board
that is out of date and a log of later steps give a guess at the board of now. Elsewhere a name that is spelled out wins,
then the name that shares most words with the text.

How to read the result
----------------------
Everything is read from the prompt, so what a rule knows is what a model in its place would be shown. It knows no gold.

Not covered: language; views of families beyond the words that they share with a name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from lib.models.receiver import Prompt

_NOW = re.compile(r"^States (?:as you saw them|now,) before step (\d+):$")
_STATE = re.compile(r"^(\S+): (\w+)$")
_LOGGED = re.compile(r"^step (\d+): (\w+) (\S+)$", re.MULTILINE)
_TURN = re.compile(r"^You are: .* at step (\d+)$", re.MULTILINE)
_ORDER = re.compile(r"^Work order: (.+)$", re.MULTILINE)
_NEEDS = re.compile(r"^States and what they ask for: (.+)$", re.MULTILINE)
_AFTER = {"missing": "draft", "draft": "untested", "unset": "untested", "untested": "done", "obsolete": "gone"}
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]{2,}|\d+")
_VERBS = {
    "read": ("get", "find", "search", "list", "show", "view", "lookup"),
    "create": ("create", "add", "send", "post", "book", "make"),
    "edit": ("edit", "update", "modify", "change", "exchange", "return"),
    "delete": ("delete", "remove", "cancel"),
    "configure": ("set", "configure", "login", "toggle", "transfer"),
}
PAD = "_negative_"


class Asked(NamedTuple):
    """A prompt of coordination, taken apart.

    `writes` tells a sender from a receiver. `shown` is ``none``, ``message`` or ``context``, `text` what it says. `request` is the last
    line, `short` says that a shorter message is wanted.
    """

    writes: bool
    view: str
    actions: tuple[str, ...]
    artifacts: tuple[str, ...]
    shown: str
    text: str
    request: str
    short: bool


class Board(NamedTuple):
    """States by file as a reader knows them, the files in their order, what states ask for, and how old the look is in steps."""

    states: dict[str, str]
    order: tuple[str, ...]
    needs: dict[str, str]
    age: int

    def next_pair(self) -> tuple[str, str] | None:
        """Return the first file that is not settled, and what its state asks for; None where all seem settled."""
        known = ((path, self.needs.get(self.states.get(path, ""))) for path in self.order)
        return next(((path, action) for path, action in known if action), None)


def take_apart(prompt: Prompt) -> Asked | None:
    """Return the parts of a prompt of coordination, or None for any other prompt."""
    writes = prompt.turns[0].text.startswith("You brief an agent")
    if not writes and not prompt.turns[0].text.startswith("You choose the next step of a task"):
        return None
    quoted: dict[str, list[str]] = {}
    actions: tuple[str, ...] = ()
    artifacts: list[str] = []
    header = ""
    lines = prompt.turns[1].text.split("\n")
    for line in lines:
        if line.startswith("> "):
            quoted[header].append(line[2:])
        elif line.startswith("- ") and header == "Artifacts:":
            artifacts.append(line[2:])
        elif line.startswith("Actions: "):
            actions = tuple(line.removeprefix("Actions: ").split(", "))
        else:
            header = line
            quoted.setdefault(header, [])
    texts = {name: "\n".join(said) for name, said in quoted.items()}
    view = texts.get("Local view:") or texts.get("The other agent's local view:", "")
    kinds = {"Message of another agent:": "message", "Full context:": "context", "Your context:": "context"}
    found = next((name for name in kinds if name in texts), None)
    short = len(prompt.turns) > 2 or any("much shorter" in line for line in lines[-2:])
    shown, text = (kinds[found], texts[found]) if found else ("none", "")
    return Asked(writes, view, actions, tuple(artifacts), shown, text, lines[-1], short)


def first_words(text: str, words: int | None) -> str:
    """Return the beginning of a text up to that many words; all of it for None."""
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    return text if words is None or len(ends) <= words else text[: ends[words - 1]] if words else ""


def read_board(view: str, context: str) -> Board | None:
    """Return the board that a view and what is read of a context tell of, or None where the view shows none."""
    order, needs, turn = (pattern.search(view) for pattern in (_ORDER, _NEEDS, _TURN))
    if order is None or needs is None or turn is None:
        return None
    states, seen_at = _states(view)
    for step, action, path in _LOGGED.findall(view):
        if int(step) >= seen_at and path in states:
            states[path] = _followed(states[path], action)
    now, _ = _states(context)
    files = tuple(order[1].split(", "))
    asked = dict(pair.split(": ", 1) for pair in needs[1].split(", "))
    age = 0 if len(now) >= len(files) else int(turn[1]) - seen_at
    return Board(states | now, files, asked, age)


def named_in(text: str, names: Sequence[str]) -> str | None:
    """Return the name that stands first in a text, the longer one where two begin there; None where there is none."""
    found = [
        (match.start(), -len(name), name)
        for name in names
        if (match := re.search(rf"(?<![\w/]){re.escape(name)}(?![\w/])", text))
    ]
    return min(found)[2] if found else None


def most_alike(text: str, names: Sequence[str]) -> tuple[str, int]:
    """Return the name that shares most words with a text, and how many; of equal ones the shortest, then the first."""
    said = parts(text)
    real = [name for name in names if not name.startswith(PAD)] or list(names)
    best = max(real, key=lambda name: (len(parts(name) & said), -len(parts(name)), -real.index(name)))
    return best, len(parts(best) & said)


def fitting_action(artifact: str, actions: Sequence[str]) -> str:
    """Return the action that a name's own words ask for, else ``edit`` for a path and ``run_test`` for a tool."""
    said = parts(artifact)
    fits = [action for action, verbs in _VERBS.items() if action in actions and said & set(verbs)]
    usual = "edit" if "/" in artifact else "run_test"
    return fits[0] if fits and usual != "edit" else usual if usual in actions else actions[0]


def parts(text: str) -> set[str]:
    """Return the words of a text or name in lower case, names split at capitals, dots and underscores."""
    return {match.lower() for match in _PART.findall(text)}


def _states(text: str) -> tuple[dict[str, str], int]:
    """Return the states by file that stand under their header, and the step before which they were seen."""
    states: dict[str, str] = {}
    seen_at, inside = 0, False
    for line in text.split("\n"):
        if header := _NOW.match(line):
            seen_at, inside = int(header[1]), True
        elif inside and (match := _STATE.match(line)):
            states[match[1]] = match[2]
        else:
            inside = False
    return states, seen_at


def _followed(state: str, action: str) -> str:
    """Return what a file's state probably is after an action; what reading finds is taken for a draft."""
    if action == "read":
        return "draft" if state == "unread" else state
    spoiled = {"create": "draft", "edit": "untested", "configure": "untested", "delete": "gone"}
    return _AFTER.get(state, spoiled.get(action, "done"))
