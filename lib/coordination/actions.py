"""The five protocol actions, what each is taken to be worth, and the table that calibration leaves behind.

Context
-------
Section 3.2 of the paper. At every step one of five actions is taken: ``skip`` (no message), ``compress`` (a message under
the budget), ``raw`` (the whole upstream context), ``escalate`` (the message, read by a stronger receiver) or ``refresh``
(a message written anew from the current state). `lib.coordination.protocol` has the value J = A - tau - eta_c c - eta_r r;
here are its parts for a step.

Intuition
---------
Gain is measured at the step itself (`lib.coordination.probes`). Tax cannot be: nobody knows at a step whether the receiver
will stumble over a message. It comes from a table: how much worse an action did, on other instances of the same
regime, than one agent that sees everything. Cost is a rule of thumb in tokens. The residual is what an action leaves to
later steps, and nothing at the last step.

How to read the result
----------------------
`signals` is one frame, a row a step and action, and holds no outcome: gold enters a decision only as means of other
instances, through `ToolTable`. A gain that could not be measured is null and its action is not taken; a regime or action
that the table lacks has tax and residual 0, as in the paper's public code, and `ToolTable.missing` says so.

Not covered: costs of what was in fact called (`lib.coordination.selector` counts them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import msgspec
import numpy as np
import pandas as pd

from lib.coordination.protocol import choose, protocol_value
from lib.tasks.steps import Step

Action = Literal["skip", "compress", "raw", "escalate", "refresh"]
ACTIONS: tuple[Action, ...] = get_args(Action)  # of equally good actions the first is taken
Term = Literal["gain", "tax", "cost", "residual"]
TERMS: tuple[Term, ...] = get_args(Term)
SIGNALS = ("step_id", "instance_id", "regime", "steps_left", "action", *TERMS)


class Prices(msgspec.Struct, frozen=True):
    """What calibration fixes: how a value is made of its parts.

    Attributes
    ----------
    cost : eta_c, value of one token, >= 0
    residual : eta_r, value of one unit of residual risk, >= 0
    offsets : added to the value of an action; 0 for one without
    """

    cost: float = 1e-4
    residual: float = 0.0
    offsets: dict[Action, float] = {}


class ToolTable(msgspec.Struct, frozen=True):
    """Means over calibration instances, by regime and action.

    Attributes
    ----------
    tax : regime to action to max(0, accuracy of one agent that sees everything - accuracy of the action)
    residual : regime to action to the risk it leaves to the next step
    local_accuracy : regime to the accuracy without a message; the gate reads it
    """

    tax: dict[str, dict[Action, float]] = {}
    residual: dict[str, dict[Action, float]] = {}
    local_accuracy: dict[str, float] = {}

    def is_gated(self, regime: str, gate: float | None) -> bool:
        """Return whether a regime does well enough without a message; an unknown regime does not."""
        known = self.local_accuracy.get(regime)
        return gate is not None and known is not None and known >= gate

    def missing(self, regimes: Sequence[str]) -> list[tuple[str, Action]]:
        """Return the pairs of regime and action whose tax is taken as 0 because it was never measured."""
        return [(regime, action) for regime in regimes for action in ACTIONS if action not in self.tax.get(regime, {})]


def expected_cost(view: int, context: int, budget: int) -> dict[Action, float]:
    """Return the tokens that an action is taken to cost, before anything is called.

    Parameters
    ----------
    view, context : lengths of local view and upstream context, tokens
    budget : cap of a message, tokens

    >>> expected_cost(100, 1000, 128)
    {'skip': 100.0, 'compress': 228.0, 'raw': 1100.0, 'escalate': 456.0, 'refresh': 342.0}
    """
    sent = float(view + budget)
    return {
        "skip": float(view),
        "compress": sent,
        "raw": float(view + context),
        "escalate": 2 * sent,
        "refresh": 1.5 * sent,
    }


def steps_left(steps: Sequence[Step]) -> dict[str, int]:
    """Return, for each step id, how many of these steps of its instance begin no earlier; 1 at the last."""
    places: dict[tuple[str, str], list[int]] = {}
    for step in steps:
        places.setdefault((step.family, step.instance_id), []).append(step.index)
    return {step.id: sum(index >= step.index for index in places[step.family, step.instance_id]) for step in steps}


def action_signals(
    steps: Sequence[Step],
    gains: Mapping[tuple[str, Action], float | None],
    costs: Mapping[str, Mapping[Action, float]],
    table: ToolTable,
) -> pd.DataFrame:
    """Return the parts of every action's value.

    Parameters
    ----------
    steps : the regime of a step is its family
    gains : (step id, action) to nats; null or absent where it could not be measured; ``skip`` has 0
    costs : step id to `expected_cost`
    table : of calibration

    Returns
    -------
    DataFrame with the columns `SIGNALS`, steps in order and their actions in the order of `ACTIONS`
    """
    left = steps_left(steps)
    rows = []
    for step in steps:
        for action in ACTIONS:
            gain = 0.0 if action == "skip" else gains.get((step.id, action))
            named = (step.id, step.instance_id, step.family, left[step.id], action)
            rows.append((*named, gain, 0.0, costs[step.id][action], 0.0))
    return with_table(pd.DataFrame(rows, columns=list(SIGNALS)).astype({"gain": float}), table)


def with_table(signals: pd.DataFrame, table: ToolTable) -> pd.DataFrame:
    """Return the signals with tax and residual of another table; the last step of an instance leaves no residual."""
    need_columns(signals, SIGNALS, "signals")
    keys = list(zip(signals["regime"], signals["action"], signals["steps_left"], strict=True))
    tax = [table.tax.get(regime, {}).get(action, 0.0) for regime, action, _ in keys]
    later = [table.residual.get(regime, {}).get(action, 0.0) if left > 1 else 0.0 for regime, action, left in keys]
    return signals.assign(tax=tax, residual=later)


def signal_parts(signals: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return gain, tax, cost and residual of a signals frame, each (n_steps, 5); an unmeasured gain is nan.

    Raises
    ------
    ValueError
        If a column is missing, or a step does not have the five actions in their order.
    """
    need_columns(signals, SIGNALS, "signals")
    if len(signals) % len(ACTIONS) or signals["action"].tolist() != list(ACTIONS) * (len(signals) // len(ACTIONS)):
        raise ValueError(f"signals: every step needs one row for each of {', '.join(ACTIONS)}, in this order")
    return {term: signals[term].to_numpy(dtype=float).reshape(-1, len(ACTIONS)) for term in TERMS}


def action_values(parts: Mapping[str, np.ndarray], prices: Prices, drop: Sequence[Term] = ()) -> np.ndarray:
    """Return the value of every action, (n_steps, 5); -inf where its gain could not be measured.

    Parameters
    ----------
    parts : of `signal_parts`
    prices : of calibration
    drop : terms taken as 0, for ablations
    """
    unknown = set(drop) - set(TERMS)
    if unknown:
        raise ValueError(f"drop: {sorted(unknown)} are no terms; known: {', '.join(TERMS)}")
    kept = {term: np.zeros_like(parts[term]) if term in drop else parts[term] for term in TERMS}
    value = protocol_value(**kept, cost_price=prices.cost, residual_price=prices.residual)
    value = value + np.array([prices.offsets.get(action, 0.0) for action in ACTIONS])
    return np.where(np.isnan(parts["gain"]), -np.inf, value)


def chosen_actions(values: np.ndarray) -> list[Action]:
    """Return the best action of each step; of equally good ones the first of `ACTIONS`."""
    return [ACTIONS[choose(row)] for row in values]


def need_columns(frame: pd.DataFrame, names: Sequence[str], what: str) -> None:
    """Raise ValueError if a frame lacks one of the columns `names`; `what` names the frame."""
    missing = [name for name in names if name not in frame]
    if missing:
        raise ValueError(f"{what} lacks the columns {missing}; it has {list(frame.columns)}")
