"""How many answers were right, at what cost, and whether two ways of asking differ.

Context
-------
Question sets are graded right or wrong. The MOC paper prints such accuracies with four digits, from one run of 164 to 300
questions each. Half the width of a 95 % interval is then 3 to 8 percentage points, and most printed gains are smaller. So
every accuracy stands with its interval here, and two arms are compared on the same questions.

Intuition
---------
Two arms mostly agree. Only the questions that one got right and the other wrong tell them apart: if 6 go one way and 5 the
other, the sums differ and nothing is shown. McNemar's test looks at these alone.

How to read the result
----------------------
- ``accuracy`` is right answers over *all* questions asked. A missing judgement (null) counts as not right and is never
  filled in; ``coverage`` beside it says how many were judged, ``accuracy_answered`` is over these. A group of which
  nothing was judged was not measured: its accuracy is null. Questions that nobody may judge belong in a group of their
  own.
- ``low`` and ``high`` are Wilson's interval where each question stands once. Where questions repeat (several graphs,
  several readers) whole questions are resampled; where resampling has no spread, Wilson's interval counts questions.
  ``interval`` says which.
- `paired_accuracy` corrects its p-values by Holm over all rows it returns: choose the family before looking.
- costs have no such zero: a missing count is left out, with coverage.

Not covered: differences between arms that were not asked the same questions, equivalence ("no worse than").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.evaluation.frames import need_columns
from lib.evaluation.inference import holm, mcnemar_exact, task_cluster_bootstrap, wilson
from lib.evaluation.summary import headline, paired_differences

Pairs = Sequence[tuple[str, str]]


def accuracy_table(
    frame: pd.DataFrame,
    by: Sequence[str],
    *,
    correct: str = "correct",
    item: str = "question_id",
    repeats: bool = False,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the accuracy of each group with its interval.

    Parameters
    ----------
    frame : one row an answer; `correct` is true, false or null (not judged)
    by : group columns, e.g. ``["question_set", "arm", "k"]``
    item : column that names the question
    repeats : whether a question may stand more than once in a group
    level, resamples, seed : of the interval

    Returns
    -------
    DataFrame, groups in order of appearance: `by`, ``questions``, ``asked`` (rows), ``answered``, ``right``,
    ``accuracy`` (right / asked), ``low``, ``high``, ``interval``, ``coverage`` (answered / asked),
    ``accuracy_answered`` (right / answered)

    Raises
    ------
    ValueError
        For a missing column, or a question that stands twice in a group without `repeats`.
    """
    need_columns(frame, [*by, item, correct])
    rows = []
    for key, group in _groups(frame, by):
        if not repeats:
            _each_once(group, item, key)
        flags = _numbers(group[correct])
        line = headline(flags)
        measured = line.answered > 0
        low, high, kind = _interval(flags.fillna(0.0), group[item], level, resamples, seed)
        rows.append(
            key
            | {
                "questions": group[item].nunique(),
                "asked": line.asked,
                "answered": line.answered,
                "right": int(flags.sum()),
                "accuracy": line.mean if measured else math.nan,
                "low": low if measured else math.nan,
                "high": high if measured else math.nan,
                "interval": kind,
                "coverage": line.coverage,
                "accuracy_answered": line.mean_answered,
            }
        )
    columns = ["questions", "asked", "answered", "right", "accuracy", "low", "high", "interval", "coverage"]
    return pd.DataFrame(rows, columns=[*by, *columns, "accuracy_answered"])


