"""Read a decision from a reply: an action and an artifact, robustly or permissively, and snap near misses.

Context
-------
The receiver answers with one JSON object (paper, C.1). Its public companion code looks for the best object in the reply,
accepts other names for the two fields, and snaps near misses to the list of candidates. The paper compares a robust with a
permissive parser (C.3).

Intuition
---------
*Robust* reads complete JSON objects only, wherever they stand: alone, fenced, or in prose. The one with most fields of
ours wins, then the one with most fields, then the longest. *Permissive* goes on where that leaves a field open: it mends
broken JSON, then reads ``field: value`` lines, then takes a candidate if the reply names exactly one.

How to read the result
----------------------
A decision is valid where both fields could be read. Names stay as written: `snap_name` is a step of its own, since with a
cutoff of 0.4 it turns many inventions into valid guesses.

Not covered: which name is right (`lib.coordination.scoring`).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from lib.coordination.exchange import Decision, Parser
from lib.tasks.reply import read_reply

ACTION_KEYS = ("action_type", "action", "next_action", "action_name", "operation")
ARTIFACT_KEYS = (
    *("target_artifact", "artifact", "target", "target_file", "file_path", "file", "path"),
    *("tool_name", "tool", "function_name", "function", "name"),
)
SNAP_CUTOFF = 0.4  # difflib ratio from which a name is taken for a candidate (companion code)
_DIGITS = 12
_REASONING = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_DECODER = json.JSONDecoder()

Snap = Literal["exact", "prefix", "containment", "ratio", "none"]


class Snapped(NamedTuple):
    """A candidate, or None, and how it was found."""

    name: str | None
    how: Snap


def visible_text(text: str) -> str:
    """Return a reply without a leading block of reasoning, which nobody is shown and no budget counts; an unclosed one is all of it.

    >>> visible_text("<think>Is it a?</think>\\n{}"), visible_text("<think>Is it")
    ('{}', '')
    """
    return _REASONING.sub("", text).strip()


def storable_text(text: str) -> str:
    """Return `text` with every lone surrogate, which no file can hold and no tokenizer reads, replaced by a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def best_object(text: str, preferred: Sequence[str]) -> dict[str, Any] | None:
    """Return the complete JSON object in `text` with most `preferred` keys, then most keys, then the longest, then the first.

    Keys are returned in lower case with underscores. An object inside another counts by itself too.

    >>> best_object('Not {"a": 1} but {"Action Type": "edit", "a": 2}', ("action_type",))
    {'action_type': 'edit', 'a': 2}
    """
    found: dict[str, Any] | None = None
    best = (-1, -1, -1)
    for brace in re.finditer(r"\{", text):
        try:
            value, end = _DECODER.raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            continue
        keyed = _keyed(value)
        rank = (sum(name in keyed for name in preferred), len(keyed), end - brace.start())
        if rank > best:
            found, best = keyed, rank
    return found


def parse_decision(text: str, actions: Sequence[str], artifacts: Sequence[str], parser: Parser = "robust") -> Decision:
    """Read a decision from a reply.

    Parameters
    ----------
    actions, artifacts : the candidates; only the permissive parser looks at them, and only for names in free text
    parser : ``robust`` or ``permissive``

    Raises
    ------
    ValueError
        For a parser that is not known.

    >>> parse_decision('```json\\n{"action": "edit", "file": "a.py"}\\n```', (), ()).artifact
    'a.py'
    >>> parse_decision('{"action_type": "edit", "target_art', (), ()).reason
    'no complete JSON object'
    >>> parse_decision("I would read b.py.", ("read", "edit"), ("a.py", "b.py"), "permissive").artifact
    'b.py'
    """
    if parser not in ("robust", "permissive"):
        raise ValueError(f"parser {parser!r} is not known; choose robust or permissive")
    said, reason = visible_text(text), ""
    parsed = best_object(said, (*ACTION_KEYS, *ARTIFACT_KEYS))
    action, artifact = _field(parsed or {}, ACTION_KEYS), _field(parsed or {}, ARTIFACT_KEYS)
    later: tuple[tuple[str, Callable[[], tuple[str | None, str | None]]], ...] = (
        ("broken JSON was mended", lambda: _mended(said)),
        ("read from labelled text", lambda: (_labelled(said, ACTION_KEYS), _labelled(said, ARTIFACT_KEYS))),
        ("read from names in free text", lambda: (only_name(said, actions), only_name(said, artifacts))),
    )
    for how, read in later if parser == "permissive" else ():
        if action is None or artifact is None:
            other_action, other_artifact = read()
            action, artifact, reason = action or other_action, artifact or other_artifact, how
    missing = [name for name, value in (("action", action), ("artifact", artifact)) if value is None]
    if missing and parsed is None and parser == "robust":
        reason = "no complete JSON object"
    elif missing:
        reason = f"the reply names no {' and no '.join(missing)}"
    return Decision(artifact, action, not missing, text, reason)


