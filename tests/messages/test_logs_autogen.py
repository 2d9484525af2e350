"""Dumps of AutoGen 0.2 and 0.4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.messages.logs import read, read_lines, said


def typed(kind: str, source: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "source": source, "content": content, "models_usage": None, "metadata": {}, **more}


def test_a_handoff_goes_to_its_target_and_a_thought_to_nobody(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        [
            typed("TextMessage", "user", "Please book a flight."),
            typed("HandoffMessage", "planner", "Over to you.", target="booker", context=[]),
            typed("ThoughtEvent", "booker", "I should look it up."),
            typed("StopMessage", "booker", "Done."),
        ],
    )
    assert [message.kind for message in log.messages] == ["message", "handoff", "event", "message"]
    assert log.messages[1].receivers == ("booker",) and not log.messages[1].broadcast
    assert log.messages[2].receivers == ()
    assert set(log.messages[3].receivers) == {"user", "planner"} and log.messages[3].broadcast


def test_tool_calls_and_results_find_each_other(tmp_path: Path) -> None:
    call = {"id": "c1", "name": "search", "arguments": '{"q":"x"}'}
    result = {"content": "three hits", "name": "search", "call_id": "c1", "is_error": False}
    log = read(
        tmp_path,
        {
            "messages": [
                typed(
                    "ToolCallRequestEvent",
                    "scout",
                    [call, {"id": "c2", "name": "transfer_to_clerk", "arguments": "{}"}],
                ),
                typed("ToolCallExecutionEvent", "scout", [result]),
                typed("ToolCallSummaryMessage", "scout", "three hits"),
            ],
            "stop_reason": "done",
        },
    )
    assert said(log) == [
        ("scout", "tool_call", 'search({"q":"x"})'),
        ("scout", "handoff", "transfer_to_clerk({})"),
        ("search", "tool_result", "three hits"),
        ("scout", "message", "three hits"),
    ]
    assert log.messages[1].receivers == ("clerk",) and log.messages[2].receivers == ("scout",)
    assert log.messages[2].extra["is_error"] is False


def test_parts_without_text_and_structured_contents_are_kept(tmp_path: Path) -> None:
    image = {"data": "aGk="}
    log = read(
        tmp_path,
        [
            typed("MultiModalMessage", "user", ["What is this?", image]),
            typed("StructuredMessage[Verdict]", "judge", {"label": "cat", "sure": True}),
        ],
    )
    assert [message.text for message in log.messages] == ["What is this?", '{"label":"cat","sure":true}']
    assert log.messages[0].extra["parts"] == [image]
    assert log.notes == {"part of type 'dict' without text (kept in extra)": 1}


def test_the_state_of_a_team_holds_the_thread_once(tmp_path: Path) -> None:
    thread = [typed("TextMessage", "a", "one"), typed("TextMessage", "b", "two")]
    states = {
        "Manager/1": {"message_thread": thread, "type": "RoundRobinManagerState"},
        "a/1": {"agent_state": {"llm_context": {}}},
    }
    log = read(tmp_path, {"type": "TeamState", "agent_states": states})
    assert (log.format, [message.text for message in log.messages]) == ("autogen", ["one", "two"])
    assert sum(log.skipped.values()) == 1


def test_histories_of_0_2(tmp_path: Path) -> None:
    call = {"id": "c", "function": {"name": "add", "arguments": "{}"}}
    response = {"tool_call_id": "c", "role": "tool", "content": "4"}
    history = [
        {"content": "What is 2 + 2?", "role": "assistant", "name": "user_proxy"},
        {"content": None, "role": "assistant", "name": "solver", "tool_calls": [call]},
        {"content": "4", "role": "tool", "name": "user_proxy", "tool_responses": [response]},
        {"content": "It is 4.", "role": "user", "name": "solver"},
    ]
    result = read(tmp_path, {"chat_id": None, "chat_history": history, "summary": "4", "cost": {}})
    assert said(result) == [
        ("user_proxy", "message", "What is 2 + 2?"),
        ("solver", "tool_call", "add({})"),
        ("add", "tool_result", "4"),
        ("solver", "message", "It is 4."),
    ]
    assert result.messages[0].receivers == ("solver",), "two agents: the other one heard it"
    assert said(read(tmp_path, history)) == said(result)
    by_agent = read(tmp_path, {"solver": history, "critic": history[:1]})
    assert {name: len(group) for name, group in by_agent.conversations().items()} == {"solver": 4, "critic": 1}


def test_one_message_a_line_is_one_conversation(tmp_path: Path) -> None:
    log = read_lines(tmp_path, typed("TextMessage", "a", "one"), typed("TextMessage", "b", "two"))
    assert list(log.conversations()) == [""] and log.messages[0].receivers == ("b",)
