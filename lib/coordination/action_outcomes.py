"""What became of each action at each step, and the table that calibration makes of it.

Context
-------
Section 3.2 and appendix C.6 of the paper. Outcomes are stored once for every action: from runs of all five, or from the three
arms that stand for some of them (the paper's ablation took the arm with full context for ``raw``).

Intuition
---------
A selector may not see an outcome of the step it decides on. It may see means over other instances. `tool_table` makes
these means, and they are all that passes from here to a decision.

How to read the result
----------------------
An outcome is ``hit`` (joint, 0 or 1) and ``tokens`` (what sender and receiver read and wrote; null where a model does not
tell). The table's tax is how far an action falls short of one agent that sees everything, never below 0.

Not covered: which instances calibrate and which judge (`lib.coordination.calibration`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.coordination.actions import ACTIONS, Action, ToolTable, need_columns
from lib.coordination.exchange import Record
from lib.coordination.scoring import score_records
from lib.tasks.steps import Step, StepGold

_PAID = ("total_input_tokens", "total_output_tokens")
ARM_OF_ACTION: dict[Action, str] = {"skip": "RO", "compress": "MA", "raw": "SF"}  # stored arms that stand for an action
OUTCOMES = ("step_id", "instance_id", "regime", "action", "hit", "tokens")


def arm_outcomes(scored: pd.DataFrame) -> pd.DataFrame:
    """Return stored arms as outcomes of actions: RO as skip, MA as compress, SF as raw.

    Parameters
    ----------
    scored : one row a scored record: ``step_id``, ``instance_id``, ``benchmark``, ``arm``, ``hit_joint``,
        ``total_input_tokens``, ``total_output_tokens``

    Returns
    -------
    DataFrame with the columns `OUTCOMES`; ``tokens`` is what the stored arm paid, null where unknown
    """
    need_columns(scored, ("step_id", "instance_id", "benchmark", "arm", "hit_joint", *_PAID), "scored")
    actions = {arm: action for action, arm in ARM_OF_ACTION.items()}
    rows = scored[scored["arm"].isin(actions)]
    return _outcomes(rows, rows["arm"].map(actions))


def action_outcomes(
    records: Mapping[Action, Sequence[Record]], gold: Mapping[str, StepGold], steps: Sequence[Step], *, snap: bool
) -> pd.DataFrame:
    """Return the outcomes of runs of all actions (`lib.coordination.selector.run_actions`), with the columns `OUTCOMES`.

    A step at which an action's call failed has no outcome for it.
    """
    scored = [
        score_records(made, gold, steps, snap=snap).assign(action=action) for action, made in records.items() if made
    ]
    if not scored:
        return pd.DataFrame(columns=list(OUTCOMES))
    rows = pd.concat(scored, ignore_index=True)
    return _outcomes(rows, rows["action"])


def tool_table(outcomes: pd.DataFrame, *, carry: Mapping[str, float] | None = None) -> ToolTable:
    """Return the table of a calibration set.

    Parameters
    ----------
    outcomes : columns ``regime``, ``action``, ``hit`` (0 or 1); the accuracy of one agent that sees everything is that of
        ``raw``
    carry : regime to g, the share of an error that lives on in the next step (`lib.coordination.propagation_fit`); a
        regime without one has no residual

    Returns
    -------
    ToolTable; the residual of an action is g times its error

    Raises
    ------
    ValueError
        If a column is missing, or an action is not known.
    """
    need_columns(outcomes, ("regime", "action", "hit"), "outcomes")
    unknown = sorted(set(outcomes["action"]) - set(ACTIONS))
    if unknown:
        raise ValueError(f"outcomes: unknown actions {unknown}; known: {', '.join(ACTIONS)}")
    means = outcomes.astype({"hit": float}).groupby(["regime", "action"], sort=True)["hit"].mean()
    tax: dict[str, dict[Action, float]] = {}
    residual: dict[str, dict[Action, float]] = {}
    local: dict[str, float] = {}
    for regime, part in means.groupby(level="regime"):
        accuracy: dict[Action, float] = {
            action: float(part[regime, action]) for action in ACTIONS if (regime, action) in part
        }
        name = str(regime)
        if "raw" in accuracy:
            tax[name] = {action: max(0.0, accuracy["raw"] - one) for action, one in accuracy.items()}
        if carry and name in carry:
            residual[name] = {action: carry[name] * (1 - one) for action, one in accuracy.items()}
        if "skip" in accuracy:
            local[name] = accuracy["skip"]
    return ToolTable(tax, residual, local)


def _outcomes(rows: pd.DataFrame, actions: pd.Series) -> pd.DataFrame:
    tokens = rows["total_input_tokens"].astype("Int64") + rows["total_output_tokens"].astype("Int64")
    frame = pd.DataFrame(
        {
            "step_id": rows["step_id"],
            "instance_id": rows["instance_id"],
            "regime": rows["benchmark"],
            "action": actions,
            "hit": rows["hit_joint"].astype("Float64"),
            "tokens": tokens.astype("Float64"),
        }
    )
    return frame.dropna(subset=["hit"]).reset_index(drop=True)
