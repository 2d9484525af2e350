"""SafeSieve on a packet stream: channels that fit the receiver and were there when answers were right stay longest.

Context
-------
SafeSieve (arXiv 2508.11733) prunes a team's graph step by step. An edge's score fuses compatibility, known before any
answer, with a share of the credit for right answers; the first fades while the second grows. Clusters from a
0-extension of the graph say which links are weak. No code is public and the equations come from secondary notes, so
this is a formula-derived adaptation: every number in `SafeSieveSettings` is a choice made here.

Intuition
---------
Nodes are channels (sender slot, packet type) and the receiver; the receiver reads all, so communication is the edges
from channels to it. Compatibility is half the similarity of role texts, half a fixed table of how types complement each
other, in place of the expert model of the paper. Profile tasks are answered one after another from the surviving
channels without a byte cap; after a right answer each channel that spoke gets a credit. At intervals the weakest
channels outside the receiver's cluster, those below a rising threshold, are cut for good.

How to read the result
----------------------
`SafeSieve.channels` lists each channel's parts of the score, when it was cut, and its class at the end: 1, clustered
with the receiver; 2, outside but above the threshold; 3, cut or below it, never sent while the task has packets of
another class. A final packet is ranked by class, then by its own relevance to the question fused with its channel's
credit. Training ends at 80 % of the schedule, so that a fifth of the content's say is left for final tasks.

Notes
-----
The notes also standardise scores after a cut. Scores are computed anew at every step and compared after min-max
scaling, which no standardisation changes, so it is left out.

Not covered: an expert model as judge; agents that read each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec
import numpy as np

from lib.bandmas.admission import DIGITS
from lib.bandmas.baselines import BaselineError, FrozenState, Learner, learn_together, profile_jobs
from lib.bandmas.fusion import (
    DEFAULT,
    NEUTRAL,
    TO_RECEIVER,
    SafeSieveSettings,
    compatibility,
    complementarity,
    credit_shares,
    embedder,
    fusion_weights,
    similarities,
    threshold,
)
from lib.bandmas.replay import Job, Render, Utility
from lib.bandmas.scores import normalised
from lib.bandmas.study import Splits
from lib.bandmas.traffic import Traffic
from lib.bandmas.zero_extension import EPSILON, cut_weights, terminals_of, zero_extension
from lib.messages.packets import Packet
from lib.messages.prompts import receiver_prompt
from lib.models.receiver import Receiver
from lib.seeds import hash_order
from lib.tasks.task import Split

RECEIVER_TEXT = "receiver that answers from what each reader says"

Node = tuple[int, str]  # (sender slot, packet type; empty where a whole route is one node)

VARIANTS: dict[str, SafeSieveSettings] = {
    "default": DEFAULT,
    "node_key=route": SafeSieveSettings(node_key="route"),
    "cut_weight=as_printed": SafeSieveSettings(cut_weight="as_printed"),
    "history_scale=raw": SafeSieveSettings(history_scale="raw"),
    "final_classes=r_max": SafeSieveSettings(final_classes="r_max"),
    "horizon=1": SafeSieveSettings(horizon=1.0),
}


class Channel(msgspec.Struct, frozen=True):
    """One channel to the receiver at the end of training.

    Parameters
    ----------
    slot, type : sender slot and packet type; the type is empty where a whole route is one node
    complement : how it completes the receiver, from the table, before quantising
    compatibility : S to the receiver
    credits : right answers it was there for
    history : C', its share of the surviving channels' credit on the scale of the settings
    score, level : fused score E, and E min-max scaled over the surviving channels; None where it was cut
    group : its terminal among the nodes, which are the channels in order and last the receiver; None where it was cut
    rank : admission class, 1 to 3
    cut_at : step at which it was cut; None where it survived
    """

    slot: int
    type: str
    complement: float
    compatibility: float
    credits: int
    history: float
    score: float | None
    level: float | None
    group: int | None
    rank: int
    cut_at: int | None


class SafeSieve(FrozenState, frozen=True, kw_only=True, tag="safesieve"):
    """SafeSieve after training.

    Parameters
    ----------
    settings : how it was trained
    channels : in the order of slot and type
    content_weight, credit_weight : of a packet's own compatibility and of its channel's history, at the last step
    threshold : at the last step
    encoder_sha256 : weights of the sentence embedder; empty for lexical overlap
    """

    settings: SafeSieveSettings
    channels: tuple[Channel, ...]
    content_weight: float
    credit_weight: float
    threshold: float
    encoder_sha256: str

    def select(self, task_query: str, packets: Sequence[Packet]) -> tuple[np.ndarray, np.ndarray]:
        """Return a score for each packet that puts class before class and fused score within, and whether it may be sent.

        A channel that training never saw has the mean share of credit and joins the group of most channels of its type.
        Where a task has packets of class 3 alone, these are sent after all.

        Returns
        -------
        scores : (n_packets,) higher first
        kept : (n_packets,) bool

        Raises
        ------
        BaselineError
            If the sentence embedder is not the one of training.
        """
        if not packets:
            return np.zeros(0), np.zeros(0, dtype=bool)
        if _encoder_sha256(self.settings) != self.encoder_sha256:
            raise BaselineError(
                f"{self.workload}, seed {self.seed}: encoder {self.settings.encoder!r} has other weights than in training; "
                "train SafeSieve again"
            )
        known = {(channel.slot, channel.type): channel for channel in self.channels}
        nodes = [node_of(packet, self.settings) for packet in packets]
        channels = {node: known.get(node) or self._unseen(node) for node in set(nodes)}
        # Packets go to an embedder in one order, whatever order they came in: batches decide its last digits.
        order = sorted(range(len(packets)), key=lambda place: packets[place].packet_id)
        similar = np.empty(len(packets))
        similar[order] = similarities(self.settings.encoder, task_query, [packets[place].content for place in order])
        fused, classes = np.empty(len(packets)), np.empty(len(packets), dtype=int)
        for place, node in enumerate(nodes):
            channel = channels[node]
            content = compatibility(float(similar[place]), channel.complement, self.settings.g)
            fused[place] = self.content_weight * content + self.credit_weight * channel.history
            classes[place] = channel.rank
        kept = classes < 3 if (classes < 3).any() else np.ones(len(packets), dtype=bool)
        return fused - (classes - 1) * (np.ptp(fused) + 1), kept

    def sizes(self) -> tuple[int, int]:
        """Return how many channels are in class 1 or 2, and how many there are."""
        return sum(channel.rank < 3 for channel in self.channels), len(self.channels)

    def _unseen(self, node: Node) -> Channel:
        """Return a neutral channel for a node that no profile task had."""
        alive = [channel for channel in self.channels if channel.cut_at is None]
        complement = (
            TO_RECEIVER.get(node[1], NEUTRAL) if node[1] else float(np.mean([one.complement for one in self.channels]))
        )
        compatible = _to_receiver([node], [complement], self.settings)[0]
        history = float(
            np.mean([channel.history for channel in alive])
        )  # on the default scale 1, if there is any credit
        score = self.content_weight * compatible + self.credit_weight * history
        groups = Counter(channel.group for channel in alive if channel.type == node[1])
        groups = groups or Counter(channel.group for channel in alive)
        group = min(groups, key=lambda one: (-groups[one], one))
        scores = [channel.score for channel in alive if channel.score is not None]
        level = float(normalised(np.clip(np.array([score, min(scores), max(scores)]), min(scores), max(scores)))[0])
        rank = int(_classes(np.array(group == len(self.channels)), np.array(level), self.threshold))
        if self.settings.final_classes == "r_max":
            rank = min(rank, 2)  # what training never saw it cannot have cut
        return Channel(*node, complement, compatible, 0, history, score, level, group, rank, None)


def node_of(packet: Packet, settings: SafeSieveSettings) -> Node:
    """Return the node of a packet."""
    return packet.slot, packet.type if settings.node_key == "channel" else ""


def train_safesieve(
    receiver: Receiver,
    traffics: Mapping[str, Traffic],
    splits: Splits,
    utility: Utility,
    *,
    settings: SafeSieveSettings = DEFAULT,
    render: Render = receiver_prompt,
    max_tokens: int = 256,
) -> dict[tuple[str, int], SafeSieve]:
    """Train SafeSieve on the profile tasks of every workload and seed, side by side.

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
    One context a profile task. The channels change at cuts alone, so the tasks between two cuts are asked together.
    """
    learners = {
        (name, seed): safesieve_learner(traffic, split, settings)
        for name, traffic in traffics.items()
        for seed, split in splits[name].items()
    }
    return learn_together(receiver, learners, utility, render=render, max_tokens=max_tokens)


def safesieve_learner(traffic: Traffic, split: Split, settings: SafeSieveSettings = DEFAULT) -> Learner[SafeSieve]:
    """Return a learner for `learn_together` that sees the profile tasks of one split and nothing else."""
    return _learn(traffic.workload, split.seed, profile_jobs(traffic, split), settings)


def _learn(workload: str, seed: int, jobs: Sequence[Job], settings: SafeSieveSettings) -> Learner[SafeSieve]:
    by_id = {task.id: (task, packets) for task, packets in jobs}
    order = hash_order(by_id, "safesieve", seed)
    sieve = _Sieve([packet for _, packets in jobs for packet in packets], len(order), settings)
    contexts = failed = step = 0
    while step < len(order):
        last = min(sieve.next_cut(step), len(order))
        alive = sieve.alive_nodes()
        spoken = [
            (task, [packet for packet in packets if node_of(packet, settings) in alive])
            for task, packets in (by_id[task_id] for task_id in order[step:last])
        ]
        asked: list[Job] = [(task, sent) for task, sent in spoken if sent]
        outcomes = yield asked
        for (_, sent), outcome in zip(asked, outcomes, strict=True):
            if outcome["task_utility"] is None:
                failed += 1
            elif outcome["task_utility"] >= settings.correct:
                sieve.credit({node_of(packet, settings) for packet in sent})
        contexts += len(asked)
        step = last
        if step == sieve.next_cut(step - 1):
            sieve.cut(step)
    return sieve.frozen(step, workload=workload, seed=seed, contexts=contexts, failed=failed)


class _Sieve:
    """The channels of one workload during training."""

    def __init__(self, packets: Sequence[Packet], steps: int, settings: SafeSieveSettings) -> None:
        self.settings = settings
        types: dict[Node, set[str]] = {}
        for packet in packets:
            types.setdefault(node_of(packet, settings), set()).add(packet.type)
        self.nodes = sorted(types)
        # A route carries several types: it completes the receiver as they do on average.
        self.complement = [
            math.fsum(TO_RECEIVER.get(kind, NEUTRAL) for kind in types[node]) / len(types[node]) for node in self.nodes
        ]
        self.compatible = np.array(_to_receiver(self.nodes, self.complement, settings))
        self.between = _between(self.nodes, settings)
        self.credits = np.zeros(len(self.nodes), dtype=int)
        self.cut_at: list[int | None] = [None] * len(self.nodes)
        self.gain = 1.0  # what cuts have done to the weight of credit
        self.horizon = math.ceil(_exact(settings.horizon) * steps)
        self.warm_up = math.floor(_exact(settings.warm_up) * self.horizon)
        self.interval = max(1, math.floor(_exact(settings.interval) * self.horizon))

    @property
    def alive(self) -> np.ndarray:
        return np.array([step is None for step in self.cut_at])

    def alive_nodes(self) -> set[Node]:
        return {node for node, step in zip(self.nodes, self.cut_at, strict=True) if step is None}

    def next_cut(self, step: int) -> int:
        """Return the first step after `step` at which channels are cut."""
        later = max(step + 1, self.warm_up)
        return -(-later // self.interval) * self.interval

    def credit(self, nodes: Collection[Node]) -> None:
        self.credits += np.array([node in nodes for node in self.nodes])

    def weights(self, step: int) -> tuple[float, float]:
        """Return the weights of compatibility and credit at a step, after what the cuts so far have done to the latter."""
        content, credit = fusion_weights(step / self.horizon, self.settings)
        return content, min(max(self.gain * credit, self.settings.b0), 2 * self.settings.b_max)

    def history(self) -> np.ndarray:
        """Return C' of every channel, (n_channels,), relative to the credit of the surviving ones."""
        alive = self.alive
        shares = credit_shares(self.credits[alive], int(alive.sum()) + 1, self.settings.history_scale)
        out = np.zeros(len(self.nodes))
        out[alive] = shares
        return out

    def look(self, step: int) -> _View:
        """Return where every channel stands at a step."""
        alive, receiver = self.alive, len(self.nodes)
        content, credit = self.weights(step)
        scores = content * self.compatible + credit * self.history()
        levels, groups = np.full(receiver, math.nan), np.full(receiver, -1)
        levels[alive] = normalised(scores[alive])
        # Channels send nothing to each other, so between them there is compatibility and no credit.
        graph = np.zeros((receiver + 1, receiver + 1))
        graph[:-1, :-1], graph[:-1, -1] = content * self.between, scores
        nodes = np.append(np.flatnonzero(alive), receiver)
        graph = graph[np.ix_(nodes, nodes)]
        terminals = terminals_of(graph, forced=[len(nodes) - 1])
        groups[alive] = nodes[zero_extension(cut_weights(graph, self.settings.cut_weight), terminals)[:-1]]
        limit = threshold(step / self.horizon, self.settings)
        return _View(scores, levels, groups, _classes(groups == receiver, levels, limit))

    def room(self) -> int:
        """Return how many more channels may be cut, so that the share cut stays below `r_max`."""
        return max(0, math.ceil(_exact(self.settings.r_max) * len(self.nodes)) - 1 - int((~self.alive).sum()))

    def cut(self, step: int) -> None:
        """Cut the channels of class 3, weakest first, and of the rest as many as the quota lacks, while there is room."""
        view = self.look(step)
        weak, rest = self._weakest(view, view.classes == 3), self._weakest(view, view.classes < 3)
        quota = math.ceil(_exact(self.settings.quota) * len(self.nodes))
        chosen = [*weak, *rest[: max(0, quota - len(weak))]][: self.room()]
        before = view.scores[self.alive].mean()
        for place in chosen:
            self.cut_at[place] = step
        if chosen:
            # The weight of credit follows the mean score before the cut over that after it.
            self.gain *= float(before / (view.scores[self.alive].mean() + EPSILON))

    def frozen(self, step: int, **head: Any) -> SafeSieve:
        """Return the state after the last step."""
        view, history, alive = self.look(step), self.history(), self.alive
        classes = view.classes.copy()
        if self.settings.final_classes == "r_max":
            classes[self._weakest(view, classes == 3)[self.room() :]] = 2
        channels = tuple(
            Channel(
                *node,
                complement=self.complement[place],
                compatibility=float(self.compatible[place]),
                credits=int(self.credits[place]),
                history=float(history[place]),
                score=float(view.scores[place]) if alive[place] else None,
                level=float(view.levels[place]) if alive[place] else None,
                group=int(view.groups[place]) if alive[place] else None,
                rank=int(classes[place]),
                cut_at=self.cut_at[place],
            )
            for place, node in enumerate(self.nodes)
        )
        content, credit = self.weights(step)
        return SafeSieve(
            **head,
            settings=self.settings,
            channels=channels,
            content_weight=content,
            credit_weight=credit,
            threshold=threshold(step / self.horizon, self.settings),
            encoder_sha256=_encoder_sha256(self.settings),
        )

    def _weakest(self, view: _View, chosen: np.ndarray) -> list[int]:
        """Return the surviving channels among `chosen`, lowest score first, ties in channel order."""
        places = np.flatnonzero(chosen & self.alive)
        return places[np.argsort(np.round(view.scores[places], DIGITS), kind="stable")].tolist()


