"""Ask senders for messages: one payload a step, in any encoding, or a text written directly.

Context
-------
Sections 4.1 and C.2 of the paper. A sender sees its context, the receiver's local view and the candidates. It writes a
payload of five fields as JSON; `lib.coordination.payload` renders it. The paper's public files hold messages written
directly in each format; mode ``direct`` does the same.

Intuition
---------
A message is written once and stored whole. Encodings, budgets, recodings and receivers are then variations of what is
delivered, and no sender is asked again.

How to read the result
----------------------
A `Sent` without text is a sender that used its tokens without saying anything, or failed (then `error` says why). In mode
``payload`` a `Sent` without a payload could not be read even when asked again: its text is raw and the same in every
encoding, so leave such rows out of a comparison of encodings, or count them.

Not covered: what a budget leaves of a message (`lib.coordination.budget`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from lib.coordination.exchange import Encoding, Mode, Sent
from lib.coordination.parse import storable_text, visible_text
from lib.coordination.payload import read_payload, render
from lib.coordination.prompts import retry_prompt, sender_prompt
from lib.models.receiver import Prompt, Receiver, Reply
from lib.tasks.steps import Step

PAYLOAD_TOKENS = 256  # cap of a sender's payload, which the budget cuts only when it is delivered
DIRECT_TOKENS = 4096  # a message written directly has min(budget, this) of the sender's own tokens (paper)


def send_messages(
    sender: Receiver,
    steps: Sequence[Step],
    budget: int = 128,
    encoding: Encoding = "json",
    *,
    mode: Mode = "payload",
    constrained: bool = True,
    max_tokens: int | None = None,
) -> dict[str, Sent]:
    """Ask a sender for one message a step, all in one call.

    Parameters
    ----------
    budget : tokens that the sender is told to keep to, at least 1
    mode : ``payload``: a JSON payload, asked once more where it cannot be read, then rendered; where it cannot be read
        again, the raw reply. ``direct``: a text in the encoding itself
    constrained : bind payloads by a schema; nothing to do with mode ``direct``
    max_tokens : the sender's cap; None is `PAYLOAD_TOKENS` for payloads, min(`budget`, 4096) for direct messages

    Returns
    -------
    dict of step id -> Sent

    Raises
    ------
    ValueError
        For a budget below 1 (an empty message needs no sender: deliver any with budget 0), or a step given twice.
    """
    if budget < 1:
        raise ValueError(f"budget: a sender needs at least 1 token, not {budget}; an empty message needs no sender")
    if mode not in ("payload", "direct"):
        raise ValueError(f"mode {mode!r} is not known; choose payload or direct")
    check_distinct(steps)
    asked: Encoding = "json" if mode == "payload" else encoding
    prompts = [sender_prompt(step, budget, asked, constrained=constrained and mode == "payload") for step in steps]
    cap = max_tokens or (PAYLOAD_TOKENS if mode == "payload" else min(budget, DIRECT_TOKENS))
    tries = [[reply] for reply in reply_all(sender, prompts, cap)]
    if mode == "payload":
        again = [
            place
            for place, (reply,) in enumerate(tries)
            if not failed(reply) and read_payload(visible_text(reply.text)) is None
        ]
        retries = [retry_prompt(prompts[place], storable_text(tries[place][0].text)) for place in again]
        for place, reply in zip(again, reply_all(sender, retries, cap), strict=True):
            tries[place].append(reply)
    return {step.id: _sent(sender.name, step, made, encoding, mode) for step, made in zip(steps, tries, strict=True)}


def encode_again(messages: Mapping[str, Sent], encoding: Encoding) -> dict[str, Sent]:
    """Return the same payloads in another encoding; raw texts without a payload stay as they are.

    Raises
    ------
    ValueError
        For messages that were written directly: their content cannot be moved to another encoding.
    """
    direct = [step_id for step_id, sent in messages.items() if sent.mode == "direct"]
    if direct:
        raise ValueError(f"step {direct[0]!r}: its message was written directly; ask for payloads to compare encodings")
    return {
        step_id: msgspec.structs.replace(
            sent, encoding=encoding, text=sent.text if sent.payload is None else render(sent.payload, encoding)
        )
        for step_id, sent in messages.items()
    }


def silent(sender_model: str, step: Step, encoding: Encoding, mode: Mode) -> Sent:
    """Return an empty message for which nobody was asked."""
    return Sent(step.id, sender_model, encoding, mode, "", None, "", 0, "stop", None, 0, 0)


def reply_all(receiver: Receiver, prompts: Sequence[Prompt], max_tokens: int) -> list[Reply]:
    """Return greedy replies to all prompts, asked in one call; no call for no prompts."""
    return receiver.reply(prompts, max_tokens=max_tokens) if prompts else []


def failed(reply: Reply) -> bool:
    """Return whether the call gave no reply."""
    return reply.finish == "error" or reply.error is not None


def known_total(counts: Sequence[int | None]) -> int | None:
    """Return the sum of the counts, None where one is not known."""
    return None if None in counts else sum(count for count in counts if count is not None)


def check_distinct(steps: Sequence[Step]) -> None:
    """Refuse steps with equal ids, which would overwrite each other's messages."""
    twice = [name for name, times in Counter(step.id for step in steps).items() if times > 1]
    if twice:
        raise ValueError(f"steps: {twice[0]!r} is given twice; pass each step once, and one family at a time")


def _sent(sender_model: str, step: Step, made: Sequence[Reply], encoding: Encoding, mode: Mode) -> Sent:
    last = made[-1]
    broken = failed(last)
    raw = "" if broken else storable_text(last.text)
    said = visible_text(raw)
    payload = read_payload(said) if mode == "payload" else None
    return Sent(
        step_id=step.id,
        sender_model=sender_model,
        encoding=encoding,
        mode=mode,
        text=said if payload is None else render(payload, encoding),
        payload=payload,
        raw=raw,
        tries=len(made),
        finish=last.finish,
        error=(last.error or "the call failed without a reason") if broken else None,
        input_tokens=known_total([reply.prompt_tokens for reply in made]),
        output_tokens=known_total([reply.new_tokens for reply in made]),
    )
