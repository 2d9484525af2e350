"""Which rows are held against each other: arms of one receiver, receivers of one message, senders of one receiver.

Context
-------
The paper's tables 6 to 8 pair MA with RO on strict common keys; its sender gap pairs a strong with a weak sender's MA.
Everything receiver-relative is a difference between receivers that read the same message.

Intuition
---------
A contrast is a left and a right row of the same step. All arms of a receiver are first cut to the keys that every one of
them has, so the contrasts of one receiver stand on the same steps and add up: (MA - SF) + (SF - RO) = MA - RO.

How to read the result
----------------------
One row a contrast and key, with ``left``, ``right`` and ``delta``. A null delta is a call that failed. Rows whose message came out
empty are marked; a difference without them belongs beside the one with them.

Not covered: intervals and tests (`lib.evaluation.paired_gain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pandas as pd

from lib.coordination.keys import KEY, on_common_keys, paired

_SIDES = ("arm", "sender_model", "budget_tokens", "encoding_format")
_NAMES = ["contrast", "receiver_model", "sender_model"]


def arm_contrasts(scored: pd.DataFrame, value: str = "hit_joint") -> pd.DataFrame:
    """Return MA - RO and MA - SF for every receiver and sender, and SF - RO for every receiver.

    Parameters
    ----------
    scored : from `lib.coordination.scoring.score_records`, one budget and encoding, each key once for every arm and sender
    value : column that is compared

    Returns
    -------
    DataFrame with ``contrast``, ``receiver_model``, ``sender_model`` (null for SF - RO) and the columns of `lib.coordination.keys.paired`

    Raises
    ------
    ValueError
        If a key is repeated for a receiver, arm and sender.
    """
    parts = []
    for receiver, own in scored.groupby("receiver_model", sort=False):
        for _, rows in own.groupby("benchmark", sort=False):
            rows = on_common_keys(rows, _SIDES)
            sides = {arm: rows[rows["arm"] == arm] for arm in ("RO", "SF")}
            with_message = rows[rows["arm"] == "MA"]
            for sender, sent in with_message.groupby("sender_model", sort=False):
                for arm, side in sides.items():
                    parts.append(_named(f"MA - {arm}", receiver, sender, paired(sent, side, value)))
            parts.append(_named("SF - RO", receiver, None, paired(sides["SF"], sides["RO"], value)))
    return _joined(parts)


def receiver_contrasts(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return how much more one receiver gains from a message than another one from the same message, for every two receivers.

    Parameters
    ----------
    pairs : `arm_contrasts`; its MA - RO rows are used

    Returns
    -------
    DataFrame as `arm_contrasts`: ``contrast`` is ``gain of A - gain of B``, ``receiver_model`` is A, ``left`` and ``right`` are both gains
    """
    gains = pairs[pairs["contrast"] == "MA - RO"]
    parts = []
    for sender, own in gains.groupby("sender_model", sort=False):
        for one, other in combinations(dict.fromkeys(own["receiver_model"]), 2):
            sides = [own[own["receiver_model"] == name][[*KEY, "delta", "message_empty"]] for name in (one, other)]
            joined = sides[0].merge(sides[1], on=list(KEY), suffixes=("_left", "_right"), validate="one_to_one")
            table = joined[list(KEY)].assign(
                left=joined["delta_left"],
                right=joined["delta_right"],
                delta=joined["delta_left"] - joined["delta_right"],
                message_empty=joined["message_empty_left"] | joined["message_empty_right"],
            )
            parts.append(_named(f"gain of {one} - gain of {other}", one, sender, table))
    return _joined(parts)


def side_contrasts(
    scored: pd.DataFrame, column: str, left: object, right: object, value: str = "hit_joint"
) -> pd.DataFrame:
    """Return `left` - `right` of a column such as ``sender_model`` or ``encoding_format``, for every receiver, on the keys that both have.

    Returns
    -------
    DataFrame as `arm_contrasts`; ``sender_model`` is null where senders are compared

    Raises
    ------
    ValueError
        If a key is repeated on a side for a receiver and sender.
    """
    held = ["receiver_model", "sender_model"] if column != "sender_model" else ["receiver_model"]
    parts = []
    for names, own in scored.groupby(held, sort=False, dropna=False):
        sides = [own[own[column].isna() if side is None else own[column] == side] for side in (left, right)]
        for family in dict.fromkeys(own["benchmark"]):
            rows = [side[side["benchmark"] == family] for side in sides]
            sender = names[1] if len(held) > 1 else None
            parts.append(_named(f"{left} - {right}", names[0], sender, paired(rows[0], rows[1], value)))
    return _joined(parts)


def _named(contrast: str, receiver: object, sender: object, table: pd.DataFrame) -> pd.DataFrame:
    ahead = pd.DataFrame({"contrast": contrast, "receiver_model": receiver, "sender_model": sender}, index=table.index)
    return pd.concat([ahead.astype({"sender_model": object}), table], axis=1)


def _joined(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    filled = [part for part in parts if len(part)]
    if filled:
        return pd.concat(filled, ignore_index=True)
    return parts[0] if parts else pd.DataFrame(columns=[*_NAMES, *KEY, "left", "right", "delta", "message_empty"])
