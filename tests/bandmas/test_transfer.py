"""Tests of lib/bandmas/transfer.py."""

from __future__ import annotations

import gc
import math
import weakref
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lib.bandmas.transfer as transfer
from lib.bandmas.results import answer_schedules, result_table, scorer_of
from lib.bandmas.schedule import schedule_finals
from lib.bandmas.study import Fitted, replay_all, replayable_ids, splits_of
from lib.bandmas.traffic import Traffic, frozen_corpora, load_workloads, packet_tokens, traffics_of
from lib.bandmas.verdicts import calibrated_renderer
from lib.messages.calibrate import Renderer
from lib.models.choose import open_receiver
from lib.models.scripted import ScriptedReceiver
from lib.tasks.task import Split, Workload
from tests.bandmas.studies import CAPS, NAMES

FIRST, SECOND = RECEIVERS = ("scripted", "scripted-skimming")


class Shared(msgspec.Struct, frozen=True):
    """A study of two receivers on one set of messages."""

    workloads: dict[str, Workload]
    traffics: dict[str, Traffic]
    splits: dict[str, dict[int, Split]]
    effects: dict[str, Any]
    fits: dict[str, list[Fitted]]
    schedules: transfer.TransferSchedules
    replies: dict[str, Any]
    tokens: dict[str, dict[str, int]]
    results: Any


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    folder = tmp_path_factory.mktemp("transfer")
    loaded = load_workloads(NAMES, 10)
    traffics = traffics_of(loaded, frozen_corpora(open_receiver(FIRST), loaded, folder / "corpora"))
    splits = splits_of(traffics, (0, 1))
    score = scorer_of(loaded)
    effects = transfer.in_turn(RECEIVERS, open_receiver, lambda _, one: replay_all(one, traffics, splits, score)[1])
    fits = transfer.frozen_fits(traffics, splits, effects, folder / "predictors")
    schedules = transfer.transfer_schedules(traffics, fits, CAPS)
    replies = transfer.in_turn(
        RECEIVERS, open_receiver, lambda _, one: answer_schedules(one, schedules.everything, traffics)
    )
    tokens = {name: packet_tokens(traffics, open_receiver(name).count_tokens) for name in RECEIVERS}
    results = transfer.transfer_results(schedules, replies, loaded, tokens, fits)
    return Shared(loaded, traffics, splits, effects, fits, schedules, replies, tokens, results)


# ------------------------------------------------------------------------------------------------------------- one at a time


def test_a_receiver_is_gone_before_the_next_one_opens() -> None:
    alive: list[weakref.ref[ScriptedReceiver]] = []

    def opened(name: str) -> ScriptedReceiver:
        assert [one() for one in alive] == [None] * len(alive), "an earlier receiver is still in memory"
        receiver = ScriptedReceiver(name=name)
        receiver.loop = receiver  # type: ignore[attr-defined]  # as models do, it refers to itself
        alive.append(weakref.ref(receiver))
        return receiver

    gc.disable()
    try:
        told = transfer.in_turn(["a", "b", "c"], opened, lambda name, one: (name, one.name))
    finally:
        gc.enable()
    assert told == {name: (name, name) for name in "abc"} and list(told) == ["a", "b", "c"]


@pytest.mark.parametrize("names", [[], ["a", "b", "a"]])
def test_receivers_are_named_once(names: list[str]) -> None:
    with pytest.raises(ValueError, match="receivers: need at least one, each once"):
        transfer.in_turn(names, open_receiver, lambda name, one: None)


# ---------------------------------------------------------------------------------------------------------------- calibration


def test_offsets_are_those_of_a_writer_and_a_judge_in_memory_together(tmp_path: Path) -> None:
    studied = load_workloads(NAMES, 5)
    writer, judge = open_receiver(FIRST), open_receiver(SECOND)
    together = calibrated_renderer(judge, writer, studied, 6, tmp_path / "together")
    calibrated_renderer(writer, writer, studied, 6, tmp_path / "apart")  # the writer's turn
    apart = transfer.calibrated_on(judge, tmp_path / "apart", studied, 6)
    assert apart.calibrations == together.calibrations and len(apart.calibrations) == 1
    assert transfer.calibrated_on(writer, tmp_path / "apart", studied, 6).calibrations != apart.calibrations


