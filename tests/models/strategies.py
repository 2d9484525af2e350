"""Sets of token sequences and of chats that share prefixes the way replay's prompts do."""

from __future__ import annotations

from hypothesis import strategies as st

from lib.models.receiver import Prompt, Turn

_WORDS = ["the ferry left", " at noon", " and nobody", ' "saw" it', "", "\n", " é😀", " <|end|>"]


@st.composite
def token_sets(draw: st.DrawFn, *, low: int = 3, high: int = 6, longest: int = 12) -> list[list[int]]:
    """Draw unequal sequences, single tokens, prefixes of each other, extensions and repetitions, in any order."""
    sequence = st.lists(st.integers(low, high), min_size=1, max_size=longest)
    sets = draw(st.lists(sequence, min_size=1, max_size=6))
    for _ in range(draw(st.integers(0, 6))):
        base = draw(st.sampled_from(sets))
        cut = draw(st.integers(1, len(base)))
        sets.append(base[:cut] + draw(st.one_of(st.just([]), sequence)))
    return draw(st.permutations(sets))


@st.composite
def chats(draw: st.DrawFn, *, most: int = 5) -> list[Prompt]:
    """Draw chats with a common opening and different ends, some of them equal."""
    opening = [Turn("system", "Answer."), Turn("user", "the mill"), Turn("assistant", "none")]
    texts = draw(st.lists(st.lists(st.sampled_from(_WORDS), max_size=6).map("".join), min_size=1, max_size=most))
    shared = draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)))
    return [
        Prompt((*(opening if with_opening else []), Turn("user", text)))
        for text, with_opening in zip(texts, shared, strict=True)
    ]