def share_table(
    frame: pd.DataFrame,
    by: Sequence[str],
    value: str,
    *,
    item: str = "question_id",
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how often something is true of a row, among the rows where it can be told.

    Parameters
    ----------
    frame : one row a case; `value` is true, false, or null where the question does not apply
    item : column that names the question; its rows are resampled together

    Returns
    -------
    DataFrame, groups in order of appearance: `by`, ``rows``, ``known``, ``hits``, ``share`` (hits / known; null without
    any), ``low``, ``high``, ``interval``
    """
    need_columns(frame, [*by, item, value])
    rows = []
    for key, group in _groups(frame, by):
        told = group[group[value].notna()]
        flags = _numbers(told[value])
        low, high, kind = _interval(flags, told[item], level, resamples, seed)
        known, hits = len(told), int(flags.sum())
        share = hits / known if known else math.nan
        counts = {"rows": len(group), "known": known, "hits": hits, "share": share}
        rows.append(key | counts | {"low": low, "high": high, "interval": kind})
    return pd.DataFrame(rows, columns=[*by, "rows", "known", "hits", "share", "low", "high", "interval"])


def paired_accuracy(
    frame: pd.DataFrame,
    pairs: Pairs,
    by: Sequence[str] = (),
    *,
    arm: str = "arm",
    correct: str = "correct",
    item: str = "question_id",
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return accuracy(a) - accuracy(b) on the same questions, with exact McNemar tests and Holm's correction over all rows.

    Parameters
    ----------
    frame : one row a question and arm, in each group of `by`
    pairs : (a, b) values of the column `arm`

    Returns
    -------
    DataFrame, one row a group and pair: `by`, ``a``, ``b``, ``questions``, ``accuracy_a``, ``accuracy_b``,
    ``difference``, ``low``, ``high``, ``both`` (right), ``only_a``, ``only_b``, ``neither``, ``p``, ``p_holm``,
    ``coverage_a``, ``coverage_b``. A question without a judgement counts as not right, for either arm. ``low`` and
    ``high`` are of the task bootstrap, null where all differences are equal: then there is nothing to resample.
    Difference, interval and p are null where one arm was not judged at all; such a row is no member of the family.

    Raises
    ------
    ValueError
        If an arm lacks rows in a group, or the arms were not asked the same questions once each.
    """
    need_columns(frame, [*by, arm, item, correct])
    rows = []
    for key, group in _groups(frame, by):
        for a, b in pairs:
            sides = [_side(group, arm, name, item, key) for name in (a, b)]
            joined = pd.concat(sides).assign(**{correct: lambda rows: _numbers(rows[correct])})
            both = paired_differences(joined, correct, a, b, policy=arm, unit=[item], missing="zero")
            coverage = [float(side[correct].notna().mean()) for side in sides]
            measured = min(coverage) > 0
            first, second = both["a"] > 0, both["b"] > 0
            only_a, only_b = int((first & ~second).sum()), int((second & ~first).sum())
            difference, low, high = _difference(both, item, level, resamples, seed) if measured else (math.nan,) * 3
            rows.append(
                key
                | {
                    "a": a,
                    "b": b,
                    "questions": len(both),
                    "accuracy_a": float(both["a"].mean()) if coverage[0] else math.nan,
                    "accuracy_b": float(both["b"].mean()) if coverage[1] else math.nan,
                    "difference": difference,
                    "low": low,
                    "high": high,
                    "both": int((first & second).sum()),
                    "only_a": only_a,
                    "only_b": only_b,
                    "neither": int((~first & ~second).sum()),
                    "p": mcnemar_exact(only_a, only_b) if measured else math.nan,
                    "coverage_a": coverage[0],
                    "coverage_b": coverage[1],
                }
            )
    columns = ["a", "b", "questions", "accuracy_a", "accuracy_b", "difference", "low", "high"]
    columns += ["both", "only_a", "only_b", "neither", "p", "coverage_a", "coverage_b"]
    table = pd.DataFrame(rows, columns=[*by, *columns])
    table.insert(list(table.columns).index("p") + 1, "p_holm", holm(table["p"].to_numpy(float)))
    return table


def token_means(
    frame: pd.DataFrame,
    by: Sequence[str],
    values: Sequence[str],
    *,
    item: str = "question_id",
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the mean cost of a question, with intervals from resampling questions.

    Parameters
    ----------
    frame : one row a run, e.g. from `lib.moc.accounting.tokens_table`
    values : cost columns; null where unknown

    Returns
    -------
    DataFrame: `by`, ``runs``, and for each value ``<value>_mean`` over known runs, ``<value>_low``, ``<value>_high``
    and ``<value>_coverage``
    """
    need_columns(frame, [*by, item, *values])
    rows = []
    for key, group in _groups(frame, by):
        row = {**key, "runs": len(group)}
        for name in values:
            known = group[group[name].notna()]
            row |= dict.fromkeys([f"{name}_{end}" for end in ("mean", "low", "high")], math.nan)
            if len(known):
                interval = task_cluster_bootstrap(
                    _numbers(known[name]), known[item], weights="row", resamples=resamples, level=level, seed=seed
                )
                row |= {f"{name}_mean": interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}
            row[f"{name}_coverage"] = len(known) / len(group)
        rows.append(row)
    ends = [f"{name}_{end}" for name in values for end in ("mean", "low", "high", "coverage")]
    return pd.DataFrame(rows, columns=[*by, "runs", *ends])


def paired_tokens(
    frame: pd.DataFrame,
    pairs: Pairs,
    by: Sequence[str] = (),
    *,
    values: Sequence[str] = ("agent_tokens", "total_tokens"),
    arm: str = "arm",
    item: str = "question_id",
    repeats: Sequence[str] = (),
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the difference of mean costs a - b on the same questions, whole questions resampled.

    Parameters
    ----------
    frame : one row a run of an arm; `item` and `repeats` together name it
    pairs : (a, b) values of the column `arm`
    values : cost columns; a pair with an unknown side is left out
    repeats : columns that tell the runs of a question apart, e.g. a graph seed

    Returns
    -------
    DataFrame, one row a group, pair and value: `by`, ``a``, ``b``, ``value``, ``questions``, ``pairs`` (known on both
    sides), ``coverage``, ``mean_a``, ``mean_b``, ``difference``, ``low``, ``high``, ``change`` (mean_a / mean_b - 1).
    Each question counts once, whatever its number of runs. Intervals are null where all differences are equal.
    """
    need_columns(frame, [*by, arm, item, *repeats, *values])
    rows = []
    for key, group in _groups(frame, by):
        for a, b in pairs:
            sides = pd.concat([_side(group, arm, name, [item, *repeats], key) for name in (a, b)])
            for value in values:
                costs = sides.assign(**{value: _numbers(sides[value])})
                both = paired_differences(costs, value, a, b, policy=arm, unit=[item, *repeats], missing="drop")
                means = both.groupby(item, sort=False)[["a", "b"]].mean().mean()
                difference, low, high = _difference(both, item, level, resamples, seed)
                rows.append(
                    key
                    | {
                        "a": a,
                        "b": b,
                        "value": value,
                        "questions": both[item].nunique(),
                        "pairs": len(both),
                        "coverage": 2 * len(both) / len(sides),
                        "mean_a": float(means["a"]),
                        "mean_b": float(means["b"]),
                        "difference": difference,
                        "low": low,
                        "high": high,
                        "change": float(means["a"] / means["b"] - 1) if means["b"] else math.nan,
                    }
                )
    columns = ["a", "b", "value", "questions", "pairs", "coverage", "mean_a", "mean_b", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=[*by, *columns, "change"])


def pareto_front(table: pd.DataFrame, cost: str, value: str = "accuracy") -> pd.Series:
    """Return which rows no other row beats: none is as cheap and as good, and better in one of the two.

    Parameters
    ----------
    cost, value : columns; lower cost and higher value are better. A row with either missing is not on the front

    Returns
    -------
    boolean Series on the index of `table`

    >>> pareto_front(pd.DataFrame({"tokens": [1, 2, 3], "accuracy": [0.5, 0.4, 0.6]}), "tokens").tolist()
    [True, False, True]
    """
    need_columns(table, [cost, value])
    costs, values = _numbers(table[cost]).to_numpy(), _numbers(table[value]).to_numpy()
    no_worse = (costs[None, :] <= costs[:, None]) & (values[None, :] >= values[:, None])  # column against row
    better = (costs[None, :] < costs[:, None]) | (values[None, :] > values[:, None])
    known = ~(np.isnan(costs) | np.isnan(values))
    return pd.Series(known & ~(no_worse & better).any(axis=1), index=table.index)


def _groups(frame: pd.DataFrame, by: Sequence[str]) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Return (values of `by`, rows) of each group, in order of appearance; all rows are one group without `by`."""
    if not by:
        return [({}, frame)] if len(frame) else []
    groups = frame.groupby(list(by), sort=False, dropna=False)
    return [(dict(zip(by, key, strict=True)), rows) for key, rows in groups]


def _numbers(values: pd.Series) -> pd.Series:
    """Return flags or counts as floats, missing as NaN, whatever their type."""
    return pd.Series(values.astype("Float64").to_numpy(float, na_value=np.nan), index=values.index)


def _each_once(rows: pd.DataFrame, item: str | Sequence[str], key: dict[str, Any]) -> None:
    doubled = rows.duplicated(item)
    if doubled.any():
        columns = [item] if isinstance(item, str) else list(item)
        name = ", ".join(f"{column} {value!r}" for column, value in rows.loc[doubled, columns].iloc[0].items())
        where = ", ".join(f"{column} {value!r}" for column, value in key.items()) or "the frame"
        raise ValueError(
            f"{where}: {name} stands twice; keep one extractor, or group by the column in which the rows differ"
        )


def _side(group: pd.DataFrame, arm: str, name: str, item: str | Sequence[str], key: dict[str, Any]) -> pd.DataFrame:
    rows = group[group[arm] == name]
    where = {**key, arm: name}
    if rows.empty:
        raise ValueError(f"no rows for {where}; there are {arm}s {list(dict.fromkeys(group[arm]))}")
    _each_once(rows, item, where)
    return rows


def _interval(flags: pd.Series, items: pd.Series, level: float, resamples: int, seed: int) -> tuple[float, float, str]:
    """Return low and high of a share, and how they were made."""
    n, clusters = len(flags), int(items.nunique())
    if n == clusters:
        return *wilson(int(flags.sum()), n, level), "Wilson"
    if flags.nunique() == 1:
        # Rows of a question are no independent trials; as many trials as questions is the careful reading.
        return *wilson(int(flags.iloc[0]) * clusters, clusters, level), "Wilson over questions"
    made = task_cluster_bootstrap(flags, items, weights="row", resamples=resamples, level=level, seed=seed)
    return made.low, made.high, "task bootstrap"


def _difference(both: pd.DataFrame, item: str, level: float, resamples: int, seed: int) -> tuple[float, float, float]:
    """Return the mean paired difference with its interval; the interval is null where resampling has no spread."""
    if both.empty:
        return math.nan, math.nan, math.nan
    made = task_cluster_bootstrap(
        both["difference"].to_numpy(), both[item], resamples=resamples, level=level, seed=seed
    )
    spread = both["difference"].nunique() > 1
    return made.estimate, made.low if spread else math.nan, made.high if spread else math.nan
