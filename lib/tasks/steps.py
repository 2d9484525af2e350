"""A step of a task: what is known where, what may be chosen, and, apart from it, what counts as right.

Context
-------
Receiver-relative coordination judges a message at the receiver's next decision: one action on one artifact (a file, a
tool). A step holds what the receiver sees itself, what a sender sees beyond it, and the candidates that both are shown.

Gold lives in its own object. Senders, receivers and selectors are given a `Step`, which has no field for it; only scoring
is given a `StepGold`.

Intuition
---------
The names to choose from are the same in every arm and stand in an order made by hash, as do the actions. So a receiver
that always takes the first name is right once in as many steps as there are names, and position says nothing.

How to read the result
----------------------
Steps of one instance depend on each other: an interval over steps has to resample instances. `check_gold` says what
gold scores (1), what wrong pairs score (0), and what the first names of the lists and the best constant pair score: no
accuracy means much that is not above these.

Not covered: how a record becomes steps (one module a family, and its card in ``data/cards``); scores of replies
(`lib.coordination.scoring`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from itertools import product
from typing import Any

import msgspec

from lib.seeds import digest, hash_order
from lib.tasks.loaders import check_limit, find_loader
from lib.tasks.task import WorkloadError

ACTIONS = ("edit", "create", "delete", "run_test", "read", "configure")
"""The six types of action of the paper's protocol."""

_WRONG = ("qqxxnothingqqxx", "qqxxnothingqqxx")  # names that no step offers


class Step(msgspec.Struct, frozen=True):
    """One decision of a receiver.

    Parameters
    ----------
    id : ``instance/step``, unique within its family
    family : name of the benchmark family
    instance_id : the task instance that the step belongs to; steps of an instance are dependent
    index : place of the step in its instance, 0-based
    local_view : what the receiver sees without a message
    context : what a sender sees beyond the local view
    actions : names of the actions to choose from
    artifacts : names of the artifacts to choose from, in an order that says nothing about which is right
    version : version of the family's data and of the mapping to steps
    """

    id: str
    family: str
    instance_id: str
    index: int
    local_view: str
    context: str
    actions: tuple[str, ...]
    artifacts: tuple[str, ...]
    version: str


class StepGold(msgspec.Struct, frozen=True):
    """What counts as right at a step: a set of acceptable (artifact, action) pairs. For scoring alone."""

    step_id: str
    pairs: tuple[tuple[str, str], ...]


class StepSet(msgspec.Struct, frozen=True):
    """Steps of one family and, apart from them, their gold by step id."""

    name: str
    version: str
    steps: tuple[Step, ...]
    gold: dict[str, StepGold]


Pair = tuple[Step, StepGold]


class GoldCheck(msgspec.Struct, frozen=True):
    """What fixed ways of choosing score on a whole set, as shares of its steps.

    Parameters
    ----------
    steps, instances : how many there are
    gold_share : every acceptable pair can be chosen and counts; 1 in a sound set
    wrong_share : a constant wrong pair counts; 0 in a sound set
    first_share : the first artifact of the list is acceptable
    constant_share : the pair that is acceptable most often, chosen at every step
    failures : ids of the steps that are off, or accept whatever can be chosen
    """

    steps: int
    instances: int
    gold_share: float
    wrong_share: float
    first_share: float
    constant_share: float
    failures: tuple[str, ...]


# ------------------------------------------------------------------------------------------------------------------------------ loading

_LOADERS = {
    "shared_episodes": ("lib.tasks.shared_episodes", "load"),
    "bfcl": ("lib.tasks.bfcl", "load"),
    "bfcl_multi_turn": ("lib.tasks.bfcl", "load_multi_turn"),
    "tau_bench": ("lib.tasks.tau", "load"),
    "tau2": ("lib.tasks.tau", "load_tau2"),
    "toolsandbox": ("lib.tasks.toolsandbox", "load"),
    "contextbench": ("lib.tasks.contextbench", "load"),
    "swebench_lite": ("lib.tasks.swebench", "load"),
    "repobench": ("lib.tasks.repoeval", "load_repobench"),
    "repoeval": ("lib.tasks.repoeval", "load"),
}

FAMILIES = tuple(_LOADERS)
"""Names that `load_steps` knows."""