def test_without_calibration_messages_there_are_no_offsets(tmp_path: Path) -> None:
    studied = load_workloads(NAMES, 5)
    assert isinstance(calibrated_renderer(ScriptedReceiver(), ScriptedReceiver(), studied, 0, tmp_path), Renderer)
    assert transfer.calibrated_on(ScriptedReceiver(), tmp_path, studied, 0).calibrations == {}


# ------------------------------------------------------------------------------------------------------------------ agreement


def worth(*values: float) -> pd.DataFrame:
    ids = [f"t|m00|s{k:02d}" for k in range(len(values))]
    return pd.DataFrame(
        {"workload": "w", "task_id": "t", "packet_id": ids, "type": "claim", "rce": pd.Series(values, dtype=float)}
    )


def test_pairs_stand_beside_each_other_packet_by_packet() -> None:
    pairs = transfer.effect_pairs({"a": worth(0.1, 0.0), "b": worth(0.2, math.nan), "c": worth(-0.3, 0.4)})
    assert pairs[["first", "second"]].drop_duplicates().to_numpy().tolist() == [["a", "b"], ["a", "c"], ["b", "c"]]
    assert pairs["rce_first"].fillna(9).tolist() == [0.1, 0.0, 0.1, 0.0, 0.2, 9]
    assert pairs["rce_second"].fillna(9).tolist() == [0.2, 9, -0.3, 0.4, -0.3, 0.4]
    assert transfer.effect_pairs({"a": worth(0.1)}).empty


def test_other_messages_are_refused() -> None:
    with pytest.raises(ValueError, match="a and b were replayed on other packets"):
        transfer.effect_pairs({"a": worth(0.1, 0.2), "b": worth(0.1)})


def test_signs_part_at_the_resolution_of_an_effect() -> None:
    signs = transfer.signs_of(pd.Series([1e-9, 5e-10, -5e-10, -1e-9, math.nan]))
    assert signs.fillna("").tolist() == ["helpful", "idle", "idle", "harmful", ""]


def test_a_worked_table_of_signs() -> None:
    one, other = worth(0.5, 0.5, 0.0, -0.5, math.nan, 0.5), worth(0.1, 0.0, 0.0, 0.2, 0.1, math.nan)
    counts = transfer.sign_counts(transfer.effect_pairs({"a": one, "b": other}))
    assert len(counts) == 9 and counts["share"].sum() == pytest.approx(1)
    some = counts[counts["packets"] > 0].set_index(["sign_first", "sign_second"])["packets"].to_dict()
    assert some == {
        ("helpful", "helpful"): 1,
        ("helpful", "idle"): 1,
        ("idle", "idle"): 1,
        ("harmful", "helpful"): 1,
    }
    told = transfer.sign_agreement(counts).iloc[0]
    assert (told["same"], told["opposite"], told["idle_to_one"]) == (0.5, 0.25, 0.25)


@settings(max_examples=25)
@given(st.lists(st.tuples(*[st.sampled_from([-0.5, 0.0, 0.25])] * 2), min_size=1, max_size=12))
def test_sign_shares_sum_to_one_and_do_not_depend_on_who_comes_first(values: list[tuple[float, float]]) -> None:
    one, other = (worth(*side) for side in zip(*values, strict=True))
    told = [
        transfer.sign_agreement(transfer.sign_counts(transfer.effect_pairs(effects))).iloc[0]
        for effects in ({"a": one, "b": other}, {"b": other, "a": one})
    ]
    shares = ["same", "opposite", "idle_to_one"]
    assert sum(told[0][shares]) == pytest.approx(1)
    assert told[0][shares].tolist() == pytest.approx(told[1][shares].tolist())
    assert told[0]["same"] == pytest.approx(sum(a == b for a, b in values) / len(values))


# ------------------------------------------------------------------------------------------------------------------ schedules


def test_receivers_differ_and_were_replayed_on_the_same_packets(study: Shared) -> None:
    one, other = study.effects.values()
    assert one["packet_id"].equals(other["packet_id"]) and not one["rce"].equals(other["rce"])
    assert [fit.fingerprint for fit in study.fits[FIRST]] != [fit.fingerprint for fit in study.fits[SECOND]]


