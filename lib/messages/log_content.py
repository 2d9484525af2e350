"""The text of a message's content, and the tool calls beside it, in the forms that chat formats share.

Content is a text, nothing, or a list of parts. Parts with text are joined by a line feed, in order; parts without
(images, audio, files) are counted and stay with the message as they came. Thoughts (`reasoning`, `thinking`) were not
said to anybody and are no text either. A content that is an object is its JSON. A tool call whose name says that
control passes to an agent (`transfer_to_billing`) is a hand-off.

Not covered: what an image shows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from lib.messages.logged import Collector

TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
CALL_PARTS = ("tool_use", "tool_call", "function_call", "server_tool_use")
RESULT_PARTS = ("tool_result", "tool_call_response", "function_call_output")
_HANDOFF = re.compile(r"(?:transfer(?:_back)?|hand_?off|delegate)_to_(.+)", re.IGNORECASE)


class Call(msgspec.Struct, frozen=True):
    """One tool call: its id (empty where there is none), the tool, the arguments as text, and what else stood there."""

    id: str
    name: str
    arguments: str
    extra: dict[str, Any] = {}


class Content(msgspec.Struct, frozen=True):
    """What a content holds: text, calls, results as (call id, text), the parts left out, and their types counted."""

    text: str
    calls: tuple[Call, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    left: tuple[Any, ...] = ()
    left_types: dict[str, int] = {}


def read_content(content: Any) -> Content:
    """Return what a content holds, see the module header."""
    if content is None or isinstance(content, str):
        return Content(content or "")
    if not isinstance(content, list):
        return Content(as_text(content))
    texts: list[str] = []
    calls: list[Call] = []
    results: list[tuple[str, str]] = []
    left: list[Any] = []
    types: Counter[str] = Counter()
    for part in content:
        kind = str(part.get("type", "")) if isinstance(part, Mapping) else ""
        said = part if isinstance(part, str) else _said(part, kind)
        if said is not None:
            texts.append(said)
        elif isinstance(part, Mapping) and kind in CALL_PARTS:
            calls.append(read_call(part))
        elif isinstance(part, Mapping) and kind in RESULT_PARTS:
            value = next((part[name] for name in ("content", "response", "result", "output") if name in part), None)
            results.append((_text_of(part, "tool_use_id", "call_id", "id"), read_content(value).text))
        else:
            left.append(part)
            types[kind or type(part).__name__] += 1
    return Content("\n".join(texts), tuple(calls), tuple(results), tuple(left), dict(types))


def read_call(record: Any) -> Call:
    """Return a tool call of any of the forms in use; a name that is missing is empty."""
    if not isinstance(record, Mapping):
        return Call("", "", as_text(record))
    function = record.get("function")
    inner = function if isinstance(function, Mapping) else record
    arguments = next((inner[name] for name in ("arguments", "args", "input") if name in inner), "")
    known = {"id", "call_id", "function", "name", "arguments", "args", "input", "type"}
    return Call(
        _text_of(record, "call_id", "id"),
        _text_of(inner, "name"),
        as_text(arguments),
        {name: value for name, value in record.items() if name not in known},
    )


def handoff_target(tool: str) -> str | None:
    """Return the agent to whom a tool of this name passes control, or None.

    >>> handoff_target("transfer_to_billing"), handoff_target("search")
    ('billing', None)
    """
    match = _HANDOFF.fullmatch(tool)
    return match[1] if match else None


def as_text(value: Any) -> str:
    """Return a text as it is, nothing as empty text, and anything else as compact JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def add_calls(
    out: Collector,
    calls: tuple[Call, ...],
    *,
    sender: str,
    place: str,
    conversation: str,
    time: object = None,
    usage: Mapping[str, Any] | None = None,
) -> None:
    """Add tool calls as messages of their own and remember who called, so that results find their way back.

    `usage` is the call's that made them and stands with the first.
    """
    for call in calls:
        if not call.name:
            out.problem(place, "tool_calls.name", "a tool call without a name; it is kept as a call of 'tool'")
        name = call.name or "tool"
        target = handoff_target(name)
        if call.id:
            out.calls[conversation, call.id] = (sender, name)
        out.add(
            sender=sender,
            receivers=[target or name],
            kind="handoff" if target else "tool_call",
            text=f"{name}({call.arguments})",
            place=place,
            conversation=conversation,
            time=time,
            usage=usage,
            extra={**call.extra, **({"call_id": call.id} if call.id else {})},
        )
        usage = None


def add_result(
    out: Collector,
    text: str,
    call_id: str,
    *,
    place: str,
    conversation: str,
    tool: str = "",
    time: object = None,
    given_id: object = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Add what a tool returned; who called it is known from the call's id."""
    caller, called = out.calls.get((conversation, call_id), ("", ""))
    if not caller:
        out.notes["tool result without the call that it answers"] += 1
    out.add(
        sender=tool or called or "tool",
        receivers=[caller] if caller else [],
        kind="tool_result",
        text=text,
        place=place,
        conversation=conversation,
        time=time,
        given_id=given_id,
        extra={**(extra or {}), **({"call_id": call_id} if call_id else {})},
    )


def note_parts(out: Collector, content: Content) -> dict[str, Any]:
    """Count the parts without text, and return what `extra` keeps of them."""
    for kind, count in content.left_types.items():
        out.notes[f"part of type {kind!r} without text (kept in extra)"] += count
    return {"parts": list(content.left)} if content.left else {}


def _said(part: Any, kind: str) -> str | None:
    """Return the text of a part that was said, None for any other."""
    if not isinstance(part, Mapping) or (kind and kind not in TEXT_PARTS):
        return None
    value = next((part[name] for name in ("text", "content", "refusal") if isinstance(part.get(name), str)), None)
    return value if isinstance(value, str) else None


def _text_of(record: Mapping[str, Any], *names: str) -> str:
    return next((str(record[name]) for name in names if isinstance(record.get(name), str | int)), "")
