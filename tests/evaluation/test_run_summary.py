"""Runs in one table: conditions, differences, cells over seeds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.evaluation import run_summary as summary


@pytest.fixture
def runs() -> pd.DataFrame:
    cells = [(cap, model, seed) for cap in (0.5, 0.25) for model in ("a", "b") for seed in (0, 1, 2)]
    frame = pd.DataFrame(cells, columns=["p.cap", "p.model", "p.worlds.seed"])
    frame["h.gain"] = frame["p.cap"] + (frame["p.model"] == "b") + 0.1 * frame["p.worlds.seed"]
    return frame.assign(**{"p.same": 1, "h.none": None, "notebook": "12_x", "status": ["ok"] * 11 + ["failed"]})


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        ([], 12),
        (["status = ok"], 11),
        (["status != ok"], 1),
        (["p.cap = 0.50"], 6),
        (["p.cap < 0.5", "p.model = 'a'"], 3),
        (["p.cap<=0.5", "p.worlds.seed >= 1"], 8),
        (["notebook ~ 2_"], 12),
        (["h.none = 1"], 0),
        (["h.none != 1"], 12),
        (["h.none > 0"], 0),
    ],
)
def test_conditions_all_hold(runs: pd.DataFrame, conditions: list[str], count: int) -> None:
    assert len(summary.pick_runs(runs, conditions)) == count


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("p.cup = 1", "did you mean 'p.cap'"),
        ("zzzz = 1", "there are: p.cap"),
        ("p.cap", "write it as `column = value`"),
        ("p.model < b", "compares numbers, and 'b' is none"),
    ],
)
def test_a_wrong_condition_says_how_to_mend_it(runs: pd.DataFrame, condition: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        summary.pick_runs(runs, [condition])


def test_only_what_differs_is_listed(runs: pd.DataFrame) -> None:
    assert summary.varied(runs) == ["p.cap", "p.model", "p.worlds.seed"]
    table = summary.differences(runs)
    assert table.to_numpy().tolist()[0] == ["cap", 2, "0.25 (6), 0.5 (6)"]
    runs.loc[0, "p.same"] = None
    assert "p.same" in summary.varied(runs), "a missing value is a difference"
    assert summary.differences(runs.head(0)).empty


def test_the_last_run_of_the_same_parameters_counts(runs: pd.DataFrame) -> None:
    again = pd.concat([runs, runs.head(2).assign(**{"h.gain": 9.0})], ignore_index=True)
    kept = summary.distinct_runs(again)
    assert len(kept) == 12 and (kept["h.gain"] == 9.0).sum() == 2


def test_a_cell_has_the_mean_and_student_interval_of_its_runs(runs: pd.DataFrame) -> None:
    table = summary.over_runs(runs, ["p.cap", "p.model"], "h.gain")
    assert table[["p.cap", "p.model"]].to_numpy().tolist() == [["0.25", "a"], ["0.25", "b"], ["0.5", "a"], ["0.5", "b"]]
    first = table.iloc[0]
    assert first["mean"] == pytest.approx(0.35) and (first["runs"], first["counted"]) == (3, 3)
    # t(0.975, 2) = 4.3027, standard error 0.1/sqrt(3)
    assert first["high"] - first["mean"] == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-6)
    assert first["mean"] - first["low"] == pytest.approx(first["high"] - first["mean"])


def test_a_missing_number_is_never_zero(runs: pd.DataFrame) -> None:
    runs.loc[runs["p.model"] == "a", "h.gain"] = None
    runs.loc[3, "h.gain"] = None
    table = summary.over_runs(runs, ["p.cap", "p.model"], "h.gain").set_index(["p.cap", "p.model"])
    assert table.loc[("0.5", "a"), "counted"] == 0 and math.isnan(table.loc[("0.5", "a"), "mean"])
    assert table.loc[("0.5", "b"), ["runs", "counted"]].tolist() == [3, 2]
    one = summary.over_runs(runs.iloc[[4]], ["p.cap"], "h.gain").iloc[0]
    assert one["counted"] == 1 and math.isnan(one["low"]) and not math.isnan(one["mean"])
    assert summary.over_runs(runs, [], "h.gain").iloc[0]["runs"] == 12


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8))
def test_the_interval_holds_the_mean(values: list[float]) -> None:
    row = summary.over_runs(pd.DataFrame({"p.a": 1, "h.b": values}), ["p.a"], "h.b").iloc[0]
    assert row["low"] <= row["mean"] <= row["high"]
    assert row["mean"] == pytest.approx(np.mean(values))


def test_a_view_takes_what_was_asked_for_and_names_what_is_mixed(runs: pd.DataFrame) -> None:
    view = summary.view_of(runs, ["worlds"])
    assert (view.value, view.x, view.colour) == ("h.gain", "p.cap", "p.model")
    assert (view.seeds, view.left, view.by) == (("p.worlds.seed",), (), ["p.cap", "p.model"])
    other = summary.view_of(runs, [], x="p.model", first=["worlds"])
    assert (other.x, other.colour, other.left) == ("p.model", "p.worlds.seed", ("p.cap",))
    assert summary.view_of(runs, ["cap", "model", "worlds"]).x == ""
    assert summary.view_of(runs.head(0), []) == summary.View(), "nothing to compare is no error"
    with pytest.raises(ValueError, match="x: no run has the column 'p.modal'; did you mean 'p.model'"):
        summary.view_of(runs, [], x="p.modal")


def test_the_busiest_notebook_is_the_first_by_name_among_equals() -> None:
    assert summary.busiest_notebook(pd.DataFrame({"notebook": ["b", "a", "b", "a", "c"]})) == "a"
    assert summary.busiest_notebook(pd.DataFrame()) == ""