@pytest.mark.parametrize("poison", [1e9, math.nan])
def test_effects_of_final_tasks_change_no_schedule_and_no_agreement(
    study: Shared, tmp_path: Path, poison: float
) -> None:
    """Every split has its own final tasks; their effects are poisoned for both receivers."""
    for seed in (0, 1):
        splits = {name: {seed: by_seed[seed]} for name, by_seed in study.splits.items()}
        final = {task_id for by_seed in splits.values() for task_id in by_seed[seed].final}
        poisoned = {
            name: one.assign(rce=one["rce"].mask(one["task_id"].isin(final), poison))
            for name, one in study.effects.items()
        }
        assert any(one["task_id"].isin(final).any() for one in poisoned.values())
        fits = [
            transfer.frozen_fits(study.traffics, splits, effects, tmp_path / f"{seed}{place}")
            for place, effects in enumerate((study.effects, poisoned))
        ]
        clean, other = (transfer.transfer_schedules(study.traffics, one, CAPS) for one in fits)
        assert msgspec.json.encode(clean) == msgspec.json.encode(other)
        across = [
            transfer.predicted_across(fits[0], study.effects),
            transfer.predicted_across(fits[1], poisoned),
        ]
        pd.testing.assert_frame_equal(*across)


def test_predictors_are_frozen_one_folder_a_receiver(study: Shared, tmp_path: Path) -> None:
    effects = {f"owner/{name}": one for name, one in study.effects.items()}
    transfer.frozen_fits(study.traffics, study.splits, effects, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"00-{FIRST}", f"01-{SECOND}"]
    assert len(list(tmp_path.rglob("*.json"))) == 2 * len(NAMES) * 2


def test_schedules_are_those_of_each_predictor_and_the_shared_policies_come_once(study: Shared) -> None:
    betas = {name: (cap,) for name, cap in CAPS.items()}
    for name, own in study.fits.items():
        assert study.schedules.learned[name] == schedule_finals(study.traffics, own, policies=["causal"], betas=betas)
        shared = schedule_finals(study.traffics, own, policies=transfer.SHARED, betas=betas)
        assert study.schedules.shared == shared
    finals = sum(len(split.final) for by_seed in study.splits.values() for split in by_seed.values())
    assert len(study.schedules.everything) == finals * (len(transfer.SHARED) + len(RECEIVERS))


# ------------------------------------------------------------------------------------------------------------------ results


def test_the_diagonal_is_the_study_of_a_single_receiver(study: Shared) -> None:
    betas = {name: (cap,) for name, cap in CAPS.items()}
    for name in RECEIVERS:
        alone = schedule_finals(study.traffics, study.fits[name], policies=[*transfer.SHARED, "causal"], betas=betas)
        replies = answer_schedules(open_receiver(name), alone, study.traffics)
        expected = result_table(alone, replies, study.workloads, study.tokens[name], study.fits[name])
        mine = transfer.own_results(study.results)
        mine = mine[mine["answered_by"] == name][expected.columns]
        order = ["workload", "seed", "policy", "task_id"]
        pd.testing.assert_frame_equal(
            mine.sort_values(order).reset_index(drop=True), expected.sort_values(order).reset_index(drop=True)
        )


def test_every_receiver_answers_every_predictor(study: Shared) -> None:
    cells = study.results[study.results["policy"] == "causal"].groupby(["trained_on", "answered_by"]).size()
    assert sorted(cells.index) == sorted((a, b) for a in RECEIVERS for b in RECEIVERS) and cells.nunique() == 1
    rest = study.results[study.results["policy"] != "causal"]
    assert rest["trained_on"].isna().all() and rest["promoted"].isna().all()
    assert (study.results["bytes"] <= study.results["cap_bytes"]).fillna(True).all()


def test_equal_sets_have_equal_answers_whoever_the_predictor_learned_from(study: Shared) -> None:
    keys = ["answered_by", "workload", "task_id", "packet_ids"]
    assert (study.results.groupby(keys, dropna=False)["raw"].nunique() == 1).all()
    assert study.results.groupby(keys[1:])["raw"].nunique().max() > 1, "the receivers answer differently somewhere"


