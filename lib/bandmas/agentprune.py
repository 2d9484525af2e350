"""AgentPrune on a packet stream: which senders may speak, learned by policy gradient and then cut.

Context
-------
AgentPrune (arXiv 2410.02506) prunes the communication graph of a team. Here messages are frozen and the receiver is
their only consumer, so the graph is a star: one spatial edge a sender slot, and one temporal edge a turn where some
reader speaks more than once. An edge carries the whole message, for the method knows no parts of it; what it learns
is the same for all tasks of a workload.

Intuition
---------
Training delivers random sets of whole messages of profile tasks, without a byte cap, and makes the choices behind good
answers more likely (`lib.bandmas.edge_masks`). After iterations 5 and 10 a quarter of the surviving edges is cut. What
a message says never counts, only who sent it and when.

How to read the result
----------------------
`AgentPrune.edges` lists each slot's logit and whether its edge survived. In a final task packets on cut edges are never
sent, however much room is left; the rest is ranked by logit, messages in emission order, and admitted under the byte
cap like every policy's. With few readers the cuts are harsh: of three, one is left. The published code draws edges at
evaluation too; here the surviving ones are ranked, so that a schedule repeats (`eval_sampling` restores the draw).

Not covered: teams in which agents read each other; logits that depend on content, which would be another method.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from lib.bandmas.admission import admit_static, rank, wire_cap
from lib.bandmas.baselines import BaselineError, FrozenState, Learner, check_choices, learn_together, profile_jobs
from lib.bandmas.edge_masks import EdgeMasks, Graph, sigmoid
from lib.bandmas.features import TURN_CAP
from lib.bandmas.replay import Job, Outcome, Render, Utility
from lib.bandmas.study import Splits
from lib.bandmas.traffic import Traffic
from lib.messages.packets import Packet
from lib.messages.prompts import receiver_prompt
from lib.messages.wire import batch_bytes
from lib.models.receiver import Receiver
from lib.seeds import hash_order, seed_of
from lib.tasks.task import Split

FAMILIES = ("spatial", "temporal")
RECEIVER = "receiver"  # the node that every edge of the star leads to
CORRECT = 0.5  # task utility from which an answer counts as right under the binary reward

EdgeName = tuple[str, int, str]  # (family, sender slot or turn, packet type where it is part of the edge, else "")
_Crossed = list[list[EdgeName]]  # for each packet of a task, the edges it crosses


class AgentPruneSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How AgentPrune is adapted; the defaults are the reproduction, other values are variants of it.

    Parameters
    ----------
    edge_key : ``route``, one edge a sender slot, or ``route_type``, one a slot and packet type: finer than the method
    turn_edges : ``auto``, turn edges where some reader speaks more than once, or ``always``
    reward : ``utility``, U of eq. 4, or ``task_binary``, 1 where the task utility is at least 0.5, else 0
    schedule : ``two_step``, cut every `cut_every` iterations up to `cut_until`, or ``one_shot``, cut once and stop
    iterations, batch : gradient steps, and profile tasks in each; their product is the budget of contexts
    learning_rate : of Adam
    start : probability of every edge before training
    cut_every, cut_until : iterations after which edges are cut
    rate : share of the surviving edges that a cut takes
    nuclear, anchor : weights of the nuclear norm of the edge probabilities, and of their squared distance from 1
    train_beta : byte cap in training, as a share of the full bytes; None delivers all that was drawn
    eval_sampling : draw the surviving edges of a final task as in training, instead of ranking them all
    """

    edge_key: Literal["route", "route_type"] = "route"
    turn_edges: Literal["auto", "always"] = "auto"
    reward: Literal["utility", "task_binary"] = "utility"
    schedule: Literal["two_step", "one_shot"] = "two_step"
    iterations: int = 10
    batch: int = 4
    learning_rate: float = 0.1
    start: float = 0.5
    cut_every: int = 5
    cut_until: int = 10
    rate: float = 0.25
    nuclear: float = 0.0
    anchor: float = 0.0
    train_beta: float | None = None
    eval_sampling: bool = False

    def __post_init__(self) -> None:
        check_choices(self, "AgentPrune")
        for name in ("iterations", "batch", "cut_every"):
            if getattr(self, name) < 1:
                raise BaselineError(f"AgentPrune: {name} must be at least 1, not {getattr(self, name)!r}")
        for name in ("start", "rate"):
            if not 0 < getattr(self, name) < 1:
                raise BaselineError(f"AgentPrune: {name} must lie between 0 and 1, not {getattr(self, name)!r}")


DEFAULT = AgentPruneSettings()
VARIANTS: dict[str, AgentPruneSettings] = {
    "default": DEFAULT,
    "edge_key=route_type": AgentPruneSettings(edge_key="route_type"),
    "turn_edges=always": AgentPruneSettings(turn_edges="always"),
    "schedule=one_shot": AgentPruneSettings(schedule="one_shot"),
    "reward=task_binary": AgentPruneSettings(reward="task_binary"),
    "nuclear=0.1": AgentPruneSettings(nuclear=0.1),
    "train_beta=0.5": AgentPruneSettings(train_beta=0.5),
    "eval_sampling=True": AgentPruneSettings(eval_sampling=True),
}


