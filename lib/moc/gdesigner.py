"""G-Designer: a graph of agents for each question, drawn by a small network that learns from right answers.

Context
-------
MOC is also run on graphs that fit the question (paper, 5.4). G-Designer (arXiv 2410.11782) draws them: a network reads
the agents' roles and the question, gives every ordered pair a logit (`lib.moc.graph_encoder`), and a graph is drawn from
these (`lib.moc.topology`). Training asks the team on some forty profile questions, and makes the choices behind right
answers more likely: the loss is the mean of -u log P(graph), u in {0, 1}. ``variant="code"`` is what the released code
does, ``variant="paper"`` what the paper describes.

Intuition
---------
A graph that led to a right answer is made likelier as a whole, edges and gaps alike. With forty answers of 0 or 1 little
can be learned, and in the code variant no probability ever leaves [0.27, 0.73]. Rewarded for thin graphs instead of
dense ones, seven agents of the code variant learned nothing at its learning rate of 0.1 (13.5 edges before, 14.2
against 14.0 after, means of eight seeds) and a little at 0.01 (12.6 against 14.1); `PAPER` learned in all eight.

How to read the result
----------------------
`probabilities` shows what was learned; `sample` draws a `Dag` with its order of speaking. One seed draws with the same
random numbers whatever was learned, so two designers, or one before and after training, can be compared on equal luck.
`history` tells for each iteration what the answers earned and how many edges the graphs had. Train with plain
communication (K = 1), freeze, and run every arm on the same sampled graphs: then only communication differs.

Not covered: asking the team (the caller's `utility` does); several rounds; pruning. In the paper variant three things
are choices of this suite. The policy gradient rates the sketch's binary choices, as its temperature of 0.01 leaves no
other gradient; the distance to the anchor is measured at the sketch's probabilities for the same reason; and edges are
entries of at least 0.25, where sketch or anchor has the edge: at 0.5 the lowering of singular values would decide about
all on which the two disagree.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import torch

from lib.messages.corpus import write_whole
from lib.moc.dag import Dag, dag_of
from lib.moc.graph_encoder import (
    Weights,
    code_logits,
    code_weights,
    divergence,
    dropout_factors,
    encode,
    normalised,
    paper_weights,
    refine,
    scaled,
    sketch,
    sketch_logits,
    with_task,
)
from lib.moc.topology import draw_edges, log_probability, strongest_edges
from lib.seeds import generator, hash_order, seed_of

FORMAT = 1
FROZEN = "mlp."  # weights that stay as drawn begin so

Utility = Callable[[Sequence[tuple[int, Dag]]], Sequence[float | None]]
"""Asks the team on (question index, graph) pairs, all at once; what each answer earned in [0, 1], None where it failed."""


class GDesignerError(ValueError):
    """A designer that cannot be made, trained or loaded; the text names the field or file and the fix."""


class GDesignerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How G-Designer is built and trained; the defaults, `CODE`, follow the released code. `PAPER` is the other variant.

    Parameters
    ----------
    variant : ``code`` or ``paper``
    iterations, batch : gradient steps, and profile questions in each; their product is the number of answers asked for
    learning_rate : of Adam
    dropout : share of the hidden layer that is dropped in training (code)
    temperature : of the sketch (paper)
    zeta : weight of the nuclear norm in the refinement (paper)
    rank : of the refinement; None for the number of agents (paper)
    threshold : smallest entry of the refined matrix that is an edge (paper)
    refinement : weight of the refinement's objective in the loss (paper)
    divergence : weight of the latent positions' divergence from the standard normal in the loss (paper)
    """

    variant: Literal["code", "paper"] = "code"
    iterations: int = 10
    batch: int = 4
    learning_rate: float = 0.1
    dropout: float = 0.5
    temperature: float = 0.01
    zeta: float = 0.1
    rank: int | None = None
    threshold: float = 0.25
    refinement: float = 1.0
    divergence: float = 1.0

    def __post_init__(self) -> None:
        if self.variant not in ("code", "paper"):
            raise GDesignerError(f"variant: must be 'code' or 'paper', not {self.variant!r}")
        for name in ("iterations", "batch", "rank"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise GDesignerError(f"{name}: must be at least 1, not {value!r}")
        for name in ("learning_rate", "temperature"):
            if not 0 < getattr(self, name) < math.inf:
                raise GDesignerError(f"{name}: must be a positive number, not {getattr(self, name)!r}")
        for name in ("zeta", "refinement", "divergence"):
            if not 0 <= getattr(self, name) < math.inf:
                raise GDesignerError(f"{name}: must be a number of at least 0, not {getattr(self, name)!r}")
        if not 0 <= self.dropout < 1:
            raise GDesignerError(f"dropout: must lie in [0, 1), not {self.dropout!r}")


CODE = GDesignerSettings()
PAPER = GDesignerSettings(
    variant="paper", learning_rate=0.03, refinement=0.1
)  # at 0.1 and 1 the anchor outweighs answers


class Iteration(msgspec.Struct, frozen=True):
    """One gradient step.

    Parameters
    ----------
    iteration : from 1
    asked, failed : questions asked, and those among them without an answer; nothing is learned from these
    utility : mean of what the others earned; None if there are none
    edges : mean number of edges of the graphs drawn
    """

    iteration: int
    asked: int
    failed: int
    utility: float | None
    edges: float


class _Array(msgspec.Struct, frozen=True):
    """An array in JSON: its shape, and its numbers as base64 of little-endian float64, exact to the last bit."""

    shape: tuple[int, ...]
    values: bytes


class _State(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    settings: GDesignerSettings
    seed: int
    roles: _Array
    connections: tuple[tuple[int, ...], ...]
    history: tuple[Iteration, ...]
    weights: dict[str, _Array]


class GDesigner:
    """A designer of teams.

    Parameters
    ----------
    roles : (n, width) embedding of each agent's role description
    connections : (n, n) of 0 and 1, what the network mixes agents along: in the code variant the role graph
        (`lib.moc.role_graph`), in the paper variant the anchor topology, such as ``chain_dag(n).adjacency``
    settings : how
    seed : names the initial weights and every draw of training

    Attributes
    ----------
    history : one `Iteration` a gradient step; empty before `fit`

    Raises
    ------
    GDesignerError
        If the shapes do not fit or a number is not finite.
    """

    def __init__(
        self,
        roles: np.ndarray,
        connections: np.ndarray,
        *,
        settings: GDesignerSettings = CODE,
        seed: int = 0,
    ) -> None:
        self.settings, self.seed = settings, seed
        self.history: tuple[Iteration, ...] = ()
        self._roles = torch.from_numpy(np.array(roles, dtype=np.float64))
        if self._roles.ndim != 2 or not self._roles.numel() or not torch.isfinite(self._roles).all():
            raise GDesignerError(f"roles: need finite numbers (agents, width), not shape {tuple(self._roles.shape)}")
        self._connections = np.array(connections)
        if self._connections.shape != (self.n, self.n) or not np.isin(self._connections, (0, 1)).all():
            raise GDesignerError(
                f"connections: need ({self.n}, {self.n}) of 0 and 1, not shape {self._connections.shape}"
            )
        self._mixing = normalised(self._connections if self._code else with_task(self._connections))
        self._weights = self._fresh()

    @property
    def n(self) -> int:
        """Number of agents."""
        return self._roles.shape[0]

    @property
    def width(self) -> int:
        """Length of an embedding."""
        return self._roles.shape[1]

    @property
    def _code(self) -> bool:
        return self.settings.variant == "code"

    def weights(self) -> dict[str, np.ndarray]:
        """Return a copy of all weights by name; those that begin with ``mlp.`` are never trained."""
        return {name: tensor.detach().numpy().copy() for name, tensor in self._weights.items()}

    def probabilities(self, query: np.ndarray) -> np.ndarray:
        """Return how likely each pair becomes an edge when it is asked, outside training.

        In the code variant pairs are asked in turn, so this is not the probability of an edge in the graph. In the paper
        variant it is the probability of an edge in the sketch. The diagonal is never asked.

        Parameters
        ----------
        query : (width,) embedding of the question

        Returns
        -------
        (n, n); in the code variant symmetric, from sigmoid(-1) to sigmoid(1)
        """
        with torch.no_grad():
            return torch.sigmoid(self._logits(self._checked(query))).numpy()

    def sample(self, query: np.ndarray, seed: int) -> Dag:
        """Draw a graph for a question.

        Parameters
        ----------
        query : (width,) embedding of the question
        seed : of the draw; best named by the question, as `seed_of("graph", question.id)`

        Returns
        -------
        Dag of kind ``gdesigner-code`` or ``gdesigner-paper``, in the order of `lib.moc.dag.kahn_order`; agents may stand
        alone
        """
        with torch.no_grad():
            dag, _, _ = self._draw(self._logits(self._checked(query)), seed)
        return dag

    def fit(self, queries: np.ndarray, utility: Utility) -> GDesigner:
        """Train on profile questions, from the initial weights.

        Parameters
        ----------
        queries : (n_questions, width) embeddings of profile questions
        utility : asks the team, one call an iteration; the same question may stand in a batch twice

        Returns
        -------
        self

        Raises
        ------
        GDesignerError
            If there is no question, or `utility` gives a wrong number of values or one outside [0, 1].

        Notes
        -----
        At most `iterations` calls with `batch` questions each; questions go in a shuffled order, over and over. An
        iteration whose answers all failed takes no step. Warns if no answer earned anything.
        """
        embeddings = np.asarray(queries, dtype=np.float64)
        if embeddings.ndim != 2 or not len(embeddings):
            raise GDesignerError(f"queries: need (questions, width), one question at least, not {embeddings.shape}")
        questions = [self._checked(query) for query in embeddings]
        order = hash_order(range(len(questions)), "gdesigner", self.seed)
        self._weights, rows = self._fresh(), []
        trained = [tensor.requires_grad_() for name, tensor in self._weights.items() if not name.startswith(FROZEN)]
        optimizer = torch.optim.Adam(trained, lr=self.settings.learning_rate)
        for iteration in range(1, self.settings.iterations + 1):
            first = (iteration - 1) * self.settings.batch
            batch = [order[(first + place) % len(order)] for place in range(self.settings.batch)]
            drawn = [
                self._explore(questions[index], seed_of("gdesigner", "train", self.seed, iteration, place))
                for place, index in enumerate(batch)
            ]
            asked = [(index, dag) for index, (dag, _, _) in zip(batch, drawn, strict=True)]
            earned = _checked_utility(utility(asked), len(asked))
            terms = [
                penalty - value * log_p
                for (_, log_p, penalty), value in zip(drawn, earned, strict=True)
                if value is not None
            ]
            loss = torch.stack(terms).mean() if terms else None
            # Agents that all look alike have logits that no weight can change; then there is no slope either.
            if loss is not None and loss.requires_grad:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            rows.append(_iteration(iteration, [dag for dag, _, _ in drawn], earned))
        for tensor in trained:
            tensor.requires_grad_(False)
        self.history = tuple(rows)
        if not any(row.utility for row in rows):
            warnings.warn(
                "no answer in G-Designer's training earned anything, so nothing was learned from answers; take "
                "more profile questions or a stronger receiver",
                stacklevel=2,
            )
        return self

    def save(self, path: Path | str) -> Path:
        """Write the designer as JSON, whole or not at all, and return the path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, self._json())
        return path

    @classmethod
    def load(cls, path: Path | str) -> GDesigner:
        """Read a designer written by `save`; it draws and fingerprints as the saved one.

        Raises
        ------
        GDesignerError
            If there is no such file, or it holds no designer that this library can use.
        """
        try:
            state = msgspec.json.decode(Path(path).read_bytes(), type=_State)
            if state.format != FORMAT:
                raise GDesignerError(f"format {state.format}, this library reads {FORMAT}")
            designer = cls(
                _unpacked("roles", state.roles), np.array(state.connections), settings=state.settings, seed=state.seed
            )
            weights = {name: torch.from_numpy(_unpacked(name, array)) for name, array in state.weights.items()}
            if {name: tensor.shape for name, tensor in weights.items()} != {
                name: tensor.shape for name, tensor in designer._weights.items()
            }:
                raise GDesignerError("field 'weights' does not fit the variant and the width of 'roles'")
        except FileNotFoundError:
            raise GDesignerError(f"{path}: no such file; fit and save the designer first") from None
        except (msgspec.DecodeError, UnicodeDecodeError, GDesignerError) as error:
            raise GDesignerError(f"{path}: not a saved designer ({error}); fit and save it again") from None
        designer._weights, designer.history = weights, state.history
        return designer

    def fingerprint(self) -> str:
        """Return the SHA-256 of settings, roles, connections, history and weights, hexadecimal."""
        return hashlib.sha256(self._json()).hexdigest()

    def _json(self) -> bytes:
        state = _State(
            format=FORMAT,
            settings=self.settings,
            seed=self.seed,
            roles=_packed(self._roles),
            connections=tuple(tuple(int(value) for value in row) for row in self._connections),
            history=self.history,
            weights={name: _packed(tensor) for name, tensor in sorted(self._weights.items())},
        )
        return msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n"

    def _fresh(self) -> Weights:
        return (code_weights if self._code else paper_weights)(self.width, self.seed)

    def _checked(self, query: np.ndarray) -> torch.Tensor:
        vector = torch.from_numpy(np.array(query, dtype=np.float64))
        if vector.shape != (self.width,) or not torch.isfinite(vector).all():
            raise GDesignerError(f"query: need {self.width} finite numbers, not shape {tuple(vector.shape)}")
        return vector

    def _logits(self, query: torch.Tensor) -> torch.Tensor:
        """Return the logit of each pair, without dropout and latent noise."""
        if self._code:
            return scaled(code_logits(self._weights, self._roles, query, self._mixing))
        mean, _ = encode(self._weights, self._roles, query, self._mixing)
        return sketch_logits(self._weights, mean)

    def _explore(self, query: torch.Tensor, seed: int) -> tuple[Dag, torch.Tensor, torch.Tensor]:
        """Draw a graph as in training; return it with its log-probability and the penalty that its question adds."""
        noise = generator("gdesigner", "noise", seed)
        if self._code:
            factors = dropout_factors(noise, self.n, self.settings.dropout)
            return self._draw(scaled(code_logits(self._weights, self._roles, query, self._mixing, factors)), seed)
        mean, log_variance = encode(self._weights, self._roles, query, self._mixing)
        normal = torch.from_numpy(noise.standard_normal(tuple(mean.shape)))
        logits = sketch_logits(self._weights, mean + normal * (log_variance / 2).exp())
        dag, log_p, penalty = self._draw(logits, seed)
        return dag, log_p, penalty + self.settings.divergence * divergence(mean, log_variance)

    def _draw(self, logits: torch.Tensor, seed: int) -> tuple[Dag, torch.Tensor, torch.Tensor]:
        draws, values = generator("gdesigner", "draw", seed).random((self.n, self.n)), logits.detach().numpy()
        if self._code:
            edges, asked = draw_edges(torch.sigmoid(logits.detach()).numpy(), draws)
            taken, penalty = edges.taken, torch.zeros((), dtype=torch.float64)
        else:
            drawn = sketch(values, draws, self.settings.temperature)
            refined = refine(drawn, self._connections, rank=self.settings.rank, zeta=self.settings.zeta)
            edges = strongest_edges(refined, self.settings.threshold)
            taken, asked = drawn >= 0.5, ~np.eye(self.n, dtype=bool)
            penalty = self.settings.refinement * self._distance(torch.sigmoid(logits))
        dag = dag_of(self.n, edges.edges(), kind=f"gdesigner-{self.settings.variant}", seed=seed)
        return dag, log_probability(logits, taken, asked), penalty

    def _distance(self, sketched: torch.Tensor) -> torch.Tensor:
        """Return the squared distance between the sketch's probabilities and their refinement, halved.

        The refinement is the minimum of its objective, so the slope of that minimum is the slope of this term with the
        refinement held (with Z held too).
        """
        off = sketched * (1 - torch.eye(self.n, dtype=torch.float64))
        refined = refine(off.detach().numpy(), self._connections, rank=self.settings.rank, zeta=self.settings.zeta)
        return ((off - torch.from_numpy(refined)) ** 2).sum() / 2


def _checked_utility(values: Sequence[float | None], count: int) -> list[float | None]:
    earned = list(values)
    if len(earned) != count:
        raise GDesignerError(
            f"utility: gave {len(earned)} values for {count} graphs; give one each, None for a failure"
        )
    for value in earned:
        if value is not None and not 0 <= value <= 1:
            raise GDesignerError(f"utility: must lie in [0, 1], not {value!r}")
    return [None if value is None else float(value) for value in earned]


def _iteration(iteration: int, dags: Sequence[Dag], earned: Sequence[float | None]) -> Iteration:
    known = [value for value in earned if value is not None]
    return Iteration(
        iteration=iteration,
        asked=len(earned),
        failed=len(earned) - len(known),
        utility=sum(known) / len(known) if known else None,
        edges=sum(len(dag.edges) for dag in dags) / len(dags),
    )


def _packed(tensor: torch.Tensor) -> _Array:
    values = tensor.detach().numpy()
    return _Array(tuple(values.shape), values.astype("<f8").tobytes())


def _unpacked(name: str, array: _Array) -> np.ndarray:
    values = np.frombuffer(array.values, dtype="<f8").astype(np.float64) if not len(array.values) % 8 else None
    if values is None or values.size != math.prod(array.shape):
        raise GDesignerError(f"field {name!r} holds another number of values than its shape says")
    return values.reshape(array.shape)