def only_name(text: str, names: Sequence[str]) -> str | None:
    """Return the one of `names` that `text` names, or None where it names none or several; a longer name hides its parts.

    >>> only_name("Edit src/a.py, please.", ("a.py", "src/a.py"))
    'src/a.py'
    """
    wanted = sorted(filter(None, names), key=len, reverse=True)
    if not wanted:
        return None
    pattern = rf"(?<![\w/])(?:{'|'.join(map(re.escape, wanted))})(?![\w/])"
    folded = {name.casefold(): name for name in reversed(wanted)}
    found = {folded[match.group().casefold()] for match in re.finditer(pattern, text, re.IGNORECASE)}
    return found.pop() if len(found) == 1 else None


def snap_name(name: str | None, options: Sequence[str], cutoff: float = SNAP_CUTOFF) -> Snapped:
    """Return the candidate that a name means: equal > prefix > containment > difflib ratio of at least `cutoff`.

    Case does not count, but for an equal spelling, which wins. Among prefixes, and among containments, the smallest
    difference in length wins, then list order; among ratios the largest, then list order.

    >>> snap_name("src/app.py:12", ("src/ap", "src/app.py")), snap_name("xyz", ("src/app.py",))
    (Snapped(name='src/app.py', how='prefix'), Snapped(name=None, how='none'))
    """
    wanted = (name or "").strip()
    options = [option for option in options if option]
    if not wanted:
        return Snapped(None, "none")
    if wanted in options:
        return Snapped(wanted, "exact")
    low = wanted.casefold()
    folded = [(option.casefold(), option) for option in options]
    tests: tuple[tuple[Snap, Callable[[str], bool]], ...] = (
        ("exact", lambda option: option == low),
        ("prefix", lambda option: option.startswith(low) or low.startswith(option)),
        ("containment", lambda option: option in low or low in option),
    )
    for how, is_near in tests:
        near = [(abs(len(option) - len(low)), place) for place, (option, _) in enumerate(folded) if is_near(option)]
        if near:
            return Snapped(options[min(near)[1]], how)
    ratios = [round(difflib.SequenceMatcher(None, option, low).ratio(), _DIGITS) for option, _ in folded]
    best = max(ratios, default=0.0)
    return Snapped(options[ratios.index(best)], "ratio") if best >= cutoff else Snapped(None, "none")


def _keyed(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its keys in lower case and joined by underscores; the first of equal ones stays."""
    keyed: dict[str, Any] = {}
    for key, item in value.items():
        keyed.setdefault(re.sub(r"[\s-]+", "_", key.strip().lower()), item)
    return keyed


def field_text(value: Any) -> str | None:
    """Return a field's text: a string, a number, or the only one of these in a list; None for anything else and for blanks."""
    if isinstance(value, list) and len(value) == 1:
        return field_text(value[0])
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        return None
    return storable_text(value).strip() or None  # an escape in JSON can spell a lone surrogate


def _field(parsed: dict[str, Any], keys: Sequence[str]) -> str | None:
    return next((text for key in keys if (text := field_text(parsed.get(key)))), None)


def _mended(text: str) -> tuple[str | None, str | None]:
    start = text.find("{")
    parsed = _keyed(read_reply(text[start:]).parsed or {}) if start >= 0 else {}
    return _field(parsed, ACTION_KEYS), _field(parsed, ARTIFACT_KEYS)


def _labelled(text: str, keys: Sequence[str]) -> str | None:
    """Return the value of the first ``key: value`` or ``key=value`` whose key is one of `keys`, earlier keys first."""
    for key in keys:
        spelled = key.replace("_", r"[\s_-]")
        match = re.search(rf"(?<!\w){spelled}[\"'*`]*\s*[:=]\s*[\"'*`]*([^\s\"'*`,;}}]+)", text, re.IGNORECASE)
        if match:
            return match.group(1)
    return None
