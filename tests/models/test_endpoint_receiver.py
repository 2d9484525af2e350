"""A receiver behind a server that fails in every way, and behind real servers."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.__main__ import main
from lib.models import Prompt, Receiver, Turn, open_receiver
from lib.models.endpoint_health import examine
from lib.models.endpoint_receiver import EndpointReceiver
from lib.models.endpoint_reply import read_reply, schema_fault
from lib.models.endpoint_scores import NoLogProbabilitiesError
from lib.models.endpoint_servers import SERVERS
from lib.models.endpoint_settings import EndpointError, read_settings
from lib.models.random_models import chat_model, chat_tokenizer
from lib.models.transformers_receiver import TransformersReceiver
from lib.runs.check_endpoint import check_endpoint, compare_replies, question_prompts
from lib.runs.params import load_profile, parse_cell, resolve, split_overrides
from lib.runs.store import Store
from lib.runs.stored import StoredReceiver
from lib.sources import locate
from tests.models.chat_server import MODEL, Answer, Body, ChatServer, chat, chat_server

KEY = "sk-very-secret-0123456789"
SCHEMA = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]}


def ask(text: str = "Is it so?") -> Prompt:
    return Prompt((Turn("system", "Be short."), Turn("user", text)))


def opened(at: ChatServer, **settings: object) -> EndpointReceiver:
    return EndpointReceiver({"url": at.url, "max_retries": 1, **settings})


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAB_ENDPOINT_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own waits between tries, hundred times shorter; Retry-After is as long as it says."""
    import openai._base_client as client

    monkeypatch.setattr(client, "INITIAL_RETRY_DELAY", 0.005)


# ---------------------------------------------------------------------------------------------------------------- names and settings


def test_a_name_says_server_model_and_settings() -> None:
    name = "endpoint:http://127.0.0.1:8000/v1/#Qwen/Qwen2.5-7B-Instruct#timeout_s=30#max_concurrency=4#schema=check"
    settings = read_settings(name + '#extra={"chat_template_kwargs": {"enable_thinking": false}}')
    assert (settings.url, settings.model) == ("http://127.0.0.1:8000/v1", "Qwen/Qwen2.5-7B-Instruct")
    assert (settings.timeout_s, settings.max_concurrency, settings.schema) == (30.0, 4, "check")
    assert settings.extra == {"chat_template_kwargs": {"enable_thinking": False}}
    assert settings.root == "http://127.0.0.1:8000" and settings.loopback


def test_a_name_is_one_text_for_yaml_the_command_line_and_lists(tmp_path: Path) -> None:
    name = "endpoint:http://127.0.0.1:8000/v1#owner/model:7b#max_concurrency=4"
    specs = {
        spec.name: spec
        for spec in parse_cell('receiver: str = "scripted"\nreceivers: list[str] = []', "a cell, cell 1")
    }
    (tmp_path / "one.yaml").write_text(f"receiver: {name}\nreceivers: [{name}, scripted]\n", encoding="utf-8")
    from_file = resolve(specs, load_profile(tmp_path / "one.yaml"))
    typed = resolve(specs, {}, split_overrides([f"receiver={name}", f"receivers={name},scripted"]))
    assert from_file == typed == {"receiver": name, "receivers": [name, "scripted"]}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("endpoint:127.0.0.1:8000/v1", "is no address; write it as http://"),
        ("endpoint:http://h:port/v1#m", "the address cannot be read"),
        ("endpoint:http://h/v1/chat/completions#m", "give what stands before it, http://h/v1$"),
        ("endpoint:http://h/v1#m#timeout=5", "unknown setting 'timeout'; there are: url, model"),
        ("endpoint:http://h/v1#m#timeout_s=soon", "endpoint: .*timeout_s"),
        ("endpoint:http://h/v1#m#timeout_s=0", "timeout_s=0.0; it must be at least"),
        ("endpoint:http://h/v1#m#max_concurrency=0", "max_concurrency=0; it must be at least 1"),
        ("endpoint:http://h/v1#m#check", "'check' is no setting; write name=value"),
        ("endpoint:http://h/v1#m#extra=[", "extra is no JSON object"),
        ("endpoint:http://h/v1#m#server=vlm", "server"),
    ],
)
def test_a_wrong_name_is_refused_with_the_fix(name: str, reason: str) -> None:
    with pytest.raises(EndpointError, match=reason):
        read_settings(name)


@pytest.mark.parametrize(
    "name",
    [
        f"endpoint:http://user:{KEY}@h/v1#m",
        f"endpoint:http://h/v1?key={KEY}#m",
        f"endpoint:http://h/v1#m#api_key={KEY}",
        f'endpoint:http://h/v1#m#extra={{"api_key": "{KEY}"}}',
    ],
)
def test_a_key_in_a_name_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(EndpointError, match="LAB_ENDPOINT_KEY") as refused:
        read_settings(name)
    assert KEY not in str(refused.value)


