"""Strict JSON by constrained decoding.

A JSON schema becomes a grammar over the receiver's own tokens (llguidance). At every step it says which tokens keep the reply
valid; where only one continuation is possible the tokens are *forced*, appended without asking the model. So evidence ids can only be ids
that were shown, labels only labels of the set, and the brackets cost nothing.

Not covered: schemas llguidance does not know; they raise a `ValueError` that quotes its reason.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Sequence
from typing import Any

import llguidance.numpy as bitmask
import numpy as np
from llguidance import LLMatcher, LLTokenizer


class JsonGrammar:
    """Compiles schemas for one tokenizer and hands out matchers.

    Parameters
    ----------
    tokenizer : transformers fast tokenizer
    vocabulary : int
        Width of the model's logits, which may exceed the tokenizer's vocabulary.
    eos : collection of int
        Tokens that end a reply.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, eos: Collection[int]) -> None:
        self.vocabulary = vocabulary
        self._tokenizer = LLTokenizer(_text_only(tokenizer), n_vocab=vocabulary, eos_token=sorted(eos))
        self._templates: dict[str, LLMatcher] = {}

    def matcher(self, schema: dict[str, Any]) -> LLMatcher:
        """Return a fresh matcher for a reply that satisfies `schema`."""
        key = json.dumps(schema, ensure_ascii=False)
        if key not in self._templates:
            grammar = LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": False})
            template = LLMatcher(self._tokenizer, grammar)
            if template.is_error():
                raise ValueError(
                    f"schema not supported for constrained decoding: {template.get_error()}; schema: {key[:300]}"
                )
            if len(self._templates) >= 4096:
                self._templates.clear()
            self._templates[key] = template
        return self._templates[key].deep_copy()

    def allowed(self, matchers: Sequence[LLMatcher]) -> np.ndarray:
        """Return which tokens may come next, shape (n_matchers, vocabulary), bool."""
        masks = bitmask.allocate_token_bitmask(len(matchers), self.vocabulary)
        for row, matcher in enumerate(matchers):
            bitmask.fill_next_token_bitmask(matcher, masks, row)
        bits = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")
        return bits[:, : self.vocabulary].astype(bool)


def consume_forced(matcher: LLMatcher) -> list[int]:
    """Advance a matcher over every token that has no alternative; returns these tokens."""
    forced = matcher.compute_ff_tokens() if not matcher.is_stopped() else []
    if forced and not matcher.consume_tokens(forced):
        raise ValueError(f"constrained decoding refused its own forced tokens: {matcher.get_error()}")
    return list(forced)


def _text_only(tokenizer: Any) -> str:
    """Return the settings of a tokenizer for which every text is plain text, spelled as it stands.

    llguidance finds the tokens of forced text with these. An id that spells `<|im_end|>` must not become that token, nor may
    a decomposed accent become another string: the reply would break off or be refused. So special tokens get names that no
    text can guess, and Unicode normalisation is left out.
    """
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ValueError(
            f"{type(tokenizer).__name__}: strict JSON needs a fast tokenizer (tokenizer.json); this one has none"
        )
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["normalizer"] = _without_folding(state["normalizer"])
    state["truncation"] = state["padding"] = None
    secret = secrets.token_hex(16)
    renamed = {}
    for token in state["added_tokens"]:
        # llguidance also takes as special what looks like it, such as Qwen's `<tool_call>`.
        if token["special"] or (token["content"].startswith("<") and token["content"].endswith(">")):
            renamed[token["content"]] = f"{secret}{token['id']}"
            token.update(content=renamed[token["content"]], special=True)
    vocabulary = state["model"]["vocab"]
    if isinstance(vocabulary, dict):
        state["model"]["vocab"] = {renamed.get(text, text): index for text, index in vocabulary.items()}
    state["post_processor"] = None  # it may name special tokens, and adds nothing to text
    return json.dumps(state)


def _without_folding(normalizer: Any) -> Any:
    """Return a normaliser's settings without Unicode normalisation forms."""
    if normalizer is None or normalizer["type"] in ("NFC", "NFD", "NFKC", "NFKD"):
        return None
    if normalizer["type"] == "Sequence":
        return {
            **normalizer,
            "normalizers": [kept for step in normalizer["normalizers"] if (kept := _without_folding(step))],
        }
    return normalizer
