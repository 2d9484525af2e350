"""Small packet streams for the reproduced baselines, answered by a game instead of a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from lib.bandmas.traffic import Traffic
from lib.messages import Message, Packet, batch_bytes, packetize_task
from lib.tasks.task import Split
from tests.bandmas.games import Points, task

Value = Callable[
    [str, frozenset[str]], tuple[float, float]
]  # (task id, delivered packet ids) -> task, evidence utility


def stream(slots: dict[str, Sequence[int]], name: str = "game") -> Traffic:
    """Return traffic in which reader s of a task says a claim, evidence and an uncertainty, for each of its slots."""
    messages = {task_id: tuple(said(task_id, slot) for slot in own) for task_id, own in slots.items()}
    packets = {task_id: tuple(packetize_task(own)) for task_id, own in messages.items()}
    full = {task_id: batch_bytes(own) for task_id, own in packets.items()}
    return Traffic(name, "typed", {task_id: task(task_id) for task_id in slots}, messages, packets, full)


def said(task_id: str, slot: int) -> Message:
    return Message(
        task_id, slot, slot, f"reader_{slot}", "verifier", f"D{slot}",
        f"the claim of {slot}", f"[S0] evidence of {slot}", "it may be otherwise", "none",
    )  # fmt: skip


def even(slots: int, tasks: int = 8, name: str = "game") -> tuple[Traffic, dict[str, dict[int, Split]]]:
    """Return a stream of tasks with the same slots, and one split with the last task final and all others profile."""
    ids = [f"{name}{index}" for index in range(tasks)]
    return stream(dict.fromkeys(ids, range(slots)), name), {name: {0: Split(0, tuple(ids[:-1]), (), tuple(ids[-1:]))}}


def scored(value: Value) -> Callable[[str, str], Points]:
    """Score the reply of `games.Recorder` by a game on the delivered packet ids."""

    def score(task_id: str, raw: str) -> Points:
        said_id, ids = json.loads(raw)
        assert said_id == task_id
        part = value(task_id, frozenset(ids))
        return Points((part[0] + part[1]) / 2, *part)

    return score


def slots_of(ids: frozenset[str] | Sequence[str]) -> set[int]:
    return {int(packet_id.split("|")[1][1:]) for packet_id in ids}


def ids_of(packets: Sequence[Packet]) -> list[str]:
    return [packet.packet_id for packet in packets]
