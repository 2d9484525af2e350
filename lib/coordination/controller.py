"""A controller by thresholds, for receivers without log-probabilities: skip, rewrite, escalate or send.

Context
-------
Section 3.2 and appendix C.6 of the paper. The released rows of the selector on two benchmarks came from such thresholds rather
than from estimated values. A regime that does well without a message is skipped before any sender is called. Elsewhere a
message that was cut, is no JSON or nearly fills its budget is rewritten once; where the receiver's replies have mostly
been unreadable so far, a stronger one reads the message; otherwise it is sent.

Intuition
---------
Every threshold looks at something that is known before the decision: the regime's record, the message's form and length,
and the replies so far. Nothing is learned and nothing is probed.

How to read the result
----------------------
The running rate counts the weaker receiver's earlier replies, by step index, over all instances: steps of one index go
together and cannot see each other. It starts with nothing known, which counts as no failure. If it is high, later steps
escalate, so it can only fall again where steps are skipped or rewritten.

Not covered: estimated values (`lib.coordination.selector`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from lib.coordination.actions import ToolTable
from lib.coordination.arms import ArmName, replay_messages, run_arms
from lib.coordination.budget import Delivered, deliver
from lib.coordination.exchange import Record, Sent
from lib.coordination.instructed import REWRITE, Instructed
from lib.coordination.sending import check_distinct, known_total, send_messages
from lib.coordination.survey import Settings
from lib.models.receiver import Receiver
from lib.tasks.steps import Step

Verdict = Literal["SKIP", "REWRITE", "ESCALATE", "SEND"]
NEARLY_FULL = 0.95  # share of the budget above which a message is rewritten (paper's public code)
MOSTLY_UNREADABLE = 0.60  # rate of unreadable replies above which a stronger receiver reads (paper's public code)


class Controlled(msgspec.Struct, frozen=True):
    """One step under the controller.

    Attributes
    ----------
    failure_rate : of the weaker receiver's earlier replies; None where there were none
    sender_calls, sender_tokens : of all messages written for the step; tokens are None where a model does not tell
    decision_tokens : those and the reply
    """

    step_id: str
    verdict: Verdict
    failure_rate: float | None
    sender_calls: int
    sender_tokens: int | None
    decision_tokens: int | None
    record: Record


def verdict_of(message: Delivered, budget: int, failure_rate: float | None, *, has_strong: bool) -> Verdict:
    """Return what to do with a message; the first rule that applies decides.

    >>> cut = Delivered('{"action_type":"ed', 4, 9, True)
    >>> verdict_of(cut, 128, None, has_strong=True), verdict_of(Delivered("{}", 1, 1, False), 128, 0.7, has_strong=True)
    ('REWRITE', 'ESCALATE')
    """
    if not _is_object(message.text) or message.tokens > NEARLY_FULL * budget:
        return "REWRITE"
    if has_strong and failure_rate is not None and failure_rate > MOSTLY_UNREADABLE:
        return "ESCALATE"
    return "SEND"


def run_controller(
    steps: Sequence[Step],
    *,
    receiver: Receiver,
    sender: Receiver,
    strong: Receiver | None = None,
    table: ToolTable | None = None,
    settings: Settings | None = None,
) -> list[Controlled]:
    """Run the controller over the steps of one family.

    Parameters
    ----------
    table : its accuracies without a message are what the gate reads; none means no gate
    settings : the encoding must be ``json``

    Returns
    -------
    list of Controlled, in the order of `steps`. The sender is called at most twice, once for all messages and once for all
    that are rewritten; receivers once a step index, verdict and kind of input

    Raises
    ------
    ValueError
        For another encoding than JSON, of which the rules could not tell a broken message.
    """
    table, settings = table or ToolTable(), settings or Settings()
    if settings.encoding != "json":
        raise ValueError(f"encoding: the controller's rules read JSON, not {settings.encoding!r}")
    check_distinct(steps)
    open_steps = [step for step in steps if not table.is_gated(step.family, settings.gate)]
    first = _write(sender, open_steps, settings)
    shown = {step.id: deliver(first[step.id].text, settings.budget, receiver) for step in open_steps}
    broken = [
        step for step in open_steps if verdict_of(shown[step.id], settings.budget, None, has_strong=False) == "REWRITE"
    ]
    again = _write(Instructed(sender, REWRITE), broken, settings)
    messages = {**first, **again}
    done: dict[str, Controlled] = {}
    unreadable: list[bool] = []
    for index in sorted({step.index for step in steps}):
        rate = sum(unreadable) / len(unreadable) if unreadable else None
        wave = [step for step in steps if step.index == index]
        verdicts: dict[str, Verdict] = {
            step.id: verdict_of(shown[step.id], settings.budget, rate, has_strong=strong is not None)
            if step.id in shown
            else "SKIP"
            for step in wave
        }
        for record in _ask(wave, verdicts, messages, receiver, strong, settings):
            verdict = verdicts[record.step_id]
            written = [one[record.step_id] for one in (first, again) if record.step_id in one]
            spent = known_total([count for sent in written for count in (sent.input_tokens, sent.output_tokens)])
            done[record.step_id] = Controlled(
                step_id=record.step_id,
                verdict=verdict,
                failure_rate=rate,
                sender_calls=sum(sent.tries for sent in written),
                sender_tokens=spent,
                decision_tokens=known_total([spent, record.receiver_input_tokens, record.receiver_output_tokens]),
                record=record,
            )
            if verdict != "ESCALATE" and record.parse_valid is not None:
                unreadable.append(not record.parse_valid)
    return [done[step.id] for step in steps]


def _write(sender: Receiver, steps: Sequence[Step], settings: Settings) -> dict[str, Sent]:
    if not steps:
        return {}
    budget, mode, constrained = settings.budget, settings.mode, settings.constrained
    return send_messages(sender, steps, budget, settings.encoding, mode=mode, constrained=constrained)


def _ask(
    steps: Sequence[Step],
    verdicts: Mapping[str, Verdict],
    messages: Mapping[str, Sent],
    receiver: Receiver,
    strong: Receiver | None,
    settings: Settings,
) -> list[Record]:
    """Return the records of steps of one index: skipped ones, those of the receiver, those of the stronger one."""
    constrained, parser, max_tokens = settings.constrained, settings.parser, settings.max_tokens
    skipped = [step for step in steps if verdicts[step.id] == "SKIP"]
    escalated = [step for step in steps if verdicts[step.id] == "ESCALATE"]
    sent = [step for step in steps if step not in skipped and step not in escalated]
    arm: ArmName = "RO"
    records = run_arms(
        skipped, receiver=receiver, arms=(arm,), constrained=constrained, parser=parser, max_tokens=max_tokens
    )
    for reader, group in ((receiver, sent), (strong, escalated)):
        if reader is not None and group:
            records += replay_messages(
                [reader],
                group,
                messages,
                budgets=[settings.budget],
                counted_by=receiver,
                constrained=constrained,
                parser=parser,
                max_tokens=max_tokens,
            )
    return records


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