def test_open_receiver_takes_the_name_and_loads_neither_torch_nor_the_client_before_it_asks() -> None:
    with chat_server(lambda place, body: Answer(chat())) as server:
        code = (
            f"import sys; from lib.models import open_receiver; one = open_receiver('endpoint:{server.url}'); "
            "sys.exit('torch' in sys.modules or 'openai' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", code]).returncode == 0
        receiver = open_receiver(f"endpoint:{server.url}#{MODEL}")
        assert isinstance(receiver, Receiver) and isinstance(receiver, EndpointReceiver)
        with pytest.raises(ValueError, match="exact and revision are of models on this machine"):
            open_receiver(f"endpoint:{server.url}", exact=True)


# ------------------------------------------------------------------------------------------------------------------------ health


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_no_server_is_named_with_a_command_that_starts_one() -> None:
    with pytest.raises(EndpointError, match="no server answers at http://127.0.0.1:.*llama-server -m MODEL.gguf"):
        EndpointReceiver(f"endpoint:http://127.0.0.1:{closed_port()}/v1#m#server=llamacpp")


def test_a_server_that_says_nothing_is_not_called_absent() -> None:
    """llama-cpp-python answers no route while its model is at work."""

    def slow(body: Body) -> Answer:
        time.sleep(0.6)
        return Answer({"tokens": [1]})

    with chat_server(lambda place, body: Answer(chat()), routes={"/tokenize": slow}) as server:
        receiver = opened(server, server="vllm", timeout_s=0.2)
        with pytest.raises(EndpointError, match="/tokenize: a server is there but said nothing for 0.2 s"):
            receiver.count_tokens(["one"])


def test_a_wrong_path_is_named_with_the_right_one() -> None:
    with chat_server(lambda place, body: Answer(chat())) as server:
        bare = server.url.removesuffix("/v1")
        with pytest.raises(EndpointError, match=f"no /models under this path; it lies under {server.url}"):
            EndpointReceiver(f"endpoint:{bare}#{MODEL}")
    with (
        chat_server(lambda place, body: Answer(chat()), prefix="/deep/api") as server,
        pytest.raises(EndpointError, match="most servers have it under /v1"),
    ):
        EndpointReceiver(f"endpoint:{server.url.removesuffix('/deep/api')}/v1#{MODEL}")


def test_an_unknown_model_is_named_with_those_there_are() -> None:
    models = {"data": [{"id": "llama3.2:latest"}, {"id": "qwen3:4b"}]}
    with chat_server(lambda place, body: Answer(chat()), models=models) as server:
        with pytest.raises(
            EndpointError, match=r"no model 'qwen3:4'; did you mean 'qwen3:4b'\? The server has: llama3"
        ):
            opened(server, model="qwen3:4")
        with pytest.raises(
            EndpointError, match="name the model behind a '#'; the server has: llama3.2:latest, qwen3:4b"
        ):
            opened(server)
        assert opened(server, model="llama3.2").served.model == "llama3.2:latest"


@pytest.mark.parametrize(
    "body", [{"data": "models"}, {"models": []}, [1], b"<html>hello</html>", {"data": [{"name": 1}]}]
)
def test_something_else_than_a_list_of_models_is_no_server(body: object) -> None:
    with (
        chat_server(lambda place, body: Answer(chat()), models=Answer(body)) as server,
        pytest.raises(EndpointError, match="is it an OpenAI-compatible server"),
    ):
        opened(server)


def test_kinds_of_servers_are_recognised() -> None:
    def kind(owner: str = "somebody", **routes: Answer) -> str:
        named = {path: (lambda body, found=found: found) for path, found in routes.items()}
        with chat_server(lambda place, body: Answer(chat()), owner=owner, routes=named) as server:
            served = examine(read_settings({"url": server.url}))
            return f"{served.kind} {served.version}".strip()

    assert kind("vllm", **{"/version": Answer({"version": "0.11.2"})}) == "vllm 0.11.2"
    assert kind("llamacpp", **{"/props": Answer({"build_info": "b6900"})}) == "llamacpp b6900"
    assert (kind("sglang"), kind("me"), kind()) == ("sglang", "llama-cpp-python", "other")
    assert (
        kind("library", **{"/": Answer(b"Ollama is running"), "/api/version": Answer({"version": "0.12"})})
        == "ollama 0.12"
    )
    assert kind(**{"/openapi.json": Answer({"paths": {"/load_model": {}}})}) == "transformers"


# ------------------------------------------------------------------------------------------------------------------------ replies


