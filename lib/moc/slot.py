"""One agent's turn: what it hears, what comes of asking it, and how large that is.

A `Slot` is an agent about to speak. Its message is what the receiver replied, or a predecessor's passing code that is sent on
without a call, or what a tamper puts in its place; at last sizes are added, in bytes and in the receiver's tokens, of what was
sent and of what was shown.

Not covered: when an agent's turn comes and what it hears (`lib.moc.team`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from lib.moc.calls import Outcome, clean_text
from lib.moc.distill import Item
from lib.moc.prompts import fenced
from lib.moc.record import AgentMessage, Delivery
from lib.models.receiver import Receiver
from lib.tasks.code_answer import extract_code
from lib.tasks.questions import Question

Tamper = Callable[[Question, int, str], str]  # (question, agent, what it said) -> what it sends


class Slot(msgspec.Struct):
    """One agent about to speak, and what it hears.

    Parameters
    ----------
    question, agent, role, wave, reach, parents, hops, failed_sources : as in `lib.moc.record.AgentMessage`
    items : what is shown to it, in order
    block : the same as text, as it stands in the prompt
    reused : the predecessor whose passing code is sent on
    """

    question: Question
    agent: int | str
    role: str
    wave: int = 0
    reach: int = 0
    parents: tuple[int, ...] = ()
    hops: tuple[tuple[int, int], ...] = ()
    failed_sources: tuple[int, ...] = ()
    items: tuple[Item, ...] = ()
    block: str = ""
    reused: AgentMessage | None = None


def spoken(slot: Slot, outcome: Outcome) -> AgentMessage:
    """Return the message that came of asking."""
    return AgentMessage(
        question_id=slot.question.id,
        agent=slot.agent,
        role=slot.role,
        wave=slot.wave,
        parents=slot.parents,
        hops=slot.hops,
        text="" if outcome.error else outcome.text,
        status="failed" if outcome.error else "ok",
        reach=slot.reach,
        error=outcome.error,
        failed_sources=slot.failed_sources,
        tries=outcome.tries,
        prompt_tokens=outcome.prompt_tokens,
        new_tokens=outcome.new_tokens,
        tokens_estimated=outcome.estimated,
        seconds=outcome.seconds,
        finish=outcome.finish,
        prompt_key=outcome.prompt_key,
    )


def passed_on(slot: Slot) -> AgentMessage:
    """Send a predecessor's passing code on; nothing was asked, so it cost no token."""
    assert slot.reused is not None and isinstance(slot.reused.agent, int)
    slot.block = slot.items[0].text  # what the agent read is that one message
    return AgentMessage(
        question_id=slot.question.id,
        agent=slot.agent,
        role=slot.role,
        wave=slot.wave,
        parents=slot.parents,
        hops=slot.hops,
        text=f"```python\n{extract_code(slot.reused.text, slot.question.entry_point)}\n```",
        status="ok",
        reach=1,
        tries=0,
        prompt_tokens=0,
        new_tokens=0,
        reused_from=slot.reused.agent,
        examples=slot.reused.examples,
    )


def tampered(tamper: Tamper, question: Question, message: AgentMessage) -> AgentMessage:
    """Replace what a worker sends; an agent that failed sends nothing, so nothing is replaced."""
    if not message.ok:
        return message
    assert isinstance(message.agent, int), "the decision agent is not tampered with"
    sent = clean_text(tamper(question, message.agent, message.text))
    if not sent.strip():
        raise ValueError(f"tamper: question {question.id!r}, agent {message.agent}: an empty text is no message")
    if sent == message.text:
        return message
    return msgspec.structs.replace(message, text=sent, own_text=message.text, examples=None)


def sized(receiver: Receiver, slots: Sequence[Slot], messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    """Add bytes and tokens of what was sent and received; one counting call for all."""
    shown = [[fenced(item.text) for item in slot.items] for slot in slots]
    texts = [
        text
        for slot, items, message in zip(slots, shown, messages, strict=True)
        for text in (message.text, slot.block, *items)
    ]
    counted = iter(receiver.count_tokens(texts))
    sized = []
    for slot, items, message in zip(slots, shown, messages, strict=True):
        text_tokens, received_tokens = next(counted), next(counted)
        deliveries = tuple(
            Delivery(tuple(int(name) for name in item.ids), item.hop, len(text.encode()), next(counted))
            for item, text in zip(slot.items, items, strict=True)
        )
        sized.append(
            msgspec.structs.replace(
                message,
                text_tokens=text_tokens,
                sent_bytes=len(message.text.encode()),
                received_tokens=received_tokens,
                received_bytes=len(slot.block.encode()),
                deliveries=deliveries,
            )
        )
    return sized
