"""One payload in five encodings, so that what is said stays the same while its surface changes.

Context
-------
The paper's format sweep (section C.2, table 22): canonical JSON, a decision header before the JSON, prose, bullets, and
bullets with the JSON below. Its public files hold messages generated in each format, so content differs there. Here
`render` is a function of one payload.

Intuition
---------
A bounded receiver may read one surface better than another although both say the same. That is a statement about
surfaces only where the content is equal: every encoding here shows every filled field, word for word.

How to read the result
----------------------
Encodings differ in length. Under a budget they are cut at different places, and canonical JSON, whose keys are sorted, names
its target last while a header names it first. So compare encodings uncut, or read a cut comparison as one of both together.

Not covered: encodings beyond these; the sender's own wording in a format (mode ``direct``, see `lib.coordination.arms`).
"""

from __future__ import annotations

import json

from lib.coordination.exchange import Encoding, Payload
from lib.coordination.parse import ACTION_KEYS, ARTIFACT_KEYS, best_object, field_text
from lib.messages.message import clean_field

FIELDS = Payload.__struct_fields__
_SENTENCES = {
    "action_type": "The next action is {}",
    "target_artifact": "Its target is {}",
    "rationale": "The reason: {}",
    "context": "What to know: {}",
    "constraints": "What to heed: {}",
}


def read_payload(text: str) -> Payload | None:
    """Read a payload from a sender's reply; None where no JSON object in it has one of the fields filled.

    Other names for action and artifact are understood as in `lib.coordination.parse`; lists become one line.
    """
    found = best_object(text, FIELDS)
    if found is None:
        return None
    values = {name: _line(found.get(name)) for name in FIELDS}
    for name, keys in (("action_type", ACTION_KEYS), ("target_artifact", ARTIFACT_KEYS)):
        values[name] = next((line for key in keys if (line := _line(found.get(key)))), "")
    return Payload(**values) if any(values.values()) else None


def filled_fields(payload: Payload) -> dict[str, str]:
    """Return the fields that say something, each on one line, in the order of `FIELDS`."""
    return {name: line for name in FIELDS if (line := _line(getattr(payload, name)))}


def canonical_json(payload: Payload) -> str:
    """Return the filled fields as compact JSON with sorted keys."""
    return json.dumps(filled_fields(payload), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def render(payload: Payload, encoding: Encoding) -> str:
    """Return a payload as text.

    Raises
    ------
    ValueError
        For an encoding that is not known.

    >>> one = Payload("edit", "a.py", "it sets the flag")
    >>> print(render(one, "header"))
    DECISION action_type=edit target_artifact=a.py
    {"action_type":"edit","rationale":"it sets the flag","target_artifact":"a.py"}
    >>> render(one, "prose")
    'The next action is edit. Its target is a.py. The reason: it sets the flag.'
    """
    fields = filled_fields(payload)
    bullets = "\n".join(f"- {name}: {text}" for name, text in fields.items())
    if encoding == "json":
        return canonical_json(payload)
    if encoding == "header":
        named = [f"{name}={fields[name]}" for name in ("action_type", "target_artifact") if name in fields]
        return " ".join(["DECISION", *named]) + "\n" + canonical_json(payload)
    if encoding == "prose":
        return " ".join(_sentence(_SENTENCES[name].format(text)) for name, text in fields.items())
    if encoding == "bullets":
        return bullets
    if encoding == "bullets_json":
        return f"{bullets}\n{canonical_json(payload)}"
    raise ValueError(f"encoding {encoding!r} is not known; choose json, header, prose, bullets or bullets_json")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _line(value: object) -> str:
    """Return a value on one line; nothing stays nothing."""
    if isinstance(value, list):
        return "; ".join(line for item in value if (line := _line(item)))
    if isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False)
    text = field_text(value)
    return clean_field(text) if text else ""
