"""What a notebook's parameters name that has to be here, and how many tasks they mean.

Context
-------
A plan must not fetch anything, and must not go through thousands of tasks to count what they ask. So it looks which data sets
and embedders are on this machine, and takes a few tasks where many are wanted.

Intuition
---------
Three parameters name where tasks come from, and each has one that counts them (`POOLS`). A pool that is not here is left out and named;
without any there is nothing to rehearse. What is asked grows by a straight line with the number of tasks, so two small numbers
of tasks give the line.

Not covered: models, which a plan can do without (`lib.models.unloaded`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lib.sources import available, catalogue

POOLS = {"workload": "tasks", "workloads": "tasks", "question_sets": "questions", "families": "instances"}
SAMPLES = {"tasks": (8, 16), "questions": (2, 4), "instances": (2, 4)}  # small and large rehearsal
FASTER = {"resamples": 200}  # parameters that cost a rehearsal time and change no question
_SOURCES = {"bfcl_multi_turn": "bfcl"}  # family -> name in data/sources.toml, where they differ


class Inputs(msgspec.Struct, frozen=True):
    """What a notebook gets to work on here.

    Parameters
    ----------
    missing : name -> what to do, for data sets and embedders that are not here
    parameters : with the missing pools left out; None where nothing is left to rehearse with
    share : pools here over pools wanted
    counter : parameter that counts tasks; empty where the notebook has none
    wanted : tasks a pool, the mean of what the pools here have; 0 without a counter
    """

    missing: dict[str, str]
    parameters: dict[str, Any] | None
    share: float
    counter: str
    wanted: float

    def sizes(self) -> tuple[int, int] | None:
        """Return the two numbers of tasks of the rehearsals; None where all tasks are few enough."""
        if not self.counter or self.wanted <= SAMPLES[self.counter][1]:
            return None
        return SAMPLES[self.counter]

    def rehearsed(self, tasks: int | None) -> dict[str, Any]:
        """Return the parameters of a rehearsal with this many tasks; None takes them all."""
        parameters = dict(self.parameters or {})
        if tasks is not None:
            parameters[self.counter] = tasks
        return parameters | {name: min(parameters[name], value) for name, value in FASTER.items() if name in parameters}


def inputs_of(parameters: Mapping[str, Any]) -> Inputs:
    """Look which inputs of a notebook are here, and count its tasks."""
    pool = next((name for name in POOLS if name in parameters), "")
    named = parameters.get(pool, [])
    names = [named] if isinstance(named, str) else list(named)
    missing = {name: remedy for name in names if (remedy := _remedy(_SOURCES.get(_base(name), _base(name))))}
    here = [name for name in names if name not in missing]
    embedder = str(parameters.get("embedder", ""))
    unread = _remedy(embedder)
    if unread:
        missing[embedder] = unread
    left: dict[str, Any] | None = dict(parameters)
    if unread or (names and not here):
        left = None
    elif pool and not isinstance(named, str):
        left = {**parameters, pool: here}
    counter = POOLS[pool] if pool and POOLS[pool] in parameters else ""
    wanted = 0.0
    if counter and left is not None:
        asked = parameters[counter]
        limits = asked if isinstance(asked, Mapping) else dict.fromkeys(here, asked)
        wanted = sum(_tasks(counter, name, int(limits[name])) for name in here if name in limits) / len(here)
    return Inputs(missing, left, len(here) / len(names) if names else 1.0, counter, wanted)


def _base(name: str) -> str:
    return name.partition(":")[0]


def _remedy(name: str) -> str:
    """Return what to do about a source that is not here; empty where it is, or is none."""
    entry = catalogue().get(name)
    if entry is None or entry.kind == "generated" or available(name):
        return ""
    if entry.files:
        return f"python -m lib data {name}  ({entry.size / 1e6:.0f} MB)"
    return f"put your copy where data/cards/{entry.card} says, or set LAB_DATA"


def _tasks(counter: str, name: str, limit: int) -> int:
    """Return how many tasks a pool gives under a limit; 0 is no limit where the notebook says so."""
    from lib.tasks.questions import load_questions
    from lib.tasks.registry import load_workload
    from lib.tasks.step_families import load_families

    if counter == "tasks":
        # Generated tasks never run out.
        return limit if name.startswith("worlds_") else len(load_workload(name, limit=limit).tasks)
    if counter == "questions":
        return len(load_questions(name, limit or None).questions)
    return len({step.instance_id for step in load_families([name], limit or None)[name].steps})
