"""Run what agents write: the examples of code questions, and the programs of a mathematics team.

Context
-------
In the paper's public code a coder agent runs the examples of the question's docstring on its predecessors' code, and what the
programming expert of a mathematics team writes is executed, with the result added to its message. Both are callables here
that `lib.moc.team.team_steps` is handed; without them nothing runs.

Intuition
---------
A question's own examples are no gold: the agents see them too. They tell code that is certainly wrong from code that may be
right, and the decision agent is told the count.

How to read the result
----------------------
`functools.partial(f, allow_code_execution=True)` makes a callable of `lib.tasks.code_answer.run_examples` (for `run_examples`) and of
`printed_results` (for `run_programs`). Both use the suite's sandbox, whose limits and warnings hold (`lib.tasks.sandbox`).

Not covered: whether a program computes what was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lib.moc.calls import clean_text
from lib.moc.record import AgentMessage
from lib.moc.slot import Slot
from lib.tasks.code_answer import extract_code
from lib.tasks.questions import Question
from lib.tasks.sandbox import Limits, Program, run_tests

RunExamples = Callable[[Sequence[tuple[Question, str]]], Sequence[tuple[int, int]]]
"""(question, text with code) pairs -> (examples passed, examples run) of each; a question without examples has 0 run."""
RunPrograms = Callable[[Sequence[str]], Sequence[str | None]]
"""Texts with a program -> the last line that each printed; None where it failed or printed nothing."""

LONGEST = 40  # characters of a result; a longer line is no number


def printed_results(
    texts: Sequence[str],
    *,
    allow_code_execution: bool,
    timeout: float = 3.0,
    workers: int = 2,
    limits: Limits | None = None,
) -> list[str | None]:
    """Run the fenced program of each text.

    Parameters
    ----------
    texts : messages that hold a program; the others as in `lib.tasks.sandbox.run_tests`

    Returns
    -------
    The last line that each program printed, stripped; None where it failed, printed nothing, or its last line holds no digit
    or more than 40 characters.

    Raises
    ------
    SandboxError
        Without `allow_code_execution`, or for a parameter out of range.
    """
    programs = [Program(str(index), extract_code(text)) for index, text in enumerate(texts)]
    verdicts = run_tests(
        programs, allow_code_execution=allow_code_execution, timeout=timeout, workers=workers, limits=limits
    )
    return [_last_line(verdict.output) if verdict.passed else None for verdict in verdicts]


def _last_line(output: str) -> str | None:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return last if len(last) <= LONGEST and any(sign.isdigit() for sign in last) else None


def with_examples(
    run_examples: RunExamples, slots: Sequence[Slot], messages: Sequence[AgentMessage]
) -> list[AgentMessage]:
    """Run the questions' own examples on fenced code, all of a wave in one call; reused code keeps its result."""
    due = [
        index
        for index, (slot, message) in enumerate(zip(slots, messages, strict=True))
        if slot.question.domain == "code" and message.examples is None and _has_fence(message.text)
    ]
    results = run_examples([(slots[index].question, messages[index].text) for index in due]) if due else []
    checked = list(messages)
    for index, (passed, run) in zip(due, results, strict=True):
        checked[index] = msgspec.structs.replace(checked[index], examples=(passed, run))
    return checked


def with_results(
    run_programs: RunPrograms, due: Sequence[bool], messages: Sequence[AgentMessage]
) -> list[AgentMessage]:
    """Run the programs of the roles that write one, all of a wave in one call, and add what they printed."""
    places = [index for index, message in enumerate(messages) if due[index] and _has_fence(message.text)]
    results = run_programs([messages[index].text for index in places]) if places else []
    done = list(messages)
    for index, result in zip(places, results, strict=True):
        if result is not None:
            text = f"{done[index].text.rstrip()}\nThe answer is {clean_text(result)}"
            done[index] = msgspec.structs.replace(done[index], text=text, computed=clean_text(result))
    return done


def _has_fence(text: str) -> bool:
    return "```" in text


def passes(message: AgentMessage) -> bool:
    """Return whether the message holds code that passed all of at least one example."""
    return message.examples is not None and message.examples[0] == message.examples[1] >= 1


def remark(message: AgentMessage) -> str:
    """Return what the decision agent is told beside a worker's name."""
    if not message.ok:
        return "no output"
    if message.examples is None or message.examples[1] == 0:
        return ""
    return f"passed {message.examples[0]} of {message.examples[1]} examples"
