"""The prefix tree against the plainest form of a trie: the set of all prefixes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.models.prefix_tree import (
    PrefixTree,
    Segment,
    build_tree,
    chunk_segments,
    clip_ranges,
    common_prefix,
    group_prompts,
)
from tests.models.strategies import token_sets


def prefixes(prompts: list[list[int]]) -> set[tuple[int, ...]]:
    return {tuple(prompt[:length]) for prompt in prompts for length in range(1, len(prompt) + 1)}


def spelled(tree: PrefixTree) -> dict[int, tuple[int, ...]]:
    """Return slot -> the tokens from the root to it, told by the segments alone."""
    words: dict[int, tuple[int, ...]] = {}
    for segment in tree.segments:
        parents = [slot for start, stop in segment.ancestors for slot in range(start, stop)]
        word = tuple(int(tree.tokens[slot]) for slot in parents)
        for slot in range(segment.start, segment.stop):
            word = (*word, int(tree.tokens[slot]))
            words[slot] = word
    return words


# ------------------------------------------------------------------------------------------------------------------- the tree


@given(token_sets())
def test_every_prefix_has_one_slot_and_every_path_spells_its_prompt(prompts: list[list[int]]) -> None:
    tree = build_tree(prompts)
    words = spelled(tree)
    assert sorted(words) == list(range(len(tree))), "segments part the slots"
    assert len(set(words.values())) == len(words), "no prefix is stored twice"
    assert set(words.values()) == prefixes(prompts)
    assert tree.naive_tokens == sum(map(len, prompts))
    for index, prompt in enumerate(prompts):
        slots = tree.slots(index)
        assert tree.tokens[slots].tolist() == prompt
        assert tree.depth[slots].tolist() == list(range(len(prompt)))
        assert slots[-1] == tree.leaf[index]
        assert words[tree.leaf[index]] == tuple(prompt)


@given(token_sets())
def test_a_segment_sees_only_slots_before_it_and_as_many_as_its_depth(prompts: list[list[int]]) -> None:
    tree = build_tree(prompts)
    for segment in tree.segments:
        assert segment.start < segment.stop
        assert sum(stop - start for start, stop in segment.ancestors) == tree.depth[segment.start]
        last = 0
        for start, stop in segment.ancestors:
            assert last <= start < stop <= segment.start, "ranges are in order and earlier"
            last = stop
    for path in tree.paths:
        assert all(left[1] < right[0] for left, right in pairwise(path)), "ranges that touch are merged"


@given(token_sets(), st.randoms(use_true_random=False))
def test_order_of_the_prompts_changes_no_slot(prompts: list[list[int]], random: object) -> None:
    order = list(range(len(prompts)))
    random.shuffle(order)  # type: ignore[attr-defined]
    tree, other = build_tree(prompts), build_tree([prompts[index] for index in order])
    assert tree.tokens.tolist() == other.tokens.tolist()
    assert tree.segments == other.segments
    assert [tree.paths[index] for index in order] == list(other.paths)


def test_worked_example() -> None:
    tree = build_tree([[5, 6, 8], [5, 6, 7, 9], [5, 6], [4], [5, 6, 8]])
    assert tree.tokens.tolist() == [4, 5, 6, 7, 9, 8]
    assert tree.depth.tolist() == [0, 0, 1, 2, 3, 2]
    assert tree.segments == (
        Segment(0, 1, ()),
        Segment(1, 3, ()),
        Segment(3, 5, ((1, 3),)),
        Segment(5, 6, ((1, 3),)),
    )
    assert tree.paths == (((1, 3), (5, 6)), ((1, 5),), ((1, 3),), ((0, 1),), ((1, 3), (5, 6)))
    assert tree.leaf == (5, 4, 2, 0, 5)
    assert (len(tree), tree.naive_tokens) == (6, 13)


def test_a_prompt_without_tokens_is_refused_by_number() -> None:
    with pytest.raises(ValueError, match="prompt 1 has no tokens"):
        build_tree([[3], []])


def test_common_prefix_and_clip() -> None:
    assert [common_prefix(*pair) for pair in ([[], [1]], [[1, 2], [1, 2]], [[1, 2], [1, 3]], [[1], [1, 2]])] == [
        0,
        2,
        1,
        1,
    ]
    assert clip_ranges([(0, 3), (5, 9)], 5) == ((0, 3), (5, 7))
    assert clip_ranges([(0, 3), (5, 9)], 3) == ((0, 3),)
    assert clip_ranges([(0, 3)], 0) == ()


# ------------------------------------------------------------------------------------------------------------------ chunks, groups


@given(token_sets(longest=40), st.integers(1, 30), st.integers(1, 12))
def test_chunks_keep_the_slots_and_the_bound_and_what_each_token_sees(
    prompts: list[list[int]], max_tokens: int, max_queries: int
) -> None:
    tree = build_tree(prompts)
    chunks = chunk_segments(tree.segments, max_tokens, max_queries)
    pieces = [piece for chunk in chunks for piece in chunk]
    assert [slot for piece in pieces for slot in range(piece.start, piece.stop)] == list(range(len(tree)))
    assert all(piece.stop - piece.start <= max_queries for piece in pieces)
    assert all(chunk[-1].stop - chunk[0].start <= max_tokens for chunk in chunks)
    cut = PrefixTree(tree.tokens, tree.depth, tuple(pieces), tree.paths, tree.leaf, tree.naive_tokens)
    assert spelled(cut) == spelled(tree)


@given(token_sets(longest=20), st.integers(1, 40))
def test_groups_cover_each_prompt_once_within_the_bound(prompts: list[list[int]], max_slots: int) -> None:
    groups = group_prompts(prompts, max_slots)
    assert sorted(index for group in groups for index in group) == list(range(len(prompts)))
    for group in groups:
        inside = [prompts[index] for index in group]
        assert len(build_tree(inside)) <= max_slots or len(prefixes(inside)) == len(inside[0]), "a lone long prompt"
    # Greedy in sorted order: the first prompt of a group would not have fitted into the group before it.
    for left, right in pairwise(groups):
        joined = [prompts[index] for index in [*left, right[0]]]
        assert len(build_tree(joined)) > max_slots


def test_prompts_with_equal_openings_are_grouped_together() -> None:
    prompts = [[1, 1, 1, 2], [9, 9, 9, 9], [1, 1, 1, 3], [9, 9, 9, 8]]
    assert group_prompts(prompts, 5) == [[0, 2], [3, 1]]
    assert group_prompts([], 5) == []


def test_one_prompt_has_one_segment() -> None:
    tree = build_tree([list(range(3, 400))])
    assert len(tree.segments) == 1
    assert [len(chunk) for chunk in chunk_segments(tree.segments, 256, 256)] == [1, 1]
    assert np.array_equal(tree.slots(0), np.arange(397))
