"""What packets do together, and what the replay effect misses of it.

Context
-------
RCE and the Shapley value (`lib.bandmas.shapley`) give one number a packet. Where they differ, the reason lies between
packets: two that say the same stand in for each other, two links of a chain are worth something only together. The
BANDMAS paper names both cases and leaves interactions beyond its two contexts aside.

Intuition
---------
The second difference U(S+i+j) - U(S+i) - U(S+j) + U(S) asks whether packet i gains or loses by the presence of j, with
S delivered too. Below zero i and j are substitutes there, above zero complements. Its mean over all S, sizes equally
weighted, is the Shapley interaction index (Grabisch and Roubens 1999). Where not all sets were asked, the mean of two
contexts stands for it, S empty and S everything else: exact for up to three packets, as RCE is for up to two.

Let g(t) be the mean marginal effect of a packet when each other packet has arrived with probability t. The Shapley
value is the integral of g over [0, 1] (Owen 1972). RCE is (g(0) + g(1)) / 2, the trapezoid rule with one step. So RCE
is exact where g is a straight line: **pairs alone, however strong, never part the two**; that takes three packets or
more that act together. In terms of dividends a(T), the worth that a set T adds beyond its subsets,

    RCE(p) - Shapley(p) = sum over sets T of three or more packets with p in T of (1/2 - 1/|T|) a(T).

The ends of g also tell its slopes, the sums of p's second differences in the two contexts. The trapezoid rule's own
end correction (Euler and Maclaurin) therefore explains the difference from pairs in two contexts:

    explained(p) = (sum over j of second difference at full - sum over j of second difference at empty) / 12,

exactly where at most four packets act together, and roughly beyond.

How to read the result
----------------------
`pair_interactions`: a row a pair, with both contexts, the index and a kind. `compare_rce`: a row a packet, with the
difference, the part explained by interactions and the part left. `rce_agreement` counts: rank correlation, signs,
share explained. The utility is a clipped, coarse score and the receiver has noise: both bend g, so both show up here
as many packets acting together.

Not covered: interaction indices of three and more packets by name, noise (`lib.bandmas.noise`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from lib.bandmas.diagnostics import rank_correlation
from lib.bandmas.replay import ZERO, Job
from lib.bandmas.shapley import (
    EXACT,
    ShapleyPlan,
    Worth,
    coalition_worths,
    game_table,
    sets_without,
)

SUBSTITUTES, COMPLEMENTS, INDEPENDENT, MIXED = "substitutes", "complements", "independent", "mixed"
KINDS = (SUBSTITUTES, COMPLEMENTS, MIXED, INDEPENDENT)
SIGN_WORDS = ("same", "opposite", "rce zero", "shapley zero")
TWO_CONTEXTS = "two contexts"
CORRECTION = 12  # of the trapezoid rule: B_2 / 2! = 1/12


# --------------------------------------------------------------------------------------------------------------- any game


def interaction_values(worth: ArrayLike) -> np.ndarray:
    """Return the Shapley interaction index of every pair of a game.

    Parameters
    ----------
    worth : (2^n,) worth of every set; bit k of the index stands for player k

    Returns
    -------
    (n, n) symmetric, NaN on the diagonal

    >>> float(interaction_values([0, 1, 1, 1])[0, 1])  # either of two packets is enough
    -1.0
    """
    table, n = game_table(worth)
    index = np.full((n, n), np.nan)
    for i in range(n):
        for j in range(i):
            others, weights = sets_without(n, 1 << i | 1 << j)
            index[i, j] = index[j, i] = weights @ second_differences(table, others, i, j)
    return index


def second_differences(table: np.ndarray, sets: np.ndarray, i: int, j: int) -> np.ndarray:
    """Return U(S+i+j) - U(S+i) - U(S+j) + U(S) for each of `sets`, which hold neither i nor j."""
    one, other = 1 << i, 1 << j
    return table[sets | one | other] - table[sets | one] - table[sets | other] + table[sets]


def end_differences(worth: Worth, n_players: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the second differences of every pair with nothing else and with everything else delivered.

    Parameters
    ----------
    worth : of sets of up to two players, and of all but up to two

    Returns
    -------
    at_empty, at_full : (n, n) symmetric, NaN on the diagonal
    """
    everyone = (1 << n_players) - 1
    at_empty, at_full = (np.full((n_players, n_players), np.nan) for _ in range(2))
    for i in range(n_players):
        for j in range(i):
            one, other = 1 << i, 1 << j
            for matrix, base in ((at_empty, 0), (at_full, everyone ^ one ^ other)):
                value = worth(base | one | other) - worth(base | one) - worth(base | other) + worth(base)
                matrix[i, j] = matrix[j, i] = value
    return at_empty, at_full


