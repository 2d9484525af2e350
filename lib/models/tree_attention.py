"""Run any transformers decoder over a prefix tree, then decode its leaves together.

The model's own code is untouched. A function registered with transformers' attention interface receives the rotated
queries, keys and values of a packed list of tokens and a plan that says who sees whom:

- `TreePlan` (reading): tokens of a chunk of segments. Keys and values go to the buffer rows named by the slots; each segment
  attends to its ancestors' rows and causally to itself. No T x T mask exists anywhere.
- `RowPlan` (decoding): each live row owns a left-aligned copy of its path; a step appends one or several tokens (several where
  the grammar forces them) and attends to everything before them. Rows that append equally many are attended together, unpadded.
  (Keeping the common beginning of all rows once and joining two softmaxes was measured: no faster on CPU, so rows are plain.)

Everything else - projections, norms, rotary positions, head - runs on the packed tokens, without padding, in one matrix
product each. Memory: two buffers of (layers, slots, kv heads, head size); the caller bounds slots and rows.

Not covered: sliding windows, attention sinks, soft-capping, keys and values of unlike sizes, rotary positions that change with the
length of the text (longrope), encoder-decoders. `TreeRunner` refuses by name a model whose layers ask for these or do not all come
through the interface, and one whose logits differ from its own plain forward on a probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lib.models.prefix_tree import PrefixTree, Range, Segment, build_tree, chunk_segments

INTERFACE = "prefix_tree"
_UNSUPPORTED = {"sliding_window": "a sliding window", "softcap": "soft-capping", "s_aux": "attention sinks"}
# Of the largest logit. Two attentions of half precision may differ by a tenth; else, and in the head alone, only rounding is excused:
# a cap on the logits bends the small ones of a probe by a few hundredths.
_HALF_TOLERANCE, _TOLERANCE = 0.1, 0.01


class KeyValues:
    """Key and value buffers of all layers: `keys[layer]` has shape (rows, kv_heads, length, head_dim)."""

    def __init__(self, config: Any, rows: int, length: int, dtype: torch.dtype, device: torch.device) -> None:
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        shape = (rows, kv_heads, length, head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_hidden_layers)]

    def __len__(self) -> int:
        return self.keys[0].shape[0]

    @property
    def length(self) -> int:
        """Columns of a row."""
        return self.keys[0].shape[2]

    @property
    def heads(self) -> tuple[int, int]:
        """Number of key heads and size of a key."""
        return self.keys[0].shape[1], self.keys[0].shape[3]

    def keep(self, rows: Sequence[int]) -> KeyValues:
        """Drop all but the given rows, layer by layer."""
        at = torch.as_tensor(rows, device=self.keys[0].device)
        for buffers in (self.keys, self.values):
            for layer, buffer in enumerate(buffers):
                buffers[layer] = buffer[at]
        return self

    def grow(self, columns: int) -> KeyValues:
        """Add empty columns to every row, layer by layer."""
        for buffers in (self.keys, self.values):
            for layer, buffer in enumerate(buffers):
                buffers[layer] = torch.nn.functional.pad(buffer, (0, 0, 0, columns))
        return self


class TreePlan:
    """Who sees whom while a chunk of tree segments is read."""

    def __init__(self, store: KeyValues, segments: Sequence[Segment]) -> None:
        self.store = store
        self.segments = segments
        self.start = segments[0].start
        self.stop = segments[-1].stop
        self.calls = 0

    @property
    def heads(self) -> tuple[int, int]:
        """Number of key heads and size of a key."""
        return self.store.heads

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Attend for one layer: query (heads, T, d), key and value (kv_heads, T, d); returns (T, heads, d)."""
        keys, values = self.store.keys[layer][0], self.store.values[layer][0]
        keys[:, self.start : self.stop] = key
        values[:, self.start : self.stop] = value
        kv_heads, group = key.shape[0], query.shape[0] // key.shape[0]
        out = torch.empty_like(query.transpose(0, 1))  # (T, heads, d)
        for segment in self.segments:
            begin, end = segment.start - self.start, segment.stop - self.start
            length = end - begin
            asked = query[:, begin:end].unflatten(0, (kv_heads, group))  # (kv_heads, group, Lq, d)
            ranges = (*segment.ancestors, (segment.start, segment.stop))
            seen_keys, seen_values = _gather(keys, ranges), _gather(values, ranges)
            mask = None
            if length > 1 and segment.ancestors:
                mask = _bottom_right_mask(length, seen_keys.shape[1], query.device)
            answer = scaled_dot_product_attention(
                asked,
                seen_keys[:, None].expand(-1, group, -1, -1),
                seen_values[:, None].expand(-1, group, -1, -1),
                attn_mask=mask,
                is_causal=mask is None and length > 1,
                scale=scaling,
            )
            out[begin:end] = answer.flatten(0, 1).transpose(0, 1)
        return out