def test_turns_go_as_messages_and_replies_keep_the_order_of_prompts() -> None:
    def echo(place: int, body: Body) -> Answer:
        said = body["messages"][-1]["content"]
        return Answer(chat(f"re: {said}"), seconds=0.06 - 0.01 * int(said.split()[-1]))  # the last is answered first

    prompts = [ask(f"question {i}") for i in range(6)]
    with chat_server(echo) as server:
        replies = opened(server, max_concurrency=6).reply([*prompts, prompts[0]], max_tokens=9)
        assert [reply.text for reply in replies] == [f"re: question {i}" for i in (*range(6), 0)]
        assert len(server.asked) == 6  # the repeated prompt was asked once
        (first,) = [body for body in server.asked if body["messages"][-1]["content"] == "question 0"]
    assert first["messages"] == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "question 0"}]
    assert (first["model"], first["max_tokens"], first["temperature"], first["top_p"]) == (MODEL, 9, 0.0, 1.0)
    assert "seed" not in first and "stop" not in first and "response_format" not in first
    assert all((reply.prompt_tokens, reply.new_tokens, reply.finish) == (7, 2, "stop") for reply in replies)
    assert all(reply.seconds > 0 and reply.token_ids == () for reply in replies)


@pytest.mark.parametrize("bound", [1, 3])
def test_no_more_requests_at_once_than_allowed(bound: int) -> None:
    with chat_server(lambda place, body: Answer(chat(), seconds=0.03)) as server:
        opened(server, max_concurrency=bound).reply([ask(f"question {i}") for i in range(9)])
        assert server.most == bound and len(server.asked) == 9


def test_samples_are_seeded_by_name_and_stand_together() -> None:
    with chat_server(lambda place, body: Answer(chat(str(body.get("seed"))))) as server:
        receiver = opened(server)
        texts = [reply.text for reply in receiver.reply([ask("a"), ask("b")], temperature=0.7, samples=3)]
        again = [reply.text for reply in receiver.reply([ask("b")], temperature=0.7, samples=3)]
        assert len(set(texts)) == 6 and texts[3:] == again and all(0 <= int(text) < 2**31 for text in texts)
        greedy = receiver.reply([ask("a")], samples=3)
    assert [reply.text for reply in greedy] == ["None"] * 3


def test_unicode_survives_both_ways() -> None:
    text = "Zürich, naïve — Привет 你好 🛳️ e\u0301 \u202e \x00"
    with chat_server(lambda place, body: Answer(chat(body["messages"][-1]["content"]))) as server:
        assert opened(server).reply([ask(text)])[0].text == text


def test_a_full_server_is_asked_again_after_what_it_says() -> None:
    def full(place: int, body: Body) -> Answer:
        return Answer({"error": {"message": "busy"}}, 429, {"Retry-After": "0.3"}) if place == 0 else Answer(chat())

    with chat_server(full) as server:
        receiver = opened(server)
        started = time.perf_counter()
        (reply,) = receiver.reply([ask()])
        assert reply.text == "yes" and time.perf_counter() - started >= 0.3
        assert len(server.asked) == 2 and receiver.tally["retries"] == 1


def test_a_wait_beyond_two_minutes_is_not_waited_for() -> None:
    with chat_server(
        lambda place, body: Answer({"error": {"message": "busy"}}, 429, {"Retry-After": "3600"})
    ) as server:
        (reply,) = opened(server, max_retries=4).reply([ask()])
        assert reply.finish == "error" and "HTTP 429: busy" in str(reply.error) and len(server.asked) == 1


def test_a_failing_server_is_asked_again_and_then_given_up() -> None:
    def mends(place: int, body: Body) -> Answer:
        return Answer({"error": "out of memory"}, 500) if place < 2 else Answer(chat())

    with chat_server(mends) as server:
        assert opened(server, max_retries=2).reply([ask()])[0].text == "yes"
    with chat_server(lambda place, body: Answer(b"oh no", 500)) as server:
        receiver = opened(server, max_retries=2)
        (reply,) = receiver.reply([ask()])
        assert (reply.text, reply.finish, reply.prompt_tokens, reply.new_tokens) == ("", "error", None, None)
        assert "HTTP 500" in str(reply.error) and "3 tries" in str(reply.error) and len(server.asked) == 3
        assert receiver.tally["failed"] == 1


def test_one_prompt_that_fails_costs_no_other() -> None:
    def long(place: int, body: Body) -> Answer:
        if body["messages"][-1]["content"] == "long":
            return Answer({"error": {"message": "maximum context length is 8 tokens"}}, 400)
        return Answer(chat())

    with chat_server(long) as server:
        replies = opened(server).reply([ask("a"), ask("long"), ask("b")])
        assert [reply.finish for reply in replies] == ["stop", "error", "stop"]
        assert "HTTP 400: maximum context length is 8 tokens" in str(replies[1].error) and len(server.asked) == 3


def test_a_slow_server_times_out() -> None:
    with chat_server(lambda place, body: Answer(chat(), seconds=1.0)) as server:
        (reply,) = opened(server, timeout_s=0.1).reply([ask()])
        assert "no answer within timeout_s=0.1 seconds, 2 tries" in str(reply.error)


def test_a_body_that_breaks_off_is_an_error_reply() -> None:
    with chat_server(lambda place, body: Answer(chat(), cut=True)) as server:
        (reply,) = opened(server).reply([ask()])
        assert reply.finish == "error" and "the connection broke off, 2 tries" in str(reply.error)


