"""The prompts that are timed: the replay of generated bridge tasks, written by rule.

Readers are scripted, so that the prompts do not depend on a model; the receiver's prompt is the suite's own, with its worked examples.

Not covered: constrained replies (the other contenders have none).
"""

from __future__ import annotations

import msgspec

from lib.bandmas.replay import replay_contexts
from lib.messages.message import Message
from lib.messages.packets import packetize_task
from lib.messages.produce import produce
from lib.messages.prompts import receiver_prompt
from lib.models.receiver import Prompt
from lib.models.scripted import ScriptedReceiver
from lib.tasks import load_workload

TEAM = 12  # the most readers of a generated task


def replay_prompts(n_packets: int, n_tasks: int = 1) -> list[Prompt]:
    """Return the distinct replay prompts of `n_tasks` tasks with `n_packets` packets each, free replies (no schema).

    A team of readers writes some two dozen packets at most; a larger task is joined by the teams of other tasks.
    """
    if n_packets < 1 or n_tasks < 1:
        raise ValueError(f"packets and tasks must be 1 or more, not {n_packets} and {n_tasks}")
    readers = min(TEAM, max(2, -(-n_packets // 2)))  # two packets or more a reader
    teams = -(-n_packets // (2 * readers))
    workload = load_workload("worlds_bridge", limit=n_tasks * teams, readers=readers, distractors=0)
    messages: dict[str, list[Message]] = {task.id: [] for task in workload.tasks}
    for message in produce(ScriptedReceiver(), workload).messages:
        messages[message.task_id].append(message)
    prompts: list[Prompt] = []
    for start in range(0, len(workload.tasks), teams):
        task = workload.tasks[start]
        joined = [message for member in workload.tasks[start : start + teams] for message in messages[member.id]]
        own = [
            msgspec.structs.replace(message, task_id=task.id, slot=place, turn=place)
            for place, message in enumerate(joined)
        ]
        packets = packetize_task(own)[:n_packets]
        by_id = {packet.packet_id: packet for packet in packets}
        subsets = dict.fromkeys(ids for _, ids in replay_contexts(packets))
        prompts += [Prompt(receiver_prompt(task, [by_id[i] for i in ids]).turns) for ids in subsets]
    return prompts
