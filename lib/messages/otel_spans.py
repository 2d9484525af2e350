"""Spans of the OpenTelemetry GenAI conventions, and what each of them says was read and said.

Shapes of a file: OTLP JSON (``resourceSpans`` > ``scopeSpans`` > ``spans``), whole or one batch a line; flat spans as
the console exporter prints them (``context.span_id``, ``parent_id``, plain attributes), in a list or one a line.

Shapes of content, all met in the wild because the convention moved: attributes ``gen_ai.input.messages`` and
``gen_ai.output.messages`` (JSON of ``{"role", "parts"}``), the same on an event; events ``gen_ai.user.message`` ...
``gen_ai.choice``; events ``gen_ai.content.prompt`` and ``gen_ai.content.completion``; numbered attributes
``gen_ai.prompt.0.content`` and ``llm.input_messages.0.message.content``.

Not covered: protobuf files; content that an exporter moved elsewhere and left a link to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from lib.messages.log_content import TEXT_PARTS, Call, Content, as_text, read_call, read_content
from lib.messages.logged import read_time

INPUTS = ("gen_ai.system_instructions", "gen_ai.input.messages")
OUTPUTS = ("gen_ai.output.messages",)
_CONTENT = (*INPUTS, *OUTPUTS, "gen_ai.prompt", "gen_ai.completion")
_NUMBERED = re.compile(
    r"(?P<side>gen_ai\.prompt|gen_ai\.completion|llm\.input_messages|llm\.output_messages)\.(?P<index>\d{1,6})\."
    r"(?:message\.)?(?P<field>role|content|name|finish_reason)"
)
_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message")


class Span(msgspec.Struct, frozen=True):
    """One span: ids (empty where missing), times in seconds (None where missing), plain attributes, events as (name, attributes)."""

    id: str
    parent: str
    trace: str
    name: str
    start: float | None
    end: float | None
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...]
    place: str


class Said(msgspec.Struct, frozen=True):
    """One message inside a span: role, name (empty where there is none), content, and fields without a place of their own."""

    role: str
    name: str
    content: Content
    extra: dict[str, Any] = {}


def span_records(value: Any, place: str = "") -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield (place, raw span, attributes of its resource) of every span that a JSON value holds."""
    if isinstance(value, list):
        for number, item in enumerate(value, start=1):
            yield from span_records(item, f"{place}, item {number}" if place else f"item {number}")
    elif isinstance(value, Mapping):
        for resource in _listed(value, "resourceSpans", "resource_spans"):
            about = resource.get("resource")
            shared = attributes_of(about.get("attributes")) if isinstance(about, Mapping) else {}
            scopes = _listed(resource, "scopeSpans", "scope_spans", "instrumentationLibrarySpans")
            spans = [span for scope in scopes for span in _listed(scope, "spans")]
            for number, span in enumerate(spans, start=1):
                yield (f"{place}, span {number}" if place else f"span {number}"), span, shared
        if is_span(value):
            yield place, value, {}


def is_span(value: Any) -> bool:
    """Tell whether a value is one span: it has an id of its own, times or attributes, and a name."""
    if not isinstance(value, Mapping) or "name" not in value or "role" in value:
        return False
    context = value.get("context")
    has_id = any(name in value for name in ("spanId", "span_id")) or (
        isinstance(context, Mapping) and "span_id" in context
    )
    return has_id and "attributes" in value


def read_span(raw: Mapping[str, Any], place: str) -> Span:
    """Return a raw span of either shape in one form."""
    context = raw.get("context") if isinstance(raw.get("context"), Mapping) else {}
    assert isinstance(context, Mapping)
    events = []
    for event in _listed(raw, "events"):
        events.append((str(event.get("name") or ""), attributes_of(event.get("attributes"))))
    return Span(
        id=_first_text(raw.get("spanId"), raw.get("span_id"), context.get("span_id")),
        parent=_first_text(raw.get("parentSpanId"), raw.get("parent_span_id"), raw.get("parent_id")),
        trace=_first_text(raw.get("traceId"), raw.get("trace_id"), context.get("trace_id")),
        name=_first_text(raw.get("name")),
        start=read_time(_first(raw, "startTimeUnixNano", "start_time_unix_nano", "start_time")),
        end=read_time(_first(raw, "endTimeUnixNano", "end_time_unix_nano", "end_time")),
        attributes=attributes_of(raw.get("attributes")),
        events=tuple(events),
        place=place,
    )


def attributes_of(listed: Any) -> dict[str, Any]:
    """Return plain attributes of OTLP's list of key and typed value, or of a mapping."""
    if isinstance(listed, Mapping):
        return dict(listed)
    pairs = listed if isinstance(listed, list) else []
    return {
        str(pair["key"]): _plain(pair.get("value")) for pair in pairs if isinstance(pair, Mapping) and "key" in pair
    }


def messages_in(span: Span) -> tuple[list[Said], list[Said]]:
    """Return what a span says was read (instructions and history) and what was said, each in order.

    Where several shapes stand beside each other they repeat the same; the first that holds anything is taken.
    """
    sources = [span.attributes, *(attributes for _, attributes in span.events)]
    read = next((found for found in (_listed_messages(one, INPUTS) for one in sources) if found), [])
    said = next((found for found in (_listed_messages(one, OUTPUTS) for one in sources) if found), [])
    events_read, events_said = _of_events(span)
    numbered_read, numbered_said = _of_numbers(span.attributes)
    return read or events_read or numbered_read, said or events_said or numbered_said


