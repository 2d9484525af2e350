"""The packetization ablation: one corpus, one cap, three ways to cut, and no outcome in any choice."""

from __future__ import annotations

import inspect
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from lib.bandmas import admit_static, lexical_relevance, rank, wire_cap
from lib.bandmas import boundaries as module
from lib.bandmas.boundaries import (
    NONE,
    SELECTORS,
    answer_boundaries,
    boundary_results,
    boundary_schedules,
    boundary_sizes,
    record_fits,
    streams_of,
)
from lib.bandmas.results import context_key, result_table, scorer_of
from lib.bandmas.schedule import Schedule
from lib.bandmas.study import splits_of
from lib.bandmas.traffic import Traffic, frozen_corpora, load_workloads, packet_tokens
from lib.messages import batch_bytes, reassemble
from lib.models.scripted import ScriptedReceiver
from lib.tasks.task import Gold, Split, Workload
from tests.bandmas.studies import NAMES, Counting

BETAS = {"worlds_verification": (0.25, 0.5), "worlds_bridge": (0.15, 0.25)}
SEEDS = (0, 1)


class Ablation(msgspec.Struct, frozen=True):
    """Everything the ablation made."""

    workloads: dict[str, Workload]
    streams: dict[str, dict[str, Traffic]]
    splits: dict[str, dict[int, Split]]
    schedules: dict[str, list[Schedule]]
    receiver: Any
    results: Any


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Ablation:
    receiver = Counting()
    workloads = load_workloads(NAMES, 8)
    streams = streams_of(workloads, frozen_corpora(receiver, workloads, tmp_path_factory.mktemp("corpora")))
    splits = splits_of(streams["typed"], SEEDS)
    schedules = boundary_schedules(streams, splits, BETAS)
    receiver.batches.clear()
    answers = answer_boundaries(receiver, schedules, streams)
    results = boundary_results(schedules, answers, workloads, streams, receiver.count_tokens)
    return Ablation(workloads, streams, splits, schedules, receiver, results)


def test_all_boundaries_hold_the_same_messages(made: Ablation) -> None:
    for name in NAMES:
        for task_id in made.streams["typed"][name].tasks:
            texts = [
                [
                    reassemble([p for p in made.streams[method][name].packets[task_id] if p.slot == message.slot])
                    for message in made.streams["typed"][name].messages[task_id]
                ]
                for method in made.streams
            ]
            assert texts[0] == texts[1] == texts[2] and texts[0]


def test_every_boundary_selector_cap_seed_and_final_task_is_scheduled_once(made: Ablation) -> None:
    for method, schedules in made.schedules.items():
        references = {"full": (1.0,)} | ({"empty": (0.0,)} if method == "typed" else {})
        expected = [
            (name, seed, policy, beta, task_id)
            for name in NAMES
            for seed, split in made.splits[name].items()
            for policy in (*references, *SELECTORS[method])
            for beta in references.get(policy, BETAS[name])
            for task_id in split.final
        ]
        got = [(one.workload, one.seed, one.policy, one.beta, one.task_id) for one in schedules]
        assert sorted(got) == sorted(expected) and len(set(got)) == len(got)
        assert {one.predictor for one in schedules} == {None}
    assert SELECTORS == {
        "typed": ("semantic", "semantic_evidence"),
        "sentence": ("semantic",),
        "message": ("semantic",),
    }


def test_the_cap_is_that_of_the_typed_stream_at_every_boundary(made: Ablation) -> None:
    """Spec, section 6: identical cap floor(beta B_full) with B_full of the typed stream; own full bytes logged."""
    differ = 0
    for method, schedules in made.schedules.items():
        for one in schedules:
            sent, own = one.admission, made.streams[method][one.workload].full_bytes[one.task_id]
            typed = made.streams["typed"][one.workload].full_bytes[one.task_id]
            assert sent.full_bytes == own == batch_bytes(made.streams[method][one.workload].packets[one.task_id])
            if one.policy == "full":
                assert (sent.cap_bytes, sent.bytes, sent.skipped) == (None, own, ())
            else:
                assert (
                    sent.bytes == batch_bytes(sent.admitted) <= sent.cap_bytes == int(Fraction(str(one.beta)) * typed)
                )
            differ += own != typed
    assert differ, "the boundaries cost different bytes"


