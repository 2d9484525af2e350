"""Choosing what to do with a message from estimates, and what the errors of the estimates can cost.

Context
-------
Section 3.2 and appendix B.6 of the paper. Each protocol action a (skip, compress, send raw, escalate, refresh) is worth
J(a) = A - tau - eta_c c - eta_r r: gain minus tax, minus the prices of its cost c and of the residual r that it leaves
to later steps. Costs are known; gain, tax and residual are estimated.

Intuition
---------
Let the estimates be off by at most e_A, e_tau and e_r. Then every estimated value is off by at most
e = e_A + e_tau + eta_r e_r. The chosen action looked at least as good as the best one. In the worst case it was
overrated by e and the best one underrated by e, so it is at most 2 e worse.

How to read the result
----------------------
`regret` is the true value lost by the choice, never negative; `regret_bound` is 2 e. The bound is tight: `worst_case`
gives two actions that reach it. Bounds are of no help where 2 e exceeds the spread of the actions' values.

Not covered: where estimates come from; a selector's rules, prompts and budgets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.seeds import generator

DIGITS = 12  # values are rounded to this many digits before ties are broken


class Values(NamedTuple):
    """True and estimated values of the same actions, each (n_actions,), in units of the loss."""

    true: np.ndarray
    estimated: np.ndarray


def protocol_value(
    gain: ArrayLike,
    tax: ArrayLike,
    cost: ArrayLike,
    residual: ArrayLike,
    *,
    cost_price: float,
    residual_price: float,
) -> np.ndarray:
    """Return J = A - tau - eta_c c - eta_r r of every action.

    Parameters
    ----------
    gain, tax : (n_actions,) in units of the loss
    cost : (n_actions,) e.g. tokens
    residual : (n_actions,) risk left to later steps
    cost_price, residual_price : eta_c and eta_r, loss for a unit of either, >= 0
    """
    if cost_price < 0 or residual_price < 0:
        raise ValueError(f"cost_price and residual_price must be >= 0, not {cost_price!r} and {residual_price!r}")
    a, t, c, r = (np.asarray(one, dtype=float) for one in (gain, tax, cost, residual))
    return a - t - cost_price * c - residual_price * r


def choose(values: ArrayLike) -> int:
    """Return the place of the largest value; the first of equal ones wins.

    >>> choose([0.1, 0.3, 0.3])
    1
    """
    return int(np.round(np.asarray(values, dtype=float), DIGITS).argmax())


def regret(values: Values) -> float:
    """Return how much true value the choice by estimates loses against the best action."""
    true = np.asarray(values.true, dtype=float)
    return float(true.max() - true[choose(values.estimated)])


def regret_bound(gain_error: float, tax_error: float, residual_error: float, *, residual_price: float) -> float:
    """Return 2 (e_A + e_tau + eta_r e_r); errors are the largest absolute ones, in the units of what they measure."""
    return 2 * (gain_error + tax_error + residual_price * residual_error)


def worst_case(error: float, *, better: float = 0.5, nudge: float = 1e-6) -> Values:
    """Return two actions at which regret reaches the bound 2 `error` (up to `nudge`).

    The better one is underrated by `error`, the other, worse by 2 `error`, overrated by as much and a nudge.
    """
    true = np.array([better, better - 2 * error])
    return Values(true, true + np.array([-error, error + nudge]))


def regret_draws(draws: int, *names: object, actions: int = 5, largest_error: float = 0.2) -> pd.DataFrame:
    """Return regrets of random choices beside their bounds.

    Parameters
    ----------
    draws : random problems: gain, cost and residual uniform on [0, 1], tax on [-0.5, 0.5], prices on [0, 0.5], the
        three largest errors each on [0, `largest_error`]
    names : name the draws, see `lib.seeds`
    actions : n_actions

    Returns
    -------
    DataFrame, one row a draw: ``errors`` (``random`` within their bounds, or ``against``: the best action underrated
    and all others overrated as far as allowed; half of the draws each), ``bound``, ``regret``
    """
    rng = generator("regret draws", *names)
    rows = []
    for draw in range(draws):
        gain, tax, cost, residual = rng.uniform((0, -0.5, 0, 0), (1, 0.5, 1, 1), (actions, 4)).T
        cost_price, residual_price = rng.uniform(0, 0.5, 2)
        prices = {"cost_price": cost_price, "residual_price": residual_price}
        true = protocol_value(gain, tax, cost, residual, **prices)
        sizes = rng.uniform(0, largest_error, 3)  # e_A, e_tau, e_r
        kind = ("random", "against")[draw % 2]
        off = _errors(rng, true, sizes, against=kind == "against")
        estimated = protocol_value(gain + off[0], tax + off[1], cost, residual + off[2], **prices)
        rows.append((kind, regret_bound(*sizes, residual_price=residual_price), regret(Values(true, estimated))))
    return pd.DataFrame(rows, columns=["errors", "bound", "regret"])


def _errors(rng: np.random.Generator, true: np.ndarray, sizes: np.ndarray, *, against: bool) -> np.ndarray:
    """Return the errors of gain, tax and residual, (3, n_actions)."""
    reach = sizes[:, None]
    if not against:
        return rng.uniform(-1, 1, (3, len(true))) * reach
    overrated = np.where(np.arange(len(true)) == true.argmax(), -1.0, 1.0)
    return np.array([1.0, -1.0, -1.0])[:, None] * overrated * reach  # tax and residual count against an action
