"""`python -m lib bench`: what is timed, printed and kept.

The main table is one replay task. The curves repeat it with more packets in the task, and with more tasks of the same size; there
contenders that would take too long sit out. Every point is kept as soon as it is measured, so that an interrupted run leaves what it
has: `bench.parquet` and `bench.json` (main table), `profile`, `curve_packets`, `curve_tasks` and a figure in the output folder.

Not covered: choosing a winner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pandas as pd
import torch

from lib.evaluation.bench_figures import engine_figure
from lib.evaluation.saving import save_figure, save_table
from lib.models.transformers_receiver import TransformersReceiver
from lib.models.weights import LoadedModel, WeightsError, load_weights
from lib.runs.bench.compare import compare
from lib.runs.bench.contenders import Generate, SharedPrefix, Tree
from lib.runs.bench.engines import Engine, Engines, open_engines
from lib.runs.bench.profile import profiled
from lib.runs.bench.prompts import replay_prompts

BATCHES = (4, 8, 13)  # sizes tried for padded batches, on every second prompt; the fastest is the contender
SHOWN = {
    "contender": "contender",
    "tokens_read": "read",
    "rows_decoded": "decoded",
    "seconds": "seconds",
    "least": "least",
    "most": "most",
    "replays_per_second": "replays/s",
    "times_faster": "times",
    "peak_mib": "peak MiB",
    "roof_fraction": "of roof",
    "floor_fraction": "of floor",
    "same_outputs": "same",
    "largest_gap_steps": "gap steps",
}


class Plan(msgspec.Struct, frozen=True):
    """What to time.

    Attributes
    ----------
    packets, tasks : of the main table's replay
    new_tokens : tokens decoded, at most
    rounds : timed rounds of the main table; points of the curves have one
    more_packets, more_tasks : points of the curves; empty for none
    limit : seconds that a call may be expected to take in a curve
    """

    packets: int = 12
    tasks: int = 1
    new_tokens: int = 8
    rounds: int = 3
    more_packets: tuple[int, ...] = ()
    more_tasks: tuple[int, ...] = ()
    limit: float = 60.0

    @property
    def main(self) -> tuple[int, int]:
        """Packets and tasks of the main table."""
        return self.packets, self.tasks

    @property
    def points(self) -> list[tuple[int, int]]:
        """Packets and tasks of the curves' points, those of `more_packets` first."""
        return [(packets, self.tasks) for packets in self.more_packets] + [
            (self.packets, tasks) for tasks in self.more_tasks
        ]


