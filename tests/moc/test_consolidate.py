"""Tests of lib/moc/consolidate.py."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.moc.consolidate import Consolidation, consolidate, consolidate_many
from lib.moc.distill import Candidate, ExtractiveDistiller, Item, ReceiverDistiller
from lib.models import Prompt, ScriptedReceiver
from tests.messages.strategies import field
from tests.moc.embedding import DIMENSION, count_bytes, count_pieces, count_words, hash_embed

WORDS = ("red", "blue", "lock", "opens", "bread", "coins", "seven", "answer", "is", "twelve. So", "left\n", "👨‍👩‍👧")
TEXTS = st.one_of(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), field)
COUNTERS = st.sampled_from([count_words, count_bytes, count_pieces])


class Script:
    """A distiller whose candidates a function makes; it remembers what it was asked."""

    name = "script"
    fingerprint = "script"

    def __init__(self, write: Callable[[Item, Item, int], Sequence[str | Candidate]]) -> None:
        self.write = write
        self.calls: list[list[tuple[tuple[str, ...], tuple[str, ...]]]] = []

    def candidates(self, pairs: Sequence[tuple[Item, Item]], caps: Sequence[int]) -> list[list[Candidate]]:
        self.calls.append([(u.ids, v.ids) for u, v in pairs])
        return [
            [
                one if isinstance(one, Candidate) else Candidate(one, f"style-{index}", 10, 2)
                for index, one in enumerate(self.write(u, v, cap))
            ]
            for (u, v), cap in zip(pairs, caps, strict=True)
        ]


def first_words(u: Item, v: Item, cap: int) -> list[str]:
    return [" ".join(f"{u.text} {v.text}".split()[:cap])]


def made(texts: Sequence[str], hops: Sequence[int] | None = None) -> list[Item]:
    return [
        Item(text, (f"{index}",), (f"role {index}",), hops[index] if hops else 1, 2 * index)
        for index, text in enumerate(texts)
    ]


def run(items: Sequence[Item], budget: int, distiller: object = None, **settings_: object) -> Consolidation:
    tools: dict[str, object] = {"embed": hash_embed, "count_tokens": count_words, **settings_}
    return consolidate(items, budget, distiller=distiller or Script(first_words), **tools)  # type: ignore[arg-type]


def timeless(one: Consolidation) -> Consolidation:
    return msgspec.structs.replace(one, seconds={})


def angles(degrees: dict[str, float]) -> Callable[[Sequence[str]], np.ndarray]:
    """Return an embedder that gives each known text a direction in the plane; unknown texts point along the first."""

    def embed(texts: Sequence[str]) -> np.ndarray:
        turned = np.radians([degrees.get(text, 0.0) for text in texts])
        return np.stack([np.cos(turned), np.sin(turned)], axis=1)

    return embed


@st.composite
def cases(draw: st.DrawFn, least: int = 0, most: int = 9) -> tuple[list[Item], int]:
    texts = draw(st.lists(TEXTS, min_size=least, max_size=most))
    hops = draw(st.lists(st.integers(1, 3), min_size=len(texts), max_size=len(texts)))
    return made(texts, hops), draw(st.integers(1, max(1, len(texts))))


# What a distiller may come back with: nothing, blanks, failures, too much, just enough, hostile texts.
WRITERS: dict[str, Callable[[Item, Item, int], Sequence[str | Candidate]]] = {
    "obedient": first_words,
    "longwinded": lambda u, v, cap: [f"{u.text} {v.text}", f"{v.text}. {u.text}. " * 3],
    "mixed": lambda u, v, cap: ["", f"{v.text} {u.text} {v.text}", v.text[:3], Candidate("", "s", failed=True)],
    "blank": lambda u, v, cap: ["", " \n", "\t"],
    "broken": lambda u, v, cap: [Candidate("ignored", "s", failed=True, error="no reply")] * 2,
    "silent": lambda u, v, cap: [],
    "glued": lambda u, v, cap: ["👨‍👩‍👧‍👦" * 30, "x" * 400],
}
ANY_WRITER = st.sampled_from(sorted(WRITERS))


# ------------------------------------------------------------------------------------------------------------- invariants


@settings(max_examples=150)
@given(cases(), ANY_WRITER, COUNTERS, st.sampled_from([0.0, 0.1, 2.0]), st.sampled_from([0.05, 0.3, 0.45, 0.499]))
def test_invariants_hold_whatever_the_distiller_does(
    case: tuple[list[Item], int],
    writer: str,
    count: Callable[[Sequence[str]], list[int]],
    epsilon: float,
    kappa: float,
) -> None:
    items, budget = case
    result = run(items, budget, Script(WRITERS[writer]), count_tokens=count, epsilon=epsilon, kappa=kappa)
    left = result.items
    # Size: identity within the budget, else between half of budget + 1 and the budget.
    if len(items) <= budget:
        assert left == tuple(items) and result.merges == ()
    else:
        assert math.ceil((budget + 1) / 2) <= len(left) <= budget
    assert len(result.merges) == len(items) - len(left)
    # Origin: every source in exactly one item, roles beside their ids.
    assert sorted(name for item in left for name in item.ids) == sorted(item.ids[0] for item in items)
    assert all(item.roles == tuple(f"role {name}" for name in item.ids) for item in left)
    # Place: anchors keep their order, a merged item its latest source's rank and its nearest source's hop.
    by_id = {item.ids[0]: item for item in items}
    assert [item.rank for item in left] == sorted(item.rank for item in left)
    for item in left:
        sources = [by_id[name] for name in item.ids]
        assert item.rank == max(source.rank for source in sources)
        assert item.hop == min(source.hop for source in sources)
        if len(sources) == 1:
            assert item == sources[0]
    # Length: every merged text within its cap, every cap kappa of what it replaced, so the whole only gets shorter.
    for merge in result.merges:
        both = merge.earlier_tokens + merge.later_tokens
        assert merge.tokens <= merge.cap <= max(min(1, both), kappa * both + 1e-6)
    sizes = {merge.earlier + merge.later: merge.tokens for merge in result.merges}
    assert all(count([item.text])[0] == sizes[item.ids] for item in left if len(item.ids) > 1)
    assert sum(count([item.text for item in left])) <= sum(count([item.text for item in items]))
    # What came of it is told.
    for merge in result.merges:
        assert merge.distill_failed == (merge.style is None)
        assert not (merge.distill_failed and merge.length_repaired)
        assert -2 - 1e-9 <= merge.score <= 2 + 1e-9
        if writer in ("blank", "broken", "silent"):
            assert merge.distill_failed and merge.usable == 0


@given(cases(), ANY_WRITER)
def test_the_same_input_gives_the_same_result(case: tuple[list[Item], int], writer: str) -> None:
    items, budget = case
    first = timeless(run(items, budget, Script(WRITERS[writer])))
    assert timeless(run(items[::-1], budget, Script(WRITERS[writer]))) == first


@given(st.lists(cases(), max_size=4), ANY_WRITER, st.sampled_from([0.0, 0.1, 2.0]))
def test_agents_merged_together_are_merged_as_alone(
    jobs: list[tuple[list[Item], int]], writer: str, epsilon: float
) -> None:
    script = Script(WRITERS[writer])
    together = consolidate_many(jobs, embed=hash_embed, distiller=script, count_tokens=count_words, epsilon=epsilon)
    alone = [run(items, budget, Script(WRITERS[writer]), epsilon=epsilon) for items, budget in jobs]
    assert [timeless(one) for one in together] == [timeless(one) for one in alone]
    rounds = [1 + max((merge.iteration for merge in one.merges), default=-1) for one in alone]
    assert len(script.calls) == max(rounds, default=0)
    assert sum(map(len, script.calls)) == sum(len(one.merges) for one in alone)


@given(cases(least=2))
def test_with_real_parts_nothing_needs_repair_or_fails(case: tuple[list[Item], int]) -> None:
    items, budget = case
    items = [msgspec.structs.replace(item, text=f"a {item.text} b") for item in items]
    result = run(items, budget, ExtractiveDistiller(hash_embed, count_words))
    assert not any(merge.distill_failed for merge in result.merges)
    assert all(merge.style == "extract" for merge in result.merges)
    assert result.distiller_prompt_tokens == result.distiller_new_tokens == 0


# ------------------------------------------------------------------------------------------------------------ worked cases


def test_a_batch_may_end_below_the_budget() -> None:
    """Two close pairs, budget 3: the wide slack merges both and leaves ranks {1, 3} of four, the narrow one the closer."""
    items = [msgspec.structs.replace(item, rank=index) for index, item in enumerate(made(["a a", "b b", "c c", "d d"]))]
    embed = angles({"a a": 0.0, "b b": 18.0, "c c": 60.0, "d d": 88.0})
    wide = run(items, 3, embed=embed, epsilon=0.1)
    assert [(item.rank, item.ids) for item in wide.items] == [(1, ("0", "1")), (3, ("2", "3"))]
    assert [(merge.earlier, merge.later, merge.iteration) for merge in wide.merges] == [
        (("0",), ("1",), 0),
        (("2",), ("3",), 0),
    ]
    assert [round(merge.similarity, 3) for merge in wide.merges] == [0.951, 0.883]
    narrow = run(items, 3, embed=embed, epsilon=0.01)
    assert [item.rank for item in narrow.items] == [1, 2, 3]


def test_merged_items_merge_again_and_keep_all_their_sources() -> None:
    items = made(["red lock one two", "red lock one two", "red lock one six", "bread costs two coins"], [3, 1, 2, 2])
    script = Script(first_words)
    result = run(items, 1, script, epsilon=0.0)
    (last,) = result.items
    assert sorted(last.ids) == ["0", "1", "2", "3"] and last.rank == 6 and last.hop == 1
    assert [merge.iteration for merge in result.merges] == [0, 1, 2]
    assert script.calls[0] == [(("0",), ("1",))]
    assert result.merges[1].later == ("2",) and result.merges[1].earlier == ("0", "1")


def test_the_nearest_candidate_within_the_cap_is_kept() -> None:
    """The best candidate of all is over the cap, so it does not count; of equals the first is kept."""
    embed = angles({"u u u u u u": 0.0, "v v v v v v": 40.0, "best but far too long for this": 20.0, "far": 170.0,
                    "near": 30.0, "mirror": 10.0})  # fmt: skip
    script = Script(lambda u, v, cap: ["far", "best but far too long for this", "near", "mirror", " "])
    (merge,) = run(made(["u u u u u u", "v v v v v v"]), 1, script, embed=embed).merges
    assert (merge.style, merge.cap, merge.length_repaired, merge.candidates, merge.usable) == (
        "style-2",
        5,
        False,
        5,
        4,
    )
    assert merge.score == pytest.approx(math.cos(math.radians(30)) + math.cos(math.radians(10)))
    assert merge.similarity == pytest.approx(math.cos(math.radians(40)))


def test_without_a_candidate_within_the_cap_the_best_is_cut_behind_a_sentence() -> None:
    texts = ["lock red " * 10, "lock blue " * 10]
    script = Script(lambda u, v, cap: ["coins bread. " * 20, "The lock is red. Its code has many more digits. " * 3])
    result = run(made(texts), 1, script, kappa=0.25)
    assert result.items[0].text == "The lock is red. Its code has many more digits."
    (merge,) = result.merges
    assert (merge.style, merge.length_repaired, merge.distill_failed) == ("style-1", True, False)
    assert (merge.cap, merge.tokens, merge.earlier_tokens) == (10, 10, 20)
    # The score is that of the text that is sent, not of the one that was cut.
    vectors = hash_embed([*texts, result.items[0].text])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert merge.score == pytest.approx(float(vectors[2] @ (vectors[0] + vectors[1])))


def test_a_failed_distiller_leaves_the_beginning_of_the_later_message() -> None:
    broken = Script(lambda u, v, cap: [Candidate("", "s", None, None, failed=True, error="timed out"), " "])
    result = run(made(["one two three four five six", "The lock is red. It is old and heavy today."]), 1, broken)
    assert result.items[0].text == "The lock is red."
    assert result.items[0].ids == ("0", "1")
    (merge,) = result.merges
    assert merge.distill_failed and not merge.length_repaired and merge.style is None
    assert (merge.candidates, merge.usable, merge.errors) == (2, 0, ("timed out",))
    assert merge.tokens == 4 <= merge.cap


def test_the_earlier_message_stands_in_for_an_empty_later_one() -> None:
    result = run(made(["one two three. Four five.", ""]), 1, Script(lambda u, v, cap: []))
    assert result.items[0].text == "one two"
    assert run(made(["", " "]), 1, Script(lambda u, v, cap: ["invented"])).items[0].text == ""


def test_the_cap_is_floored_without_floating_point_surprises() -> None:
    (merge,) = run(made(["w " * 60, "w " * 40]), 1, kappa=0.29).merges
    assert 0.29 * 100 < 29 and merge.cap == 29
    (merge,) = run(made(["a", "b"]), 1).merges
    assert merge.cap == 1  # floor(0.9) would leave nothing


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_messages_without_a_direction_are_still_merged(bad: float) -> None:
    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.full((len(texts), DIMENSION), bad)

    result = run(made(["a b c", "d e f", "g h i", "j k l", "m n o"]), 3, embed=embed)
    assert [merge.similarity for merge in result.merges] == [0.0, 0.0]
    assert [item.ids for item in result.items] == [("0", "1"), ("2", "3"), ("4",)]
    assert all(merge.score == 0 and merge.style == "style-0" for merge in result.merges)


def test_within_the_budget_nothing_is_called() -> None:
    def never(*_: object) -> list[int]:
        raise AssertionError("called although there is nothing to merge")

    items = made(["a", "b"])
    result = run(items, 2, Script(never), embed=never, count_tokens=never)
    assert result == Consolidation(
        items=tuple(items),
        merges=(),
        seconds={"embedding": 0.0, "similarity": 0.0, "distillation": 0.0},
        distiller_prompt_tokens=0,
        distiller_new_tokens=0,
    )
    assert run([], 0).items == ()
    assert len(run(made(["a"]), 0).items) == 1  # one message is never merged away


# ------------------------------------------------------------------------------------------------------------ what it costs


def test_tokens_count_rejected_candidates_and_unknown_is_not_zero() -> None:
    items = made(["a b c d e", "a b c d f", "g h i j k"])
    known = run(items, 1, Script(lambda u, v, cap: ["a", " ", "a b c d e f g h i"]), epsilon=0.0)
    assert (known.distiller_prompt_tokens, known.distiller_new_tokens) == (2 * 3 * 10, 2 * 3 * 2)
    partly = run(items, 1, Script(lambda u, v, cap: ["a", Candidate("b", "s", 7, None)]), epsilon=0.0)
    assert (partly.distiller_prompt_tokens, partly.distiller_new_tokens) == (2 * 17, None)
    assert partly.merges[0].new_tokens is None


def test_seconds_are_told_apart_and_shared_between_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def embed(texts: Sequence[str]) -> np.ndarray:
        clock[0] += len(texts)
        return hash_embed(texts)

    def write(u: Item, v: Item, cap: int) -> list[str]:
        clock[0] += 100
        return ["a", "b"]

    jobs = [(made(["a b", "a c", "d e"]), 2), (made(["f g", "f h", "i j", "i k"]), 2)]
    first, second = consolidate_many(jobs, embed=embed, distiller=Script(write), count_tokens=count_words, epsilon=0.0)
    assert len(first.merges) == 1 and len(second.merges) == 2
    assert first.seconds["embedding"] == 3 + 2
    assert second.seconds["embedding"] == 4 + 2 * 2
    assert first.seconds["similarity"] == second.seconds["similarity"] == 0
    assert first.seconds["distillation"] + second.seconds["distillation"] == 300
    assert second.seconds["distillation"] == 200


def test_stored_replies_are_not_timed() -> None:
    stored = Script(lambda u, v, cap: [Candidate("a", "s", 1, 1, seconds=math.nan)])
    seconds = run(made(["a b", "a c"]), 1, stored).seconds
    assert math.isnan(seconds["distillation"]) and seconds["embedding"] >= 0


def test_all_agents_of_an_iteration_are_one_call_of_a_receiver() -> None:
    asked: list[int] = []

    class Counting(ScriptedReceiver):
        def reply(self, prompts: Sequence[Prompt], **settings_: object):  # type: ignore[no-untyped-def, override]
            asked.append(len(prompts))
            return super().reply(prompts, **settings_)  # type: ignore[arg-type]

    receiver = Counting(lambda prompt: "merged")
    jobs = [(made([f"text {agent} {index}" for index in range(5)]), 4) for agent in range(3)]
    done = consolidate_many(
        jobs, embed=hash_embed, distiller=ReceiverDistiller(receiver), count_tokens=count_words, epsilon=0.0
    )
    assert asked == [15]
    assert [len(one.items) for one in done] == [4, 4, 4]
    assert all(one.items[index].text == "merged" for one in done for index in range(4) if len(one.items[index].ids) > 1)


# ------------------------------------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("changes", "field_name"),
    [
        ({"epsilon": -0.1}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"kappa": 0.5}, "kappa"),
        ({"kappa": 0.0}, "kappa"),
        ({"budget": -1}, "budget"),
        ({"items": [*made(["a"]), *made(["b"])]}, "ranks"),
        ({"items": [Item("a", ("1",), ("r",), 1, 0), Item("b", ("1",), ("r",), 1, 1)]}, "in two of them"),
        ({"embed": lambda texts: np.ones(3)}, "embed"),
        ({"embed": lambda texts: np.ones((1, 3))}, "embed"),
        ({"count_tokens": lambda texts: [1]}, "count_tokens"),
    ],
)
def test_wrong_input_is_named(changes: dict[str, object], field_name: str) -> None:
    given_: dict[str, object] = {"items": made(["a", "b"]), "budget": 1, **changes}
    with pytest.raises(ValueError, match=field_name):
        run(given_.pop("items"), given_.pop("budget"), **given_)  # type: ignore[arg-type]


def test_a_distiller_that_forgets_a_pair_is_named() -> None:
    script = Script(first_words)
    script.candidates = lambda pairs, caps: []  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="script.*0 lists of candidates for 1 pairs"):
        run(made(["a", "b"]), 1, script)


def test_what_a_distiller_raises_is_not_hidden() -> None:
    def write(u: Item, v: Item, cap: int) -> list[str]:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        run(made(["a", "b"]), 1, Script(write))
