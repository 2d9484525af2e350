"""Read a paper's published table, cut to the benchmarks that this suite's names stand beside.

Each method has its own names and counterparts (`published.py` of its package); how a table is found and joined is the same.

Not covered: what a difference to a published number means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd


def published_rows(
    folder: Path, name: str, column: str, ours: Iterable[str], benchmark_of: Callable[[str], str], *, prefix: str = ""
) -> pd.DataFrame:
    """Return a published table's rows once for each of our names with that benchmark; rows on all benchmarks for each.

    Parameters
    ----------
    folder, prefix, name : the file is ``<folder>/<prefix><name>.csv``
    column : name of the column that gets our name
    ours : our names, in the order wanted
    benchmark_of : our name -> the paper's benchmark

    Raises
    ------
    ValueError
        For a name that is no published table.
    """
    path = folder / f"{prefix}{name}.csv"
    if not path.is_file():
        known = ", ".join(sorted(file.stem.removeprefix(prefix) for file in folder.glob(f"{prefix}*.csv")))
        raise ValueError(f"{path}: no such published table; there are {known}")
    table = pd.read_csv(path)
    parts = [table[table["benchmark"].isin([benchmark_of(one), "all"])].assign(**{column: one}) for one in ours]
    return pd.concat(parts, ignore_index=True) if parts else table.iloc[:0].assign(**{column: ""})
