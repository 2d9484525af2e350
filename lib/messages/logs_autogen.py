"""Read AutoGen dumps: chat histories of 0.2 and typed messages of 0.4.

0.4 shapes: a list of dumped messages ``{"type": "TextMessage", "source", "content", "models_usage", "created_at",
...}``, one a line, or inside ``{"messages": [...]}`` (a task's result) or the state of a team (``message_thread``). A
`HandoffMessage` names its receiver. Requests and results of tools are messages of their own; thoughts and memory
queries are events, which nobody else hears. Chunks of a stream repeat the message that follows and are counted, not
kept.

0.2 shapes: ``{"chat_history": [...]}``, ``{agent: [...]}`` as `chat_messages` holds it, or a list of ``{"content",
"role", "name"}``. The role there is a point of view; who spoke is the name.

Not covered: the runtime's SQLite logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lib.messages.log_content import Call, Content, add_calls, add_result, note_parts, read_call, read_content
from lib.messages.logged import Collector, Kind, conversation_of
from lib.messages.logs_openai import join, kind_of, read_message

NAME = "autogen"
SHAPE = 'typed messages {"type": "TextMessage", "source": ..., "content": ...}, or {"chat_history": [...]}'
_HOLDERS = ("messages", "message_thread", "chat_history")
_CHUNKS = ("ModelClientStreamingChunkEvent",)
_KNOWN = {"type", "id", "source", "content", "models_usage", "created_at", "target", "context"}


def sees(value: Any) -> bool:
    """Tell whether a JSON value is, or holds, a dump of AutoGen."""
    if isinstance(value, list):
        return any(_is_typed(item) for item in value) or _is_history(value)
    if not isinstance(value, Mapping):
        return False
    if _is_typed(value) or "tool_responses" in value or isinstance(value.get("chat_history"), list):
        return True
    if any(isinstance(value.get(name), list) and any(map(_is_typed, value[name])) for name in _HOLDERS):
        return True
    return isinstance(value.get("agent_states"), Mapping) or _is_by_agent(value)


class Reader:
    """Reads the values of one file in turn."""

    def __init__(self, out: Collector) -> None:
        self.out = out

    def read(self, value: Any, place: str, conversation: str = "") -> None:
        """Add the messages of one value."""
        if isinstance(value, list):
            for number, item in enumerate(value, start=1):
                self._message(item, join(place, f"message {number}"), conversation)
        elif _is_typed(value) or (isinstance(value, Mapping) and "role" in value):
            self._message(value, place, conversation or conversation_of(value))
        elif isinstance(value, Mapping):
            self._holder(value, place, conversation)
        else:
            self.out.problem(place or "the file", "", f"no AutoGen dump: {kind_of(value)}")

    def finish(self) -> None:
        """Nothing is left over: every value was read when it came."""

    def _holder(self, value: Mapping[str, Any], place: str, conversation: str) -> None:
        conversation = conversation or conversation_of(value) or str(value.get("chat_id") or "")
        for name in _HOLDERS:
            if isinstance(value.get(name), list):
                self.read(value[name], join(place, name), conversation)
                return
        states = value.get("agent_states")
        if isinstance(states, Mapping):
            threads = {name: state for name, state in states.items() if _thread(state)}
            for name, state in threads.items():
                self.read(_thread(state), join(place, f"agent_states.{name}.message_thread"), conversation)
            self.out.skipped["state of an agent (its own memory of the thread)"] += len(states) - len(threads)
        elif _is_by_agent(value):
            for name, history in value.items():
                self.read(history, join(place, f"with {name}"), str(name))
        else:
            self.out.problem(place or "the file", "", f"no AutoGen dump: {kind_of(value)}")

    def _message(self, item: Any, place: str, conversation: str) -> None:
        if isinstance(item, Mapping) and isinstance(item.get("message"), Mapping) and _is_typed(item["message"]):
            item = item["message"]
        if not _is_typed(item):
            read_message(self.out, item, place, conversation)
            return
        kind, source = str(item["type"]), item.get("source")
        if kind in _CHUNKS:
            self.out.skipped["chunk of a stream (the whole message follows)"] += 1
            return
        if not isinstance(source, str) or not source:
            self.out.problem(place, "source", f"must be the name of an agent, not {kind_of(source)}")
            return
        if "content" not in item and kind != "UserInputRequestedEvent":
            self.out.problem(place, "content", "is missing")
            return
        usage = item.get("models_usage")
        where: dict[str, Any] = {"place": place, "conversation": conversation, "time": item.get("created_at")}
        listed = item.get("content")
        if kind.startswith("ToolCallRequest") and isinstance(listed, list):
            calls = tuple(read_call(call) for call in listed)
            add_calls(self.out, calls, sender=source, usage=usage, **where)
            return
        if kind.startswith("ToolCallExecution") and isinstance(listed, list):
            for result in listed:
                self._result(result, {**where, "given_id": item.get("id")})
            return
        self._said(item, kind, read_content(listed), where)

    def _result(self, result: Any, where: dict[str, Any]) -> None:
        record = result if isinstance(result, Mapping) else {"content": result}
        rest = {name: value for name, value in record.items() if name not in ("content", "call_id", "name")}
        tool, call_id = record.get("name"), str(record.get("call_id") or "")
        named = tool if isinstance(tool, str) else ""
        add_result(self.out, read_content(record.get("content")).text, call_id, tool=named, extra=rest, **where)

    def _said(self, item: Mapping[str, Any], kind: str, content: Content, where: dict[str, Any]) -> None:
        target = item.get("target")
        role: Kind = "handoff" if kind == "HandoffMessage" else "event" if kind.endswith("Event") else "message"
        rest = {name: value for name, value in item.items() if name not in _KNOWN and value not in (None, {}, [])}
        context = {"context": item["context"]} if item.get("context") else {}
        self.out.add(
            sender=item["source"],
            receivers=[target] if isinstance(target, str) and target else [],
            kind=role,
            text=content.text,
            given_id=item.get("id"),
            usage=item.get("models_usage"),
            extra={"type": kind, **rest, **context, **note_parts(self.out, content)},
            **where,
        )
        calls: tuple[Call, ...] = content.calls
        add_calls(self.out, calls, sender=item["source"], **where)


def _is_typed(value: Any) -> bool:
    """Tell whether a value is a message of 0.4: a type that ends so, and a source."""
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        return False
    named = value["type"].endswith(("Message", "Event")) or value["type"].startswith("StructuredMessage")
    return named and ("source" in value or ("content" in value and "models_usage" in value))


def _is_history(value: list[Any]) -> bool:
    """Tell whether a list is a history of 0.2: a chat in which everyone has a name, at least two of them."""
    said = [item for item in value if isinstance(item, Mapping) and item.get("role") != "system"]
    named = [item.get("name") for item in said if "content" in item]
    names = {name for name in named if isinstance(name, str) and name}
    return (
        any("tool_responses" in item for item in said)
        or (len(names) > 1 and all(isinstance(name, str) and name for name in named))
    ) and all(isinstance(item.get("role"), str) for item in said)


def _is_by_agent(value: Mapping[str, Any]) -> bool:
    lists = [item for item in value.values() if isinstance(item, list) and item]
    return (
        bool(lists)
        and len(lists) == len(value)
        and all(
            isinstance(item, Mapping) and isinstance(item.get("role"), str) and "content" in item
            for history in lists
            for item in history
        )
        and "messages" not in value
        and "input" not in value
    )


def _thread(state: Any) -> list[Any]:
    """Return the shared thread that the state of a team's manager holds, or an empty list."""
    if not isinstance(state, Mapping):
        return []
    inner = state.get("message_thread")
    if not isinstance(inner, list) and isinstance(state.get("agent_state"), Mapping):
        inner = state["agent_state"].get("message_thread")
    return inner if isinstance(inner, list) else []
