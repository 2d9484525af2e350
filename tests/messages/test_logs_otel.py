"""Spans of the OpenTelemetry GenAI conventions, in the shapes of several years."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lib.messages.logged import LogError
from lib.messages.otel_spans import attributes_of
from tests.messages.logs import read, read_lines, said

ASKED, SAID = "Which way?", "Left."
PARTS = [{"role": "user", "parts": [{"type": "text", "content": ASKED}]}]
ANSWER = [{"role": "assistant", "parts": [{"type": "text", "content": SAID}], "finish_reason": "stop"}]


def span(
    name: str, start: float | None, end: float | None, parent: str = "", events: Any = (), **attributes: Any
) -> dict[str, Any]:
    """A flat span; `gen_ai__agent__name` stands for `gen_ai.agent.name`."""
    plain = {key.replace("__", "."): value for key, value in attributes.items()}
    times = (
        {}
        if start is None
        else {"start_time": f"2026-03-01T10:00:{start:09.6f}Z", "end_time": f"2026-03-01T10:00:{end:09.6f}Z"}
    )
    context = {"trace_id": "0x1", "span_id": name}
    return {
        "name": name,
        "context": context,
        "parent_id": parent or None,
        **times,
        "attributes": plain,
        "events": list(events),
    }


def event(name: str, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "attributes": {key.replace("__", "."): value for key, value in attributes.items()}}


SHAPES: dict[str, dict[str, Any]] = {
    "attributes as text": {
        "gen_ai__input__messages": json.dumps(PARTS),
        "gen_ai__output__messages": json.dumps(ANSWER),
    },
    "attributes as values": {"gen_ai__input__messages": PARTS, "gen_ai__output__messages": ANSWER},
    "one event with both": {
        "events": [
            event(
                "gen_ai.client.inference.operation.details",
                gen_ai__input__messages=json.dumps(PARTS),
                gen_ai__output__messages=json.dumps(ANSWER),
            )
        ]
    },
    "an event a message": {
        "events": [
            event("gen_ai.user.message", content=ASKED),
            event(
                "gen_ai.choice",
                index=0,
                finish_reason="stop",
                message=json.dumps({"role": "assistant", "content": SAID}),
            ),
        ]
    },
    "events of prompt and completion": {
        "events": [
            event("gen_ai.content.prompt", gen_ai__prompt=json.dumps([{"role": "user", "content": ASKED}])),
            event("gen_ai.content.completion", gen_ai__completion=json.dumps([{"role": "assistant", "content": SAID}])),
        ]
    },
    "numbered attributes": {
        "gen_ai__prompt__0__role": "user",
        "gen_ai__prompt__0__content": ASKED,
        "gen_ai__completion__0__content": SAID,
    },
    "numbered messages": {
        "llm__input_messages__0__message__role": "user",
        "llm__input_messages__0__message__content": ASKED,
        "llm__output_messages__0__message__content": SAID,
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_content_reads_the_same(tmp_path: Path, shape: str) -> None:
    usage = {"gen_ai__usage__input_tokens": 5, "gen_ai__usage__output_tokens": 0}
    log = read(tmp_path, [span("chat m", 1, 2, gen_ai__agent__name="guide", **usage, **SHAPES[shape])])
    assert said(log) == [("user", "message", ASKED), ("guide", "message", SAID)]
    assert log.messages[0].receivers == ("guide",) and log.messages[1].receivers == ("user",)
    counted = log.messages[1].usage
    assert counted is not None and (counted.input, counted.output) == (5, 0) and log.messages[0].usage is None


def chat(
    name: str, agent: str, start: float, end: float, read_texts: list[Any], text: str, parent: str = ""
) -> dict[str, Any]:
    """A model call that reads texts, or (sender, text) pairs, and says one."""
    heard = [
        {"role": "user", "parts": [{"type": "text", "content": one if isinstance(one, str) else one[1]}]}
        | ({} if isinstance(one, str) else {"name": one[0]})
        for one in read_texts
    ]
    output = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
    named = {"gen_ai__agent__name": agent, "gen_ai__input__messages": heard, "gen_ai__output__messages": output}
    return span(name, start, end, parent, **named)


def test_names_in_the_history_say_who_spoke_outside_the_trace(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        [chat("1", "b", 1, 2, [("a", "one"), ("c", "two")], "three"), chat("2", "c", 3, 4, ["one", "three"], "four")],
    )
    assert [(m.sender, m.text, m.receivers) for m in log.messages] == [
        ("a", "one", ("b", "c")),
        ("c", "two", ("b",)),
        ("b", "three", ("c",)),
        ("c", "four", ("user",)),
    ]


def test_a_child_span_of_another_agent_is_a_hand_off(tmp_path: Path) -> None:
    """Its task comes from the agent of the span around it, and its answer goes back there."""
    parent = span("invoke_agent lead", 0, 9, gen_ai__agent__name="lead")
    child = span("invoke_agent aide", 1, 5, "invoke_agent lead", gen_ai__agent__name="aide")
    call = chat("chat", "", 2, 4, ["Look it up."], "Found it.", parent="invoke_agent aide")
    log = read(tmp_path, [call, child, parent])  # written as they end
    assert [(m.sender, m.text, m.receivers) for m in log.messages] == [
        ("lead", "Look it up.", ("aide",)),
        ("aide", "Found it.", ("lead",)),
    ]
    assert log.skipped == {"span without message content": 2}


def test_a_hand_off_by_a_tool_in_both_forms(tmp_path: Path) -> None:
    output = [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "transfer_to_aide", "arguments": {"why": "x"}}],
        }
    ]
    said_by_model = span(
        "chat", 1, 2, gen_ai__agent__name="lead", gen_ai__input__messages=PARTS, gen_ai__output__messages=output
    )
    tool = {
        "gen_ai__operation__name": "execute_tool",
        "gen_ai__agent__name": "lead",
        "gen_ai__tool__name": "transfer_to_aide",
    }
    repeated = span("tool 1", 2, 3, **tool, gen_ai__tool__call__id="c1")
    other = {
        **tool,
        "gen_ai__tool__name": "router",
        "gen_ai__handoff__target__agent__name": "clerk",
        "gen_ai__tool__call__result": "ok",
    }
    log = read(tmp_path, [said_by_model, repeated, span("tool 2", 4, 5, **other)])
    handoffs = [(m.receivers, m.text) for m in log.messages if m.kind == "handoff"]
    assert handoffs == [(("aide",), 'transfer_to_aide({"why":"x"})'), (("clerk",), "transfer_to_clerk()")]
    assert ("router", "tool_result", "ok") in said(log)


def test_enclosing_spans_repeat_and_agents_may_say_the_same_words(tmp_path: Path) -> None:
    around = chat("agent", "a", 1, 4, ["go"], "ok")
    inside = chat("model", "a", 2, 3, ["go"], "ok", parent="agent")
    again = chat("later", "b", 5, 6, ["go", ("a", "ok")], "ok")
    last = chat("last", "a", 7, 8, ["go", "ok", ("b", "ok"), "go"], "end")
    log = read(tmp_path, [inside, around, again, last])
    assert said(log) == [
        ("user", "message", "go"),
        ("a", "message", "ok"),
        ("b", "message", "ok"),
        ("user", "message", "go"),
        ("a", "message", "end"),
    ]
    assert log.skipped["message that an enclosed span has too"] == 1


def test_spans_at_one_moment_follow_each_other_and_without_times_the_file_decides(tmp_path: Path) -> None:
    for times in ([(1, 2), (2, 2), (2, 3)], [(None, None)] * 3):
        spans = [
            chat("x", "a", *times[0], ["go"], "one"),
            chat("y", "b", *times[1], ["go", "one"], "two"),
            chat("z", "c", *times[2], ["go", "one", "two"], "three"),
        ]
        log = read(tmp_path, spans)
        assert [message.text for message in log.messages] == ["go", "one", "two", "three"]
        assert log.messages[0].receivers == ("a", "b", "c")


def test_circles_strays_and_copies(tmp_path: Path) -> None:
    first = chat("1", "a", 1, 2, ["go"], "one", parent="2")
    second = chat("2", "b", 3, 4, ["one"], "two", parent="1")
    stray = chat("3", "c", 5, 6, ["two"], "three", parent="gone")
    other = chat("3", "c", 5, 6, ["two"], "another", parent="gone")
    nameless = {"name": "x", "context": {"span_id": ""}, "attributes": {}}
    log = read_lines(tmp_path, first, second, stray, stray, other, nameless)
    assert [message.text for message in log.messages] == ["go", "one", "two", "three"]
    assert log.skipped["span exported twice"] == 1
    assert log.notes["span whose parent is not in the file (taken for a root)"] == 1
    assert [(one.place, one.field) for one in log.problems] == [("line 5", "spanId"), ("line 6", "spanId")]


def test_conversations_by_name_or_by_trace(tmp_path: Path) -> None:
    one, two = chat("1", "a", 1, 2, ["go"], "one"), chat("2", "a", 1, 2, ["go"], "two")
    two["context"] = {"trace_id": "0x2", "span_id": "2"}
    assert list(read(tmp_path, [one, two]).conversations()) == ["0x1", "0x2"]
    for each in (one, two):
        each["attributes"]["gen_ai.conversation.id"] = "c"
    log = read(tmp_path, [one, two])
    assert list(log.conversations()) == ["c"] and len(log.messages) == 3, "the second trace goes on with the first"


def test_spans_without_content_say_what_to_switch_on(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="CAPTURE_MESSAGE_CONTENT=true"):
        read(tmp_path, [span("chat", 1, 2, gen_ai__agent__name="a")])


def test_typed_values_of_otlp_become_plain() -> None:
    listed = {"arrayValue": {"values": [{"intValue": "7"}, {"doubleValue": 0.5}, {"boolValue": False}]}}
    pairs = [
        {"key": "a", "value": listed},
        {"key": "b", "value": {"kvlistValue": {"values": [{"key": "c", "value": {"stringValue": ""}}]}}},
        {"key": "d", "value": {}},
        {"value": {"stringValue": "no key"}},
    ]
    assert attributes_of(pairs) == {"a": [7, 0.5, False], "b": {"c": ""}, "d": None}
