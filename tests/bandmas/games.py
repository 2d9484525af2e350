"""Small worlds for replay tests: the reply lists the delivered packets, a table gives its utility."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import msgspec

from lib.messages import Message, Packet, packetize_task
from lib.models import Prompt, Reply, ScriptedReceiver, Turn
from lib.tasks.task import Source, Task


class Points(msgspec.Struct, frozen=True):
    """A score with the parts replay reads."""

    utility: float | None
    task_utility: float | None
    evidence_utility: float | None
    reason: str = ""


def task(task_id: str = "t1") -> Task:
    source = Source(id="D1", title="One", sentences=("A sentence.",))
    return Task(
        id=task_id, family="test", kind="verification", query=f"What of {task_id}?", sources=(source,), version="1"
    )


def packets_of(task_id: str, count: int) -> list[Packet]:
    """Return `count` claim packets in distinct slots."""
    messages = [
        Message(
            task_id, slot, slot, f"reader_{slot}", "verifier", f"D{slot}", f"claim of reader {slot}", "no", "no", "no"
        )
        for slot in range(count)
    ]
    packets = packetize_task(messages)
    assert len(packets) == count
    return packets


def render(task: Task, packets: Sequence[Packet]) -> Prompt:
    return Prompt((Turn("user", json.dumps([task.id, [packet.packet_id for packet in packets]])),))


def echo(prompt: Prompt) -> str:
    return prompt.turns[-1].text


class Recorder(ScriptedReceiver):
    """An echoing receiver that remembers the size of each call."""

    def __init__(self, script: Callable[[Prompt], str] = echo) -> None:
        super().__init__(script, name="echo")
        self.batches: list[list[str]] = []

    def reply(self, prompts: Sequence[Prompt], **options: object) -> list[Reply]:
        self.batches.append([prompt.turns[-1].text for prompt in prompts])
        return super().reply(prompts, **options)


def utility_of(value: Callable[[str, frozenset[int]], tuple[float, float]]) -> Callable[[str, str], Points]:
    """Score a reply by a game: `value(task id, delivered slots)` -> (task utility, evidence utility)."""

    def score(task_id: str, raw: str) -> Points:
        said, ids = json.loads(raw)
        assert said == task_id
        part = value(task_id, frozenset(int(packet_id.split("|")[1][1:]) for packet_id in ids))
        return Points((part[0] + part[1]) / 2, *part)

    return score
