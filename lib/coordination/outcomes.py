"""What became of each step of a replay: unreadable, wrong content, right content and wrong action, or a hit.

Context
-------
The measured counterpart of `lib.coordination.bottleneck` (paper, sections 2.4 and 4.4). A reply names an artifact (a
file, a tool) and an action on it. Both right is a joint hit, the paper's primary accuracy.

Intuition
---------
A reply whose artifact is wrong lost the content. A reply with the right artifact and the wrong action had the content
and did not close. The share of the latter among replies with the right artifact is the wrong-action rate, 1 minus the
action conversion.

How to read the result
----------------------
The four kinds are disjoint and count every step. Two conversions are given, because published pairs of numbers do not
always sum to 1: among valid replies with the right artifact, and with unreadable replies counted as failures beside
them. A rate without any step under it is null.

Not covered: parsing and scoring of replies; intervals (`lib.evaluation.inference`).
"""

from __future__ import annotations

import msgspec
import pandas as pd

KINDS = ("invalid", "artifact_wrong", "action_wrong", "hit")
_COLUMNS = ("valid", "hit_artifact", "hit_action")


class Outcomes(msgspec.Struct, frozen=True):
    """Steps by what became of them."""

    invalid: int
    artifact_wrong: int
    action_wrong: int
    hit: int

    @property
    def steps(self) -> int:
        """All steps."""
        return self.invalid + self.artifact_wrong + self.action_wrong + self.hit

    @property
    def conversion(self) -> float | None:
        """P(action right | artifact right, valid); null without a valid reply that has the artifact right."""
        return _share(self.hit, self.hit + self.action_wrong)

    @property
    def conversion_with_invalid(self) -> float | None:
        """The same with unreadable replies counted among the failures."""
        return _share(self.hit, self.hit + self.action_wrong + self.invalid)

    @property
    def wrong_action_rate(self) -> float | None:
        """1 - conversion, among valid replies with the right artifact."""
        return _share(self.action_wrong, self.hit + self.action_wrong)


def outcome_kinds(steps: pd.DataFrame) -> pd.Series:
    """Return the kind of every step, one of `KINDS`.

    Parameters
    ----------
    steps : boolean columns ``valid`` (the reply could be parsed), ``hit_artifact`` and ``hit_action``

    Raises
    ------
    ValueError
        If a column is missing, or an unreadable reply counts as a hit.
    """
    missing = [column for column in _COLUMNS if column not in steps]
    if missing:
        raise ValueError(f"steps lack the columns {missing}; they have {list(steps.columns)}")
    valid, artifact, action = (steps[column].astype(bool) for column in _COLUMNS)
    if (~valid & (artifact | action)).any():
        raise ValueError("steps: a reply that could not be parsed has a hit; score it as all misses")
    kinds = pd.Series("hit", index=steps.index, name="kind")
    return kinds.mask(~action, "action_wrong").mask(~artifact, "artifact_wrong").mask(~valid, "invalid")


def count_outcomes(steps: pd.DataFrame) -> Outcomes:
    """Return how many steps are of each kind; `steps` as in `outcome_kinds`."""
    counts = outcome_kinds(steps).value_counts()
    return Outcomes(*(int(counts.get(kind, 0)) for kind in KINDS))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
