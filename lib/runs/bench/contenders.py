"""The ways to answer replay prompts with a transformers model, plainest first.

All of them continue token ids greedily (`Engine` of module `engines`). `tokens_read` is what the last call pushed through the layers to
read the prompts, padding included; `rows_decoded` what it pushed to continue them.

- one at a time: `generate`, one prompt a call;
- padded batches: `generate` over left-padded batches, in the order asked or sorted by length;
- shared prefix: the tokens that all prompts begin with are read once, then each prompt is continued from a copy of their keys and values;
- prefix tree: the suite's receiver.

Not covered: schemas and sampling.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import DynamicCache

from lib.models.prefix_tree import common_prefix
from lib.models.receiver import Prompt
from lib.models.transformers_receiver import TransformersReceiver
from lib.models.weights import LoadedModel

Tokens = list[tuple[int, ...]]


def until_end(tokens: Sequence[int], ends: frozenset[int]) -> tuple[int, ...]:
    """Return the tokens before the first end token, so that padding after it does not count."""
    for place, token in enumerate(tokens):
        if token in ends:
            return tuple(tokens[:place])
    return tuple(tokens)


class Generate:
    """transformers' `generate` over left-padded batches.

    Parameters
    ----------
    loaded : the model as transformers runs it
    ends : token ids that end a reply
    batch : prompts a call; 1 is one at a time
    sort : bool
        Put prompts of similar length into one batch; else they stay in the order asked.
    """

    def __init__(self, loaded: LoadedModel, ends: frozenset[int], *, batch: int = 1, sort: bool = True) -> None:
        self.name = "one at a time" if batch == 1 else f"{'sorted' if sort else 'unsorted'} batches of {batch}"
        self.batch, self.sort = batch, sort
        self._model, self._ends = loaded.model, ends
        pad = loaded.tokenizer.pad_token_id
        self._pad = int(pad if pad is not None else min(ends))
        self.tokens_read: int | None = 0
        self.rows_decoded: int | None = 0

    @torch.inference_mode()
    def generate(self, encoded: Sequence[Sequence[int]], new_tokens: int) -> Tokens:
        """See `Engine.generate`."""
        order = list(range(len(encoded)))
        if self.sort:
            order.sort(key=lambda index: len(encoded[index]))
        out: Tokens = [()] * len(encoded)
        self.tokens_read = self.rows_decoded = 0
        for start in range(0, len(order), self.batch):
            part = order[start : start + self.batch]
            width = max(len(encoded[index]) for index in part)
            gaps = [width - len(encoded[index]) for index in part]
            ids = [[self._pad] * gap + list(encoded[index]) for gap, index in zip(gaps, part, strict=True)]
            mask = [[0] * gap + [1] * (width - gap) for gap in gaps]
            new = greedy(self._model, ids, new_tokens, self._pad, self._ends, attention_mask=mask)
            self.tokens_read += width * len(part)
            self.rows_decoded += max(0, len(new[0]) - 1) * len(part)
            for index, row in zip(part, new, strict=True):
                out[index] = until_end(row, self._ends)
        return out

    def close(self) -> None:
        """Nothing to free: the weights belong to the caller."""


class SharedPrefix:
    """transformers' `generate`, one prompt a call, from a copy of the keys and values of what all prompts begin with."""

    name = "shared prefix"

    def __init__(self, loaded: LoadedModel, ends: frozenset[int]) -> None:
        self._model, self._ends = loaded.model, ends
        pad = loaded.tokenizer.pad_token_id
        self._pad = int(pad if pad is not None else min(ends))
        self.tokens_read: int | None = 0
        self.rows_decoded: int | None = 0

    @torch.inference_mode()
    def generate(self, encoded: Sequence[Sequence[int]], new_tokens: int) -> Tokens:
        """See `Engine.generate`."""
        shared = min(len(prompt) for prompt in encoded) - 1  # a token to decode from stays with each prompt
        for prompt in encoded:
            shared = min(shared, common_prefix(encoded[0], prompt))
        trunk = DynamicCache(config=self._model.config)
        if shared:
            self._model(
                input_ids=torch.tensor([list(encoded[0][:shared])], device=self._model.device),
                cache=trunk,
                logits_to_keep=1,
            )
        out: Tokens = []
        self.tokens_read, self.rows_decoded = shared, 0
        for prompt in encoded:
            cache = copy.deepcopy(trunk)
            new = greedy(self._model, [list(prompt)], new_tokens, self._pad, self._ends, cache=cache)[0]
            self.tokens_read += len(prompt) - shared
            self.rows_decoded += max(0, len(new) - 1)
            out.append(until_end(new, self._ends))
        return out

    def close(self) -> None:
        """Nothing to free: the weights belong to the caller."""


class Tree:
    """The suite's receiver; its time includes the tokenisation of the prompts.

    Parameters
    ----------
    receiver : the receiver
    prompts : the prompt of each token sequence
    """

    name = "prefix tree"

    def __init__(self, receiver: TransformersReceiver, prompts: Mapping[tuple[int, ...], Prompt]) -> None:
        self._receiver = receiver
        self._prompts = prompts
        self.tokens_read: int | None = 0
        self.rows_decoded: int | None = 0

    def generate(self, encoded: Sequence[Sequence[int]], new_tokens: int) -> Tokens:
        """See `Engine.generate`."""
        runner = self._receiver.runner
        read, forward = runner.tokens_read, runner.forward_tokens
        replies = self._receiver.reply([self._prompts[tuple(ids)] for ids in encoded], max_tokens=new_tokens)
        self.tokens_read = runner.tokens_read - read
        self.rows_decoded = runner.forward_tokens - forward - self.tokens_read
        return [until_end(reply.token_ids, self._receiver.eos) for reply in replies]

    def close(self) -> None:
        """Nothing to free: the weights belong to the caller."""


def greedy(
    model: Any,
    ids: Sequence[Sequence[int]],
    new_tokens: int,
    pad: int,
    ends: frozenset[int],
    *,
    attention_mask: Sequence[Sequence[int]] | None = None,
    **options: Any,
) -> list[list[int]]:
    """Return what `generate` appends to equally long rows; sampling settings that a model folder carries are ignored."""
    given = torch.tensor(ids, device=model.device)
    mask = torch.ones_like(given) if attention_mask is None else torch.tensor(attention_mask, device=model.device)
    out = model.generate(
        given,
        attention_mask=mask,
        max_new_tokens=new_tokens,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        repetition_penalty=1.0,
        pad_token_id=pad,
        eos_token_id=sorted(ends),
        **options,
    )
    return out[:, given.shape[1] :].tolist()