class Edge(msgspec.Struct, frozen=True):
    """One edge of the star.

    Parameters
    ----------
    family : ``spatial`` or ``temporal``
    index : sender slot, or turn (3 for later ones)
    type : packet type where it is part of the edge, else empty
    logit : what was learned; its sigmoid is the probability of the edge
    kept : whether the edge survived the cuts
    """

    family: str
    index: int
    type: str
    logit: float = 0.0
    kept: bool = True

    @property
    def name(self) -> EdgeName:
        return self.family, self.index, self.type


class AgentPrune(FrozenState, frozen=True, kw_only=True, tag="agentprune"):
    """AgentPrune after training.

    Parameters
    ----------
    settings : how it was trained
    turns : whether there are temporal edges
    edges : spatial edges by slot, then temporal ones by turn
    rewarded : answers in training that earned more than 0
    """

    settings: AgentPruneSettings
    turns: bool
    edges: tuple[Edge, ...]
    rewarded: int

    def select(self, task_query: str, packets: Sequence[Packet]) -> tuple[np.ndarray, np.ndarray]:
        """Return the summed logits of each packet's edges, and whether all of these are open; the query is not read.

        An edge that training never saw has logit 0 and is open. Where no packet of a task may be sent, those of the
        best edge are sent after all.

        Returns
        -------
        scores : (n_packets,) higher first
        kept : (n_packets,) bool
        """
        known = {edge.name: edge for edge in self.edges}
        names = [edge_names(packet, self.settings, self.turns) for packet in packets]
        edges = [[known.get(name) or Edge(*name) for name in own] for own in names]
        scores = np.array([sum(edge.logit for edge in own) for own in edges], dtype=float)
        alive = np.array([all(edge.kept for edge in own) for own in edges], dtype=bool)
        kept = alive
        if self.settings.eval_sampling:
            drawn = [
                all(self._drawn(packet.task_id, edge) for edge in own)
                for packet, own in zip(packets, edges, strict=True)
            ]
            kept = alive & np.array(drawn, dtype=bool)
        if len(packets) and not kept.any():
            pool = alive if alive.any() else ~alive
            best = rank([packet for packet, open_ in zip(packets, pool, strict=True) if open_], scores[pool])[0]
            kept = pool & np.array([own == edge_names(best, self.settings, self.turns) for own in names])
        return scores, kept

    def sizes(self) -> tuple[int, int]:
        """Return how many edges survived, and how many there were."""
        return sum(edge.kept for edge in self.edges), len(self.edges)

    def _drawn(self, task_id: str, edge: Edge) -> bool:
        return bool(_uniform(self.seed, "final", 0, task_id, edge.name) < sigmoid(np.array(edge.logit)))


def edge_names(packet: Packet, settings: AgentPruneSettings, turns: bool) -> list[EdgeName]:
    """Return the edges that a packet crosses: its sender's, and with `turns` that of its turn."""
    spatial = ("spatial", packet.slot, packet.type if settings.edge_key == "route_type" else "")
    return [spatial, ("temporal", min(packet.turn, TURN_CAP), "")] if turns else [spatial]


def train_agentprune(
    receiver: Receiver,
    traffics: Mapping[str, Traffic],
    splits: Splits,
    utility: Utility,
    *,
    settings: AgentPruneSettings = DEFAULT,
    render: Render = receiver_prompt,
    max_tokens: int = 256,
) -> dict[tuple[str, int], AgentPrune]:
    """Train AgentPrune on the profile tasks of every workload and seed, side by side.

    Parameters
    ----------
    receiver, traffics, splits, utility, render, max_tokens : as in `lib.bandmas.study.replay_all`
    settings : how

    Returns
    -------
    dict from (workload, seed) to the frozen baseline

    Raises
    ------
    BaselineError
        If a split has no profile task with packets.

    Notes
    -----
    At most `iterations` receiver calls, each with at most `batch` contexts a workload and seed.
    """
    learners = {
        (name, seed): agentprune_learner(traffic, split, settings)
        for name, traffic in traffics.items()
        for seed, split in splits[name].items()
    }
    return learn_together(receiver, learners, utility, render=render, max_tokens=max_tokens)


def agentprune_learner(traffic: Traffic, split: Split, settings: AgentPruneSettings = DEFAULT) -> Learner[AgentPrune]:
    """Return a learner for `learn_together` that sees the profile tasks of one split and nothing else."""
    return _learn(traffic.workload, split.seed, profile_jobs(traffic, split), settings)


