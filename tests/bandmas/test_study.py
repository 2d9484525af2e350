"""Tests of lib/bandmas/study.py."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

from lib.bandmas import LeakError, PredictorError, ShrinkagePredictor, effects_of, packet_features
from lib.bandmas.agentprune import AgentPrune, AgentPruneSettings, Edge
from lib.bandmas.study import (
    fit_split,
    fit_splits,
    fit_table,
    freeze_predictors,
    recall_under_cap,
    replay_all,
    replay_jobs,
    replayable_ids,
    splits_of,
    support_table,
    visible_effects,
    with_baselines,
)
from lib.tasks.task import Split
from tests.bandmas.studies import NAMES, Counting, Study, run_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return run_study(Counting(), tmp_path_factory.mktemp("study"))


def test_every_replay_context_is_asked_in_one_call_and_final_tasks_of_all_seeds_are_not(tmp_path: Path) -> None:
    receiver = Counting()
    study = run_study(receiver, tmp_path)
    replays = receiver.batches[len(NAMES)]  # after one call of readers for each workload
    assert len(replays) == len(study.outcomes) and len(receiver.batches) == len(NAMES) + 2
    for name in NAMES:
        splits = study.splits[name]
        allowed = set(replayable_ids(splits))
        always_final = set.intersection(*({*split.final} for split in splits.values()))
        assert allowed | always_final == set(study.traffics[name].tasks) and not allowed & always_final
        assert always_final, "the example has a task that no seed may replay"
        assert set(study.effects.loc[study.effects["workload"] == name, "task_id"]) == allowed
    jobs = replay_jobs(study.traffics, study.splits)
    assert [task.id for task, _ in jobs] == [i for name in NAMES for i in replayable_ids(study.splits[name])]
    direct = effects_of(study.outcomes, jobs)
    pd.testing.assert_frame_equal(study.effects[direct.columns], direct)


def test_effects_carry_what_describes_a_packet(study: Study) -> None:
    packets = [packet for traffic in study.traffics.values() for cut in traffic.packets.values() for packet in cut]
    known = packet_features(packets).set_index("packet_id")
    for row in study.effects.sample(20, random_state=0).to_dict("records"):
        assert (row["marker"], row["wire_bytes"]) == tuple(known.loc[row["packet_id"], ["marker", "wire_bytes"]])


def test_effects_of_final_tasks_cannot_be_read(study: Study) -> None:
    split = study.splits["worlds_bridge"][0]
    seen = visible_effects(study.effects, split)
    assert set(seen["task_id"]) == {*split.profile, *split.validation}
    assert set(visible_effects(study.effects, split, ["profile"])["task_id"]) == {*split.profile}
    assert set(study.effects["task_id"]) & {*split.final}, "the other seed replayed some of them"
    with pytest.raises(LeakError, match="'final' part of seed 0 may not be read"):
        visible_effects(study.effects, split, ["profile", "final"])


@pytest.mark.parametrize("poison", [1e9, math.nan])
def test_a_fit_does_not_read_final_effects_and_is_not_tuned_on_validation(study: Study, poison: float) -> None:
    traffic, split = study.traffics["worlds_bridge"], study.splits["worlds_bridge"][1]
    clean = fit_split(traffic, split, study.effects)
    final = study.effects["task_id"].isin(split.final)
    other = fit_split(traffic, split, study.effects.assign(rce=study.effects["rce"].mask(final, poison)))
    assert fit_table([other]).equals(fit_table([clean]))

    validation = study.effects["task_id"].isin(split.validation)
    changed = study.effects.assign(rce=study.effects["rce"].mask(validation, study.effects["rce"] - 0.5))
    assert fit_split(traffic, split, changed).fingerprint == clean.fingerprint
    profile = study.effects["task_id"].isin(split.profile)
    learned = study.effects.assign(rce=study.effects["rce"].mask(profile, -study.effects["rce"]))
    assert fit_split(traffic, split, learned).fingerprint != clean.fingerprint


def test_a_fit_is_the_predictor_of_the_profile_packets(study: Study) -> None:
    for fit in study.fits:
        traffic = study.traffics[fit.workload]
        packets = [packet for task_id in fit.split.profile for packet in traffic.packets[task_id]]
        rce = study.effects.set_index("packet_id")["rce"]
        by_hand = ShrinkagePredictor().fit(packet_features(packets), [rce[packet.packet_id] for packet in packets])
        assert fit.fingerprint == by_hand.fingerprint() == fit.predictor.fingerprint()
        assert (fit.packets, fit.unmeasured) == (len(packets), 0)
        assert set(fit.crossed["task_id"]) == {*fit.split.profile}
        assert fit.chance == np.mean([rce[packet.packet_id] > 1e-9 for packet in packets])


def test_failed_calls_are_left_out_and_counted(study: Study) -> None:
    traffic, split = study.traffics["worlds_bridge"], study.splits["worlds_bridge"][0]
    lost = study.effects["task_id"] == split.profile[0]
    fit = fit_split(traffic, split, study.effects.assign(rce=study.effects["rce"].mask(lost)))
    assert fit.unmeasured == len(traffic.packets[split.profile[0]]) > 0
    assert fit.packets == sum(len(traffic.packets[task_id]) for task_id in split.profile[1:])
    with pytest.raises(PredictorError, match="worlds_bridge, seed 0: no profile packet has a measured effect"):
        fit_split(traffic, split, study.effects.assign(rce=math.nan))
    with pytest.raises(ValueError, match=f"profile task '{min(split.profile)}' was not replayed"):
        fit_split(traffic, split, study.effects[study.effects["task_id"] != min(split.profile)])


def test_one_profile_task_and_no_validation_task_leave_the_diagnostics_empty(study: Study) -> None:
    traffic, split = study.traffics["worlds_bridge"], study.splits["worlds_bridge"][0]
    fit = fit_split(traffic, Split(0, split.profile[:1], (), split.final), study.effects)
    assert fit.packets == 8 and fit.crossed.empty
    assert {*map(math.isnan, (fit.correlation, fit.recall, fit.validation_correlation))} == {True}
    assert set(study.fits[0].crossed.columns) <= set(fit.crossed.columns), "figures find their columns"


def test_a_failed_gate_is_a_verdict_and_no_error(study: Study) -> None:
    traffic, split = study.traffics["worlds_bridge"], study.splits["worlds_bridge"][0]
    fit = fit_split(traffic, split, study.effects.assign(rce=0.0))
    assert not fit.gate.passed and "no positive replay effect" in fit_table([fit])["reasons"].iloc[0]
    assert (
        math.isnan(fit.correlation)
        and (fit.predictor.predict(packet_features(traffic.packets[split.final[0]])) == 0).all()
    )


def test_predictors_are_frozen_in_files_and_read_back(study: Study, tmp_path: Path, monkeypatch) -> None:
    fits = fit_splits(study.traffics, study.splits, study.effects)
    frozen = freeze_predictors(fits, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{f.workload}-{f.seed}.json" for f in fits)
    assert [fit.predictor.fingerprint() for fit in frozen] == [fit.fingerprint for fit in fits]
    assert all(after.predictor is not before.predictor for after, before in zip(frozen, fits, strict=True))
    stale = [msgspec.structs.replace(fits[0], fingerprint="0" * 64)]
    with pytest.raises(PredictorError, match="changed between fitting and freezing"):
        freeze_predictors(stale, tmp_path)


def test_baselines_are_frozen_beside_the_predictor(study: Study, tmp_path: Path) -> None:
    states = {
        (fit.workload, fit.seed): AgentPrune(
            workload=fit.workload, seed=fit.seed, contexts=40, failed=0, rewarded=7, turns=False,
            settings=AgentPruneSettings(), edges=(Edge("spatial", 0, "", 0.25, True),),
        )
        for fit in study.fits
    }  # fmt: skip
    fits = with_baselines(study.fits, agentprune=states)
    frozen = freeze_predictors(fits, tmp_path)
    stems = [f"{fit.workload}-{fit.seed}{end}.json" for fit in fits for end in ("", "-agentprune")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(stems)
    for before, after in zip(fits, frozen, strict=True):
        state = states[before.workload, before.seed]
        assert after.baselines == {"agentprune": state} and after.baselines["agentprune"] is not state
        assert after.baseline_fingerprints == {"agentprune": state.fingerprint()}
    assert all(fit.baselines == {} for fit in study.fits), "a study without them has none"
    with pytest.raises(PredictorError, match="worlds_bridge, seed 1: agentprune was not trained here"):
        with_baselines(study.fits, agentprune={key: one for key, one in states.items() if key != ("worlds_bridge", 1)})
    stale = [msgspec.structs.replace(fits[0], baseline_fingerprints={"agentprune": "0" * 64})]
    with pytest.raises(PredictorError, match="agentprune changed between training and freezing"):
        freeze_predictors(stale, tmp_path)


def test_support_counts_final_packets(study: Study) -> None:
    table = support_table(study.traffics, study.fits).set_index(["workload", "level"])
    fits = [fit for fit in study.fits if fit.workload == "worlds_bridge"]
    unseen = []
    for fit in fits:
        packets = [p for task_id in fit.split.final for p in study.traffics["worlds_bridge"].packets[task_id]]
        unseen.append(np.mean(fit.predictor.trace(packet_features(packets))["n_leaf"] == 0))
    row = table.loc["worlds_bridge", "leaf"]
    assert row["unseen_share"] == pytest.approx(np.mean(unseen)) and row["unseen_share"] > 0
    assert row["cells"] == np.mean([len(fit.predictor.cells_["leaf"]) for fit in fits])
    assert table.loc["worlds_bridge", "type"]["unseen_share"] == 0


def test_recall_under_a_cap_counts_the_helpful_packets_that_fit(study: Study) -> None:
    all_of_them = recall_under_cap(study.traffics, study.fits, study.effects, 1.0)
    assert all_of_them[["predicted", "semantic", "random"]].eq(1.0).all().all()
    none = recall_under_cap(study.traffics, study.fits, study.effects, 0.0)
    assert none[["predicted", "semantic", "random"]].eq(0.0).all().all() and len(none) == len(study.fits)
    half = recall_under_cap(study.traffics, study.fits, study.effects, 0.5).set_index(["workload", "seed"])
    fit = study.fits[0]
    truth = fit.crossed["rce"].where(fit.crossed["rce"] > 0, -1.0)
    oracle = msgspec.structs.replace(fit, crossed=fit.crossed.assign(predicted=truth))
    known = recall_under_cap(study.traffics, [oracle], study.effects, 0.5)["predicted"].iloc[0]
    assert known >= half.loc[(fit.workload, fit.seed)].max() and known > 0
    useless = study.effects.assign(rce=0.0)
    assert recall_under_cap(study.traffics, [fit], useless, 0.5)["predicted"].isna().all()
    empty = msgspec.structs.replace(fit, crossed=fit.crossed.iloc[:0])
    assert recall_under_cap(study.traffics, [empty], study.effects, 0.5)["random"].isna().all()


def test_seeds_are_needed_once_each(study: Study) -> None:
    for seeds in ([], [1, 1]):
        with pytest.raises(ValueError, match="seeds: need at least one, each once"):
            splits_of(study.traffics, seeds)


def test_nothing_to_replay_is_an_empty_table(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Counting()
    monkeypatch.setattr("lib.bandmas.study.replayable_ids", lambda splits: [])
    outcomes, effects = replay_all(receiver, study.traffics, study.splits, lambda task_id, raw: None)
    assert receiver.calls == 0 and outcomes.empty and effects.empty and "marker" in effects
