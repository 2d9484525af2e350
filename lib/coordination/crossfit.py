"""Judge a calibrated selector at every step, each time calibrated on other instances.

Context
-------
Section 3.2 and appendix C.6 of the paper: calibration and judgement use disjoint instances. One split wastes most of a small data
set; here instances are dealt into folds, each fold is judged with what the others fixed, and every step counts once.

Intuition
---------
A policy that chooses step by step cannot be told from its means alone: an interval needs what it got at every step, beside its
instance. So the result is a row a policy and step. Chance with the same mix needs no draws: at every step it gets each action's
outcome, weighted by how often the selector takes that action in the fold.

How to read the result
----------------------
``decision_tokens`` charges what choosing costs (both candidates, all probes) to the policies that choose; ``tokens`` is the stored
arm alone, as the paper counts. `FIXED_PRICES` are policies whose prices nobody calibrated: the paper's defaults, and what the
grid search of its public code returns whatever the data, the smallest price and no offset. The oracle knows outcomes.

Not covered: intervals (`lib.evaluation.policy_summary`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pandas as pd

from lib.coordination.actions import ACTIONS, Action, Prices, chosen_actions, need_columns, with_table
from lib.coordination.calibration import TOKEN_PRICE, Calibration, Judged, calibrate, judge
from lib.coordination.references import CHANCE, charges, per_step, policies
from lib.coordination.survey import GATE
from lib.seeds import hash_order

FOLDS = 5
FIXED_PRICES: dict[str, Prices] = {"default prices": Prices(), "smallest price": Prices(cost=1e-5)}


class Crossfit(msgspec.Struct, frozen=True):
    """What every policy got at every step, and what each fold was judged with.

    Attributes
    ----------
    steps : one row a policy and step: ``policy``, ``fold``, ``step_id``, ``instance_id``, ``regime``, ``action`` (null for chance),
        ``hit``, ``tokens``, ``utility``, ``decision_tokens``, ``decision_utility`` (null without an overhead), ``oracle_only``
    calibrations : by fold, made on all other folds
    dropped : steps that lacked the outcome of an action that was run elsewhere
    """

    steps: pd.DataFrame
    calibrations: tuple[Calibration, ...]
    dropped: int


def instance_folds(signals: pd.DataFrame, folds: int = FOLDS, *names: object) -> pd.Series:
    """Return the fold of every row; an instance is in one fold, and each regime is dealt as evenly as it can be.

    Parameters
    ----------
    signals : columns ``regime`` and ``instance_id``
    folds : at least 2; a regime with fewer instances than that leaves folds empty
    names : name the draw

    Raises
    ------
    ValueError
        For fewer than 2 folds, or a regime with a single instance.
    """
    need_columns(signals, ("regime", "instance_id"), "signals")
    if folds < 2:
        raise ValueError(f"folds: at least 2 are needed, not {folds}; one calibrates, the other is judged")
    place: dict[tuple[object, object], int] = {}
    for regime, part in signals.groupby("regime", sort=True):
        instances = hash_order(sorted(set(part["instance_id"])), "instance folds", regime, *names)
        if len(instances) < 2:
            raise ValueError(f"regime {regime!r} has one instance; calibration and judgement need one each")
        place |= {(regime, instance): number % folds for number, instance in enumerate(instances)}
    keys = zip(signals["regime"], signals["instance_id"], strict=True)
    return pd.Series([place[key] for key in keys], index=signals.index, name="fold")


def crossfit(
    signals: pd.DataFrame,
    outcomes: pd.DataFrame,
    *,
    folds: int = FOLDS,
    overhead: Mapping[tuple[str, Action], float] | None = None,
    gate: float | None = GATE,
    carry: Mapping[str, float] | None = None,
    fixed: Mapping[str, Prices] = FIXED_PRICES,
    seed: int = 0,
) -> Crossfit:
    """Calibrate on all folds but one and judge all policies on that one, for each fold.

    Parameters
    ----------
    signals, outcomes : of all steps, as in `lib.coordination.calibration.calibrate`
    overhead, gate : as in `lib.coordination.references.references`
    carry : as in `lib.coordination.action_outcomes.tool_table`
    fixed : policies that probe like the selector, behind the same gate, with prices that nobody calibrated
    seed : names the deal

    Raises
    ------
    ValueError
        As `instance_folds`, `calibrate` and `judge`; if a step and action has no overhead.
    """
    place = instance_folds(signals, folds, seed)
    parts, calibrations, dropped = [], [], 0
    for fold in sorted(set(place)):
        calibration = calibrate(signals[place != fold].reset_index(drop=True), outcomes, carry=carry)
        mine = signals[place == fold].reset_index(drop=True)
        judged = judge(with_table(mine, calibration.table), outcomes)
        steps = _judged_steps(judged, calibration, overhead, gate, fixed)
        parts.append(steps.assign(fold=fold))
        calibrations.append(calibration)
        dropped += judged.dropped
    frame = pd.concat(parts, ignore_index=True)
    frame = frame.assign(oracle_only=frame["policy"].eq("oracle"))
    order = {name: number for number, name in enumerate(dict.fromkeys(frame["policy"]))}
    frame = frame.sort_values("policy", key=lambda names: names.map(order), kind="stable", ignore_index=True)
    return Crossfit(frame, tuple(calibrations), dropped)


def price_table(calibrations: Sequence[Calibration]) -> pd.DataFrame:
    """Return what every fold fixed: ``fold``, ``instances``, both prices, ``offset_<action>`` and the in-sample ``utility``."""
    rows = [
        {
            "fold": fold,
            "instances": len(one.instances),
            "cost_price": one.prices.cost,
            "residual_price": one.prices.residual,
            **{f"offset_{action}": one.prices.offsets.get(action, 0.0) for action in ACTIONS},
            "utility": one.utility,
        }
        for fold, one in enumerate(calibrations)
    ]
    return pd.DataFrame(rows)


def _judged_steps(
    judged: Judged,
    calibration: Calibration,
    overhead: Mapping[tuple[str, Action], float] | None,
    gate: float | None,
    fixed: Mapping[str, Prices],
) -> pd.DataFrame:
    """Return the rows of one fold."""
    chosen = policies(judged, calibration, gate)
    extra = charges(judged, calibration, list(chosen), overhead=overhead, gate=gate)
    regimes = judged.signals["regime"].iloc[:: len(ACTIONS)]
    closed = np.array([calibration.table.is_gated(str(one), gate) for one in regimes]) & ("skip" in judged.available)
    for name, prices in fixed.items():
        own = np.array([ACTIONS.index(action) for action in chosen_actions(judged.values(prices))])
        chosen[name], extra[name] = np.where(closed, 0, own), extra["selector"]
    rows = [
        per_step(judged, one).assign(policy=name, overhead=extra[name][np.arange(len(one)), one])
        for name, one in chosen.items()
    ]
    rows.insert(
        1, _chance(judged, chosen["selector"]).assign(policy=CHANCE, overhead=np.nan if overhead is None else 0.0)
    )
    frame = pd.concat(rows, ignore_index=True)
    paid = frame.pop("overhead")
    frame["decision_tokens"] = frame["tokens"] + paid
    frame["decision_utility"] = frame["utility"] - TOKEN_PRICE * paid
    return frame


def _chance(judged: Judged, selected: np.ndarray) -> pd.DataFrame:
    """Return what a policy expects at every step that draws from the selector's mix of actions."""
    share = np.bincount(selected, minlength=len(ACTIONS)) / len(selected)
    frame = per_step(judged, selected)
    for name, values in (("hit", judged.hit), ("tokens", judged.tokens), ("utility", judged.utility)):
        frame[name] = np.nan_to_num(values) @ share  # an action that was not run has no share
    return frame.assign(action=None)
