"""Read chat lists of the OpenAI form: messages, requests with their responses, JSON Lines of both, and items of the
Responses interface.

Shapes: a list of ``{"role", "content", "name"?, "tool_calls"?}``; one such message a line; a request ``{"messages":
[...]}``, alone or as ``body`` (batch files), ``request`` or beside ``response``, whose ``choices`` are said last;
``{"input": ..., "output": [...]}``.

A file of requests repeats the history in every line. A request whose list begins with all that is known of an earlier
conversation goes on with it, and only what is new becomes a message; the rest is counted. Any other request opens a
conversation of its own, such as the other agents of a team, each with its own instructions.

Sender is ``name`` where there is one, else the role. A chat list names no receiver, see `lib.messages.logged`.

Not covered: streams of chunks; choices beyond the first (counted).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lib.messages.log_content import Content, add_calls, add_result, as_text, note_parts, read_call, read_content
from lib.messages.logged import Collector, Kind, conversation_of
from lib.seeds import digest
from lib.tasks.reply import storable

NAME = "openai"
SHAPE = 'a list of {"role": ..., "content": ...}, or requests {"messages": [...]}, one a line'
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_TO = ("recipient", "receiver", "receivers", "to", "target")
_TIMES = ("timestamp", "created_at", "time", "created")
_ITEMS = ("message", "function_call", "function_call_output", "reasoning")


def sees(value: Any) -> bool:
    """Tell whether a JSON value is, or holds, a chat of this form."""
    if isinstance(value, list):
        return any(_is_message(item) for item in value)
    return _is_message(value) or bool(_request(value))


class Reader:
    """Reads the values of one file in turn."""

    def __init__(self, out: Collector) -> None:
        self.out = out
        self._heads: dict[str, str] = {}  # chained hash of all that is known of a conversation -> its name

    def read(self, value: Any, place: str) -> None:
        """Add the messages of one value."""
        if isinstance(value, list):
            for number, item in enumerate(value, start=1):
                read_message(self.out, item, join(place, f"message {number}"), "")
        elif _is_message(value):
            read_message(self.out, value, place, conversation_of(value))
        else:
            self._read_request(value, place)

    def finish(self) -> None:
        """Nothing is left over: every value was read when it came."""

    def _read_request(self, value: Any, place: str) -> None:
        request = _request(value)
        if request is None:
            self.out.problem(place or "the file", "", f"no chat: {kind_of(value)}")
            return
        listed = [*_asked(request), *_answered(self.out, value, place)]
        shared = {name: item for name, item in value.items() if name not in ("messages", "body", "request", "response")}
        named = conversation_of(value) or conversation_of(request)
        heads, known, conversation = [digest("conversation", named)], 0, ""
        for count, item in enumerate(listed, start=1):
            heads.append(digest(heads[-1], _said(item)))
            if heads[-1] in self._heads:
                known, conversation = count, self._heads[heads[-1]]
        if known:
            self.out.skipped["message repeated from an earlier request"] += known
            self._heads.pop(heads[known], None)
        else:
            conversation = named or f"request {len(set(self._heads.values())) + 1}"
            if conversation in self._heads.values():
                conversation = f"{conversation} ({place})"
        self._heads[heads[-1]] = conversation
        for number, item in enumerate(listed[known:], start=known + 1):
            read_message(self.out, item, join(place, f"message {number}"), conversation, request=shared)
            shared = {}


def read_message(
    out: Collector, item: Any, place: str, conversation: str, *, request: Mapping[str, Any] | None = None
) -> None:
    """Add one chat message, its tool calls and its tool results.

    Parameters
    ----------
    request : fields of the request around it, kept in the message's `extra` under ``request``
    """
    if not isinstance(item, Mapping):
        out.problem(place, "", f"a message must be an object, not {kind_of(item)}")
        return
    if item.get("type") in _ITEMS[1:]:
        _read_item(out, item, place, conversation)
        return
    role = item.get("role")
    if not isinstance(role, str) or not role:
        out.problem(place, "role", f"must be text such as 'user' or 'assistant', not {kind_of(role)}")
        return
    if "content" not in item and not any(item.get(name) for name in ("tool_calls", "function_call", "tool_responses")):
        out.problem(place, "content", "is missing, and there are no tool calls either")
        return
    content = read_content(item.get("content"))
    name = item.get("name")
    sender = name if isinstance(name, str) and name.strip() else role
    time = next((item[key] for key in _TIMES if item.get(key) is not None), None)
    given = item.get("id") if item.get("id") is not None else item.get("message_id")
    extra = {**_rest(item), **note_parts(out, content), **({"request": dict(request)} if request else {})}
    where: dict[str, Any] = {"place": place, "conversation": conversation, "time": time}
    if role in ("tool", "function"):
        _read_results(out, item, content, extra, given, where)
        return
    calls = (*(read_call(call) for call in _calls(item)), *content.calls)
    refusal = item.get("refusal")
    text = content.text or (refusal if isinstance(refusal, str) else "")
    usage = item.get("usage") if isinstance(item.get("usage"), Mapping) else None
    if text or not (calls or content.results):
        kind: Kind = "system" if role in ("system", "developer") else "message"
        out.add(
            sender=sender, receivers=_to(item), kind=kind, text=text, given_id=given, usage=usage, extra=extra, **where
        )
        usage = None
    add_calls(out, calls, sender=sender, usage=usage, **where)
    for call_id, said in content.results:
        add_result(out, said, call_id, **where)


def join(*parts: str) -> str:
    """Return the parts of a place that are not empty, e.g. ``line 3, message 2``."""
    return ", ".join(part for part in parts if part)


def kind_of(value: Any) -> str:
    """Say what a JSON value is, for messages of error: ``a list of 3``, ``an object with role, text``."""
    if isinstance(value, Mapping):
        names = [str(name) for name in value]
        return f"an object with {', '.join(names[:8]) or 'nothing'}{', ...' if len(names) > 8 else ''}"
    if isinstance(value, list):
        inner = kind_of(value[0]) if value else ""
        return f"a list of {len(value)}" + (f", first {inner}" if inner else "")
    if value is None:
        return "nothing"
    return f"{type(value).__name__} {as_text(value)[:30]!r}"


def _read_results(
    out: Collector, item: Mapping[str, Any], content: Content, extra: dict[str, Any], given: object, where: Any
) -> None:
    """Add what a tool message returned: its own content, or one text for each of the calls that it answers."""
    responses = item.get("tool_responses")
    if isinstance(responses, list) and responses:
        for response in responses:
            record = response if isinstance(response, Mapping) else {"content": response}
            text = read_content(record.get("content")).text
            add_result(out, text, str(record.get("tool_call_id") or ""), extra=extra, given_id=given, **where)
        return
    tool = item.get("name")
    named = tool if isinstance(tool, str) else ""
    call_id = str(item.get("tool_call_id") or "")
    add_result(out, content.text, call_id, tool=named, extra=extra, given_id=given, **where)


def _read_item(out: Collector, item: Mapping[str, Any], place: str, conversation: str) -> None:
    where: dict[str, Any] = {"place": place, "conversation": conversation}
    if item["type"] == "function_call":
        add_calls(out, (read_call(item),), sender="assistant", **where)
    elif item["type"] == "function_call_output":
        add_result(out, read_content(item.get("output")).text, str(item.get("call_id") or ""), **where)
    else:
        out.skipped["reasoning item (not said to anybody)"] += 1


def _is_message(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    if value.get("type") in _ITEMS[1:3]:
        return True
    return isinstance(value.get("role"), str) and ("content" in value or "tool_calls" in value) and "parts" not in value


def _request(value: Any) -> Mapping[str, Any] | None:
    """Return the part of a value that holds the list of messages, or None."""
    if not isinstance(value, Mapping):
        return None
    for inner in (value, value.get("body"), value.get("request")):
        if isinstance(inner, Mapping):
            listed = inner.get("messages", inner.get("input") if "output" in inner or "model" in inner else None)
            if isinstance(listed, list) and (not listed or any(_is_message(item) for item in listed)):
                return inner
            if isinstance(listed, str):
                return inner
    return value if _choices(value) else None


def _asked(request: Mapping[str, Any]) -> list[Any]:
    listed = request.get("messages", request.get("input", []))
    if isinstance(listed, str):
        listed = [{"role": "user", "content": listed}]
    instructions = request.get("instructions")
    before = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    return [*before, *(listed if isinstance(listed, list) else [])]


def _answered(out: Collector, value: Mapping[str, Any], place: str) -> list[Any]:
    """Return what was answered to a request: the first choice with the usage of the call, or the output items."""
    answer = _choices(value)
    if answer is None:
        return []
    items = answer.get("output")
    if isinstance(items, list):
        return items
    choices = answer.get("choices")
    listed = choices if isinstance(choices, list) else []
    if len(listed) > 1:
        out.skipped["choice beyond the first"] += len(listed) - 1
    said = listed[0].get("message") if listed and isinstance(listed[0], Mapping) else None
    if not isinstance(said, Mapping):
        out.problem(join(place, "response"), "choices", "the first choice holds no message")
        return []
    times = {"created": answer["created"]} if answer.get("created") is not None else {}
    return [{**said, "usage": answer.get("usage"), **times}]


def _choices(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    response = value.get("response")
    inner = response.get("body") if isinstance(response, Mapping) else None
    for place in (value, response, inner):
        if isinstance(place, Mapping) and (
            isinstance(place.get("choices"), list) or isinstance(place.get("output"), list)
        ):
            return place
    return None


def _said(item: Any) -> list[Any]:
    """Return what makes a repeated message the same one: role, name, text and calls; ids and costs may differ."""
    if not isinstance(item, Mapping):
        return [storable(as_text(item))]
    content = read_content(item.get("content"))
    calls = [call.name + call.arguments for call in (*map(read_call, _calls(item)), *content.calls)]
    parts = [str(item.get(name) or "") for name in ("role", "name", "tool_call_id", "call_id")]
    return [storable(text) for text in (*parts, content.text, as_text(content.left), *calls)]


def _calls(item: Mapping[str, Any]) -> list[Any]:
    calls = item.get("tool_calls")
    single = item.get("function_call")
    return [*(calls if isinstance(calls, list) else []), *([single] if isinstance(single, Mapping) else [])]


def _to(item: Mapping[str, Any]) -> list[str]:
    for name in _TO:
        value = item.get(name)
        if isinstance(value, str) and value:
            return [value]
        if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
            return value
    return []


def _rest(item: Mapping[str, Any]) -> dict[str, Any]:
    known = {"role", "content", "name", "tool_calls", "function_call", "tool_call_id", "tool_responses", "id", "usage"}
    rest = {key: value for key, value in item.items() if key not in {*known, *_TO, *_TIMES} and value is not None}
    return {"role": item["role"], **rest}