def dividends(worth: ArrayLike) -> np.ndarray:
    """Return what each set is worth beyond its proper subsets, (2^n,) (Harsanyi dividends, the Moebius transform).

    >>> dividends([0, 1, 1, 1]).tolist()  # the second of two copies takes back what it repeats
    [0.0, 1.0, 1.0, -1.0]
    """
    table, n = game_table(worth)
    table = table.copy()
    sets = np.arange(table.size)
    for player in range(n):
        holders = sets[sets >> player & 1 == 1]
        table[holders] -= table[holders ^ 1 << player]
    return table


def difference_by_order(worth: ArrayLike) -> np.ndarray:
    """Return RCE - Shapley of every player, split by how many players act together.

    Returns
    -------
    (n, n + 1): column k holds the part of sets of k players, (1/2 - 1/k) times their dividends. Columns 0 to 2 are 0:
    RCE counts a player's own worth once and what a pair adds half, as the Shapley value does.
    """
    table, n = game_table(worth)
    added = dividends(table)
    sets = np.arange(table.size)
    sizes = np.bitwise_count(sets)
    parts = np.zeros((n, n + 1))
    for player in range(n):
        mine = sets >> player & 1 == 1
        for size in range(3, n + 1):
            parts[player, size] = (1 / 2 - 1 / size) * added[mine & (sizes == size)].sum()
    return parts


# ------------------------------------------------------------------------------------------------------ packets of a task


def pair_interactions(
    outcomes: pd.DataFrame, jobs: Sequence[Job], plan: ShapleyPlan, *, part: str = "utility"
) -> pd.DataFrame:
    """Return how every two packets of a task act together.

    Parameters
    ----------
    outcomes, jobs, plan, part : as in `shapley_effects`

    Returns
    -------
    DataFrame, one row a pair, first id before second: ``task_id``, ``first``, ``second``, ``first_type``,
    ``second_type``, ``same_message``, ``method`` (exact or two contexts), ``at_empty``, ``at_full`` (second
    differences), ``index`` (the interaction index, or the mean of the two contexts), ``largest`` (absolute second
    difference in any context looked at) and ``kind``: ``substitutes`` (index below 0), ``complements`` (above),
    ``mixed`` (index 0, but some second difference is not), ``independent`` (none is). Null where a set has no utility.
    """
    worths = coalition_worths(outcomes, jobs, part)
    rows = []
    for task, packets in jobs:
        ordered, n = sorted(packets, key=lambda packet: packet.packet_id), len(packets)
        worth = worths[task.id]
        at_empty, at_full = end_differences(worth, n)
        exact = plan.is_exact(n)
        if exact:
            table = np.array([worth(mask) for mask in range(1 << n)])
            index, largest = interaction_values(table), _largest(table)
        else:
            index, largest = (at_empty + at_full) / 2, np.maximum(np.abs(at_empty), np.abs(at_full))
        for i, one in enumerate(ordered):
            for j, other in enumerate(ordered[i + 1 :], start=i + 1):
                rows.append(
                    {
                        "task_id": task.id,
                        "first": one.packet_id,
                        "second": other.packet_id,
                        "first_type": one.type,
                        "second_type": other.type,
                        "same_message": one.message_id == other.message_id,
                        "method": EXACT if exact else TWO_CONTEXTS,
                        "at_empty": at_empty[i, j],
                        "at_full": at_full[i, j],
                        "index": index[i, j],
                        "largest": largest[i, j],
                        "kind": pair_kind(index[i, j], largest[i, j]),
                    }
                )
    numbers = dict.fromkeys(("at_empty", "at_full", "index", "largest"), float)
    return pd.DataFrame(rows, columns=_PAIR_COLUMNS).astype({**numbers, "kind": object, "same_message": bool})


