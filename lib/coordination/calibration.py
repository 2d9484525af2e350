"""Fix prices and offsets of the selector on instances that are not judged later.

Context
-------
Section 3.2 and appendix C.6 of the paper: action offsets, a local-sufficiency threshold and cost weights are fixed before
evaluation, on instance-disjoint records. The grid search in the paper's public code has an objective that depends on
the cost price only through a penalty and on the residual price not at all, so it always returns the smallest of both. Here
the objective is what the selector is for: accuracy minus 1e-4 tokens of the actions it would have chosen.

Intuition
---------
With the outcome of every action stored, any prices can be tried without asking a model again. For each pair of prices the
offsets are raised or lowered one action at a time. The best value of one offset, given the others, is found exactly: step
by step there is one value at which this action begins to win, and only between such values can anything change.

How to read the result
----------------------
`Calibration.utility` is in-sample and optimistic; judge on `split_instances`'s other part. Of equally good prices the larger
cost price is taken, then the smaller offsets, then the smaller residual price. Within one regime a residual is one number an
action, so only several regimes can tell its price from an offset.

Not covered: the joint optimum over offsets (one at a time may stop short of it, though never of one action taken always);
the gate's threshold, which is a setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pandas as pd

from lib.coordination.action_outcomes import OUTCOMES, tool_table
from lib.coordination.actions import (
    ACTIONS,
    SIGNALS,
    Action,
    Prices,
    Term,
    ToolTable,
    action_values,
    need_columns,
    signal_parts,
    with_table,
)
from lib.seeds import hash_order

TOKEN_PRICE = 1e-4  # accuracy given up for one token, in every comparison of policies (paper)
COST_PRICES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
RESIDUAL_PRICES = (0.0, 0.1, 0.3, 1.0)
_ROUNDS = 5
_DIGITS = 12


class Calibration(msgspec.Struct, frozen=True):
    """What calibration leaves behind.

    Attributes
    ----------
    prices, table : for `lib.coordination.selector.select`
    utility : mean of hit - 1e-4 tokens that these choices have on the calibration steps themselves
    instances : calibration instances, as (regime, instance id); not to be judged on
    """

    prices: Prices
    table: ToolTable
    utility: float
    instances: tuple[tuple[str, str], ...]


class Judged(msgspec.Struct, frozen=True):
    """Signals beside outcomes, both (n_steps, 5) in the order of `lib.coordination.actions.ACTIONS`.

    `hit` and `tokens` are nan for an action that was run nowhere. `dropped` counts steps that lack the outcome of an action that
    was run elsewhere; they are not among the others.
    """

    signals: pd.DataFrame
    hit: np.ndarray
    tokens: np.ndarray
    dropped: int = 0

    @property
    def available(self) -> list[Action]:
        """The actions that were run, each at every step."""
        return [action for action, known in zip(ACTIONS, np.isfinite(self.hit).all(0), strict=True) if known]

    @property
    def utility(self) -> np.ndarray:
        """hit - 1e-4 tokens, (n_steps, 5)."""
        return self.hit - TOKEN_PRICE * self.tokens

    def values(self, prices: Prices, drop: Sequence[Term] = ()) -> np.ndarray:
        """Return values for choosing, (n_steps, 5); -inf for an action that is not available."""
        values = action_values(signal_parts(self.signals), prices, drop)
        values[:, [action not in self.available for action in ACTIONS]] = -np.inf
        return values


def judge(signals: pd.DataFrame, outcomes: pd.DataFrame) -> Judged:
    """Put stored outcomes beside the signals of the same steps.

    Parameters
    ----------
    signals : columns `SIGNALS`
    outcomes : columns `OUTCOMES`, each step and action at most once; other steps are left aside

    Raises
    ------
    ValueError
        If a column is missing, a step and action stands twice, or no step has the outcomes of all actions that were run.
    """
    need_columns(outcomes, OUTCOMES, "outcomes")
    signal_parts(signals)
    keyed = outcomes.set_index(["regime", "step_id", "action"])
    if not keyed.index.is_unique:
        raise ValueError(f"outcomes: {keyed.index[keyed.index.duplicated()][0]} stands twice; keep one")
    wanted = pd.MultiIndex.from_frame(signals[["regime", "step_id", "action"]])
    found = keyed[["hit", "tokens"]].astype("Float64").astype(float).reindex(wanted)
    hit, tokens = (found[name].to_numpy().reshape(-1, len(ACTIONS)) for name in ("hit", "tokens"))
    known = np.isfinite(hit) & np.isfinite(tokens)
    whole = known[:, known.any(0)].all(1) & known.any(1)
    if not whole.any():
        raise ValueError(
            "outcomes: no step of the signals has hit and tokens of every action; run all actions on the same"
        )
    kept = signals[np.repeat(whole, len(ACTIONS))].reset_index(drop=True)
    return Judged(
        kept, np.where(known, hit, np.nan)[whole], np.where(known, tokens, np.nan)[whole], int((~whole).sum())
    )


def split_instances(signals: pd.DataFrame, fraction: float, *names: object) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the signals of calibration instances and those of all others.

    Parameters
    ----------
    fraction : of each regime's instances, rounded, at least one and never all
    names : name the draw

    Raises
    ------
    ValueError
        For a fraction outside (0, 1) or a regime with a single instance.
    """
    need_columns(signals, SIGNALS, "signals")
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must lie between 0 and 1, not {fraction!r}")
    taken: set[tuple[str, str]] = set()
    for regime, part in signals.groupby("regime", sort=True):
        instances = hash_order(sorted(set(part["instance_id"])), "calibration instances", regime, *names)
        if len(instances) < 2:
            raise ValueError(f"regime {regime!r} has one instance; calibration and judgement need one each")
        count = min(max(1, round(fraction * len(instances))), len(instances) - 1)
        taken |= {(str(regime), instance) for instance in instances[:count]}
    inside = pd.Series(
        [key in taken for key in zip(signals["regime"], signals["instance_id"], strict=True)], index=signals.index
    )
    return signals[inside].reset_index(drop=True), signals[~inside].reset_index(drop=True)


