"""Tests of lib/moc/distill.py."""

from __future__ import annotations

import doctest
import json
import math
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.moc import distill as module
from lib.moc.distill import Candidate, Distiller, ExtractiveDistiller, Item, ReceiverDistiller, reply_room
from lib.moc.distill_prompts import STYLES
from lib.models import Prompt, Reply, ScriptedReceiver
from tests.messages.strategies import field
from tests.moc.embedding import count_bytes, count_words, hash_embed


def item(text: str, name: str = "1", rank: int = 0) -> Item:
    return Item(text=text, ids=(name,), roles=(f"role {name}",), hop=1, rank=rank)


PAIR = (item("The lock is red. It has six digits.", "1"), item("The lock has six digits. Turn it left.", "2"))


class Recorder(ScriptedReceiver):
    """A scripted receiver that remembers what it was asked, and may hide its counts."""

    def __init__(self, script: object = None, counts: bool = True) -> None:
        super().__init__(script or (lambda prompt: "merged text"))  # type: ignore[arg-type]
        self.asked: list[tuple[list[Prompt], int, float, int]] = []
        self.counts = counts

    def reply(self, prompts: Sequence[Prompt], **settings: object) -> list[Reply]:  # type: ignore[override]
        self.asked.append((list(prompts), settings["max_tokens"], settings["temperature"], settings["samples"]))  # type: ignore[arg-type]
        replies = super().reply(prompts, **settings)  # type: ignore[arg-type]
        hidden = {"prompt_tokens": None, "new_tokens": None}
        return replies if self.counts else [msgspec.structs.replace(reply, **hidden) for reply in replies]


def test_examples() -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


def test_an_item_has_one_role_for_each_id() -> None:
    for ids, roles in (((), ()), (("1",), ()), (("1", "2"), ("r",))):
        with pytest.raises(ValueError, match="one role for each"):
            Item(text="t", ids=ids, roles=roles, hop=1, rank=0)


# --------------------------------------------------------------------------------------------------------------- receiver


def test_five_styles_are_asked_once_each() -> None:
    receiver = Recorder()
    distiller = ReceiverDistiller(receiver)
    assert isinstance(distiller, Distiller)
    (made,) = distiller.candidates([PAIR], [6])
    ((prompts, room, temperature, samples),) = receiver.asked
    assert [one.style for one in made] == list(STYLES)
    assert (len(prompts), room, temperature, samples) == (5, 32, 0.1, 1)
    assert [one.text for one in made] == ["merged text"] * 5
    assert all(one.new_tokens == 2 and one.prompt_tokens is not None and one.prompt_tokens > 50 for one in made)
    for prompt, rule in zip(prompts, STYLES.values(), strict=True):
        assert rule in prompt.turns[-1].text
        assert "37 percent" in prompt.turns[-1].text and "6 words" in prompt.turns[-1].text  # 6 of 16


def test_samples_ask_one_prompt_several_times() -> None:
    receiver = Recorder()
    made = ReceiverDistiller(receiver, mode="samples", count=3).candidates([PAIR, PAIR[::-1]], [6, 6])
    ((prompts, _, temperature, samples),) = receiver.asked
    assert (len(prompts), temperature, samples) == (2, 0.7, 3)
    assert [[one.style for one in own] for own in made] == [["sample-0", "sample-1", "sample-2"]] * 2
    assert [one.text for one in made[1]] == ["merged text", "merged text #1", "merged text #2"]


def test_pairs_of_like_caps_share_a_call_and_each_gets_its_own_candidates() -> None:
    receiver = Recorder(lambda prompt: prompt.turns[-1].text.split("\n")[1])
    pairs = [(item(f"text {index} " * 20, f"{index}"), PAIR[1]) for index in range(6)]
    caps = [10, 200, 12, 110, 11, 190]
    made = ReceiverDistiller(receiver, count=2).candidates(pairs, caps)
    assert [(len(prompts), room) for prompts, room, _, _ in receiver.asked] == [(6, 32), (6, 256)]
    assert all(own[0].text.startswith(f"text {index} ") and len(own) == 2 for index, own in enumerate(made))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400)), min_size=1, max_size=5))
def test_candidates_do_not_depend_on_the_company(asked: list[tuple[int, int]]) -> None:
    pairs = [(item(f"alpha {index} beta", "1"), item("gamma delta", "2")) for index, _ in asked]
    caps = [cap for _, cap in asked]
    distiller = ReceiverDistiller(ScriptedReceiver(lambda prompt: prompt.turns[-1].text))
    alone = [distiller.candidates([pair], [cap])[0] for pair, cap in zip(pairs, caps, strict=True)]
    assert distiller.candidates(pairs, caps) == alone


@given(st.integers(1, 5000))
def test_the_room_holds_the_cap_and_is_at_most_twice_and_a_half_of_it(cap: int) -> None:
    assert 1.25 * cap <= reply_room(cap) <= max(32, 2.5 * cap)


def test_a_failed_call_keeps_its_reason_and_unknown_counts_stay_unknown() -> None:
    def script(prompt: Prompt) -> str:
        if STYLES["technical"] in prompt.turns[-1].text:
            raise RuntimeError("out of memory")
        return "> a\n> b"

    (made,) = ReceiverDistiller(Recorder(script, counts=False)).candidates([PAIR], [6])
    assert [one.failed for one in made] == [False, False, True, False, False]
    assert made[2].error == "RuntimeError: out of memory" and made[2].text == ""
    assert made[0].text == "a\nb"
    assert all(one.prompt_tokens is None and one.new_tokens is None for one in made)


