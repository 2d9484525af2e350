"""What a run cost: tokens by who spent them, bytes by edge, seconds by step.

Context
-------
The paper reports *agent tokens* (prompt and completion of every worker and decision call) and, apart from them,
*compressed tokens* (prompt and completion of every call of the distiller, rejected candidates included; Table 6). Table 3
splits the seconds of merging. Its public code leaves the distiller out of the total, which makes savings look larger; here
the parts stand apart and the total holds all of them.

Intuition
---------
Looking back further costs more input tokens, merging spends others to save some of them. Whether that pays shows only
where the saved and the spent tokens stand in one row.

How to read the result
----------------------
`tokens_table` has one row a run, `edges_table` one a message and reader. The text of a message counts at its sender
once and at every reader again: that is what travels. A merged text stands for several messages; each gets an equal share of it, so
the shares of a reader add up to what it was shown. Unknown counts are null and counted in ``uncounted_calls``, never 0.

Not covered: prices, the chat frame where counts are estimated, network delays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from lib.moc.record import AgentMessage, TeamRun


def messages_table(runs: Iterable[TeamRun]) -> pd.DataFrame:
    """Return every message of every run, workers by index and then the decision agent.

    Returns
    -------
    DataFrame: ``question_id``, ``arm``, ``k``, then the fields of `lib.moc.record.AgentMessage` but the deliveries;
    ``agent`` is text, ``parents``, ``hops`` and ``failed_sources`` are lists; plus ``cut_short`` (the token cap ended it)
    """
    rows = [_message_row(run, message) for run in runs for message in (*run.messages, run.decision)]
    frame = pd.DataFrame(rows, columns=["question_id", "arm", "k", *_MESSAGE_COLUMNS])
    counts = ("prompt_tokens", "new_tokens", "reused_from", "examples_passed", "examples_run")
    return frame.astype(dict.fromkeys(counts, "Int64"))


_MESSAGE_COLUMNS = (
    *(
        "agent",
        "role",
        "wave",
        "reach",
        "parents",
        "hops",
        "failed_sources",
        "status",
        "error",
        "tries",
        "text",
        "own_text",
    ),
    *("prompt_tokens", "new_tokens", "tokens_estimated", "text_tokens", "sent_bytes", "received_tokens"),
    *("received_bytes", "seconds", "finish", "cut_short", "computed", "reused_from", "examples_passed", "examples_run"),
    "prompt_key",
)


def _message_row(run: TeamRun, message: AgentMessage) -> dict[str, Any]:
    passed, tested = message.examples if message.examples is not None else (None, None)
    special = {
        "question_id": run.question_id,
        "arm": run.arm,
        "k": run.k,
        "agent": str(message.agent),
        "parents": list(message.parents),
        "hops": [list(pair) for pair in message.hops],
        "failed_sources": list(message.failed_sources),
        "cut_short": message.finish == "length",
        "examples_passed": passed,
        "examples_run": tested,
    }
    plain = {name: getattr(message, name) for name in _MESSAGE_COLUMNS if name not in special}
    return {**plain, **special}


def edges_table(runs: Iterable[TeamRun]) -> pd.DataFrame:
    """Return what travelled from whom to whom.

    Returns
    -------
    DataFrame, one row a message and reader: ``question_id``, ``arm``, ``k``, ``source``, ``target`` (text; ``decision`` for
    the decision agent), ``hop``, ``edge`` (an edge of the graph carries it; False where K reaches further, and for the
    decision agent), ``sent_bytes`` (the message as said), ``shown_bytes``, ``shown_tokens`` (its share of what the reader
    was shown), ``merged`` (messages in the text that it was shown in, 1 where unmerged)
    """
    columns = ["question_id", "arm", "k", "source", "target", "hop", "edge", "sent_bytes", "shown_bytes"]
    rows = []
    for run in runs:
        for reader in (*run.messages, run.decision):
            hops = dict(reader.hops)
            for delivery in reader.deliveries:
                for source in delivery.sources:
                    rows.append(
                        {
                            "question_id": run.question_id,
                            "arm": run.arm,
                            "k": run.k,
                            "source": source,
                            "target": str(reader.agent),
                            "hop": hops[source],
                            "edge": reader.agent != "decision" and source in reader.parents,
                            "sent_bytes": run.messages[source].sent_bytes,
                            "shown_bytes": delivery.bytes / len(delivery.sources),
                            "shown_tokens": delivery.tokens / len(delivery.sources),
                            "merged": len(delivery.sources),
                        }
                    )
    return pd.DataFrame(rows, columns=[*columns, "shown_tokens", "merged"])


def tokens_table(runs: Iterable[TeamRun]) -> pd.DataFrame:
    """Return the tokens of every run by who spent them, with the graph's density.

    Returns
    -------
    DataFrame, one row a run: ``question_id``, ``arm``, ``k``, ``n`` (workers), ``edges``, ``requested_density``,
    ``density``; for each of ``worker``, ``decision``, ``agent`` (their sum: the paper's agent tokens) and ``distiller`` (the
    paper's compressed tokens) ``<part>_prompt_tokens``, ``<part>_new_tokens`` and ``<part>_tokens``; ``total_tokens`` of agents
    and distiller together; ``calls``, ``failed_agents``, ``reused``, ``merges``, ``estimated_calls``, ``uncounted_calls``.
    Token columns are Int64: null where nothing is known.
    """
    frame = pd.DataFrame([_token_row(run) for run in runs])
    return frame.astype({name: "Int64" for name in frame.columns if name.endswith("_tokens")})


def _token_row(run: TeamRun) -> dict[str, Any]:
    everyone = [*run.messages, run.decision]
    parts = {
        "worker": _spent([(one.prompt_tokens, one.new_tokens) for one in run.messages]),
        "decision": _spent([(run.decision.prompt_tokens, run.decision.new_tokens)]),
        "agent": _spent([(one.prompt_tokens, one.new_tokens) for one in everyone]),
        "distiller": _spent([(one.distiller_prompt_tokens, one.distiller_new_tokens) for _, one in run.consolidations]),
    }
    row: dict[str, Any] = {
        "question_id": run.question_id,
        "arm": run.arm,
        "k": run.k,
        "n": len(run.messages),
        "edges": len(run.dag.edges) if run.dag else None,
        "requested_density": run.dag.requested if run.dag else None,
        "density": run.dag.density if run.dag else None,
    }
    for part, (prompt, new) in parts.items():
        row |= {f"{part}_prompt_tokens": prompt, f"{part}_new_tokens": new, f"{part}_tokens": _sum([prompt, new])}
    # Without the distiller's count a total would look like all of it and be a part.
    row["total_tokens"] = (
        None if row["distiller_tokens"] is None else _sum([row["agent_tokens"], row["distiller_tokens"]])
    )
    return row | {
        "calls": sum(one.tries for one in everyone),
        "failed_agents": len(run.failed_agents),
        "reused": sum(one.reused_from is not None for one in everyone),
        "merges": sum(len(one.merges) for _, one in run.consolidations),
        "estimated_calls": sum(one.tokens_estimated for one in everyone),
        "uncounted_calls": sum(one.prompt_tokens is None or one.new_tokens is None for one in everyone),
    }


def _spent(pairs: Sequence[tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    """Return prompt and new tokens of some calls; 0 of no calls, None where calls were made and nothing is known."""
    if not pairs:
        return 0, 0
    return _sum([prompt for prompt, _ in pairs]), _sum([new for _, new in pairs])


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def runtime_table(runs: Iterable[TeamRun]) -> pd.DataFrame:
    """Return where the seconds went, in the form of the paper's Table 3.

    Returns
    -------
    DataFrame, one row an arm, K and requested density: ``arm``, ``k``, ``requested_density``, ``runs``, ``merges`` and
    the mean seconds a run of ``agents`` (workers and decision: shares of the receiver's batches), ``embedding``, ``similarity``,
    ``distillation``, ``consolidation`` (the three together) and ``total``; ``distillation_share`` of the consolidation, null
    where nothing was merged. Seconds of replies that came from a store are not known: they make ``agents`` and ``total`` null.
    """
    rows = []
    for run in runs:
        steps = {
            name: sum(one.seconds[name] for _, one in run.consolidations)
            for name in ("embedding", "similarity", "distillation")
        }
        agents = sum(one.seconds for one in (*run.messages, run.decision))
        spent = sum(steps.values())
        rows.append(
            {
                "arm": run.arm,
                "k": run.k,
                "requested_density": run.dag.requested if run.dag else None,
                "merges": sum(len(one.merges) for _, one in run.consolidations),
                "agents": agents,
                **steps,
                "consolidation": spent,
                "total": agents + spent,
            }
        )
    columns = ["arm", "k", "requested_density", "merges", "agents", "embedding", "similarity", "distillation"]
    frame = pd.DataFrame(rows, columns=[*columns, "consolidation", "total"])
    keys = ["arm", "k", "requested_density"]
    groups = frame.astype({"requested_density": "float64"}).groupby(keys, dropna=False, sort=False)
    table = groups.mean().assign(merges=groups["merges"].sum())
    table.insert(0, "runs", groups.size())
    known = groups[["agents", "total"]].count().eq(groups.size(), axis=0)
    table[["agents", "total"]] = table[["agents", "total"]].where(known)
    share = table["distillation"] / table["consolidation"].where(table["merges"] > 0)
    return table.assign(distillation_share=share).reset_index()
