"""A receiver whose sureness is a rule, for tests of probes and selectors; and steps of several instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lib.models.receiver import Prompt, options_per_prompt
from lib.tasks.steps import StepGold, StepSet
from tests.coordination.exchanges import Listening, decide, last_file, step_at


def named(prompt: Prompt) -> float:
    """Surer where a file is named: 0.2 nats, else 2."""
    return 0.2 if last_file(prompt.turns[-1].text) else 2.0


class Sure(Listening):
    """Scores every option with minus the rule's nats; keeps the number of score calls and of prompts scored."""

    def __init__(self, nats: Callable[[Prompt], float] = named, name: str = "sure", script=decide) -> None:  # type: ignore[no-untyped-def]
        super().__init__(script, name)
        self.nats = nats
        self.score_batches = 0
        self.scored = 0

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        rows = options_per_prompt(len(prompts), options)
        self.score_batches += 1
        self.scored += len(prompts)
        return np.array(
            [
                [-self.nats(prompt) - place for place in range(len(row))]
                for prompt, row in zip(prompts, rows, strict=True)
            ]
        )


class Mute(Listening):
    """A receiver behind an interface without log-probabilities."""

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        raise NotImplementedError("no log-probabilities")


def many_steps(instances: int = 4, each: int = 2) -> StepSet:
    """Episodes of steps at which the file named in the context is right."""
    steps = tuple(step_at(number, f"i{instance}") for instance in range(instances) for number in range(each))
    gold = {step.id: StepGold(step.id, ((f"src/file_{step.index}.py", "edit"),)) for step in steps}
    return StepSet("toy", "toy-1", steps, gold)


def mutated(steps: StepSet) -> dict[str, StepGold]:
    """Gold that says something else at every step."""
    return {name: StepGold(name, (("src/file_3.py", "run_test"),)) for name in steps.gold}