def calibrate(
    signals: pd.DataFrame,
    outcomes: pd.DataFrame,
    *,
    carry: Mapping[str, float] | None = None,
    cost_prices: Sequence[float] = COST_PRICES,
    residual_prices: Sequence[float] = RESIDUAL_PRICES,
    offsets: bool = True,
) -> Calibration:
    """Fix table, prices and offsets on calibration steps.

    Parameters
    ----------
    signals : of the calibration steps alone; their tax and residual are made anew
    outcomes : of every action at these steps; an action that was run at none of them is not offered
    carry : as in `lib.coordination.actions.tool_table`
    cost_prices, residual_prices : eta_c and eta_r to try
    offsets : whether actions get offsets

    Returns
    -------
    Calibration

    Raises
    ------
    ValueError
        As `judge`; for no prices.
    """
    if not cost_prices or not residual_prices:
        raise ValueError("cost_prices and residual_prices: name at least one of each to try")
    keys = pd.MultiIndex.from_frame(signals[["regime", "step_id"]])
    own = outcomes[pd.MultiIndex.from_frame(outcomes[["regime", "step_id"]]).isin(keys)]
    table = tool_table(own, carry=carry)
    judged = judge(with_table(signals, table), outcomes)
    tried = [_priced(judged, cost, residual, offsets) for cost in cost_prices for residual in residual_prices]
    best = max(tried, key=_preference)
    instances = sorted(set(zip(signals["regime"], signals["instance_id"], strict=True)))
    return Calibration(best[0], table, best[1], tuple(instances))


def _preference(one: tuple[Prices, float]) -> tuple[float, float, float, float]:
    prices, utility = one
    moved = round(sum(abs(offset) for offset in prices.offsets.values()), _DIGITS)
    return round(utility, _DIGITS), prices.cost, -moved, -prices.residual


def _priced(judged: Judged, cost: float, residual: float, offsets: bool) -> tuple[Prices, float]:
    """Return prices with their best offsets, and the utility of what they choose."""
    values = judged.values(Prices(cost, residual))
    moved = np.zeros(len(ACTIONS))
    utility = np.nan_to_num(judged.utility)  # an action that was not run is never chosen
    chosen = np.round(values, _DIGITS).argmax(1)
    best = round(float(utility[np.arange(len(chosen)), chosen].mean()), _DIGITS)
    movable = [ACTIONS.index(action) for action in judged.available] if offsets else []
    for _ in range(_ROUNDS):
        before = best
        for place in movable:
            moved[place], best = _best_offset(values + moved, moved[place], place, utility)
        if best <= before:
            break
    named = {action: float(moved[place]) for place, action in enumerate(ACTIONS) if moved[place]}
    return Prices(cost, residual, named), best


def _best_offset(values: np.ndarray, offset: float, place: int, utility: np.ndarray) -> tuple[float, float]:
    """Return the best offset of one action, the others given, and its mean utility; the one nearest zero of equally good ones.

    Parameters
    ----------
    values, utility : (n_steps, n_actions); `values` hold the current `offset`
    """
    others = np.delete(values, place, axis=1)
    rival = np.round(others, _DIGITS).argmax(1)
    rival = rival + (rival >= place)
    at = np.arange(len(values))
    needed = np.round(values[at, rival] - (values[:, place] - offset), _DIGITS)  # with more than this the action wins
    edges = np.unique(needed[np.isfinite(needed)])
    ends = [edges[0] - 1, edges[-1] + 1] if len(edges) else []
    points = np.concatenate([[0.0, offset], (edges[:-1] + edges[1:]) / 2, ends])
    wins = (needed < points[:, None]) | ((needed == points[:, None]) & (place < rival))  # (n_points, n_steps)
    totals = utility[at, rival].sum() + wins @ (utility[:, place] - utility[at, rival])
    means = np.round(totals / len(values), _DIGITS)
    best = np.lexsort((points, np.abs(points), -means))[0]
    return float(points[best]), float(means[best])
