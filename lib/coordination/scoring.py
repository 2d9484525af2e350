"""Which decisions hit: a strict and a snapping scorer, side by side.

Context
-------
Section C.1 of the paper (table 5): benchmark supervision becomes a set of acceptable (artifact, action) pairs. A joint hit
matches a pair; that is the primary accuracy. An artifact hit matches the artifact of a pair; an action is judged given
the artifact.

Intuition
---------
The companion code snaps names to the candidates before it compares them. With a cutoff of 0.4 that also turns inventions
into guesses, so the strict scorer, which compares names as written, stands beside it.

How to read the result
----------------------
A reply that could not be read misses everything. A call that failed has null hits: nothing was decided. `hit_action` is right
for the chosen artifact where that hits, else for any acceptable artifact, so a joint hit is exactly an artifact hit and an
action hit.

This module and what builds on its tables are the only ones in this package that see gold.

Not covered: intervals and tests (`lib.evaluation`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from lib.coordination.exchange import Record, records_frame
from lib.coordination.parse import snap_name
from lib.tasks.steps import Step, StepGold, StepSet

_HITS = ("hit_artifact", "hit_action", "hit_joint")
_SCORERS = ("strict", "snapped")


class Hits(NamedTuple):
    """What of a decision is right."""

    artifact: bool
    action: bool
    joint: bool


def score_decision(gold: StepGold, artifact: str | None, action: str | None) -> Hits:
    """Return what of a decision is right, names compared as they are.

    >>> gold = StepGold("i/0", (("a.py", "edit"), ("b.py", "read")))
    >>> score_decision(gold, "a.py", "read")
    Hits(artifact=True, action=False, joint=False)
    """
    joint = (artifact, action) in gold.pairs
    has_artifact = any(artifact == name for name, _ in gold.pairs)
    has_action = joint if has_artifact else any(action == name for _, name in gold.pairs)
    return Hits(has_artifact, has_action, joint)


def score_records(
    records: Sequence[Record], gold: Mapping[str, StepGold], steps: Sequence[Step], *, snap: bool
) -> pd.DataFrame:
    """Score records: one row a record, in their order.

    Parameters
    ----------
    gold : by step id, of every step with a record
    snap : whether the plain columns ``hit_*`` are those of the snapping scorer

    Returns
    -------
    DataFrame with the fields of `Record`, and ``scorer``; ``hit_artifact``, ``hit_action``, ``hit_joint`` of that scorer and, with the
    endings ``_strict`` and ``_snapped``, of both (null where the call failed); ``artifact_snapped``, ``action_snapped``, ``snap_artifact``,
    ``snap_action`` (how, see `snap_name`); ``pick_position`` (0-based place of the snapped artifact in the list that was
    shown, null where there is none); ``message_names_artifact`` (the shown message names an acceptable artifact as
    written; null without a message)

    Raises
    ------
    ValueError
        If a step of a record is missing among `steps` or `gold`.
    """
    by_id = {step.id: step for step in steps}
    lost = [record.step_id for record in records if record.step_id not in by_id or record.step_id not in gold]
    if lost:
        raise ValueError(f"step {lost[0]!r}: it has a record but no step or no gold; pass those of the same family")
    rows = [_scored(record, by_id[record.step_id], gold[record.step_id]) for record in records]
    flags = [f"{hit}_{scorer}" for scorer in _SCORERS for hit in _HITS]
    texts = ("artifact_snapped", "action_snapped", "snap_artifact", "snap_action")
    columns = [*flags, *texts, "pick_position", "message_names_artifact"]
    kinds = dict.fromkeys([*flags, "message_names_artifact"], "boolean") | {"pick_position": "Int64"}
    added = pd.DataFrame(rows, columns=columns, dtype=object).astype(kinds)
    scorer = _SCORERS[snap]
    chosen = added[[f"{hit}_{scorer}" for hit in _HITS]].set_axis(list(_HITS), axis=1)
    return pd.concat([records_frame(records), chosen, added], axis=1).assign(scorer=scorer)


def score_families(records: Sequence[Record], families: Mapping[str, StepSet], *, snap: bool) -> pd.DataFrame:
    """Score records of several families, whose step ids may be the same; as `score_records`, in the order of the records.

    Raises
    ------
    ValueError
        If a record is of none of the families, or a step of it is missing.
    """
    lost = [record.benchmark for record in records if record.benchmark not in families]
    if lost:
        raise ValueError(f"family {lost[0]!r}: it has records but was not loaded; there are {', '.join(families)}")
    if not records:
        return score_records((), {}, (), snap=snap)
    benchmarks = pd.Series([record.benchmark for record in records])
    parts = []
    for name, places in benchmarks.groupby(benchmarks, sort=False).groups.items():
        own = families[str(name)]
        scored = score_records([records[place] for place in places], own.gold, own.steps, snap=snap)
        parts.append(scored.set_axis(places))
    return pd.concat(parts).sort_index()


def names_artifact(text: str, artifact: str) -> bool:
    """Return whether `text` names an artifact as written, not as a part of a longer word or path.

    >>> names_artifact("edit a.py.", "a.py"), names_artifact("edit b/a.py", "a.py")
    (True, False)
    """
    return re.search(rf"(?<![\w/]){re.escape(artifact)}(?![\w/])", text) is not None


def _scored(record: Record, step: Step, gold: StepGold) -> dict[str, Any]:
    artifact = snap_name(record.artifact_pred, step.artifacts)
    action = snap_name(record.action_type_pred, step.actions)
    strict: Hits | tuple[None, ...] = (None, None, None)
    snapped: Hits | tuple[None, ...] = (None, None, None)
    if record.answered:
        strict = snapped = Hits(False, False, False)
    if record.answered and record.parse_valid:
        strict = score_decision(gold, record.artifact_pred, record.action_type_pred)
        snapped = score_decision(gold, artifact.name, action.name)
    message = record.message_shown
    named = None if message is None else any(names_artifact(message, name) for name, _ in gold.pairs)
    return {
        **dict(zip((f"{hit}_strict" for hit in _HITS), strict, strict=True)),
        **dict(zip((f"{hit}_snapped" for hit in _HITS), snapped, strict=True)),
        "artifact_snapped": artifact.name,
        "action_snapped": action.name,
        "snap_artifact": artifact.how,
        "snap_action": action.how,
        "pick_position": step.artifacts.index(artifact.name) if artifact.name is not None else None,
        "message_names_artifact": named,
    }