def test_a_server_that_is_gone_ends_the_call() -> None:
    with chat_server(lambda place, body: Answer(chat())) as server:
        receiver = opened(server)
    with pytest.raises(EndpointError, match="no server answers"):
        receiver.reply([ask(f"question {i}") for i in range(20)])


def test_a_model_that_is_gone_ends_the_call() -> None:
    with chat_server(lambda place, body: Answer({"error": {"message": "no model tiny-chat"}}, 404)) as server:
        with pytest.raises(EndpointError, match="HTTP 404: no model tiny-chat"):
            opened(server).reply([ask()])
        assert len(server.asked) == 1


def test_settings_are_sent_along_and_a_servers_own_defaults_are_switched_off() -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    with chat_server(lambda place, body: Answer(chat()), owner="vllm") as server:
        opened(server, extra=extra).reply([ask()], stop=["\n\n", ""])
        (body,) = server.asked
    assert (body["repetition_penalty"], body["top_k"], body["min_p"]) == (1.0, -1, 0.0)
    assert body["stop"] == ["\n\n"] and body["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_last_turn_of_the_assistant_is_refused() -> None:
    with chat_server(lambda place, body: Answer(chat())) as server:
        with pytest.raises(ValueError, match="prompt 1: its last turn must be the user's"):
            opened(server).reply([ask(), Prompt((Turn("user", "Begin."), Turn("assistant", "Sure, ")))])
        assert not server.asked


def test_bad_numbers_are_refused_as_by_every_receiver() -> None:
    with chat_server(lambda place, body: Answer(chat())) as server:
        receiver = opened(server)
        for wrong in ({"max_tokens": 0}, {"samples": 0}, {"temperature": -1.0}, {"temperature": float("nan")}):
            with pytest.raises(ValueError, match="need >= 1"):
                receiver.reply([ask()], **wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="one text, not a list"):
            receiver.reply([ask()], stop="stop")
        assert receiver.reply([]) == []


# -------------------------------------------------------------------------------------------------------------- reading of answers


def read(body: object, max_tokens: int = 8, stop: tuple[str, ...] = ()) -> tuple[str, str, int | None, int | None, str]:
    text = body if isinstance(body, str) else json.dumps(body)
    reply = read_reply(text, max_tokens=max_tokens, stop=stop)
    return reply.text, reply.finish, reply.prompt_tokens, reply.new_tokens, reply.error or ""


def test_missing_counts_are_none_and_never_zero() -> None:
    assert read(chat(usage=None))[2:4] == (None, None)
    assert read(chat(usage={}))[2:4] == (None, None)
    assert read(chat(usage={"prompt_tokens": 0, "completion_tokens": 0}))[2:4] == (None, None)
    assert read(chat(usage={"prompt_tokens": 5}))[2:4] == (5, None)
    assert read(chat(usage={"prompt_tokens": 5, "completion_tokens": 0}))[2:4] == (5, 0)
    assert read(chat(usage={"prompt_tokens": "5", "completion_tokens": True}))[2:4] == (None, None)


def test_cut_refused_and_empty_replies_are_told_apart() -> None:
    assert read(chat("half", finish="length"))[:2] == ("half", "length")
    assert read(chat("half", finish=None, usage={"prompt_tokens": 1, "completion_tokens": 8}))[:2] == ("half", "length")
    assert read(chat("all", finish=None))[:2] == ("all", "stop")
    assert read(chat(""))[:2] == ("", "stop") == read(chat(None))[:2]
    assert read(chat(None, refusal="I will not."))[1:] == ("error", 7, 2, "refused: I will not.")
    assert read(chat("so", finish="content_filter"))[4].startswith("refused: the server filtered")
    assert "tool call" in read(chat(None, finish="tool_calls", tool_calls=[{"id": "1"}]))[4]


def test_a_reply_ends_before_a_stop_text_that_the_server_sent_along() -> None:
    assert read(chat("one\n\ntwo", finish="length"), stop=("\n\n", "two"))[:2] == ("one", "stop")
    assert read(chat([{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]))[0] == "in parts"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"choices": [{"mess', "is no JSON: '{"),
        ("<html>502</html>", "is no JSON: '<html>"),
        ("  ", "answer is empty"),
        ({"choices": []}, "holds no choice"),
        ({"error": {"message": "no slot"}}, "holds no choice: .*no slot"),
        ([chat()], "holds no choice"),
        ({"choices": [{"index": 0}]}, "holds no message"),
        ({"choices": ["yes"]}, "holds no choice"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_an_answer_that_is_none_is_an_error_reply(body: object, reason: str) -> None:
    text, finish, prompt, new, error = read(body)
    assert (text, finish, prompt, new) == ("", "error", None, None)
    assert re.search(reason, error)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "content", "usage", "finish_reason", "prompt_tokens"]), inner
        )
    ),
    max_leaves=12,
)


