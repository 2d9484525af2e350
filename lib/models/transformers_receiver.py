"""The receiver that runs a transformers model on this machine.

Prompts become one prefix tree per batch, their leaves are decoded together, replies come back in the order asked. Greedy unless a
temperature is given; strict JSON where the prompt has a schema. One code path serves one prompt and a thousand, so both arms of a
contrast are computed alike.

Not covered: several devices; models larger than one device's memory.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lib.models.chat import ChatEncoder
from lib.models.packed_linear import PackedLinear, can_pack, pack_linears
from lib.models.prefix_tree import PrefixTree, build_tree, group_prompts
from lib.models.receiver import Prompt, Reply, Turn, options_per_prompt, schema_text
from lib.models.structured import JsonGrammar, consume_forced
from lib.models.tree_attention import KeyValues, RowPlan, TreeRunner
from lib.models.weights import LoadedModel, load_weights
from lib.seeds import digest, generator

ENGINE = "tree-3"  # part of the fingerprint: raise it when a change can alter replies
MAX_SLOTS, MAX_ROW_TOKENS = 12_288, 32_768  # what is read and decoded at once, see TransformersReceiver
_GROWTH = 48  # columns added to the decoding rows at a time


class _Row:
    """One distinct reply in the making."""

    def __init__(self, ids: list[int], matcher: Any, seed: tuple[object, ...], max_tokens: int) -> None:
        self.prompt_tokens = len(ids)
        self.matcher = matcher
        self.seed = seed
        self.tokens: list[int] = consume_forced(matcher) if matcher is not None else []
        self.ids = ids + self.tokens  # forced opening tokens are read with the prompt
        self.bias: dict[int, float] = {}  # token -> nats, until the first choice that all of these tokens are part of
        self.pending: list[int] = []
        self.finish = "stop" if matcher is not None and matcher.is_stopped() else ""
        self.error: str | None = None
        self.cap(max_tokens)

    def cap(self, max_tokens: int) -> None:
        """End the reply at the token cap."""
        if len(self.tokens) > max_tokens or (len(self.tokens) == max_tokens and not self.finish):
            self.tokens, self.finish = self.tokens[:max_tokens], "length"


class TransformersReceiver:
    """A local transformers model as a receiver.

    Parameters
    ----------
    model : str
        Short name of data/sources.toml, a local folder, or a hub id.
    device, dtype : str
        "auto" or explicit; see `load_weights`. `exact=True` forces float32.
    revision : str, optional
        Commit of a hub id.
    max_slots : int
        Tree nodes read at once: bounds the key-value buffer.
    max_row_tokens : int
        Rows times columns (prompt and reply) decoded at once: bounds the decoding buffer, unless a single row needs more.
    pack : bool
        Use prepacked linear layers where the device has them.
    loaded : LoadedModel, optional
        Weights that are already in memory, instead of `model`.

    Attributes
    ----------
    load_seconds : float
        Seconds from weights on disk to a receiver that can answer; in no latency.

    Raises
    ------
    ValueError
        For models with sliding windows, without a chat template, or outside transformers' attention interface.
    """

    def __init__(
        self,
        model: str = "qwen-coder-0.5b",
        *,
        device: str = "auto",
        dtype: str = "auto",
        exact: bool = False,
        revision: str | None = None,
        max_slots: int = MAX_SLOTS,
        max_row_tokens: int = MAX_ROW_TOKENS,
        pack: bool = True,
        loaded: LoadedModel | None = None,
    ) -> None:
        start = time.perf_counter()
        self.loaded = loaded or load_weights(model, dtype=dtype, device=device, revision=revision, exact=exact)
        self.name, self.dtype = self.loaded.name, self.loaded.dtype
        self.tokenizer = self.loaded.tokenizer
        network = self.loaded.model.eval()
        if pack and can_pack(torch.device(self.loaded.device), network.dtype):
            pack_linears(network)
        packed = any(isinstance(module, PackedLinear) for module in network.modules())  # perhaps by an earlier receiver
        self.runner = TreeRunner(network)
        self.encoder = ChatEncoder(self.tokenizer, self.name)
        self.max_slots, self.max_row_tokens = max_slots, max_row_tokens
        self.context = int(network.config.max_position_embeddings)
        self.eos = eos_tokens(network.generation_config, self.tokenizer)
        self.grammar = JsonGrammar(self.tokenizer, int(network.config.vocab_size), self.eos)
        self.load_seconds = time.perf_counter() - start
        kind = torch.device(self.loaded.device).type
        self.fingerprint = fingerprint_of(
            self.loaded.sha256, network.config, self.eos, str(self.loaded.dtype), kind, packed=packed
        )

    def prompt_key(self, prompt: Prompt) -> str:
        """Name the exact input: token ids and schema."""
        return digest(self.encoder.encode(prompt), schema_text(prompt.schema), prompt.bias)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count this model's tokens in each text, special tokens off."""
        return [len(self.encoder.encode_text(text)) for text in texts]

    def warm_up(self) -> None:
        """Run one short call, so that the first measured call does not pay for lazy set-up."""
        self.reply([Prompt((Turn("user", "Say yes."),))], max_tokens=2)

    @torch.inference_mode()
    def reply(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        samples: int = 1,
    ) -> list[Reply]:
        """Answer every prompt; see `Receiver.reply`.

        Identical (prompt, sample) pairs are computed once; at temperature 0 all samples of a prompt are the same pair. A prompt
        that does not fit the model's context, or to which the model's numbers overflow, gets an error reply; the others are
        answered.
        """
        if max_tokens < 1 or samples < 1 or not 0 <= temperature < math.inf:
            raise ValueError(
                f"max_tokens={max_tokens}, samples={samples}, temperature={temperature}: need >= 1, >= 1, >= 0 and finite"
            )
        if isinstance(stop, str):
            raise ValueError(f"stop: {stop!r} is one text, not a list of texts")
        done: dict[tuple[object, ...], Reply] = {}
        keys: list[tuple[object, ...]] = []
        rows: dict[tuple[object, ...], _Row] = {}
        for prompt in prompts:
            ids = self.encoder.encode(prompt)
            name = digest(ids, schema_text(prompt.schema), prompt.bias)
            for sample in range(samples):
                key = (name, sample if temperature > 0 else 0)
                keys.append(key)
                if key in rows or key in done:
                    continue
                if len(ids) + max_tokens > self.context:
                    done[key] = _too_long(len(ids), max_tokens, self.context)
                    continue
                matcher = self.grammar.matcher(prompt.schema) if prompt.schema is not None else None
                rows[key] = _Row(ids, matcher, ("sample", *key), max_tokens)
                rows[key].bias = self._bias(prompt)
        # A row that its schema has finished needs no model, and may be longer than the model's context.
        done |= {key: self._reply_of(row, stop, 0.0) for key, row in rows.items() if row.finish}
        names, pending = [key for key in rows if key not in done], [row for row in rows.values() if not row.finish]
        for group in group_prompts([row.ids for row in pending], self.max_slots):
            started = time.perf_counter()
            self._answer([pending[index] for index in group], max_tokens, stop, temperature)
            share = (time.perf_counter() - started) / len(group)
            for index in group:
                done[names[index]] = self._reply_of(pending[index], stop, share)
        return [done[key] for key in keys]

    def _bias(self, prompt: Prompt) -> dict[int, float]:
        """Return a prompt's bias by first token."""
        firsts = {text: self.encoder.encode_text(text)[:1] for text, _ in prompt.bias}
        if () in firsts.values() or len(set(firsts.values())) < len(prompt.bias):
            raise ValueError(
                f"bias: the texts {list(firsts)} must begin with tokens of their own, in {self.name}'s vocabulary"
            )
        if not all(math.isfinite(nats) for _, nats in prompt.bias):
            raise ValueError(f"bias: {list(prompt.bias)} must be finite numbers of nats")
        return {firsts[text][0]: nats for text, nats in prompt.bias}

    @torch.inference_mode()
    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        """Return log-likelihoods in nats, shape (n_prompts, n_options), read from the tree without decoding."""
        choices = options_per_prompt(len(prompts), options)
        sequences: list[list[int]] = []
        owners: list[tuple[int, int, int, list[int]]] = []
        for i, prompt in enumerate(prompts):
            ids = self.encoder.encode(prompt)
            for j, option in enumerate(choices[i]):
                tokens = list(self.encoder.encode_text(option))
                if not tokens or len(ids) + len(tokens) > self.context:
                    lengths = f"{len(ids)} + {len(tokens)} tokens; need 1 to {self.context} and a non-empty option"
                    raise ValueError(f"prompt {i}, option {j}: {lengths}")
                owners.append((i, j, len(ids), tokens))
                sequences.append(ids + tokens[:-1])
        scores = np.zeros((len(prompts), len(choices[0]) if choices else 0))
        for group in group_prompts(sequences, self.max_slots):
            tree = build_tree([sequences[index] for index in group])
            asked = [tree.slots(place)[owners[index][2] - 1 :] for place, index in enumerate(group)]
            wanted, where = np.unique(np.concatenate(asked), return_inverse=True)
            _, states = self.runner.read(tree, wanted)
            follow = torch.as_tensor([token for index in group for token in owners[index][3]])
            values = self._log_probabilities(states, torch.as_tensor(where), follow)
            starts = np.cumsum([0] + [len(owners[index][3]) for index in group])
            for place, index in enumerate(group):
                i, j, _, _ = owners[index]
                scores[i, j] = values[starts[place] : starts[place + 1]].sum()
        return scores

    def _log_probabilities(self, states: Tensor, where: Tensor, follow: Tensor) -> np.ndarray:
        """Return log p(follow[k] | state where[k]), shape (len(follow),), a bounded number of logit rows at a time."""
        out = np.zeros(len(follow))
        for start in range(0, len(states), self.runner.head_rows):
            logits = self.runner.logits(states[start : start + self.runner.head_rows]).log_softmax(-1)
            inside = (where >= start) & (where < start + self.runner.head_rows)
            picked = logits[(where[inside] - start).to(logits.device), follow[inside].to(logits.device)]
            out[inside.numpy()] = picked.double().cpu().numpy()
        return out

    def _answer(self, rows: list[_Row], max_tokens: int, stop: Sequence[str], temperature: float) -> None:
        """Read the rows' prompts as one tree and decode them, in blocks that fit the decoding buffer."""
        tree = build_tree([row.ids for row in rows])
        store, states = self.runner.read(tree, np.asarray(tree.leaf))
        longest = max(_room(row, max_tokens) for row in rows)
        block = max(1, self.max_row_tokens // longest)
        for start in range(0, len(rows), block):
            part = list(range(start, min(start + block, len(rows))))
            self._decode(
                tree, store, states[start : start + block], part, [rows[i] for i in part], max_tokens, stop, temperature
            )

    def _decode(
        self,
        tree: PrefixTree,
        store: KeyValues,
        states: Tensor,
        places: list[int],
        rows: list[_Row],
        max_tokens: int,
        stop: Sequence[str],
        temperature: float,
    ) -> None:
        """Continue the leaves `places` token by token; rows leave as they finish."""
        limit = max(_room(row, max_tokens) for row in rows)
        columns = np.asarray([len(row.ids) for row in rows])
        buffer = self.runner.rows_from(tree, store, places, min(_GROWTH, limit - int(columns.max())))
        live = list(range(len(rows)))
        while live:
            for start in range(0, len(live), self.runner.head_rows):
                part = slice(start, start + self.runner.head_rows)
                logits = self.runner.logits(states[part])
                self._choose([rows[index] for index in live[part]], logits, max_tokens, stop, temperature)
            live = [index for index in live if not rows[index].finish]
            if not live:
                break
            if len(live) <= len(buffer) // 2:  # finished rows are dropped when half the work would be theirs
                buffer = buffer.keep(live)
                rows, columns, live = [rows[index] for index in live], columns[live], list(range(len(live)))
            counts = [len(rows[index].pending) for index in live]
            needed = max(columns[index] + count for index, count in zip(live, counts, strict=True))
            if needed > buffer.length:
                buffer = buffer.grow(min(max(_GROWTH, needed - buffer.length), limit - buffer.length))
            at = np.concatenate([columns[index] + np.arange(count) for index, count in zip(live, counts, strict=True)])
            tokens = np.concatenate([rows[index].pending for index in live])
            hidden = self.runner.hidden(tokens, at, RowPlan(buffer, np.repeat(live, counts), at))
            states = hidden[torch.as_tensor(np.cumsum(counts) - 1, device=hidden.device)]
            columns[live] += counts

    def _choose(
        self, rows: list[_Row], logits: Tensor, max_tokens: int, stop: Sequence[str], temperature: float
    ) -> None:
        """Give every row its next tokens, the forced ones included, or finish it."""
        bound = [index for index, row in enumerate(rows) if row.matcher is not None]
        if bound:
            allowed = torch.as_tensor(
                self.grammar.allowed([rows[index].matcher for index in bound]), device=logits.device
            )
            at = torch.as_tensor(bound, device=logits.device)
            logits[at] = logits[at].masked_fill(~allowed, -torch.inf)
        for index, row in enumerate(rows):
            # Where an earlier choice or the open end of a forced text stands, not all texts of the bias can be next.
            if row.bias and (logits[index, list(row.bias)] > -torch.inf).all():
                for token, nats in row.bias.items():
                    logits[index, token] += nats
                row.bias = {}
        sound = torch.isfinite(logits.amax(-1)).tolist()
        chosen = logits.argmax(-1).tolist() if temperature == 0 else _sample(rows, logits, temperature)
        for row, token, choosable in zip(rows, chosen, sound, strict=True):
            if not choosable:
                row.finish = "error"
                row.error = (
                    f"the {self.loaded.dtype} logits name no likeliest token; try dtype='float32' or a smaller bias"
                )
                continue
            if token in self.eos:
                row.finish = "stop"
                continue
            new = [token]
            if row.matcher is not None:
                if not row.matcher.consume_token(token):
                    raise ValueError(
                        f"constrained decoding refused token {token}, which it had allowed: {row.matcher.get_error()}"
                    )
                new += consume_forced(row.matcher)
                if row.matcher.is_stopped():
                    row.finish = "stop"
            row.tokens += new
            row.pending = new
            row.cap(max_tokens)
            if stop and _stop_at(self._text(row.tokens), stop) is not None:
                row.finish = "stop"

    def _text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def _reply_of(self, row: _Row, stop: Sequence[str], seconds: float) -> Reply:
        if row.error is not None:
            return Reply(text="", prompt_tokens=row.prompt_tokens, seconds=seconds, finish="error", error=row.error)
        text = self._text([token for token in row.tokens if token not in self.eos])
        cut = _stop_at(text, stop)
        return Reply(
            text=text if cut is None else text[:cut],
            token_ids=tuple(row.tokens),
            prompt_tokens=row.prompt_tokens,
            new_tokens=len(row.tokens),
            seconds=seconds,
            finish=row.finish if cut is None else "stop",
        )


def _sample(rows: list[_Row], logits: Tensor, temperature: float) -> list[int]:
    """Draw one token a row; the draw is named by prompt, sample and position, so it is repeatable in any batch."""
    below = logits.double() - logits.amax(-1, keepdim=True)  # at most 0, so that no temperature overflows
    reached = (below / temperature).softmax(-1).cumsum(-1).cpu().numpy()
    chosen = []
    for row, upto in zip(rows, reached, strict=True):
        draw = generator(*row.seed, len(row.tokens)).random() * upto[-1]
        chosen.append(int(min(np.searchsorted(upto, draw, side="right"), len(upto) - 1)))
    return chosen


def _stop_at(text: str, stop: Sequence[str]) -> int | None:
    """Return where the first stop string begins, or None."""
    found = [text.find(mark) for mark in stop if mark and mark in text]
    return min(found) if found else None


def _room(row: _Row, max_tokens: int) -> int:
    """Return the columns a row can come to need: its prompt, read with forced tokens, and the rest of its reply."""
    return len(row.ids) + max(0, max_tokens - len(row.tokens))


def _too_long(prompt_tokens: int, max_tokens: int, context: int) -> Reply:
    reason = f"prompt of {prompt_tokens} tokens + {max_tokens} new tokens exceed the model's context of {context}"
    return Reply(text="", prompt_tokens=prompt_tokens, finish="error", error=reason)


def _settings(config: Any) -> str:
    """Return what a configuration says of the computation, as JSON: the weights alone do not name a model."""
    told = {"_name_or_path", "architectures", "dtype", "transformers_version"}
    return json.dumps(
        {key: value for key, value in config.to_diff_dict().items() if key not in told}, sort_keys=True, default=str
    )


def eos_tokens(generation: Any, tokenizer: Any) -> frozenset[int]:
    """Return every token that ends a reply: the generation settings' and the tokenizer's."""
    named = getattr(generation, "eos_token_id", None)
    listed = named if isinstance(named, list) else [named]
    return frozenset(int(token) for token in [*listed, tokenizer.eos_token_id] if token is not None)


def fingerprint_of(sha256: str, config: Any, eos: frozenset[int], dtype: str, device_kind: str, *, packed: bool) -> str:
    """Return the identity of a receiver: weights, settings, precision, device and engine."""
    parts = (_settings(config), sorted(eos), dtype, device_kind, "packed" if packed else "plain", ENGINE)
    return digest(sha256, *parts)