class _Group(NamedTuple):
    """Rows that append equally many tokens in a step."""

    tokens: Tensor  # (rows, steps), places in the pack; rows that append nothing point at token 0
    rows: Tensor | None  # which rows of the buffer; None means all of them, in order
    put: Tensor  # (rows,) bool: whose answers are wanted
    length: int  # columns looked at
    mask: Tensor | None  # (rows, 1, steps, length), 0 or -inf


class RowPlan:
    """Who sees whom in a decoding step: token t of the pack goes to column `columns[t]` of row `rows[t]`.

    Tokens of a row stand together, in order. Several tokens a row occur where a grammar forces them; rows with equally many are
    attended together, so that none is padded.
    """

    def __init__(self, store: KeyValues, rows: np.ndarray, columns: np.ndarray) -> None:
        self.store = store
        device, dtype = store.keys[0].device, store.keys[0].dtype
        self.rows = torch.as_tensor(rows, device=device)
        self.columns = torch.as_tensor(columns, device=device)
        self.calls = 0
        live, first, counts = np.unique(rows, return_index=True, return_counts=True)
        self.groups = []
        for steps in np.unique(counts):
            members = live[counts == steps]
            tokens = first[counts == steps][:, None] + np.arange(steps)
            everywhere = 2 * len(members) >= len(store)  # then a few idle rows cost less than a copy of the others
            if everywhere:
                filled = np.zeros((len(store), steps), dtype=np.int64)
                filled[members] = tokens
                put = np.zeros(len(store), dtype=bool)
                put[members] = True
            else:
                filled, put = tokens, np.ones(len(members), dtype=bool)
            until = np.where(put[:, None], columns[filled], columns[tokens].max())  # last column each query sees
            length = int(until.max()) + 1
            mask = None
            if (until != length - 1).any():
                seen = torch.arange(length, device=device) <= torch.as_tensor(until, device=device)[..., None]
                mask = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)[:, None]
            self.groups.append(
                _Group(
                    tokens=torch.as_tensor(filled, device=device),
                    rows=None if everywhere else torch.as_tensor(members, device=device),
                    put=torch.as_tensor(put, device=device),
                    length=length,
                    mask=mask,
                )
            )

    @property
    def heads(self) -> tuple[int, int]:
        """Number of key heads and size of a key."""
        return self.store.heads

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Attend for one layer: query (heads, T, d), key and value (kv_heads, T, d); returns (T, heads, d)."""
        keys, values = self.store.keys[layer], self.store.values[layer]
        keys[self.rows, :, self.columns] = key.transpose(0, 1)
        values[self.rows, :, self.columns] = value.transpose(0, 1)
        kv_heads, group = key.shape[0], query.shape[0] // key.shape[0]
        out = torch.empty_like(query.transpose(0, 1))  # (T, heads, d)
        for some in self.groups:
            steps = some.tokens.shape[1]
            # Query heads that share a key head stand as extra queries, so that keys are never repeated in memory.
            asked = query[:, some.tokens].unflatten(0, (kv_heads, group)).permute(2, 0, 1, 3, 4).flatten(2, 3)
            seen_keys, seen_values = keys[:, :, : some.length], values[:, :, : some.length]
            if some.rows is not None:
                seen_keys, seen_values = seen_keys[some.rows], seen_values[some.rows]
            mask = None if some.mask is None else some.mask.repeat(1, 1, group, 1)
            answer = scaled_dot_product_attention(asked, seen_keys, seen_values, attn_mask=mask, scale=scaling)
            answer = answer.unflatten(2, (group, steps)).permute(0, 3, 1, 2, 4).flatten(2, 3)  # (rows, steps, heads, d)
            out[some.tokens[some.put]] = answer[some.put]
        return out


def _apart(left: Tensor, right: Tensor) -> float:
    """Return the largest difference of two tensors as a share of the second one's largest value."""
    return float((left - right).abs().max() / right.abs().max())


