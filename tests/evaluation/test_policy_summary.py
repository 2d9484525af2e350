"""Policies: means with clustered intervals, a frontier that nobody beats, paired differences that cancel what is shared."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.evaluation.policy_summary import ahead_of, frontier_marks, policy_table

FEW = {"resamples": 200}


def steps(n: int = 12, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 2, n).astype(float)
    parts = []
    for policy, hit, tokens in (("selector", np.maximum(base, 0.5), 200.0), ("always skip", base, 100.0)):
        frame = pd.DataFrame({"step_id": [f"s{place}" for place in range(n)], "regime": "toy"})
        frame = frame.assign(instance_id=[f"i{place // 2}" for place in range(n)], policy=policy, hit=hit)
        frame = frame.assign(tokens=tokens, decision_tokens=tokens + 50, oracle_only=False)
        frame["utility"] = frame["hit"] - 1e-4 * frame["tokens"]
        parts.append(frame.assign(decision_utility=frame["hit"] - 1e-4 * frame["decision_tokens"]))
    return pd.concat(parts, ignore_index=True)


def test_means_intervals_and_counts() -> None:
    table = policy_table(steps(), **FEW).set_index("policy")
    assert table["steps"].eq(12).all() and table["instances"].eq(6).all()
    own = steps().groupby("policy")["hit"].mean()
    assert table.loc["selector", "hit"] == pytest.approx(own["selector"])
    assert (table["hit_low"] <= table["hit"]).all() and (table["hit"] <= table["hit_high"]).all()
    assert table.loc["always skip", "tokens_low"] == table.loc["always skip", "tokens_high"] == 100.0


def test_a_null_is_never_averaged_away_and_one_instance_has_no_interval() -> None:
    frame = steps()
    frame.loc[0, "decision_tokens"] = None
    table = policy_table(frame, **FEW).set_index("policy")
    assert np.isnan(table.loc["selector", "decision_tokens"]) and not table.loc["selector", "on_frontier"]
    single = policy_table(steps().assign(instance_id="one"), **FEW)
    assert single["hit"].notna().all() and single["hit_low"].isna().all()
    apart = steps()
    apart["regime"] = apart["step_id"]
    assert policy_table(apart.assign(instance_id="one"), **FEW)["instances"].eq(12).all(), (
        "an id counts within its regime"
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), min_size=1, max_size=9))
def test_the_frontier_is_what_nobody_beats(points: list[tuple[int, int, bool]]) -> None:
    table = pd.DataFrame(points, columns=["hit", "tokens", "oracle_only"])
    marks = frontier_marks(table, "hit", "tokens")
    real = table[~table["oracle_only"]]
    for mark, (hit, tokens, oracle) in zip(marks, points, strict=True):
        worse = (real["hit"] >= hit) & (real["tokens"] <= tokens) & ((real["hit"] > hit) | (real["tokens"] < tokens))
        assert mark == (not oracle and not worse.any())


def test_a_frontier_is_drawn_within_each_group() -> None:
    both = pd.concat([steps().assign(place="a"), steps().assign(place="b", decision_tokens=10.0)])
    table = policy_table(both, by=("place", "policy"), **FEW)
    assert table.loc[table["place"] == "b", "on_frontier"].tolist() == [True, False], "for equal tokens the better one"
    assert table.loc[table["place"] == "a", "on_frontier"].tolist() == [True, True]


def test_a_paired_difference_is_as_sure_as_the_pairs() -> None:
    table = ahead_of(steps(), "selector", **FEW).set_index("value")
    assert table["policy"].eq("always skip").all() and table.loc["decision_tokens", "low"] == 100.0
    same = steps()
    same["hit"] = same["hit"].where(
        same["policy"] != "selector", 0.25
    )  # both lose and win at the same steps, one always by 0.25
    same.loc[same["policy"] == "selector", "hit"] += same.loc[same["policy"] == "always skip", "hit"].to_numpy()
    shifted = ahead_of(same, "selector", **FEW).set_index("value").loc["hit"]
    assert shifted[["difference", "low", "high"]].tolist() == pytest.approx([0.25] * 3), "what is shared cancels"
    assert table.loc["hit", "difference"] == pytest.approx(
        steps().pivot(index="step_id", columns="policy", values="hit").diff(axis=1)["selector"].mean()
    )


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the columns"):
        policy_table(steps().drop(columns="oracle_only"))
    with pytest.raises(ValueError, match="must hold policy"):
        policy_table(steps(), by=("regime",))
    with pytest.raises(ValueError, match="no rows of 'best'"):
        ahead_of(steps(), "best")
    with pytest.raises(ValueError, match="other steps"):
        ahead_of(steps().iloc[:-1], "selector")
