"""Estimate carry, local error and repair from measured runs, and hold the runs against the law of propagation.

Context
-------
Section 3.1 and appendix C.7 of the paper, Proposition 7. `lib.coordination.propagation` runs
r_{t+1} = clip(g r_t + d - k_t, 0, r_max) forward. Here g, d and k are what makes such runs come closest, in squares, to
measured residuals. A repair acts only at the steps where there was one, so k is told apart from d by runs that differ in it.

Intuition
---------
A run without repair and one with it share g and d. From its start each predicted run goes forward by itself, so an error of
prediction accumulates as it would in use; step-by-step regression would take every noisy residual for a cause and underrate
g. Clipping makes the surface flat in places, so the search starts from a grid of points and the best end is kept.

How to read the result
----------------------
`rmse` is in units of the residual. Estimates are null where the runs do not settle them: without any repair there is no k;
runs that start alike and rest on a bound say nothing of g. ``clipped_share`` tells how often the fitted law ended the carry
regime. `gap_table` puts measured and predicted gap side by side; a law fitted to the same runs agrees more than it would elsewhere.

Not covered: intervals (resample instances and fit again); g, d or k that change from step to step.
"""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from lib.coordination.actions import need_columns
from lib.coordination.propagation import Path, compare_paths, propagate

MOST_CARRY = 2.0
_STARTS = tuple(itertools.product((0.2, 0.6, 1.0, 1.4), (0.02, 0.2), (0.02, 0.2)))
_DIGITS = 9
_TIGHT = {"xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12}
_COLUMNS = ("run", "step", "residual", "repaired")


class PropagationFit(msgspec.Struct, frozen=True):
    """Estimates of g, d and k.

    Attributes
    ----------
    carry, error, repair : g, d and k, None where the runs do not settle them
    rmse : root mean square of measured minus predicted residual, over all steps after the first
    clipped_share : predicted steps that were cut at 0 or the maximum
    steps : residuals that were fitted
    """

    carry: float | None
    error: float | None
    repair: float | None
    rmse: float
    clipped_share: float
    steps: int


def fit_propagation(runs: pd.DataFrame, *, maximum: float = 1.0, near: PropagationFit | None = None) -> PropagationFit:
    """Fit one g, d and k to all runs by least squares, with clipping.

    Parameters
    ----------
    runs : one row a run and step from 0: ``run``, ``step``, ``residual`` (0 to `maximum`), ``repaired`` (whether there was repair or
        fresh information on the way into this step); all runs have the same steps
    near : a fit of almost the same runs, from which the search starts instead of from the whole grid (for draws of a bootstrap)

    Raises
    ------
    ValueError
        If a column is missing, steps are not the same for all runs, or there is no step after the first.
    """
    measured, repaired = _tables(runs)
    has_repair = bool(repaired.any())

    def predicted(parameters: np.ndarray) -> Path:
        g, d, k = parameters if has_repair else (*parameters, 0.0)
        shape = repaired.shape
        return propagate(measured[0], np.full(shape, g), np.full(shape, d), k * repaired, maximum=maximum)

    def off(parameters: np.ndarray) -> np.ndarray:
        return (predicted(parameters).residual[1:] - measured[1:]).ravel()

    count = 3 if has_repair else 2
    bounds = ([0.0] * count, [MOST_CARRY, maximum, maximum][:count])
    starts = [np.array(start) * [1, maximum, maximum][:count] for start in dict.fromkeys(s[:count] for s in _STARTS)]
    if near is not None and near.carry is not None and near.error is not None:
        starts = [np.clip([near.carry, near.error, near.repair or 0.0][:count], *bounds)]
    ends = [least_squares(off, start, bounds=bounds, **_TIGHT) for start in starts]
    best = min(ends, key=lambda end: (round(end.cost, _DIGITS + 3), *np.round(end.x, _DIGITS)))
    settled = np.linalg.matrix_rank(best.jac, tol=1e-6) == count
    values = [float(value) for value in best.x] if settled else [None] * count
    return PropagationFit(
        carry=values[0],
        error=values[1],
        repair=values[2] if has_repair else None,
        rmse=float(np.sqrt(np.mean(best.fun**2))),
        clipped_share=float(predicted(best.x).clipped.mean()),
        steps=measured[1:].size,
    )


def gap_table(
    runs: pd.DataFrame, fit: PropagationFit, *, base: str, perturbed: str, maximum: float = 1.0
) -> pd.DataFrame:
    """Return the measured gap between two runs beside the one that the fitted law predicts from their starts.

    Parameters
    ----------
    runs : as in `fit_propagation`
    base, perturbed : names of two runs

    Returns
    -------
    DataFrame, one row a step: ``step``, ``measured`` (gap), ``predicted`` (gap), ``regime`` (of the prediction, as
    `lib.coordination.propagation.compare_paths`). Where the repairs of both runs differ, the carry regime alone does not hold.

    Raises
    ------
    ValueError
        As `fit_propagation`; for a run that is not there, or a fit that settled nothing.
    """
    if fit.carry is None or fit.error is None:
        raise ValueError("fit: the runs did not settle carry and error; there is no law to hold them against")
    names = sorted(set(runs["run"]))
    for name in (base, perturbed):
        if name not in names:
            raise ValueError(f"runs: no run {name!r}; there are {', '.join(map(str, names))}")
    measured, repaired = _tables(runs)
    paths = {}
    for name in (base, perturbed):
        mended = repaired[:, names.index(name)] * (fit.repair or 0.0)
        g, d = np.full(len(mended), fit.carry), np.full(len(mended), fit.error)
        paths[name] = propagate(measured[0, names.index(name)], g, d, mended, maximum=maximum)
    told = compare_paths(paths[base], paths[perturbed], np.full(len(repaired), fit.carry))
    gap = measured[:, names.index(perturbed)] - measured[:, names.index(base)]
    return pd.DataFrame({"step": told["step"], "measured": gap, "predicted": told["gap"], "regime": told["regime"]})


def _tables(runs: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return residuals (n_steps + 1, n_runs) and repairs (n_steps, n_runs), runs sorted by name."""
    need_columns(runs, _COLUMNS, "runs")
    table = runs.pivot(index="step", columns="run", values="residual").sort_index()
    if table.isna().any(axis=None) or table.index.tolist() != list(range(len(table))) or len(table) < 2:
        raise ValueError("runs: every run needs the same steps 0, 1, ... and a residual at each, at least two")
    repaired = runs.pivot(index="step", columns="run", values="repaired").sort_index()
    return table.to_numpy(dtype=float), repaired.to_numpy(dtype=bool)[1:]
