"""Tests of lib/bandmas/results.py."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from lib.bandmas.agentprune import train_agentprune
from lib.bandmas.results import (
    COLUMNS,
    answer_schedules,
    at_caps,
    context_key,
    latency_sample,
    measure_latency,
    outcome_records,
    result_table,
    scorer_of,
)
from lib.bandmas.safesieve import train_safesieve
from lib.bandmas.schedule import schedule_finals
from lib.bandmas.scores import BASELINES
from lib.bandmas.study import with_baselines
from lib.bandmas.traffic import packet_tokens
from lib.evaluation.summary import main_table
from lib.messages.prompts import NO_EVIDENCE, receiver_prompt
from lib.models.receiver import Prompt, Reply
from lib.models.scripted import ScriptedReceiver
from lib.tasks.scoring import score_reply
from tests.bandmas.studies import BETAS, CAPS, NAMES, Counting, Study, run_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return run_study(Counting(), tmp_path_factory.mktemp("study"))


def test_distinct_contexts_of_all_workloads_are_asked_once_in_one_call(study: Study) -> None:
    receiver = Counting()
    replies = answer_schedules(receiver, study.schedules, study.traffics)
    (batch,) = receiver.batches
    keys = {context_key(one) for one in study.schedules}
    assert set(replies) == keys and len(batch) == len(keys) < len(study.schedules)
    assert len({receiver.prompt_key(prompt) for prompt in batch}) == len(batch)
    tasks = {task.id: task for workload in study.workloads.values() for task in workload.tasks}
    for one in study.schedules[::7]:
        direct = receiver.reply([receiver_prompt(tasks[one.task_id], one.admission.admitted)])[0]
        assert replies[context_key(one)].text == direct.text
    assert [task_id for task_id, _ in replies] == sorted((t for t, _ in replies), key=list(tasks).index)


def test_no_schedule_asks_nothing(study: Study) -> None:
    receiver = Counting()
    assert answer_schedules(receiver, [], study.traffics) == {} and receiver.batches == []
    assert list(result_table([], {}, study.workloads, {})) == list(COLUMNS)


def test_one_row_a_schedule_with_raw_extracted_gold_and_reason(study: Study) -> None:
    frame = study.results
    assert len(frame) == len(study.schedules) and list(frame) == list(COLUMNS)
    assert frame[["raw", "extracted", "gold", "reason", "task_utility", "utility", "saving"]].notna().all().all()
    scorer, counter = scorer_of(study.workloads), ScriptedReceiver()
    contents = {p.packet_id: p.content for t in study.traffics.values() for cut in t.packets.values() for p in cut}
    for one, row in list(zip(study.schedules, frame.to_dict("records"), strict=True))[::11]:
        score = scorer(one.task_id, row["raw"])
        assert (row["task_utility"], row["utility"], row["reason"]) == (score.task_utility, score.utility, score.reason)
        assert json.loads(row["extracted"])["answer"] == score.answer
        assert json.loads(row["gold"])["evidence"] == [list(cited) for cited in score.gold_evidence]
        ids = row["packet_ids"].split()
        assert row["context_tokens"] == sum(counter.count_tokens([contents[packet_id] for packet_id in ids]))
        assert (row["n_admitted"], row["n_packets"]) == (
            len(ids),
            len(study.traffics[one.workload].packets[one.task_id]),
        )
        assert row["saving"] == pytest.approx(1 - row["bytes"] / row["full_bytes"])
    assert frame["cap_bytes"].isna().equals(frame["policy"] == "full")
    assert frame["promoted"].isna().equals(~frame["policy"].isin(["causal", "hybrid"]))


def test_the_scorer_is_the_metric_of_the_tasks_own_workload(study: Study) -> None:
    task = study.workloads["worlds_bridge"].tasks[2]
    raw = '{"answer": "x", "evidence": []}'
    gold = study.workloads["worlds_bridge"].gold[task.id]
    assert scorer_of(study.workloads)(task.id, raw) == score_reply(task, gold, raw)


class Failing(Counting):
    """Fails on every prompt that delivers nothing, and is cut short on the rest."""

    def reply(self, prompts: Sequence[Prompt], **options: Any) -> list[Reply]:
        return [
            Reply(text="", finish="error", error="timed out")
            if NO_EVIDENCE in prompt.turns[-1].text
            else Reply(text='{"label": "SUPPORT", "answer": "\\ud800"', finish="length")
            for prompt in prompts
        ]


def test_failed_calls_have_null_utilities_and_keep_their_gold(study: Study, tmp_path: Path) -> None:
    """Public fault reports 13 and 25: failed items stay in the table, null and counted, never 0."""
    replies = answer_schedules(Failing(), study.schedules, study.traffics)
    tokens = packet_tokens(study.traffics, ScriptedReceiver().count_tokens)
    frame = result_table(study.schedules, replies, study.workloads, tokens, study.fits)
    empty = frame[frame["policy"] == "empty"]
    assert (
        not empty["answered"].any()
        and empty[["task_utility", "evidence_utility", "utility", "raw", "extracted"]].isna().all().all()
    )
    assert empty["reason"].eq("the call failed: timed out").all() and empty["gold"].notna().all()
    rest = frame[frame["policy"] == "full"]
    assert rest[["answered", "parsed", "repaired", "cut_short"]].all().all()
    frame.to_parquet(tmp_path / "r.parquet")  # a lone surrogate in a reply must not lose the table
    table = main_table(frame, ["workload", "policy"], measures=("bytes", "context_tokens")).set_index("policy")
    assert (
        table.loc["empty", "task_utility_mean"].eq(0).all() and table.loc["empty", "task_utility_coverage"].eq(0).all()
    )
    assert table.loc["full", "task_utility_coverage"].eq(1).all()


def test_one_cap_a_workload_with_its_references(study: Study) -> None:
    chosen = at_caps(study.results, CAPS)
    assert set(zip(chosen["workload"], chosen["beta"], strict=True)) == {
        (name, beta) for name in NAMES for beta in (CAPS[name], 0.0, 1.0)
    }
    assert set(chosen["policy"]) == set(study.results["policy"])
    with pytest.raises(ValueError, match=r"worlds_bridge: no schedule at cap 0\.3; add it to the betas"):
        at_caps(study.results, {**CAPS, "worlds_bridge": 0.3})
    reference = study.results[study.results["policy"].isin(["full", "empty"])]
    assert len(at_caps(reference, {})) == len(reference)


def test_the_table_of_policies_is_complete(study: Study) -> None:
    table = main_table(study.results, ["workload", "policy", "beta"], measures=("bytes", "context_tokens"))
    assert len(table) == len(NAMES) * (2 + 5 * len(BETAS["worlds_bridge"]))
    assert table["seeds"].eq(2).all() and table["items"].eq(8).all()
    values = ["task_utility", "evidence_utility", "bytes", "context_tokens", "saving_of_tasks", "saving_of_means"]
    assert table[[f"{name}_{part}" for name in values for part in ("mean", "sd")]].notna().all().all()


# ---------------------------------------------------------------------------------------------------------------- latency


def test_latency_takes_some_final_tasks_of_one_seed_at_the_cap(study: Study) -> None:
    sample = latency_sample(study.schedules, CAPS, seed=1, tasks=2)
    assert {one.seed for one in sample} == {1} and len(sample) == len(NAMES) * 2 * 7
    for name in NAMES:
        mine = [one for one in sample if one.workload == name]
        assert {one.task_id for one in mine} == {*study.splits[name][1].final[:2]}
        assert {one.beta for one in mine} == {CAPS[name], 0.0, 1.0}
    assert sample == latency_sample(study.schedules, CAPS, seed=1, tasks=2)
    assert len({one.policy for one in sample[:8]}) > 2, "policies are mixed"
    assert latency_sample(study.schedules, CAPS, seed=1, tasks=0) == []


class Clocked(Counting):
    """Needs one second more for every call, on its own clock; the scheduler takes none."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def reply(self, prompts: Sequence[Prompt], **options: Any) -> list[Reply]:
        self.now += 1 + len(self.batches)
        return super().reply(prompts, **options)


