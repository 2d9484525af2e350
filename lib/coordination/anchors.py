"""Anchors of the sender swap: the same receiver with a stronger and a weaker sender, benchmark by benchmark.

Context
-------
Section 4.5 of the paper. An anchor is one benchmark, receiver and pair of senders. It needs three arms on the same steps:
the receiver alone, with the stronger sender's messages and with the weaker one's.

Intuition
---------
The gap is strong minus weak, and what it is held against is how well the receiver does alone. All three are counted on the
keys that all three arms have: an arm that lost its hard steps would look better than it is.

How to read the result
----------------------
A key whose call failed in one arm is left out for all three and counted as ``failed``. In public records of this
comparison a weaker sender often wrote no visible text, because its tokens went into hidden reasoning. Then the gap
compares a message with none. So each anchor says how many messages were empty, and gives the gap again over the steps
where both senders wrote something.

Not covered: errors of a gap (`lib.evaluation.inference`); what the gaps add up to (`lib.coordination.sender_gap`).
"""

from __future__ import annotations

import pandas as pd

from lib.coordination.actions import need_columns
from lib.coordination.crossing_fits import Points
from lib.coordination.keys import KEY, on_common_keys

_SIDES = ("alone", "strong", "weak")
_COLUMNS = (
    *("anchor", "benchmark", "receiver_model", "strong", "weak", "steps", "failed", "receiver_only", "gap"),
    *("empty_strong", "empty_weak", "steps_with_text", "gap_with_text"),
)


def sender_anchors(scored: pd.DataFrame, *, strong: str, weak: str) -> pd.DataFrame:
    """Return the gap between two senders, an anchor for every benchmark and receiver that both wrote to.

    Parameters
    ----------
    scored : of `lib.coordination.scoring.score_records`: each key at most once an arm and sender
    strong, weak : sender models

    Returns
    -------
    DataFrame, one row an anchor: ``anchor``, ``benchmark``, ``receiver_model``, ``strong``, ``weak``, ``steps`` (keys answered in
    all three arms), ``failed`` (common keys that were not), ``receiver_only`` (x), ``gap`` (y: strong minus weak),
    ``empty_strong`` and ``empty_weak`` (shares of messages without text), ``steps_with_text`` and ``gap_with_text`` (the same over
    keys where both wrote something; null without such keys). A receiver without common keys has no row.

    Raises
    ------
    ValueError
        If a column is missing or a key stands twice in an arm.
    """
    need_columns(scored, (*KEY, "receiver_model", "sender_model", "arm", "hit_joint", "message_empty"), "scored")
    side = pd.Series(None, index=scored.index, dtype=object)
    side[scored["arm"] == "RO"] = "alone"
    for name, model in (("strong", strong), ("weak", weak)):
        side[(scored["arm"] == "MA") & (scored["sender_model"] == model)] = name
    sides = scored.assign(side=side).dropna(subset=["side"])
    rows = []
    for (benchmark, receiver), part in sides.groupby(["benchmark", "receiver_model"], sort=True):
        common = on_common_keys(part, ("side",))
        if len(common) and set(common["side"]) == set(_SIDES):
            named = {"benchmark": str(benchmark), "receiver_model": str(receiver), "strong": strong, "weak": weak}
            rows.append({"anchor": f"{benchmark}/{receiver}/{strong}-{weak}", **named, **_measured(common)})
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def points_of(anchors: pd.DataFrame, *, by_benchmark: bool = False) -> Points:
    """Return the points of a frame with ``receiver_only``, ``gap``, ``steps`` and, for intercepts of their own, ``benchmark``.

    Raises
    ------
    ValueError
        If a column is missing, or a value is null or out of range.
    """
    need_columns(anchors, ("receiver_only", "gap", "steps", *(("benchmark",) if by_benchmark else ())), "anchors")
    x, y, steps = (tuple(anchors[name].astype(float)) for name in ("receiver_only", "gap", "steps"))
    return Points(x, y, steps, tuple(anchors["benchmark"].astype(str)) if by_benchmark else ())


def _measured(common: pd.DataFrame) -> dict[str, int | float | None]:
    """Return what one receiver did with both senders and alone, on common keys."""
    hits = common.pivot(index=list(KEY), columns="side", values="hit_joint").astype("Float64")
    empty = common.pivot(index=list(KEY), columns="side", values="message_empty")[["strong", "weak"]].astype("boolean")
    answered = hits.notna().all(axis=1)
    hits, empty = hits[answered].astype(float), empty[answered]
    gap = hits["strong"] - hits["weak"]
    text = gap[~empty.any(axis=1).to_numpy(dtype=bool)]
    return {
        "steps": len(gap),
        "failed": int((~answered).sum()),
        "receiver_only": float(hits["alone"].mean()) if len(hits) else None,
        "gap": float(gap.mean()) if len(gap) else None,
        "empty_strong": float(empty["strong"].mean()) if len(gap) else None,
        "empty_weak": float(empty["weak"].mean()) if len(gap) else None,
        "steps_with_text": len(text),
        "gap_with_text": float(text.mean()) if len(text) else None,
    }
