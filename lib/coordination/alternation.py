"""A compressed message that holds everything and helps a bounded receiver with nothing.

Context
-------
The title of the paper, section 2.3 and appendix B.2: compression that keeps all information about the target (Bayes
sufficient) and really shrinks the alphabet (alpha-proper) can leave a receiver near chance that reads raw context
without error. The summary in hand does not define alpha-proper; here it is read as: the message is not injective and
has alpha times as many symbols.

Intuition
---------
The receiver knows one trick: cut a scalar axis once and call one side 1. A label Z in {0, 1}, a group j in 1..m and a
detail u in 1..r are drawn uniformly. The raw axis puts all states of label 0 before all of label 1: one cut, no error.
The compressed axis drops u and writes the label *after* the group, M = 2 (j - 1) + Z, so labels alternate 0101...
along it. Z is still read off M (its parity), but a single cut through an alternating axis gets one group right and
half of all others: the least error is (m - 1) / (2m).

How to read the result
----------------------
`threshold_errors` lists every cut in both orientations, so its smallest entry is the class optimum, not a bound. Add
the parity map to the class and the failure is gone: it is a matter of this receiver, not of information.

Not covered: axes of more dimensions, several cuts.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.coordination.laws import Law


def alternating_axis(groups: int, details: int) -> pd.DataFrame:
    """Return the states of the counterexample, all equally likely.

    Parameters
    ----------
    groups : m >= 1, pairs of labels along the compressed axis
    details : r >= 2, states that the message does not tell apart; alpha = 1 / r

    Returns
    -------
    DataFrame, one row a state in order of the raw axis: ``label`` Z, ``group`` j, ``detail`` u, ``raw`` (1..2mr) and
    ``message`` (0..2m-1)

    Raises
    ------
    ValueError
        For fewer groups or details.
    """
    if groups < 1 or details < 2:
        raise ValueError(f"groups must be at least 1 and details at least 2, not {groups} and {details}")
    grid = np.indices((2, groups, details)).reshape(3, -1)
    states = pd.DataFrame({"label": grid[0], "group": grid[1] + 1, "detail": grid[2] + 1})
    raw = states["label"] * groups * details + (states["group"] - 1) * details + states["detail"]
    return states.assign(raw=raw, message=2 * (states["group"] - 1) + states["label"])


def threshold_errors(values: ArrayLike, labels: ArrayLike) -> pd.DataFrame:
    """Return the error of every threshold rule on equally likely states.

    Parameters
    ----------
    values : (n,) place of each state on the axis
    labels : (n,) 0 or 1

    Returns
    -------
    DataFrame, two rows a cut, one for each orientation: ``cut`` (between two values of the axis, or beyond an end),
    ``ones`` (``above`` or ``below``: where 1 is predicted), ``wrong`` (states, exact) and ``error`` (their share)
    """
    places, truth = np.asarray(values), np.asarray(labels)
    axis = np.unique(places)
    cuts = np.concatenate([[axis[0] - 0.5], (axis[:-1] + axis[1:]) / 2, [axis[-1] + 0.5]])
    wrong = ((places[None, :] > cuts[:, None]) != (truth == 1)[None, :]).sum(axis=1)  # (n_cuts,) states
    both = np.concatenate([wrong, len(places) - wrong])
    ones = ["above"] * len(cuts) + ["below"] * len(cuts)
    return pd.DataFrame({"cut": np.tile(cuts, 2), "ones": ones, "wrong": both, "error": both / len(places)})


def least_error(groups: int) -> Fraction:
    """Return (m - 1) / (2m), the least threshold error on the compressed axis (appendix B.2).

    >>> [str(least_error(m)) for m in (1, 2, 3, 5, 10)]
    ['0', '1/4', '1/3', '2/5', '9/20']
    """
    return Fraction(groups - 1, 2 * groups)


def groups_needed(epsilon: float | Fraction) -> int:
    """Return the fewest groups whose least error is at least 1/2 - epsilon: m >= 1 / (2 epsilon).

    >>> groups_needed(0.05)
    10
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon must be above 0, not {epsilon!r}: chance itself is never reached")
    return math.ceil(1 / (2 * Fraction(str(epsilon))))


def axis_law(states: pd.DataFrame, axis: str) -> Law:
    """Return the law of (s, x, m, z): every state equally likely, one local view, the message is the place on `axis`.

    Parameters
    ----------
    states : of `alternating_axis`
    axis : ``raw`` or ``message``
    """
    n = len(states)
    sources = np.zeros((n, 1, 2))
    sources[np.arange(n), 0, states["label"]] = 1 / n
    places = states[axis].to_numpy()
    return Law(("s", "x", "z"), sources).with_variable("m", ("s", "x"), (places - places.min())[:, None])
