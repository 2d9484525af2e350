"""What went wrong in a run and what stepped in for it, counted arm by arm.

Context
-------
A team goes on where an agent fails, and a merge goes on where a distiller does. Each such fallback changes what is compared:
an arm whose merges are mostly cut-off beginnings is not the arm that the paper describes. So the counts stand in the report,
also where they are 0.

Intuition
---------
There are three layers: calls (asked again, failed, cut short by the token cap), merges (a candidate too long, none usable) and
counts (tokens that a backend did not tell).

How to read the result
----------------------
Each count stands beside what it is out of: ``workers`` agents, ``decisions``, ``merges``, ``candidates``. A worker that was cut short still
spoke; what it said may lack its last line.

Not covered: answers that could not be read or judged (`lib.moc.grading`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from lib.moc.record import AgentMessage, TeamRun

COUNTS = (
    *(
        "runs",
        "workers",
        "failed_workers",
        "cut_workers",
        "reused_code",
        "decisions",
        "failed_decisions",
        "cut_decisions",
    ),
    *("further_tries", "merges", "length_repaired", "distill_failed", "candidates", "unusable_candidates"),
    *("estimated_calls", "uncounted_calls"),
)


def failures_table(runs: Iterable[TeamRun], set_of: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Count failures and fallbacks.

    Parameters
    ----------
    set_of : question id -> name of its set; without it all questions stand together under an empty name

    Returns
    -------
    DataFrame, one row a set, arm and K, in order of appearance: ``question_set``, ``arm``, ``k``, then whole numbers: ``runs``;
    ``workers`` of which ``failed_workers`` have no message, ``cut_workers`` ended at the token cap and ``reused_code`` sent a
    predecessor's code on; ``decisions``, ``failed_decisions``, ``cut_decisions``; ``further_tries`` beyond each first one; ``merges`` of
    which ``length_repaired`` were cut to their cap and ``distill_failed`` hold the beginning of the later message;
    ``candidates``, ``unusable_candidates``; ``estimated_calls`` and ``uncounted_calls`` (tokens counted by us, or unknown)
    """
    rows: dict[tuple[str, str, int], dict[str, int]] = {}
    for run in runs:
        name = set_of[run.question_id] if set_of else ""
        row = rows.setdefault((name, run.arm, run.k), dict.fromkeys(COUNTS, 0))
        for column, count in _counts(run).items():
            row[column] += count
    keyed: list[dict[str, Any]] = [
        {"question_set": name, "arm": arm, "k": k} | row for (name, arm, k), row in rows.items()
    ]
    return pd.DataFrame(keyed, columns=["question_set", "arm", "k", *COUNTS])


def _counts(run: TeamRun) -> dict[str, int]:
    everyone = [*run.messages, run.decision]
    merges = [merge for _, one in run.consolidations for merge in one.merges]
    return {
        "runs": 1,
        "workers": len(run.messages),
        "failed_workers": len(run.failed_agents),
        "cut_workers": sum(map(_cut, run.messages)),
        "reused_code": sum(one.reused_from is not None for one in run.messages),
        "decisions": 1,
        "failed_decisions": int(not run.decision.ok),
        "cut_decisions": int(_cut(run.decision)),
        "further_tries": sum(max(0, one.tries - 1) for one in everyone),
        "merges": len(merges),
        "length_repaired": sum(merge.length_repaired for merge in merges),
        "distill_failed": sum(merge.distill_failed for merge in merges),
        "candidates": sum(merge.candidates for merge in merges),
        "unusable_candidates": sum(merge.candidates - merge.usable for merge in merges),
        "estimated_calls": sum(one.tokens_estimated for one in everyone),
        "uncounted_calls": sum(one.prompt_tokens is None or one.new_tokens is None for one in everyone),
    }


def _cut(message: AgentMessage) -> bool:
    return message.ok and message.finish == "length"
