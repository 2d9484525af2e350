"""Tests of lib/moc/gdesigner.py."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.moc.dag import Dag, chain_dag
from lib.moc.gdesigner import CODE, PAPER, GDesigner, GDesignerError, GDesignerSettings
from lib.moc.graph_encoder import divergence, encode, normalised, with_task
from lib.moc.role_graph import ROLE_PAIRS, role_graph

WIDTH, AGENTS = 24, 5
RNG = np.random.default_rng(1)
ROLES = RNG.standard_normal((AGENTS, WIDTH)) / WIDTH**0.5
QUERIES = RNG.standard_normal((12, WIDTH)) / WIDTH**0.5
NAMES = ["math solver", "mathematical analyst", "programming expert", "inspector"]
ROLE_GRAPH = role_graph([*NAMES, NAMES[0]], ROLE_PAIRS["math"])
SETTINGS = {"code": CODE, "paper": PAPER}
Rate = Callable[[int, Dag], float | None]


def designer(variant: str = "code", seed: int = 0, **settings: object) -> GDesigner:
    graph = ROLE_GRAPH if variant == "code" else chain_dag(AGENTS).adjacency
    return GDesigner(ROLES, graph, settings=msgspec.structs.replace(SETTINGS[variant], **settings), seed=seed)


def rated(rate: Rate) -> Callable[[Sequence[tuple[int, Dag]]], list[float | None]]:
    return lambda asked: [rate(index, dag) for index, dag in asked]


@pytest.mark.parametrize("variant", ["code", "paper"])
def test_every_sample_is_a_graph_that_its_seed_names(variant: str) -> None:
    made = designer(variant)
    asked = [(query, seed) for seed, query in enumerate([*QUERIES] * 10)]
    drawn = [made.sample(query, seed) for query, seed in asked]
    assert all(nx.is_directed_acyclic_graph(dag.graph()) and dag.n == AGENTS for dag in drawn)
    again = designer(variant)
    assert drawn == [again.sample(query, seed) for query, seed in asked]
    assert len({dag.edges for dag in drawn}) > 20
    assert {dag.kind for dag in drawn} == {f"gdesigner-{variant}"} and drawn[3].seed == 3


@given(st.integers(0, 100), st.integers(0, 11))
def test_probabilities_of_the_code_variant_span_their_interval(seed: int, question: int) -> None:
    probabilities = designer(seed=seed).probabilities(QUERIES[question])
    assert probabilities.min() == pytest.approx(1 / (1 + math.e)) and probabilities.max() == pytest.approx(
        1 / (1 + math.exp(-1))
    )
    assert probabilities == pytest.approx(probabilities.T)


def test_the_paper_variant_knows_directions_and_depends_on_the_question() -> None:
    made = designer("paper")
    one, other = made.probabilities(QUERIES[0]), made.probabilities(QUERIES[1])
    assert not np.allclose(one, one.T) and not np.allclose(one, other)


def test_the_paper_variant_keeps_its_anchor_unless_stronger_edges_forbid_it() -> None:
    for dag in (designer("paper").sample(query, 0) for query in QUERIES):
        for edge in set(chain_dag(AGENTS).edges) - set(dag.edges):
            assert nx.has_path(dag.graph(), edge[1], edge[0])


@pytest.mark.parametrize(("variant", "rate"), [("code", 0.01), ("paper", 0.03)])
def test_answers_that_want_few_edges_make_graphs_thin(variant: str, rate: float) -> None:
    """Seven agents; u = 1 where a graph has at most the usual number of edges, or at least that. Means of three seeds."""
    roles = ROLES[[0, 1, 2, 3, 0, 1, 2]]
    graph = role_graph([*NAMES, *NAMES[:3]], ROLE_PAIRS["math"]) if variant == "code" else chain_dag(7).adjacency
    usual, settings = 13, msgspec.structs.replace(SETTINGS[variant], iterations=20, learning_rate=rate)

    def size(want: Rate | None, seed: int) -> float:
        made = GDesigner(roles, graph, settings=settings, seed=seed)
        if want:
            made.fit(QUERIES, rated(want))
        return float(np.mean([len(made.sample(QUERIES[draw % 12], draw).edges) for draw in range(36)]))

    wanted: list[Rate | None] = [
        lambda _, dag: float(len(dag.edges) <= usual),
        None,
        lambda _, dag: float(len(dag.edges) >= usual),
    ]
    thin, before, dense = (np.mean([size(want, seed) for seed in range(3)]) for want in wanted)
    assert thin < before - 1 and thin < dense - 1


def test_the_projection_stays_as_drawn_and_the_rest_moves() -> None:
    made = designer()
    before = made.weights()
    after = made.fit(QUERIES, rated(lambda index, dag: 1.0)).weights()
    for name in before:
        assert np.array_equal(before[name], after[name]) == name.startswith("mlp."), name
    paper = designer("paper")
    before = paper.weights()
    after = paper.fit(QUERIES, rated(lambda index, dag: 1.0)).weights()
    assert not any(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("variant", ["code", "paper"])
def test_training_asks_batches_of_known_questions_and_repeats(variant: str) -> None:
    batches: list[list[tuple[int, Dag]]] = []

    def utility(asked: Sequence[tuple[int, Dag]]) -> list[float]:
        batches.append(list(asked))
        return [float(index % 2) for index, _ in asked]

    made = designer(variant).fit(QUERIES, utility)
    assert [len(batch) for batch in batches] == [4] * 10
    counts = np.bincount([index for batch in batches for index, _ in batch], minlength=12)
    assert set(counts) == {3, 4}, "questions take turns"
    first, fingerprint = list(batches), made.fingerprint()
    batches.clear()
    assert made.fit(QUERIES, utility).fingerprint() == fingerprint and batches == first, "from the start again"
    assert [row.iteration for row in made.history] == list(range(1, 11))
    assert made.history[0].utility == np.mean([index % 2 for index, _ in batches[0]])
    assert made.history[0].edges == np.mean([len(dag.edges) for _, dag in batches[0]])
    assert designer(variant, seed=1).fit(QUERIES, utility).fingerprint() != fingerprint


def test_one_question_fills_a_batch_with_different_graphs() -> None:
    seen: set[Dag] = set()
    designer(iterations=1).fit(QUERIES[:1], rated(lambda index, dag: seen.add(dag) or 1.0 - index))
    assert len(seen) == 4


def test_failed_answers_are_counted_and_not_learned_from() -> None:
    asked: list[int] = []

    def half(index: int, dag: Dag) -> float | None:
        asked.append(index)
        return None if index < 6 else float(len(dag.edges) < 6)

    whole = designer().fit(QUERIES, rated(lambda index, dag: float(len(dag.edges) < 6)))
    hurt = designer().fit(QUERIES, rated(half))
    assert sum(row.failed for row in hurt.history) == sum(index < 6 for index in asked) > 0
    assert not any(row.failed for row in whole.history) and hurt.fingerprint() != whole.fingerprint()
    with pytest.warns(UserWarning, match="earned anything"):
        dead = designer().fit(QUERIES, rated(lambda index, dag: None))
    assert all(np.array_equal(dead.weights()[name], own) for name, own in designer().weights().items())
    assert {(row.utility, row.failed) for row in dead.history} == {(None, 4)}


def test_without_rewards_the_code_variant_learns_nothing_and_says_so() -> None:
    with pytest.warns(UserWarning, match="earned anything"):
        made = designer().fit(QUERIES, rated(lambda index, dag: 0.0))
    assert all(np.array_equal(made.weights()[name], own) for name, own in designer().weights().items())


def test_without_rewards_the_paper_variant_moves_towards_its_anchor() -> None:
    """The slope of the refinement; without both penalties nothing moves."""
    anchor = chain_dag(AGENTS).adjacency.astype(bool)
    others = ~anchor & ~np.eye(AGENTS, dtype=bool)

    def lead(refinement: float) -> float:
        made = designer("paper", divergence=0.0, refinement=refinement, iterations=100, batch=1)
        with pytest.warns(UserWarning, match="earned anything"):
            made.fit(QUERIES, rated(lambda index, dag: 0.0))
        means = [made.probabilities(query) for query in QUERIES]
        return float(np.mean([matrix[anchor].mean() - matrix[others].mean() for matrix in means]))

    assert abs(lead(0.0)) < 0.01 and lead(1.0) > 0.1


def test_without_rewards_latent_positions_shrink_towards_the_standard_normal() -> None:
    mixing = normalised(with_task(chain_dag(AGENTS).adjacency))

    def distance(made: GDesigner) -> float:
        weights = {name: torch.from_numpy(own) for name, own in made.weights().items()}
        return divergence(*encode(weights, torch.from_numpy(ROLES), torch.from_numpy(QUERIES[0]), mixing)).item()

    made = designer("paper", refinement=0.0)
    before = distance(made)
    with pytest.warns(UserWarning, match="earned anything"):
        made.fit(QUERIES, rated(lambda index, dag: 0.0))
    assert distance(made) < before / 2


def test_outside_training_there_is_no_dropout() -> None:
    made = designer(dropout=0.9)
    rate = rated(lambda index, dag: float(len(dag.edges) < 6))
    trained = [designer(dropout=share).fit(QUERIES, rate).weights()["gcn.1.weight"] for share in (0.0, 0.9)]
    assert not np.allclose(*trained), "in training there is"
    assert np.array_equal(made.probabilities(QUERIES[0]), designer(dropout=0.0).probabilities(QUERIES[0]))


@pytest.mark.parametrize("variant", ["code", "paper"])
def test_saved_and_read_back(variant: str, tmp_path: Path) -> None:
    made = designer(variant, iterations=3).fit(QUERIES, rated(lambda index, dag: float(index < 6)))
    path = made.save(tmp_path / "deep" / "designer.json")
    read = GDesigner.load(path)
    assert read.fingerprint() == made.fingerprint() and read.history == made.history
    assert [read.sample(query, 5) for query in QUERIES] == [made.sample(query, 5) for query in QUERIES]
    assert read.save(tmp_path / "again.json").read_bytes() == path.read_bytes()
    assert designer(variant).fingerprint() != made.fingerprint()
    assert json.loads(path.read_text())["settings"]["variant"] == variant


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    path = designer().save(tmp_path / "designer.json")
    good = json.loads(path.read_text())
    with pytest.raises(GDesignerError, match=r"none.json: no such file; fit and save"):
        GDesigner.load(tmp_path / "none.json")
    for change, words in (
        ({"format": 9}, "format 9, this library reads 1"),
        ({"settings": {**good["settings"], "variant": "paper"}}, "field 'weights' does not fit"),
        ({"settings": {**good["settings"], "batch": 0}}, "batch: must be at least 1"),
        ({"roles": {"shape": [5, 25], "values": good["roles"]["values"]}}, "field 'roles' holds another number"),
        ({"roles": {"shape": [5, 24], "values": "AAAA"}}, "field 'roles' holds another number"),
        ({"connections": [[0]]}, r"connections: need \(5, 5\)"),
        ({"seed": "x"}, "seed"),
    ):
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(GDesignerError, match=words):
            GDesigner.load(path)
    path.write_text("{")
    with pytest.raises(GDesignerError, match="not a saved designer"):
        GDesigner.load(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("variant", "vgae"), ("iterations", 0), ("batch", 0), ("rank", 0), ("learning_rate", 0.0)),
        *(("temperature", -1.0), ("dropout", 1.0), ("zeta", -0.1), ("refinement", math.nan), ("divergence", math.inf)),
    ],
)
def test_settings_out_of_range(field: str, value: object) -> None:
    with pytest.raises(GDesignerError, match=f"^{field}: must"):
        GDesignerSettings(**{field: value})


def test_inputs_that_do_not_fit() -> None:
    made = designer()
    for call, words in (
        (lambda: GDesigner(np.zeros((0, 3)), np.zeros((0, 0))), "roles: need finite numbers"),
        (lambda: GDesigner(np.full((1, 3), np.nan), np.zeros((1, 1))), "roles: need finite numbers"),
        (lambda: GDesigner(ROLES, np.zeros((4, 4))), r"connections: need \(5, 5\)"),
        (lambda: GDesigner(ROLES, np.full((5, 5), 0.5)), "connections: need"),
        (lambda: made.sample(QUERIES[0][:3], 0), "query: need 24 finite numbers"),
        (lambda: made.probabilities(QUERIES[0] * np.inf), "query: need 24 finite numbers"),
        (lambda: made.fit(QUERIES[:0], rated(lambda index, dag: 1.0)), "queries: need"),
        (lambda: made.fit(QUERIES, lambda asked: [1.0]), "utility: gave 1 values for 4 graphs"),
        (lambda: made.fit(QUERIES, rated(lambda index, dag: 2.0)), r"utility: must lie in \[0, 1\], not 2.0"),
        (lambda: made.fit(QUERIES, rated(lambda index, dag: math.nan)), "utility: must lie"),
    ):
        with pytest.raises(GDesignerError, match=words):
            call()


def test_agents_that_look_alike_have_even_chances() -> None:
    """One role for all, or a complete role graph, which averages all roles. Scaling must not blow up float noise."""
    complete = np.ones((3, 3)) - np.eye(3)
    for roles, graph in ((ROLES[[0, 0, 0]], np.zeros((3, 3))), (ROLES[:3], complete)):
        made = GDesigner(roles, graph)
        assert np.array_equal(made.probabilities(QUERIES[0]), np.full((3, 3), 0.5))
        made.fit(QUERIES, rated(lambda index, dag: 1.0))


def test_one_agent_alone() -> None:
    for variant in ("code", "paper"):
        made = GDesigner(ROLES[:1], np.zeros((1, 1)), settings=SETTINGS[variant])
        assert made.sample(QUERIES[0], 0).edges == ()
        made.fit(QUERIES, rated(lambda index, dag: 1.0))