def test_the_gate_is_that_of_the_receiver_trained_on(study: Shared) -> None:
    failed = msgspec.structs.replace(study.fits[SECOND][0].gate, passed=False)
    fits = {
        FIRST: study.fits[FIRST],
        SECOND: [msgspec.structs.replace(fit, gate=failed) for fit in study.fits[SECOND]],
    }
    results = transfer.transfer_results(study.schedules, study.replies, study.workloads, study.tokens, fits)
    gates = results.dropna(subset=["trained_on"]).groupby(["trained_on", "answered_by"])["promoted"].unique()
    assert {key: list(one) for key, one in gates.items()} == {
        (source, target): [source == FIRST] for source in RECEIVERS for target in RECEIVERS
    }


# ------------------------------------------------------------------------------------------------------------------ reasons


def test_with_itself_a_receiver_has_its_own_correlation(study: Shared) -> None:
    across = transfer.predicted_across(study.fits, study.effects).set_index(
        ["trained_on", "answered_by", "workload", "seed"]
    )["correlation"]
    for name, own in study.fits.items():
        for fit in own:
            assert across[name, name, fit.workload, fit.seed] == pytest.approx(fit.correlation, nan_ok=True)
    assert not across[FIRST, SECOND].equals(across[FIRST, FIRST])


def test_predictions_are_held_against_the_other_receiver_s_effects(study: Shared) -> None:
    """Where the effects of the second are the predictions of the first, the correlation is 1."""
    seen = pd.concat([fit.crossed for fit in study.fits[FIRST] if fit.seed == 0])
    known = dict(zip(seen["packet_id"], seen["predicted"], strict=True))
    echo = study.effects[SECOND].assign(rce=study.effects[SECOND]["packet_id"].map(known))
    fits = {FIRST: [fit for fit in study.fits[FIRST] if fit.seed == 0]}
    across = transfer.predicted_across(fits, {SECOND: echo})
    assert across["correlation"].tolist() == pytest.approx([1.0] * len(NAMES))
    held = {name: study.splits[name][0].profile for name in NAMES}
    packets = [sum(len(study.traffics[name].packets[i]) for i in ids) for name, ids in held.items()]
    assert across["packets"].tolist() == packets
    assert set(replayable_ids(study.splits[NAMES[0]])) > set(held[NAMES[0]])


def test_overlap_is_symmetric_and_whole_on_the_diagonal(study: Shared) -> None:
    overlap = transfer.set_overlap(study.schedules)
    wide = overlap.set_index(["workload", "trained_on", "answered_by"])
    for name in NAMES:
        for one in RECEIVERS:
            assert wide.loc[(name, one, one), ["identical", "overlap"]].tolist() == [1.0, 1.0]
        both = [wide.loc[(name, *pair)].tolist() for pair in ((FIRST, SECOND), (SECOND, FIRST))]
        assert both[0] == both[1]
    apart = overlap[overlap["trained_on"] != overlap["answered_by"]]
    assert (apart["identical"] < 1).any() and (apart["overlap"] >= apart["identical"]).all()


def test_overlap_counts_packets_of_either_set(study: Shared) -> None:
    a = study.schedules.learned[FIRST][0]
    admitted, skipped = a.admission.admitted, a.admission.skipped
    swapped = msgspec.structs.replace(a.admission, admitted=(*admitted[1:], skipped[0]))
    other = msgspec.structs.replace(a, admission=swapped)
    empty = msgspec.structs.replace(a, admission=msgspec.structs.replace(a.admission, full_bytes=0))
    pair = transfer.TransferSchedules([], {FIRST: [a, a, empty], SECOND: [other, a, empty]})
    cell = transfer.set_overlap(pair).set_index(["trained_on", "answered_by"]).loc[(FIRST, SECOND)]
    n = len(admitted)
    assert cell["overlap"] == pytest.approx(((n - 1) / (n + 1) + 1) / 2)
    assert (cell["identical"], cell["items"]) == (0.5, 2)
