"""What each packet was worth: replay the receiver with and without it.

Context
-------
A workflow's messages are frozen and cut into packets P. The receiver answers from a delivered subset S, and its
answer has a utility U(S) in [0, 1] (half task, half evidence; eq. 4 of the BANDMAS paper). For every packet p of a
task four contexts are asked: Full (P), Empty (no packet), p alone, and P without p. Full and Empty are shared by all
packets, so a task of n packets takes 2n + 2 calls: 2 calls for n = 1, where "alone" is Full and "without" is Empty; 4
for n = 2, where "without" one is "alone" the other; 1 for n = 0.

Intuition
---------
Sufficiency U({p}) - U(empty) asks whether p helps by itself. Necessity U(P) - U(P without p) asks whether p is
missed. Two packets that say the same have no necessity; two halves of a bridge have no sufficiency. The replay causal
effect RCE is the mean of the two (eq. 6) and lies in [-1, 1].

How to read the result
----------------------
One row a packet. RCE > 0: helpful; |RCE| < 1e-9: redundant or idle in both contexts; RCE < 0: harmful. It is a
property of these messages, this receiver, this prompt and this utility, not of the packet at large: interactions
beyond the two contexts are outside it. The receiver's own noise is measured by `lib.bandmas.noise`, which asks the
unmodified contexts again in other company; effects smaller than what its flips produce are not effects.

Not covered: byte caps (replays have none), stochastic decoding, higher-order interactions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import pandas as pd

from lib.messages.packets import Packet
from lib.models.receiver import Prompt, Receiver, Reply
from lib.tasks.task import Task

ZERO = 1e-9  # |RCE| below this counts as zero
FULL, EMPTY = "full", "empty"
PARTS = ("utility", "task_utility", "evidence_utility")

Job = tuple[Task, Sequence[Packet]]
Outcome = Mapping[Any, Any]  # a row of `replay_outcomes`
Render = Callable[[Task, Sequence[Packet]], Prompt]


class ScoreLike(Protocol):
    """What a metric returns for one reply: utilities in [0, 1], None where a part does not apply."""

    @property
    def utility(self) -> float | None: ...
    @property
    def task_utility(self) -> float | None: ...
    @property
    def evidence_utility(self) -> float | None: ...


Utility = Callable[[str, str], ScoreLike]  # (task id, raw reply) -> score


class LeakError(ValueError):
    """A task outside the profile and validation parts was about to be replayed."""


def replay_contexts(packets: Sequence[Packet]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the 2n + 2 contexts of a packet set as (name, packet ids), ids in order.

    Names are ``full``, ``empty``, ``alone:<packet id>`` and ``without:<packet id>``. Contexts may hold equal sets;
    those are asked once.
    """
    ids = sorted(packet.packet_id for packet in packets)
    if len(set(ids)) != len(ids):
        raise ValueError("a packet id occurs twice: replay needs distinct packets")
    contexts: list[tuple[str, tuple[str, ...]]] = [(FULL, tuple(ids)), (EMPTY, ())]
    for packet_id in ids:
        contexts.append((f"alone:{packet_id}", (packet_id,)))
        contexts.append((f"without:{packet_id}", tuple(other for other in ids if other != packet_id)))
    return contexts