@given(_JSON)
def test_no_answer_breaks_the_reader(body: object) -> None:
    _, finish, prompt, new, error = read(body)
    assert (finish == "error") == bool(error) and (prompt is None or prompt > 0) and (new is None or new >= 0)


def test_tally_counts_what_came() -> None:
    answers = [chat("half", finish="length"), chat(" "), chat(None, refusal="no"), {"choices": []}, chat()]
    with chat_server(lambda place, body: Answer(answers[int(body["messages"][-1]["content"])])) as server:
        receiver = opened(server)
        receiver.reply([ask(str(i)) for i in range(5)])
    assert {name: receiver.tally[name] for name in ("cut", "empty", "refused", "failed")} == dict.fromkeys(
        ("cut", "empty", "refused", "failed"), 1
    )


# ---------------------------------------------------------------------------------------------------------------------- strict JSON


def test_a_schema_goes_to_a_server_that_has_it() -> None:
    prompt = Prompt(ask().turns, SCHEMA)
    for owner, form in (("vllm", "json_schema"), ("me", "json_object")):
        with chat_server(lambda place, body: Answer(chat('{"answer": "no"}')), owner=owner) as server:
            receiver = opened(server)
            assert receiver.reply([prompt])[0].text == '{"answer": "no"}' and receiver.tally["off_schema"] == 0
            asked = server.asked[0]["response_format"]
        assert asked["type"] == form and SCHEMA in (asked.get("schema"), asked.get("json_schema", {}).get("schema"))


def test_without_it_replies_come_free_are_checked_and_counted() -> None:
    texts = ['{"answer": "no"}', '{"answer": "perhaps"}', "No.", '{"answer": "yes"}']
    prompts = [Prompt(ask(str(i)).turns, SCHEMA) for i in range(4)]
    with chat_server(lambda place, body: Answer(chat(texts[int(body["messages"][-1]["content"])]))) as server:
        receiver = opened(server, server="transformers")
        with pytest.warns(UserWarning, match="does not hold replies to a JSON schema; they come free, are checked"):
            replies = receiver.reply(prompts)
        assert [reply.text for reply in replies] == texts and receiver.tally["off_schema"] == 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it is said once
            receiver.reply(prompts)
        assert all("response_format" not in body for body in server.asked)
        with pytest.raises(EndpointError, match="transformers serve has no constrained decoding; say schema=check"):
            opened(server, server="transformers", schema="server")


def test_a_server_that_refuses_the_form_is_named_with_the_fix() -> None:
    with chat_server(
        lambda place, body: Answer({"error": {"message": "unknown field response_format"}}, 400)
    ) as server:
        assert "schema=check" in str(opened(server).reply([Prompt(ask().turns, SCHEMA)])[0].error)


def test_schema_faults_name_the_place() -> None:
    assert schema_fault('{"answer": "no"}', SCHEMA) is None
    assert str(schema_fault('{"answer": "maybe"}', SCHEMA)).startswith("$.answer: 'maybe'")
    assert schema_fault("yes", SCHEMA) == "it is no JSON"


# ------------------------------------------------------------------------------------------------------------------------------ keys


