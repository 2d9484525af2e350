"""Replay: contexts, call counts, effects, split guard, noise control."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.bandmas.noise import aa_control, flip_rate
from lib.bandmas.replay import (
    LeakError,
    effects_of,
    label_composition,
    replay_contexts,
    replay_effects,
    replay_many,
    replay_outcomes,
)
from lib.models import Prompt
from tests.bandmas.games import Points, Recorder, echo, packets_of, render, task, utility_of

UNIT = st.floats(0, 1, allow_nan=False)


def additive(task_id: str, slots: frozenset[int]) -> tuple[float, float]:
    """Slot 0 is worth half the task utility, slot 1 all the evidence, the others nothing."""
    return 0.5 * (0 in slots), 1.0 * (1 in slots)


@pytest.mark.parametrize(("count", "calls"), [(0, 1), (1, 2), (2, 4), (3, 8), (7, 16)])
def test_each_distinct_packet_set_is_asked_once(count: int, calls: int) -> None:
    """2n + 2 calls; n = 1 needs 2, n = 2 needs 4 (without one is alone the other), n = 0 one."""
    receiver = Recorder()
    packets = packets_of("t1", count)
    effects = replay_effects(receiver, task(), packets, utility_of(additive), render=render)
    assert receiver.calls == calls
    assert len(set(receiver.batches[0])) == calls
    assert len(replay_contexts(packets)) == 2 * count + 2
    assert len(effects) == count


def test_many_tasks_go_in_one_call() -> None:
    receiver = Recorder()
    jobs = [(task(f"t{i}"), packets_of(f"t{i}", i)) for i in range(5)]
    effects = replay_many(receiver, jobs, utility_of(additive), render, {f"t{i}" for i in range(5)})
    assert [len(batch) for batch in receiver.batches] == [1 + 2 + 4 + 8 + 10]
    assert effects.groupby("task_id").size().to_dict() == {"t1": 1, "t2": 2, "t3": 3, "t4": 4}
    assert (effects["n_packets"] == effects["task_id"].str[1:].astype(int)).all()


def test_additive_game_has_its_values_in_both_contrasts() -> None:
    effects = replay_effects(Recorder(), task(), packets_of("t1", 4), utility_of(additive), render=render)
    assert effects["sufficiency"].tolist() == effects["necessity"].tolist() == effects["rce"].tolist()
    assert effects["rce"].tolist() == [0.25, 0.5, 0.0, 0.0]
    assert effects["task_rce"].tolist() == [0.5, 0.0, 0.0, 0.0]
    assert effects["evidence_rce"].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert (effects["u_full"] == 0.75).all()
    assert (effects["u_empty"] == 0.0).all()


def test_substitutes_lack_necessity_and_complements_lack_sufficiency() -> None:
    either = utility_of(lambda _, slots: (float(bool(slots)), float(bool(slots))))
    both = utility_of(lambda _, slots: (float(len(slots) == 2), float(len(slots) == 2)))
    substitutes = replay_effects(Recorder(), task(), packets_of("t1", 2), either, render=render)
    complements = replay_effects(Recorder(), task(), packets_of("t1", 2), both, render=render)
    assert substitutes[["sufficiency", "necessity", "rce"]].to_numpy().tolist() == [[1, 0, 0.5]] * 2
    assert complements[["sufficiency", "necessity", "rce"]].to_numpy().tolist() == [[0, 1, 0.5]] * 2


@given(st.integers(1, 4), st.data())
def test_identities_of_any_game(count: int, data: st.DataObject) -> None:
    """n = 1: both contrasts agree. Any n: RCE is their mean, lies in [-1, 1], and is the mean of its two parts."""
    table: dict[frozenset[int], tuple[float, float]] = {}

    def value(_: str, slots: frozenset[int]) -> tuple[float, float]:
        if slots not in table:
            table[slots] = (data.draw(UNIT), data.draw(UNIT))
        return table[slots]

    effects = replay_effects(Recorder(), task(), packets_of("t1", count), utility_of(value), render=render)
    assert np.allclose(effects["rce"], (effects["sufficiency"] + effects["necessity"]) / 2, atol=1e-12)
    assert np.allclose(effects["rce"], (effects["task_rce"] + effects["evidence_rce"]) / 2, atol=1e-12)
    assert effects["rce"].between(-1, 1).all()
    if count == 1:
        assert effects["sufficiency"].tolist() == effects["necessity"].tolist()


@given(st.integers(2, 5), st.integers(0, 4))
def test_a_useless_packet_has_no_effect_at_all(count: int, useless: int) -> None:
    useless %= count
    value = utility_of(lambda _, slots: (len(slots - {useless}) / count, 1.0 * (min(slots - {useless}, default=9) < 2)))
    effects = replay_effects(Recorder(), task(), packets_of("t1", count), value, render=render)
    row = effects.iloc[useless]
    assert row["sufficiency"] == row["necessity"] == row["rce"] == 0


def test_packet_order_given_does_not_matter() -> None:
    packets = packets_of("t1", 3)
    first = replay_effects(Recorder(), task(), packets, utility_of(additive), render=render)
    second = replay_effects(Recorder(), task(), packets[::-1], utility_of(additive), render=render)
    pd.testing.assert_frame_equal(first, second)


def test_task_outside_the_allowed_parts_is_refused_before_any_call() -> None:
    receiver = Recorder()
    jobs = [(task("t1"), packets_of("t1", 1)), (task("final-7"), packets_of("final-7", 1))]
    for act in (replay_many, aa_control, replay_outcomes):
        with pytest.raises(LeakError, match="'final-7' is not in the profile or validation part"):
            act(receiver, jobs, utility_of(additive), render, {"t1"})
    with pytest.raises(LeakError, match="'t1'"):
        replay_effects(receiver, task(), packets_of("t1", 1), utility_of(additive), render=render, allowed_ids=set())
    assert receiver.calls == 0


def test_foreign_packets_and_doubled_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="belongs to task 't2', not to 't1'"):
        replay_effects(Recorder(), task(), packets_of("t2", 1), utility_of(additive), render=render)
    jobs = [(task(), packets_of("t1", 1))] * 2
    with pytest.raises(ValueError, match="'t1' occurs twice"):
        replay_many(Recorder(), jobs, utility_of(additive), render, {"t1"})
    with pytest.raises(ValueError, match="occurs twice"):
        replay_contexts(packets_of("t1", 1) * 2)


def test_failed_call_leaves_nulls_not_zeros() -> None:
    def broken(prompt: Prompt) -> str:
        if json.loads(prompt.turns[-1].text)[1] == ["t1|m00|s00"]:
            raise RuntimeError("out of memory")
        return echo(prompt)

    jobs = [(task(), packets_of("t1", 3))]
    outcomes = replay_outcomes(Recorder(broken), jobs, utility_of(additive), render, {"t1"})
    failed = outcomes[outcomes["finish"] == "error"]
    assert failed["error"].tolist() == ["RuntimeError: out of memory"]
    assert failed[["raw", "utility", "task_utility", "score"]].isna().all(axis=None)
    effects = effects_of(outcomes, jobs)
    assert effects["rce"].isna().tolist() == [True, False, False]
    assert effects["necessity"].tolist() == [0.25, 0.5, 0.0]
    labels = label_composition(effects).iloc[0]
    assert (labels["packets"], labels["labelled"], labels["positive_share"]) == (3, 2, 0.5)


def test_missing_evidence_part_leaves_the_rest() -> None:
    def score(task_id: str, raw: str) -> Points:
        count = len(json.loads(raw)[1])
        return Points(count / 2, count / 2, None)

    effects = replay_effects(Recorder(), task(), packets_of("t1", 2), score, render=render)
    assert effects["rce"].tolist() == effects["task_rce"].tolist() == [0.5, 0.5]
    assert effects["evidence_rce"].isna().all()


def test_outcomes_keep_raw_score_and_context_names() -> None:
    jobs = [(task(), packets_of("t1", 1))]
    outcomes = replay_outcomes(Recorder(), jobs, utility_of(additive), render, {"t1"})
    assert outcomes["contexts"].tolist() == [("full", "alone:t1|m00|s00"), ("empty", "without:t1|m00|s00")]
    assert outcomes["n_sent"].tolist() == [1, 0]
    assert outcomes["raw"].tolist() == ['["t1", ["t1|m00|s00"]]', '["t1", []]']
    assert [score.task_utility for score in outcomes["score"]] == [0.5, 0.0]
    assert outcomes["prompt_key"].nunique() == 2
    assert outcomes["prompt_tokens"].tolist() == [2, 2]
    assert outcomes["error"].tolist() == [None, None]


def test_reply_with_a_lone_surrogate_does_not_lose_the_table() -> None:
    def score(task_id: str, raw: str) -> Points:
        return Points(0.0, 0.0, 0.0)

    jobs = [(task(), packets_of("t1", 1))]
    receiver = Recorder(lambda prompt: echo(prompt) + "\ud83d")
    outcomes = replay_outcomes(receiver, jobs, score, render, {"t1"})
    assert outcomes["raw"].iloc[1].endswith("\ud83d")
    assert flip_rate(aa_control(receiver, jobs, score, render, {"t1"}, first=outcomes)).text == 0.0


def test_labels_count_tiny_effects_as_zero_and_split_by_type() -> None:
    effects = pd.DataFrame({"type": ["claim", "claim", "evidence", "evidence"], "rce": [1e-9, -9.9e-10, -0.2, None]})
    all_rows = label_composition(effects).iloc[0]
    assert [all_rows[name] for name in ("positive", "zero", "negative", "packets")] == [1, 1, 1, 4]
    split = label_composition(effects, ["type"]).set_index("type")
    assert split.loc["claim", "zero_share"] == 0.5
    assert split.loc["evidence", ["labelled", "negative_share"]].tolist() == [1, 1.0]
    empty = label_composition(effects.iloc[:0]).iloc[0]
    assert empty["packets"] == 0
    assert np.isnan(empty["positive_share"])
