"""Run several teams side by side: what they wait for at the same time is asked in one call.

Context
-------
A comparison runs the same questions in several arms, on several graphs, with and without an attack. None of these runs hears of
another one, so nothing but habit makes them wait for each other (the paper runs one question at a time).

Intuition
---------
A local model reads all its weights for every token that it writes, whether for two replies or for forty. So the number of
calls decides how long a study takes, and a call with more prompts in it is nearly free. A run of teams is therefore a generator: it
yields what it needs next, replies or merges, and goes on when it is handed them. `in_step` holds many such runs, puts alike
requests together, and serves merges before replies, so that a team that had to merge is asked in the same call as the others.
What two arms ask in the same words, as all arms do in their first wave, stands in one call and is computed once there.

How to read the result
----------------------
Each run gets the prompts, candidates and order it would get alone: only the company of a prompt changes. With a receiver whose replies
do not depend on their company, as the rule-made ones, the records are the same, seconds apart (`tests/moc/test_waves.py`). A real
model adds its numbers in an order that hangs on the batch, so that a near tie may fall the other way (`lib.moc.spread.ask_again`).

Not covered: requests of unlike caps, temperatures or receivers, which are separate calls.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from lib.moc.calls import Outcome, ask
from lib.moc.consolidate import Consolidation, consolidate_many
from lib.moc.distill import Distiller, Embed, Item
from lib.moc.length import CountTokens
from lib.moc.record import TeamRun
from lib.models.receiver import Prompt, Receiver


class Replies(msgspec.Struct, frozen=True):
    """A request for a reply to each prompt; answered by a list of `Outcome`. Parameters as in `lib.moc.calls.ask`."""

    receiver: Receiver
    prompts: Sequence[Prompt]
    max_tokens: int
    temperature: float
    tries: int

    @property
    def kind(self) -> Hashable:
        """What requests must have in common to be one call."""
        return id(self.receiver), self.max_tokens, self.temperature, self.tries

    def served(self, prompts: Sequence[Prompt]) -> list[Outcome]:
        """Ask `prompts`, those of all requests of this kind."""
        options: dict[str, Any] = {"max_tokens": self.max_tokens, "temperature": self.temperature, "tries": self.tries}
        return ask(self.receiver, prompts, **options)

    @property
    def parts(self) -> Sequence[Prompt]:
        """What is asked for, one by one."""
        return self.prompts


class Merges(msgspec.Struct, frozen=True):
    """A request to merge the messages of agents over their budget; answered by a list of `Consolidation`.

    Parameters as in `lib.moc.consolidate.consolidate_many`.
    """

    jobs: Sequence[tuple[Sequence[Item], int]]
    embed: Embed
    distiller: Distiller
    count_tokens: CountTokens
    epsilon: float
    kappa: float

    @property
    def kind(self) -> Hashable:
        """What requests must have in common to be one call."""
        return self.embed, id(self.distiller), self.count_tokens, self.epsilon, self.kappa

    def served(self, jobs: Sequence[tuple[Sequence[Item], int]]) -> list[Consolidation]:
        """Merge `jobs`, those of all requests of this kind."""
        tools: dict[str, Any] = {"embed": self.embed, "distiller": self.distiller, "count_tokens": self.count_tokens}
        return consolidate_many(jobs, epsilon=self.epsilon, kappa=self.kappa, **tools)

    @property
    def parts(self) -> Sequence[tuple[Sequence[Item], int]]:
        """What is asked for, one by one."""
        return self.jobs


T = TypeVar("T")
Waiting = Generator[Replies | Merges, Any, T]  # yields requests, is sent the list of their answers, returns T
Steps = Waiting[list[TeamRun]]  # a run of teams on its way; returns one `TeamRun` a question


def in_step(runs: Sequence[Steps]) -> list[list[TeamRun]]:
    """Carry all runs to their ends together.

    Parameters
    ----------
    runs : from `lib.moc.team.team_steps`; each is used up

    Returns
    -------
    What each run returns, in the order of `runs`.
    """
    waiting: dict[int, Replies | Merges] = {}
    done: dict[int, list[TeamRun]] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(runs)))  # a generator is started with None
    while answers:
        for index, answer in answers.items():
            try:
                waiting[index] = runs[index].send(answer)
            except StopIteration as end:
                done[index] = end.value
                waiting.pop(index, None)
        merges = {index: one for index, one in waiting.items() if isinstance(one, Merges)}
        answers = {}
        for group in _alike(merges or waiting):
            answers |= _answered(group)
    return [done[index] for index in range(len(runs))]


def _alike(waiting: Mapping[int, Replies | Merges]) -> list[dict[int, Replies | Merges]]:
    """Return the requests in groups that can be one call each."""
    groups: dict[Hashable, dict[int, Replies | Merges]] = {}
    for index, one in waiting.items():
        groups.setdefault(one.kind, {})[index] = one
    return list(groups.values())


def _answered(group: Mapping[int, Replies | Merges]) -> dict[int, list[Any]]:
    """Serve the requests of a group in one call; return each one's own answers."""
    first: Any = next(iter(group.values()))
    served = iter(first.served([part for one in group.values() for part in one.parts]))
    return {index: [next(served) for _ in one.parts] for index, one in group.items()}
