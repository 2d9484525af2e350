"""From the log of another system to what mattered in it: replay, effects by packet and by agent, and what a byte cap
would save.

Context
-------
`lib.messages.import_logs` reads a log, `lib.messages.free_text` cuts it, `lib.bandmas.replay` asks a receiver with
and without each packet. Here these are put in order for one question about one conversation.

Intuition
---------
The receiver is asked the user's question with all packets first. Without gold answers that reply is the yardstick
(`lib.tasks.free_answers`). Then every packet is left out once and delivered alone once, 2n + 2 contexts in all, which
share their beginnings.

How to read the result
----------------------
One log is one case: there is no mean over tasks and no interval. An effect is a fact about these messages, this
receiver and this question. The caps are filled by four rankings. ``oracle`` ranks by the effects just measured *on
the same log*: what could be saved if one knew, never what a scheduler would have saved. ``semantic`` (words shared
with the question), ``latest first`` and ``random`` know no outcome.

Not covered: many logs at once (a sweep of notebook 01), learned policies (`lib.bandmas.study` needs many tasks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from lib.bandmas.admission import Admission, admit_static, wire_cap
from lib.bandmas.replay import EMPTY, FULL, ZERO, Render, Utility, outcome_of
from lib.bandmas.scores import oracle_scores, policy_scores
from lib.messages.logged import LogError, LoggedMessage
from lib.messages.packets import Packet
from lib.messages.wire import batch_bytes, packet_bytes
from lib.models.receiver import Receiver
from lib.tasks.task import Task

LATEST = "latest first"
RANKINGS = ("oracle", "semantic", LATEST, "random")


class LogCase(msgspec.Struct, frozen=True):
    """One question about one conversation.

    Parameters
    ----------
    task : the question
    messages : what the receiver may be told, in order
    packets : their packets
    """

    task: Task
    messages: tuple[LoggedMessage, ...]
    packets: tuple[Packet, ...]

    @property
    def full_bytes(self) -> int:
        """Size of all packets in one batch, bytes."""
        return batch_bytes(self.packets)


def log_case(task: Task, messages: Sequence[LoggedMessage], packets: Sequence[Packet], most: int) -> LogCase:
    """Return the case after checking that a replay of it is affordable.

    Raises
    ------
    LogError
        When there is no packet, or there are more than `most`: the text says how many calls that would be and how to have fewer.
    """
    if not packets:
        raise LogError("no message is left to replay: check conversation and stands_for")
    if len(packets) > most:
        raise LogError(
            f"{len(packets)} packets take {2 * len(packets) + 2} calls, more than most={most} allows: cut coarser (cut=message gives "
            f"{len(messages)} packets), choose one conversation, set stands_for, or raise most"
        )
    return LogCase(task, tuple(messages), tuple(packets))


def reference_reply(receiver: Receiver, case: LogCase, render: Render, *, max_tokens: int = 256) -> str:
    """Return the receiver's raw reply to the unchanged log.

    Raises
    ------
    LogError
        When the call failed; the text holds the receiver's reason, such as a context that is too long.
    """
    (reply,) = receiver.reply([render(case.task, list(case.packets))], max_tokens=max_tokens)
    if reply.finish == "error":
        raise LogError(f"the receiver could not answer from the whole log: {reply.error}")
    return reply.text


def packet_ranking(case: LogCase, effects: pd.DataFrame, outcomes: pd.DataFrame) -> pd.DataFrame:
    """Return the packets by replay effect, best first, each with what was answered alone and without it.

    Parameters
    ----------
    effects, outcomes : of `lib.bandmas.replay` for this case

    Returns
    -------
    DataFrame: ``rank`` (from 1; ties by packet id), ``packet_id``, ``sender``, ``place`` (in the log's file), ``type``,
    ``bytes`` (on the wire), ``rce``, ``sufficiency``, ``necessity``, ``answer_alone``, ``answer_without``, ``text``.
    Effects are null where a call failed.
    """
    answers = {name: row["score"] for row in outcomes.to_dict("records") for name in row["contexts"]}
    by_id = {packet.packet_id: packet for packet in case.packets}
    rows = []
    for row in effects.to_dict("records"):
        packet = by_id[row["packet_id"]]
        rows.append(
            {
                **{name: row[name] for name in ("packet_id", "type", "rce", "sufficiency", "necessity")},
                "sender": packet.source_id,
                "place": case.messages[packet.slot].place,
                "bytes": packet_bytes(packet),
                "answer_alone": _extracted(answers.get(f"alone:{packet.packet_id}")),
                "answer_without": _extracted(answers.get(f"without:{packet.packet_id}")),
                "text": packet.content,
            }
        )
    table = pd.DataFrame(rows)
    order = table.assign(_rounded=table["rce"].astype(float).round(12)).sort_values(
        ["_rounded", "packet_id"], ascending=[False, True], na_position="last"
    )
    ranked = table.loc[order.index].reset_index(drop=True)
    ranked.insert(0, "rank", np.arange(1, len(ranked) + 1))
    names = ["rank", "packet_id", "sender", "place", "type", "bytes", "rce", "sufficiency", "necessity"]
    return ranked[[*names, "answer_alone", "answer_without", "text"]]


def agent_table(ranking: pd.DataFrame) -> pd.DataFrame:
    """Return one row a sender, in the order of what they are worth.

    Returns
    -------
    DataFrame: ``sender``, ``packets``, ``bytes``, ``share_of_bytes``, ``helpful``, ``idle``, ``harmful`` (counts),
    ``gain`` and ``loss`` (sums of positive and of negative effects) and ``unmeasured`` (packets without an effect)
    """
    rows = []
    for sender, group in ranking.groupby("sender", sort=True):
        rce = group["rce"].astype(float)
        rows.append(
            {
                "sender": sender,
                "packets": len(group),
                "bytes": int(group["bytes"].sum()),
                "share_of_bytes": float(group["bytes"].sum() / ranking["bytes"].sum()),
                "helpful": int((rce >= ZERO).sum()),
                "idle": int((rce.abs() < ZERO).sum()),
                "harmful": int((rce <= -ZERO).sum()),
                "gain": float(rce[rce >= ZERO].sum()),
                "loss": float(rce[rce <= -ZERO].sum()),
                "unmeasured": int(rce.isna().sum()),
            }
        )
    table = pd.DataFrame(rows)
    worth = (table["gain"] + table["loss"]).round(12)
    return (
        table.assign(_worth=worth)
        .sort_values(["_worth", "sender"], ascending=[False, True], ignore_index=True)
        .drop(columns="_worth")
    )


def ranking_scores(name: str, case: LogCase, effects: pd.DataFrame, seed: int = 0) -> np.ndarray:
    """Return one score a packet for one of `RANKINGS`, higher first to be sent."""
    packets = list(case.packets)
    if name == "oracle":
        return oracle_scores(packets, effects)
    if name == LATEST:
        return np.array([packet.slot for packet in packets], dtype=float)
    return policy_scores(name, case.task.query, packets, seed=seed)


def cap_table(
    receiver: Receiver,
    case: LogCase,
    effects: pd.DataFrame,
    utility: Utility,
    render: Render,
    caps: Sequence[float],
    *,
    max_tokens: int = 256,
    seed: int = 0,
) -> pd.DataFrame:
    """Answer under byte caps, every distinct packet set once, in one receiver call.

    Parameters
    ----------
    caps : shares of the full bytes, each in [0, 1]

    Returns
    -------
    DataFrame, one row a ranking and cap, and one each for ``full`` and ``empty``: ``policy``, ``beta`` (null for these
    two), ``cap_bytes``, ``bytes``,
    ``saving`` (1 - bytes / full bytes), ``packets``, ``utility`` (null where the call failed), ``answer``, ``reason``
    """
    packets, full = list(case.packets), case.full_bytes
    plans: list[tuple[str, float | None, Admission]] = [
        (FULL, None, admit_static(packets, np.zeros(len(packets)), None)),
        (EMPTY, None, admit_static(packets, np.zeros(len(packets)), 0)),
    ]
    for name in RANKINGS:
        scores = ranking_scores(name, case, effects, seed)
        plans += [(name, beta, admit_static(packets, scores, wire_cap(beta, full))) for beta in sorted(set(caps))]
    sets = {_ids(one): one.admitted for _, _, one in plans}
    replies = receiver.reply([render(case.task, list(members)) for members in sets.values()], max_tokens=max_tokens)
    known = {ids: outcome_of(case.task.id, reply, utility) for ids, reply in zip(sets, replies, strict=True)}
    rows: list[dict[str, Any]] = []
    for name, beta, admission in plans:
        outcome: Mapping[str, Any] = known[_ids(admission)]
        score = outcome["score"]
        rows.append(
            {
                "policy": name,
                "beta": beta,
                "cap_bytes": None if beta is None else admission.cap_bytes,
                "bytes": admission.bytes,
                "saving": admission.saving,
                "packets": len(admission.admitted),
                "utility": outcome["utility"],
                "answer": _extracted(score),
                "reason": outcome["error"] if score is None else score.reason,
            }
        )
    table = pd.DataFrame(rows)
    return table.astype({"beta": "float64", "cap_bytes": "Int64", "utility": "float64"})


def cheapest(table: pd.DataFrame) -> pd.DataFrame:
    """Return, for each ranking, the row with the fewest bytes whose utility is that of the full log; rankings without one are absent."""
    full = float(table.loc[table["policy"] == FULL, "utility"].iloc[0])
    kept = table[~table["policy"].isin([FULL, EMPTY]) & (table["utility"] >= full - ZERO)]
    return kept.sort_values("bytes", kind="stable").groupby("policy", sort=False).head(1).reset_index(drop=True)


def _ids(admission: Admission) -> tuple[str, ...]:
    return tuple(packet.packet_id for packet in admission.admitted)


def _extracted(score: Any) -> str | None:
    return None if score is None else score.extracted