def replay_outcomes(
    receiver: Receiver,
    jobs: Sequence[Job],
    utility: Utility,
    render: Render,
    allowed_ids: Collection[str],
    *,
    max_tokens: int = 256,
) -> pd.DataFrame:
    """Ask every distinct context of every job in one receiver call.

    Parameters
    ----------
    receiver : answers prompts in order; batching and prefix sharing are its affair
    jobs : (task, packets) pairs, one a task
    utility : scores a raw reply of a task
    render : builds the prompt of a task and a packet subset, the same for all contexts
    allowed_ids : ids of profile and validation tasks; replaying any other task is a leak
    max_tokens : token cap of a reply

    Returns
    -------
    DataFrame, one row a distinct packet set of a task: ``task_id``, ``contexts`` (names it serves), ``n_sent``,
    ``prompt_key``, ``raw``, ``utility``, ``task_utility``, ``evidence_utility``, ``score`` (the metric's own record),
    token counts, seconds, ``finish``, ``error``. A failed call has null utilities, never 0.

    Raises
    ------
    LeakError
        Naming the task, before anything is asked.
    """
    check_jobs(jobs, allowed_ids)
    rows: list[dict[str, Any]] = []
    prompts: list[Prompt] = []
    for task, packets in jobs:
        by_id = {packet.packet_id: packet for packet in packets}
        names: dict[tuple[str, ...], list[str]] = {}
        for name, ids in replay_contexts(packets):
            names.setdefault(ids, []).append(name)
        for ids, served in names.items():
            prompts.append(render(task, [by_id[packet_id] for packet_id in ids]))
            rows.append({"task_id": task.id, "contexts": tuple(served), "n_sent": len(ids)})
    replies = receiver.reply(prompts, max_tokens=max_tokens) if prompts else []
    for row, prompt, reply in zip(rows, prompts, replies, strict=True):
        row.update(prompt_key=receiver.prompt_key(prompt), **outcome_of(row["task_id"], reply, utility))
    return outcome_table(rows, [*_OUTCOME_HEAD, *_OUTCOME_TAIL])


def effects_of(outcomes: pd.DataFrame, jobs: Sequence[Job]) -> pd.DataFrame:
    """Return the replay effects of every packet from the outcomes of its task's contexts.

    Returns
    -------
    DataFrame, one row a packet, jobs in order, packets in id order: ``task_id``, ``packet_id``, ``type``,
    ``n_packets``, ``u_full``, ``u_empty``, ``u_alone``, ``u_without``, ``sufficiency``, ``necessity``, ``rce``, and
    ``task_rce`` and ``evidence_rce``: the same half-sum on the two parts of the utility. Null where a context has no
    utility.
    """
    known: dict[tuple[str, str], Outcome] = {}
    for outcome in outcomes.to_dict("records"):
        for name in outcome["contexts"]:
            known[outcome["task_id"], name] = outcome
    rows = []
    for task, packets in jobs:
        for packet in sorted(packets, key=lambda item: item.packet_id):
            names = (FULL, EMPTY, f"alone:{packet.packet_id}", f"without:{packet.packet_id}")
            four = [known[task.id, name] for name in names]
            head = {"task_id": task.id, "packet_id": packet.packet_id, "type": packet.type, "n_packets": len(packets)}
            rows.append({**head, **_effects(four)})
    return pd.DataFrame(rows, columns=_EFFECT_COLUMNS).astype(dict.fromkeys(_EFFECT_COLUMNS[4:], float))


def replay_many(
    receiver: Receiver,
    jobs: Sequence[Job],
    utility: Utility,
    render: Render,
    allowed_ids: Collection[str],
    *,
    max_tokens: int = 256,
) -> pd.DataFrame:
    """Return the replay effects of the packets of many tasks; all contexts go to the receiver in one call.

    See `replay_outcomes` for the parameters and errors and `effects_of` for the columns.
    """
    return effects_of(replay_outcomes(receiver, jobs, utility, render, allowed_ids, max_tokens=max_tokens), jobs)


def replay_effects(
    receiver: Receiver,
    task: Task,
    packets: Sequence[Packet],
    utility: Utility,
    *,
    render: Render,
    allowed_ids: Collection[str] | None = None,
    max_tokens: int = 256,
) -> pd.DataFrame:
    """Return the replay effects of one task's packets.

    Without `allowed_ids` the task named in the call is the one that may be replayed: the caller vouches for its split.
    """
    allowed = {task.id} if allowed_ids is None else allowed_ids
    return replay_many(receiver, [(task, packets)], utility, render, allowed, max_tokens=max_tokens)


