"""Comparisons on the same steps: keys, duplicates, and the strict common set.

Context
-------
The paper pairs arms on common (instance, step) keys (section C.1). Its public files hold repeated rows and use a different way
of choosing among them for each benchmark: the last 72 rows, the first row, the last, one seed.

Intuition
---------
A difference between two arms is one of the arms only if both were asked the same steps, each once. A step that any of the
compared arms lacks is left out for all of them.

How to read the result
----------------------
Say the policy with the number. `refuse` is the only one under which nothing was chosen; under any other, a repeated row was
dropped by its place or seed, never by its outcome. Steps of one instance depend on each other, so intervals resample
instances.

Not covered: the intervals and tests (`lib.evaluation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pandas as pd

KEY = ("benchmark", "instance_id", "step_t")
Policy = Literal["refuse", "first", "last", "seed", "last_n"]
POLICIES: tuple[Policy, ...] = ("refuse", "first", "last", "seed", "last_n")


def deduplicate(
    frame: pd.DataFrame,
    policy: Policy,
    over: Sequence[str] = ("arm",),
    *,
    seed: int | None = None,
    n: int | None = None,
) -> pd.DataFrame:
    """Return the frame with each key once for every value of `over`, rows in their order.

    Parameters
    ----------
    policy : ``refuse`` (there must be no repeats), ``first``, ``last``, ``seed`` (rows of one seed) or ``last_n`` (the last `n` rows
        of every value of `over`); after ``seed`` and ``last_n`` nothing may be left to choose
    over : columns that tell apart what is compared; a null counts as a value
    seed, n : needed by the policies of these names, refused by the others

    Raises
    ------
    ValueError
        For an unknown policy, a number that is missing or not asked for, or repeats that the policy leaves.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r} is not known; choose one of {', '.join(POLICIES)}")
    for name, value, owner in (("seed", seed, "seed"), ("n", n, "last_n")):
        if (value is not None) != (policy == owner):
            raise ValueError(f"{name}: the policy {policy!r} {'needs' if policy == owner else 'takes no'} {name}")
    if policy in ("first", "last"):
        return frame.drop_duplicates(subset=[*over, *KEY], keep="first" if policy == "first" else "last")
    if policy == "seed":
        frame = frame[frame["seed"] == seed]
    if policy == "last_n":
        frame = frame.groupby(list(over), dropna=False, sort=False).tail(n or 0)
    check_unique(frame, over)
    return frame


def check_unique(frame: pd.DataFrame, over: Sequence[str] = ("arm",)) -> None:
    """Check that each key is there at most once for every value of `over`.

    Raises
    ------
    ValueError
        Naming a repeated key.
    """
    columns = [*over, *KEY]
    repeated = frame[frame.duplicated(columns)]
    if len(repeated):
        first = ", ".join(f"{name} {repeated.iloc[0][name]}" for name in columns)
        raise ValueError(
            f"{len(repeated)} rows repeat a key, such as {first}; deduplicate by a policy, or name in `over` what "
            "tells them apart"
        )


def common_keys(frame: pd.DataFrame, over: Sequence[str] = ("arm",)) -> pd.DataFrame:
    """Return the keys that every value of `over` has, sorted; columns as `KEY`. A value without any row is not known here.

    Raises
    ------
    ValueError
        If a key is repeated within a value of `over`.
    """
    check_unique(frame, over)
    sides = frame.drop_duplicates(list(over))[list(over)]
    counts = frame.groupby(list(KEY), sort=True).size()
    return counts[counts == len(sides)].index.to_frame(index=False)


def on_common_keys(frame: pd.DataFrame, over: Sequence[str] = ("arm",)) -> pd.DataFrame:
    """Return the rows whose keys every value of `over` has, in their order.

    Raises
    ------
    ValueError
        If a key is repeated within a value of `over`.
    """
    keys = pd.MultiIndex.from_frame(common_keys(frame, over))
    return frame[pd.MultiIndex.from_frame(frame[list(KEY)]).isin(keys)]


def paired(left: pd.DataFrame, right: pd.DataFrame, value: str = "hit_joint") -> pd.DataFrame:
    """Return two sides key by key, for paired differences.

    Parameters
    ----------
    left, right : rows of the two sides, such as MA and RO of one receiver, each key once; cut both to a strict common set first if
        more than two arms stand in one table

    Returns
    -------
    DataFrame, sorted by key: `KEY`, ``left``, ``right`` (`value` of each), ``delta`` = left - right (null where either is),
    ``message_empty`` (a side showed an empty message: give differences with and without such rows)
    """
    for side in (left, right):
        check_unique(side, ())
    columns = [*KEY, value, "message_empty"]
    joined = left[columns].merge(right[columns], on=list(KEY), suffixes=("_left", "_right"), validate="one_to_one")
    sides = {side: joined[f"{value}_{side}"].astype("Float64") for side in ("left", "right")}
    empty = joined["message_empty_left"].fillna(False) | joined["message_empty_right"].fillna(False)
    table = joined[list(KEY)].assign(**sides, delta=sides["left"] - sides["right"], message_empty=empty)
    return table.sort_values(list(KEY), ignore_index=True)
