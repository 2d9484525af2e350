"""What a budget of tokens leaves of a message.

Context
-------
The paper gives every message a budget B. Its public companion code takes 3.5 characters for a token and cuts at
3.5 B characters. Here B counts the tokens of a receiver, as a rule of the one that reads the message.

Intuition
---------
A cut message is the longest beginning, to the character, that is at most B tokens long when counted by itself. So a
message that fits stays as it is, a cut one is not cut again, and a smaller budget leaves a beginning of what a larger one
leaves. JSON is cut like any text and shown as it is: broken JSON is part of what a small budget costs.

How to read the result
----------------------
B = 0 is an empty message, which the receiver is told it got. It is an arm of its own, not the arm without a message. A
message can also be empty because the sender wrote nothing: `truncated` is then false.

Not covered: tokenizers for which a further whole word lowers the count. The search goes by words first; with such a
tokenizer a cut message stays within B, but may be shorter than it could be.
"""

from __future__ import annotations

import re

import msgspec

from lib.models.receiver import Receiver

_WORD = re.compile(r"\S+")


class Delivered(msgspec.Struct, frozen=True):
    """A message as shown.

    Parameters
    ----------
    text : what is left of it
    tokens, full_tokens : of `text` and of the whole message
    truncated : something was cut
    """

    text: str
    tokens: int
    full_tokens: int
    truncated: bool

    @property
    def empty(self) -> bool:
        """Nothing but white space is shown."""
        return not self.text.strip()


def cut(text: str, budget: int, receiver: Receiver) -> str:
    """Return the longest beginning of `text` that is at most `budget` tokens long; nothing for a budget of 0.

    Raises
    ------
    ValueError
        For a negative budget.
    """
    if budget < 0:
        raise ValueError(f"budget: a message has at least 0 tokens, not {budget}")
    if budget == 0:
        return ""
    if receiver.count_tokens([text])[0] <= budget:
        return text
    # A tokenizer may need fewer tokens for a whole word than for a part of it, so halving by characters would be wrong.
    ends = [0, *(match.end() for match in _WORD.finditer(text))]
    if ends[-1] != len(text):
        ends.append(len(text))
    fits, over = 0, len(ends) - 1  # places in `ends`
    while over - fits > 1:
        middle = (fits + over) // 2
        if receiver.count_tokens([text[: ends[middle]]])[0] <= budget:
            fits = middle
        else:
            over = middle
    starts = [text[:end] for end in range(ends[fits], ends[over])]
    counts = receiver.count_tokens(starts)
    return max((start for start, count in zip(starts, counts, strict=True) if count <= budget), key=len)


def deliver(text: str, budget: int | None, receiver: Receiver) -> Delivered:
    """Return what is shown of a message under a budget; None shows it whole."""
    shown = text if budget is None else cut(text, budget, receiver)
    tokens, full_tokens = receiver.count_tokens([shown, text])
    return Delivered(shown, tokens, full_tokens, shown != text)
