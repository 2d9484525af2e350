"""The packetization ablation: the same messages cut at three boundaries, chosen by words alone, under the same caps.

Context
-------
A message can travel whole, sentence by sentence, or field by field. The paper compares the three (section V-E, Figure 4)
over the same frozen messages, with a lexical selector and the same caps, so that neither replay values nor generation
differ.

Intuition
---------
A cap admits whole records. A whole message is often larger than what is left; a sentence may part a claim from its
support; a field is small enough to fit and means something alone. But every record pays for its envelope, so finer cuts
cost more bytes for the same words. The cap of a task is the same number of bytes for all three, floor(beta B_full) with
B_full of the *typed* stream: otherwise the boundary with the dearest envelopes would be given the most room.

Two selectors exist. ``semantic`` scores every packet of every boundary by q_lex, its lexical relevance to the question.
``semantic_evidence`` adds one for evidence packets, which only typed packets can be. The paper's typed numbers differ from
its own table of policies for the same packets and caps, so one selector cannot explain both; both are reported here.

How to read the result
----------------------
One row a boundary, selector, cap, seed and task. `full_bytes` is what the boundary's own full stream costs,
`typed_full_bytes` what its cap is a share of. Each boundary has its own Full: the same words, other envelopes, and another
prompt, since the receiver sees what each record is called. Empty belongs to no boundary.

Not covered: replay values (`lib.bandmas.study`), means and intervals (`lib.evaluation`), boundaries chosen by size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pandas as pd

from lib.bandmas.admission import wire_cap
from lib.bandmas.replay import Render
from lib.bandmas.results import ContextKey, context_key, result_table
from lib.bandmas.schedule import EMPTY, FULL, Schedule, schedules_of
from lib.bandmas.study import Splits
from lib.bandmas.traffic import CountTokens, Traffic, all_tasks, packet_sizes, packet_tokens, traffic_table, traffics_of
from lib.messages.corpus import Corpus
from lib.messages.packets import METHODS, Method, Packet
from lib.messages.prompts import receiver_prompt
from lib.models.receiver import Receiver, Reply
from lib.tasks.task import Workload

TYPED: Method = "typed"  # whose full bytes set the caps of all boundaries
NONE = "none"  # the boundary of the Empty reference: nothing was cut that was sent
PRIMARY, SECONDARY = "semantic", "semantic_evidence"
SELECTORS: dict[Method, tuple[str, ...]] = {
    "typed": (PRIMARY, SECONDARY),
    "sentence": (PRIMARY,),
    "message": (PRIMARY,),
}

Streams = Mapping[Method, Mapping[str, Traffic]]  # boundary -> workload -> traffic


def streams_of(workloads: Mapping[str, Workload], corpora: Mapping[str, Corpus]) -> dict[Method, dict[str, Traffic]]:
    """Cut the frozen messages of every workload at every boundary."""
    return {method: traffics_of(workloads, corpora, method) for method in METHODS}


def boundary_schedules(
    streams: Streams, splits: Splits, betas: Mapping[str, Sequence[float]]
) -> dict[Method, list[Schedule]]:
    """Schedule the final tasks of every seed at every boundary, under the caps of the typed stream.

    Parameters
    ----------
    streams : from `streams_of`
    splits : of the study, see `lib.bandmas.study.splits_of`
    betas : workload -> caps, as shares of the typed full bytes

    Returns
    -------
    boundary -> schedules: ``full`` and the lexical selectors; ``empty`` stands once, with the typed ones
    """
    made: dict[Method, list[Schedule]] = {method: [] for method in streams}
    for method, traffics in streams.items():
        policies = (FULL, *((EMPTY,) if method == TYPED else ()), *SELECTORS[method])
        for name, traffic in traffics.items():
            # A cap is a share of `full_bytes`; with the typed stream's it is the same number of bytes everywhere.
            capped = msgspec.structs.replace(traffic, full_bytes=streams[TYPED][name].full_bytes)
            for seed, split in splits[name].items():
                made[method] += schedules_of(capped, split.final, None, seed=seed, policies=policies, betas=betas[name])
    return made


def answer_boundaries(
    receiver: Receiver,
    schedules: Mapping[Method, Sequence[Schedule]],
    streams: Streams,
    *,
    render: Render = receiver_prompt,
    max_tokens: int = 256,
) -> dict[Method, dict[ContextKey, Reply]]:
    """Answer every distinct context of every boundary in one receiver call.

    Packet ids name places in a message, so equal ids of two boundaries are different packets: replies are kept apart. The
    one prompt that boundaries share is that of no packet, and a receiver computes equal prompts of a call once.
    """
    tasks = all_tasks(streams[TYPED])
    sets: dict[tuple[Method, ContextKey], tuple[Packet, ...]] = {
        (method, context_key(one)): one.admission.admitted for method, made in schedules.items() for one in made
    }
    place = {task_id: index for index, task_id in enumerate(tasks)}
    # Contexts of a task and boundary stand together, larger sets first, so that a receiver can share their beginnings.
    keys = sorted(sets, key=lambda key: (place[key[1][0]], METHODS.index(key[0]), -len(key[1][1]), key[1][1]))
    prompts = [render(tasks[key[1][0]], sets[key]) for key in keys]
    replies = receiver.reply(prompts, max_tokens=max_tokens) if prompts else []
    answers: dict[Method, dict[ContextKey, Reply]] = {method: {} for method in schedules}
    for (method, context), reply in zip(keys, replies, strict=True):
        answers[method][context] = reply
    return answers


def boundary_results(
    schedules: Mapping[Method, Sequence[Schedule]],
    answers: Mapping[Method, Mapping[ContextKey, Reply]],
    workloads: Mapping[str, Workload],
    streams: Streams,
    count_tokens: CountTokens,
) -> pd.DataFrame:
    """Score the answers: one row a boundary and schedule.

    Returns
    -------
    DataFrame with the columns of `lib.bandmas.results.result_table` and ``boundary`` (``none`` for Empty),
    ``typed_full_bytes`` (what `cap_bytes` is a share of) and ``cap_filled`` (bytes / cap_bytes; null without a cap or with
    one of 0 bytes). ``full_bytes`` and ``saving`` are those of the boundary's own full stream.
    """
    typed = {task_id: size for traffic in streams[TYPED].values() for task_id, size in traffic.full_bytes.items()}
    frames = []
    for method, made in schedules.items():
        tokens = packet_tokens(streams[method], count_tokens)
        frame = result_table(made, answers[method], workloads, tokens)
        frame.insert(1, "boundary", [NONE if policy == EMPTY else method for policy in frame["policy"]])
        frames.append(frame)
    table = pd.concat(frames, ignore_index=True)
    caps = table["cap_bytes"].astype("float64")
    return table.assign(
        typed_full_bytes=table["task_id"].map(typed), cap_filled=(table["bytes"] / caps).where(caps > 0)
    )


def boundary_sizes(streams: Streams, count_tokens: CountTokens | None = None) -> pd.DataFrame:
    """Return what each boundary's own full stream costs: `lib.bandmas.traffic.traffic_table` by boundary.

    Returns
    -------
    DataFrame, one row a workload and boundary, workload by workload: ``boundary``, the columns of `traffic_table`,
    ``record_bytes`` (mean of a record) and ``share_of_typed`` (own full bytes / typed full bytes)
    """
    parts = [traffic_table(traffics, count_tokens).assign(boundary=method) for method, traffics in streams.items()]
    table = pd.concat(parts, ignore_index=True)
    typed = table[table["boundary"] == TYPED].set_index("workload")["full_bytes"]
    table = table.assign(
        record_bytes=table["full_bytes"] / table["packets_per_task"],
        share_of_typed=table["full_bytes"] / table["workload"].map(typed),
    )
    order = {name: place for place, name in enumerate(streams[TYPED])}
    table = table.sort_values("workload", key=lambda names: names.map(order), kind="stable", ignore_index=True)
    return table[["workload", "boundary", *(name for name in table if name not in ("workload", "boundary"))]]


def record_fits(streams: Streams, caps: Mapping[str, float]) -> pd.DataFrame:
    """Return the size of every record beside its task's cap: one above 1 can never be sent.

    Parameters
    ----------
    caps : workload -> cap, as a share of the typed full bytes

    Returns
    -------
    DataFrame, one row a packet: ``workload``, ``boundary``, ``task_id``, ``packet_id``, ``type``, ``wire_bytes``,
    ``cap_bytes`` and ``share_of_cap`` (null where the cap is 0 bytes)
    """
    cap_of = {
        task_id: wire_cap(caps[name], size)
        for name, traffic in streams[TYPED].items()
        for task_id, size in traffic.full_bytes.items()
    }
    parts = [packet_sizes(traffics).assign(boundary=method) for method, traffics in streams.items()]
    table = pd.concat(parts, ignore_index=True)
    table = table.assign(cap_bytes=table["task_id"].map(cap_of))
    share = (table["wire_bytes"] / table["cap_bytes"]).where(table["cap_bytes"] > 0)
    columns = ["workload", "boundary", "task_id", "packet_id", "type", "wire_bytes", "cap_bytes"]
    return table[columns].assign(share_of_cap=share)
