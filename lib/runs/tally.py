"""What a rehearsal counted: questions asked, where their answers are, and the work that is left for the receiver.

Context
-------
A plan adds the counts of notebooks, scales those of a sample of tasks to all tasks, and turns them into seconds. All of these are
sums and straight lines, so a `Tally` is a row of numbers that can be added and extended.

How to read the result
----------------------
`calls` are questions as a notebook asks them, after equal ones of one batch have become one. Each is answered from a frozen file
(`frozen`), from the store as it is now (`stored`), by an earlier question of the same plan (`repeated`), or it is `computed`. Work is told
of computed questions alone: `naive` tokens one prompt at a time, `tree` tokens when shared beginnings are read once, new tokens
at most (`bound`) and as expected.

Not covered: counting (`lib.runs.planned`), seconds (`lib.runs.probe`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Tally(msgspec.Struct, frozen=True):
    """Counts of one receiver in one notebook, or sums of them.

    Parameters
    ----------
    calls, frozen, stored, repeated, computed : questions, see the module header
    unkept : computed questions that go around the store, for latency; every run asks them again
    naive, tree : tokens read
    bound, expected : tokens generated
    steps : decoding steps, the longest expected reply of each block of rows
    cut : questions whose prompt does not fit the model's context
    exact : whether tokens are the receiver's own
    """

    calls: float = 0
    frozen: float = 0
    stored: float = 0
    repeated: float = 0
    computed: float = 0
    unkept: float = 0
    naive: float = 0
    tree: float = 0
    bound: float = 0
    expected: float = 0
    steps: float = 0
    cut: float = 0
    exact: bool = True

    def __add__(self, other: Tally) -> Tally:
        return _combined(self, other, lambda mine, theirs: mine + theirs)

    def times(self, factor: float) -> Tally:
        """Return every count multiplied."""
        return _combined(self, self, lambda mine, _: factor * mine)

    def beyond(self, smaller: Tally, place: float) -> Tally:
        """Return the counts on the straight line through `smaller` (at 0) and this tally (at 1), at `place` of 1 or more.

        More tasks never cost less, so no count falls. Where no more questions are computed, work stays as it is: its lengths differ by
        the questions that were drawn, and a line would make much of that.

        >>> Tally(calls=30).beyond(Tally(calls=20), 3.0).calls
        50.0
        """
        line = _combined(self, smaller, lambda mine, less: max(float(mine), less + place * (mine - less)))
        if self.computed > smaller.computed:
            return line
        return msgspec.structs.replace(line, **{name: getattr(self, name) for name in _WORK})


class Ledger:
    """The tallies of one rehearsal, by receiver."""

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}

    def add(self, receiver: str, **counts: float) -> None:
        """Add counts to a receiver's tally."""
        self.tallies[receiver] = self.tallies.get(receiver, Tally()) + msgspec.structs.replace(Tally(), **counts)

    def guess(self, receiver: str) -> None:
        """Note that a receiver's tokens are guessed."""
        self.tallies[receiver] = self.tallies.get(receiver, Tally()) + Tally(exact=False)


def _combined(one: Tally, other: Tally, combine: Callable[[float, float], float]) -> Tally:
    counts = {name: combine(getattr(one, name), getattr(other, name)) for name in _COUNTS}
    return msgspec.structs.replace(one, **counts, exact=one.exact and other.exact)


_COUNTS = tuple(field for field in Tally.__struct_fields__ if field != "exact")
_WORK = ("naive", "tree", "bound", "expected", "steps")
