"""What it buys to mend a shared log, or to look again, and what it costs.

Context
-------
Appendix C.7 of the paper: targeted repair helps most where observations are stale, fresh observations neutralise most of a
perturbation, and stale ones harm even without any. These are contrasts between runs of the same episodes.

Intuition
---------
Two things can end a wrong state. Someone sets the log right: one line, written once. Or everybody looks again before each step: a
view, read at every step. Both are counted in the tokens of the receiver that reads them, and in hits at the steps that could
profit: from the second on, the first that reads a mended log.

How to read the result
----------------------
A row an intervention and episode: ``delta``, the hits it gains over these steps, and the ``tokens`` that it takes. Repair is the
experimenter's: knowing *which* entry is wrong costs nothing here, and would cost most in use. So hits per token of a repair are
a bound from above.

Not covered: intervals (`lib.evaluation.paired_gain`); repairs by agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.coordination.actions import need_columns
from lib.coordination.exchange import Record
from lib.coordination.shared_state import Entry
from lib.models.receiver import Receiver
from lib.tasks.steps import Step

_Run = tuple[str, str]
INTERVENTIONS: dict[str, tuple[_Run, _Run, frozenset[str]]] = {
    "mend the log, stale views": (("perturbed", "stale"), ("repaired", "stale"), frozenset({"entry"})),
    "mend the log, fresh views": (("perturbed", "fresh"), ("repaired", "fresh"), frozenset({"entry"})),
    "look again": (("perturbed", "stale"), ("perturbed", "fresh"), frozenset({"views"})),
    "mend and look": (("perturbed", "stale"), ("repaired", "fresh"), frozenset({"entry", "views"})),
    "look again, undisturbed": (("control", "stale"), ("control", "fresh"), frozenset({"views"})),
}
FIRST_STEP = 2  # the first that reads a mended log


def intervention_costs(
    steps: Sequence[Step], mended: Mapping[str, Entry], receiver: Receiver, *, first: int = FIRST_STEP
) -> pd.DataFrame:
    """Return what interventions take in each episode, in the receiver's tokens.

    Parameters
    ----------
    steps : of one family
    mended : instance id to what the log's first entry is set to: what the receiver decided itself (`own_entries`)

    Returns
    -------
    DataFrame, one row an episode: ``instance_id``, ``entry`` (the mended line), ``views`` (of all steps that are counted)
    """
    views: dict[str, int] = {}
    for step, count in zip(steps, receiver.count_tokens([step.local_view for step in steps]), strict=True):
        views[step.instance_id] = views.get(step.instance_id, 0) + (count if step.index >= first else 0)
    instances = list(views)
    lines = receiver.count_tokens([f"step 0: {mended[one].line}" for one in instances])
    return pd.DataFrame({"instance_id": instances, "entry": lines, "views": [views[one] for one in instances]})


def own_entries(records: Sequence[Record]) -> dict[str, Entry]:
    """Return what the log's first entry is without a perturbation: the decisions of step 0 in these records, by instance."""
    return {one.instance_id: Entry(one.artifact_pred, one.action_type_pred) for one in records if one.step_t == 0}


def intervention_gains(scored: pd.DataFrame, costs: pd.DataFrame, *, first: int = FIRST_STEP) -> pd.DataFrame:
    """Return what every intervention gained in each episode.

    Parameters
    ----------
    scored : of `lib.coordination.shared_state.score_episodes`
    costs : of `intervention_costs`

    Returns
    -------
    DataFrame, one row an intervention and episode: ``intervention``, ``instance_id``, ``steps``, ``left`` and ``right`` (hits with it and
    without), ``delta`` = left - right, ``tokens``. An intervention whose runs are not there is left out; a null hit makes its episode null

    Raises
    ------
    ValueError
        If a column is missing, or there is no step that could profit.
    """
    need_columns(scored, ("run", "observation", "instance_id", "step_t", "hit_joint"), "scored")
    need_columns(costs, ("instance_id", "entry", "views"), "costs")
    later = scored[scored["step_t"] >= first]
    if later.empty:
        raise ValueError(f"scored: no episode has a step {first}, the first that reads a mended log")
    hits = later.assign(hit=later["hit_joint"].astype("Float64")).groupby(["run", "observation", "instance_id"])["hit"]
    totals = hits.agg(lambda own: own.sum(skipna=False))
    counts = later.groupby(["run", "observation", "instance_id"]).size()
    paid = costs.set_index("instance_id")
    rows = []
    for name, (before, after, parts) in INTERVENTIONS.items():
        if not all(one in set(zip(later["run"], later["observation"], strict=True)) for one in (before, after)):
            continue
        for instance in sorted(set(later["instance_id"])):
            left, right = totals.loc[(*after, instance)], totals.loc[(*before, instance)]
            tokens = int(paid.loc[instance, sorted(parts)].sum())
            rows.append((name, instance, int(counts.loc[(*before, instance)]), left, right, left - right, tokens))
    columns = ["intervention", "instance_id", "steps", "left", "right", "delta", "tokens"]
    return pd.DataFrame(rows, columns=columns).astype({"left": "Float64", "right": "Float64", "delta": "Float64"})
