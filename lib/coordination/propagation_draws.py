"""How sure a fitted law of propagation is: intervals over instances, and its error on instances that it was not fitted to.

Context
-------
Section 3.1 and appendix C.7 of the paper, Proposition 7. `lib.coordination.propagation_fit` fits one g, d and k to error rates that
are means over instances. Few instances make these means uncertain, and three free numbers follow noise.

Intuition
---------
Instances are drawn with replacement and the law is fitted again: how far g, d and k move is how little is known of them. And a law that
holds should predict other instances. Beside it stand two predictions that know no law: nothing changes after the start, and
every run does as the same run of other instances did at that step. The second one has a free number for every run and step, so a
law of three numbers that comes close to it is worth something.

How to read the result
----------------------
``settled`` is the share of draws that determine a parameter; intervals are over these. A carry whose interval holds 1 may be
decay or growth. Of `held_out`, lower is better, and ``start`` is what a law has to beat.

Not covered: several laws for one run; steps that instances reach in different numbers weigh by the instances that reach them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from lib.coordination.actions import need_columns
from lib.coordination.propagation import propagate
from lib.coordination.propagation_fit import PropagationFit, fit_propagation
from lib.seeds import generator, hash_order

PARAMETERS = ("carry", "error", "repair")


class _Errors(NamedTuple):
    """Errors of every instance at every run and step, (n_instances, n_runs, n_steps + 1); nan where a call failed."""

    values: np.ndarray
    runs: list[str]
    repaired: np.ndarray  # (n_runs, n_steps + 1)

    def frame(self, picked: np.ndarray) -> pd.DataFrame:
        """Return `lib.coordination.shared_state.residual_runs` of these instances, which may repeat."""
        known = np.isfinite(self.values[picked])
        counts = known.sum(0)
        means = np.where(counts, np.nansum(self.values[picked], axis=0) / np.maximum(counts, 1), np.nan)
        steps = means.shape[1]
        return pd.DataFrame(
            {
                "run": np.repeat(self.runs, steps),
                "step": np.tile(np.arange(steps), len(self.runs)),
                "residual": means.ravel(),
                "repaired": self.repaired.ravel(),
            }
        )


def propagation_intervals(
    scored: pd.DataFrame, observation: str, *, resamples: int = 200, level: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Return g, d and k with intervals over instances.

    Parameters
    ----------
    scored : of `lib.coordination.shared_state.score_episodes`
    observation : ``fresh`` or ``stale``

    Returns
    -------
    DataFrame, one row a parameter of `PARAMETERS`: ``parameter``, ``estimate``, ``low``, ``high`` (null where nothing settles it),
    ``settled`` (share of draws; draws of failed calls alone are left out), ``instances``

    Raises
    ------
    ValueError
        If a column is missing, or a run lacks a step.
    """
    errors = _errors(scored, observation)
    count = len(errors.values)
    fit = fit_propagation(errors.frame(np.arange(count)))
    rng = generator("propagation draws", observation, seed)
    drawn = [errors.frame(rng.integers(0, count, count)) for _ in range(resamples if count > 1 else 0)]
    draws = [fit_propagation(one, near=fit) for one in drawn if one["residual"].notna().all()]
    rows = []
    for name in PARAMETERS:
        known = [value for one in draws if (value := getattr(one, name)) is not None]
        ends = np.quantile(known, [(1 - level) / 2, (1 + level) / 2]) if len(known) > 1 else (math.nan, math.nan)
        share = len(known) / len(draws) if draws else math.nan
        estimate = getattr(fit, name)
        rows.append((name, math.nan if estimate is None else estimate, float(ends[0]), float(ends[1]), share, count))
    return pd.DataFrame(rows, columns=["parameter", "estimate", "low", "high", "settled", "instances"])


