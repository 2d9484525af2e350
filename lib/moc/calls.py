"""Ask many agents at once, try failed calls again, and count what it cost.

A call that failed is asked again with the other failed ones, up to a number of tries; an empty reply is final, since a
deterministic model would only repeat it. Both are failures of the agent, with a reason. Tokens are the receiver's own; where a
backend does not tell them (a server whose prompt was cached, for one) they are counted from the texts, without the chat
frame, and marked as estimated: never 0.

Not covered: time limits of a call, which belong to the receiver.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lib.models.receiver import Prompt, Receiver, Reply


class Outcome(msgspec.Struct, frozen=True):
    """What came of asking one prompt.

    Parameters
    ----------
    text : the reply; empty when failed
    error : why it failed; None where it did not
    tries : calls made
    prompt_tokens, new_tokens : over all tries; None where nothing is known
    estimated : some count is our own, made from the texts
    seconds, finish : of the last try
    prompt_key : the receiver's name of the exact input
    """

    text: str
    error: str | None
    tries: int
    prompt_tokens: int | None
    new_tokens: int | None
    estimated: bool
    seconds: float
    finish: str
    prompt_key: str


def ask(
    receiver: Receiver, prompts: Sequence[Prompt], *, max_tokens: int, temperature: float = 0.0, tries: int = 3
) -> list[Outcome]:
    """Ask every prompt in one call, failed ones again in further calls.

    Raises
    ------
    ValueError
        For fewer than one try.
    """
    if tries < 1:
        raise ValueError(f"tries: an agent is asked at least once, not {tries} times")
    attempts: list[list[Reply]] = [[] for _ in prompts]
    waiting = list(range(len(prompts)))
    for _ in range(tries):
        if not waiting:
            break
        asked = [prompts[index] for index in waiting]
        replies = receiver.reply(asked, max_tokens=max_tokens, temperature=temperature)
        for index, reply in zip(waiting, replies, strict=True):
            attempts[index].append(reply)
        waiting = [index for index in waiting if _broken(attempts[index][-1])]
    return [_outcome(receiver, prompt, made) for prompt, made in zip(prompts, attempts, strict=True)]


def _outcome(receiver: Receiver, prompt: Prompt, made: Sequence[Reply]) -> Outcome:
    last = made[-1]
    error = (last.error or "the call failed without a reason") if _broken(last) else None
    text = "" if error else clean_text(last.text)
    if error is None and not text.strip():
        error = "the reply was empty"
    asked, told = [reply.prompt_tokens for reply in made], [reply.new_tokens for reply in made]
    estimated = None in asked
    if None in asked:
        own = sum(receiver.count_tokens([turn.text for turn in prompt.turns]))
        asked = [own if count is None else count for count in asked]
    if told[-1] is None and not _broken(last):
        told[-1], estimated = receiver.count_tokens([text])[0], True
    return Outcome(
        text=text,
        error=error,
        tries=len(made),
        prompt_tokens=_known(asked),
        new_tokens=_known(told),
        estimated=estimated,
        seconds=last.seconds,
        finish=last.finish,
        prompt_key=receiver.prompt_key(prompt),
    )


def clean_text(text: str) -> str:
    """Return `text` with every lone surrogate, which has no UTF-8 form and no token, replaced by a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _broken(reply: Reply) -> bool:
    return reply.finish == "error" or reply.error is not None


def _known(counts: Sequence[int | None]) -> int | None:
    """Return the sum of the counts that are known; None where none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
