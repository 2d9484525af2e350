"""Score a selector's study: the outcome of every action, and what choosers got in use.

Context
-------
Appendix C.6 of the paper: policies are compared on outcomes that are scored after all decisions were made.

Intuition
---------
Deciding and scoring share no module. What decided cannot import this one, and this one decides nothing: it puts gold beside records
that are already there.

How to read the result
----------------------
`measured_outcomes` has the columns `OUTCOMES` and step names of `lib.coordination.selector_study`. `used_steps` has the columns of
`lib.coordination.crossfit.Crossfit.steps`, with what was in fact paid, so that what was used stands beside what was looked up.

Not covered: intervals (`lib.evaluation.policy_summary`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.coordination.action_outcomes import action_outcomes
from lib.coordination.calibration import TOKEN_PRICE
from lib.coordination.controller import Controlled
from lib.coordination.scoring import score_records
from lib.coordination.selector import Choice
from lib.coordination.selector_study import Measured, step_name
from lib.coordination.sending import known_total
from lib.tasks.steps import StepSet

USED = (
    *("policy", "fold", "step_id", "instance_id", "regime", "action", "hit", "tokens", "utility", "decision_tokens"),
    *("decision_utility", "oracle_only"),
)


def measured_outcomes(measured: Measured, sets: Mapping[str, StepSet], *, snap: bool) -> pd.DataFrame:
    """Return the outcome of every action at every step, with step names.

    Parameters
    ----------
    sets : by family, with gold
    snap : as in `lib.coordination.scoring.score_records`
    """
    parts = []
    for family, records in measured.records.items():
        own = sets[family]
        frame = action_outcomes(records, own.gold, own.steps, snap=snap)
        parts.append(frame.assign(step_id=[step_name(family, one) for one in frame["step_id"]]))
    return pd.concat(parts, ignore_index=True)


def used_steps(
    name: str,
    done: Mapping[str, Sequence[Choice | Controlled]],
    sets: Mapping[str, StepSet],
    fold_of: Mapping[str, int],
    *,
    snap: bool,
) -> pd.DataFrame:
    """Return what a chooser got in use, one row a step with the columns `USED`; ``hit`` is null where its call failed.

    Parameters
    ----------
    name : of the policy
    done : by family, of `lib.coordination.selector_study`; the action of a controller is its verdict
    fold_of : step name to fold
    """
    rows = []
    for family, own in done.items():
        scored = score_records([one.record for one in own], sets[family].gold, sets[family].steps, snap=snap)
        for one, hit in zip(own, scored["hit_joint"], strict=True):
            step = step_name(family, one.step_id)
            action, arm, paid = _taken(one)
            instance = one.record.instance_id
            rows.append((name, fold_of[step], step, instance, family, action, hit, arm, None, paid, None, False))
    frame = pd.DataFrame(rows, columns=list(USED))
    numbers = frame[["hit", "tokens", "decision_tokens"]].astype("Float64")
    return frame.assign(
        **numbers,
        utility=numbers["hit"] - TOKEN_PRICE * numbers["tokens"],
        decision_utility=numbers["hit"] - TOKEN_PRICE * numbers["decision_tokens"],
    )


def agreement(used: pd.DataFrame, looked_up: pd.DataFrame) -> float:
    """Return the share of steps at which a chooser in use took the action that the stored signals choose; null without common steps.

    Parameters
    ----------
    used : of `used_steps`
    looked_up : the same policy's rows of `lib.coordination.crossfit.Crossfit.steps`
    """
    both = used[["step_id", "action"]].merge(looked_up[["step_id", "action"]], on="step_id", suffixes=("", "_stored"))
    return float((both["action"] == both["action_stored"]).mean())


def _taken(one: Choice | Controlled) -> tuple[str, int | None, int | None]:
    """Return the action, and the tokens of its arm and of the whole decision."""
    if isinstance(one, Choice):
        return one.action, one.cost.arm_tokens, one.cost.decision_tokens
    arm = known_total([one.record.total_input_tokens, one.record.total_output_tokens])
    return one.verdict.lower(), arm, one.decision_tokens