def pair_kind(index: float, largest: float) -> str | None:
    """Name a pair by the sign of its index, and by its largest second difference where the index is 0; None if unknown.

    >>> pair_kind(-0.5, 1.0), pair_kind(0.0, 1.0), pair_kind(0.0, 0.0)
    ('substitutes', 'mixed', 'independent')
    """
    if math.isnan(index) or math.isnan(largest):
        return None
    if abs(index) >= ZERO:
        return COMPLEMENTS if index > 0 else SUBSTITUTES
    return MIXED if largest >= ZERO else INDEPENDENT


def order_parts(
    outcomes: pd.DataFrame, jobs: Sequence[Job], plan: ShapleyPlan, *, part: str = "utility"
) -> pd.DataFrame:
    """Return RCE - Shapley of every packet of the exact tasks, split by how many packets act together.

    Returns
    -------
    DataFrame, one row a packet and order from 3 up: ``task_id``, ``packet_id``, ``order``, ``difference``; the
    differences of a packet sum to its RCE minus its Shapley value
    """
    worths = coalition_worths(outcomes, jobs, part)
    rows = []
    for task, packets in jobs:
        n = len(packets)
        if plan.is_exact(n):
            parts = difference_by_order([worths[task.id](mask) for mask in range(1 << n)])
            for packet_id, row in zip(sorted(packet.packet_id for packet in packets), parts, strict=True):
                rows += [(task.id, packet_id, order, float(row[order])) for order in range(3, n + 1)]
    return pd.DataFrame(rows, columns=["task_id", "packet_id", "order", "difference"])


# ---------------------------------------------------------------------------------------------------- RCE against Shapley


def compare_rce(values: pd.DataFrame, effects: pd.DataFrame, pairs: pd.DataFrame) -> pd.DataFrame:
    """Put RCE beside the Shapley value, packet by packet, with what the interactions explain of the difference.

    Parameters
    ----------
    values, effects, pairs : of `shapley_effects`, of `lib.bandmas.replay.effects_of` and of `pair_interactions`, on the
        same outcomes and the same utility

    Returns
    -------
    DataFrame in the order of `values`, its columns and: ``sufficiency``, ``necessity``, ``rce``; ``difference``, RCE
    minus Shapley; ``explained``, its part from the second differences at both ends; ``left``, the rest;
    ``corrected``, RCE minus ``explained``; ``sign_rce`` and ``sign_shapley`` (-1, 0, 1; null where unknown, and for a
    sampled value whose interval holds 0); ``signs``: ``same``, ``opposite``, ``rce zero``, ``shapley zero``, or null
    where either is.

    Raises
    ------
    ValueError
        If a packet has no replay effect or a task of several packets has no pair.
    """
    keys = ["task_id", "packet_id"]
    beside = effects[[*keys, "sufficiency", "necessity", "rce"]]
    frame = values.merge(beside, on=keys, how="left", validate="one_to_one", indicator=True)
    lost = frame[frame["_merge"] != "both"]
    if len(lost):
        raise ValueError(
            f"packet {lost['packet_id'].iloc[0]!r} has no replay effect; pass the effects of the same jobs"
        )
    pairless = sorted(set(frame.loc[frame["n_packets"] > 1, "task_id"]) - set(pairs["task_id"]))
    if pairless:
        raise ValueError(f"task {pairless[0]!r} has no pairs; pass the interactions of the same jobs")
    sides = pd.concat([pairs.rename(columns={side: "packet_id"}) for side in ("first", "second")])
    bend = (sides["at_full"] - sides["at_empty"]).groupby([sides[key] for key in keys]).sum(skipna=False)
    explained = frame[keys].merge(bend.rename("bend").reset_index(), on=keys, how="left")["bend"] / CORRECTION
    explained = explained.mask(frame["n_packets"] == 1, 0.0)
    frame = frame.drop(columns="_merge").assign(
        difference=frame["rce"] - frame["shapley"],
        explained=explained,
        left=frame["rce"] - frame["shapley"] - explained,
        corrected=frame["rce"] - explained,
        sign_rce=_signs(frame["rce"], frame["rce"]),
        sign_shapley=_signs(frame["low"], frame["high"]),
    )
    return frame.assign(signs=_sign_words(frame["sign_rce"], frame["sign_shapley"]))


