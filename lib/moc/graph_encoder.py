"""The two networks behind G-Designer: the released code's, and the variational one that its paper describes.

Context
-------
Both see agents as nodes with text embeddings and give a logit for each ordered pair. *Code*: features [role; question],
two graph convolutions over the role graph (768 -> 16 -> 384), log-softmax over features, a small perceptron, and
L = Z Z^T scaled to [-1, 1]. *Paper*: a task node linked with all agents, a variational graph autoencoder, a perceptron
on (h_i, h_j, h_task) for a sketch S of the graph, and a refinement of S towards an anchor topology A by a low-rank fit.

Intuition
---------
The code's L is symmetric and always spans [-1, 1], so every probability lies between 0.27 and 0.73: its graphs are
never sure. The paper's sketch has a logit of its own for each direction; the refinement keeps it near a topology that
is known to work.

How to read the result
----------------------
`code_logits` is L before scaling: the order of agents does not matter to it. `refine` solves
min_W 1/2 |S - Z W Z^T|^2 + zeta |W|_* + 1/2 |A - Z W Z^T|^2 exactly: for orthonormal Z the two squares are
|W - W0|^2 plus a constant, W0 = Z^T (S + A)/2 Z, so W is W0 with its singular values lowered by zeta/2. An entry of the
refined matrix is near 1 where sketch and anchor agree on an edge, near 1/2 where one of them has it, near 0 elsewhere.

Not covered: training and drawing graphs (`lib.moc.gdesigner`). The paper's equations are known here from secondary
notes; hidden and latent size, rank and the form of the perceptron are choices of this suite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from lib.seeds import generator

HIDDEN = 16  # width of hidden and latent layers in both variants
TINY = 1e-12  # a spread below this share is float noise and counts as none

Weights = dict[str, torch.Tensor]


def code_weights(width: int, seed: int) -> Weights:
    """Return fresh weights of the code variant for embeddings of `width`, float64.

    ``gcn.*`` is trained: 2 width x 16 + 16 and 16 x width + width numbers, uniform within sqrt(6 / (in + out)), biases 0.
    ``mlp.*`` stays as drawn: width x 16 + 16 and 16 x 16 + 16 numbers, uniform within 1 / sqrt(in).
    """
    return {
        **_convolution("gcn.1", 2 * width, HIDDEN, seed),
        **_convolution("gcn.2", HIDDEN, width, seed),
        **_linear("mlp.1", width, HIDDEN, seed),
        **_linear("mlp.2", HIDDEN, HIDDEN, seed),
    }


def paper_weights(width: int, seed: int) -> Weights:
    """Return fresh weights of the paper variant for embeddings of `width`, float64; all are trained."""
    return {
        **_convolution("gcn.1", width, HIDDEN, seed),
        **_convolution("gcn.mean", HIDDEN, HIDDEN, seed),
        **_convolution("gcn.log_variance", HIDDEN, HIDDEN, seed),
        **_linear("sketch.1", 3 * HIDDEN, HIDDEN, seed),
        **_linear("sketch.2", HIDDEN, 1, seed),
    }


def normalised(adjacency: np.ndarray) -> torch.Tensor:
    """Return the symmetrically normalised adjacency with self-loops of a graph convolution (Kipf and Welling).

    Parameters
    ----------
    adjacency : (n, n), row i feeds column j; it need not be symmetric

    Returns
    -------
    (n, n) float64, row j collects from column i: a_ij / sqrt(d_i d_j), d_j being the number of edges into j with its
    self-loop
    """
    looped = torch.tensor(np.maximum(adjacency, np.eye(len(adjacency))), dtype=torch.float64)
    scale = looped.sum(dim=0).rsqrt()
    return scale[:, None] * looped.T * scale[None, :]


def code_logits(
    weights: Mapping[str, torch.Tensor],
    roles: torch.Tensor,
    query: torch.Tensor,
    mixing: torch.Tensor,
    dropout: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return L = Z Z^T of the code variant, before scaling.

    Parameters
    ----------
    weights : of `code_weights`
    roles : (n, width) embeddings of the role descriptions
    query : (width,) embedding of the question
    mixing : (n, n) of `normalised`
    dropout : (n, 16) of `dropout_factors`; None outside training

    Returns
    -------
    (n, n), symmetric
    """
    features = torch.cat([roles, query.expand(len(roles), -1)], dim=1)
    hidden = torch.relu(mixing @ features @ weights["gcn.1.weight"] + weights["gcn.1.bias"])
    hidden = hidden if dropout is None else hidden * dropout
    encoded = torch.log_softmax(mixing @ hidden @ weights["gcn.2.weight"] + weights["gcn.2.bias"], dim=1)
    projected = torch.relu(encoded @ weights["mlp.1.weight"] + weights["mlp.1.bias"])
    projected = projected @ weights["mlp.2.weight"] + weights["mlp.2.bias"]
    return projected @ projected.T


def dropout_factors(noise: np.random.Generator, n: int, share: float) -> torch.Tensor:
    """Return (n, 16) factors of the hidden layer: 0 for a `share` of the units, 1 / (1 - share) for the rest."""
    return torch.from_numpy((noise.random((n, HIDDEN)) >= share) / (1 - share))


