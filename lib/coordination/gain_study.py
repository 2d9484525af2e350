"""Ask all arms of a comparison once: receivers, senders and step families crossed, each message written a single time.

Context
-------
Sections 4.1 to 4.3 of the paper compare RO, SF and MA for a receiver and a sender on six benchmarks. Here several receivers
read the *same* messages, so that what differs between them is theirs.

Intuition
---------
A sender is asked once a family, whoever reads. A receiver is asked once a family without a message, once with the full
context, and once with each sender's messages. Budgets are counted in the tokens of one receiver for all, so that the
beginning of a message that a budget leaves is the same for all of them.

How to read the result
----------------------
`Asked.records` is flat; `lib.coordination.scoring` adds what is right. `Asked.messages` are the messages whole, to be
replayed under other budgets, in other encodings or without the names of their targets.

Not covered: intervals and tests (`lib.evaluation`); who may be compared (`lib.coordination.contrasts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lib.coordination.arms import DECISION_TOKENS, replay_messages, run_arms
from lib.coordination.exchange import Encoding, Mode, Parser, Record, Sent
from lib.coordination.sending import send_messages
from lib.models.receiver import Receiver
from lib.tasks.steps import Step


class Asked(NamedTuple):
    """Records of all arms, and the messages behind them by (family, sender), then by step id."""

    records: list[Record]
    messages: dict[tuple[str, str], dict[str, Sent]]


def ask_arms(
    families: Mapping[str, Sequence[Step]],
    receivers: Sequence[Receiver],
    senders: Sequence[Receiver],
    *,
    budget: int = 128,
    encoding: Encoding = "json",
    mode: Mode = "payload",
    constrained: bool = True,
    parser: Parser = "robust",
    max_tokens: int = DECISION_TOKENS,
    seed: int = 0,
) -> Asked:
    """Run RO and SF of every receiver, and MA of every receiver with every sender's messages.

    Parameters
    ----------
    families : family to its steps; gold is no part of a step
    receivers : at least one; the first one's tokens count the budget
    senders : as in `lib.coordination.sending.send_messages`; a sender may be one of the receivers (the paper's matched sender)
    budget, encoding, mode, constrained, parser, max_tokens, seed : as in `lib.coordination.arms.run_arms`

    Raises
    ------
    ValueError
        If two receivers or two senders share a name, or there is no receiver.
    """
    for what, models in (("receivers", receivers), ("senders", senders)):
        names = [model.name for model in models]
        if len(set(names)) != len(names):
            raise ValueError(f"{what}: names must differ to tell their records apart, not {names}")
    if not receivers:
        raise ValueError("receivers: name at least one; its tokens count the budget")
    messages = write_all(families, senders, budget=budget, encoding=encoding, mode=mode, constrained=constrained)
    reading = {"constrained": constrained, "parser": parser, "max_tokens": max_tokens, "seed": seed}
    records: list[Record] = []
    for family, steps in families.items():
        for receiver in receivers:
            records += run_arms(steps, receiver=receiver, arms=("RO", "SF"), **reading)  # type: ignore[arg-type]
        for sender in senders:
            sent = messages[family, sender.name]
            shown = {"budgets": [budget], "counted_by": receivers[0]}
            records += replay_messages(receivers, steps, sent, **shown, **reading)  # type: ignore[arg-type]
    return Asked(records, messages)


def write_all(
    families: Mapping[str, Sequence[Step]],
    senders: Sequence[Receiver],
    *,
    budget: int = 128,
    encoding: Encoding = "json",
    mode: Mode = "payload",
    constrained: bool = True,
) -> dict[tuple[str, str], dict[str, Sent]]:
    """Return every sender's messages for every family: (family, sender) to step id to Sent."""
    form = {"mode": mode, "constrained": constrained}
    return {
        (family, sender.name): send_messages(sender, steps, budget, encoding, **form)  # type: ignore[arg-type]
        for family, steps in families.items()
        for sender in senders
    }