def held_out(scored: pd.DataFrame, observation: str, *, folds: int = 2, seed: int = 0) -> pd.DataFrame:
    """Return how far predictions are off on instances that they were not made from.

    Parameters
    ----------
    scored, observation : as in `propagation_intervals`
    folds : instances are dealt into so many, at most one each

    Returns
    -------
    DataFrame, one row a prediction: ``prediction`` (``law``, ``start``: nothing changes, ``others``: the same run and step of the other
    instances), ``rmse`` over runs and later steps of all folds, ``folds`` (in which the others settle a law)

    Raises
    ------
    ValueError
        As `propagation_intervals`; for fewer than two instances or folds.
    """
    errors = _errors(scored, observation)
    count = len(errors.values)
    if count < 2 or folds < 2:
        raise ValueError(f"held_out: at least two instances and folds are needed, got {count} and {folds}")
    order = np.array([int(one) for one in hash_order([str(i) for i in range(count)], "held out", observation, seed)])
    parts = [order[start :: min(folds, count)] for start in range(min(folds, count))]
    off: dict[str, list[float]] = {"law": [], "start": [], "others": []}
    settled = 0
    for part in parts:
        rest = errors.frame(np.setdiff1d(order, part))
        measured, others = (_table(one, errors.runs) for one in (errors.frame(part), rest))
        fit = fit_propagation(rest)
        settled += fit.carry is not None
        told = {"start": np.repeat(measured[:, :1], measured.shape[1], axis=1), "others": others}
        if fit.carry is not None:
            told["law"] = _predicted(fit, measured[:, 0], errors.repaired)
        for name, values in told.items():
            off[name] += ((values - measured)[:, 1:] ** 2).ravel().tolist()
    rows = [(name, math.sqrt(float(np.nanmean(own))) if own else math.nan, settled) for name, own in off.items()]
    return pd.DataFrame(rows, columns=["prediction", "rmse", "folds"])


def predicted_runs(runs: pd.DataFrame, fit: PropagationFit) -> pd.DataFrame:
    """Return the runs with a column ``predicted``: what the law says from each run's start; null if the fit settled nothing.

    Parameters
    ----------
    runs : of `lib.coordination.shared_state.residual_runs`
    """
    need_columns(runs, ("run", "step", "residual", "repaired"), "runs")
    ordered = runs.sort_values(["run", "step"], ignore_index=True)
    if fit.carry is None:
        return ordered.assign(predicted=math.nan)
    parts = []
    for _, own in ordered.groupby("run", sort=False):
        start, mended = own["residual"].to_numpy()[:1], own["repaired"].to_numpy(dtype=bool)[None]
        parts.append(own.assign(predicted=_predicted(fit, start, mended)[0]))
    return pd.concat(parts, ignore_index=True)


def _predicted(fit: PropagationFit, start: np.ndarray, repaired: np.ndarray) -> np.ndarray:
    """Return residuals from each run's start, (n_runs, n_steps + 1)."""
    mended = repaired[:, 1:].T * (fit.repair or 0.0)
    shape = mended.shape
    return propagate(start, np.full(shape, fit.carry), np.full(shape, fit.error), mended).residual.T


def _table(runs: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    table = runs.pivot(index="run", columns="step", values="residual")
    return table.loc[list(names)].to_numpy(dtype=float)


def _errors(scored: pd.DataFrame, observation: str) -> _Errors:
    need_columns(scored, ("run", "observation", "instance_id", "step_t", "hit_joint"), "scored")
    own = scored[scored["observation"] == observation]
    own = own.assign(error=1 - own["hit_joint"].astype("Float64").astype(float))
    own.loc[own["run"].ne("control") & own["step_t"].eq(0), "error"] = 1.0  # wrong by design, whatever was decided
    wide = own.pivot(index="instance_id", columns=["run", "step_t"], values="error").sort_index(axis=1)
    runs = list(dict.fromkeys(wide.columns.get_level_values("run")))
    steps = sorted(set(wide.columns.get_level_values("step_t")))
    if wide.shape[1] != len(runs) * len(steps) or steps != list(range(len(steps))) or wide.isna().all().any():
        raise ValueError(f"scored: every {observation} run needs an outcome at the same steps 0, 1, ...")
    repaired = np.array([[run == "repaired" and step == 2 for step in steps] for run in runs])
    return _Errors(wide.to_numpy(dtype=float).reshape(len(wide), len(runs), len(steps)), runs, repaired)
