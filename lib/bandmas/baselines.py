"""What the two reproduced baselines share: training in common receiver calls, and a frozen state in a file.

A baseline learns from outcomes of profile tasks that no replay has asked: which context comes next depends on what
was learned so far. It is therefore written as a *learner*, a generator that yields the contexts it wants answered and
receives their outcomes. `learn_together` runs the learners of all workloads, seeds and variants side by side: in each
round everything they ask goes to the receiver in one call, and no context is asked twice.

What a learner returns is a `FrozenState`: plain values with a fingerprint, written and read back before any final task
is scheduled. It chooses packets from the question and the packets alone.

Not covered: the methods themselves (`lib.bandmas.agentprune`, `lib.bandmas.safesieve`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pandas as pd

from lib.bandmas.replay import Job, Outcome, Render, Utility, check_jobs, outcome_of
from lib.bandmas.study import Fitted
from lib.bandmas.traffic import Traffic
from lib.messages.corpus import write_whole
from lib.messages.packets import Packet
from lib.models.receiver import Receiver
from lib.tasks.task import Split

State = TypeVar("State", bound="FrozenState")
Key = TypeVar("Key")
Learner = Generator[list[Job], list[Outcome], State]  # yields contexts, is sent their outcomes, returns its state


class BaselineError(ValueError):
    """A baseline that cannot be trained or loaded; the text names the field, the workload or the file."""


class FrozenState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="policy"):
    """A trained baseline as plain values.

    Parameters
    ----------
    workload, seed : the split it was trained on
    contexts : contexts it asked for; those that another learner had asked already cost nothing
    failed : contexts among them without an answer; nothing was learned from these
    """

    workload: str
    seed: int
    contexts: int
    failed: int

    def select(self, task_query: str, packets: Sequence[Packet]) -> tuple[np.ndarray, np.ndarray]:
        """Return a score for each packet of one task, and whether it may be sent at all, both (n_packets,)."""
        raise NotImplementedError

    def sizes(self) -> tuple[int, int]:
        """Return how many edges were left after pruning, and how many there were."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return the SHA-256 of the state, hexadecimal: recorded before final tasks are scheduled."""
        return hashlib.sha256(self._json()).hexdigest()

    def save(self, path: Path | str) -> Path:
        """Write the state as JSON, whole or not at all, and return the path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, self._json())
        return path

    @classmethod
    def load(cls: type[State], path: Path | str) -> State:
        """Read a state written by `save`; it chooses and fingerprints as the saved one."""
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except FileNotFoundError:
            raise BaselineError(f"{path}: no such file; train and save the baseline first") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BaselineError(f"{path}: not a saved {cls.__name__} ({error}); train and save it again") from None

    def _json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def check_choices(settings: msgspec.Struct, method: str) -> None:
    """Refuse a value that is none of the names its field may have.

    Raises
    ------
    BaselineError
        Naming the method, the field and the names.
    """
    for field, kind in get_type_hints(type(settings)).items():
        names = get_args(kind)
        if get_origin(kind) is Literal and getattr(settings, field) not in names:
            raise BaselineError(
                f"{method}: {field} must be one of {', '.join(names)}, not {getattr(settings, field)!r}"
            )


def profile_jobs(traffic: Traffic, split: Split) -> list[Job]:
    """Return (task, packets) of the profile tasks of a split that have packets: all that a baseline may learn from.

    Raises
    ------
    BaselineError
        If there is none.
    """
    jobs = [job for job in traffic.jobs(split.profile) if job[1]]
    if not jobs:
        raise BaselineError(f"{traffic.workload}, seed {split.seed}: no profile task has packets; take more tasks")
    check_jobs(jobs, split.profile)
    return jobs


def learn_together(
    receiver: Receiver,
    learners: Mapping[Key, Learner[State]],
    utility: Utility,
    *,
    render: Render,
    max_tokens: int = 256,
) -> dict[Key, State]:
    """Run learners to their end; what all of them ask in one round is one receiver call.

    Parameters
    ----------
    receiver : answers prompts in order
    learners : fresh learners by any name
    utility : scores a raw reply of a task
    render, max_tokens : as in `replay_outcomes`

    Returns
    -------
    dict from name to what the learner returned, in the order of `learners`
    """
    answers: dict[tuple[str, tuple[str, ...]], Outcome] = {}
    waiting: dict[Key, list[Job]] = {}
    done: dict[Key, State] = {}

    def advance(key: Key, outcomes: Any) -> None:
        waiting.pop(key, None)
        try:
            waiting[key] = learners[key].send(outcomes)
        except StopIteration as end:
            done[key] = end.value

    for key in learners:
        advance(key, None)
    while waiting:
        asked = {_context_key(job): job for jobs in waiting.values() for job in jobs}
        # Contexts of a task stand together, larger sets first, so that a receiver can share their beginnings.
        fresh = sorted((key for key in asked if key not in answers), key=lambda key: (key[0], -len(key[1]), key[1]))
        prompts = [render(*asked[key]) for key in fresh]
        replies = receiver.reply(prompts, max_tokens=max_tokens) if prompts else []
        for context, reply in zip(fresh, replies, strict=True):
            answers[context] = outcome_of(context[0], reply, utility)
        for name, jobs in list(waiting.items()):
            advance(name, [answers[_context_key(job)] for job in jobs])
    return {key: done[key] for key in learners}


def baseline_table(fits: Sequence[Fitted]) -> pd.DataFrame:
    """Return one row a fit and baseline.

    Returns
    -------
    DataFrame with ``workload``, ``seed``, ``policy``, ``contexts`` and ``failed`` (asked in training), ``edges_kept``
    and ``edges``, ``fingerprint``
    """
    rows = []
    for fit in fits:
        for policy, state in fit.baselines.items():
            kept, edges = state.sizes()
            head = {"workload": fit.workload, "seed": fit.seed, "policy": policy}
            counts = {"contexts": state.contexts, "failed": state.failed, "edges_kept": kept, "edges": edges}
            rows.append({**head, **counts, "fingerprint": fit.baseline_fingerprints[policy]})
    columns = ["workload", "seed", "policy", "contexts", "failed", "edges_kept", "edges", "fingerprint"]
    return pd.DataFrame(rows, columns=columns)


def _context_key(job: Job) -> tuple[str, tuple[str, ...]]:
    return job[0].id, tuple(sorted(packet.packet_id for packet in job[1]))
