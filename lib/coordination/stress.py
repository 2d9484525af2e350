"""Stored messages under stress: cut against whole, kept against lost fields, named against described targets.

Context
-------
Section C.2 of the paper: the budget sweep, messages that reached their cap (Table 11) and strict recoding (Table 13). What is
shown varies, what was written does not.

Intuition
---------
A budget leaves short messages as they are, so a sweep over all steps mixes those it touched with those it could not touch.
Each row of a sweep is therefore paired with the same receiver's row for the whole message; where nothing was cut the two are the
same prompt.

How to read the result
----------------------
Pairs have ``left``, ``right`` and ``delta`` as in `lib.coordination.keys.paired`, to be summed up by
`lib.evaluation.paired_gain.gain_table`. Recoding is measured on steps that were right with the name, so ``right`` is 1 throughout.

Not covered: asking receivers (`lib.coordination.arms`), recoding itself (`lib.coordination.recode`).
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lib.coordination.exchange import Sent
from lib.coordination.keys import KEY
from lib.coordination.parse import parse_decision
from lib.coordination.recode import LeakError, Recoding, leaked_names, recode_messages
from lib.models.receiver import Receiver
from lib.tasks.steps import StepSet

_READER = ["receiver_model", "sender_model", *KEY]


def message_lengths(messages: Mapping[str, Mapping[str, Sent]], counter: Receiver) -> pd.DataFrame:
    """Return how long stored messages are and how they ended, one row a family.

    Returns
    -------
    DataFrame: ``benchmark``, ``messages``, tokens ``mean``, ``median``, ``longest``; shares ``empty``, ``capped`` (by the sender's
    own cap), ``raw_text`` (no payload could be read) and ``asked_twice``
    """
    rows = []
    for family, sent in messages.items():
        every = list(sent.values())
        tokens = pd.Series(counter.count_tokens([one.text for one in every]), dtype=float)
        shares = (
            pd.Series([not one.text.strip() for one in every]).mean(),
            pd.Series([one.finish == "length" for one in every]).mean(),
            pd.Series([one.payload is None for one in every]).mean(),
            pd.Series([one.tries > 1 for one in every]).mean(),
        )
        rows.append((family, len(every), tokens.mean(), tokens.median(), int(tokens.max()), *shares))
    names = ["benchmark", "messages", "mean", "median", "longest", "empty", "capped", "raw_text", "asked_twice"]
    return pd.DataFrame(rows, columns=names)


def with_whole(swept: pd.DataFrame, value: str = "hit_joint") -> pd.DataFrame:
    """Return each row of a budget sweep beside the same receiver's row for the whole message.

    Parameters
    ----------
    swept : scored records of one encoding; rows without a budget show the whole message

    Returns
    -------
    DataFrame: the columns of `swept`, ``left`` (its `value`), ``right`` (that of the whole message) and ``delta``; rows of whole messages
    themselves are left out

    Raises
    ------
    ValueError
        If a row has no whole counterpart, or a counterpart stands twice.
    """
    whole = swept.loc[swept["budget_tokens"].isna(), [*_READER, value]].rename(columns={value: "right"})
    rows = swept[swept["budget_tokens"].notna()].copy()
    joined = rows.merge(whole, on=_READER, how="left", validate="many_to_one", indicator=True)
    if (joined["_merge"] == "left_only").any():
        raise ValueError("the sweep has rows whose whole message was not read; replay with budgets [..., None]")
    left, right = joined[value].astype("Float64"), joined["right"].astype("Float64")
    return joined.drop(columns="_merge").assign(left=left, right=right, delta=left - right)


def kept_and_followed(
    swept: pd.DataFrame, messages: Mapping[str, Mapping[str, Sent]], families: Mapping[str, StepSet]
) -> pd.DataFrame:
    """Count, for messages that a budget cut, whether both fields were kept and whether the receiver took both.

    Parameters
    ----------
    swept : scored records of a sweep; `messages` behind them by family and step id, `families` for the candidates

    Returns
    -------
    DataFrame, one row a family, receiver, encoding and budget that cut something: counts ``cut`` (of messages with a
    payload), ``kept_both`` (a permissive reader finds action and artifact of the payload in what is shown),
    ``followed_both`` (of these, the receiver's decision is the payload's); ``hit_kept`` and ``hit_lost``, joint
    accuracy with and without both fields (null without such rows)
    """
    steps = {(name, step.id): step for name, one in families.items() for step in one.steps}
    rows = []
    cut = swept[swept["message_truncated"].fillna(False) & swept["answered"]]
    for record in cut.to_dict("records"):
        place = (record["benchmark"], record["step_id"])
        payload = messages[place[0]][place[1]].payload
        if payload is None:
            continue
        said = (payload.target_artifact, payload.action_type)
        step = steps[place]
        shown = parse_decision(record["message_shown"], step.actions, step.artifacts, "permissive")
        kept = (shown.artifact, shown.action) == said
        followed = kept and (record["artifact_pred"], record["action_type_pred"]) == said
        group = (place[0], record["receiver_model"], record["encoding_format"], record["budget_tokens"])
        rows.append((*group, kept, followed, record["hit_joint"]))
    names = ["benchmark", "receiver_model", "encoding_format", "budget_tokens", "kept", "followed", "hit"]
    told = pd.DataFrame(rows, columns=names)
    counts = []
    for key, own in told.groupby(names[:4], sort=True):
        hits = [own.loc[own["kept"] == kept, "hit"].astype(float).mean() for kept in (True, False)]
        counts.append((*key, len(own), int(own["kept"].sum()), int(own["followed"].sum()), *hits))
    columns = [*names[:4], "cut", "kept_both", "followed_both", "hit_kept", "hit_lost"]
    return pd.DataFrame(counts, columns=columns)


def recoded(messages: Mapping[str, Sent]) -> Recoding:
    """Return the messages without the names of their targets; those whose sender failed are refused."""
    sound = {step_id: sent for step_id, sent in messages.items() if sent.error is None}
    found = recode_messages(sound)
    failed = dict.fromkeys(set(messages) - set(sound), "the sender failed")
    return Recoding(found.messages, {**found.refused, **failed})


def assert_no_leak(scored: pd.DataFrame, originals: Mapping[str, Mapping[str, Sent]]) -> None:
    """Check that no shown message holds the name that its original recommended, or the name's last part.

    Raises
    ------
    LeakError
        Naming the step.
    """
    for record in scored.to_dict("records"):
        payload = originals[record["benchmark"]][record["step_id"]].payload
        if payload is None:
            raise LeakError(f"step {record['step_id']!r}: its original has no payload, so its name is not known")
        leaked = leaked_names(record["message_shown"], payload.target_artifact)
        if leaked:
            raise LeakError(f"step {record['step_id']!r}: the recoded message shows {leaked[0]!r}")


def recoding_drop(named: pd.DataFrame, described: pd.DataFrame, value: str = "hit_joint") -> pd.DataFrame:
    """Return pairs of described and named messages, for the steps that a receiver hit with the name.

    Parameters
    ----------
    named, described : scored records of whole messages, before and after recoding

    Returns
    -------
    DataFrame: `KEY`, ``receiver_model``, ``sender_model``, ``left`` (described), ``right`` (named, 1 throughout), ``delta``
    """
    columns = [*_READER, value]
    joined = described[columns].merge(named[columns], on=_READER, suffixes=("_left", "_right"), validate="one_to_one")
    sides = {side: joined[f"{value}_{side}"].astype("Float64") for side in ("left", "right")}
    table = joined[_READER].assign(**sides, delta=sides["left"] - sides["right"])
    return table[table["right"].eq(1).fillna(False)].reset_index(drop=True)
