"""Time the contenders on one set of prompts, interleaved, and check what they say.

Every contender is called once on two prompts before the clock runs, so that lazy set-up is not timed. Then rounds: each round calls every
contender once on all prompts, in turn, and measures the machine's roof; medians are over rounds. A contender whose call is expected to take
longer than `limit` seconds, by the tokens it reads and its own speed so far, sits the point out and its row says so (seconds null). So
does one that fails, such as a batch that does not fit a card: `failure` is its error, and the others go on.

Columns of the table
--------------------
- prompts, unique_prompts; naive_tokens: the sum of the prompts' lengths; trie_tokens: nodes of their prefix tree;
- tokens_read, rows_decoded: rows pushed through the layers, padding included; null where an engine does not tell;
- seconds, least, most: median and range over rounds; replays_per_second; times_faster: than one at a time, the median of the ratios
  within rounds;
- peak_bytes: memory beyond what was there before the call, weights not included, the largest of the rounds;
- roof_fraction: the time of the matrix products of tokens_read and rows_decoded at the machine's measured rate, over seconds;
- floor_fraction: the same for the fewest rows that give these replies, trie_tokens and one a token that is continued;
- same_outputs; largest_gap, largest_gap_steps: of the outputs that differ, see module `outputs`.

Not covered: quality of the replies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import torch

from lib.models.prefix_tree import build_tree
from lib.models.weights import LoadedModel
from lib.runs.bench.contenders import Tokens
from lib.runs.bench.engines import Engine
from lib.runs.bench.outputs import differences, same_outputs
from lib.runs.bench.roof import Roof, measure_roof, wait
from lib.runs.telemetry import peak_memory

BASELINE = "one at a time"
MEASURES = {
    **dict.fromkeys(("tokens_read", "rows_decoded"), "Int64"),
    **dict.fromkeys(("seconds", "least", "most", "replays_per_second", "times_faster"), "float64"),
    "peak_bytes": "Int64",
    **dict.fromkeys(("roof_fraction", "floor_fraction"), "float64"),
    "same_outputs": "Int64",
    **dict.fromkeys(("largest_gap", "largest_gap_steps"), "float64"),
    "failure": "str",
}


class Timed(msgspec.Struct):
    """What the rounds of one contender gave."""

    seconds: list[float] = []
    peaks: list[int] = []
    outputs: Tokens = []
    tokens_read: int | None = None
    rows_decoded: int | None = None


def compare(
    engines: Sequence[Engine],
    plain: LoadedModel,
    tree_model: Any,
    encoded: Sequence[Sequence[int]],
    ends: frozenset[int],
    *,
    new_tokens: int,
    rounds: int,
    limit: float = math.inf,
    speeds: dict[str, float] | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> pd.DataFrame:
    """Return one row a contender; see the module's header.

    Parameters
    ----------
    engines : the contenders; the one named `BASELINE` says what the outputs should be
    plain : the model as transformers runs it, which judges differing outputs
    tree_model : the model as the suite runs it, on which the roof is measured
    encoded : token ids of each prompt
    ends : token ids that end a reply
    limit : seconds that a call may be expected to take
    speeds : prompt tokens a second of each contender, by its name; read for the limit and brought up to date
    """
    speeds = {} if speeds is None else speeds
    device = torch.device(plain.device)
    naive = sum(map(len, encoded))
    taking_part = [engine for engine in engines if naive / speeds.get(engine.name, math.inf) <= limit]
    timed = {engine.name: Timed() for engine in taking_part}
    failures: dict[str, str] = {}

    def attempt(engine: Engine, asked: Sequence[Sequence[int]], tokens: int) -> Tokens:
        try:
            return engine.generate(asked, tokens)
        except Exception as error:  # noqa: BLE001 - engines raise as they like
            failures[engine.name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            log(f"{engine.name} failed: {failures[engine.name]}")
            timed.pop(engine.name, None)
            return []

    for engine in taking_part:
        attempt(engine, encoded[:2], min(2, new_tokens))
    roofs: list[Roof] = []
    for turn in range(rounds):
        roofs.append(measure_roof(tree_model))
        for engine in taking_part:
            if engine.name in failures:
                continue
            record = timed[engine.name]
            with peak_memory(plain.device) as peak:
                wait(device)
                started = time.perf_counter()
                record.outputs = attempt(engine, encoded, new_tokens)
                wait(device)
                record.seconds.append(time.perf_counter() - started)
            if engine.name in failures:
                continue
            if peak.increase_bytes is not None:
                record.peaks.append(peak.increase_bytes)
            record.tokens_read, record.rows_decoded = engine.tokens_read, engine.rows_decoded
            log(f"round {turn + 1} of {rounds}: {engine.name} {record.seconds[-1]:.1f} s")
    for name, record in timed.items():
        speeds[name] = naive / float(np.median(record.seconds))
    roof = Roof(*(float(np.median(rates)) for rates in zip(*map(msgspec.structs.astuple, roofs), strict=True)))
    facts = {
        "dtype": plain.dtype,
        "device": plain.device,
        "new_tokens": new_tokens,
        "rounds": rounds,
        "prompts": len(encoded),
        "unique_prompts": len(set(map(tuple, encoded))),
        "naive_tokens": naive,
        "trie_tokens": len(build_tree(encoded)),
        "roof_tokens_per_second": roof.layer_rows,
    }
    rows = []
    for engine in engines:
        row: dict[str, Any] = {"contender": engine.name, **facts, "failure": failures.get(engine.name)}
        if engine.name in timed:
            row |= _measures(timed[engine.name], timed.get(BASELINE), roof, facts)
            row |= _agreement(timed[engine.name], timed.get(BASELINE), plain, ends, encoded)
        rows.append(row)
    return pd.DataFrame(rows, columns=["contender", *facts, *MEASURES]).astype(MEASURES)


def _measures(record: Timed, baseline: Timed | None, roof: Roof, facts: dict[str, Any]) -> dict[str, Any]:
    """Return speed, memory and the fractions of the roof."""
    seconds = np.asarray(record.seconds)
    middle = float(np.median(seconds))
    heads = sum(len(output) for output in record.outputs)
    decoded = sum(max(0, len(output) - 1) for output in record.outputs)
    known = record.tokens_read is not None and record.rows_decoded is not None
    return {
        "tokens_read": record.tokens_read,
        "rows_decoded": record.rows_decoded,
        "seconds": middle,
        "least": float(seconds.min()),
        "most": float(seconds.max()),
        "replays_per_second": facts["prompts"] / middle,
        "times_faster": None if baseline is None else float(np.median(np.asarray(baseline.seconds) / seconds)),
        "peak_bytes": max(record.peaks) if record.peaks else None,
        "roof_fraction": roof.seconds(record.tokens_read + record.rows_decoded, heads) / middle if known else None,  # type: ignore[operator]
        "floor_fraction": roof.seconds(facts["trie_tokens"] + decoded, heads) / middle,
    }


def _agreement(
    record: Timed, baseline: Timed | None, plain: LoadedModel, ends: frozenset[int], encoded: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Return how the outputs compare with those of one-at-a-time decoding."""
    if baseline is None:
        return {"same_outputs": None, "largest_gap": None, "largest_gap_steps": None}
    found = differences(plain, ends, encoded, record.outputs, baseline.outputs)
    return {
        "same_outputs": same_outputs(record.outputs, baseline.outputs),
        "largest_gap": max((one.gap for one in found), default=None),
        "largest_gap_steps": max((one.steps for one in found), default=None),
    }