def test_latency_is_timed_prompt_by_prompt_after_discarded_calls(study: Study) -> None:
    sample, receiver, ticks = latency_sample(study.schedules, CAPS, seed=0, tasks=1), Clocked(), []
    frame = measure_latency(
        receiver,
        sample,
        study.traffics,
        study.fits,
        clock=lambda: receiver.now,
        warm_up=3,
        tick=lambda: ticks.append(1),
    )
    assert [len(batch) for batch in receiver.batches] == [1] * (3 + len(sample))
    assert frame["latency_ms"].tolist() == [1000.0 * (4 + index) for index in range(len(sample))]
    assert (frame["scheduler_ms"] == 0).all() and len(ticks) == len(sample)
    assert frame["bytes"].tolist() == [one.admission.bytes for one in sample]
    assert receiver.batches[3][0] == receiver.batches[0][0]


def test_the_scheduler_is_timed_too(study: Study) -> None:
    sample = latency_sample(study.schedules, CAPS, seed=0, tasks=1)
    frame = measure_latency(ScriptedReceiver(), sample, study.traffics, study.fits, repeats=2)
    times = frame.groupby("policy")["scheduler_ms"].min()
    assert times[["full", "empty"]].eq(0).all() and times[["causal", "semantic", "random"]].gt(0).all()
    assert frame["latency_ms"].gt(0).all()


