"""Steps, gold and rule-based models for tests of senders and receivers; a token here is a word."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from lib.models.receiver import Prompt
from lib.models.scripted import ScriptedReceiver
from lib.tasks.steps import Step, StepGold, StepSet

ACTIONS = ("read", "edit", "run_test")


def step_at(number: int, instance: str = "one") -> Step:
    """A step whose right file stands in the sender's context only."""
    return Step(
        id=f"{instance}/{number}",
        family="toy",
        instance_id=instance,
        index=number,
        local_view=f"Ticket {number}: the total is wrong.\nWhich file?",
        context=f"Trace: src/file_{number}.py raised; edit it.",
        actions=ACTIONS,
        artifacts=tuple(f"src/file_{other}.py" for other in (2, 0, 3, 1)),
        version="toy-1",
    )


def step_set(n: int = 3) -> StepSet:
    """`n` steps; right is to edit the file named in the context."""
    steps = tuple(step_at(number) for number in range(n))
    gold = {step.id: StepGold(step.id, ((f"src/file_{step.index}.py", "edit"),)) for step in steps}
    return StepSet("toy", "toy-1", steps, gold)


def is_sender(prompt: Prompt) -> bool:
    return "You brief" in prompt.turns[0].text


def last_file(text: str) -> str | None:
    """The file named last, outside the list of candidates."""
    quoted = "\n".join(line for line in text.splitlines() if line.startswith(">"))
    found = re.findall(r"src/file_\d\.py", quoted)
    return found[-1] if found else None


def decide(prompt: Prompt) -> str:
    """Send what the context names; as a receiver, follow what is shown, else take the first file and read it."""
    text = prompt.turns[-1].text
    file = last_file(text)
    if is_sender(prompt):
        said = {"action_type": "edit", "target_artifact": file, "rationale": f"the trace ends in {file}", "context": ""}
        return json.dumps(said)
    return json.dumps({"action_type": "edit" if file else "read", "target_artifact": file or "src/file_2.py"})


class Listening(ScriptedReceiver):
    """A scripted model that keeps every prompt and the number of calls made to it."""

    def __init__(self, script: Callable[[Prompt], str] = decide, name: str = "rules") -> None:
        super().__init__(script, name)
        self.prompts: list[Prompt] = []
        self.batches = 0

    def reply(self, prompts, **settings):  # type: ignore[no-untyped-def]
        self.batches += 1
        self.prompts += prompts
        return super().reply(prompts, **settings)
