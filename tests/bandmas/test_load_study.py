"""Tests of lib/bandmas/load_study.py: calibration, sweeps of a real small study, scores joined last, scheduler time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from lib.bandmas.adaptive import System
from lib.bandmas.load import RUN_COLUMNS
from lib.bandmas.load_study import (
    ADAPTIVE,
    RHOS,
    STATIC,
    LoadCase,
    answer_table,
    calibration_calls,
    capacity_of,
    contexts_of,
    load_sweep,
    scheduler_times,
    scored_arrivals,
    service_models,
    static_sets,
)
from lib.bandmas.schedule import schedules_of
from lib.bandmas.service import ContextAnswers, LiveService, ReplayedService, ServiceModel
from lib.bandmas.shrinkage import PredictorError
from lib.bandmas.traffic import packet_tokens
from lib.messages.wire import batch_bytes
from lib.models.receiver import Prompt
from lib.models.scripted import ScriptedReceiver
from tests.bandmas.studies import Study, run_study
from tests.bandmas.test_schedule import false_gold

MODEL = ServiceModel(0.4, 0.002, 0.01, new_tokens=20, floor=0.1)
SEEDS = (0, 1)
NAME = "worlds_bridge"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return run_study(ScriptedReceiver(), tmp_path_factory.mktemp("study"))


def case_of(study: Study, seed: int = 0, **changes: Any) -> LoadCase:
    fit = next(one for one in study.fits if (one.workload, one.seed) == (NAME, seed))
    tokens = packet_tokens(study.traffics, ScriptedReceiver().count_tokens)
    return LoadCase(**{"traffic": study.traffics[NAME], "fit": fit, "tokens": tokens, "beta": 0.5, **changes})


def swept(case: LoadCase, answers: ContextAnswers | None = None, **changes: Any) -> pd.DataFrame:
    sets, service = static_sets(case), ReplayedService(MODEL, answers)
    return load_sweep(case, sets, capacity_of(case, sets, service), service, MODEL, **changes)


def test_static_sets_are_the_schedules_of_the_study(study: Study) -> None:
    case = case_of(study)
    sets = static_sets(case)
    assert tuple(sets) == STATIC and set(sets["causal"]) == {*case.calibration, *case.fit.split.final}
    for one in schedules_of(
        case.traffic, case.fit.split.final, case.fit.predictor, policies=STATIC, betas=[0.5], seed=0
    ):
        sent = sets[one.policy][one.task_id]
        assert sent.packet_ids == tuple(packet.packet_id for packet in one.admission.admitted)
        assert sent.bytes == one.admission.bytes
        assert sent.context_tokens == sum(case.tokens[packet_id] for packet_id in sent.packet_ids)
    contexts = contexts_of(sets, case.calibration)
    assert {task_id for task_id, _ in contexts} == set(case.calibration)
    assert len(contexts_of(sets)) > len(contexts)


def test_capacity_and_scales_come_from_calibration_tasks_alone(study: Study) -> None:
    case = case_of(study)
    sets = static_sets(case)
    known = capacity_of(case, sets, ReplayedService(MODEL))
    full = [case.traffic.full_bytes[task_id] for task_id in case.calibration]
    assert known.full_bytes == pytest.approx(np.mean(full)) and known.tasks == len(full) == 6
    assert 1 / known.per_second == pytest.approx(max(8 * np.mean(full) / 25_000, known.full_seconds))
    assert known.bottleneck == ("link" if 8 * np.mean(full) / 25_000 > known.full_seconds else "receiver")
    assert known.bytes_scale == pytest.approx(np.mean([sets["causal"][i].bytes for i in case.calibration]))
    assert known.context_scale == pytest.approx(np.mean([sets["causal"][i].context_tokens for i in case.calibration]))
    crippled = {policy: {i: by[i] for i in case.calibration} for policy, by in sets.items()}
    assert capacity_of(case, crippled, ReplayedService(MODEL)) == known
    slow_link = msgspec.structs.replace(case, system=System(rate=100.0))
    assert capacity_of(slow_link, sets, ReplayedService(MODEL)).bottleneck == "link"


def test_capacity_says_which_policy_it_lacks(study: Study) -> None:
    case = case_of(study, scored_by="hybrid")
    with pytest.raises(ValueError, match="worlds_bridge, seed 0: capacity needs the sets of 'hybrid'"):
        capacity_of(case, static_sets(case), ReplayedService(MODEL))


def test_a_sweep_runs_every_policy_at_every_load_over_the_same_arrivals(study: Study) -> None:
    frame = swept(case_of(study))
    assert tuple(frame.columns) == ("workload", "seed", "policy", "rho", *RUN_COLUMNS)
    assert len(frame) == 4 * len(RHOS) * (6 + 4)
    for rho, rows in frame.groupby("rho"):
        for _, one in rows.groupby("policy"):
            assert one["task_id"].tolist() == rows[rows["policy"] == "full"]["task_id"].tolist()
            assert one["arrival_s"].tolist() == rows[rows["policy"] == "full"]["arrival_s"].tolist(), rho
    sent = frame.groupby(["policy", "rho"])["packet_ids"].agg(tuple)
    assert all(len(set(sent[policy])) == 1 for policy in STATIC), "static policies send the same at any load"
    assert frame[frame["policy"] != ADAPTIVE][["price_bytes"]].isna().all().all()
    assert frame[frame["policy"] == ADAPTIVE][["price_bytes"]].notna().all().all()


def test_the_adaptive_policy_keeps_the_cap_and_ranks_as_its_value_does(study: Study) -> None:
    case = case_of(study)
    frame = swept(case)
    for row in frame[frame["policy"] == ADAPTIVE].to_dict("records"):
        ids = row["packet_ids"].split()
        packets = [packet for packet in case.traffic.packets[row["task_id"]] if packet.packet_id in ids]
        assert row["bytes"] == batch_bytes(packets) <= case.cap(row["task_id"])
    mixed = case_of(study, scored_by="hybrid")
    sets = static_sets(mixed, (*STATIC, "hybrid"))
    known = capacity_of(mixed, sets, ReplayedService(MODEL))
    assert known.bytes_scale == pytest.approx(np.mean([sets["hybrid"][i].bytes for i in mixed.calibration]))
    assert set(load_sweep(mixed, sets, known, ReplayedService(MODEL), MODEL, rhos=[0.5])["policy"]) == {
        *(*STATIC, "hybrid", ADAPTIVE)
    }


def test_more_arrivals_and_other_settings_are_parameters(study: Study) -> None:
    long = swept(case_of(study, count=50, warm_up=3), rhos=[1.0])
    assert len(long) == 4 * 53 and long.groupby("policy")["warm_up"].sum().eq(3).all()
    fast = swept(case_of(study, system=System(rate=1e9, deadline=30.0)), rhos=[1.0])
    assert not fast["missed"].any() and fast["transfer_s"].max() < 1e-4
    steep = swept(case_of(study, eta=0.2, count=50), rhos=[1.5])
    flat = swept(case_of(study, eta=0.0, count=50), rhos=[1.5])
    assert steep["price_latency"].max() > 0 and flat["price_latency"].max() == 0
    assert set(swept(case_of(study), adaptive=False, rhos=[1.0])["policy"]) == set(STATIC)


def test_new_packet_sets_are_answered_and_scores_come_last(study: Study) -> None:
    case = case_of(study, count=30, eta=0.2)
    answers = ContextAnswers(receiver := ScriptedReceiver(), study.traffics)
    answers.ask(contexts_of(static_sets(case)))
    known = receiver.calls
    frame = swept(case, answers)
    assert receiver.calls > known, "the adaptive policy sent packet sets that no static policy sends"
    table = answer_table(answers.replies, study.workloads)
    assert table["raw"].notna().all() and table[["gold", "reason"]].notna().all().all()
    scored = scored_arrivals(frame, table)
    assert len(scored) == 4 * len(RHOS) * 30 and scored["answered"].all()
    results = study.results.query("workload == @NAME and seed == 0 and beta == 0.5 and policy == 'causal'")
    expected = results.set_index("task_id")["task_utility"]
    for row in scored[(scored["policy"] == "causal") & (scored["rho"] == 1.0)].to_dict("records"):
        assert row["task_utility"] == expected[row["task_id"]], "the same packets, the same answer as in the study"
    with pytest.raises(ValueError, match=r"no answer to .*; ask it before scoring"):
        scored_arrivals(frame, table.iloc[:-1][table["task_id"].iloc[:-1] != scored["task_id"].iloc[0]])


def test_failed_calls_have_no_utility_and_stay_in_the_table(study: Study) -> None:
    def script(prompt: Prompt) -> str:
        raise RuntimeError("down")

    answers = ContextAnswers(ScriptedReceiver(script), study.traffics)
    frame = swept(case_of(study), answers, rhos=[1.0])
    scored = scored_arrivals(frame, answer_table(answers.replies, study.workloads))
    assert scored["task_utility"].isna().all() and not scored["answered"].any() and len(scored) == 16


def test_a_live_run_calls_the_receiver_for_each_new_set_and_fits_on_calibration(study: Study) -> None:
    case = case_of(study)
    sets = static_sets(case)
    marks: Iterator[float] = iter(np.arange(100_000) * 0.25)
    live = LiveService(ContextAnswers(receiver := ScriptedReceiver(), study.traffics), clock=lambda: next(marks))
    ticks: list[int] = []
    calls = calibration_calls([case], {(NAME, 0): sets}, live, live.answers, tick=lambda: ticks.append(1))
    assert calls["task_id"].isin(case.calibration).all() and (calls["seconds"] == 0.25).all()
    assert len(calls) == len(ticks) == len(contexts_of(sets, case.calibration)) == receiver.calls - 3
    assert calls["new_tokens"].notna().all() and not calls["failed"].any()
    model = service_models(calls)[NAME]
    assert model.seconds(40) == pytest.approx(0.25), "every call took a quarter of a second by this clock"
    frame = load_sweep(case, sets, capacity_of(case, sets, live), live, model, rhos=[0.5, 1.5])
    assert frame["service_s"].unique().tolist() == [0.25]
    distinct = {(row["task_id"], row["packet_ids"]) for row in frame.to_dict("records")}
    assert len(live.timed) == len(distinct) and receiver.calls == len(distinct) + 3
    assert scored_arrivals(frame, answer_table(live.answers.replies, study.workloads))["answered"].all()


def test_calibration_calls_of_an_assumed_model_give_it_back(study: Study) -> None:
    cases = [case_of(study, seed) for seed in SEEDS]
    sets = {(NAME, case.fit.seed): static_sets(case) for case in cases}
    answers = ContextAnswers(ScriptedReceiver(), study.traffics)
    calls = calibration_calls(cases, sets, ReplayedService(MODEL, answers), answers)
    assert not calls[["task_id", "packet_ids"]].duplicated().any(), "seeds share what they have in common"
    assert set(calls["task_id"]) == {task_id for case in cases for task_id in case.calibration}
    model = service_models(calls)[NAME]
    assert (model.base, model.per_context_token, model.per_new_token) == pytest.approx((0.4, 0.002, 0.01))
    assert model.new_tokens == pytest.approx(calls["new_tokens"].mean())
    some_failed = calls.assign(failed=calls.index > 2, seconds=calls["seconds"].where(calls.index <= 2, 99.0))
    assert service_models(some_failed)[NAME].seconds(30) < 2.0, "failed calls tell nothing"
    with pytest.raises(ValueError, match="worlds_bridge: no calibration call was answered"):
        service_models(calls.assign(failed=True))


def test_no_gold_and_no_reply_changes_what_is_sent(study: Study, tmp_path: Path) -> None:
    """All gold mutated and other replies of equal length: the frozen predictor decides the same, byte for byte."""
    workloads = {name: false_gold(study.workloads[name], list(study.workloads[name].gold)) for name in study.workloads}
    other = run_study(ScriptedReceiver(), tmp_path, workloads=workloads)
    assert not other.effects["rce"].equals(study.effects["rce"])
    honest = ScriptedReceiver()
    liar = ScriptedReceiver(lambda prompt: " ".join("lie" for _ in honest.script(prompt).split()))
    frames = [
        swept(case_of(study, traffic=made.traffics[NAME], count=30), ContextAnswers(receiver, made.traffics))
        for made, receiver in ((study, honest), (other, liar))
    ]
    pd.testing.assert_frame_equal(*frames)


def test_a_predictor_that_is_not_the_frozen_one_is_refused(study: Study) -> None:
    fits = [one for one in study.fits if one.workload == NAME]
    swapped = msgspec.structs.replace(fits[0], predictor=fits[1].predictor)
    with pytest.raises(PredictorError, match="worlds_bridge, seed 0: the predictor changed after it was frozen"):
        case_of(study, fit=swapped)


def test_scheduler_time_is_the_median_of_five_and_stands_apart(study: Study) -> None:
    case = case_of(study)
    sets = static_sets(case)
    known = capacity_of(case, sets, ReplayedService(MODEL))
    lengths = [1.0, 9.0, 2.0, 3.0, 8.0]  # seconds; their median is 3
    marks = iter([mark for start in range(10_000) for mark in (100.0 * start, 100.0 * start + lengths[start % 5])])
    times = scheduler_times(case, known, MODEL, clock=lambda: next(marks))
    expected = {"full": 0.0, "semantic": 3000.0, "causal": 3000.0, ADAPTIVE: 3000.0}
    assert times["scheduler_ms"].tolist() == pytest.approx(times["policy"].map(expected).tolist())
    assert set(times["task_id"]) == set(case.fit.split.final)
    real = scheduler_times(case, known, MODEL, task_ids=case.calibration[:2])
    assert set(real["task_id"]) == set(case.calibration[:2])
    assert (real[real["policy"] != "full"]["scheduler_ms"] > 0).all()
    assert not {"scheduler_ms", "scheduler_s"} & set(RUN_COLUMNS), "no latency holds it"
