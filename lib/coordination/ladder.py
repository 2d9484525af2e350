"""A ladder of models: each writes messages at every step, and each reads the messages of all.

Context
-------
Sections 4.4 and 4.5 of the paper. A fixed-message replay has one sender and several receivers; a sender swap has one receiver and
several senders. Both are rows and columns of one square: senders by receivers, family by family.

Intuition
---------
The square is filled in two rounds with one model in memory at a time. First every sender writes, once, and its messages are stored whole.
Then every receiver answers alone and with each of the stored messages, all in one call: the arms of a step share their view
and their candidates.

How to read the result
----------------------
One `Record` a decision, with the names of sender and receiver. Messages are shown whole, so every receiver sees the same
text; the budget is what senders were told to keep to.

Not covered: budgets that cut (`lib.coordination.arms.replay_messages`); scores (`lib.coordination.scoring`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lib.coordination.arms import DECISION_TOKENS, replay_messages, run_arms
from lib.coordination.exchange import ArmName, Encoding, Mode, Parser, Record, Sent
from lib.coordination.sending import send_messages
from lib.coordination.together import in_one_call
from lib.models.receiver import Receiver
from lib.tasks.steps import Step

Families = Mapping[str, Sequence[Step]]
Written = Mapping[str, Mapping[str, Sent]]  # family -> step id -> message


def write_messages(
    sender: Receiver,
    families: Families,
    *,
    budget: int = 128,
    encoding: Encoding = "json",
    mode: Mode = "payload",
    constrained: bool = True,
    max_tokens: int | None = None,
) -> dict[str, dict[str, Sent]]:
    """Have one sender write a message at every step of every family; see `lib.coordination.sending.send_messages`.

    Returns
    -------
    dict, family -> step id -> Sent
    """

    def write(asked: Receiver) -> dict[str, dict[str, Sent]]:
        options: dict[str, Any] = {"mode": mode, "constrained": constrained, "max_tokens": max_tokens}
        return {name: send_messages(asked, steps, budget, encoding, **options) for name, steps in families.items()}

    return in_one_call(sender, write)


def read_messages(
    receiver: Receiver,
    families: Families,
    written: Mapping[str, Written],
    *,
    arms: Sequence[ArmName] = ("RO",),
    constrained: bool = True,
    parser: Parser = "robust",
    max_tokens: int = DECISION_TOKENS,
) -> list[Record]:
    """Have one receiver decide at every step, without a message and with the stored one of every sender.

    Parameters
    ----------
    written : sender -> what `write_messages` returned
    arms : those without a sender, ``RO`` and ``SF``
    constrained, parser, max_tokens : as in `lib.coordination.arms.run_arms`

    Returns
    -------
    list of Record: family by family, first `arms`, then sender by sender, steps in their order

    Raises
    ------
    ValueError
        If `arms` names MA, which is what `written` is for, or a step lacks a message.
    """
    if "MA" in arms:
        raise ValueError("arms: MA is read from `written`; name RO and SF here")

    def read(asked: Receiver) -> list[Record]:
        records: list[Record] = []
        for name, steps in families.items():
            settings: dict[str, Any] = {"constrained": constrained, "parser": parser, "max_tokens": max_tokens}
            records += run_arms(steps, receiver=asked, arms=arms, **settings)
            for messages in written.values():
                records += replay_messages([asked], steps, messages[name], **settings)
        return records

    return in_one_call(receiver, read)
