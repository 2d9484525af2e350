"""Telling harm from a score: the area by counting pairs, intervals over tasks, null where nothing can be told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.evaluation.sign_prediction import area_under_curve, sign_prediction


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=15))
def test_the_area_is_the_share_of_pairs_in_order(items: list[tuple[int, bool]]) -> None:
    scores, positive = np.array([one for one, _ in items], float), np.array([one for _, one in items])
    pairs = [(a > b) + 0.5 * (a == b) for a, bad in items if bad for b, other in items if not other]
    found = area_under_curve(scores, positive)
    assert np.isnan(found) if not pairs else found == pytest.approx(np.mean(pairs))
    assert np.isnan(found) or area_under_curve(-scores, positive) == pytest.approx(1 - found)


def packets(tasks: int = 20, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    n = 5 * tasks
    effect = rng.choice([-0.5, 0.0, 0.5], n)
    frame = pd.DataFrame({"task_id": [f"t{place // 5}" for place in range(n)], "rce": effect})
    return frame.assign(knows=-effect + rng.normal(0, 0.3, n), blind=rng.normal(size=n), flat=1.0)


def test_a_score_that_knows_is_told_from_one_that_does_not() -> None:
    table = sign_prediction(packets(), ["knows", "blind", "flat"], resamples=200).set_index("score")
    assert (
        table.loc["knows", "auc"] > 0.9 and table.loc["knows", "separates"] and table.loc["knows", "correlation"] > 0.7
    )
    assert not table.loc["blind", "separates"] and table.loc["blind", "auc_low"] < 0.5 < table.loc["blind", "auc_high"]
    flat = table.loc["flat"]
    assert flat["auc"] == 0.5 and not flat["separates"] and np.isnan(flat["correlation"])
    assert table["items"].eq(100).all() and table["tasks"].eq(20).all() and table["undefined"].eq(0).all()


def test_missing_is_left_out_and_counted() -> None:
    frame = packets()
    frame.loc[:4, "knows"] = None
    frame.loc[5, "rce"] = None
    table = sign_prediction(frame, ["knows", "blind"], resamples=50).set_index("score")
    assert table["lost"].to_dict() == {"knows": 6, "blind": 1}


def test_nothing_harmful_has_no_area_and_one_task_no_interval() -> None:
    safe = sign_prediction(packets().assign(rce=0.1), ["knows"], resamples=50).iloc[0]
    assert safe["negative"] == 0 and np.isnan(safe["auc"]) and pd.isna(safe["separates"]) and safe["undefined"] == 1.0
    one = sign_prediction(packets().assign(task_id="t"), ["knows"], resamples=50).iloc[0]
    assert one["auc"] > 0.9 and np.isnan(one["auc_low"]) and pd.isna(one["separates"])
    rare = packets()
    rare["rce"] = 0.1
    rare.loc[0, "rce"] = -0.1
    assert 0.2 < sign_prediction(rare, ["knows"], resamples=300).iloc[0]["undefined"] < 0.6, (
        "most of 20 tasks have none"
    )


def test_effects_below_the_resolution_are_no_harm() -> None:
    frame = packets()
    frame["rce"] = np.where(frame["rce"] < 0, -1e-12, frame["rce"])
    assert sign_prediction(frame, ["knows"], resamples=20).iloc[0]["negative"] == 0
    with pytest.raises(ValueError, match="lacks the columns"):
        sign_prediction(frame, ["nothing"])
