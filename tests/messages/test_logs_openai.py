"""Chat lists, requests and responses of the OpenAI form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.messages.logs import read, read_lines, said


def turn(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


SYSTEM, ASKED, SAID, MORE = (
    turn("system", "Be brief."),
    turn("user", "Hi."),
    turn("assistant", "Hello."),
    turn("user", "Why?"),
)


def test_a_file_of_requests_keeps_each_message_once(tmp_path: Path) -> None:
    answer = {
        "choices": [{"message": SAID}, {"message": turn("assistant", "Hey.")}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    }
    log = read_lines(
        tmp_path,
        {"model": "m", "messages": [SYSTEM, ASKED], "response": answer},
        {"model": "m", "messages": [SYSTEM, ASKED, SAID, MORE]},
        {"model": "m", "messages": [turn("system", "You are another agent."), ASKED]},
    )
    talks = log.conversations()
    assert [[message.text for message in talk] for talk in talks.values()] == [
        ["Be brief.", "Hi.", "Hello.", "Why?"],
        ["You are another agent.", "Hi."],
    ]
    usage = log.messages[2].usage
    assert usage is not None and (usage.input, usage.output) == (7, 2)
    assert log.skipped == {"choice beyond the first": 1, "message repeated from an earlier request": 3}
    assert log.messages[0].extra["request"] == {"model": "m"}, "what stands around the messages is kept"


def test_batch_files_and_named_conversations(tmp_path: Path) -> None:
    batch = [
        {"custom_id": str(n), "method": "POST", "body": {"messages": [turn("user", f"question {n}")]}} for n in range(2)
    ]
    assert len(read_lines(tmp_path, *batch).conversations()) == 2
    named = [
        turn("user", "a", thread_id="t1"),
        turn("user", "b", thread_id="t2"),
        turn("assistant", "c", thread_id="t1"),
    ]
    talks = read_lines(tmp_path, *named).conversations()
    assert {name: [message.text for message in talk] for name, talk in talks.items()} == {"t1": ["a", "c"], "t2": ["b"]}


def test_the_same_chat_twice_is_counted_and_a_retry_is_its_own(tmp_path: Path) -> None:
    log = read_lines(tmp_path, {"messages": [ASKED, SAID]}, {"messages": [ASKED, SAID]}, {"messages": [ASKED]})
    assert [len(talk) for talk in log.conversations().values()] == [2, 1]
    assert log.skipped == {"message repeated from an earlier request": 2}


def test_tool_calls_parts_and_refusals(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "transfer_to_billing", "arguments": '{"why":"money"}'}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    log = read(
        tmp_path,
        [
            turn("user", [{"type": "text", "text": "See"}, image, {"type": "text", "text": "this."}]),
            turn("assistant", None, name="front", tool_calls=[call]),
            turn("tool", "done", tool_call_id="c1"),
            turn("tool", "lost", tool_call_id="c9"),
            turn("assistant", None, refusal="I cannot."),
            turn("assistant", "x", name="front", recipient="billing"),
        ],
    )
    assert said(log) == [
        ("user", "message", "See\nthis."),
        ("front", "handoff", 'transfer_to_billing({"why":"money"})'),
        ("transfer_to_billing", "tool_result", "done"),
        ("tool", "tool_result", "lost"),
        ("assistant", "message", "I cannot."),
        ("front", "message", "x"),
    ]
    assert log.messages[0].extra["parts"] == [image]
    assert log.messages[1].receivers == ("billing",) and log.messages[5].receivers == ("billing",)
    assert log.notes["tool result without the call that it answers"] == 1


def test_items_of_the_responses_interface(tmp_path: Path) -> None:
    output = [
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "name": "search", "arguments": "{}", "call_id": "c1"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Three."}]},
    ]
    log = read(tmp_path, {"model": "m", "instructions": "Be brief.", "input": "How many?", "output": output})
    assert said(log) == [
        ("system", "system", "Be brief."),
        ("user", "message", "How many?"),
        ("assistant", "tool_call", "search({})"),
        ("assistant", "message", "Three."),
    ]
    assert log.skipped == {"reasoning item (not said to anybody)": 1}


def test_a_bad_message_names_its_line_and_field(tmp_path: Path) -> None:
    log = read_lines(tmp_path, {"messages": [ASKED, {"role": 3, "content": "x"}, {"role": "user"}, "hello"]}, SAID)
    assert [(one.place, one.field) for one in log.problems] == [
        ("line 1, message 2", "role"),
        ("line 1, message 3", "content"),
        ("line 1, message 4", ""),
    ]
    assert "not int '3'" in log.problems[0].reason and [m.text for m in log.messages] == ["Hi.", "Hello."]