def load_steps(name: str, limit: int | None = None, seed: int = 0, **knobs: Any) -> StepSet:
    """Load or generate the steps of a family.

    Parameters
    ----------
    name
        One of `FAMILIES`.
    limit
        At most this many instances with all their steps, drawn by hash; a smaller draw is the beginning of a larger one. None takes
        all, in the order of the data file.
    seed
        Names that draw; of a generated family also what is generated. Without a limit it leaves a family read from files as it is.
    knobs
        Knobs of the family: ``path`` (data file or folder; None asks `lib.sources`), or what an episode is made with.

    Raises
    ------
    WorkloadError
        Unknown name or knob, a limit below 1, or data that cannot be used; the message says what would work.
    SourceError
        The data set is not there; the message names the file and the fix.
    """
    loader, parameters = find_loader("steps", name, _LOADERS, knobs, what="step family")
    check_limit("steps", name, limit)
    if "limit" in parameters:
        return build_steps(name, loader(limit=limit, seed=seed, **knobs))
    pairs = loader(**knobs)
    return build_steps(name, pairs if limit is None else _drawn(pairs, limit, name, seed))


def build_steps(name: str, pairs: Iterable[Pair]) -> StepSet:
    """Return a step set whose version carries a digest of its content.

    Raises
    ------
    WorkloadError
        No step; an id that repeats or is not ``instance/index``; gold of another step, without a pair, or with one that cannot be
        chosen; a name that stands twice among the artifacts.
    """
    steps: list[Step] = []
    gold: dict[str, StepGold] = {}
    for step, right in pairs:
        if step.id in gold:
            raise WorkloadError(f"steps {name}: id {step.id!r} appears twice; ids must be unique")
        if step.id != f"{step.instance_id}/{step.index}":
            raise WorkloadError(f"steps {name}: id {step.id!r} is not '<instance_id>/<index>'")
        if right.step_id != step.id:
            raise WorkloadError(f"steps {name}: gold of {right.step_id!r} was given for step {step.id!r}")
        if len(set(step.artifacts)) != len(step.artifacts):
            raise WorkloadError(f"steps {name}: {step.id}: 'artifacts' holds a name twice")
        bad = [pair for pair in right.pairs if pair[0] not in step.artifacts or pair[1] not in step.actions]
        if bad or not right.pairs:
            raise WorkloadError(f"steps {name}: {step.id}: gold pairs {bad or 'none'} cannot be chosen at this step")
        steps.append(step)
        gold[step.id] = right
    if not steps:
        raise WorkloadError(f"steps {name}: no step; is this the right file?")
    content = digest(json.loads(msgspec.json.encode([steps, list(gold.values())])))
    return StepSet(name, f"{steps[0].version}+{content[:12]}", tuple(steps), gold)


def accepts(gold: StepGold, artifact: str | None, action: str | None) -> bool:
    """Say whether a decision is one of the acceptable pairs, names compared as they are."""
    return (artifact, action) in gold.pairs


def check_gold(steps: StepSet) -> GoldCheck:
    """Score gold pairs, a constant wrong pair, first names and the best constant pair on every step of a set."""
    failures: list[str] = []
    right = wrong = first = 0
    constant: Counter[tuple[str, str]] = Counter()
    for step in steps.steps:
        gold = steps.gold[step.id]
        accepted = [pair for pair in product(step.artifacts, step.actions) if accepts(gold, *pair)]
        found, other = set(accepted) == set(gold.pairs), accepts(gold, *_WRONG)
        right, wrong = right + found, wrong + other
        first += any(artifact == step.artifacts[0] for artifact, _ in gold.pairs)
        constant.update(accepted)
        if not found or other or len(accepted) == len(step.artifacts) * len(step.actions):
            failures.append(step.id)
    count = len(steps.steps)
    return GoldCheck(
        steps=count,
        instances=len({step.instance_id for step in steps.steps}),
        gold_share=right / count,
        wrong_share=wrong / count,
        first_share=first / count,
        constant_share=max(constant.values()) / count,
        failures=tuple(failures),
    )


def _drawn(pairs: list[Pair], limit: int, name: str, seed: int) -> list[Pair]:
    instances: dict[str, list[Pair]] = {}
    for pair in pairs:
        instances.setdefault(pair[0].instance_id, []).append(pair)
    return [pair for instance in hash_order(instances, "steps", name, seed)[:limit] for pair in instances[instance]]