def test_a_failed_call_has_no_latency_and_a_store_is_refused(study: Study) -> None:
    sample = latency_sample(study.schedules, CAPS, seed=0, tasks=1)
    frame = measure_latency(Failing(), sample, study.traffics, study.fits)
    assert frame.loc[frame["policy"] == "empty", "latency_ms"].isna().all()
    assert frame.loc[frame["policy"] == "full", "latency_ms"].notna().all()
    assert frame["new_tokens"].isna().all()
    behind_store = ScriptedReceiver()
    behind_store.store = object()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="needs the bare receiver"):
        measure_latency(behind_store, sample, study.traffics, study.fits)
    assert measure_latency(ScriptedReceiver(), [], study.traffics, study.fits).empty


def test_gold_reaches_results_alone(study: Study) -> None:
    other = {
        name: msgspec.structs.replace(
            workload, gold={i: msgspec.structs.replace(g, evidence=()) for i, g in workload.gold.items()}
        )
        for name, workload in study.workloads.items()
    }
    replies = answer_schedules(ScriptedReceiver(), study.schedules, study.traffics)
    tokens = packet_tokens(study.traffics, ScriptedReceiver().count_tokens)
    frames = [result_table(study.schedules, replies, loaded, tokens, study.fits) for loaded in (study.workloads, other)]
    same = [name for name in COLUMNS if name not in ("evidence_utility", "utility", "gold", "reason")]
    pd.testing.assert_frame_equal(frames[0][same], frames[1][same])
    assert not frames[0]["evidence_utility"].equals(frames[1]["evidence_utility"])
    assert not any(math.isnan(value) for value in frames[1]["evidence_utility"])


def test_replay_outcomes_are_kept_with_their_gold_and_reason(study: Study, tmp_path: Path) -> None:
    kept = outcome_records(study.outcomes, study.workloads)
    assert {"raw", "extracted", "gold", "reason", "workload", "prompt_key"} <= set(kept) and "score" not in kept
    for row, outcome in list(zip(kept.to_dict("records"), study.outcomes.to_dict("records"), strict=True))[::17]:
        assert row["reason"] == outcome["score"].reason and row["raw"] == outcome["raw"]
        assert json.loads(row["extracted"])["evidence"] == [list(cited) for cited in outcome["score"].evidence]
        assert row["contexts"].split(" ") == list(outcome["contexts"])
    raw = pd.Series(["\ud800 x", None], dtype=object)  # text as a receiver may send it
    broken = study.outcomes.head(2).assign(score=[None, study.outcomes["score"].iloc[1]], raw=raw, error="down")
    saved = outcome_records(broken, study.workloads)
    saved.to_parquet(tmp_path / "o.parquet")
    assert saved["raw"].iloc[0] == r"\ud800 x" and saved["reason"].iloc[0] == "the call failed: down"
    assert saved["gold"].notna().all() and saved["extracted"].isna().tolist() == [True, False]


def test_a_reply_that_stays_unreadable_was_not_repaired(study: Study) -> None:
    replies = {key: Reply(text="I cannot say.") for key in map(context_key, study.schedules)}
    tokens = packet_tokens(study.traffics, ScriptedReceiver().count_tokens)
    frame = result_table(study.schedules, replies, study.workloads, tokens, study.fits)
    assert frame["answered"].all() and not frame[["parsed", "repaired"]].any().any()
    assert frame["extracted"].isna().all() and frame["task_utility"].eq(0).all()


def test_baselines_are_timed_and_have_no_gate(study: Study) -> None:
    how = (ScriptedReceiver(), study.traffics, study.splits, scorer_of(study.workloads))
    fits = with_baselines(study.fits, agentprune=train_agentprune(*how), safesieve=train_safesieve(*how))
    schedules = schedule_finals(study.traffics, fits, policies=(*BASELINES, "causal"), betas=BETAS)
    timed = measure_latency(ScriptedReceiver(), latency_sample(schedules, CAPS, 0, 1), study.traffics, fits, repeats=2)
    assert timed.groupby("policy")["scheduler_ms"].min().loc[list(BASELINES)].gt(0).all()
    replies = answer_schedules(ScriptedReceiver(), schedules, study.traffics)
    tokens = packet_tokens(study.traffics, ScriptedReceiver().count_tokens)
    frame = result_table(schedules, replies, study.workloads, tokens, fits)
    assert frame["promoted"].isna().equals(frame["policy"] != "causal") and frame["predictor"].notna().all()
