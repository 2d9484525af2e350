"""A whole small study in one call, and receivers that misbehave on purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from lib.bandmas.results import answer_schedules, result_table, scorer_of
from lib.bandmas.schedule import Schedule, schedule_finals
from lib.bandmas.study import Fitted, fit_splits, freeze_predictors, replay_all, splits_of
from lib.bandmas.traffic import Traffic, frozen_corpora, load_workloads, packet_tokens, traffics_of
from lib.messages.packets import Packet
from lib.models.receiver import Prompt, Receiver, Reply
from lib.models.scripted import ScriptedReceiver
from lib.tasks.task import Split, Task, Workload

NAMES = ("worlds_verification", "worlds_bridge")
CAPS = {"worlds_verification": 0.5, "worlds_bridge": 0.25}
BETAS = dict.fromkeys(NAMES, (0.25, 0.5))


class Study(msgspec.Struct, frozen=True):
    """Everything a study made."""

    workloads: dict[str, Workload]
    traffics: dict[str, Traffic]
    splits: dict[str, dict[int, Split]]
    outcomes: Any
    effects: Any
    fits: list[Fitted]
    schedules: list[Schedule]
    results: pd.DataFrame


def run_study(
    receiver: Receiver,
    folder: Path,
    *,
    tasks: int = 10,
    seeds: Sequence[int] = (0, 1),
    workloads: Mapping[str, Workload] | None = None,
    reader: Receiver | None = None,
    render: Callable[[Task, Sequence[Packet]], Prompt] | None = None,
) -> Study:
    """Run the protocol as the notebooks do."""
    loaded = dict(workloads or load_workloads(NAMES, tasks))
    traffics = traffics_of(loaded, frozen_corpora(reader or receiver, loaded, folder / "corpora"))
    splits = splits_of(traffics, seeds)
    more = {"render": render} if render else {}
    outcomes, effects = replay_all(receiver, traffics, splits, scorer_of(loaded), **more)
    fits = freeze_predictors(fit_splits(traffics, splits, effects), folder / "predictors")
    schedules = schedule_finals(traffics, fits, betas=BETAS)
    replies = answer_schedules(receiver, schedules, traffics, **more)
    results = result_table(schedules, replies, loaded, packet_tokens(traffics, receiver.count_tokens), fits)
    return Study(loaded, traffics, splits, outcomes, effects, fits, schedules, results)


class Counting(ScriptedReceiver):
    """The scripted receiver, remembering the prompts of every call."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[Prompt]] = []

    def reply(self, prompts: Sequence[Prompt], **options: Any) -> list[Reply]:
        self.batches.append(list(prompts))
        return super().reply(prompts, **options)


class Dying(ScriptedReceiver):
    """The scripted receiver, stopped from the keyboard after `lives` prompts."""

    def __init__(self, lives: int) -> None:
        super().__init__()
        self.lives = lives

    def reply(self, prompts: Sequence[Prompt], **options: Any) -> list[Reply]:
        if self.calls + len(prompts) > self.lives:
            raise KeyboardInterrupt
        return super().reply(prompts, **options)