class Bench:
    """The models and contenders of one run; the weights are loaded once plain and once as the suite runs them."""

    def __init__(self, name: str, dtype: str, device: str, plan: Plan, log: Callable[[str], None]) -> None:
        try:
            self.receiver = TransformersReceiver(name, dtype=dtype, device=device)
        except ValueError as reason:  # a model that the suite does not cover
            raise WeightsError(str(reason)) from reason
        self.prompts = {point: replay_prompts(*point) for point in dict.fromkeys([plan.main, *plan.points])}
        self.plain: LoadedModel = load_weights(name, dtype=self.receiver.loaded.dtype, device=device)
        self.log = log
        self.speeds: dict[str, float] = {}
        self.batch = 0
        longest = max(len(self.receiver.encoder.encode(one)) for some in self.prompts.values() for one in some)
        longest += plan.new_tokens
        if longest > self.receiver.context:
            raise WeightsError(
                f"{name}: prompts and replies of up to {longest} tokens do not fit its context of {self.receiver.context}; "
                "ask for fewer packets or new tokens"
            )
        self.others: Engines = open_engines(name, self.receiver.loaded, self.receiver.eos, longest)
        for line in self.others.skipped:
            log(f"left out: {line}")

    def point(self, packets: int, tasks: int, new_tokens: int, rounds: int, limit: float) -> pd.DataFrame:
        """Time the prompts of one point of the plan; the first call also chooses the batch size."""
        prompts = self.prompts[packets, tasks]
        encoded = [self.receiver.encoder.encode(prompt) for prompt in prompts]
        if not self.batch:
            self.batch = self._best_batch(encoded, new_tokens)
        ends = self.receiver.eos
        contenders: list[Engine] = [
            Generate(self.plain, ends),
            *(Generate(self.plain, ends, batch=self.batch, sort=sort) for sort in (False, True) if self.batch > 1),
            SharedPrefix(self.plain, ends),
            self._tree(packets, tasks),
            *self.others.ready,
        ]
        table = compare(
            contenders,
            self.plain,
            self.receiver.runner.model,
            encoded,
            ends,
            new_tokens=new_tokens,
            rounds=rounds,
            limit=limit,
            speeds=self.speeds,
            log=self.log,
        )
        table.insert(1, "model", self.receiver.name)
        table.insert(2, "packets", packets)
        table.insert(3, "tasks", tasks)
        table["peak_mib"] = table["peak_bytes"] / 2**20
        return table

    def profile(self, plan: Plan) -> pd.DataFrame:
        """Return where the time of the prefix tree goes on the prompts of the main table."""
        encoded = [self.receiver.encoder.encode(prompt) for prompt in self.prompts[plan.main]]
        return profiled(self._tree(*plan.main), encoded, plan.new_tokens, torch.device(self.plain.device))

    def _tree(self, packets: int, tasks: int) -> Tree:
        return Tree(
            self.receiver, {tuple(self.receiver.encoder.encode(one)): one for one in self.prompts[packets, tasks]}
        )

    def _best_batch(self, encoded: Sequence[Sequence[int]], new_tokens: int) -> int:
        """Return the batch size at which sorted padded batches are fastest here, tried once each."""
        some = encoded[::2]
        taken = {}
        for size in sorted({min(size, len(some)) for size in BATCHES}):
            engine = Generate(self.plain, self.receiver.eos, batch=size)
            engine.generate(some[:size], 1)
            started = time.perf_counter()
            engine.generate(some, new_tokens)
            taken[size] = time.perf_counter() - started
            self.log(f"padded batches of {size}: {taken[size]:.1f} s")
        return min(taken, key=lambda size: taken[size])

    def close(self) -> None:
        """Free the other engines."""
        for engine in self.others.ready:
            engine.close()


def bench(folder: Path, name: str, dtype: str, device: str, plan: Plan, log: Callable[[str], None] = print) -> int:
    """Run the plan, print the tables and keep them with a figure under `folder`; returns the exit code, 1 if a contender failed."""
    made = Bench(name, dtype, device, plan, log)
    try:
        table = made.point(plan.packets, plan.tasks, plan.new_tokens, plan.rounds, float("inf"))
        save_table(table, folder, "bench")
        log(f"\n{shown(table)}")
        groups = made.profile(plan)
        save_table(groups, folder, "profile")
        parts = ", ".join(f"{row.group} {row.share:.0%}" for row in groups.itertuples())
        log(f"where the prefix tree's time goes: {parts}")
        save_figure(engine_figure(table), folder, "bench")
        curves: dict[str, pd.DataFrame] = {}
        for place, (packets, tasks) in enumerate(plan.points):
            which = "curve_packets" if place < len(plan.more_packets) else "curve_tasks"
            rows = table
            if (packets, tasks) != plan.main:
                log(f"\n{packets} packets, {tasks} task{'s' if tasks > 1 else ''}")
                rows = made.point(packets, tasks, plan.new_tokens, 1, plan.limit)
                log(shown(rows))
            curves[which] = pd.concat([*([curves[which]] if which in curves else []), rows], ignore_index=True)
            save_table(curves[which], folder, which)
            save_figure(engine_figure(table, curves.get("curve_packets"), curves.get("curve_tasks")), folder, "bench")
    finally:
        made.close()
    log(f"\nkept in {folder}")
    return int(any(frame["failure"].notna().any() for frame in (table, *curves.values())))


def shown(table: pd.DataFrame) -> str:
    """Return the table for a terminal, with what it was measured on."""
    first = table.iloc[0]
    head = (
        f"{first['model']} in {first['dtype']} on {first['device']}: {first['tasks']} task(s) of {first['packets']} packets, "
        f"{first['prompts']} prompts, {first['naive_tokens']} tokens ({first['trie_tokens']} distinct as a tree), "
        f"{first['new_tokens']} new tokens, {first['rounds']} round(s), {first['roof_tokens_per_second']:.0f} tokens/s at most\n"
    )
    columns = table[list(SHOWN)].rename(columns=SHOWN).astype(object)
    return head + columns.where(columns.notna(), "-").to_string(index=False, float_format=lambda value: f"{value:.2f}")
