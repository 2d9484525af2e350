"""What a receiver is asked and what it answers.

A `Prompt` is a list of chat turns and, when the reply must be strict JSON, the schema it has to satisfy. A `Receiver` answers
many prompts at once: it keeps their order, may share the work of common prefixes and computes identical prompts once.
Everything in a turn is data: whatever the text says, it is tokenised with special tokens disabled, so that a message
cannot open a turn of its own.

Not covered: images, tools and streaming.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np

from lib.seeds import digest

Role = Literal["system", "user", "assistant"]


class Turn(msgspec.Struct, frozen=True):
    """One chat turn: who speaks and the untrusted text that is said."""

    role: Role
    text: str


class Prompt(msgspec.Struct, frozen=True):
    """A chat to be continued by the receiver.

    Attributes
    ----------
    turns : tuple of Turn
        The conversation; the last turn is the user's.
    schema : dict, optional
        JSON schema of the reply. None leaves the reply free.
    bias : tuple of (text, nats)
        Added to the log-probability of each text's first token at the reply's first choice between all of them: where the options of a
        schema begin. Receivers without access to probabilities ignore it.
    """

    turns: tuple[Turn, ...]
    schema: dict[str, Any] | None = None
    bias: tuple[tuple[str, float], ...] = ()


class Reply(msgspec.Struct, frozen=True):
    """One answer of a receiver, with its costs.

    Attributes
    ----------
    text : str
        The raw text, special tokens removed; empty when the call failed.
    token_ids : tuple of int
        The generated tokens.
    prompt_tokens, new_tokens : int or None
        Lengths in the receiver's own tokens; None when the backend does not tell and they cannot be counted, never 0.
    seconds : float
        Wall time of the batch that produced the reply divided by the distinct rows in it: a share of work, not a latency.
    finish : str
        "stop" (the model or a stop string ended it), "length" (the token cap did) or "error".
    error : str, optional
        The reason when `finish` is "error".
    """

    text: str
    token_ids: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    seconds: float = 0.0
    finish: str = "stop"
    error: str | None = None


@runtime_checkable
class Receiver(Protocol):
    """A bounded model that reads a prompt and answers.

    Attributes
    ----------
    name : str
        Short name for tables.
    fingerprint : str
        Identity of everything but prompt and decoding that decides a reply: weights, dtype, code version. Part of the store's key.
    """

    name: str
    fingerprint: str

    def reply(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        samples: int = 1,
    ) -> list[Reply]:
        """Answer every prompt; the `samples` replies of a prompt stand together, prompts keep their order."""
        ...

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        """Return log-likelihoods in nats, shape (n_prompts, n_options), of each option as the start of the reply."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the receiver's own tokens in each text, without special tokens."""
        ...

    def prompt_key(self, prompt: Prompt) -> str:
        """Return the SHA-256 that names the exact input: token ids and schema."""
        ...


def options_per_prompt(n_prompts: int, options: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """Give every prompt its own option list.

    Raises
    ------
    ValueError
        When there are no options, when a list is missing for a prompt, or when the lists differ in length.
    """
    if isinstance(options, str):
        raise ValueError(f"options: {options!r} is one text, not a list of options")
    if all(isinstance(option, str) for option in options):
        rows = [[str(option) for option in options] for _ in range(n_prompts)]
    else:
        rows = [[str(option) for option in row] for row in options]
    if len(rows) != n_prompts:
        raise ValueError(f"options: got {len(rows)} lists for {n_prompts} prompts; pass one list each, or one for all")
    if n_prompts and (not rows[0] or len({len(row) for row in rows}) != 1):
        raise ValueError("options: every prompt needs the same number of options, at least one")
    return rows


def schema_text(schema: dict[str, Any] | None) -> str | None:
    """Return a schema as JSON for a key. Its order is kept: properties are answered in the order they are named."""
    return None if schema is None else json.dumps(schema, ensure_ascii=True, separators=(",", ":"))


def text_key(prompt: Prompt) -> str:
    """Return the SHA-256 of a prompt's text and schema: the key where a receiver has no tokenizer of its own."""
    return digest([[turn.role, turn.text] for turn in prompt.turns], schema_text(prompt.schema), prompt.bias)
