"""Tests of lib/moc/graph_encoder.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lib.moc.dag import chain_dag
from lib.moc.graph_encoder import (
    code_logits,
    code_weights,
    divergence,
    dropout_factors,
    encode,
    lowered,
    normalised,
    paper_weights,
    refine,
    scaled,
    sketch,
    sketch_logits,
    with_task,
)

WIDTH = 12
CODE, PAPER = code_weights(WIDTH, 0), paper_weights(WIDTH, 0)
VALUES = st.floats(-1, 1)


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def graph(n: int, seed: int = 0) -> np.ndarray:
    made = np.random.default_rng(seed).integers(0, 2, (n, n))
    np.fill_diagonal(made, 0)
    return made


def test_the_sizes_of_the_code_variant() -> None:
    sizes = {name: tensor.numel() for name, tensor in code_weights(384, 0).items()}
    assert sum(size for name, size in sizes.items() if name.startswith("gcn.")) == 18_832
    assert sum(size for name, size in sizes.items() if name.startswith("mlp.")) == 6_432
    assert len(sizes) == 8


def test_a_seed_names_the_weights() -> None:
    assert all(torch.equal(tensor, code_weights(WIDTH, 0)[name]) for name, tensor in CODE.items())
    assert not torch.equal(CODE["gcn.1.weight"], code_weights(WIDTH, 1)["gcn.1.weight"])
    assert not CODE["gcn.1.bias"].any() and CODE["mlp.1.bias"].abs().max() <= WIDTH**-0.5


def test_the_normalisation_by_hand() -> None:
    """0 feeds 1 and 2, 1 feeds 2. Edges in, with self-loops: 1, 2, 3."""
    made = normalised(np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]]))
    expected = [[1, 0, 0], [2**-0.5, 1 / 2, 0], [3**-0.5, 6**-0.5, 1 / 3]]
    assert torch.allclose(made, torch.tensor(expected, dtype=torch.float64))
    assert torch.equal(normalised(np.array([[1, 1], [0, 1]])), normalised(np.array([[0, 1], [0, 0]]))), (
        "a self-loop stands once"
    )


@given(st.permutations(range(6)), st.integers(0, 50))
def test_the_order_of_agents_does_not_matter(order: list[int], seed: int) -> None:
    roles, query, adjacency = vectors(6, WIDTH, seed=seed), vectors(WIDTH, seed=seed + 1), graph(6, seed)
    one = code_logits(CODE, roles, query, normalised(adjacency))
    other = code_logits(CODE, roles[order], query, normalised(adjacency[np.ix_(order, order)]))
    assert torch.allclose(other, one[order][:, order]) and torch.allclose(one, one.T)
    latents = [
        sketch_logits(PAPER, encode(PAPER, own, query, normalised(with_task(mixing)))[0])
        for own, mixing in ((roles, adjacency), (roles[order], adjacency[np.ix_(order, order)]))
    ]
    assert torch.allclose(latents[1], latents[0][order][:, order])
    assert not torch.allclose(latents[0], latents[0].T), "the sketch knows directions"


def test_the_question_matters() -> None:
    roles, mixing = vectors(4, WIDTH), normalised(graph(4))
    one, other = (code_logits(CODE, roles, vectors(WIDTH, seed=seed), mixing) for seed in (1, 2))
    assert not torch.allclose(one, other)


def test_the_forward_pass_against_numpy() -> None:
    roles, query, mixing = vectors(4, WIDTH), vectors(WIDTH, seed=1), normalised(graph(4))
    w, mix = {name: tensor.numpy() for name, tensor in CODE.items()}, mixing.numpy()
    features = np.hstack([roles.numpy(), np.tile(query.numpy(), (4, 1))])
    hidden = np.maximum(mix @ (features @ w["gcn.1.weight"]) + w["gcn.1.bias"], 0)
    out = mix @ (hidden @ w["gcn.2.weight"]) + w["gcn.2.bias"]
    encoded = out - np.log(np.exp(out).sum(axis=1, keepdims=True))
    z = np.maximum(encoded @ w["mlp.1.weight"] + w["mlp.1.bias"], 0) @ w["mlp.2.weight"] + w["mlp.2.bias"]
    assert code_logits(CODE, roles, query, mixing).numpy() == pytest.approx(z @ z.T)


def test_dropout_keeps_the_mean() -> None:
    factors = dropout_factors(np.random.default_rng(0), 500, 0.75)
    assert factors.shape == (500, 16) and set(factors.unique().tolist()) == {0.0, 4.0}
    assert factors.mean().item() == pytest.approx(1, abs=0.1)


def test_dropout_factors_apply_to_the_hidden_layer() -> None:
    roles, query, mixing = vectors(4, WIDTH), vectors(WIDTH, seed=1), normalised(graph(4))
    plain = code_logits(CODE, roles, query, mixing)
    assert torch.equal(code_logits(CODE, roles, query, mixing, torch.ones(4, 16)), plain)
    silent = code_logits(CODE, roles, query, mixing, torch.zeros(4, 16))
    assert torch.allclose(silent, silent[0, 0]) and not torch.allclose(silent, plain), "only biases are left"


@given(hnp.arrays(float, (4, 4), elements=VALUES))
def test_scaled_entries_span_the_interval(matrix: np.ndarray) -> None:
    made = scaled(torch.from_numpy(matrix))
    if np.ptp(matrix) > 1e-9:
        assert (made.min().item(), made.max().item()) == pytest.approx((-1, 1))
    assert not scaled(torch.full((3, 3), 0.3)).any(), "equal entries say nothing"
    assert not scaled(1e3 + 1e-12 * torch.from_numpy(matrix)).any(), "and float noise is no difference"


def test_the_task_is_linked_both_ways() -> None:
    grown = with_task(chain_dag(3).adjacency)
    assert grown.tolist() == [[0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 0]]


def test_the_sketch_is_nearly_binary_with_the_chance_of_its_logit() -> None:
    rng, logits = np.random.default_rng(0), np.array([[0.0, 1.0], [-1.0, 0.0]])
    made = np.array([sketch(logits, rng.random((2, 2)), 0.01) for _ in range(4000)])
    assert made[:, 0, 1].mean() == pytest.approx(1 / (1 + np.exp(-1)), abs=0.03)
    assert made[:, 1, 0].mean() == pytest.approx(1 / (1 + np.exp(1)), abs=0.03)
    assert not made[:, [0, 1], [0, 1]].any() and ((made < 0.05) | (made > 0.95)).mean() > 0.95
    assert np.isfinite(sketch(logits, np.zeros((2, 2)), 0.01)).all()


def test_singular_values_are_lowered() -> None:
    assert lowered(np.diag([3.0, 1.0]), 0.5) == pytest.approx(np.diag([2.5, 0.5]))
    assert lowered(np.diag([3.0, 0.2]), 0.5) == pytest.approx(np.diag([2.5, 0]))
    assert refine(np.diag([3.0, 1.0]), np.diag([3.0, 1.0]), zeta=1.0) == pytest.approx(np.diag([2.5, 0.5]))


@given(
    hnp.arrays(float, (4, 4), elements=st.floats(0, 1)),
    hnp.arrays(float, (4, 4), elements=st.sampled_from([0.0, 1.0])),
    st.floats(0, 2),
    st.integers(1, 4),
    st.integers(0, 1000),
)
def test_the_refinement_is_the_minimum(
    sketched: np.ndarray, anchor: np.ndarray, zeta: float, rank: int, seed: int
) -> None:
    basis = np.linalg.svd(sketched)[0][:, :rank]

    def objective(small: np.ndarray) -> float:
        made = basis @ small @ basis.T
        squares = ((sketched - made) ** 2).sum() + ((anchor - made) ** 2).sum()
        return float(squares / 2 + zeta * np.linalg.norm(small, "nuc"))

    refined = refine(sketched, anchor, rank=rank, zeta=zeta)
    best = basis.T @ refined @ basis
    assert basis @ best @ basis.T == pytest.approx(refined, abs=1e-9), "it lies in the space of Z"
    rng = np.random.default_rng(seed)
    for size in (1e-3, 0.1, 1.0):
        assert objective(best) <= objective(best + size * rng.standard_normal((rank, rank))) + 1e-9


def test_sketch_and_anchor_agree_or_not() -> None:
    """An entry near 1 is in both, one near 1/2 in one of them: the reason why 1/2 is no threshold."""
    rng, anchor = np.random.default_rng(0), np.eye(7, k=1)
    seen: dict[tuple[bool, bool], list[float]] = {}
    for _ in range(50):
        drawn = rng.random((7, 7)) < 0.5
        np.fill_diagonal(drawn, False)
        refined = refine(drawn.astype(float), anchor)
        for place in np.argwhere(~np.eye(7, dtype=bool)):
            key = bool(drawn[tuple(place)]), bool(anchor[tuple(place)])
            seen.setdefault(key, []).append(refined[tuple(place)])
    assert min(seen[True, True]) > 0.9 and max(seen[False, False]) < 0.1
    for key in ((True, False), (False, True)):
        assert 0.4 < min(seen[key]) < 0.5 < max(seen[key]) < 0.6


def test_the_divergence_of_a_standard_normal_is_zero() -> None:
    zeros = torch.zeros((3, 16), dtype=torch.float64)
    assert divergence(zeros, zeros).item() == 0
    assert divergence(zeros + 1, zeros).item() == pytest.approx(8)
    assert divergence(zeros, zeros + 1).item() == pytest.approx(8 * (np.e - 2))