def _gather(buffer: Tensor, ranges: Sequence[Range]) -> Tensor:
    """Return the buffer's rows of the ranges, shape (kv_heads, length, d); one range is a view."""
    if len(ranges) == 2 and ranges[0][1] == ranges[1][0]:
        ranges = [(ranges[0][0], ranges[1][1])]
    if len(ranges) == 1:
        return buffer[:, ranges[0][0] : ranges[0][1]]
    return torch.cat([buffer[:, start:stop] for start, stop in ranges], dim=1)


def _bottom_right_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return the causal mask (queries, keys) whose last query sees every key."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention function in the form that transformers' interface expects; the plan arrives as a keyword."""
    plan = kwargs.get("plan")
    if plan is None:
        raise ValueError(
            f"{type(module).__name__} called prefix-tree attention without a plan: the model was not run through TreeRunner, "
            "or its layers do not hand the plan on, and then it is not supported"
        )
    asked = [what for name, what in _UNSUPPORTED.items() if kwargs.get(name) is not None]
    if (key.shape[1], key.shape[-1]) != plan.heads or value.shape != key.shape:
        asked.append("keys and values of unlike sizes, or others than its configuration tells")
    if asked:
        raise ValueError(
            f"{type(module).__name__} uses {' and '.join(asked)}, which prefix-tree attention does not cover"
        )
    plan.calls += 1
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return plan.attend(module.layer_idx, query[0], key[0], value[0], scale)[None], None


ALL_ATTENTION_FUNCTIONS.register(INTERFACE, tree_attention)


