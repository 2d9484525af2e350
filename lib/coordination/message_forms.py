"""The selector over forms of what was said: nothing, a part under a cap, or all of it.

Context
-------
Section 3.2 of the paper chooses among protocol actions at a step. Where messages are cut into packets, the same choice is there
for a whole question: ``skip`` sends nothing, ``compress`` the packets that some policy admits under a cap, ``raw`` all of them.
``escalate`` and ``refresh`` are not run, and what was not run is not offered (`lib.coordination.calibration.Judged.available`).

Intuition
---------
A receiver that answers a question in JSON opens every reply alike, so its first tokens say nothing of the answer. What says something
is how likely it finds its *own answer* once it has opened it: that reply exists for every form, needs one scoring each, and knows
nothing of what is right.

How to read the result
----------------------
`answer_surprisals` gives nats of the whole answer; a form's gain is how far they fall below those of ``skip``, never below 0.
`form_signals` has no outcome among its inputs. A probe of this kind is a reply in full, so `form_overhead` charges the replies of
all forms that are not sent; a selector that asks three times to answer once rarely pays, and the charge shows it.

Not covered: which packets a form holds, and what an answer is worth; both come from outside.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pandas as pd

from lib.coordination.actions import ACTIONS, SIGNALS, Action, need_columns
from lib.coordination.probes import NoLogProbabilities
from lib.models.receiver import Prompt, Receiver

FORMS = ("task_id", "regime", "action", "surprisal", "read", "written")
_LAST_TEXT = re.compile(r'^(.*":\s*")((?:[^"\\]|\\.)*")\s*\}\s*$', re.DOTALL)


def own_answer(reply: str) -> tuple[str, str] | None:
    """Return a JSON reply's text up to its last string, and that string with its closing quote; None where it ends otherwise.

    >>> own_answer('{"evidence":[],"answer":"tin"}')
    ('{"evidence":[],"answer":"', 'tin"')
    """
    found = _LAST_TEXT.match(reply)
    return (found[1], found[2]) if found else None


def answer_surprisals(receiver: Receiver, prompts: Sequence[Prompt], replies: Sequence[str]) -> list[float | None]:
    """Return how unlikely a receiver finds the answers that it gave itself, given the beginnings of its replies.

    Parameters
    ----------
    receiver : must implement `score`; asked once, for all prompts
    prompts, replies : what was asked, and the raw replies to it

    Returns
    -------
    list of nats, at least 0; None where a reply holds no answer

    Raises
    ------
    NoLogProbabilities
        If the receiver has none.
    ValueError
        If the numbers of prompts and replies differ.
    """
    if len(prompts) != len(replies):
        raise ValueError(f"{len(prompts)} prompts for {len(replies)} replies; each needs its own")
    parts = [own_answer(reply) for reply in replies]
    known = [place for place, part in enumerate(parts) if part is not None]
    options = [[part[0], part[0] + part[1]] for part in parts if part is not None]
    nats: list[float | None] = [None] * len(parts)
    if not known:
        return nats
    try:
        scores = receiver.score([prompts[place] for place in known], options)
    except (NotImplementedError, AttributeError) as problem:
        raise NoLogProbabilities(
            f"receiver {receiver.name!r} gives no log-probabilities; use a local model to probe forms"
        ) from problem
    for place, (opening, whole) in zip(known, scores.tolist(), strict=True):
        if math.isfinite(opening) and math.isfinite(whole):
            nats[place] = max(0.0, opening - whole)
    return nats


def form_signals(forms: pd.DataFrame) -> pd.DataFrame:
    """Return the parts of every action's value, for `lib.coordination.calibration` and `lib.coordination.crossfit`.

    Parameters
    ----------
    forms : columns `FORMS`, one row a task and action that was run: ``surprisal`` (nats, null where unknown) of the receiver's own
        answer, ``read`` and ``written`` tokens of that reply. No column for an outcome

    Returns
    -------
    DataFrame with the columns of `lib.coordination.actions.SIGNALS`, five rows a task; a task is a step and an instance. Gain is
    null for an action that was not run or not measured; cost is what is read, which is known beforehand. Tax and residual are
    0 until a table is put in

    Raises
    ------
    ValueError
        If a column is missing, an action is unknown or stands twice, or a task has no ``skip``.
    """
    _check(forms)
    rows = []
    for (regime, task), own in forms.groupby(["regime", "task_id"], sort=False):
        nats = {row["action"]: row["surprisal"] for row in own.to_dict("records")}
        read = {row["action"]: float(row["read"]) for row in own.to_dict("records")}
        if "skip" not in nats:
            raise ValueError(f"forms: task {task!r} has no skip; a gain is measured from it")
        for action in ACTIONS:
            gain = 0.0 if action == "skip" else _gain(nats["skip"], nats.get(action))
            rows.append((task, task, regime, 1, action, gain, 0.0, read.get(action, math.nan), 0.0))
    frame = pd.DataFrame(rows, columns=list(SIGNALS)).astype({"gain": float, "cost": float})
    return frame.assign(cost=frame["cost"].fillna(0.0))  # of what was not run; it has no gain and is never chosen


def form_overhead(forms: pd.DataFrame) -> dict[tuple[str, Action], float]:
    """Return what choosing a form costs beyond its own reply: the replies of all other forms of the task, in tokens; nan if unknown."""
    _check(forms)
    totals = (forms["read"].astype(float) + forms["written"].astype(float)).groupby(forms["task_id"]).transform("sum")
    own = forms["read"].astype(float) + forms["written"].astype(float)
    keys = zip(forms["task_id"], forms["action"], strict=True)
    return dict(zip(keys, (totals - own).tolist(), strict=True))


def _gain(without: float | None, given: float | None) -> float | None:
    if without is None or given is None or pd.isna(without) or pd.isna(given):
        return None
    return max(0.0, float(without) - float(given))


def _check(forms: pd.DataFrame) -> None:
    need_columns(forms, FORMS, "forms")
    unknown = sorted(set(forms["action"]) - set(ACTIONS))
    if unknown:
        raise ValueError(f"forms: unknown actions {unknown}; known: {', '.join(ACTIONS)}")
    twice = forms[forms.duplicated(["regime", "task_id", "action"])]
    if len(twice):
        raise ValueError(f"forms: task {twice['task_id'].iloc[0]!r} has {twice['action'].iloc[0]} twice; keep one")
