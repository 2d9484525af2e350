"""Many prompts as one token tree, so that what they share is computed once.

Context. Replay asks 2n + 2 nearly identical prompts per task: same instructions, same examples, same question, the packets
in the same order with one left out. As padded rows they cost the sum of their lengths; as a tree they cost its nodes.

Intuition. Sort the prompts; each then repeats a prefix of the one before it and adds a run of new tokens. A run is a
`Segment`: it sits in consecutive slots and sees a few earlier slot ranges, its ancestors. A slot is a node is a row of the
key-value buffer.

How to read it. `PrefixTree.tokens` are the nodes in slot order, `depth` their positions. `paths[i]` lists the slot ranges that
spell prompt i, and `leaf[i]` is the slot of its last token. `len(tree)` against `tree.naive_tokens` is the work saved.

Not covered: anything numeric; see tree_attention.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

Range = tuple[int, int]  # half-open slot range


class Segment(msgspec.Struct, frozen=True):
    """A run of new tokens in slots [start, stop) that sees `ancestors` and itself, causally."""

    start: int
    stop: int
    ancestors: tuple[Range, ...]


class PrefixTree(msgspec.Struct, frozen=True):
    """Distinct token sequences as a tree; see the module's header."""

    tokens: np.ndarray  # (n_slots,) int64
    depth: np.ndarray  # (n_slots,) int64, position of the token in its prompt
    segments: tuple[Segment, ...]
    paths: tuple[tuple[Range, ...], ...]  # per prompt
    leaf: tuple[int, ...]  # per prompt, slot of the last token
    naive_tokens: int  # sum of the prompts' lengths

    def __len__(self) -> int:
        return len(self.tokens)

    def slots(self, prompt: int) -> np.ndarray:
        """Return the slots of one prompt in reading order, shape (length,)."""
        return np.concatenate([np.arange(start, stop) for start, stop in self.paths[prompt]])


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Return how many leading tokens two sequences share."""
    limit = min(len(left), len(right))
    a, b = np.asarray(left[:limit]), np.asarray(right[:limit])
    different = np.flatnonzero(a != b)
    return int(different[0]) if len(different) else limit


def clip_ranges(ranges: Sequence[Range], length: int) -> tuple[Range, ...]:
    """Return the leading ranges that cover `length` slots."""
    kept: list[Range] = []
    for start, stop in ranges:
        if length <= 0:
            break
        take = min(length, stop - start)
        kept.append((start, start + take))
        length -= take
    return tuple(kept)


def _append(ranges: tuple[Range, ...], new: Range) -> tuple[Range, ...]:
    """Add a range, merged with the last one where they touch."""
    if ranges and ranges[-1][1] == new[0]:
        return (*ranges[:-1], (ranges[-1][0], new[1]))
    return (*ranges, new)


def build_tree(prompts: Sequence[Sequence[int]]) -> PrefixTree:
    """Build the tree of token sequences; equal sequences share all their slots.

    Parameters
    ----------
    prompts : sequence of token id sequences
        Each non-empty, in any order; order is kept in `paths` and `leaf`.

    Raises
    ------
    ValueError
        When a prompt has no token: there is nothing to continue from.
    """
    for index, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"prompt {index} has no tokens; a prefix tree needs at least one token each")
    order = sorted(range(len(prompts)), key=lambda index: tuple(prompts[index]))
    tokens: list[int] = []
    depth: list[int] = []
    segments: list[Segment] = []
    paths: list[tuple[Range, ...]] = [()] * len(prompts)
    leaf = [0] * len(prompts)
    previous: Sequence[int] = ()
    path: tuple[Range, ...] = ()
    for index in order:
        prompt = prompts[index]
        shared = common_prefix(previous, prompt)
        ancestors = clip_ranges(path, shared)
        path = ancestors
        if shared < len(prompt):
            start = len(tokens)
            tokens.extend(prompt[shared:])
            depth.extend(range(shared, len(prompt)))
            segments.append(Segment(start=start, stop=len(tokens), ancestors=ancestors))
            path = _append(ancestors, (start, len(tokens)))
        paths[index] = path
        leaf[index] = path[-1][1] - 1
        previous = prompt
    return PrefixTree(
        tokens=np.asarray(tokens, dtype=np.int64),
        depth=np.asarray(depth, dtype=np.int64),
        segments=tuple(segments),
        paths=tuple(paths),
        leaf=tuple(leaf),
        naive_tokens=sum(len(prompt) for prompt in prompts),
    )


def chunk_segments(segments: Sequence[Segment], max_tokens: int, max_queries: int = 256) -> list[list[Segment]]:
    """Cut segments to at most `max_queries` tokens and group them, in slot order, into chunks of at most `max_tokens`.

    A cut piece sees the pieces before it as ancestors, so any chunking computes the same numbers.
    """
    max_queries = min(max_queries, max_tokens)
    pieces: list[Segment] = []
    for segment in segments:
        ancestors = segment.ancestors
        for start in range(segment.start, segment.stop, max_queries):
            stop = min(start + max_queries, segment.stop)
            pieces.append(Segment(start=start, stop=stop, ancestors=ancestors))
            ancestors = _append(ancestors, (start, stop))
    chunks: list[list[Segment]] = []
    size = max_tokens + 1
    for piece in pieces:
        length = piece.stop - piece.start
        if size + length > max_tokens:
            chunks.append([])
            size = 0
        chunks[-1].append(piece)
        size += length
    return chunks


def group_prompts(prompts: Sequence[Sequence[int]], max_slots: int) -> list[list[int]]:
    """Group prompt indices, neighbours in sorted order together, into trees of at most `max_slots` nodes.

    A single prompt longer than the bound gets a tree of its own.
    """
    order = sorted(range(len(prompts)), key=lambda index: tuple(prompts[index]))
    groups: list[list[int]] = []
    size = 0
    previous: Sequence[int] = ()
    for index in order:
        prompt = prompts[index]
        added = len(prompt) - common_prefix(previous, prompt)
        if not groups or size + added > max_slots:
            groups.append([])
            size, added = 0, len(prompt)
        groups[-1].append(index)
        size += added
        previous = prompt
    return groups
