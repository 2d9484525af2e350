"""What a message gains: paired differences with clustered intervals, exact tests and a correction over families.

Context
-------
Tables 6 to 8 of the receiver-relative paper: the difference in joint accuracy on strict common keys, 5,000 bootstrap draws that
resample instances with all their steps, exact McNemar tests, and Bonferroni over the benchmarks.

Intuition
---------
Steps of one instance share its text and its history, so ten steps of one instance are less than ten of ten. The clustered
interval draws instances; the step interval beside it draws steps, as if they were independent, and shows what that would
have claimed. McNemar's test also takes steps as independent.

How to read the result
----------------------
An interval from few instances is too short, and with one instance there is none (null). Bonferroni multiplies by the families
that a comparison was made on, so it asks: is there a gain anywhere. Rows without a delta are failed calls: counted as
``lost``, in no mean.

Not covered: which rows are paired; Holm's correction (`lib.evaluation.inference`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.evaluation.frames import need_columns
from lib.evaluation.inference import mcnemar_exact, task_cluster_bootstrap, wilson

RESAMPLES = 5_000  # draws of an interval (paper)
_COUNTS = ("steps", "instances", "lost", "gained", "harmed", "tests")


def gain_table(
    pairs: pd.DataFrame,
    by: Sequence[str],
    *,
    family: str = "benchmark",
    instance: str = "instance_id",
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return mean differences, one row a group.

    Parameters
    ----------
    pairs : one row a pair: `by`, `family`, `instance`, ``left``, ``right``, ``delta``
    by : columns of a group, `family` among them; a null counts as a value
    family : groups that differ in it alone are tests of one comparison
    resamples, level, seed : of both bootstraps

    Returns
    -------
    DataFrame in order of first appearance: `by`; ``steps`` and ``instances`` with a delta, ``lost`` without; means ``left``, ``right``,
    ``gain``; ``low``, ``high`` clustered (null for one instance), ``step_low``, ``step_high``; of 0/1 sides ``gained`` and ``harmed``
    (discordant pairs), ``p_mcnemar``, ``tests`` (families of the comparison), ``p_bonferroni``; else null
    """
    need_columns(pairs, [*by, family, instance, "left", "right", "delta"])
    if family not in by:
        raise ValueError(f"by: {family!r} must be among {list(by)}; gains of different families are not pooled")
    rows = []
    for key, group in pairs.groupby(list(by), dropna=False, sort=False):
        known = group.dropna(subset=["delta"])
        row = {**dict(zip(by, key, strict=True)), "steps": len(known), "lost": len(group) - len(known)}
        rows.append(row | _compared(known, instance, resamples, level, seed))
    names = [*by, "steps", "instances", "lost", "left", "right", "gain", "low", "high", "step_low", "step_high"]
    names += ["gained", "harmed", "p_mcnemar"]
    table = pd.DataFrame(rows, columns=names)
    others = [name for name in by if name != family]
    families = table[table["steps"] > 0]
    sizes = families.groupby(others, dropna=False)[family].nunique() if others else None
    if sizes is None:
        table["tests"] = families[family].nunique()
    else:
        table = table.merge(sizes.rename("tests").reset_index(), on=others, how="left")
    table["p_bonferroni"] = (table["p_mcnemar"] * table["tests"]).clip(upper=1.0)
    return table.astype(dict.fromkeys(_COUNTS, "Int64"))


def accuracy_by(
    frame: pd.DataFrame,
    by: Sequence[str],
    value: str = "hit_joint",
    *,
    instance: str = "instance_id",
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Return accuracies, one row a group, with clustered and with Wilson's intervals.

    Parameters
    ----------
    frame : one row a step; `value` is 0, 1 or null (a failed call, which is left out and counted)
    by : columns of a group; a null counts as a value

    Returns
    -------
    DataFrame in order of first appearance: `by`, ``steps``, ``instances``, ``lost``, ``accuracy``, ``low``, ``high`` (instances
    resampled; null for one instance), ``wilson_low``, ``wilson_high`` (steps as if independent)
    """
    need_columns(frame, [*by, value, instance])
    rows = []
    for key, group in frame.groupby(list(by), dropna=False, sort=False):
        known = group.dropna(subset=[value])
        hits = known[value].astype(float).to_numpy()
        low, high = _clustered(hits, known[instance], resamples, level, seed)
        under, over = wilson(int(hits.sum()), len(hits), level)
        counts = {"steps": len(known), "instances": known[instance].nunique(), "lost": len(group) - len(known)}
        mean = float(hits.mean()) if len(hits) else math.nan
        ends = {"low": low, "high": high, "wilson_low": under, "wilson_high": over}
        rows.append({**dict(zip(by, key, strict=True)), **counts, "accuracy": mean, **ends})
    names = ["steps", "instances", "lost", "accuracy", "low", "high", "wilson_low", "wilson_high"]
    return pd.DataFrame(rows, columns=[*by, *names])


def _compared(known: pd.DataFrame, instance: str, resamples: int, level: float, seed: int) -> dict[str, object]:
    left, right, delta = (known[name].astype(float).to_numpy() for name in ("left", "right", "delta"))
    low, high = _clustered(delta, known[instance], resamples, level, seed)
    step_low, step_high = _clustered(delta, pd.Series(range(len(delta))), resamples, level, seed)
    found: dict[str, object] = {
        "instances": known[instance].nunique(),
        **{name: float(np.mean(one)) if len(one) else math.nan for name, one in (("left", left), ("right", right))},
        "gain": float(np.mean(delta)) if len(delta) else math.nan,
        "low": low,
        "high": high,
        "step_low": step_low,
        "step_high": step_high,
    }
    binary = len(delta) > 0 and np.isin(np.concatenate([left, right]), (0.0, 1.0)).all()
    gained, harmed = int((delta > 0).sum()), int((delta < 0).sum())
    tested = {"gained": gained, "harmed": harmed, "p_mcnemar": mcnemar_exact(gained, harmed)}
    return found | (tested if binary else {"gained": None, "harmed": None, "p_mcnemar": math.nan})


def _clustered(values: np.ndarray, clusters: pd.Series, resamples: int, level: float, seed: int) -> tuple[float, float]:
    """Return the ends of an interval that draws clusters and pools their rows; NaN where there are under two clusters."""
    if clusters.nunique() < 2:
        return math.nan, math.nan
    found = task_cluster_bootstrap(values, clusters, weights="row", resamples=resamples, level=level, seed=seed)
    return found.low, found.high
