"""How fast replay is, against the plain ways to do it: `python -m lib bench`.

One replay task of n packets asks 2n + 2 nearly equal prompts. Every contender gets the same prompts and the same weights, decodes the same
number of new tokens greedily, and has its outputs compared with one-at-a-time `generate`. Rounds are interleaved, so that a busy
minute hits all contenders; medians are reported with the spread beside them.

- one at a time: transformers' `generate`, one prompt a call;
- sorted batches: `generate` over left-padded batches of prompts of similar length;
- prefix tree: this suite's receiver.

Not covered: other engines, several devices, peak memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.bandmas.replay import replay_contexts
from lib.evaluation.tables import save_table
from lib.messages.packets import packetize_task
from lib.messages.produce import produce
from lib.messages.prompts import receiver_prompt
from lib.models.prefix_tree import build_tree
from lib.models.receiver import Prompt
from lib.models.scripted import ScriptedReceiver
from lib.models.transformers_receiver import TransformersReceiver
from lib.models.weights import load_weights
from lib.tasks import load_workload

Tokens = list[tuple[int, ...]]
BATCH = 13  # prompts of a padded batch; the best of the sizes tried for this contender


def replay_prompts(n_packets: int) -> list[Prompt]:
    """Return the distinct replay prompts of one task with `n_packets` packets, free replies (no schema)."""
    workload = load_workload("worlds_bridge", limit=1, readers=max(2, -(-n_packets // 2)), distractors=0)
    task = workload.tasks[0]
    packets = packetize_task(produce(ScriptedReceiver(), workload).messages)[:n_packets]
    if len(packets) < n_packets:
        raise ValueError(f"only {len(packets)} packets can be made for this task, not {n_packets}")
    by_id = {packet.packet_id: packet for packet in packets}
    subsets = dict.fromkeys(ids for _, ids in replay_contexts(packets))
    return [Prompt(receiver_prompt(task, [by_id[i] for i in ids]).turns) for ids in subsets]


@torch.inference_mode()
def generated(model: Any, encoded: Sequence[Sequence[int]], new_tokens: int, batch: int, pad: int) -> Tokens:
    """Return the greedy continuations by `generate`, in the order given, `batch` left-padded prompts at a time."""
    order = sorted(range(len(encoded)), key=lambda index: len(encoded[index]))
    out: Tokens = [()] * len(encoded)
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        width = max(len(encoded[index]) for index in part)
        ids = torch.tensor([[pad] * (width - len(encoded[i])) + list(encoded[i]) for i in part], device=model.device)
        mask = torch.tensor(
            [[0] * (width - len(encoded[i])) + [1] * len(encoded[i]) for i in part], device=model.device
        )
        new = model.generate(ids, attention_mask=mask, max_new_tokens=new_tokens, do_sample=False, pad_token_id=pad)[
            :, width:
        ]
        for index, row in zip(part, new.tolist(), strict=True):
            out[index] = tuple(row)
    return out


def until_end(tokens: Sequence[int], ends: frozenset[int]) -> tuple[int, ...]:
    """Return the tokens before the first end token, so that padding after it does not count."""
    for place, token in enumerate(tokens):
        if token in ends:
            return tuple(tokens[:place])
    return tuple(tokens)


def compare(name: str, dtype: str, n_packets: int, new_tokens: int, rounds: int) -> pd.DataFrame:
    """Time the contenders on one replay task; see the module header.

    Returns
    -------
    DataFrame, one row a contender: prompts, tokens it reads, seconds (median, least, most), replays per second, how many times
    faster than one at a time, and how many outputs equal those of one at a time.
    """
    receiver = TransformersReceiver(name, dtype=dtype)
    plain = load_weights(name, dtype=dtype)
    plain.model.generation_config.temperature = None
    plain.model.generation_config.top_p = plain.model.generation_config.top_k = None
    prompts = replay_prompts(n_packets)
    encoded = [receiver.encoder.encode(prompt) for prompt in prompts]
    pad = int(plain.tokenizer.pad_token_id if plain.tokenizer.pad_token_id is not None else min(receiver.eos))
    naive = sum(map(len, encoded))
    padded = sum(len(part) * max(part) for part in _parts(sorted(map(len, encoded)), BATCH))
    contenders: dict[str, tuple[int, Callable[[], Tokens]]] = {
        "one at a time": (naive, lambda: generated(plain.model, encoded, new_tokens, 1, pad)),
        "sorted batches": (padded, lambda: generated(plain.model, encoded, new_tokens, BATCH, pad)),
        "prefix tree": (
            len(build_tree(encoded)),
            lambda: [reply.token_ids for reply in receiver.reply(prompts, max_tokens=new_tokens)],
        ),
    }
    seconds: dict[str, list[float]] = {contender: [] for contender in contenders}
    outputs: dict[str, Tokens] = {}
    for turn in range(rounds + 1):
        for contender, (_, work) in contenders.items():
            started = time.perf_counter()
            outputs[contender] = [until_end(tokens, receiver.eos) for tokens in work()]
            if turn:  # the first round warms up and is not timed
                seconds[contender].append(time.perf_counter() - started)
    baseline = np.median(seconds["one at a time"])
    rows = []
    for contender, (tokens, _) in contenders.items():
        taken = np.asarray(seconds[contender])
        same = sum(a == b for a, b in zip(outputs[contender], outputs["one at a time"], strict=True))
        rows.append(
            {
                "contender": contender,
                "model": receiver.name,
                "dtype": receiver.loaded.dtype,
                "packets": n_packets,
                "new_tokens": new_tokens,
                "prompts": len(prompts),
                "tokens_read": tokens,
                "seconds": float(np.median(taken)),
                "least": float(taken.min()),
                "most": float(taken.max()),
                "replays_per_second": len(prompts) / float(np.median(taken)),
                "times_faster": float(baseline / np.median(taken)),
                "same_outputs": same,
            }
        )
    return pd.DataFrame(rows)


def _parts(lengths: Sequence[int], size: int) -> list[Sequence[int]]:
    return [lengths[start : start + size] for start in range(0, len(lengths), size)]


def bench(folder: Path, name: str, dtype: str, n_packets: int, new_tokens: int, rounds: int) -> int:
    """Run the comparison, print it and keep it under `folder`; returns the exit code."""
    table = compare(name, dtype, n_packets, new_tokens, rounds)
    save_table(table, folder, "bench")
    print(table.drop(columns=["model", "dtype", "packets", "new_tokens"]).to_string(index=False, float_format="%.2f"))
    print(
        f"{name} in {table['dtype'][0]}, {n_packets} packets, {new_tokens} new tokens, {rounds} timed rounds; kept in {folder}"
    )
    return 0
