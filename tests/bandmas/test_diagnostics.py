"""Diagnostics: folds by task, no packet judged by its own task, rank correlation, recall."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.bandmas.diagnostics import (
    cross_fitted,
    rank_correlation,
    recall_at_cap,
    signal_by_level,
    task_folds,
    useful_packet_recall,
)
from lib.bandmas.shrinkage import ShrinkagePredictor


def features(tasks: int, each: int = 3) -> pd.DataFrame:
    rows = [
        {
            "packet_id": f"t{t}|m00|s{i:02d}",
            "task_id": f"t{t}",
            "type": ["claim", "evidence", "request"][i % 3],
            "route": "r",
            "marker": "plain",
            "wire_bytes": 150 + 10 * t + i,
            "turn": 0,
        }
        for t in range(tasks)
        for i in range(each)
    ]
    return pd.DataFrame(rows)


@given(st.integers(2, 40), st.integers(2, 7), st.integers(0, 5))
def test_folds_are_even_whole_tasks_and_independent_of_order(tasks: int, folds: int, seed: int) -> None:
    ids = [f"t{i}" for i in range(tasks)]
    dealt = task_folds(ids, folds, seed)
    sizes = np.bincount(list(dealt.values()))
    assert len(sizes) == min(folds, tasks)
    assert sizes.max() - sizes.min() <= 1
    assert task_folds(ids[::-1] + ids, folds, seed) == dealt


def test_too_few_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two tasks"):
        task_folds(["t1", "t1"])


def test_each_fold_is_predicted_from_the_others_alone() -> None:
    frame = features(10)
    effects = np.linspace(-0.5, 0.5, len(frame))
    result = cross_fitted(frame, effects)
    assert result.groupby("task_id")["fold"].nunique().eq(1).all()
    for fold in range(5):
        held = (result["fold"] == fold).to_numpy()
        expected = ShrinkagePredictor().fit(frame[~held], effects[~held]).predict(frame[held])
        assert result.loc[held, "predicted"].tolist() == expected.tolist()


def test_changing_a_task_leaves_its_own_predictions() -> None:
    frame = features(10)
    effects = np.linspace(-0.5, 0.5, len(frame))
    changed = effects + (frame["task_id"] == "t4").to_numpy() * 0.4
    one, two = cross_fitted(frame, effects), cross_fitted(frame, changed)
    own = one["fold"] == one.loc[one["task_id"] == "t4", "fold"].iloc[0]
    assert one.loc[own, "predicted"].tolist() == two.loc[own, "predicted"].tolist()
    assert one.loc[~own, "predicted"].tolist() != two.loc[~own, "predicted"].tolist()


def test_predictor_to_clone_is_used_and_left_unfitted() -> None:
    predictor = ShrinkagePredictor(alpha=0.0)
    frame = features(6)
    effects = frame["type"].map({"claim": 0.1, "evidence": 0.7, "request": -0.2}).to_numpy(float)
    result = cross_fitted(frame, effects, predictor=predictor, folds=3)
    assert np.ptp(result.groupby("type")["predicted"].mean()) > 0.3
    assert not hasattr(predictor, "cells_")


def test_rank_correlation_uses_average_ranks_and_is_nan_when_constant() -> None:
    frame = pd.DataFrame({"predicted": [1.0, 2.0, 2.0, 4.0], "rce": [0.1, 0.3, 0.2, 0.4]})
    # ranks 1, 2.5, 2.5, 4 against 1, 3, 2, 4: Pearson of the ranks is 4.5 / sqrt(4.5 * 5)
    assert rank_correlation(frame) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert rank_correlation(frame.assign(predicted=-frame["rce"])) == pytest.approx(-1)
    assert np.isnan(rank_correlation(frame.assign(predicted=0.3)))
    assert np.isnan(rank_correlation(frame.assign(rce=0.0)))
    assert np.isnan(rank_correlation(frame.iloc[:1]))


def test_float_noise_is_no_rank() -> None:
    frame = pd.DataFrame({"predicted": [0.1, 0.1 + 1e-14, 0.1 - 1e-14], "rce": [0.3, 0.2, 0.1]})
    assert np.isnan(rank_correlation(frame))


def recall_frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "task_id": ["a"] * 4 + ["b"] * 3 + ["c"] * 2,
            "packet_id": ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "c0", "c1"],
            "rce": [0.5, 0.2, 0.0, -0.1, 0.1, 0.0, 1e-10, 0.0, -0.3],
            "predicted": [0.9, 0.1, 0.5, 0.0, 0.4, 0.4, 0.4, 0.3, 0.2],
        }
    )


def test_recall_by_hand() -> None:
    """Task a: top 2 of 2 positives holds one; task b: the tie of three goes to b0; task c has no positive."""
    assert useful_packet_recall(recall_frame()) == pytest.approx(2 / 3)
    tied = recall_frame().assign(predicted=lambda f: f["predicted"] + (f["packet_id"] == "b1") * 1e-14)
    assert useful_packet_recall(tied) == pytest.approx(2 / 3)
    assert useful_packet_recall(recall_frame().sample(frac=1, random_state=1)) == pytest.approx(2 / 3)


def test_recall_is_one_for_the_oracle_and_nan_without_positives() -> None:
    assert useful_packet_recall(recall_frame(), score="rce") == 1.0
    assert np.isnan(useful_packet_recall(recall_frame().assign(rce=0.0)))


def test_recall_at_cap_by_hand() -> None:
    frame = recall_frame()
    assert recall_at_cap(frame, {"a": {"a0", "a3"}, "b": ["b0"], "c": []}) == pytest.approx(2 / 3)
    assert np.isnan(recall_at_cap(frame.assign(rce=0.0), {}))
    with pytest.raises(ValueError, match="no admission given for task 'b'"):
        recall_at_cap(frame, {"a": []})


def test_each_level_alone_ranks_what_it_knows() -> None:
    """Effects that hang on the type alone: the type ranks as well as the whole, the route knows nothing of it."""
    rows = [
        {"packet_id": f"t{task}-{kind}", "task_id": f"t{task}", "type": kind, "route": "r", "marker": "plain"}
        for task in range(10)
        for kind in ("claim", "evidence", "request")
    ]
    features = pd.DataFrame(rows).assign(wire_bytes=100, turn=0)
    worth = features["type"].map({"claim": 0.0, "evidence": 0.5, "request": -0.5})
    levels = signal_by_level(cross_fitted(features, worth)).set_index("level")
    assert levels.index.tolist() == ["type", "route", "type_route", "type_marker", "leaf"]
    assert levels.loc["type", "correlation"] == pytest.approx(1) == levels.loc["leaf", "correlation"]
    assert not levels.loc["route", "correlation"] > 0
    assert levels.loc["type", "recall"] == 1
