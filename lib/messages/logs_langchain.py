"""Read message lists of LangChain and LangGraph.

Shapes of one message: ``{"type": "human", "data": {...}}`` (`messages_to_dict`), the constructor form ``{"lc": 1,
"id": [..., "HumanMessage"], "kwargs": {...}}``, a plain dump ``{"type": "ai", "content": ..., "tool_calls": [...]}``,
or a pair ``["human", "text"]``. They stand in a list, one a line, or in a state: ``{"messages": [...]}``,
``{"values": {"messages": [...]}}``, or an update ``{node: {"messages": [...]}}`` as a stream of a graph gives it, one
a line.

Sender is the message's ``name``, else the node of the update, else its type. In a stream of states every state
repeats the list so far: messages whose id and text were there before are counted, not kept twice.

Not covered: checkpoints in a database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lib.messages.log_content import add_calls, add_result, note_parts, read_call, read_content
from lib.messages.logged import Collector, Kind, conversation_of
from lib.messages.logs_openai import join, kind_of, read_message

NAME = "langchain"
SHAPE = 'messages {"type": "human", "data": {...}}, {"lc": 1, "kwargs": {...}} or {"type": "ai", "content": ...}'
_TYPES = {
    "human": "user",
    "user": "user",
    "ai": "ai",
    "assistant": "ai",
    "aimessagechunk": "ai",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
    "chat": "chat",
    "remove": "remove",
}
_KNOWN = {
    *("type", "content", "name", "id", "tool_calls", "invalid_tool_calls", "usage_metadata", "tool_call_id", "role"),
    *("example", "additional_kwargs", "response_metadata"),
}


def sees(value: Any) -> bool:
    """Tell whether a JSON value is, or holds, messages of LangChain."""
    if isinstance(value, list):
        return any(_unwrapped(item) is not None for item in value)
    return _unwrapped(value) is not None or bool(_lists(value))


class Reader:
    """Reads the values of one file in turn."""

    def __init__(self, out: Collector) -> None:
        self.out = out
        self._known: set[tuple[str, str, str]] = set()  # (conversation, id, text) of messages read from states

    def read(self, value: Any, place: str) -> None:
        """Add the messages of one value."""
        if isinstance(value, list) and not _is_pair(value):
            for number, item in enumerate(value, start=1):
                self._message(item, join(place, f"message {number}"), "", "")
        elif _unwrapped(value) is not None:
            self._message(value, place, "", conversation_of(value) if isinstance(value, Mapping) else "")
        else:
            self._state(value, place)

    def finish(self) -> None:
        """Nothing is left over: every value was read when it came."""

    def _state(self, value: Any, place: str) -> None:
        lists = _lists(value)
        if not lists:
            self.out.problem(place or "the file", "", f"no LangChain messages: {kind_of(value)}")
            return
        inside = value.get("configurable", value.get("metadata"))
        conversation = conversation_of(value) or (conversation_of(inside) if isinstance(inside, Mapping) else "")
        for node, listed in lists:
            for number, item in enumerate(listed, start=1):
                self._message(item, join(place, node, f"message {number}"), node, conversation, state=True)

    def _message(self, item: Any, place: str, node: str, conversation: str, *, state: bool = False) -> None:
        found = _unwrapped(item)
        if found is None:
            if isinstance(item, Mapping) and "type" in item and "role" not in item:
                self.out.problem(place, "content", f"is missing, or the type is unknown: {kind_of(item)}")
            else:
                read_message(self.out, item, place, conversation)
            return
        kind, data = found
        content = read_content(data.get("content"))
        given = data.get("id") if isinstance(data.get("id"), str) else None
        if state and given:
            key = (conversation, given, content.text)
            if key in self._known:
                self.out.skipped["message repeated from an earlier state"] += 1
                return
            self._known.add(key)
        if kind == "remove":
            self.out.skipped["removal of an earlier message"] += 1
            return
        if "content" not in data and not data.get("tool_calls"):
            self.out.problem(place, "content", "is missing, and there are no tool calls either")
            return
        self._add(kind, data, content, given, node, {"place": place, "conversation": conversation})

    def _add(self, kind: str, data: Mapping[str, Any], content: Any, given: Any, node: str, where: Any) -> None:
        more = data.get("additional_kwargs")
        more = more if isinstance(more, Mapping) else {}
        named = data.get("name")
        role = data.get("role") if kind == "chat" else None
        sender = next((name for name in (named, node, role) if isinstance(name, str) and name.strip()), kind)
        sender = sender if kind != "user" or named else "user"
        rest = {name: value for name, value in data.items() if name not in _KNOWN and value not in (None, {}, [])}
        kept = {name: data[name] for name in ("additional_kwargs", "response_metadata") if data.get(name)}
        extra = {**rest, **kept, **note_parts(self.out, content), **({"node": node} if node else {})}
        where = {**where, "time": _time(data)}
        if kind == "tool":
            tool = named if isinstance(named, str) else ""
            call_id = str(data.get("tool_call_id") or "")
            add_result(self.out, content.text, call_id, tool=tool, extra=extra, given_id=given, **where)
            return
        listed = data.get("tool_calls") or more.get("tool_calls")
        calls = [read_call(call) for call in (listed if isinstance(listed, list) else [])]
        broken = data.get("invalid_tool_calls")
        if isinstance(broken, list) and broken:
            extra["invalid_tool_calls"] = broken
            self.out.notes["tool call that could not be parsed (kept in extra)"] += len(broken)
        # Content blocks of some providers name the calls a second time.
        calls += [call for call in content.calls if call.id not in {known.id for known in calls}]
        usage = data.get("usage_metadata") or _metadata(data).get("token_usage") or _metadata(data).get("usage")
        if content.text or not (calls or content.results):
            place: Kind = "system" if kind == "system" else "message"
            self.out.add(
                sender=sender, kind=place, text=content.text, given_id=given, usage=usage, extra=extra, **where
            )
            usage = None
        add_calls(self.out, tuple(calls), sender=sender, usage=usage, **where)
        for call_id, said in content.results:
            add_result(self.out, said, call_id, **where)


def _unwrapped(value: Any) -> tuple[str, Mapping[str, Any]] | None:
    """Return (user, ai, system, tool, chat or remove; fields) of a message in any of its forms, or None."""
    if _is_pair(value):
        return _TYPES[value[0].lower()], {"content": value[1]}
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("kwargs"), Mapping) and "lc" in value and isinstance(value.get("id"), list) and value["id"]:
        name = str(value["id"][-1]).removesuffix("Chunk").removesuffix("Message").lower()
        return (_TYPES[name], value["kwargs"]) if name in _TYPES else None
    kind = value.get("type")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        return None
    if isinstance(value.get("data"), Mapping):
        return _TYPES[kind.lower()], value["data"]
    known = "content" in value or "tool_calls" in value or kind == "remove"
    return (_TYPES[kind.lower()], value) if known and "source" not in value else None


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(part, str) for part in value)
        and value[0].lower() in _TYPES
    )


def _lists(value: Any) -> list[tuple[str, list[Any]]]:
    """Return (node, messages) of every list of messages that a state or an update holds; a state has no node."""
    if not isinstance(value, Mapping):
        return []
    for inner in (value, value.get("values"), value.get("channel_values")):
        if isinstance(inner, Mapping) and _holds(inner.get("messages")):
            return [("", inner["messages"])]
    data = value.get("data")
    updates = data if isinstance(data, Mapping) else value
    return [
        (str(node), update["messages"])
        for node, update in updates.items()
        if isinstance(update, Mapping) and _holds(update.get("messages"))
    ]


def _holds(listed: Any) -> bool:
    return isinstance(listed, list) and any(_unwrapped(item) is not None for item in listed)


def _metadata(data: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = data.get("response_metadata")
    return inner if isinstance(inner, Mapping) else {}


def _time(data: Mapping[str, Any]) -> Any:
    for place in (data, _metadata(data), data.get("additional_kwargs")):
        if isinstance(place, Mapping):
            for name in ("timestamp", "created_at", "created"):
                if place.get(name) is not None:
                    return place[name]
    return None
