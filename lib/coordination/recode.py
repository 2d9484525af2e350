"""Strict recoding: the same advice without the name of its target.

Context
-------
Section C.2 of the paper (table 13): keep the recommended action, replace the artifact's name by a description of it, and let
the receiver locate it among the candidates. The paper recodes rows with a direct joint hit only, so the drop is what the
new surface costs a receiver that could use the old one.

Intuition
---------
A sufficient message can still fail a bounded receiver. The recoded message names its target as the sender's own rationale
and context describe it, with the name masked there as well; a reader who knows the task can find it, one that copies
names cannot.

How to read the result
----------------------
A recoding is refused where the name would still stand in it, or where nothing is left that describes the target; `refused` says
why. Only the message changes: step, candidates, gold and recommended action stay. The recommended artifact may differ
from the gold one where a receiver hit without following the message; compare `Sent.payload` before counting such a row.

The companion code says "file" for every target, also for tools; here it is "target".

Not covered: hints by parts of a name, such as a file's stem without its suffix, which a description may need.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from lib.coordination.exchange import Payload, Sent
from lib.coordination.payload import filled_fields, render

MASK = "the target"
LOCATE = "not named here; locate it among the artifacts by the description"
_DESCRIPTION = ("rationale", "context", "constraints")


class LeakError(ValueError):
    """A recoding that would still name its target, or has nothing to describe it by."""


class Recoding(NamedTuple):
    """Recoded messages by step id, and why others were refused."""

    messages: dict[str, Sent]
    refused: dict[str, str]


def target_names(artifact: str) -> tuple[str, ...]:
    """Return the spellings that must not occur: the artifact and its basename, longer first.

    >>> target_names("src/a.py"), target_names("search_weather")
    (('src/a.py', 'a.py'), ('search_weather',))
    """
    names = {artifact.strip(), posixpath.basename(artifact.strip().replace("\\", "/").rstrip("/"))}
    return tuple(sorted(filter(None, names), key=lambda name: (-len(name), name)))


def leaked_names(text: str, artifact: str) -> tuple[str, ...]:
    """Return which names of the artifact occur in `text`, whatever their case."""
    return tuple(name for name in target_names(artifact) if name.casefold() in text.casefold())


def recode(payload: Payload) -> Payload:
    """Return the payload with its target described instead of named.

    Raises
    ------
    LeakError
        If the payload names no artifact, nothing describes it, or its name would still occur.

    >>> recode(Payload("edit", "src/a.py", "a.py sets the flag")).rationale
    'the target sets the flag'
    """
    fields = filled_fields(payload)
    artifact = fields.get("target_artifact", "")
    if not artifact:
        raise LeakError("the payload names no artifact")
    pattern = re.compile("|".join(map(re.escape, target_names(artifact))), re.IGNORECASE)
    described = {name: pattern.sub(MASK, fields[name]) for name in _DESCRIPTION if name in fields}
    if not any(re.search(r"\w", text.replace(MASK, "")) for text in described.values()):
        raise LeakError("nothing but its name describes the target")
    recoded = Payload(fields.get("action_type", ""), LOCATE, **described)
    leaked = leaked_names("\n".join(filled_fields(recoded).values()), artifact)
    if leaked:
        raise LeakError(f"the recoded message still holds {leaked[0]!r}")
    return recoded


def recode_messages(messages: Mapping[str, Sent]) -> Recoding:
    """Recode stored messages, each in its own encoding.

    The finished text is searched for the name once more: an encoding adds words of its own (field names, headers).
    """
    recoded: dict[str, Sent] = {}
    refused: dict[str, str] = {}
    for step_id, sent in messages.items():
        if sent.payload is None:
            refused[step_id] = "the message has no payload that could be read"
            continue
        try:
            payload = recode(sent.payload)
            text = render(payload, sent.encoding)
            leaked = leaked_names(text, sent.payload.target_artifact)
            if leaked:
                raise LeakError(f"the encoding {sent.encoding} itself holds {leaked[0]!r}")
        except LeakError as leak:
            refused[step_id] = str(leak)
            continue
        recoded[step_id] = msgspec.structs.replace(sent, payload=payload, text=text)
    return Recoding(recoded, refused)
