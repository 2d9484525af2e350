"""Ask receivers for decisions: the arms, and the replay of stored messages.

Context
-------
Sections 4.1 and 4.4 of the paper. RO: local view alone. SF: one agent sees everything. MA: a sender that sees everything
writes a message, and a receiver decides with its local view and that message. In a fixed-message replay messages are
written once and read by several receivers, so what differs is the receivers' own.

Intuition
---------
A message is written once and stored whole. Encodings, budgets, recodings and receivers are then variations of what is
delivered, and only receivers are asked again.

How to read the result
----------------------
One `Record` a decision. A sender whose call failed sent nothing: its receivers are not asked, and the record says why.
Tokens of a stored message are charged to every record that used it, as if it had been written for it.

Nothing here can read what is right: every function takes a `Step`, and gold is no part of one.

Not covered: choosing among arms (a selector's work); histories, which a loader writes into the local view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from lib.coordination.budget import Delivered, deliver
from lib.coordination.exchange import ARMS, ArmName, Decision, Encoding, Mode, Parser, Record, Sent
from lib.coordination.parse import parse_decision, storable_text
from lib.coordination.prompts import Shown, receiver_prompt
from lib.coordination.sending import check_distinct, failed, known_total, reply_all, send_messages, silent
from lib.models.receiver import Receiver, Reply
from lib.seeds import digest
from lib.tasks.steps import Step

DECISION_TOKENS = 128
_NOTHING_SENT: dict[str, Any] = dict.fromkeys(
    (
        *("sender_model", "budget_tokens", "encoding_format", "message_raw", "message_shown", "message_tokens"),
        *("message_full_tokens", "message_truncated", "message_empty", "message_capped", "message_from_payload"),
    )
)


class Exposure(NamedTuple):
    """What one receiver is shown at one step."""

    step: Step
    shown: Shown
    text: str = ""


class Answer(NamedTuple):
    """One reply, as read; `decision` is None where the call failed, `key` where none was made."""

    reply: Reply
    decision: Decision | None
    key: str | None


def ask_receiver(
    receiver: Receiver,
    exposures: Sequence[Exposure],
    *,
    constrained: bool = True,
    parser: Parser = "robust",
    max_tokens: int = DECISION_TOKENS,
) -> list[Answer]:
    """Ask a receiver for one decision an exposure, all in one call."""
    prompts = [receiver_prompt(*exposure, constrained=constrained) for exposure in exposures]
    answers = []
    for exposure, prompt, reply in zip(exposures, prompts, reply_all(receiver, prompts, max_tokens), strict=True):
        step, text = exposure.step, storable_text(reply.text)
        decision = None if failed(reply) else parse_decision(text, step.actions, step.artifacts, parser)
        answers.append(Answer(reply, decision, receiver.prompt_key(prompt)))
    return answers


def run_arms(
    steps: Sequence[Step],
    *,
    receiver: Receiver,
    sender: Receiver | None = None,
    arms: Sequence[ArmName] = ARMS,
    budget: int = 128,
    encoding: Encoding = "json",
    mode: Mode = "payload",
    constrained: bool = True,
    parser: Parser = "robust",
    max_tokens: int = DECISION_TOKENS,
    run_id: str | None = None,
    seed: int = 0,
) -> list[Record]:
    """Run arms over steps; the prompts of an arm go to the receiver in one call.

    Parameters
    ----------
    sender : None is the receiver itself, the paper's matched sender
    budget : of the message, in the receiver's tokens; 0 is an empty message, for which no sender is asked
    encoding, mode, constrained : as in `send_messages`; `constrained` also binds the receiver's reply
    parser, max_tokens : of the receiver's reply
    run_id : None names the run by its parts
    seed : written to the records; decoding is greedy

    Returns
    -------
    list of Record: arm by arm in the order of `arms`, steps in their order

    Raises
    ------
    ValueError
        For an unknown arm or a step given twice.
    """
    unknown = [arm for arm in arms if arm not in ARMS]
    if unknown:
        raise ValueError(f"arm {unknown[0]!r} is not known; choose among {', '.join(ARMS)}")
    check_distinct(steps)
    sender = sender or receiver
    settings = (budget, encoding, mode, constrained, parser, max_tokens, seed)
    run_id = run_id or digest(receiver.fingerprint, sender.fingerprint, settings, [step.id for step in steps])[:12]
    desk = _Desk(receiver, run_id, seed, constrained, parser, max_tokens)
    records: list[Record] = []
    for arm in dict.fromkeys(arms):
        if arm != "MA":
            records += desk.without_message(arm, steps)
            continue
        if budget:
            messages = send_messages(sender, steps, budget, encoding, mode=mode, constrained=constrained)
        else:
            messages = {step.id: silent(sender.name, step, encoding, mode) for step in steps}
        records += desk.with_messages(steps, messages, [budget], receiver)
    return records


def replay_messages(
    receivers: Sequence[Receiver],
    steps: Sequence[Step],
    messages: Mapping[str, Sent],
    *,
    budgets: Sequence[int | None] = (None,),
    counted_by: Receiver | None = None,
    constrained: bool = True,
    parser: Parser = "robust",
    max_tokens: int = DECISION_TOKENS,
    run_id: str | None = None,
    seed: int = 0,
) -> list[Record]:
    """Show stored messages to several receivers, under several budgets; no sender is asked, each receiver in one call.

    Parameters
    ----------
    messages : step id -> Sent, for every step
    budgets : None shows messages whole
    counted_by : whose tokens a budget counts; None is each receiver's own, so that receivers with different tokenizers may
        be shown different beginnings. For a fixed message under a budget name one

    Returns
    -------
    list of Record: receiver by receiver, budget by budget, steps in their order

    Raises
    ------
    ValueError
        If a step has no message or is given twice, or two receivers share a name.
    """
    check_distinct(steps)
    missing = [step.id for step in steps if step.id not in messages]
    if missing:
        raise ValueError(
            f"step {missing[0]!r} has no stored message ({len(missing)} lack one); send or drop these steps"
        )
    names = [receiver.name for receiver in receivers]
    if len(set(names)) != len(names):
        raise ValueError(f"receivers: names must differ to tell their records apart, not {names}")
    texts = [[step.id, messages[step.id].text] for step in steps]
    records: list[Record] = []
    for receiver in receivers:
        name = run_id or digest("replay", receiver.fingerprint, texts, constrained, parser, max_tokens, seed)[:12]
        desk = _Desk(receiver, name, seed, constrained, parser, max_tokens)
        records += desk.with_messages(steps, messages, budgets, counted_by or receiver)
    return records


def reparse(records: Sequence[Record], steps: Sequence[Step], parser: Parser) -> list[Record]:
    """Return the records with their stored replies read by another parser; nobody is asked."""
    by_id = {step.id: step for step in steps}
    read = []
    for record in records:
        step = by_id[record.step_id]
        decision = parse_decision(record.receiver_output, step.actions, step.artifacts, parser)
        read.append(msgspec.structs.replace(record, parser=parser, **_as_read(decision if record.answered else None)))
    return read


class _Desk(NamedTuple):
    """One receiver with the settings that all its records share."""

    receiver: Receiver
    run_id: str
    seed: int
    constrained: bool
    parser: Parser
    max_tokens: int

    def without_message(self, arm: ArmName, steps: Sequence[Step]) -> list[Record]:
        """Return the records of an arm without a sender."""
        answers = self._ask([Exposure(step, "none" if arm == "RO" else "context") for step in steps])
        return [
            self._record(arm, step, answer, _NOTHING_SENT, (answer.reply.prompt_tokens,), (answer.reply.new_tokens,))
            for step, answer in zip(steps, answers, strict=True)
        ]

    def with_messages(
        self, steps: Sequence[Step], messages: Mapping[str, Sent], budgets: Sequence[int | None], counter: Receiver
    ) -> list[Record]:
        """Return the records of messages under every budget, asked in one call; where the sender failed nobody is asked."""
        cases = [(budget, step, messages[step.id]) for budget in budgets for step in steps]
        shown = [deliver(sent.text, budget, counter) for budget, _, sent in cases]
        sound = [place for place, (_, _, sent) in enumerate(cases) if sent.error is None]
        answers = self._ask([Exposure(cases[place][1], "message", shown[place].text) for place in sound])
        answered = dict(zip(sound, answers, strict=True))
        records = []
        for place, (budget, step, sent) in enumerate(cases):
            answer = answered.get(place) or _not_asked(f"the sender failed: {sent.error}")
            message = _as_sent(sent, shown[place], budget)
            read = (answer.reply.prompt_tokens, sent.input_tokens)
            written = (answer.reply.new_tokens, sent.output_tokens)
            records.append(self._record("MA", step, answer, message, read, written))
        return records

    def _ask(self, exposures: Sequence[Exposure]) -> list[Answer]:
        return ask_receiver(
            self.receiver, exposures, constrained=self.constrained, parser=self.parser, max_tokens=self.max_tokens
        )

    def _record(
        self,
        arm: ArmName,
        step: Step,
        answer: Answer,
        message: Mapping[str, Any],
        read: Sequence[int | None],
        written: Sequence[int | None],
    ) -> Record:
        reply = answer.reply
        return Record(
            run_id=self.run_id,
            benchmark=step.family,
            arm=arm,
            receiver_model=self.receiver.name,
            seed=self.seed,
            step_id=step.id,
            instance_id=step.instance_id,
            step_t=step.index,
            **message,
            receiver_input_key=answer.key,
            receiver_input_tokens=reply.prompt_tokens,
            receiver_output=storable_text(reply.text),
            receiver_output_tokens=reply.new_tokens,
            finish=reply.finish,
            answered=answer.decision is not None,
            error=reply.error,
            parser=self.parser,
            **_as_read(answer.decision),
            total_input_tokens=known_total(read),
            total_output_tokens=known_total(written),
        )


def _not_asked(error: str) -> Answer:
    return Answer(Reply(text="", finish="error", error=error), None, None)


def _as_sent(sent: Sent, seen: Delivered, budget: int | None) -> dict[str, Any]:
    """Return the fields of a message; a sender that failed leaves those null that say what it wrote."""
    head = {"sender_model": sent.sender_model, "budget_tokens": budget, "encoding_format": sent.encoding}
    if sent.error is not None:
        return {**_NOTHING_SENT, **head}
    return {
        **head,
        "message_raw": sent.text,
        "message_shown": seen.text,
        "message_tokens": seen.tokens,
        "message_full_tokens": seen.full_tokens,
        "message_truncated": seen.truncated,
        "message_empty": seen.empty,
        "message_capped": sent.finish == "length" if sent.tries else None,
        "message_from_payload": sent.payload is not None if sent.tries and sent.mode == "payload" else None,
    }


def _as_read(decision: Decision | None) -> dict[str, Any]:
    """Return the fields of a decision; null where the call failed."""
    return {
        "action_type_pred": decision.action if decision else None,
        "artifact_pred": decision.artifact if decision else None,
        "parse_valid": decision.valid if decision else None,
        "parse_reason": decision.reason if decision else "the call failed",
    }
