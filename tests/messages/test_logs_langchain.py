"""Message lists of LangChain and LangGraph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.messages.logs import read, read_lines, said

CALL = {"name": "search", "args": {"q": "x"}, "id": "c1", "type": "tool_call"}
TALK: list[tuple[str, dict[str, Any]]] = [
    ("human", {"content": "Find x."}),
    (
        "ai",
        {
            "content": "",
            "name": "scout",
            "tool_calls": [CALL],
            "usage_metadata": {"input_tokens": 9, "output_tokens": 4},
        },
    ),
    ("tool", {"content": "three hits", "tool_call_id": "c1"}),
    ("ai", {"content": [{"type": "text", "text": "There are"}, {"type": "text", "text": "three."}], "name": "scout"}),
]
READ = [
    ("user", "message", "Find x."),
    ("scout", "tool_call", 'search({"q":"x"})'),
    ("search", "tool_result", "three hits"),
    ("scout", "message", "There are\nthree."),
]
CLASSES = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}


def as_dict(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "data": {"type": kind, **data}}


def as_constructor(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    path = ["langchain", "schema", "messages", CLASSES[kind]]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": {"type": kind, **data}}


def as_plain(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, **data}


@pytest.mark.parametrize("form", [as_dict, as_constructor, as_plain])
@pytest.mark.parametrize("holder", ["list", "state", "values"])
def test_every_form_of_a_message_reads_the_same(tmp_path: Path, form: Any, holder: str) -> None:
    listed = [form(kind, data) for kind, data in TALK]
    value: Any = {
        "list": listed,
        "state": {"messages": listed, "next": []},
        "values": {"values": {"messages": listed}},
    }[holder]
    log = read(tmp_path, value)
    assert log.format == "langchain" and said(log) == READ and log.problems == ()
    usage = log.messages[1].usage
    assert usage is not None and (usage.input, usage.output) == (9, 4)
    assert log.messages[2].receivers == ("scout",)


def test_pairs_and_chat_dicts_are_messages_too(tmp_path: Path) -> None:
    log = read(
        tmp_path, [["system", "Be brief."], ["human", "Hi."], {"role": "assistant", "content": "Hello."}], "langchain"
    )
    assert said(log) == [
        ("system", "system", "Be brief."),
        ("user", "message", "Hi."),
        ("assistant", "message", "Hello."),
    ]


def test_a_node_of_a_graph_speaks_where_a_message_has_no_name(tmp_path: Path) -> None:
    updates = [
        {"planner": {"messages": [{"type": "ai", "content": "Plan.", "id": "1"}]}},
        {"writer": {"messages": [{"type": "ai", "content": "Text.", "id": "2", "name": "editor"}]}},
    ]
    assert said(read_lines(tmp_path, *updates)) == [("planner", "message", "Plan."), ("editor", "message", "Text.")]


def test_a_stream_of_states_keeps_each_message_once(tmp_path: Path) -> None:
    messages = [{"type": "human", "content": str(n), "id": f"m{n}"} for n in range(3)]
    log = read_lines(tmp_path, *({"messages": messages[: n + 1], "thread_id": "t"} for n in range(3)))
    assert [message.text for message in log.messages] == ["0", "1", "2"]
    assert log.skipped == {"message repeated from an earlier state": 3} and list(log.conversations()) == ["t"]


def test_equal_words_without_ids_in_one_list_are_two_messages(tmp_path: Path) -> None:
    log = read(tmp_path, [{"type": "human", "content": "ok"}, {"type": "human", "content": "ok"}])
    assert len(log.messages) == 2 and log.skipped == {}


def test_calls_named_twice_broken_calls_and_removals(tmp_path: Path) -> None:
    block = {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "x"}}
    broken = {"name": "search", "args": "{", "id": "c2", "error": "not JSON"}
    log = read(
        tmp_path,
        [
            {"type": "ai", "content": [block], "tool_calls": [CALL], "invalid_tool_calls": [broken]},
            {"type": "remove", "content": "", "id": "m1"},
            {"type": "ai"},
        ],
    )
    assert [message.kind for message in log.messages] == ["tool_call"]
    assert log.skipped == {"removal of an earlier message": 1}
    assert log.notes == {"tool call that could not be parsed (kept in extra)": 1}
    assert [(one.place, one.field) for one in log.problems] == [("message 3", "content")]