class TreeRunner:
    """Runs a causal language model over prefix trees.

    Parameters
    ----------
    model : transformers causal language model
        Switched to the prefix-tree attention in place.
    chunk_tokens : int
        Tokens of one forward while reading: bounds activations.
    head_rows : int
        Rows of the vocabulary matrix product taken at once: bounds the logits in memory.

    Raises
    ------
    ValueError
        When a layer uses a sliding window or does not attend through transformers' interface, or when a probe shows that the
        model computes its logits in another way than this runner.
    """

    def __init__(self, model: Any, *, chunk_tokens: int = 1024, head_rows: int = 128) -> None:
        config = model.config
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            odd = sorted(kinds - {"full_attention"})
            raise ValueError(f"{config.model_type}: layers {odd} are not supported; use a full-attention model")
        if "longrope" in repr(getattr(config, "rope_parameters", None)):
            raise ValueError(
                f"{config.model_type}: rotary positions of kind 'longrope' are not supported: they change with the length of the "
                "text, and a tree reads texts of many lengths at once"
            )
        self.model = model
        self.config = config
        self.chunk_tokens = chunk_tokens
        self.head_rows = head_rows
        self.device = next(model.parameters()).device
        self.dtype = model.get_input_embeddings().weight.dtype
        self._probe()
        self.forward_tokens = 0  # tokens pushed through the layers, for tests and benchmarks
        self.tokens_read = 0  # those of them that read trees

    @torch.inference_mode()
    def _probe(self) -> None:
        """Switch the model to the tree attention; raise if a forked tree then gives other logits than the plain model.

        Some families scale or cap their logits, or attend in their own way; a short forward shows what a list of names would miss.
        """
        stem = [token % self.config.vocab_size for token in range(3, 19)]
        prompts = [[*stem, 1], [*stem, 2]]
        plain = [self._plain_logits(prompts, "eager")]
        half = self.dtype not in (torch.float32, torch.float64)
        if half:
            # In half precision two correct attentions may differ by a tenth on a probe without sense; agreeing with one is enough.
            plain.append(self._plain_logits(prompts, "sdpa"))
        self.model.set_attn_implementation(INTERFACE)
        self.forward_tokens = self.tokens_read = 0
        tree = build_tree(prompts)
        _, states = self.read(tree, np.asarray(tree.leaf))
        mine = self.logits(states)
        off = min(_apart(mine, other) for other in plain)
        if not off <= (_HALF_TOLERANCE if half else _TOLERANCE):
            raise ValueError(
                f"{self.config.model_type}: logits differ from the plain model's by {off:.0%} of the largest; "
                "this architecture is not supported"
            )

    def _plain_logits(self, prompts: Sequence[Sequence[int]], attention: str) -> Tensor:
        """Return the last logits of equally long prompts by the untouched model, shape (n_prompts, vocabulary).

        Raises ValueError where the model does more to its last hidden states than `logits`, such as capping.
        """
        self.model.set_attn_implementation(attention)
        ids = torch.as_tensor(prompts, device=self.device)
        logits = self.model(input_ids=ids, use_cache=False).logits[:, -1].float()
        if not torch.isfinite(logits).all():
            raise ValueError(
                f"{self.config.model_type}: its logits in {self.dtype} are not numbers; try dtype='float32'"
            )
        bare = self.logits(self.model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[:, -1])
        if not (off := _apart(bare, logits)) <= _TOLERANCE:
            raise ValueError(
                f"{self.config.model_type}: scales or caps its logits ({off:.0%} of the largest); this architecture is not supported"
            )
        return logits

    def hidden(self, tokens: np.ndarray, positions: np.ndarray, plan: TreePlan | RowPlan) -> Tensor:
        """Run the layers over packed tokens; returns the final hidden states, shape (T, hidden)."""
        self.forward_tokens += len(tokens)
        out = self.model.get_decoder()(
            input_ids=torch.as_tensor(tokens, device=self.device)[None],
            position_ids=torch.as_tensor(positions, device=self.device)[None],
            use_cache=False,
            plan=plan,
        )
        if plan.calls != self.config.num_hidden_layers:
            raise ValueError(
                f"{self.config.model_type}: {plan.calls} of {self.config.num_hidden_layers} layers used the attention interface; "
                "this architecture is not supported"
            )
        return out.last_hidden_state[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the vocabulary logits in float32, shape (rows, vocabulary)."""
        head = self.model.get_output_embeddings()
        return torch.cat([head(part).float() for part in hidden.split(self.head_rows)])

    def read(self, tree: PrefixTree, wanted: np.ndarray) -> tuple[KeyValues, Tensor]:
        """Read a whole tree; returns its buffers and the hidden states of the `wanted` slots, shape (len(wanted), hidden)."""
        self.tokens_read += len(tree)
        store = KeyValues(self.config, 1, len(tree), self.dtype, self.device)
        kept = torch.empty((len(wanted), self.config.hidden_size), dtype=self.dtype, device=self.device)
        for chunk in chunk_segments(tree.segments, self.chunk_tokens):
            plan = TreePlan(store, chunk)
            states = self.hidden(tree.tokens[plan.start : plan.stop], tree.depth[plan.start : plan.stop], plan)
            inside = np.flatnonzero((wanted >= plan.start) & (wanted < plan.stop))
            if len(inside):
                kept[torch.as_tensor(inside, device=self.device)] = states[
                    torch.as_tensor(wanted[inside] - plan.start, device=self.device)
                ]
        return store, kept

    def rows_from(self, tree: PrefixTree, store: KeyValues, prompts: Sequence[int], extra: int) -> KeyValues:
        """Copy the paths of `prompts` into left-aligned rows with room for `extra` more tokens each."""
        slots = [torch.as_tensor(tree.slots(index), device=self.device) for index in prompts]
        rows = KeyValues(self.config, len(prompts), max(len(path) for path in slots) + extra, self.dtype, self.device)
        for layer in range(self.config.num_hidden_layers):
            for row, path in enumerate(slots):
                rows.keys[layer][row, :, : len(path)] = store.keys[layer][0][:, path]
                rows.values[layer][row, :, : len(path)] = store.values[layer][0][:, path]
        return rows
