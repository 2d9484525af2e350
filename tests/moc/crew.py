"""A crew of rule-made agents: it reads the prompts of a team and answers as small models are meant to.

`believer` gives the answer of the last message it is shown, and its own where it is shown none; `doubter` gives the answer
most messages give, its own counted as one. An agent's own answer depends on the question alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from lib.moc.prompts import END, FENCE
from lib.models import Prompt, Reply, ScriptedReceiver
from lib.seeds import seed_of
from lib.tasks.questions import Question

LETTERS = "ABCD"


def choice(name: str, text: str = "Which one?") -> Question:
    return Question(id=name, family="mmlu", domain="choice", text=f"{text} ({name})", options=("w", "x", "y", "z"))


def number(name: str) -> Question:
    return Question(id=name, family="gsm8k", domain="math", text=f"How many are left? ({name})")


def code(name: str) -> Question:
    prompt = 'def add(a, b):\n    """Add.\n\n    >>> add(1, 2)\n    3\n    """\n'
    return Question(id=name, family="humaneval", domain="code", text=prompt, entry_point="add")


def block_of(prompt: Prompt) -> str:
    """Return the block of messages in a prompt, empty where there is none."""
    text = prompt.turns[-1].text
    start = re.search(r"^(?:Other agents|These are the last outputs).*$", text, re.MULTILINE)
    return text[start.start() : text.index(END) + len(END)] if start else ""


def shown(prompt: Prompt) -> list[tuple[str, str]]:
    """Return (header, text) of every message that a prompt shows, in order, read as a reader of the fence would."""
    found: list[tuple[str, list[str]]] = []
    for line in block_of(prompt).split("\n")[1:]:
        if line == END:
            break
        if line.startswith(FENCE):
            found.append((line[len(FENCE) + 1 :], []))
        elif found:
            found[-1][1].append(line)
    return [(header, "\n".join(lines).strip()) for header, lines in found]


def speaker(prompt: Prompt) -> str:
    """Return the role that is asked, or "decision", or "single"."""
    system = prompt.turns[0].text
    found = re.match(r"You are the (.+?) of a team\.", system)
    return found[1] if found else "decision" if system.startswith("You decide") else "single"


def own_answer(prompt: Prompt) -> str:
    question = re.search(r"\((\w+)\)", prompt.turns[-1].text)
    return LETTERS[seed_of("own", question[1] if question else "") % 4]


def answers_in(prompt: Prompt) -> list[str]:
    return [found[-1] for _, text in shown(prompt) if (found := re.findall(r"The answer is (\S+)", text))]


def believer(prompt: Prompt) -> str:
    heard = answers_in(prompt)
    return f"I am the {speaker(prompt)}.\nThe answer is {heard[-1] if heard else own_answer(prompt)}"


def doubter(prompt: Prompt) -> str:
    counts = Counter([own_answer(prompt), *answers_in(prompt)])
    return f"I am the {speaker(prompt)}.\nThe answer is {counts.most_common(1)[0][0]}"


class Crew(ScriptedReceiver):
    """A receiver that plays every agent and remembers each call."""

    def __init__(self, script: Callable[[Prompt], str] = believer) -> None:
        super().__init__(script, name="crew")
        self.batches: list[list[Prompt]] = []

    def reply(self, prompts: Sequence[Prompt], **options: object) -> list[Reply]:
        self.batches.append(list(prompts))
        return super().reply(prompts, **options)  # type: ignore[arg-type]

    @property
    def prompts(self) -> list[Prompt]:
        return [prompt for batch in self.batches for prompt in batch]
