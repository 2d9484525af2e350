"""How an error at one step lives on in a shared state, and when it dies.

Context
-------
Proposition 7 of the paper (section 3.1, appendix B.5). The residual r_t is what is still wrong with the shared state:
r_{t+1} = clip(g_t r_t + d_t - k_t, 0, r_max). A share g carries over, d is new local error, k is repair or fresh
information. A run and the same run with a perturbation at one step meet the same g, d and k.

Intuition
---------
While neither run is clipped, d and k cancel from their difference and the gap is multiplied by g at each step: the
carry regime. Clipping can only bring two numbers closer, so in general the gap is at most g times the last one. Once
the unperturbed run rests at zero, repair that it does not need works on the perturbed one alone, and the gap shrinks
faster than g says. Where clipping is at zero only, a gap is gone when the perturbed run is fully repaired; a step that
carries nothing over (g = 0) ends any gap too.

How to read the result
----------------------
`compare_paths` gives a row a step: both residuals, their gap, what the carry regime alone would have left
(``carried``), and which regime the step was in. With g above 1 errors grow until the ceiling stops them, which ends the
carry regime as well.

Not covered: estimating g, d and k from runs; perturbations that change what is repaired.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike


class Path(NamedTuple):
    """The residuals of one run; arrays over steps, and over components of the state if it is a vector."""

    residual: np.ndarray  # (n_steps + 1, ...) from 0 to the maximum
    clipped: np.ndarray  # (n_steps, ...) whether the step into the next residual was cut at either end


def propagate(start: ArrayLike, carry: ArrayLike, error: ArrayLike, repair: ArrayLike, *, maximum: float = 1.0) -> Path:
    """Return the residuals of a run.

    Parameters
    ----------
    start : (...) residual r_0, from 0 to `maximum`; a vector state has one number a component
    carry, error, repair : (n_steps,) or (n_steps, ...) g >= 0, d and k of each step

    Raises
    ------
    ValueError
        Naming the argument that is out of range or has another number of steps.

    >>> propagate(0.2, [0.8] * 3, [0.05] * 3, [0.10] * 3).residual.round(3).tolist()
    [0.2, 0.11, 0.038, 0.0]
    """
    g, d, k = (np.asarray(one, dtype=float) for one in (carry, error, repair))
    if not len(g) == len(d) == len(k):
        raise ValueError(f"carry, error and repair have {len(g)}, {len(d)} and {len(k)} steps: give each step one")
    if (g < 0).any():
        raise ValueError("carry must be at least 0: a residual does not change sign")
    first = np.asarray(start, dtype=float)
    if (first < 0).any() or (first > maximum).any():
        raise ValueError(f"start must lie between 0 and maximum={maximum:g}")
    residual, clipped = [first], []
    for factor, new, mended in zip(g, d, k, strict=True):
        moved = factor * residual[-1] + new - mended
        residual.append(np.clip(moved, 0.0, maximum))
        clipped.append((moved < 0) | (moved > maximum))
    return Path(np.array(residual), np.array(clipped, dtype=bool).reshape(len(g), *first.shape))


def carried_gap(gap: float, carry: ArrayLike) -> np.ndarray:
    """Return the gap after each step if neither run is ever clipped: the running product of g.

    Returns
    -------
    (n_steps + 1,) from `gap` itself
    """
    return gap * np.concatenate([[1.0], np.cumprod(np.asarray(carry, dtype=float))])


def compare_paths(base: Path, perturbed: Path, carry: ArrayLike) -> pd.DataFrame:
    """Return two runs of a scalar residual side by side.

    Parameters
    ----------
    base, perturbed : of `propagate` with the same carry, error and repair
    carry : (n_steps,) g of each step

    Returns
    -------
    DataFrame, one row a step from 0: ``step``, ``base``, ``perturbed``, ``gap`` (perturbed - base), ``carried`` (g
    times the gap before; null at step 0), ``regime``: ``start``, ``carry`` (neither run clipped), ``clipped`` (at least
    one, and a gap is left) or ``merged`` (no gap)
    """
    factors = np.asarray(carry, dtype=float)
    gap = perturbed.residual - base.residual
    touched = base.clipped | perturbed.clipped
    later = np.where(gap[1:] == 0, "merged", np.where(touched, "clipped", "carry"))
    return pd.DataFrame(
        {
            "step": np.arange(len(gap)),
            "base": base.residual,
            "perturbed": perturbed.residual,
            "gap": gap,
            "carried": np.concatenate([[np.nan], factors * gap[:-1]]),
            "regime": ["start", *later.tolist()],
        }
    )


def resolves(carry: float, perturbed: float, error: float, repair: float) -> bool:
    """Tell whether one step fully repairs the perturbed run: g r' + d - k <= 0.

    With clipping at zero only and g > 0, a gap vanishes in a step if and only if this holds.
    """
    return carry * perturbed + error - repair <= 0
