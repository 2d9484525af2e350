"""Logs of other systems: one conversation in four formats, hostile files, and counts that add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.messages.import_logs import FORMATS, import_table, message_table, read_log
from lib.messages.logged import ImportedLog, LogError, read_time
from lib.runs.layout import checkout
from tests.messages.strategies import glued_text

EXAMPLES = checkout().root / "data" / "examples" / "logs"


def example(name: str) -> ImportedLog:
    return read_log(EXAMPLES / f"checkout_incident.{name}.json")


def lines(path: Path, *values: Any) -> Path:
    """Write JSON Lines; a text is written as it is."""
    rows = [value if isinstance(value, str) else json.dumps(value) for value in values]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def chat(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "name": f"agent_{place % 3}", "content": text} for place, text in enumerate(texts)]


# ------------------------------------------------------------------------------------------------------------ the example


@pytest.mark.parametrize("name", FORMATS)
def test_the_example_is_the_same_conversation_in_every_format(name: str) -> None:
    log, first = example(name), example("autogen")
    assert log.format == name and log.problems == ()
    facts = [(m.sender, m.kind, m.text, m.time, m.usage) for m in log.messages]
    assert facts == [(m.sender, m.kind, m.text, m.time, m.usage) for m in first.messages]
    assert [m.kind for m in log.messages].count("tool_result") == 1
    assert "☕ – viele Grüße von Zoë aus Köln" in log.messages[7].text
    assert [m.order for m in log.messages if m.usage is None] == [0, 4, 7], "user, tool, and one that was not counted"


def test_spans_say_who_heard_a_message_and_chat_lists_do_not() -> None:
    assert not any(message.broadcast for message in example("otel").messages)
    spans = example("otel").messages
    assert set(spans[2].receivers) == {"coordinator", "metrics", "deploys"}
    assert spans[10].receivers == ("coordinator",), "only the coordinator spoke after it"
    assert spans[11].receivers == ("user",), "nobody read the last word: it goes back to the user"
    chats = example("openai").messages
    assert chats[2].broadcast and set(chats[2].receivers) == {"user", "coordinator", "metrics", "deploys"}
    assert chats[4].receivers == ("metrics",) and not chats[4].broadcast, "a tool answers who called it"


def test_unknown_fields_stay_in_extra(tmp_path: Path) -> None:
    record = {"role": "user", "content": "hello", "mood": {"level": 3}, "cost": 0.25}
    (message,) = read_log(lines(tmp_path / "log.jsonl", record)).messages
    assert message.extra == {"role": "user", "mood": {"level": 3}, "cost": 0.25}


def test_every_record_is_a_message_or_counted(tmp_path: Path) -> None:
    typed = [
        {"type": "TextMessage", "source": "a", "content": "one"},
        {"type": "ModelClientStreamingChunkEvent", "source": "a", "content": "on"},
        {"type": "ThoughtEvent", "source": "a", "content": "thinking"},
        {"type": "TextMessage", "content": "nobody", "models_usage": None},
        {"type": "TextMessage", "source": "b", "models_usage": None},
        17,
    ]
    log = read_log(lines(tmp_path / "log.json", json.dumps(typed)))
    assert len(log.messages) + sum(log.skipped.values()) + len(log.problems) == len(typed)
    assert [(problem.place, problem.field) for problem in log.problems] == [
        ("message 4", "source"),
        ("message 5", "content"),
        ("message 6", ""),
    ]
    table = import_table(log)
    assert table["count"].sum() == len(typed)
    assert "message 4, field 'source'" in table["note"].iloc[-1]


# ------------------------------------------------------------------------------------------------------- hostile files


def test_bad_lines_are_reported_with_their_numbers_and_the_rest_is_read(tmp_path: Path) -> None:
    """Public fault report 34: a torn last line, and half a UTF-8 character, lose themselves alone."""
    path = tmp_path / "log.jsonl"
    good = [json.dumps(message) for message in chat("one", "two", "three")]
    path.write_bytes(
        "\n".join([good[0], "", "{'single': 1}", good[1]]).encode()
        + b'\n{"role": "\xf0"}\n'
        + good[2].encode()
        + b'\n{"role": "us'
    )
    log = read_log(path)
    assert [message.text for message in log.messages] == ["one", "two", "three"]
    assert [message.place for message in log.messages] == ["line 1", "line 4", "line 6"]
    assert [problem.place for problem in log.problems] == ["line 3", "line 5", "line 7"]
    assert "utf-8" in log.problems[1].reason and "column" in log.problems[2].reason
    with pytest.raises(LogError, match="line 3: not JSON at column 2"):
        read_log(path, strict=True)


def test_a_first_line_that_is_none_does_not_hide_the_json_lines(tmp_path: Path) -> None:
    path = lines(tmp_path / "log.txt", "started at 10:00", *chat("one", "two", "three"))
    log = read_log(path)
    assert len(log.messages) == 3 and [problem.place for problem in log.problems] == ["line 1"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("as_lines", [True, False])
def test_byte_order_marks(tmp_path: Path, encoding: str, as_lines: bool) -> None:
    """Shells write UTF-16; in it the byte of a line feed also occurs inside other characters."""
    messages = chat("Ċ ਊ Zoë", "line\u2028separator")
    text = (
        "\n".join(json.dumps(m, ensure_ascii=False) for m in messages) if as_lines else json.dumps(messages, indent=1)
    )
    path = tmp_path / "log.json"
    path.write_bytes(text.encode(encoding))
    assert [message.text for message in read_log(path).messages] == ["Ċ ਊ Zoë", "line\u2028separator"]


def test_one_message_a_line_inside_one_array_is_no_json_lines(tmp_path: Path) -> None:
    rows = ",\n".join(json.dumps(message) for message in chat("one", "two"))
    path = tmp_path / "log.jsonl"
    path.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    log = read_log(path)
    assert len(log.messages) == 2 and log.problems == ()


def test_surrogates_nul_and_empty_contents(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"role": "user", "content": "half \\ud83d of", "\\udc00": "\\ud800"}\n'
        '{"role": "user", "content": "whole \\ud83d\\ude00, nul \\u0000"}\n'
        '{"role": "assistant", "content": ""}\n{"role": "assistant", "content": null}\n'
    )
    log = read_log(path)
    assert [message.text for message in log.messages] == ["half ? of", "whole 😀, nul \x00", "", ""]
    assert json.loads(log.messages[0].extra["text_escaped"]) == "half \ud83d of", "the original is kept"
    json.dumps(log.messages[0].extra, ensure_ascii=False).encode()
    assert log.notes["message without text"] == 2
    message_table(log).to_parquet(tmp_path / "messages.parquet")


def test_doubled_ids_and_times_that_run_backwards(tmp_path: Path) -> None:
    times = ["2026-03-01T10:00:05Z", "2026-03-01T10:00:01+00:00", "soon", "2026-03-01T12:00:06+02:00"]
    records = [
        {"type": "TextMessage", "id": "x", "source": "a", "content": str(place), "created_at": moment}
        for place, moment in enumerate(times)
    ]
    log = read_log(lines(tmp_path / "log.jsonl", *records))
    assert [message.text for message in log.messages] == ["0", "1", "2", "3"], "the order of the log is kept"
    assert len({message.message_id for message in log.messages}) == 4 and log.messages[1].message_id == "x#2"
    assert log.messages[2].time is None and log.messages[2].extra["time"] == "soon"
    assert log.messages[3].time == log.messages[0].time + 1  # type: ignore[operator]
    assert sorted(log.notes.values()) == [1, 1, 3]


def test_usage_that_is_missing_or_zero_is_null(tmp_path: Path) -> None:
    """Public fault report 25: a prompt of 0 tokens was never asked; it is a count that is missing."""
    counts = [None, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": 9, "completion_tokens": 0}, {}]
    records = [{"type": "TextMessage", "source": "a", "content": "x", "models_usage": usage} for usage in counts]
    log = read_log(lines(tmp_path / "log.jsonl", *records))
    usages = [message.usage for message in log.messages]
    assert usages[0] is None and usages[1] is None and usages[3] is None
    assert usages[2] is not None and (usages[2].input, usages[2].output, usages[2].cached) == (9, 0, None)


def test_markup_and_deep_nesting_are_text(tmp_path: Path) -> None:
    """Public fault report 46: what looks like markup is kept as it is; it is escaped where it is shown."""
    deep = "[" * 100_000
    path = lines(tmp_path / "log.jsonl", *chat("<script>alert(1)</script>"), deep)
    log = read_log(path)
    assert log.messages[0].text == "<script>alert(1)</script>"
    assert log.problems[0].place == "line 2"


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the file is empty"),
        ("\ufeff  \n", "the file is empty"),
        ("hello there", "neither JSON nor JSON Lines: line 1, column 1"),
        ('[{"role": "user", "content": "cut of', "line 1, column 30"),
        ('{"query": "q", "response": "r"}', "no format that is known; the file holds an object with query, response"),
        ("[1, 2, 3]", "a list of 3, first int '1'"),
        ("[]", "the file holds a list of 0"),
        ('{"messages": []}', "holds no message"),
    ],
)
def test_an_unknown_file_says_what_was_seen(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "log.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(LogError) as raised:
        read_log(path)
    assert said in str(raised.value) and str(path) in str(raised.value)
    if "known" in said:
        assert all(f"{name}: " in str(raised.value) for name in FORMATS)


def test_wrong_formats_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no such file"):
        read_log(tmp_path / "none.json")
    path = lines(tmp_path / "log.jsonl", *chat("one"))
    with pytest.raises(LogError, match="format 'crewai' is unknown: use auto or one of autogen, langchain"):
        read_log(path, "crewai")  # type: ignore[arg-type]
    with pytest.raises(LogError, match="read as otel, but it holds no message. line 1: no spans: an object with role"):
        read_log(path, "otel")


# -------------------------------------------------------------------------------------------------------- properties


@settings(max_examples=8, deadline=None)
@given(st.lists(glued_text, min_size=2, max_size=5))
def test_texts_survive_every_chat_format(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("logs")
    forms: dict[str, list[Any]] = {
        "openai": [{"role": "user", "content": text} for text in texts],
        "autogen": [{"type": "TextMessage", "source": "a", "content": text} for text in texts],
        "langchain": [{"type": "human", "data": {"content": text}} for text in texts],
    }
    for name, records in forms.items():
        whole = folder / "whole.json"
        whole.write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")
        for path in (whole, lines(folder / "lines.jsonl", *records)):
            log = read_log(path)
            assert (log.format, [message.text for message in log.messages]) == (name, texts)
            assert len({message.message_id for message in log.messages}) == len(texts)


KEYS = st.sampled_from(
    [
        "role",
        "content",
        "type",
        "source",
        "messages",
        "data",
        "name",
        "parts",
        "tool_calls",
        "spans",
        "resourceSpans",
        "attributes",
        "spanId",
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["ai", "user", "TextMessage"])
)
ANY_JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@settings(max_examples=25, deadline=None)
@given(ANY_JSON, st.sampled_from(FORMATS))
def test_any_json_is_read_or_refused_in_words(tmp_path_factory: pytest.TempPathFactory, value: Any, name: Any) -> None:
    path = tmp_path_factory.mktemp("any") / "log.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    for format in ("auto", name):
        try:
            log = read_log(path, format)
        except LogError as error:
            assert str(path) in str(error)
        else:
            assert log.messages and all(isinstance(message.text, str) for message in log.messages)


def test_times_in_every_unit() -> None:
    seconds = 1772359200.0
    for factor in (1, 1e3, 1e6, 1e9):
        assert read_time(seconds * factor) == seconds and read_time(str(int(seconds * factor))) == seconds
    for nonsense in (None, True, "", "yesterday", float("nan"), float("inf"), -5, 0, [], {}):
        assert read_time(nonsense) is None