def scaled(logits: torch.Tensor) -> torch.Tensor:
    """Return the entries min-max scaled to [-1, 1] over the whole matrix; zeros where they are all equal."""
    low, high = logits.min(), logits.max()
    if (high - low).item() <= TINY * max(1.0, logits.abs().max().item()):
        return torch.zeros_like(logits)
    return (logits - low) / (high - low) * 2 - 1


def with_task(anchor: np.ndarray) -> np.ndarray:
    """Return the anchor topology with one more node, the task, linked both ways with every agent: (n + 1, n + 1)."""
    grown = np.ones((len(anchor) + 1, len(anchor) + 1))
    grown[:-1, :-1] = anchor
    grown[-1, -1] = 0
    return grown


def encode(
    weights: Mapping[str, torch.Tensor], roles: torch.Tensor, query: torch.Tensor, mixing: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and log-variance of each node's latent position, the task last; both (n + 1, 16).

    Parameters
    ----------
    weights : of `paper_weights`
    roles, query : as in `code_logits`
    mixing : (n + 1, n + 1), `normalised` of `with_task`
    """
    hidden = torch.relu(mixing @ torch.cat([roles, query[None]]) @ weights["gcn.1.weight"] + weights["gcn.1.bias"])
    mean, log_variance = (
        mixing @ hidden @ weights[f"gcn.{name}.weight"] + weights[f"gcn.{name}.bias"]
        for name in ("mean", "log_variance")
    )
    return mean, log_variance


def sketch_logits(weights: Mapping[str, torch.Tensor], latent: torch.Tensor) -> torch.Tensor:
    """Return w_ij, the perceptron of (h_i, h_j, h_task): (n, n), of which the sigmoid is the chance of a sketched edge."""
    n = len(latent) - 1
    nodes, task = latent[:-1], latent[-1]
    pairs = torch.cat(
        [nodes[:, None].expand(n, n, -1), nodes[None].expand(n, n, -1), task.expand(n, n, -1)], dim=2
    )  # (n, n, 48)
    hidden = torch.relu(pairs @ weights["sketch.1.weight"] + weights["sketch.1.bias"])
    return (hidden @ weights["sketch.2.weight"] + weights["sketch.2.bias"])[..., 0]


def sketch(logits: np.ndarray, draws: np.ndarray, temperature: float) -> np.ndarray:
    """Return the sketch S_ij = sigmoid((log e - log(1 - e) + w_ij) / temperature) with an empty diagonal.

    Parameters
    ----------
    logits : (n, n) w
    draws : (n, n) e, uniform in [0, 1)
    temperature : towards 0 each entry becomes 0 or 1, 1 with probability sigmoid(w_ij)
    """
    noise = np.log(np.maximum(draws, np.finfo(float).tiny)) - np.log1p(-draws)
    made = np.exp(-np.logaddexp(0.0, -(noise + logits) / temperature))
    np.fill_diagonal(made, 0.0)
    return made


def lowered(matrix: np.ndarray, by: float) -> np.ndarray:
    """Return the matrix with its singular values lowered by `by`, none below 0.

    >>> lowered(np.diag([3.0, 1.0]), 0.5)
    array([[2.5, 0. ],
           [0. , 0.5]])
    """
    left, values, right = np.linalg.svd(matrix)
    return (left * np.maximum(values - by, 0.0)) @ right


def refine(sketched: np.ndarray, anchor: np.ndarray, *, rank: int | None = None, zeta: float = 0.1) -> np.ndarray:
    """Return Z W Z^T, the low-rank matrix nearest to sketch and anchor; Z and W as in the module's text.

    Parameters
    ----------
    sketched, anchor : (n, n) S and A
    rank : number of leading left singular vectors of S in Z; None for all
    zeta : weight of the nuclear norm of W
    """
    basis = np.linalg.svd(sketched)[0][:, :rank]
    return basis @ lowered(basis.T @ ((sketched + anchor) / 2) @ basis, zeta / 2) @ basis.T


def divergence(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """Return the Kullback-Leibler divergence of the latent positions from the standard normal, nats a node."""
    return 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=1).mean()


def _convolution(name: str, inputs: int, outputs: int, seed: int) -> Weights:
    bound = math.sqrt(6 / (inputs + outputs))
    return {
        f"{name}.weight": _uniform(f"{name}.weight", (inputs, outputs), bound, seed),
        f"{name}.bias": torch.zeros(outputs, dtype=torch.float64),
    }


def _linear(name: str, inputs: int, outputs: int, seed: int) -> Weights:
    bound = 1 / math.sqrt(inputs)
    return {
        f"{name}.weight": _uniform(f"{name}.weight", (inputs, outputs), bound, seed),
        f"{name}.bias": _uniform(f"{name}.bias", (outputs,), bound, seed),
    }


def _uniform(name: str, shape: tuple[int, ...], bound: float, seed: int) -> torch.Tensor:
    return torch.from_numpy(generator("gdesigner", "weights", seed, name).uniform(-bound, bound, shape))