def test_scores_are_lexical_relevance_and_one_for_evidence_by_hand(made: Ablation) -> None:
    for method, schedules in made.schedules.items():
        for one in schedules:
            if one.policy not in ("semantic", "semantic_evidence"):
                continue
            traffic = made.streams[method][one.workload]
            packets, query = traffic.packets[one.task_id], traffic.tasks[one.task_id].query
            scores = np.array([lexical_relevance(query, packet.content) for packet in packets])
            if one.policy == "semantic_evidence":
                scores += [packet.type == "evidence" for packet in packets]
            cap = one.admission.cap_bytes
            assert one.admission == admit_static(packets, scores, cap)
            if one.admission.admitted and one.policy == "semantic_evidence":
                first = next(p for p in rank(packets, scores) if batch_bytes([p]) <= cap)
                assert first in one.admission.admitted


def test_all_contexts_are_asked_in_one_call_and_equal_ids_are_kept_apart(made: Ablation) -> None:
    (batch,) = made.receiver.batches
    keys = {(method, context_key(one)) for method, schedules in made.schedules.items() for one in schedules}
    assert len(batch) == len(keys)
    # The same place in a message is another packet at another boundary.
    task_id = made.splits["worlds_bridge"][0].final[0]
    first = {method: made.streams[method]["worlds_bridge"].packets[task_id][0] for method in made.streams}
    assert len({packet.packet_id for packet in first.values()}) == 1
    assert len({packet.content for packet in first.values()}) == 3


def test_each_answer_is_the_receivers_for_exactly_those_packets(made: Ablation) -> None:
    fresh, scorer = ScriptedReceiver(), scorer_of(made.workloads)
    rows = made.results.set_index(["boundary", "policy", "beta", "seed", "task_id"])
    for method, schedules in made.schedules.items():
        for one in schedules[::3]:
            task = made.streams[method][one.workload].tasks[one.task_id]
            reply = fresh.reply([module.receiver_prompt(task, one.admission.admitted)])[0]
            boundary = NONE if one.policy == "empty" else method
            row = rows.loc[(boundary, one.policy, one.beta, one.seed, one.task_id)]
            assert (row["raw"], row["bytes"]) == (reply.text, one.admission.bytes)
            assert row["task_utility"] == scorer(one.task_id, reply.text).task_utility


def test_the_result_table_adds_to_that_of_the_study(made: Ablation) -> None:
    frame = made.results
    assert len(frame) == sum(map(len, made.schedules.values()))
    assert set(frame.loc[frame["policy"] == "empty", "boundary"]) == {NONE}
    assert set(frame.loc[frame["policy"] != "empty", "boundary"]) == {"typed", "sentence", "message"}
    typed = frame[frame["boundary"].isin(["typed", NONE])]
    traffics = made.streams["typed"]
    replies = answer_boundaries(ScriptedReceiver(), made.schedules, made.streams)["typed"]
    tokens = packet_tokens(traffics, ScriptedReceiver().count_tokens)
    plain = result_table(made.schedules["typed"], replies, made.workloads, tokens)
    pd.testing.assert_frame_equal(typed[plain.columns].reset_index(drop=True), plain)
    assert (typed["typed_full_bytes"] == typed["full_bytes"]).all()
    capped = frame.dropna(subset=["cap_bytes"])
    expected = capped["bytes"] / capped["cap_bytes"].astype(float)
    held = capped["cap_bytes"] > 0
    assert capped.loc[held, "cap_filled"].tolist() == pytest.approx(expected[held].tolist())
    assert frame["cap_filled"].dropna().between(0, 1).all()
    assert frame.loc[frame["policy"].isin(["full", "empty"]), "cap_filled"].isna().all(), "no cap, nothing to fill"


