"""What a tidy frame must hold before it is summed up or drawn, and how one of its columns is cut into bins.

Not covered: what is done with it (`lib.evaluation.summary`, `lib.evaluation.figures`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd


def need_columns(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Check that a frame has all of `columns`.

    Raises
    ------
    ValueError
        Naming the columns that are missing and those that are there.
    """
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise ValueError(f"the frame lacks the columns {missing}; it has {list(frame.columns)}")


def filled_bins(values: pd.Series, bins: int) -> pd.Series:
    """Return the bin of every value, at most `bins` of them and about equally filled; equal values share one.

    >>> filled_bins(pd.Series([0.1, 0.1, 0.4, 0.9]), 3).nunique()
    3
    """
    # Few distinct values are bins by themselves; quantile edges would join them by their ties.
    if values.nunique() <= bins:
        return values
    return pd.qcut(values.rank(method="average"), bins, duplicates="drop")