def content_free(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes without those that hold messages, for a message's `extra`."""
    return {name: value for name, value in attributes.items() if name not in _CONTENT and not _NUMBERED.fullmatch(name)}


def _listed_messages(attributes: Mapping[str, Any], names: tuple[str, ...]) -> list[Said]:
    found: list[Said] = []
    for name in names:
        value = _parsed(attributes.get(name))
        if value in (None, "", []):
            continue
        if name == "gen_ai.system_instructions":
            found.append(Said("system", "", _parts(value)))
        else:
            items = value if isinstance(value, list) else [value]
            found += [_message(item, "assistant" if name in OUTPUTS else "user") for item in items]
    return found


def _message(item: Any, role: str) -> Said:
    """Return a message of any of the forms in use; `role` is what it has where it says none."""
    if not isinstance(item, Mapping):
        return Said(role, "", read_content(item))
    known = {"role", "name", "parts", "content", "tool_calls"}
    rest = {name: value for name, value in item.items() if name not in known and value is not None}
    content = _parts(item["parts"] if "parts" in item else item.get("content"))
    listed = item.get("tool_calls")
    if isinstance(listed, list):
        calls: tuple[Call, ...] = tuple(read_call(call) for call in listed)
        content = msgspec.structs.replace(content, calls=(*content.calls, *calls))
    return Said(str(item.get("role") or role), _first_text(item.get("name")), content, rest)


def _parts(value: Any) -> Content:
    """Return the content of parts; a part of type text has its text under `content` here."""
    if isinstance(value, list):
        value = [
            {**part, "text": part["content"]}
            if isinstance(part, Mapping) and part.get("type") in TEXT_PARTS and isinstance(part.get("content"), str)
            else part
            for part in value
        ]
    return read_content(value)


def _of_events(span: Span) -> tuple[list[Said], list[Said]]:
    read: list[Said] = []
    said: list[Said] = []
    for name, attributes in span.events:
        body = _parsed(
            next((attributes[key] for key in ("gen_ai.event.content", "body", "event.body") if key in attributes), None)
        )
        fields = body if isinstance(body, Mapping) else {**attributes, **({"content": body} if body else {})}
        match = _EVENT.fullmatch(name)
        if match:
            read.append(_event_message(fields, match[1]))
        elif name == "gen_ai.choice":
            inner = _parsed(fields.get("message"))
            said.append(
                _event_message(
                    inner if isinstance(inner, Mapping) else {**fields, "content": inner or fields.get("content")},
                    "assistant",
                )
            )
        elif name == "gen_ai.content.prompt":
            read += _loose(attributes.get("gen_ai.prompt"), "user")
        elif name == "gen_ai.content.completion":
            said += _loose(attributes.get("gen_ai.completion"), "assistant")
    return read, said


def _event_message(fields: Mapping[str, Any], role: str) -> Said:
    plain = {name: _parsed(value) if name in ("tool_calls", "content") else value for name, value in fields.items()}
    plain = {name.removeprefix("gen_ai.message."): value for name, value in plain.items() if name != "event.name"}
    content = plain.get("content")
    if not isinstance(content, str | list | None):
        plain["content"] = fields["content"]  # a text that happens to be JSON stays as it was written
    found = _message({"role": role, **plain}, role)
    if role == "tool" and not found.content.results:
        call_id = _first_text(plain.get("id"), plain.get("tool_call_id"))
        return msgspec.structs.replace(found, content=Content("", results=((call_id, found.content.text),)))
    return found


def _of_numbers(attributes: Mapping[str, Any]) -> tuple[list[Said], list[Said]]:
    records: dict[tuple[bool, int], dict[str, Any]] = {}
    for name, value in attributes.items():
        match = _NUMBERED.fullmatch(name)
        if match:
            key = (match["side"] in ("gen_ai.completion", "llm.output_messages"), int(match["index"]))
            records.setdefault(key, {})[match["field"]] = value
    sides: tuple[list[Said], list[Said]] = ([], [])
    for (output, _), fields in sorted(records.items(), key=lambda pair: pair[0]):
        sides[output].append(_message(fields, "assistant" if output else "user"))
    return sides


def _loose(value: Any, role: str) -> list[Said]:
    """Return the messages of an attribute that holds a list of them as JSON, or plain text."""
    parsed = _parsed(value)
    if parsed in (None, "", []):
        return []
    return [_message(item, role) for item in (parsed if isinstance(parsed, list) else [parsed])]


def _parsed(value: Any) -> Any:
    """Return the JSON that a text holds, if it is a list or an object; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _plain(value: Any) -> Any:
    """Return the value of OTLP's typed wrapper."""
    if not isinstance(value, Mapping):
        return value
    for name, inner in value.items():
        if name in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
            return inner
        if name == "intValue":
            return int(inner) if isinstance(inner, str) and re.fullmatch(r"-?\d{1,19}", inner) else inner
        if name == "arrayValue":
            return [_plain(item) for item in _listed(inner, "values")]
        if name == "kvlistValue":
            return attributes_of(inner.get("values") if isinstance(inner, Mapping) else None)
    return None if not value else as_text(value)


def _listed(value: Any, *names: str) -> list[Any]:
    """Return the first of the named lists that is there, without members that are no objects."""
    for name in names:
        found = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(found, list):
            return [item for item in found if isinstance(item, Mapping)]
    return []


def _first(record: Mapping[str, Any], *names: str) -> Any:
    return next((record[name] for name in names if record.get(name) is not None), None)


def _first_text(*values: Any) -> str:
    return next((str(value) for value in values if isinstance(value, str | int) and value not in ("", 0)), "")