@pytest.mark.parametrize("variable", ["LAB_ENDPOINT_KEY", "OPENAI_API_KEY"])
def test_a_key_is_sent_and_appears_nowhere(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def repeats(place: int, body: Body) -> Answer:
        said = f"wrong key {KEY}"
        bodies = [
            Answer({"error": {"message": said}}, 400),
            Answer(f"no JSON {KEY}".encode()),
            Answer(chat(None, refusal=said)),
        ]
        return bodies[int(body["messages"][-1]["content"])]

    monkeypatch.setenv(variable, KEY)
    with chat_server(repeats) as server, caplog.at_level(logging.DEBUG):
        bare = opened(server).fingerprint
        receiver = opened(server)
        with Store(tmp_path / "store.sqlite") as store:
            replies = StoredReceiver(receiver, store, progress=False).reply([ask(str(i)) for i in range(3)])
        assert set(server.keys) == {f"Bearer {KEY}"}
    assert all(reply.finish == "error" and f"[{variable}]" in str(reply.error) for reply in replies)
    told = [repr(replies), repr(receiver.settings), repr(vars(receiver)), receiver.name, caplog.text]
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not any(KEY in text for text in told) and KEY.encode() not in files
    monkeypatch.setenv(variable, "another")
    with chat_server(repeats) as server:
        assert receiver.fingerprint == bare  # a key is no part of who answers


def test_the_labs_own_key_goes_before_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    monkeypatch.setenv("LAB_ENDPOINT_KEY", KEY)
    with chat_server(lambda place, body: Answer(chat())) as server:
        opened(server).reply([ask()])
        assert set(server.keys) == {f"Bearer {KEY}"}


def test_a_refused_key_ends_the_call_unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Answer({"error": {"message": f"invalid key {KEY}"}}, 401)
    with (
        chat_server(lambda place, body: Answer(chat()), models=refusal) as server,
        pytest.raises(EndpointError, match="refuses a request without a key .HTTP 401.; set LAB_ENDPOINT_KEY"),
    ):
        opened(server)
    monkeypatch.setenv("LAB_ENDPOINT_KEY", KEY)
    with (
        chat_server(lambda place, body: refusal) as server,
        pytest.raises(EndpointError, match=r"HTTP 401: invalid key \[LAB_ENDPOINT_KEY\]") as refused,
    ):
        opened(server).reply([ask()])
    assert KEY not in str(refused.value) and refused.value.__cause__ is None


# --------------------------------------------------------------------------------------------------------------- identity and store


def test_replies_of_different_servers_models_and_settings_never_mix(tmp_path: Path) -> None:
    models = {"data": [{"id": "a", "meta": {"size": 1}}, {"id": "b"}]}
    with (
        chat_server(lambda place, body: Answer(chat("one")), models=models) as one,
        chat_server(lambda place, body: Answer(chat("two")), models=models) as two,
        chat_server(
            lambda place, body: Answer(chat("new")), models={"data": [{"id": "a", "meta": {"size": 2}}]}
        ) as new,
    ):
        first, second = opened(one, model="a"), opened(two, model="a")
        with Store(tmp_path / "store.sqlite") as store:
            asked = [StoredReceiver(receiver, store, progress=False) for receiver in (first, second, first)]
            assert [receiver.reply([ask()])[0].text for receiver in asked] == ["one", "two", "one"]
        assert len(one.asked) == 1  # the third was read
        prints = {
            receiver.fingerprint
            for receiver in (
                first,
                second,
                opened(one, model="b"),
                opened(one, model="a", schema="check"),
                opened(one, model="a", extra={"min_p": 0.1}),
                opened(one, model="a", server="vllm"),
                opened(new, model="a"),
            )
        }
        assert len(prints) == 7
        same = opened(one, model="a", max_concurrency=2, timeout_s=9, max_retries=0)
        assert same.fingerprint == first.fingerprint  # how fast it is asked changes no reply


# ----------------------------------------------------------------------------------------------------- tokens and log-probabilities


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> tuple[TransformersReceiver, str]:
    """A random model on this machine and the folder of its tokenizer alone."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    chat_model("llama").save_pretrained(folder)
    chat_tokenizer().save_pretrained(folder)
    alone = folder.with_name("tokenizer")
    chat_tokenizer().save_pretrained(alone)
    return TransformersReceiver(str(folder), exact=True, device="cpu"), str(alone)


def test_tokens_are_counted_by_the_tokenizer_or_by_the_server_or_refused(
    local: tuple[TransformersReceiver, str],
) -> None:
    texts = ["the ferry leaves", "", "Zürich"]

    def two_first(body: Body) -> Answer:
        assert body.pop("model", MODEL) == MODEL
        text = next(body[field] for field in ("prompt", "content", "input") if field in body)
        return Answer({"tokens": [0, *range(len(text))]})  # a token at the start, as servers add

    with chat_server(lambda place, body: Answer(chat()), routes={"/tokenize": two_first}) as server:
        assert opened(server, tokenizer=local[1]).count_tokens(texts) == local[0].count_tokens(texts)
        assert opened(server, server="vllm").count_tokens(texts) == [16, 0, 6]
        assert opened(server, server="llamacpp").count_tokens(texts) == [16, 0, 6]
        with pytest.raises(EndpointError, match="/extras/tokenize: HTTP 404, no token ids; set #tokenizer"):
            opened(server, server="llama-cpp-python").count_tokens(texts)
        with pytest.raises(EndpointError, match="Ollama counts no tokens of a text; add the model's tokenizer"):
            opened(server, server="ollama").count_tokens(texts)


def test_scores_by_token_ids_are_those_of_the_local_engine(local: tuple[TransformersReceiver, str]) -> None:
    """The server computes with the same model here, so that every token and its place are checked."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(Path(local[1]).with_name("model"), dtype=torch.float32)

    def echo(place: int, body: Body) -> Answer:
        assert body["echo"] is True and body["max_tokens"] == 1
        ids = torch.tensor([body["prompt"]])
        with torch.inference_mode():
            logits = model(ids).logits[0].log_softmax(-1)
        told = [None, *(float(logits[i - 1, ids[0, i]]) for i in range(1, ids.shape[1])), -0.5]
        return Answer(
            {"choices": [{"text": "", "logprobs": {"token_logprobs": told}}], "usage": {"completion_tokens": 1}}
        )

    prompts, options = [ask("the ferry"), ask("an island")], [["yes", "no way"], ["left", "right"]]
    with chat_server(echo, owner="vllm") as server:
        scores = opened(server, tokenizer=local[1]).score(prompts, options)
        assert opened(server, tokenizer=local[1]).score([], ["yes"]).shape == (0, 0)
    np.testing.assert_allclose(scores, local[0].score(prompts, options), atol=1e-4)


def test_no_thread_but_the_callers_tokenises(local: tuple[TransformersReceiver, str]) -> None:
    """A fast tokenizer's switch for special tokens is shared: two threads once gave a frame the tokens of plain text."""
    threads: set[int] = set()

    class Watched:
        def __init__(self, tokenizer: object) -> None:
            self.tokenizer = tokenizer

        def __getattr__(self, name: str) -> object:
            return getattr(self.tokenizer, name)

        def __call__(self, *texts: object, **options: object) -> object:
            threads.add(threading.get_ident())
            return self.tokenizer(*texts, **options)  # type: ignore[operator]

    told = {"choices": [{"logprobs": {"token_logprobs": [-1.0] * 99}}], "usage": {"completion_tokens": 1}}
    with chat_server(lambda place, body: Answer(chat() if "messages" in body else told), owner="vllm") as server:
        receiver = opened(server, tokenizer=local[1])
        assert receiver.encoder is not None
        receiver.encoder.tokenizer = Watched(receiver.encoder.tokenizer)
        receiver.score([ask("the ferry"), ask("an island")], ["yes", "no"])
        receiver.reply([ask("the ferry"), ask("an island")])
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("kind", ["ollama", "llamacpp", "transformers", "other"])
def test_a_server_without_log_probabilities_is_refused_by_name(kind: str) -> None:
    """`NotImplementedError` is what the probes of coordination understand."""
    said = f"{SERVERS[kind].title} gives no log-probabilities.*use vLLM.*needed by"
    with chat_server(lambda place, body: Answer(chat())) as server, pytest.raises(NotImplementedError, match=said):
        opened(server, server=kind).score([ask()], ["yes", "no"])


@pytest.mark.parametrize(
    "answer",
    [
        Answer(chat()),
        Answer({"choices": [{"logprobs": None}], "usage": {"completion_tokens": 1}}),
        Answer({"choices": [{"logprobs": {"token_logprobs": [-1.0]}}], "usage": {"completion_tokens": 1}}),
        Answer({"choices": [{"logprobs": {"token_logprobs": [None] * 99}}], "usage": {"completion_tokens": 1}}),
        Answer({"error": {"message": "logprobs is not supported for models created with logits_all=False"}}, 400),
    ],
)
def test_missing_log_probabilities_are_refused(answer: Answer, local: tuple[TransformersReceiver, str]) -> None:
    with chat_server(lambda place, body: answer, owner="sglang") as server:
        with pytest.raises(NoLogProbabilitiesError, match="no log-probabilities of a given text"):
            opened(server, tokenizer=local[1]).score([ask()], ["yes", "no"])
        with pytest.raises(NoLogProbabilitiesError, match="need the model's tokenizer"):
            opened(server).score([ask()], ["yes", "no"])


def test_a_text_that_spells_a_special_token_is_not_sent(local: tuple[TransformersReceiver, str]) -> None:
    """A server reads `<|im_end|>` inside a message as the end of a turn; the local engine reads characters."""
    special = local[0].tokenizer.convert_ids_to_tokens(min(local[0].encoder.special_ids))
    with chat_server(lambda place, body: Answer(chat())) as server:
        replies = opened(server, tokenizer=local[1]).reply([ask(f"so {special} there"), ask("so there")])
        assert f"spells the special token {special}" in str(replies[0].error) and replies[1].text == "yes"
        assert len(server.asked) == 1


# -------------------------------------------------------------------------------------------------------------------- the comparison


def test_the_check_names_why_replies_part(local: tuple[TransformersReceiver, str], tmp_path: Path) -> None:
    prompts = question_prompts(4)
    own = local[0].reply(prompts, max_tokens=6)
    other = local[0].reply([ask("something else")], max_tokens=6)[0].text
    texts = [own[0].text, other, own[2].text, own[3].text]
    counts = [reply.prompt_tokens or 0 for reply in own]
    counts[2] += 1
    by_question = {prompt.turns[-1].text: place for place, prompt in enumerate(prompts)}

    def answer(place: int, body: Body) -> Answer:
        at = by_question[body["messages"][-1]["content"]]
        if at == 3:
            return Answer({"error": {"message": "full"}}, 400)
        return Answer(chat(texts[at], usage={"prompt_tokens": counts[at], "completion_tokens": 6}))

    said: list[str] = []
    with chat_server(answer) as server:
        table = compare_replies(local[0], opened(server), prompts, max_tokens=6)
        folder = str(Path(local[1]).with_name("model"))
        code = check_endpoint(
            f"endpoint:{server.url}", folder, tmp_path / "check.csv", said.append, prompts=4, max_tokens=6
        )
    assert list(table["cause"]) == ["same", "other numbers", "prompt", "failed"]
    assert table["first_difference"].isna().tolist() == [True, False, True, True]
    assert code == 1 and "1 failed" in said[-1] and len((tmp_path / "check.csv").read_text().splitlines()) == 5


def test_the_command_says_what_is_there_or_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with chat_server(lambda place, body: Answer(chat()), owner="vllm") as server:
        assert main(["check-endpoint", server.url, "--model", MODEL]) == 0
        assert main(["check-endpoint", server.url, "--prompts", "9999"]) == 2
        assert main(["check-endpoint", f"endpoint:{server.url}#{MODEL}", "--model", MODEL]) == 2
    said = capsys.readouterr()
    assert f"vLLM, model {MODEL}" in said.out and "one question: 7 prompt tokens, 2 new ones" in said.out
    assert "there are 1 to 240 questions" in said.err
    assert main(["check-endpoint", server.url]) == 1
    assert capsys.readouterr().err.startswith("error: no server answers at")


# ----------------------------------------------------------------------------------------------------------------------- real servers


def wait_until_it_answers(url: str, seconds: float, alive: Iterator[bool]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and next(alive):
        try:
            examine(read_settings({"url": url}))
            return
        except EndpointError:
            time.sleep(0.2)
    pytest.fail(f"the server at {url} did not start within {seconds:g} s")


def smollm_folder() -> Path:
    from lib.models.weights import load_tokenizer

    return Path(load_tokenizer("smollm2-135m").name_or_path)


@pytest.mark.real("smollm2-135m")
def test_transformers_serve_answers_as_the_local_engine_does() -> None:
    try:
        from transformers.cli.serve import Serve
    except ImportError as error:
        pytest.skip(f"transformers serve cannot be imported here: {error}")
    port = closed_port()
    serving = Serve(
        force_model=str(smollm_folder()), host="127.0.0.1", port=port, dtype="float32", device="cpu", non_blocking=True
    )
    try:
        url = f"http://127.0.0.1:{port}/v1"
        wait_until_it_answers(url, 60, iter(lambda: True, None))
        receiver = EndpointReceiver(f"endpoint:{url}##tokenizer=smollm2-135m")
        assert receiver.served.kind == "transformers" and not receiver.strict
        table = compare_replies(open_receiver("smollm2-135m", exact=True), receiver, question_prompts(3), max_tokens=8)
        assert list(table["cause"]) == ["same"] * 3
        assert (table["prompt_tokens_here"] == table["prompt_tokens_there"]).all()
        drawn = receiver.reply([ask("Name a colour.")], max_tokens=6, temperature=1.5, samples=3)
        assert len({reply.text for reply in drawn}) > 1  # it samples, which the model's own settings do not say
    finally:
        serving.kill_server()
    with pytest.raises(EndpointError, match="no server answers"):
        EndpointReceiver(f"endpoint:{url}")


def llama_python() -> str:
    """Return a Python that has llama-cpp-python's server, or skip."""
    named = os.environ.get("LAB_LLAMA_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("llama_cpp") is None or importlib.util.find_spec("starlette_context") is None:
        pytest.skip("llama-cpp-python[server] is not installed here; LAB_LLAMA_PYTHON may name a Python that has it")
    return sys.executable


@pytest.mark.real("smollm2-135m")
def test_llama_cpp_holds_to_schemas_counts_tokens_and_scores(tmp_path: Path) -> None:
    python, port = llama_python(), closed_port()
    command = [python, "-m", "llama_cpp.server", "--model", str(locate("smollm2-135m")), "--model_alias", "smol"]
    command += [
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--n_ctx",
        "1024",
        "--n_threads",
        "1",
        "--logits_all",
        "true",
    ]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}/v1"
        wait_until_it_answers(url, 60, iter(lambda: process.poll() is None, None))
        receiver = EndpointReceiver(f"endpoint:{url}#smol#tokenizer=smollm2-135m")
        own = open_receiver("smollm2-135m", exact=True)
        assert receiver.served.kind == "llama-cpp-python" and receiver.strict
        texts = ["The ferry leaves at noon.", "Zürich"]
        assert EndpointReceiver(f"endpoint:{url}#smol").count_tokens(texts) == own.count_tokens(texts)
        bound = receiver.reply([Prompt(ask("Is water wet?").turns, SCHEMA)], max_tokens=24)[0]
        assert schema_fault(bound.text, SCHEMA) is None and receiver.tally["off_schema"] == 0
        free = question_prompts(2)
        assert [reply.prompt_tokens for reply in receiver.reply(free, max_tokens=4)] == [
            reply.prompt_tokens for reply in own.reply(free, max_tokens=4)
        ]
        # The same 4-bit file; llama.cpp rounds activations to 8 bits, so the nats are near and not the same.
        options = ["Yes", "The ferry leaves"]
        np.testing.assert_allclose(receiver.score(free[:1], options), own.score(free[:1], options), atol=1.0)
    finally:
        process.kill()  # it holds nothing; a polite end waits for requests that nobody reads any more
        process.wait()