def test_a_small_cap_sends_fields_where_no_message_fits(made: Ablation) -> None:
    """The paper's reason for finer cuts: an indivisible message can exceed a cap that a field still fits."""
    rows = made.results.query("workload == 'worlds_bridge' and beta == 0.15 and policy == 'semantic'")
    sent = rows.groupby("boundary")["n_admitted"].max()
    fits = record_fits(made.streams, {"worlds_bridge": 0.15, "worlds_verification": 0.5})
    final = fits[fits["task_id"].isin(rows["task_id"])].groupby("boundary")["share_of_cap"].min()
    assert sent["message"] == 0 and final["message"] > 1
    assert sent["typed"] > 0 and final["typed"] <= 1
    assert (rows.loc[rows["boundary"] == "message", "cap_filled"] == 0).all()


def test_every_record_stands_beside_its_cap(made: Ablation) -> None:
    fits = record_fits(made.streams, {"worlds_bridge": 0.25, "worlds_verification": 0.5})
    assert len(fits) == sum(
        len(p) for traffics in made.streams.values() for t in traffics.values() for p in t.packets.values()
    )
    row = fits[(fits["boundary"] == "message") & (fits["workload"] == "worlds_bridge")].iloc[0]
    typed = made.streams["typed"]["worlds_bridge"].full_bytes[row["task_id"]]
    (packet,) = [
        p for p in made.streams["message"]["worlds_bridge"].packets[row["task_id"]] if p.packet_id == row["packet_id"]
    ]
    assert row["cap_bytes"] == wire_cap(0.25, typed) and row["wire_bytes"] == batch_bytes([packet])
    assert row["share_of_cap"] == row["wire_bytes"] / row["cap_bytes"]
    none = record_fits(made.streams, dict.fromkeys(NAMES, 0.0))
    assert none["share_of_cap"].isna().all(), "a share of nothing is null"


def test_sizes_of_the_three_streams_add_up(made: Ablation) -> None:
    table = boundary_sizes(made.streams, made.receiver.count_tokens)
    assert table[["workload", "boundary"]].to_numpy().tolist() == [[n, m] for n in NAMES for m in made.streams]
    table = table.set_index(["workload", "boundary"])
    for name in NAMES:
        for method, traffics in made.streams.items():
            row, traffic = table.loc[(name, method)], traffics[name]
            assert row["full_bytes"] * len(traffic.tasks) == sum(traffic.full_bytes.values())
            assert row["record_bytes"] * row["packets"] == pytest.approx(sum(traffic.full_bytes.values()))
        full = table.loc[name]["full_bytes"]
        assert table.loc[name]["share_of_typed"].to_dict() == pytest.approx((full / full["typed"]).to_dict())
        # Fewer envelopes around the same words: a whole message costs least, and most of it is content.
        assert full["message"] == full.min()
        assert table.loc[name]["envelope_share"]["message"] == table.loc[name]["envelope_share"].min()


def test_no_gold_moves_a_schedule_and_no_argument_could_carry_it(made: Ablation, tmp_path: Path) -> None:
    lies = {
        name: msgspec.structs.replace(
            workload,
            gold={i: Gold(i, one.label and "SUPPORT", "wrong", (("nowhere", 0),)) for i, one in workload.gold.items()},
        )
        for name, workload in made.workloads.items()
    }
    streams = streams_of(lies, frozen_corpora(ScriptedReceiver(), lies, tmp_path))
    again = boundary_schedules(streams, splits_of(streams["typed"], SEEDS), BETAS)
    assert msgspec.json.encode(again) == msgspec.json.encode(made.schedules)
    annotations = [str(p.annotation) for p in inspect.signature(boundary_schedules).parameters.values()]
    assert not any(word in text for text in annotations for word in ("Workload", "Gold", "Reply", "DataFrame"))


def test_a_failed_call_stays_null(made: Ablation) -> None:
    class Failing(ScriptedReceiver):
        def reply(self, prompts: Any, **options: Any) -> Any:
            replies = super().reply(prompts, **options)
            return [msgspec.structs.replace(one, text="", finish="error", error="down") for one in replies]

    answers = answer_boundaries(Failing(), made.schedules, made.streams)
    frame = boundary_results(made.schedules, answers, made.workloads, made.streams, made.receiver.count_tokens)
    assert frame[["task_utility", "evidence_utility", "utility"]].isna().all(axis=None)
    assert frame["bytes"].equals(made.results["bytes"])
