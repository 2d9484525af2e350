"""What travels in a study: workloads, their frozen messages, the packets of every task and the exact bytes they cost.

A study loads its workloads once, lets readers write messages once, freezes them in a folder and goes on with what it
read back, so that nothing later can depend on how they were made. `Traffic` is what a scheduler may know of a
workload: queries, packets and sizes. It is built from tasks and messages alone; no argument carries a gold answer.

Not covered: outcomes (`lib.bandmas.study` replays, `lib.bandmas.results` scores) and other packet boundaries than one
at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import pandas as pd

from lib.bandmas.replay import Job
from lib.messages.corpus import Corpus, CorpusError, load_corpus, save_corpus
from lib.messages.message import Message
from lib.messages.packets import Method, Packet, packetize_task
from lib.messages.produce import produce
from lib.messages.shortlist import Shortlist
from lib.messages.wire import batch_bytes, size_table
from lib.models.receiver import Receiver
from lib.tasks.registry import WORKLOADS, load_workload
from lib.tasks.task import Task, Workload, WorkloadError

WORLDS = "worlds_"  # names of generated workloads start so; they alone have knobs for readers and noise

CountTokens = Callable[[list[str]], list[int]]


class Traffic(msgspec.Struct, frozen=True):
    """The full traffic of one workload, before any outcome.

    Parameters
    ----------
    workload : its name
    method : packet boundary
    tasks : task id -> task, in the workload's order
    messages : task id -> frozen messages in slot order
    packets : task id -> packets in packet-id order; empty where a task has no source
    full_bytes : task id -> B_full, the exact size of all its packets in one batch
    """

    workload: str
    method: str
    tasks: dict[str, Task]
    messages: dict[str, tuple[Message, ...]]
    packets: dict[str, tuple[Packet, ...]]
    full_bytes: dict[str, int]

    @property
    def fallbacks(self) -> int:
        """Messages that were built by rule, because the reader's reply could not be read."""
        return sum(message.fallback for messages in self.messages.values() for message in messages)

    def jobs(self, task_ids: Iterable[str]) -> list[Job]:
        """Return (task, packets) pairs for a replay, in the order of `task_ids`."""
        return [(self.tasks[task_id], self.packets[task_id]) for task_id in task_ids]


def load_workloads(
    names: Sequence[str],
    limit: int | Mapping[str, int],
    *,
    seed: float = 0,
    readers: Mapping[str, int] | None = None,
    distractors: Mapping[str, int] | None = None,
    redundancy: float = 0.2,
    noise: float = 0.2,
) -> dict[str, Workload]:
    """Load the workloads of a study.

    Parameters
    ----------
    names : names of `lib.tasks.load_workload`, each once
    limit : at most this many tasks each, or by name
    seed : a whole number; draws the tasks and shuffles the slots
    readers, distractors : by name of a generated workload (`worlds_...`); the rest keep their own counts
    redundancy, noise : probabilities, for generated workloads alone

    Raises
    ------
    WorkloadError
        If there is no name or one repeats, a name has no limit, two workloads share a task id, or a knob is named for a workload that
        has none.
    """
    if not names:
        raise WorkloadError(f"workloads: none is named; choose from {', '.join(WORKLOADS)}")
    if len(set(names)) != len(names):
        raise WorkloadError(f"workloads: a name occurs twice in {list(names)}; a study holds each workload once")
    if int(seed) != seed:
        raise WorkloadError(f"seed: {seed} is not a whole number")
    limits = dict(limit) if isinstance(limit, Mapping) else dict.fromkeys(names, limit)
    unlimited = [name for name in names if name not in limits]
    if unlimited:
        raise WorkloadError(
            f"tasks: no number for {unlimited[0]!r}; there are numbers for {', '.join(limits) or 'none'}"
        )
    counts = {"readers": dict(readers or {}), "distractors": dict(distractors or {})}
    for knob, by_name in counts.items():
        for name in by_name:
            if not name.startswith(WORLDS) or name not in WORKLOADS:
                generated = [known for known in WORKLOADS if known.startswith(WORLDS)]
                raise WorkloadError(f"{knob}: {name!r} is no generated workload; there are {', '.join(generated)}")
    loaded: dict[str, Workload] = {}
    owner: dict[str, str] = {}
    for name in names:
        knobs: dict[str, float] = {}
        if name.startswith(WORLDS):
            # Generated tasks never run out; without a count of their own they would stop at the family's usual one.
            knobs = {"n": limits[name], "redundancy": redundancy, "noise": noise}
            knobs |= {knob: by_name[name] for knob, by_name in counts.items() if name in by_name}
        loaded[name] = load_workload(name, limit=limits[name], seed=int(seed), **knobs)
        # Replies, effects and schedules are looked up by task id alone, across workloads.
        for task in loaded[name].tasks:
            if owner.setdefault(task.id, name) != name:
                raise WorkloadError(f"task id {task.id!r} is in {owner[task.id]!r} and {name!r}; study them apart")
    return loaded


