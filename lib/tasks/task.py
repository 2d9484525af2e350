"""What is asked: tasks, their sources, and the gold answers that live apart from them.

A `Task` is everything an agent, a packetizer, a scorer of packets or a scheduler may see. A `Gold` is what only the metrics may
see. The two types share nothing but the task id, so a function that takes a `Task` cannot leak an outcome.

Not covered: loading (one module per family), scoring of replies (`lib.tasks.scoring`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from lib.seeds import digest, hash_order

EvidenceId = tuple[str, int | None]
"""(source id, sentence index), or (page title, None) where a whole page is the evidence."""

Kind = Literal["verification", "bridge", "fanout"]

LABELS = ("SUPPORT", "CONTRADICT", "NOT_ENOUGH_INFO")
"""The labels of a verification task, in the order every prompt and table uses."""


class WorkloadError(ValueError):
    """A workload cannot be built as asked; the message names the file or knob and the fix."""


class Source(msgspec.Struct, frozen=True):
    """One short document, given to one reader.

    Parameters
    ----------
    id
        Public id that messages and replies cite (document id, title or page title); unique within a task.
    title
        Title shown to the reader.
    sentences
        Sentences in reading order; index i is shown as ``[Si]``.
    note
        Provenance, for example ``"annotation-derived"``; empty for text that is verbatim.
    """

    id: str
    title: str
    sentences: tuple[str, ...]
    note: str = ""


class Task(msgspec.Struct, frozen=True):
    """One question and the sources that hold its answer; slot i = ``sources[i]`` = reader i. No gold in here."""

    id: str
    family: str
    kind: Kind
    query: str
    sources: tuple[Source, ...]
    version: str


class Gold(msgspec.Struct, frozen=True):
    """The gold answer and evidence of one task, for metrics alone.

    Parameters
    ----------
    task_id
        Id of the task.
    label
        One of `LABELS` for verification tasks, else None.
    answer
        Text, list, dict, number or bool; for verification tasks the label again.
    evidence
        Evidence ids, in the order of the annotation.
    """

    task_id: str
    label: str | None
    answer: Any
    evidence: tuple[EvidenceId, ...]


class Workload(msgspec.Struct, frozen=True):
    """A named, versioned set of tasks with its gold beside it."""

    name: str
    version: str
    tasks: tuple[Task, ...]
    gold: dict[str, Gold]


class Split(msgspec.Struct, frozen=True):
    """Three disjoint sets of task ids that cover a pool, for one seed."""

    seed: int
    profile: tuple[str, ...]
    validation: tuple[str, ...]
    final: tuple[str, ...]


def build_workload(name: str, version: str, pairs: Iterable[tuple[Task, Gold]]) -> Workload:
    """Return a workload whose version carries a digest of its content.

    Parameters
    ----------
    name
        Workload name, as in `load_workload`.
    version
        Version of the loader's rules, for example ``"worlds-1"``.
    pairs
        Tasks with their gold, in order.

    Returns
    -------
    Workload
        Its ``version`` is ``"<version>+<12 hex digits>"``; two workloads of equal version hold equal tasks and gold.

    Raises
    ------
    WorkloadError
        If a task id or a source id inside a task repeats, or a gold belongs to another task.
    """
    tasks: list[Task] = []
    gold: dict[str, Gold] = {}
    for task, answer in pairs:
        if task.id in gold:
            raise WorkloadError(f"workload {name}: task id {task.id!r} appears twice; ids must be unique")
        if answer.task_id != task.id:
            raise WorkloadError(f"workload {name}: gold of {answer.task_id!r} was given for task {task.id!r}")
        ids = [source.id for source in task.sources]
        if len(set(ids)) != len(ids):
            raise WorkloadError(
                f"workload {name}: task {task.id!r} has two sources with the same id; give each its own"
            )
        tasks.append(task)
        gold[task.id] = answer
    # msgspec's own encoder keeps field order and never sorts keys, so the digest follows content and order exactly.
    content = digest(json.loads(msgspec.json.encode([tasks, list(gold.values())])))
    return Workload(name=name, version=f"{version}+{content[:12]}", tasks=tuple(tasks), gold=gold)


def split_tasks(task_ids: Iterable[str], seed: int, shares: Sequence[float] = (0.4, 0.2, 0.4)) -> Split:
    """Split a pool into profile, validation and final parts by SHA-256 of (seed, task id).

    Parameters
    ----------
    task_ids
        Pool of unique ids; their order does not matter.
    seed
        Split seed. The same task may be final under two seeds.
    shares
        Shares of profile, validation and final; they sum to 1. The first and last are rounded half up, validation takes the rest.

    Returns
    -------
    Split
        Disjoint, and together the whole pool. 400 tasks give 160 / 80 / 160, 245 give 98 / 49 / 98.

    Notes
    -----
    Source: BANDMAS specification, section 1.
    """
    pool = list(task_ids)
    if len(set(pool)) != len(pool):
        raise WorkloadError("split_tasks: task ids repeat; a task in two parts would leak outcomes")
    if len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise WorkloadError(
            f"split_tasks: shares must be three non-negative numbers that sum to 1, got {tuple(shares)}"
        )
    order = hash_order(pool, "split", seed)
    n_profile = min(len(order), int(shares[0] * len(order) + 0.5 + 1e-9))
    n_final = min(len(order) - n_profile, int(shares[2] * len(order) + 0.5 + 1e-9))
    n_validation = len(order) - n_profile - n_final
    return Split(
        seed=seed,
        profile=tuple(order[:n_profile]),
        validation=tuple(order[n_profile : n_profile + n_validation]),
        final=tuple(order[n_profile + n_validation :]),
    )
