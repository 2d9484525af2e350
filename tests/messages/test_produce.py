"""Reader agents: what becomes of a reply, what is recorded, and that gold has no part in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.messages.corpus import load_corpus, save_corpus
from lib.messages.message import FIELD_WORDS, FIELDS, Message
from lib.messages.produce import MAX_TOKENS, ROLES, fallback_fields, message_of, produce
from lib.messages.prompts import QUOTE_WORDS, prompts_hash, quotations
from lib.models.receiver import Prompt, Reply
from lib.models.scripted import ScriptedReceiver
from lib.tasks.registry import load_workload
from lib.tasks.task import Gold, Source, Task, Workload
from tests.messages.letters import letters
from tests.messages.strategies import field

PAGE = Source(
    id="Alda",
    title="Alda",
    sentences=("It was built in 1901.", "The hull of the Alda is red.", "The hull of the Alda is old."),
)
TASK = Task(
    id="t1", family="f", kind="verification", query="The hull of the Alda is blue.", sources=(PAGE,), version="1"
)
FALLBACK = {
    "claim": "The hull of the Alda is red.",
    "evidence": "[S1] The hull of the Alda is red.",
    "uncertainty": "none stated",
    "request": "none",
}
SAID = {"claim": "It is red.", "evidence": "none", "uncertainty": "none stated", "request": "none"}


def said(text: str, **options: Any) -> Message:
    return message_of(TASK, 0, Reply(text=text, prompt_tokens=9, new_tokens=4, **options))


def fields(message: Message) -> dict[str, str]:
    return {name: getattr(message, name) for name in FIELDS}


@cache
def worlds(name: str = "worlds_verification") -> Workload:
    return load_workload(name, limit=5)


# ------------------------------------------------------------------------------------------------------------------------ replies


def test_a_good_reply_becomes_its_message() -> None:
    reply = {**SAID, "evidence": PAGE.sentences[2]}
    message = said(json.dumps(reply))
    assert fields(message) == {**reply, "evidence": "[S2] The hull of the Alda is old."}
    assert (message.fallback, message.prompt_tokens, message.new_tokens) == (False, 9, 4)
    assert (message.task_id, message.slot, message.turn, message.source_id) == ("t1", 0, 0, "Alda")
    assert message.route == "reader_0->verifier"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot tell.",
        '{"claim": "It is red.", "evidence": "no',
        "[]",
        "null",
        "7",
        '"claim"',
        "{}",
        json.dumps({**SAID, "request": None}),
        json.dumps({**SAID, "claim": ["It is red."]}),
        json.dumps({name: SAID[name] for name in FIELDS[:3]}),
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 5000,
    ],
    ids=lambda text: f"{text[:24]}...{len(text)}",
)
def test_an_unusable_reply_gives_a_rule_made_message_that_says_so(text: str) -> None:
    message = said(text)
    assert message.fallback
    assert fields(message) == FALLBACK


def test_a_failed_call_gives_a_rule_made_message_whatever_its_text_is() -> None:
    message = said(json.dumps(SAID), finish="error", error="out of memory")
    assert message.fallback
    assert fields(message) == FALLBACK


@pytest.mark.parametrize("name", FIELDS)
def test_a_lone_surrogate_gives_a_rule_made_message(name: str) -> None:
    """JSON may spell half a character, which has no UTF-8 form: no message and no record can hold it."""
    message = said(json.dumps({**SAID, name: "half \ud83d of it"}))
    assert message.fallback
    assert fields(message) == FALLBACK
    assert not said(json.dumps({**SAID, name: "whole \U0001f600 of it"})).fallback


@given(st.dictionaries(st.sampled_from(FIELDS), field), st.sampled_from(["stop", "length"]))
def test_any_four_texts_are_kept_up_to_the_word_limits(values: dict[str, str], finish: str) -> None:
    message = said(json.dumps({**SAID, **values}), finish=finish)
    assert not message.fallback
    for name in FIELDS:
        words, kept = {**SAID, **values}[name].split(), getattr(message, name).split()
        assert len(kept) <= FIELD_WORDS[name]
        assert message.text.count("\n") == 3
        if name != "evidence" and not any(
            ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029" for c in values.get(name, "")
        ):
            assert kept == (words[: FIELD_WORDS[name]] or ["none"])


def test_the_word_limits_are_sixteen_and_ten() -> None:
    long = " ".join(f"w{i}" for i in range(40))
    message = said(json.dumps(dict.fromkeys(FIELDS, long)))
    assert [len(getattr(message, name).split()) for name in FIELDS] == [16, 16, 10, 10]
    assert not message.fallback


def test_a_quote_fits_the_word_limit_with_its_number() -> None:
    long = " ".join(f"w{i}" for i in range(40))
    task = msgspec.structs.replace(TASK, sources=(Source("Alda", "Alda", ("It is.", long)),))
    for evidence in quotations(task.sources[0]):
        message = message_of(task, 0, Reply(text=json.dumps({**SAID, "evidence": evidence})))
        assert message.evidence == quotations(task.sources[0])[evidence]
    rule_made = message_of(msgspec.structs.replace(task, query="w3 w4"), 0, Reply(text=""))
    assert rule_made.evidence == f"[S1] {' '.join(long.split()[:QUOTE_WORDS])}"
    assert len(rule_made.claim.split()) == FIELD_WORDS["claim"]


def test_what_a_free_reader_calls_evidence_is_kept_as_it_is() -> None:
    assert said(json.dumps({**SAID, "evidence": "the hull, they say"})).evidence == "the hull, they say"


# ----------------------------------------------------------------------------------------------------------------------- fallback


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("the hull", 1),
        ("THE HULL: 1901?", 1),
        ("built in 1901, the Alda", 0),
        ("old hull", 2),
        ("nothing else", 0),
        ("", 0),
    ],
)
def test_the_fallback_quotes_the_first_sentence_with_most_words_of_the_question(query: str, best: int) -> None:
    made = fallback_fields(msgspec.structs.replace(TASK, query=query), PAGE)
    assert made == {**FALLBACK, "claim": PAGE.sentences[best], "evidence": f"[S{best}] {PAGE.sentences[best]}"}


def test_a_source_without_sentences_still_gives_a_message() -> None:
    task = msgspec.structs.replace(TASK, sources=(Source("Alda", "Alda", ()),))
    assert fields(message_of(task, 0, Reply(text=""))) == {
        "claim": "none",
        "evidence": "none",
        "uncertainty": "none stated",
        "request": "none",
    }


def test_a_rule_made_sentence_forges_no_line() -> None:
    task = msgspec.structs.replace(TASK, sources=(Source("Alda", "Alda", ("hull\u2028Request: x\nClaim: y",)),))
    made = message_of(task, 0, Reply(text=""))
    assert made.text.splitlines() == made.text.split("\n")
    assert made.evidence == "[S0] hull Request: x Claim: y"


# ------------------------------------------------------------------------------------------------------------------------- corpus


@pytest.mark.parametrize("name", ["worlds_verification", "worlds_bridge", "worlds_fanout"])
def test_every_reader_of_every_task_says_one_thing_about_its_own_source(name: str) -> None:
    workload, receiver = worlds(name), ScriptedReceiver()
    corpus = produce(receiver, workload)
    assert receiver.calls == len(corpus.messages) == sum(len(task.sources) for task in workload.tasks)
    by_task = corpus.by_task()
    for task in workload.tasks:
        assert [message.source_id for message in by_task[task.id]] == [source.id for source in task.sources]
        assert [message.slot for message in by_task[task.id]] == list(range(len(task.sources)))
        assert {message.receiver for message in by_task[task.id]} == {ROLES[task.kind]}
    assert not any(message.fallback for message in corpus.messages)


def test_readers_of_all_tasks_are_asked_in_one_call() -> None:
    calls: list[int] = []

    class Counting(ScriptedReceiver):
        def reply(self, prompts: Sequence[Prompt], **options: Any) -> list[Reply]:
            calls.append(len(prompts))
            assert options == {"max_tokens": MAX_TOKENS}
            return super().reply(prompts, **options)

    produce(Counting(), worlds(), worlds().tasks[:2])
    assert calls == [sum(len(task.sources) for task in worlds().tasks[:2])]


def test_a_reader_sees_its_own_source_only() -> None:
    texts: list[str] = []

    def script(prompt: Prompt) -> str:
        texts.append(prompt.turns[-1].text)
        return json.dumps(SAID)

    produce(ScriptedReceiver(script), worlds())
    pages = [(task, source) for task in worlds().tasks for source in task.sources]
    for text, (task, source) in zip(texts, pages, strict=True):
        assert all(sentence in text for sentence in source.sentences)
        others = [other for other in task.sources if other is not source]
        assert not any(sentence in text for other in others for sentence in other.sentences)


def test_fallbacks_are_counted() -> None:
    def script(prompt: Prompt) -> str:
        if "[S0]" in prompt.turns[-1].text and len(prompt.turns[-1].text) % 2:
            raise RuntimeError("refused")
        return json.dumps(SAID)

    corpus = produce(ScriptedReceiver(script), worlds())
    odd = sum(message.fallback for message in corpus.messages)
    assert 0 < odd < len(corpus.messages)
    assert corpus.manifest["fallbacks"] == odd
    assert corpus.fallback_rate == odd / len(corpus.messages)
    assert produce(ScriptedReceiver(lambda prompt: "no"), worlds()).fallback_rate == 1


def test_the_manifest_records_what_made_the_messages() -> None:
    receiver = ScriptedReceiver()
    free, bound = (produce(receiver, worlds(), shortlist=kept) for kept in (None, letters(2)))
    for corpus, shortlist in ((free, None), (bound, "letters:2")):
        assert corpus.manifest["decoding"] == {"temperature": 0.0, "max_tokens": MAX_TOKENS, "shortlist": shortlist}
        assert corpus.manifest["prompts_sha256"] == prompts_hash()
        assert (corpus.manifest["model"], corpus.manifest["model_fingerprint"]) == ("scripted", receiver.fingerprint)
        assert (corpus.workload, corpus.version) == (worlds().name, worlds().version)
    assert free.manifest["sources_sha256"] == bound.manifest["sources_sha256"]


@pytest.mark.parametrize(
    "change",
    [
        lambda task: msgspec.structs.replace(task, query=task.query + "?"),
        lambda task: msgspec.structs.replace(task, sources=task.sources[1:]),
        lambda task: msgspec.structs.replace(
            task, sources=(msgspec.structs.replace(task.sources[0], sentences=("x",)), *task.sources[1:])
        ),
        lambda task: msgspec.structs.replace(
            task, sources=(msgspec.structs.replace(task.sources[0], title="x"), *task.sources[1:])
        ),
    ],
    ids=["query", "fewer sources", "sentences", "title"],
)
def test_the_hash_of_sources_names_all_that_readers_see(change: Callable[[Task], Task]) -> None:
    tasks = list(worlds().tasks)
    before = produce(ScriptedReceiver(), worlds(), tasks).manifest["sources_sha256"]
    tasks[1] = change(tasks[1])
    assert produce(ScriptedReceiver(), worlds(), tasks).manifest["sources_sha256"] != before


def test_equal_readers_write_equal_corpora(tmp_path: Any) -> None:
    made = [produce(ScriptedReceiver(), load_workload("worlds_bridge", limit=5)) for _ in range(2)]
    assert msgspec.json.encode(made[0]) == msgspec.json.encode(made[1])
    assert load_corpus(save_corpus(tmp_path, made[0])) == made[1]


def test_messages_do_not_depend_on_gold() -> None:
    workload = worlds("worlds_bridge")
    gold = {task.id: Gold(task.id, "CONTRADICT", "Zyzzyva", ()) for task in workload.tasks}
    other = produce(ScriptedReceiver(), msgspec.structs.replace(workload, gold=gold))
    assert msgspec.json.encode(other) == msgspec.json.encode(produce(ScriptedReceiver(), workload))


def test_messages_of_a_task_do_not_depend_on_the_others() -> None:
    workload = worlds()
    whole = produce(ScriptedReceiver(), workload).by_task()
    alone = produce(ScriptedReceiver(), workload, workload.tasks[3:4]).by_task()
    assert alone == {workload.tasks[3].id: whole[workload.tasks[3].id]}


# ---------------------------------------------------------------------------------------------------------------------- shortlists


def test_a_shortlisted_reader_may_quote_what_was_chosen_and_nothing_else() -> None:
    shortlist, offered = letters(2), []

    def script(prompt: Prompt) -> str:
        assert prompt.schema is not None
        offered.append(prompt.schema["properties"]["evidence"]["enum"])
        return json.dumps({**SAID, "evidence": offered[-1][-1]})

    corpus = produce(ScriptedReceiver(script), worlds(), shortlist=shortlist)
    said = corpus.by_task()
    made = [
        (one, page, message) for one in worlds().tasks for page, message in zip(one.sources, said[one.id], strict=True)
    ]
    for quotes, (task, source, message) in zip(offered, made, strict=True):
        chosen = shortlist.choose(task, source)
        assert len(chosen) == 2
        assert quotes == [" ".join(source.sentences[index].split()[:QUOTE_WORDS]) for index in chosen]
        assert message.evidence == f"[S{chosen[-1]}] {quotes[-1]}"
        assert not message.fallback


def test_a_source_without_sentences_has_no_shortlist() -> None:
    bare = msgspec.structs.replace(TASK, sources=(Source("Alda", "Alda", ()),))
    workload = Workload("w", "1", (bare,), {})
    (message,) = produce(ScriptedReceiver(), workload, shortlist=letters(1)).messages
    assert (message.evidence, message.fallback) == ("none", False)
