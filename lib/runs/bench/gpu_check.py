"""One prepared check of a graphics card: `python -m lib bench --gpu-check`, minutes, no download needed.

First correctness: random models of each family read replay prompts as a tree, on the device, and are compared with the plain model there:
logits and greedy tokens in float32 (must agree), and in bfloat16 (every differing output must be a near-tie, by the gap that the plain
model puts between the two choices). Then timings: the contenders of `lib.runs.bench`, on the model named, or where its weights cannot be
had, on random weights of the size of the named default.

How to read the result. One line a check with "ok" or "FAILED", then the table; the exit code is 0 only if every check holds. All of it
is kept as ``gpu_check.json`` and ``gpu_bench.json``.

Not covered: several devices; whether a card is fast enough for anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import torch

from lib.evaluation.saving import save_table
from lib.models.prefix_tree import build_tree
from lib.models.random_models import loaded_chat
from lib.models.transformers_receiver import TransformersReceiver
from lib.models.weights import LoadedModel, load_weights
from lib.runs.bench.compare import compare
from lib.runs.bench.contenders import Generate, SharedPrefix, Tree
from lib.runs.bench.engines import Engine
from lib.runs.bench.outputs import differences, same_outputs
from lib.runs.bench.prompts import replay_prompts
from lib.sources import SourceError

FAMILIES = ("llama", "qwen2", "qwen3")
LOGITS = {torch.float32: 1e-4, torch.bfloat16: 0.1}  # largest difference allowed, of the largest logit
NEAR_TIE = 4.0  # steps of bfloat16 at the logits' size
# The shape of Qwen2.5-0.5B: what `--gpu-check` times where no weights can be fetched.
SHAPE: dict[str, Any] = {
    "vocab_size": 151_936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32_768,
    "initializer_range": 0.02,
}


class Check(msgspec.Struct, frozen=True):
    """One thing that was checked."""

    family: str
    dtype: str
    prompts: int
    logit_difference: float  # largest, of the largest logit
    same_outputs: int
    largest_gap_steps: float | None  # of the outputs that differ
    ok: bool


@torch.inference_mode()
def check_family(family: str, dtype: torch.dtype, device: str, *, packets: int = 6, new_tokens: int = 12) -> Check:
    """Compare tree and plain model of one random family on the device."""
    plain = loaded_chat(family, dtype=dtype, device=device, max_position_embeddings=32_768, ends=24)
    receiver = TransformersReceiver(
        loaded=loaded_chat(family, dtype=dtype, device=device, max_position_embeddings=32_768, ends=24)
    )
    prompts = replay_prompts(packets, 2)
    encoded = [receiver.encoder.encode(prompt) for prompt in prompts]
    tree = build_tree(encoded)
    mine = receiver.runner.logits(receiver.runner.read(tree, torch.tensor(tree.leaf).numpy())[1])
    theirs = torch.cat(
        [
            plain.model(input_ids=torch.tensor([ids], device=device), use_cache=False, logits_to_keep=1).logits[:, -1]
            for ids in encoded
        ]
    ).float()
    difference = float((mine - theirs).abs().max() / theirs.abs().max())
    by_tokens = {tuple(ids): prompt for ids, prompt in zip(encoded, prompts, strict=True)}
    outputs = Tree(receiver, by_tokens).generate(encoded, new_tokens)
    expected = Generate(plain, receiver.eos).generate(encoded, new_tokens)
    found = differences(plain, receiver.eos, encoded, outputs, expected)
    gap = max((one.steps for one in found), default=None)
    exact = dtype == torch.float32
    return Check(
        family=family,
        dtype=str(dtype).removeprefix("torch."),
        prompts=len(prompts),
        logit_difference=difference,
        same_outputs=same_outputs(outputs, expected),
        largest_gap_steps=gap,
        ok=difference <= LOGITS[dtype] and (not found if exact else (gap or 0.0) <= NEAR_TIE),
    )


def timings(
    name: str, device: str, log: Callable[[str], None], *, packets: int = 12, new_tokens: int = 24
) -> pd.DataFrame:
    """Time the contenders on the device; random weights of `SHAPE` stand in for weights that cannot be had."""

    def loaded() -> LoadedModel:
        try:
            return load_weights(name, device=device, log=lambda line: None)
        except SourceError as reason:
            log(f"{name} cannot be loaded ({reason}); timed on random weights of the same size as qwen-coder-0.5b")
            return loaded_chat("qwen2", dtype=torch.bfloat16, device=device, **SHAPE)

    plain, receiver = loaded(), TransformersReceiver(loaded=loaded())
    prompts = replay_prompts(packets, 4)
    encoded = [receiver.encoder.encode(prompt) for prompt in prompts]
    by_tokens = {tuple(ids): prompt for ids, prompt in zip(encoded, prompts, strict=True)}
    contenders: list[Engine] = [
        Generate(plain, receiver.eos),
        Generate(plain, receiver.eos, batch=len(prompts)),
        SharedPrefix(plain, receiver.eos),
        Tree(receiver, by_tokens),
    ]
    return compare(
        contenders, plain, receiver.runner.model, encoded, receiver.eos, new_tokens=new_tokens, rounds=3, log=log
    )


def gpu_check(folder: Path, name: str, device: str, log: Callable[[str], None]) -> int:
    """Run checks and timings, print and keep them; returns the exit code: 0 well, 1 a check failed, 2 no such device."""
    if device.startswith("cuda") and (torch.device(device).index or 0) >= torch.cuda.device_count():
        log(f"no device {device} here: nothing was checked (torch.cuda.device_count() is {torch.cuda.device_count()})")
        return 2
    label = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    log(f"torch {torch.__version__} on {label}")
    checks = []
    for family in FAMILIES:
        for dtype in LOGITS:
            try:
                check = check_family(family, dtype, device)
            except (RuntimeError, ValueError) as error:  # a kernel that is missing, or the receiver's own probe
                check = Check(family, str(dtype).removeprefix("torch."), 0, math.nan, 0, None, ok=False)
                log(f"FAILED {family} {check.dtype}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
                checks.append(check)
                continue
            checks.append(check)
            gap = "" if check.largest_gap_steps is None else f", widest gap {check.largest_gap_steps:.1f} steps"
            log(
                f"{'ok' if check.ok else 'FAILED':<7}{family} {check.dtype}: logits within {check.logit_difference:.1e} of the largest, "
                f"{check.same_outputs} of {check.prompts} outputs equal{gap}"
            )
    save_table(pd.DataFrame([msgspec.structs.asdict(check) for check in checks]), folder, "gpu_check")
    table = timings(name, device, log)
    table.insert(1, "device_name", label)
    save_table(table, folder, "gpu_bench")
    columns = [
        "contender",
        "tokens_read",
        "seconds",
        "least",
        "most",
        "replays_per_second",
        "times_faster",
        "same_outputs",
    ]
    cells = table[columns].astype(object)
    log(cells.where(cells.notna(), "-").to_string(index=False, float_format=lambda value: f"{value:.2f}"))
    log(f"kept in {folder}")
    return 0 if all(check.ok for check in checks) and table["failure"].isna().all() else 1