def rce_agreement(comparison: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Count how far RCE is from the Shapley value.

    Parameters
    ----------
    comparison : of `compare_rce`
    by : columns to split by

    Returns
    -------
    DataFrame with the `by` columns and ``packets`` (with both values), ``unknown`` (without), ``rank_correlation``
    (Spearman, pooled over packets), ``within_tasks`` (mean over the tasks where it is defined),
    ``corrected_correlation`` (pooled, of the corrected RCE), counts ``same``, ``opposite``, ``rce_zero``,
    ``shapley_zero`` and ``unresolved`` of the signs, ``mean_difference`` and ``mean_left`` (mean absolute values),
    ``explained_share``, 1 - sum of left^2 / sum of difference^2. NaN where undefined.
    """
    groups = comparison.groupby(list(by), sort=False, dropna=False) if by else [((), comparison)]
    rows = []
    for key, group in groups:
        known = group.dropna(subset=["rce", "shapley", "explained"])
        within = [_correlation(task, "rce") for _, task in known.groupby("task_id", sort=False)]
        within = [value for value in within if not math.isnan(value)]
        square = float((known["difference"] ** 2).sum())
        rows.append(
            {
                **dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True)),
                "packets": len(known),
                "unknown": len(group) - len(known),
                "rank_correlation": _correlation(known, "rce"),
                "within_tasks": float(np.mean(within)) if within else math.nan,
                "corrected_correlation": _correlation(known, "corrected"),
                **{word.replace(" ", "_"): int((known["signs"] == word).sum()) for word in SIGN_WORDS},
                "unresolved": int(known["signs"].isna().sum()),
                "mean_difference": known["difference"].abs().mean(),
                "mean_left": known["left"].abs().mean(),
                "explained_share": 1 - float((known["left"] ** 2).sum()) / square if square >= ZERO**2 else math.nan,
            }
        )
    return pd.DataFrame(rows)


def _largest(table: np.ndarray) -> np.ndarray:
    """Return the largest absolute second difference of every pair over all contexts, (n, n)."""
    _, n = game_table(table)
    largest = np.full((n, n), np.nan)
    for i in range(n):
        for j in range(i):
            others, _ = sets_without(n, 1 << i | 1 << j)
            largest[i, j] = largest[j, i] = np.abs(second_differences(table, others, i, j)).max()
    return largest


def _correlation(frame: pd.DataFrame, score: str) -> float:
    return rank_correlation(frame, score=score, label="shapley")


def _signs(low: pd.Series, high: pd.Series) -> pd.Series:
    """Return the sign that a whole interval has; null where it holds 0 and more, or is unknown."""
    sign = pd.Series(np.nan, index=low.index, dtype=float)
    sign[(low.abs() < ZERO) & (high.abs() < ZERO)] = 0.0
    sign[low >= ZERO] = 1.0
    sign[high <= -ZERO] = -1.0
    return sign


def _sign_words(rce: pd.Series, shapley: pd.Series) -> pd.Series:
    words = pd.Series(None, index=rce.index, dtype=object)
    words[rce == shapley] = "same"
    words[rce * shapley == -1] = "opposite"
    words[(rce == 0) & (shapley.abs() == 1)] = "rce zero"
    words[(shapley == 0) & (rce.abs() == 1)] = "shapley zero"
    return words


_PAIR_COLUMNS = [
    *("task_id", "first", "second", "first_type", "second_type", "same_message", "method"),
    *("at_empty", "at_full", "index", "largest", "kind"),
]
