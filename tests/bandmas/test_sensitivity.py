"""Tests of lib/bandmas/sensitivity.py."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from lib.bandmas.agentprune import VARIANTS, AgentPruneSettings, train_agentprune
from lib.bandmas.fusion import SafeSieveSettings
from lib.bandmas.safesieve import VARIANTS as SIEVE_VARIANTS
from lib.bandmas.schedule import schedules_of
from lib.bandmas.sensitivity import COLUMNS, sensitivity_table
from lib.models.receiver import Prompt
from tests.bandmas.games import Recorder, echo, render
from tests.bandmas.streams import even, scored, slots_of

CAPS = {"game": 0.5}


def value(task_id: str, ids: frozenset[str]) -> tuple[float, float]:
    return float(0 in slots_of(ids)), len(ids) / 12


def table(receiver: Recorder | None = None, **more: Any) -> Any:
    traffic, splits = even(4)
    splits = {"game": {seed: msgspec.structs.replace(splits["game"][0], seed=seed) for seed in (0, 1)}}
    how = {"caps": CAPS, "render": render} | more
    return sensitivity_table(receiver or Recorder(), {"game": traffic}, splits, scored(value), **how)


def test_one_row_a_variant() -> None:
    receiver = Recorder()
    made = table(receiver)
    assert list(made) == list(COLUMNS)
    named = [("agentprune", name) for name in VARIANTS] + [("safesieve", name) for name in SIEVE_VARIANTS]
    assert list(zip(made["policy"], made["variant"], strict=True)) == named
    assert made["same_sets"].between(0, 1).all() and made[made["variant"] == "default"]["same_sets"].eq(1).all()
    assert made["seeds"].eq(2).all() and made["tasks"].eq(2).all() and made["coverage"].eq(1).all()
    assert made["saving"].between(0.5, 1).all() and (made["edges_kept"] <= made["edges"]).all()
    asked = [text for batch in receiver.batches for text in batch]
    assert len(receiver.batches) <= 11, "ten rounds of training and one of answers, whatever the number of variants"
    assert len(asked[: -len(receiver.batches[-1])]) == len(set(asked[: -len(receiver.batches[-1])]))


def test_a_row_is_what_the_variant_alone_would_give() -> None:
    variants = {"default": AgentPruneSettings(), "edge_key=route_type": AgentPruneSettings(edge_key="route_type")}
    made = table(agentprune_variants=variants, safesieve_variants={})
    traffic, splits = even(4)
    items, sets = [], []
    for seed in (0, 1):
        split = msgspec.structs.replace(splits["game"][0], seed=seed)
        ends = []
        for settings in variants.values():
            where = ({"game": traffic}, {"game": {seed: split}}, scored(value))
            trained = train_agentprune(Recorder(), *where, settings=settings, render=render)["game", seed]
            how = {"policies": ["agentprune"], "betas": [0.5], "baselines": {"agentprune": trained}}
            ends.append(schedules_of(traffic, split.final, None, seed=seed, **how)[0].admission)
        ids = frozenset(packet.packet_id for packet in ends[1].admitted)
        items.append([*value("", ids), ends[1].bytes, ends[1].saving])
        sets.append(ends[0].admitted == ends[1].admitted)
    row = made[made["variant"] == "edge_key=route_type"].iloc[0]
    assert row[["task_utility", "evidence_utility", "bytes", "saving"]].tolist() == pytest.approx(
        np.mean(items, axis=0)
    )
    assert row["same_sets"] == np.mean(sets) and row["contexts"] == 80


def test_a_failed_answer_earned_nothing_and_lowers_the_coverage() -> None:
    def down(prompt: Prompt) -> str:
        if '"game7"' in prompt.turns[-1].text:  # the final task
            raise RuntimeError("down")
        return echo(prompt)

    made = table(Recorder(down), agentprune_variants={"default": AgentPruneSettings()}, safesieve_variants={})
    assert made[["task_utility", "evidence_utility", "utility", "coverage"]].eq(0).all().all()


def test_without_variants_the_table_is_empty() -> None:
    made = table(agentprune_variants={}, safesieve_variants={})
    assert made.empty and list(made) == list(COLUMNS)
    one = table(agentprune_variants={}, safesieve_variants={"mine": SafeSieveSettings(g=0.1)})
    assert one["variant"].tolist() == ["mine"]
