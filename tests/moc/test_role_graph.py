"""Tests of lib/moc/role_graph.py."""

from __future__ import annotations

import numpy as np
import pytest

from lib.moc.role_graph import ROLE_PAIRS, role_graph
from lib.moc.roles import ROLES, roles_of


@pytest.mark.parametrize("domain", list(ROLES))
def test_every_role_of_a_team_is_connected(domain: str) -> None:
    names = [role.name for role in roles_of(domain, 12)]
    graph = role_graph(names, ROLE_PAIRS[domain])
    assert graph.shape == (12, 12) and graph.dtype == np.int8 and not graph.diagonal().any()
    assert (graph.any(axis=0) | graph.any(axis=1)).all()
    period = len(ROLES[domain])
    again = {(i, j): (i + period, j + period) for i in range(12 - period) for j in range(12 - period)}
    assert all(graph[one] == graph[other] for one, other in again.items()), "roles count, not agents"
    named = {role for pair in ROLE_PAIRS[domain] for role in pair}
    assert named == {role.name.casefold() for role in ROLES[domain]}, "no pair of a role that does not exist"
    assert len(set(ROLE_PAIRS[domain])) == len(ROLE_PAIRS[domain])


def test_everybody_concerns_the_critic_and_the_other_way_round() -> None:
    names = [role.name for role in roles_of("choice", 9)]
    graph, critic = role_graph(names, ROLE_PAIRS["choice"]), names.index("Critic")
    assert graph[critic].sum() == graph[:, critic].sum() == 8


def test_one_role_twice_is_not_connected_with_itself() -> None:
    graph = role_graph(["b", "A", "B"], [("A", "b")])
    assert graph.tolist() == [[0, 0, 0], [1, 0, 1], [0, 0, 0]]


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no pair names 'Poet'; known are inspector, math solver"):
        role_graph(["Poet"], ROLE_PAIRS["math"])