def frozen_corpora(
    receiver: Receiver,
    workloads: Mapping[str, Workload],
    folder: Path | str,
    shortlist: Shortlist | None = None,
) -> dict[str, Corpus]:
    """Let readers write the messages of every workload, freeze them under `folder`, and return what is read back.

    With a `shortlist`, each reader quotes one of the sentences that it names.

    Raises
    ------
    CorpusError
        If what was read back is not byte for byte what was written.
    """
    corpora: dict[str, Corpus] = {}
    for name, workload in workloads.items():
        made = produce(receiver, workload, shortlist=shortlist)
        target = save_corpus(Path(folder) / name, made)
        corpora[name] = load_corpus(target, version=workload.version)
        if msgspec.json.encode(corpora[name]) != msgspec.json.encode(made):
            raise CorpusError(f"{target}: the messages read back differ from those written; produce them anew")
    return corpora


def traffic_of(tasks: Iterable[Task], corpus: Corpus, method: Method = "typed") -> Traffic:
    """Return the packets and sizes of every task of a frozen corpus.

    Raises
    ------
    ValueError
        If the corpus has messages of a task that is not among `tasks`.
    """
    by_id = {task.id: task for task in tasks}
    by_task = corpus.by_task()
    strangers = sorted(set(by_task) - set(by_id))
    if strangers:
        raise ValueError(f"corpus {corpus.workload!r}: messages of task {strangers[0]!r}, which is not in the workload")
    messages = {task_id: tuple(by_task.get(task_id, ())) for task_id in by_id}
    packets = {task_id: tuple(packetize_task(said, method)) for task_id, said in messages.items()}
    full = {task_id: batch_bytes(cut) for task_id, cut in packets.items()}
    return Traffic(corpus.workload, method, by_id, messages, packets, full)


def traffics_of(
    workloads: Mapping[str, Workload], corpora: Mapping[str, Corpus], method: Method = "typed"
) -> dict[str, Traffic]:
    """Return the traffic of every workload, see `traffic_of`."""
    return {name: traffic_of(workload.tasks, corpora[name], method) for name, workload in workloads.items()}


def packet_sizes(traffics: Mapping[str, Traffic], count_tokens: CountTokens | None = None) -> pd.DataFrame:
    """Return one row a packet: ``workload``, ``task_id``, the columns of `size_table`, and ``envelope_share``.

    The envelope is what a record costs beside its content: keys, ids, route, punctuation and the escapes that JSON
    asks for. ``envelope_share`` is its part of the wire bytes.
    """
    frames = []
    for name, traffic in traffics.items():
        packets = [packet for cut in traffic.packets.values() for packet in cut]
        frame = size_table(packets, count_tokens)
        frame.insert(0, "workload", name)
        frame.insert(1, "task_id", [packet.task_id for packet in packets])
        frames.append(frame)
    sizes = pd.concat(frames, ignore_index=True)
    return sizes.assign(envelope_share=1 - sizes["content_bytes"] / sizes["wire_bytes"])


def traffic_table(traffics: Mapping[str, Traffic], count_tokens: CountTokens | None = None) -> pd.DataFrame:
    """Return one row a workload: counts, fallbacks, and means per task of packets, full bytes and context tokens.

    ``envelope_share`` is over all bytes of the workload, so that large records count for what they weigh.
    """
    sizes = packet_sizes(traffics, count_tokens)
    rows = []
    for name, traffic in traffics.items():
        mine = sizes[sizes["workload"] == name]
        tasks, messages = len(traffic.tasks), sum(len(said) for said in traffic.messages.values())
        rows.append(
            {
                "workload": name,
                "tasks": tasks,
                "messages": messages,
                "fallbacks": traffic.fallbacks,
                "packets": len(mine),
                "packets_per_task": len(mine) / tasks,
                "full_bytes": sum(traffic.full_bytes.values()) / tasks,
                "content_bytes": mine["content_bytes"].sum() / tasks,
                "envelope_share": 1 - mine["content_bytes"].sum() / max(1, mine["wire_bytes"].sum()),
                "context_tokens": float(mine["tokens"].sum()) / tasks if count_tokens else float("nan"),
            }
        )
    return pd.DataFrame(rows)


def packet_tokens(traffics: Mapping[str, Traffic], count_tokens: CountTokens) -> dict[str, int]:
    """Return c_ctx of every packet: the tokens of its content in the receiver's own count, by packet id."""
    packets = [packet for traffic in traffics.values() for cut in traffic.packets.values() for packet in cut]
    counts = count_tokens([packet.content for packet in packets]) if packets else []
    return {packet.packet_id: int(count) for packet, count in zip(packets, counts, strict=True)}


def all_tasks(traffics: Mapping[str, Traffic]) -> dict[str, Task]:
    """Return the tasks of all workloads by id."""
    return {task_id: task for traffic in traffics.values() for task_id, task in traffic.tasks.items()}
