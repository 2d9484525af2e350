"""What a receiver is asked about a log: the packets, one a line behind the name of who said them, then the user's own
question.

The layout is that of the suite's other prompts (`lib.messages.prompts`): fixed rules, worked examples about invented
things, one line a packet that no text can forge, the question last. The reply is JSON with one short answer, or one
of the options that the user gives.

Not covered: line breaks inside a packet, which the receiver sees as spaces; evidence, which a log's reply need not
cite.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from lib.messages.packets import Packet
from lib.messages.prompts import packet_line, query_line, receiver_text
from lib.models.receiver import Prompt, Turn
from lib.tasks.task import Task, WorkloadError

VERSION = "log-1"  # raise when rules, examples or layout change
RULES = (
    "You answer a question from messages that several agents wrote to each other. Some messages are beside the point or wrong. "
    "Answer briefly, in JSON."
)
SHOTS = (
    (
        (
            "Source yard - Paragraph: Morning all, the new gate looks splendid.",
            "Source crane - Sentence: The Benno cannot be unloaded before its hatch is mended.",
            "Source yard - Paragraph: The mender of hatches comes on Thursday.",
        ),
        "Question: On which day can the Benno be unloaded?",
        "Thursday",
    ),
    ((), "Question: Which berth is free?", "unknown"),
)


def log_task(question: str, task_id: str = "log") -> Task:
    """Return the user's question as a task; it has no sources, since the messages are all there is.

    Raises
    ------
    WorkloadError
        When the question is empty.
    """
    if not question.strip():
        raise WorkloadError("question is empty: say what the receiver is to answer from the messages of the log")
    return Task(id=task_id, family="log", kind="bridge", query=question, sources=(), version=VERSION)


def log_renderer(options: Sequence[str] = (), characters: int = 120) -> Callable[[Task, Sequence[Packet]], Prompt]:
    """Return the renderer of a log's prompts, the same for every packet set.

    Parameters
    ----------
    options : answers to choose from; without them the answer is free text
    characters : length of a free answer at most
    """
    if len(set(options)) != len(options):
        raise WorkloadError(f"options: {', '.join(options)}: each may stand there once")
    answer = {"enum": list(options)} if options else {"type": "string", "minLength": 1, "maxLength": characters}
    schema = {
        "type": "object",
        "properties": {"answer": answer},
        "required": ["answer"],
        "additionalProperties": False,
    }

    def render(task: Task, packets: Sequence[Packet]) -> Prompt:
        turns = [Turn("system", RULES)]
        for told, query, reply in SHOTS:
            turns += [Turn("user", receiver_text(query, told)), Turn("assistant", json.dumps({"answer": reply}))]
        lines = [packet_line(packet) for packet in sorted(packets, key=lambda packet: packet.packet_id)]
        turns.append(Turn("user", receiver_text(query_line(task), lines)))
        return Prompt(tuple(turns), schema)

    return render
