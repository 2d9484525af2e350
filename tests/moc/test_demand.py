from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.moc import chain_dag, dag_of, full_dag
from lib.moc.demand import demand_grid, demand_of


def test_the_worked_graph_of_the_specification() -> None:
    """moc.md, 8.2: at density 0.5 one agent of seven hears 6 messages and may hear 5, at K = 2 and at K = 3."""
    edges = [(0, 5), (1, 0), (1, 2), (1, 3), (1, 6), (2, 6), (3, 4), (4, 2), (4, 5), (6, 0), (6, 5)]
    worked = dag_of(7, edges)
    assert [demand_of(worked, k)["over_budget"] for k in (1, 2, 3)] == [0, 1, 1]
    assert [demand_of(worked, k)["excess"] for k in (1, 2, 3)] == [0, 1, 1]
    assert demand_of(worked, 2)["most_heard"] == 6 and demand_of(worked, 2)["edges"] == 11


def test_a_full_graph_leaves_nothing_beyond_one_hop() -> None:
    full, chain = demand_of(full_dag(6, 1), 3), demand_of(chain_dag(6), 3)
    assert full["beyond"] == 0 and full["heard"] == 2.5 and full["density"] == 1
    assert chain["most_heard"] == 3 and math.isclose(chain["beyond"], 7 / 6)


@settings(max_examples=20)
@given(st.integers(3, 12), st.floats(0.05, 1), st.integers(1, 4))
def test_means_lie_where_they_must(n: int, density: float, k: int) -> None:
    row = demand_grid([n], [density], [k], range(3)).iloc[0]
    assert row["density"] >= density - 1e-9 or row["edges"] == n * (n - 1) / 2
    assert 0 <= row["beyond"] <= row["heard"] <= (n - 1) / 2 + 1e-9
    assert row["over_budget"] <= row["excess"] or row["over_budget"] == 0
    assert (row["merging_teams"] > 0) == (row["over_budget"] > 0)
    if k == 1:
        assert row["excess"] == row["beyond"] == 0


def test_without_a_graph_there_is_nothing_to_count() -> None:
    with pytest.raises(ValueError, match="graph_seeds"):
        demand_grid([4], [0.5], [1], [])
