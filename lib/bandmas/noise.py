"""The receiver's own noise: ask the unmodified contexts again.

Context
-------
A replay effect is a difference of two answers. Greedy decoding promises equal answers to equal prompts, but batching
in low precision does not keep it: the same prompt in other company can round differently and answer differently.

Intuition
---------
Nothing is changed between the two askings but the batch mix, so whatever changes in the answers is noise.

How to read the result
----------------------
The flip rate of utilities is the share of contexts whose utility moved by itself. Effects of that frequency and size
prove nothing. In float32 on one code path it should be 0; in bfloat16 it is what it is, and stands in every replay
table.

Not covered: noise of sampling at a temperature above 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import pandas as pd

from lib.bandmas.replay import (
    EMPTY,
    FULL,
    ZERO,
    Job,
    Outcome,
    Render,
    Utility,
    check_jobs,
    outcome_of,
    outcome_table,
)
from lib.models.receiver import Prompt, Receiver
from lib.seeds import hash_order

_PAIR_COLUMNS = [
    *("task_id", "context", "raw_first", "raw_second", "same_text"),
    *("utility_first", "utility_second", "same_utility"),
]


class FlipRate(msgspec.Struct, frozen=True):
    """Share of unmodified contexts whose reply changed when asked again; None where nothing was asked twice.

    Parameters
    ----------
    text : share with another raw text
    utility : share with another utility
    asked : contexts with an answer both times
    failed : contexts without one
    """

    text: float | None
    utility: float | None
    asked: int
    failed: int


def aa_control(
    receiver: Receiver,
    jobs: Sequence[Job],
    utility: Utility,
    render: Render,
    allowed_ids: Collection[str],
    *,
    first: pd.DataFrame | None = None,
    separate_store: bool = False,
    group: int = 5,
    max_tokens: int = 256,
) -> pd.DataFrame:
    """Ask the unmodified Full and Empty contexts again through another batch mix.

    The second time the prompts come in hash order, in calls of `group` prompts without the other contexts, so every
    prompt is batched with other neighbours than before. What changes then is the receiver's noise.

    Parameters
    ----------
    receiver : the *bare* receiver. A store in front of it would answer the second time from memory and report no noise.
    first : outcomes of `replay_outcomes` for these jobs; without it the contexts are first asked in job order in one
        call
    separate_store : says that a stored receiver keeps these second answers in a store of their own; needs `first`
    group : prompts a call the second time

    Returns
    -------
    DataFrame, one row a task and context: ``task_id``, ``context``, ``raw_first``, ``raw_second``, ``same_text``,
    ``utility_first``, ``utility_second``, ``same_utility``. Where a call failed the two flags are null.

    Raises
    ------
    ValueError
        If a stored receiver is passed without `separate_store`.
    LeakError
        As `replay_outcomes`.
    """
    check_jobs(jobs, allowed_ids)
    if (
        hasattr(receiver, "store")
        and not getattr(receiver, "no_cache", False)
        and not (separate_store and first is not None)
    ):
        raise ValueError(
            "aa_control needs the bare receiver: a store would answer the second time from memory; pass the receiver inside it, "
            "or `first` and separate_store=True with a store of its own"
        )
    if group < 1:
        raise ValueError(f"group must be at least 1 prompt, not {group}")
    asked: dict[tuple[str, str], Prompt] = {}
    for task, packets in jobs:
        asked[task.id, FULL] = render(task, sorted(packets, key=lambda packet: packet.packet_id))
        asked[task.id, EMPTY] = render(task, [])
    before = _first_outcomes(receiver, asked, utility, first, max_tokens)
    order: list[tuple[str, str]] = hash_order(asked, "aa-control")
    after: dict[tuple[str, str], Outcome] = {}
    for start in range(0, len(order), group):
        keys = order[start : start + group]
        replies = receiver.reply([asked[key] for key in keys], max_tokens=max_tokens)
        after.update({key: outcome_of(key[0], reply, utility) for key, reply in zip(keys, replies, strict=True)})
    return outcome_table([_pair(key, before[key], after[key]) for key in asked], _PAIR_COLUMNS)


def flip_rate(control: pd.DataFrame) -> FlipRate:
    """Return the share of contexts of `aa_control` whose text, and whose utility, changed."""
    flags = control.dropna(subset=["same_text", "same_utility"])
    failed = len(control) - len(flags)
    if flags.empty:
        return FlipRate(None, None, 0, failed)
    changed = {name: float((~flags[f"same_{name}"].astype(bool)).mean()) for name in ("text", "utility")}
    return FlipRate(changed["text"], changed["utility"], len(flags), failed)


def _first_outcomes(
    receiver: Receiver,
    asked: Mapping[tuple[str, str], Prompt],
    utility: Utility,
    first: pd.DataFrame | None,
    max_tokens: int,
) -> dict[tuple[str, str], Outcome]:
    if first is None:
        replies = receiver.reply(list(asked.values()), max_tokens=max_tokens) if asked else []
        return {key: outcome_of(key[0], reply, utility) for key, reply in zip(asked, replies, strict=True)}
    known: dict[tuple[str, str], Outcome] = {
        (row["task_id"], name): row for row in first.to_dict("records") for name in row["contexts"]
    }
    for key, prompt in asked.items():
        # The control is only one if both answers are to the same prompt.
        if key not in known or known[key]["prompt_key"] != receiver.prompt_key(prompt):
            raise ValueError(
                f"first: no outcome of task {key[0]!r}, context {key[1]!r}, with this prompt; pass the outcomes of these jobs"
            )
    return known


def _pair(key: tuple[str, str], before: Outcome, after: Outcome) -> dict[str, Any]:
    failed = "error" in (before["finish"], after["finish"])
    utilities = [float("nan") if pd.isna(side["utility"]) else float(side["utility"]) for side in (before, after)]
    return {
        "task_id": key[0],
        "context": key[1],
        "raw_first": before["raw"],
        "raw_second": after["raw"],
        "same_text": None if failed else before["raw"] == after["raw"],
        "utility_first": utilities[0],
        "utility_second": utilities[1],
        "same_utility": None if failed else abs(utilities[0] - utilities[1]) < ZERO,
    }