def test_stored_replies_have_no_time() -> None:
    class Stored(ScriptedReceiver):
        def reply(self, prompts: Sequence[Prompt], **settings: object) -> list[Reply]:  # type: ignore[override]
            return [msgspec.structs.replace(one, seconds=math.nan) for one in super().reply(prompts, **settings)]  # type: ignore[arg-type]

    (made,) = ReceiverDistiller(Stored()).candidates([PAIR], [6])
    assert all(math.isnan(one.seconds) for one in made)


def test_words_are_only_counted_where_there_are_spaces() -> None:
    receiver = Recorder()
    receiver.count_tokens = lambda texts: [len(text) for text in texts]  # type: ignore[method-assign]
    ReceiverDistiller(receiver, count=1).candidates([(item("中文字符在这里" * 4), item("没有空格" * 4, "2"))], [9])
    asked = receiver.asked[0][0][0].turns[-1].text
    assert "20 percent" in asked and "words." not in asked.split("Length:")[1]


@pytest.mark.parametrize(
    ("settings", "field_name"),
    [
        ({"mode": "beams"}, "mode"),
        ({"count": 0}, "count"),
        ({"count": 6}, "count"),
        ({"mode": "samples", "count": 0}, "count"),
        ({"mode": "samples", "temperature": 0.0}, "temperature"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], field_name: str) -> None:
    with pytest.raises(ValueError, match=field_name):
        ReceiverDistiller(ScriptedReceiver(), **settings)  # type: ignore[arg-type]


def test_the_fingerprint_names_all_that_decides() -> None:
    receiver = ScriptedReceiver()
    distillers = [
        ReceiverDistiller(receiver),
        ReceiverDistiller(receiver, count=4),
        ReceiverDistiller(receiver, temperature=0.0),
        ReceiverDistiller(receiver, mode="samples"),
        ReceiverDistiller(ScriptedReceiver(name="other")),
        ExtractiveDistiller(hash_embed, count_words),
        ExtractiveDistiller(hash_embed, count_words, balance=0.5),
    ]
    assert len({one.fingerprint for one in distillers}) == len(distillers)
    assert ReceiverDistiller(receiver).fingerprint == distillers[0].fingerprint


def test_no_pairs_ask_nothing() -> None:
    receiver = Recorder()
    assert ReceiverDistiller(receiver).candidates([], []) == []
    assert ExtractiveDistiller(hash_embed, count_words).candidates([], []) == []
    assert receiver.asked == []


def test_a_receiver_that_loses_replies_is_named() -> None:
    class Lossy(ScriptedReceiver):
        def reply(self, prompts: Sequence[Prompt], **settings: object) -> list[Reply]:  # type: ignore[override]
            return super().reply(prompts, **settings)[1:]  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="4 replies to 5 prompts"):
        ReceiverDistiller(Lossy()).candidates([PAIR], [6])


# ------------------------------------------------------------------------------------------------------------- extractive


def extract(first: str, second: str, cap: int, balance: float = 0.7) -> str:
    distiller = ExtractiveDistiller(hash_embed, count_words, balance)
    ((made,),) = distiller.candidates([(item(first), item(second, "2"))], [cap])
    assert made == Candidate(text=made.text, style="extract", prompt_tokens=0, new_tokens=0)
    return made.text


def test_sentences_are_chosen_for_both_messages_and_not_twice() -> None:
    first = "The answer is the red lock. Bread costs two coins today."
    second = "The answer is the red lock. It opens to the left side."
    assert extract(first, second, 6) == "The answer is the red lock."
    both = extract(first, second, 12)
    assert both.startswith("The answer is the red lock. ") and both.count("red lock") == 1
    assert extract(first, second, 99) == (
        "The answer is the red lock. Bread costs two coins today.\nIt opens to the left side."
    )


def test_novelty_decides_where_relevance_would_repeat() -> None:
    first = "The red lock opens left today. The red lock opens left now."
    second = "The red lock opens left again. Bread costs two silver coins."
    assert "Bread" not in extract(first, second, 12, balance=1.0)
    assert "Bread" in extract(first, second, 12, balance=0.2)


def test_a_message_without_a_fitting_sentence_is_left_to_the_merge() -> None:
    first, second = "One sentence that is far too long for it", "Another sentence that is far too long as well"
    assert extract(first, second, 3) in (first, second)
    assert extract(" ", "", 3) == ""


@given(field, field, st.integers(0, 30))
def test_extracts_hold_the_cap_and_say_nothing_new(first: str, second: str, cap: int) -> None:
    distiller = ExtractiveDistiller(hash_embed, count_bytes)
    pair = (item(first), item(second, "2"))
    ((made,),) = distiller.candidates([pair], [cap])
    fits = count_bytes([made.text])[0] <= cap
    parts = [part.strip() for text in (first, second) for part in module.sentences(text) if part.strip()]
    assert fits or made.text in [part.rstrip() for part in module.sentences(f"{first}\n") + module.sentences(second)]
    assert set(made.text.split()) <= set(f"{first} {second}".split())
    assert bool(made.text) == bool(parts)
    assert distiller.candidates([pair], [cap]) == [[made]]


@given(st.lists(st.tuples(field, field, st.integers(1, 30)), max_size=4))
def test_extracts_do_not_depend_on_the_company(asked: list[tuple[str, str, int]]) -> None:
    distiller = ExtractiveDistiller(hash_embed, count_words)
    pairs, caps = [(item(u), item(v, "2")) for u, v, _ in asked], [cap for _, _, cap in asked]
    alone = [distiller.candidates([pair], [cap])[0] for pair, cap in zip(pairs, caps, strict=True)]
    assert distiller.candidates(pairs, caps) == alone
    assert json.dumps([[one.text for one in own] for own in alone])


def test_balance_is_a_weight() -> None:
    with pytest.raises(ValueError, match="balance"):
        ExtractiveDistiller(hash_embed, count_words, balance=1.1)