def _learn(workload: str, seed: int, jobs: Sequence[Job], settings: AgentPruneSettings) -> Learner[AgentPrune]:
    turns = settings.turn_edges == "always" or _some_reader_speaks_twice(jobs)
    crossed = {task.id: [edge_names(packet, settings, turns) for packet in packets] for task, packets in jobs}
    star = _Star(sorted({name for own in crossed.values() for names in own for name in names}), settings)
    by_id = {task.id: (task, packets) for task, packets in jobs}
    order = hash_order(by_id, "agentprune", seed)
    contexts = failed = rewarded = 0
    for iteration in range(1, (settings.cut_every if settings.schedule == "one_shot" else settings.iterations) + 1):
        first = (iteration - 1) * settings.batch
        batch = [order[(first + place) % len(order)] for place in range(settings.batch)]
        graphs = [star.draw(crossed[task_id], seed, iteration, place, task_id) for place, task_id in enumerate(batch)]
        outcomes = yield [
            star.delivered(by_id[task_id], crossed[task_id], graph)
            for task_id, graph in zip(batch, graphs, strict=True)
        ]
        rewards = [_reward(outcome, settings) for outcome in outcomes]
        star.update([(graph, reward) for graph, reward in zip(graphs, rewards, strict=True) if reward is not None])
        if iteration % settings.cut_every == 0 and iteration <= settings.cut_until:
            star.cut()
        contexts += len(rewards)
        failed += rewards.count(None)
        rewarded += sum(reward is not None and reward > 0 for reward in rewards)
    if not rewarded:
        warnings.warn(
            f"{workload}, seed {seed}: no answer in AgentPrune's training earned anything (reward {settings.reward!r}); "
            "without a reward nothing is learned and packets go in index order",
            stacklevel=2,
        )
    counts = {"contexts": contexts, "failed": failed, "rewarded": rewarded}
    return AgentPrune(workload=workload, seed=seed, settings=settings, turns=turns, edges=star.edges(), **counts)


class _Star:
    """The edges of one workload by name: one set of masks a family."""

    def __init__(self, names: Sequence[EdgeName], settings: AgentPruneSettings) -> None:
        self.settings = settings
        self.names = {family: [name for name in names if name[0] == family] for family in FAMILIES}
        self.masks = {
            family: EdgeMasks(
                [(name, RECEIVER) for name in mine],
                start=settings.start,
                learning_rate=settings.learning_rate,
                acyclic=family == "spatial",
                # Slots by types. Without types one column is left: rank one, its nuclear norm its length.
                cells=[name[1:] for name in mine],
            )
            for family, mine in self.names.items()
        }

    def draw(self, crossed: _Crossed, seed: int, iteration: int, place: int, task_id: str) -> dict[str, Graph]:
        """Draw, in each family, a graph over the edges that the task has."""
        present = {name for names in crossed for name in names}
        return {
            family: self.masks[family].draw(
                np.array([name in present for name in mine], dtype=bool),
                np.array([_uniform(seed, iteration, place, task_id, name) for name in mine]),
            )
            for family, mine in self.names.items()
        }

    def delivered(self, job: Job, crossed: _Crossed, graph: Mapping[str, Graph]) -> Job:
        """Return the task with the packets whose edges were all drawn; under a training cap, what it admits of them."""
        drawn = {name for family, mine in self.names.items() for name in itertools.compress(mine, graph[family][0])}
        task, packets = job
        chosen = [place for place, names in enumerate(crossed) if drawn.issuperset(names)]
        sent = [packets[place] for place in chosen]
        if self.settings.train_beta is None:
            return task, sent
        logits = {edge.name: edge.logit for edge in self.edges()}
        scores = [sum(logits[name] for name in crossed[place]) for place in chosen]
        return task, admit_static(sent, scores, wire_cap(self.settings.train_beta, batch_bytes(packets))).admitted

    def update(self, samples: Sequence[tuple[Mapping[str, Graph], float]]) -> None:
        """Take one gradient step on graphs and what their answers earned."""
        weights = {"nuclear": self.settings.nuclear, "anchor": self.settings.anchor}
        for family, masks in self.masks.items():
            masks.update([graph[family] for graph, _ in samples], [reward for _, reward in samples], **weights)

    def cut(self) -> None:
        """Cut the weakest edges of each family."""
        for masks in self.masks.values():
            masks.cut(self.settings.rate)

    def edges(self) -> tuple[Edge, ...]:
        """Return all edges as they stand, families in turn."""
        return tuple(
            Edge(*name, logit, bool(kept))
            for family, mine in self.names.items()
            for name, logit, kept in zip(mine, self.masks[family].logits.tolist(), self.masks[family].kept, strict=True)
        )


def _reward(outcome: Outcome, settings: AgentPruneSettings) -> float | None:
    """Return what an answer earned; None where the call failed."""
    value = outcome["utility" if settings.reward == "utility" else "task_utility"]
    if value is None:
        return None
    return float(value) if settings.reward == "utility" else float(value >= CORRECT)


def _some_reader_speaks_twice(jobs: Sequence[Job]) -> bool:
    said = {(packet.task_id, packet.slot, packet.turn) for _, packets in jobs for packet in packets}
    return len({(task_id, slot) for task_id, slot, _ in said}) < len(said)


def _uniform(seed: int, phase: int | str, place: int, task_id: str, name: EdgeName) -> float:
    """Return the draw of one edge, in [0, 1): named, so that it does not depend on which other edges there are."""
    return seed_of("agentprune", seed, phase, place, task_id, *name) / 2**63
