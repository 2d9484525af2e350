"""Choose at every step what to do with a message, from the receiver's own signals.

Context
-------
Section 3.2 and appendix C.6 of the paper. A gate skips where a regime's receiver is known to do well alone, before any sender
is called. Elsewhere the sender writes two candidates (one compressed, one derived anew), the receiver that would act on an
action is probed with it, and the action of highest J = A - tau - eta_c c - eta_r r is carried out.

Intuition
---------
A decision about a message costs messages and probes itself. So `lib.coordination.survey` asks equal prompts once,
candidates are kept and sent as they were probed, and a regime that needs no messages is left alone.

How to read the result
----------------------
A `Choice` says what was chosen and why (`Estimate` an action), and what the decision cost: `Cost.decision_tokens` counts both
candidates, all probes and the reply; `Cost.arm_tokens` only the chosen arm, as papers report it. The two differ by what
choosing costs. Whether a choice was right is settled later, by `lib.coordination.scoring` on `Choice.record`.

No function here can see gold: a `Step` has none, a `Record` has none, and a `ToolTable` holds means of other instances.

Not covered: what to compare a selector with (`lib.coordination.references`); a probe's reply and its scores are charged once, as for a
receiver that returns both together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pandas as pd

from lib.coordination.actions import (
    ACTIONS,
    Action,
    Prices,
    ToolTable,
    action_values,
    chosen_actions,
    signal_parts,
)
from lib.coordination.arms import replay_messages, run_arms
from lib.coordination.exchange import ArmName, Record, records_frame
from lib.coordination.sending import check_distinct, known_total
from lib.coordination.survey import Candidates, Settings, Survey, survey_steps
from lib.models.receiver import Receiver
from lib.tasks.steps import Step

UNCACHED_PROBES = 9  # a step's probes where no prompt is kept: 5 without a message, 4 with one


class Estimate(msgspec.Struct, frozen=True):
    """What one action was taken to be worth at a step; `gain` and `value` are None where it could not be probed."""

    action: Action
    gain: float | None  # nats
    tax: float  # accuracy
    cost: float  # tokens, by the rule of thumb
    residual: float
    value: float | None


class Cost(msgspec.Struct, frozen=True):
    """What a decision took; tokens are None where a model does not tell.

    Attributes
    ----------
    sender_calls, sender_tokens : for all candidates
    probe_calls, probe_tokens : distinct probes of the step; `uncached_probes` is their number if nothing is kept
    reply_tokens : read and written by whoever replied
    arm_tokens : reply and the one message that it was given
    """

    sender_calls: int
    sender_tokens: int | None
    probe_calls: int
    uncached_probes: int
    probe_tokens: int | None
    reply_tokens: int | None
    arm_tokens: int | None

    @property
    def decision_tokens(self) -> int | None:
        """Candidates, probes and reply."""
        return known_total([self.sender_tokens, self.probe_tokens, self.reply_tokens])


class Choice(msgspec.Struct, frozen=True):
    """One step's choice, and what its receiver then decided.

    Attributes
    ----------
    gated : skipped by the regime's record, without a candidate or a probe; then there are no estimates
    """

    step_id: str
    instance_id: str
    regime: str
    action: Action
    gated: bool
    estimates: tuple[Estimate, ...]
    cost: Cost
    record: Record


def select(
    steps: Sequence[Step],
    *,
    receiver: Receiver,
    sender: Receiver,
    strong: Receiver | None = None,
    table: ToolTable | None = None,
    prices: Prices | None = None,
    settings: Settings | None = None,
) -> list[Choice]:
    """Choose and carry out one action a step.

    Parameters
    ----------
    steps : of one family, each once; a regime is a family
    receiver, sender : who decides, who writes
    strong : the receiver of ``escalate``; None makes it the same as ``compress``
    table, prices : of calibration; by default nothing is known: no tax, no residual, no gate, and eta_c = 1e-4
    settings : default `Settings()`

    Returns
    -------
    list of Choice, in the order of `steps`

    Raises
    ------
    NoLogProbabilities
        If a step passes the gate and a receiver has no log-probabilities.
    ValueError
        As `run_arms` and `send_messages`.
    """
    table, prices, settings = table or ToolTable(), prices or Prices(), settings or Settings()
    check_distinct(steps)
    open_steps = [step for step in steps if not table.is_gated(step.family, settings.gate)]
    survey = survey_steps(open_steps, receiver=receiver, sender=sender, strong=strong, table=table, settings=settings)
    values = action_values(signal_parts(survey.signals), prices)
    actions = {step.id: action for step, action in zip(open_steps, chosen_actions(values), strict=True)}
    estimates = _estimates(survey.signals, values)
    records = _carry_out(steps, actions, survey.candidates, receiver, strong, settings)
    return [
        Choice(
            step_id=step.id,
            instance_id=step.instance_id,
            regime=step.family,
            action=actions.get(step.id, "skip"),
            gated=step.id not in actions,
            estimates=estimates.get(step.id, ()),
            cost=_cost(step, survey, records[step.id]),
            record=records[step.id],
        )
        for step in steps
    ]


def run_actions(
    steps: Sequence[Step],
    *,
    receiver: Receiver,
    candidates: Candidates,
    strong: Receiver | None = None,
    settings: Settings | None = None,
) -> dict[Action, list[Record]]:
    """Carry out every action at every step, for calibration and for references.

    Parameters
    ----------
    candidates : of `survey_steps` or `write_candidates`, so that what is scored is what was probed

    Returns
    -------
    dict of action to records in the order of `steps`; without a strong receiver ``escalate`` holds those of ``compress``
    """
    settings = settings or Settings()
    every = {action: _do(action, steps, candidates, receiver, strong, settings) for action in ACTIONS[:3]}
    every["escalate"] = _do("escalate", steps, candidates, receiver, strong, settings) if strong else every["compress"]
    every["refresh"] = _do("refresh", steps, candidates, receiver, strong, settings)
    return every


def choice_frame(choices: Sequence[Choice]) -> pd.DataFrame:
    """Return choices as a frame, one row a step: the fields of `Record` and, of the choice, ``action``, ``gated``, ``decision_tokens``,
    ``arm_tokens``, ``sender_calls``, ``probe_calls``, ``uncached_probes``."""
    added = [
        {
            "action": choice.action,
            "gated": choice.gated,
            "decision_tokens": choice.cost.decision_tokens,
            "arm_tokens": choice.cost.arm_tokens,
            "sender_calls": choice.cost.sender_calls,
            "probe_calls": choice.cost.probe_calls,
            "uncached_probes": choice.cost.uncached_probes,
        }
        for choice in choices
    ]
    columns = list(added[0]) if added else ["action", "gated", "decision_tokens", "arm_tokens"]
    frame = pd.DataFrame(added, columns=columns).astype({"decision_tokens": "Int64", "arm_tokens": "Int64"})
    return pd.concat([records_frame([choice.record for choice in choices]), frame], axis=1)


def _estimates(signals: pd.DataFrame, values: np.ndarray) -> dict[str, tuple[Estimate, ...]]:
    frame = signals.assign(value=values.ravel())
    found: dict[str, list[Estimate]] = {}
    for row in frame.to_dict("records"):
        known = not pd.isna(row["gain"])
        one = Estimate(
            action=row["action"],
            gain=float(row["gain"]) if known else None,
            tax=float(row["tax"]),
            cost=float(row["cost"]),
            residual=float(row["residual"]),
            value=float(row["value"]) if known else None,
        )
        found.setdefault(row["step_id"], []).append(one)
    return {step_id: tuple(rows) for step_id, rows in found.items()}


def _carry_out(
    steps: Sequence[Step],
    actions: Mapping[str, Action],
    candidates: Candidates,
    receiver: Receiver,
    strong: Receiver | None,
    settings: Settings,
) -> dict[str, Record]:
    """Return the record of each step; steps with the same action go to their receiver together."""
    records: dict[str, Record] = {}
    for action in ACTIONS:
        chosen = [step for step in steps if actions.get(step.id, "skip") == action]
        if chosen:
            made = _do(action, chosen, candidates, receiver, strong, settings)
            records |= {record.step_id: record for record in made}
    return records


def _do(
    action: Action,
    steps: Sequence[Step],
    candidates: Candidates,
    receiver: Receiver,
    strong: Receiver | None,
    settings: Settings,
) -> list[Record]:
    """Carry one action out at all these steps, in one call."""
    constrained, parser, max_tokens = settings.constrained, settings.parser, settings.max_tokens
    if action in ("skip", "raw"):
        arm: ArmName = "RO" if action == "skip" else "SF"
        return run_arms(
            steps, receiver=receiver, arms=(arm,), constrained=constrained, parser=parser, max_tokens=max_tokens
        )
    return replay_messages(
        [strong if strong and action == "escalate" else receiver],
        steps,
        candidates.refresh if action == "refresh" else candidates.compress,
        budgets=[settings.budget],
        counted_by=receiver,
        constrained=constrained,
        parser=parser,
        max_tokens=max_tokens,
    )


def _cost(step: Step, survey: Survey, record: Record) -> Cost:
    written = [one[step.id] for one in survey.candidates if step.id in one]
    probed = step.id in survey.probe_calls
    return Cost(
        sender_calls=sum(sent.tries for sent in written),
        sender_tokens=known_total([count for sent in written for count in (sent.input_tokens, sent.output_tokens)]),
        probe_calls=survey.probe_calls.get(step.id, 0),
        uncached_probes=UNCACHED_PROBES if probed else 0,
        probe_tokens=survey.probe_tokens[step.id] if probed else 0,
        reply_tokens=known_total([record.receiver_input_tokens, record.receiver_output_tokens]),
        arm_tokens=known_total([record.total_input_tokens, record.total_output_tokens]),
    )