def label_composition(effects: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Return how many packets are positive, zero (|RCE| < 1e-9) and negative, and the shares among labelled packets.

    Parameters
    ----------
    effects : rows of `effects_of`
    by : columns to split by, e.g. ``["type"]``

    Returns
    -------
    DataFrame with the `by` columns and ``packets``, ``labelled``, ``positive``, ``zero``, ``negative`` (counts),
    ``positive_share``, ``zero_share``, ``negative_share`` (of the labelled; NaN without any).
    """
    groups = effects.groupby(list(by), sort=True, dropna=False) if by else [((), effects)]
    rows = []
    for key, group in groups:
        rce = group["rce"].dropna()
        counts = {
            "positive": int((rce >= ZERO).sum()),
            "zero": int((rce.abs() < ZERO).sum()),
            "negative": int((rce <= -ZERO).sum()),
        }
        shares = {f"{name}_share": count / len(rce) if len(rce) else float("nan") for name, count in counts.items()}
        keys = key if isinstance(key, tuple) else (key,)
        rows.append(
            {**dict(zip(by, keys, strict=True)), "packets": len(group), "labelled": len(rce), **counts, **shares}
        )
    return pd.DataFrame(rows)


_OUTCOME_HEAD = ["task_id", "contexts", "n_sent", "prompt_key"]
_OUTCOME_TAIL = ["raw", *PARTS, "score", "prompt_tokens", "new_tokens", "seconds", "finish", "error"]
_EFFECT_COLUMNS = [
    *("task_id", "packet_id", "type", "n_packets", "u_full", "u_empty", "u_alone", "u_without"),
    *("sufficiency", "necessity", "rce", "task_rce", "evidence_rce"),
]
_KINDS = {
    **dict.fromkeys((*PARTS, "utility_first", "utility_second", "seconds"), "float64"),
    **dict.fromkeys(("prompt_tokens", "new_tokens"), "Int64"),
    **dict.fromkeys(("same_text", "same_utility"), "boolean"),
}


def outcome_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return rows as a frame with the kinds above; other columns hold their objects as they are.

    Replies stay plain Python text: a column of pandas' own text type would refuse a reply with a lone surrogate and
    lose the whole table.
    """
    return pd.DataFrame(
        {name: pd.Series([row[name] for row in rows], dtype=_KINDS.get(name, "object")) for name in columns}
    )


def check_jobs(jobs: Sequence[Job], allowed_ids: Collection[str]) -> None:
    """Refuse, before anything is asked, tasks outside `allowed_ids`, doubled tasks and packets of another task."""
    seen: set[str] = set()
    for task, packets in jobs:
        if task.id not in allowed_ids:
            raise LeakError(
                f"task {task.id!r} is not in the profile or validation part: replaying it would leak final-test outcomes; "
                "take it out of the jobs"
            )
        if task.id in seen:
            raise ValueError(f"task {task.id!r} occurs twice among the jobs")
        seen.add(task.id)
        for packet in packets:
            if packet.task_id != task.id:
                raise ValueError(f"packet {packet.packet_id!r} belongs to task {packet.task_id!r}, not to {task.id!r}")


def outcome_of(task_id: str, reply: Reply, utility: Utility) -> dict[str, Any]:
    """Score one reply; a failed call keeps its error and has no utility."""
    failed = reply.finish == "error"
    score = None if failed else utility(task_id, reply.text)
    return {
        "raw": None if failed else reply.text,
        **{part: None if score is None else getattr(score, part) for part in PARTS},
        "score": score,
        "prompt_tokens": reply.prompt_tokens,
        "new_tokens": reply.new_tokens,
        "seconds": reply.seconds,
        "finish": reply.finish,
        "error": reply.error,
    }


def _effects(four: Sequence[Outcome]) -> dict[str, float | None]:
    full, empty, alone, without = (outcome["utility"] for outcome in four)
    row: dict[str, float | None] = {"u_full": full, "u_empty": empty, "u_alone": alone, "u_without": without}
    for prefix, part in (("", "utility"), ("task_", "task_utility"), ("evidence_", "evidence_utility")):
        full, empty, alone, without = (outcome[part] for outcome in four)
        sufficiency, necessity = _minus(alone, empty), _minus(full, without)
        if not prefix:
            row.update(sufficiency=sufficiency, necessity=necessity)
        row[f"{prefix}rce"] = None if sufficiency is None or necessity is None else (sufficiency + necessity) / 2
    return row


def _minus(a: float | None, b: float | None) -> float | None:
    return None if pd.isna(a) or pd.isna(b) or a is None or b is None else float(a) - float(b)
