"""One step, all receivers: which step tells most, and what each receiver made of the same message.

Context
-------
The paper's case studies (appendix D): a message that overrides a right view, one that brings what the receiver lacks, and one that
two receivers with the same right file turn into different actions.

Intuition
---------
A step tells most where the message was good and its readers parted. So the rule prefers, in this order: a message that names an
acceptable artifact; more different outcomes among the receivers; more right artifacts with a wrong action; more receivers
whose result the message changed, either way; then the smaller key. The rule looks at outcomes, so its choice is an example and no
sample.

How to read the result
----------------------
``outcome`` is one of `lib.coordination.outcomes.KINDS`, or ``no answer`` where the call failed. ``alone`` is the outcome of the same
receiver without a message, null where it was not asked.

Not covered: how a case is shown (`lib.evaluation.case_pages`).
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from lib.coordination.actions import need_columns
from lib.coordination.keys import KEY, check_unique
from lib.coordination.outcomes import outcome_kinds

NO_ANSWER = "no answer"
_FLAGS = ("answered", "parse_valid", "hit_artifact", "hit_action", "hit_joint")
_COLUMNS = (*KEY, *_FLAGS, "arm", "step_id", "receiver_model", "message_names_artifact")


def outcomes_of(scored: pd.DataFrame) -> pd.Series:
    """Return the outcome of every row of `lib.coordination.scoring.score_records`; its index is the frame's."""
    need_columns(scored, _FLAGS, "scored")
    found = pd.Series(NO_ANSWER, index=scored.index, name="outcome", dtype=object)
    answered = scored[scored["answered"].astype(bool)]
    flags = answered[["parse_valid", "hit_artifact", "hit_action"]].rename(columns={"parse_valid": "valid"})
    found.loc[answered.index] = outcome_kinds(flags.astype(bool))
    return found


def rank_cases(scored: pd.DataFrame) -> pd.DataFrame:
    """Return the steps of a replay, the most telling one first.

    Parameters
    ----------
    scored : of `lib.coordination.scoring.score_records`; one sender's MA rows, each receiver once a step, and RO rows

    Returns
    -------
    DataFrame, one row a step with MA rows: `KEY`, ``step_id``, ``receivers``, ``told`` (the message names an acceptable artifact),
    ``outcomes`` (different ones), ``hits``, ``action_wrong``, ``changed`` (receivers that hit with the message or alone, not both)

    Raises
    ------
    ValueError
        If a column is missing, or a receiver has several rows of an arm at a step: choose one sender and budget.
    """
    need_columns(scored, _COLUMNS, "scored")
    check_unique(scored[scored["arm"].isin(["RO", "MA"])], ("arm", "receiver_model"))
    frame = scored.assign(outcome=outcomes_of(scored))
    match = [*KEY, "receiver_model"]
    alone = frame[frame["arm"] == "RO"][[*match, "hit_joint"]].rename(columns={"hit_joint": "alone"})
    rows = []
    for key, group in frame[frame["arm"] == "MA"].merge(alone, on=match, how="left").groupby(list(KEY), sort=True):
        kinds = group["outcome"]
        rows.append(
            {
                **dict(zip(KEY, key, strict=True)),
                "step_id": group["step_id"].iloc[0],
                "receivers": len(group),
                "told": bool(group["message_names_artifact"].fillna(False).any()),
                "outcomes": kinds.nunique(),
                "hits": int((kinds == "hit").sum()),
                "action_wrong": int((kinds == "action_wrong").sum()),
                "changed": int((group["hit_joint"].astype("boolean") ^ group["alone"].astype("boolean")).sum()),
            }
        )
    names = ("step_id", "receivers", "told", "outcomes", "hits", "action_wrong", "changed")
    table = pd.DataFrame(rows, columns=[*KEY, *names])
    return table.sort_values(
        ["told", "outcomes", "action_wrong", "changed", *KEY], ascending=[False] * 4 + [True] * 3, ignore_index=True
    )


def pick_case(ranked: pd.DataFrame, case: str = "") -> dict[str, Any]:
    """Return a row of `rank_cases`: the first, or that of the step called ``family step_id``.

    Raises
    ------
    ValueError
        If there is no step, or none of that name; the message names one that there is.
    """
    if not len(ranked):
        raise ValueError("case: no step was read by any receiver")
    names = ranked["benchmark"] + " " + ranked["step_id"]
    if case and case not in set(names):
        raise ValueError(f"case: {case!r} is no step of this run; say family and step as in {names.iloc[0]!r}")
    row = ranked[names == case].iloc[0] if case else ranked.iloc[0]
    return {str(name): value for name, value in row.items()}


def case_outputs(scored: pd.DataFrame, benchmark: str, step_id: str) -> pd.DataFrame:
    """Return what every receiver made of one step, alone and with the message.

    Returns
    -------
    DataFrame, one row a receiver in order of appearance: ``receiver``; ``alone reply``, ``alone outcome``, ``reply``, ``artifact``,
    ``action``, ``outcome``; texts, null where there was no such row
    """
    here = scored[(scored["benchmark"] == benchmark) & (scored["step_id"] == step_id)]
    here = here.assign(outcome=outcomes_of(here))
    rows = []
    for name, group in here.groupby("receiver_model", sort=False):
        sides = {arm: part.iloc[0] for arm, part in group.groupby("arm")}
        alone, told = sides.get("RO"), sides.get("MA")
        rows.append(
            {
                "receiver": name,
                "alone reply": None if alone is None else alone["receiver_output"],
                "alone outcome": None if alone is None else alone["outcome"],
                "reply": None if told is None else told["receiver_output"],
                "artifact": None if told is None else told["artifact_snapped"],
                "action": None if told is None else told["action_snapped"],
                "outcome": None if told is None else told["outcome"],
            }
        )
    names = ["receiver", "alone reply", "alone outcome", "reply", "artifact", "action", "outcome"]
    return pd.DataFrame(rows, columns=names, dtype=object)
