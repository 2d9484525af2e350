"""Tests of lib/bandmas/published.py."""

from __future__ import annotations

import doctest

import pytest

from lib.bandmas import published as module
from lib.bandmas.published import BENCHMARKS, benchmark_of, difference_note, published
from lib.tasks import WORKLOADS


def test_every_workload_has_a_counterpart() -> None:
    assert set(BENCHMARKS) == set(WORKLOADS)
    with pytest.raises(ValueError, match="workload 'x' has no counterpart"):
        benchmark_of("x")


def test_published_numbers_stand_beside_their_workload() -> None:
    table = published("table1", ["worlds_bridge", "fanoutqa"]).set_index(["workload", "policy"])
    assert len(table) == 12 and list(dict.fromkeys(table.index.get_level_values(0))) == ["worlds_bridge", "fanoutqa"]
    assert table.loc[("worlds_bridge", "causal"), "task_utility_mean"] == 0.290
    assert table.loc[("fanoutqa", "causal"), "bytes_mean"] == 2028.3
    assert published("figure3", ["scifact"])["utility_per_kib"].tolist() == [1.701]


def test_rows_on_all_benchmarks_come_for_each_workload() -> None:
    text = published("text", ["scifact", "worlds_fanout"])
    ranges = text[text["quantity"] == "positive_share"]
    assert ranges["workload"].tolist() == ["scifact", "worlds_fanout"] and (ranges["low"] == 34.8).all()
    own = text[(text["quantity"] == "context_tokens") & (text["policy"] == "full")].set_index("workload")["value"]
    assert own.to_dict() == {"scifact": 53.7, "worlds_fanout": 229.3}


def test_no_workload_is_an_empty_table_and_a_wrong_name_is_refused() -> None:
    assert published("table1", []).empty and "workload" in published("table1", [])
    with pytest.raises(ValueError, match="no such published table; there are figure3, table1, text"):
        published("table9", ["scifact"])


def test_notes_say_what_differs() -> None:
    assert difference_note("scifact", "m", "160 final tasks").startswith(
        "the same data set, SciFact; model m; 160 final tasks"
    )
    assert "derived from the annotation" in difference_note("fanoutqa", "m", "1 task")


def test_example() -> None:
    assert doctest.testmod(module).failed == 0