class _View(NamedTuple):
    """Scores, scaled scores, groups and classes of all channels at a step, each (n_channels,)."""

    scores: np.ndarray
    levels: np.ndarray
    groups: np.ndarray
    classes: np.ndarray


def _classes(with_receiver: np.ndarray, levels: np.ndarray, limit: float) -> np.ndarray:
    """Return 1 for channels in the receiver's group, 2 for others at the threshold or above, 3 for the rest and those cut."""
    high = np.round(levels, DIGITS) >= round(limit, DIGITS)  # False for the NaN of a channel that was cut
    return np.where(with_receiver, 1, np.where(high, 2, 3))


def _encoder_sha256(settings: SafeSieveSettings) -> str:
    return embedder(settings.encoder).sha256 if settings.encoder else ""


def _role(node: Node) -> str:
    slot, kind = node
    return f"{kind} from reader {slot}" if kind else f"reader {slot}"


def _to_receiver(nodes: Sequence[Node], complement: Sequence[float], settings: SafeSieveSettings) -> list[float]:
    """Return the compatibility of each node with the receiver."""
    near = similarities(settings.encoder, RECEIVER_TEXT, [_role(node) for node in nodes])
    return [compatibility(float(value), x, settings.g) for value, x in zip(near, complement, strict=True)]


def _between(nodes: Sequence[Node], settings: SafeSieveSettings) -> np.ndarray:
    """Return the compatibility of each pair of channels, once a pair, above the diagonal."""
    roles, out = [_role(node) for node in nodes], np.zeros((len(nodes), len(nodes)))
    for first, node in enumerate(nodes):
        near = similarities(settings.encoder, roles[first], roles[first + 1 :])
        for second, value in enumerate(near, start=first + 1):
            out[first, second] = compatibility(float(value), complementarity(node[1], nodes[second][1]), settings.g)
    return out


def _exact(share: float) -> Fraction:
    """Return a setting as the decimal it prints as, so that 0.05 of 60 is 3 and its ceiling not 4."""
    return Fraction(str(share))
