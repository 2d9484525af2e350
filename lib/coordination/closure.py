"""Where a decision was lost: not sent, not taken up, not turned into the right action, or not readable.

Context
-------
The measured counterpart of the bottleneck decomposition (paper, sections 2.4, 4.4 and C.3), on records of real receivers.
`lib.coordination.outcomes` defines the four kinds; this module counts them and splits the wrong artifacts further by what
the message said.

Intuition
---------
A wrong artifact after a message that does not name an acceptable one was lost before the receiver (externalisation);
after a message that does, at the receiver (absorption). The right artifact with the wrong action is a failure of closure.

How to read the result
----------------------
Shares are of answered steps: unreadable + artifact wrong + closure + hit = 1, and in arms with a message externalisation
+ absorption = artifact wrong. Rates are null where nothing is under them. The wrong-action rate is given by both definitions,
among valid replies with the right artifact, and with unreadable replies among the failures. When receivers
are compared on a fixed message, `check_fixed_messages` says whether it was the same.

Easy and hard are a partition by what the receiver does alone: steps that RO hits, and those that it misses.

Not covered: the terms as risks (`lib.coordination.bottleneck`); a message that describes its artifact without its name
counts as externalisation, so recoded messages do.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib.coordination.keys import KEY, check_unique
from lib.coordination.outcomes import count_outcomes

GROUPS = (
    *("benchmark", "sender_model", "receiver_model", "arm", "budget_tokens", "encoding_format"),
    *("parser", "scorer"),
)
_COUNTS = ("steps", "failed", "invalid", "artifact_wrong", "action_wrong", "hits")
_RATES = (
    *("validity", "hit_artifact", "hit_action", "hit_joint", "externalisation", "absorption", "closure", "unreadable"),
    *("conversion", "conversion_with_invalid", "wrong_action_rate", "wrong_action_rate_with_invalid"),
)


def closure_table(frame: pd.DataFrame, by: Sequence[str] = GROUPS) -> pd.DataFrame:
    """Count what became of every step.

    Parameters
    ----------
    frame : from `lib.coordination.scoring.score_records`, perhaps with ``slice`` from `with_slices`
    by : columns that name a group; a null counts as a value

    Returns
    -------
    DataFrame, one row a group, sorted: the columns of `by`; counts ``steps``, ``failed`` (calls without an answer, in no share),
    ``invalid``, ``artifact_wrong``, ``action_wrong``, ``hits``; shares of answered steps ``validity``, ``hit_artifact``, ``hit_action``,
    ``hit_joint``, ``externalisation``, ``absorption`` (null without messages), ``closure``, ``unreadable``; ``conversion`` =
    P(action | artifact, valid), ``conversion_with_invalid``, and the wrong-action rates, 1 minus these
    """
    rows = [
        {**dict(zip(by, key, strict=True)), **_counted(group)}
        for key, group in frame.groupby(list(by), dropna=False, sort=True)
    ]
    kinds = dict.fromkeys(_COUNTS, "Int64") | dict.fromkeys(_RATES, "Float64")
    return pd.DataFrame(rows, columns=[*by, *_COUNTS, *_RATES]).astype(kinds)


def with_slices(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with a column ``slice``: ``easy`` where the same receiver's RO row of the step hits, ``hard`` where it misses.

    Null where there is no such row or its call failed.

    Raises
    ------
    ValueError
        If a receiver has several RO rows of a step: deduplicate first, by a policy that is named.
    """
    alone = frame[frame["arm"] == "RO"]
    match = ["receiver_model", *KEY]
    check_unique(alone, ("receiver_model",))
    hits = alone[[*match, "hit_joint"]].rename(columns={"hit_joint": "slice"})
    hits["slice"] = hits["slice"].map({True: "easy", False: "hard"}).astype(object)
    return frame.merge(hits, on=match, how="left", validate="many_to_one").set_axis(frame.index)


def check_fixed_messages(frame: pd.DataFrame, over: Sequence[str] = ("budget_tokens", "encoding_format")) -> None:
    """Check that all receivers were shown the same message at a step, within each setting named by `over`.

    Raises
    ------
    ValueError
        Naming a step at which receivers were shown different messages: under a budget, have all counted by one.
    """
    sent = frame[frame["message_shown"].notna()]
    versions = sent.groupby([*KEY, *over], dropna=False)["message_shown"].nunique()
    if (versions > 1).any():
        place = " / ".join(map(str, versions.index[(versions > 1).to_numpy()][0][: len(KEY)]))
        raise ValueError(
            f"step {place}: receivers were shown different messages; replay stored ones whole, or name `counted_by`"
        )


def _counted(group: pd.DataFrame) -> dict[str, int | float | None]:
    answered = group[group["answered"]]
    flags = answered[["parse_valid", "hit_artifact", "hit_action"]].rename(columns={"parse_valid": "valid"})
    outcomes = count_outcomes(flags.astype(bool))
    n = len(answered)
    missed = answered[answered["parse_valid"] & ~answered["hit_artifact"]]
    told = answered["message_names_artifact"].notna().all() if n else False
    taken = int(missed["message_names_artifact"].sum()) if told else 0
    conversions = (outcomes.conversion, outcomes.conversion_with_invalid)
    return {
        "steps": len(group),
        "failed": len(group) - n,
        "invalid": outcomes.invalid,
        "artifact_wrong": outcomes.artifact_wrong,
        "action_wrong": outcomes.action_wrong,
        "hits": outcomes.hit,
        "validity": _share(n - outcomes.invalid, n),
        "hit_artifact": _share(outcomes.hit + outcomes.action_wrong, n),
        "hit_action": _share(int(answered["hit_action"].sum()), n),
        "hit_joint": _share(outcomes.hit, n),
        "externalisation": _share(outcomes.artifact_wrong - taken, n) if told else None,
        "absorption": _share(taken, n) if told else None,
        "closure": _share(outcomes.action_wrong, n),
        "unreadable": _share(outcomes.invalid, n),
        "conversion": conversions[0],
        "conversion_with_invalid": conversions[1],
        "wrong_action_rate": outcomes.wrong_action_rate,
        "wrong_action_rate_with_invalid": None if conversions[1] is None else 1 - conversions[1],
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
