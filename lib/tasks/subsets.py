"""Which questions of a benchmark are used: the paper's own sample, or a stratified draw.

The MOC paper scores on samples: 5 questions of each MMLU subject, 20 of each MMLU-Pro category, 300 of GSM8K. Its public code names the
sampling seed 888 but not the method. The rows of its files are those of `paper_rows` on every stratum that could be checked (57 subjects of
MMLU, GSM8K; the order of ids in all 14 categories of MMLU-Pro), so the same sample can be drawn from a full test file.

Not covered: reading files (the loaders).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from lib.seeds import digest
from lib.tasks.records import Record
from lib.tasks.task import WorkloadError

PAPER_SEED = 888

T = TypeVar("T")


def paper_rows(size: int, count: int) -> list[int]:
    """Return the rows that the paper's sample takes from a stratum, in its order.

    Parameters
    ----------
    size
        Rows of the stratum in the test file.
    count
        Rows taken.

    Examples
    --------
    >>> paper_rows(100, 5)
    [88, 42, 55, 15, 0]

    Notes
    -----
    numpy's legacy generator, whose stream numpy keeps as it is; the seeds of `lib.seeds` would draw another sample.
    """
    return [int(row) for row in np.random.RandomState(PAPER_SEED).permutation(size)[:count]]


def mark_of(record: Record) -> int | None:
    """Return a record's place in the paper's sample (field ``moc_index``), or None where it has none."""
    mark: int | None = record.need("moc_index", int, type(None)) if "moc_index" in record.data else None
    return mark


def marked(items: Sequence[tuple[int | None, T]], count: int, what: str) -> list[T] | None:
    """Return the items in the order of their marks (0 is first), or None where no item has one.

    Raises
    ------
    WorkloadError
        The marks are not 0 to count - 1, each once.
    """
    found = {mark: item for mark, item in items if mark is not None}
    total = sum(mark is not None for mark, _ in items)
    if not total:
        return None
    if total != count or set(found) != set(range(count)):
        raise WorkloadError(
            f"{what}: 'moc_index' must hold 0 to {count - 1}, each once, but {total} records carry one; "
            "restore the file, or ask for subset='all'"
        )
    return [found[mark] for mark in range(count)]


def need_whole(found: int, whole: int, what: str) -> None:
    """Raise `WorkloadError` unless a file holds its whole test split, from which alone the paper's sample can be drawn."""
    if found != whole:
        raise WorkloadError(
            f"{what}: {found:,} records, but the paper's sample is drawn from all {whole:,} of the test split; "
            "give the whole file or one that carries 'moc_index', or ask for subset='all'"
        )


def stratified_order(ids: Sequence[str], strata: Sequence[str], *parts: object) -> list[int]:
    """Return the places of all items in an order whose every beginning is stratified.

    The k-th item of a stratum of n stands at (k - 1/2) / n, so the first m items share themselves out in proportion to the sizes of the
    strata (Webster's method), and a smaller draw is the beginning of a larger one. Order within a stratum and ties go by SHA-256.

    Parameters
    ----------
    ids, strata
        Id and stratum of each item.
    parts
        What names the draw, for example family and seed.
    """
    keys = [digest("questions", *parts, name) for name in ids]
    members: dict[str, list[int]] = {}
    for place, stratum in enumerate(strata):
        members.setdefault(stratum, []).append(place)
    position = {}
    for places in members.values():
        for rank, place in enumerate(sorted(places, key=lambda place: (keys[place], ids[place]))):
            position[place] = round((rank + 0.5) / len(places), 12)
    return sorted(position, key=lambda place: (position[place], keys[place], ids[place]))
