"""The arms of the comparison: what an agent hears, on the same graph.

Context
-------
The paper compares one model alone (*single*), a team whose agents hear their direct predecessors (*vanilla*), and a team
whose agents also hear the predecessors' predecessors, K hops back, merged to a budget (*moc*). Its ablation (Figure 3b)
leaves the merging out: *moc_flow* here, MOC without Phi in the paper.

Intuition
---------
The arms differ in two numbers only: how far an agent looks back, and whether what it finds is merged. Vanilla is
moc at K = 1: with gamma >= 0 its budget |M| + gamma is never exceeded (eq. 16), so nothing is merged and the prompts are
the same to the last byte. A difference between two arms is therefore one of communication alone.

Not covered: how the graph came about (`lib.moc.dag`, `lib.moc.gdesigner`), several rounds.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ArmName = Literal["single", "vanilla", "moc_flow", "moc"]
ARMS: tuple[ArmName, ...] = ("single", "vanilla", "moc_flow", "moc")


class Arm(msgspec.Struct, frozen=True):
    """One way to communicate.

    Parameters
    ----------
    name : one of `ARMS`
    k : hops that an agent looks back; 0 for single
    consolidates : whether Phi merges what is over the budget
    """

    name: ArmName
    k: int
    consolidates: bool

    @property
    def label(self) -> str:
        """Name with K where it is free, for tables: ``moc K=2``."""
        return f"{self.name} K={self.k}" if self.name in ("moc_flow", "moc") else self.name


def arm_of(name: str, k: int = 2) -> Arm:
    """Return the arm of a name; `k` counts for moc_flow and moc alone.

    Raises
    ------
    ValueError
        For a name that is no arm, or `k` below 1.

    >>> arm_of("vanilla", k=3).k, arm_of("moc", k=3).label
    (1, 'moc K=3')
    """
    if k < 1:
        raise ValueError(f"k: an agent looks back at least 1 hop, not {k}")
    if name == "single":
        return Arm("single", 0, False)
    if name == "vanilla":
        return Arm("vanilla", 1, False)
    if name == "moc_flow":
        return Arm("moc_flow", k, False)
    if name == "moc":
        return Arm("moc", k, True)
    raise ValueError(f"arm {name!r} is not known; choose one of {', '.join(ARMS)}")
