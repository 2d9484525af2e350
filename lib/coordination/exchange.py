"""What passes between a sender and a receiver, and the record of one decision.

Context
-------
Sections 4.1 and C.1 of the paper, with the field names of its released step records. A sender writes a `Payload`, a
`Sent` is that payload as text in some encoding, and a `Record` is what one receiver made of it at one step.

Intuition
---------
Everything that was shown, said and paid at a step stands in one flat record, so that any table can be made again from
records alone, without a model. A record has no field for what is right: scores are added later, by `scoring`.

How to read the result
----------------------
`message_rates` belongs beside every comparison of arms: a message that came out empty, was cut, or a reply that could
not be read is no evidence about communication. A rate over nothing is null.

Not covered: scores (`lib.coordination.scoring`); latency, which a share of a batch's seconds is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import pandas as pd

ArmName = Literal["RO", "SF", "MA"]
ARMS: tuple[ArmName, ...] = ("RO", "SF", "MA")
Encoding = Literal["json", "header", "prose", "bullets", "bullets_json"]
ENCODINGS: tuple[Encoding, ...] = ("json", "header", "prose", "bullets", "bullets_json")
Mode = Literal["payload", "direct"]
Parser = Literal["robust", "permissive"]

_NULLABLE = {
    **dict.fromkeys(("budget_tokens", "message_tokens", "message_full_tokens"), "Int64"),
    **dict.fromkeys(("receiver_input_tokens", "receiver_output_tokens"), "Int64"),
    **dict.fromkeys(("total_input_tokens", "total_output_tokens", "seed", "step_t"), "Int64"),
    **dict.fromkeys(("message_truncated", "message_empty", "message_capped", "message_from_payload"), "boolean"),
    **dict.fromkeys(("answered", "parse_valid"), "boolean"),
}
_RATE_GROUPS = ("benchmark", "sender_model", "receiver_model", "arm", "budget_tokens", "encoding_format")


class Payload(msgspec.Struct, frozen=True):
    """What a sender has to say, whatever its encoding. An empty field says nothing and is not shown."""

    action_type: str = ""
    target_artifact: str = ""
    rationale: str = ""
    context: str = ""
    constraints: str = ""


class Decision(msgspec.Struct, frozen=True):
    """A reply as read: names as the receiver wrote them.

    Parameters
    ----------
    artifact, action : None where the reply names none
    valid : both could be read
    raw : the reply
    reason : why it is not valid, or how it was mended; empty where it was read as it stands
    """

    artifact: str | None
    action: str | None
    valid: bool
    raw: str
    reason: str = ""


class Sent(msgspec.Struct, frozen=True):
    """One stored message, whole: what a budget leaves of it is settled when it is delivered.

    Parameters
    ----------
    text : the message in its encoding; empty where the sender wrote nothing or failed
    mode : ``payload`` (written once as JSON, then rendered: content is the same in every encoding) or ``direct`` (written
        in the encoding itself: content is not held fixed)
    payload : None in mode ``direct``, and where nothing could be read; then `text` is the raw reply
    raw : the sender's last reply
    tries : calls made; 2 where a first reply could not be read
    finish, error : of the last call; ``length`` means that the sender's own cap ended the message
    input_tokens, output_tokens : over all tries, in the sender's tokens; None where unknown
    """

    step_id: str
    sender_model: str
    encoding: Encoding
    mode: Mode
    text: str
    payload: Payload | None
    raw: str
    tries: int
    finish: str
    error: str | None
    input_tokens: int | None
    output_tokens: int | None


class Record(msgspec.Struct, frozen=True):
    """One decision of one receiver. Fields of the message are null in arms without one.

    Parameters
    ----------
    budget_tokens : cap of the message, in the tokens it was counted with; null where there was none
    message_raw, message_shown : the message as encoded, and what the budget left of it
    message_tokens, message_full_tokens : their lengths
    message_truncated : the budget cut something; message_capped : the sender's own token cap did, before that
    message_from_payload : rendered from a payload that could be read; false for raw text
    receiver_input_key : name of the exact input; null where the receiver was not asked, since the sender failed
    answered : the call succeeded; parse_valid is null where it did not
    total_input_tokens, total_output_tokens : receiver and, where it was called, sender; null where either is unknown
    """

    run_id: str
    benchmark: str
    arm: ArmName
    sender_model: str | None
    receiver_model: str
    budget_tokens: int | None
    encoding_format: Encoding | None
    seed: int
    step_id: str
    instance_id: str
    step_t: int
    message_raw: str | None
    message_shown: str | None
    message_tokens: int | None
    message_full_tokens: int | None
    message_truncated: bool | None
    message_empty: bool | None
    message_capped: bool | None
    message_from_payload: bool | None
    receiver_input_key: str | None
    receiver_input_tokens: int | None
    receiver_output: str
    receiver_output_tokens: int | None
    finish: str
    answered: bool
    error: str | None
    parser: Parser
    action_type_pred: str | None
    artifact_pred: str | None
    parse_valid: bool | None
    parse_reason: str
    total_input_tokens: int | None
    total_output_tokens: int | None


def records_frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return records as a frame: one row a record, one column a field, nulls kept as nulls."""
    rows: list[dict[str, Any]] = [msgspec.structs.asdict(record) for record in records]
    # Columns start as objects: pandas would turn the nulls of text into NaN.
    return pd.DataFrame(rows, columns=list(Record.__struct_fields__), dtype=object).astype(_NULLABLE)


def message_rates(frame: pd.DataFrame, by: Sequence[str] = _RATE_GROUPS) -> pd.DataFrame:
    """Return how often messages were empty or cut and replies unreadable, one row a group.

    Parameters
    ----------
    frame : from `records_frame`, or that with scores

    Returns
    -------
    DataFrame with the columns of `by`, ``steps``, ``failed`` (calls without an answer), and the shares ``empty``,
    ``truncated``, ``capped``, ``raw_text`` (of messages) and ``unreadable`` (of answered calls); a share of nothing is null
    """
    rows = []
    for key, group in frame.groupby(list(by), dropna=False, sort=True):
        rows.append(
            {
                **dict(zip(by, key, strict=True)),
                "steps": len(group),
                "failed": int((~group["answered"]).sum()),
                "empty": _share(group["message_empty"]),
                "truncated": _share(group["message_truncated"]),
                "capped": _share(group["message_capped"]),
                "raw_text": _share(~group["message_from_payload"]),
                "unreadable": _share(~group["parse_valid"]),
            }
        )
    names = ("steps", "failed", "empty", "truncated", "capped", "raw_text", "unreadable")
    shares = dict.fromkeys(names[2:], "Float64")
    return pd.DataFrame(rows, columns=[*by, *names]).astype(shares)


def _share(flags: pd.Series) -> float | None:
    """Return the share of true among what is known."""
    known = flags.dropna()
    return float(known.mean()) if len(known) else None
