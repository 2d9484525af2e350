"""Ask everything that can be known beforehand in one call.

Context
-------
A receiver that shares prefixes reads what several prompts begin with once, but only within a call. Arms, budgets and senders of
one step differ in one block near the end of the prompt (`lib.coordination.prompts`), while each is asked in a call of its own.

Intuition
---------
No prompt of a replay depends on another reply. So the work is rehearsed first, with a receiver that notes what it is asked and
answers nothing. All of that is asked at once, equal beginnings beside each other, and the work is done again with the replies at hand.

How to read the result
----------------------
The same records as without it, sooner. A prompt that the rehearsal could not know, such as a sender's second try, is asked
when it comes.

Not covered: sampling; work whose first prompts depend on replies (it gains nothing); replies that differ in their last bits with the
company they are computed in, which a noise control measures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from lib.models.receiver import Prompt, Receiver, Reply

T = TypeVar("T")
_Asked = tuple[str, int, tuple[str, ...]]  # prompt key, token cap, stops


def in_one_call(receiver: Receiver, work: Callable[[Receiver], T]) -> T:
    """Return what `work` returns, with every prompt that it asks for asked in as few calls as possible.

    Parameters
    ----------
    work : gets a receiver and is called twice, so it must not change anything outside
    """
    rehearsal = _Foreseen(receiver, None)
    work(rehearsal)
    replies: dict[_Asked, Reply] = {}
    for max_tokens, stop in dict.fromkeys(key[1:] for key in rehearsal.noted):
        wanted = {key: prompt for key, prompt in rehearsal.noted.items() if key[1:] == (max_tokens, stop)}
        order = sorted(wanted, key=lambda key: ([turn.text for turn in wanted[key].turns], key[0]))
        made = receiver.reply([wanted[key] for key in order], max_tokens=max_tokens, stop=stop)
        replies.update(zip(order, made, strict=True))
    return work(_Foreseen(receiver, replies))


class _Foreseen:
    """A receiver that notes what it is asked, or, with `replies`, answers from them what it can."""

    def __init__(self, receiver: Receiver, replies: Mapping[_Asked, Reply] | None) -> None:
        self.name, self.fingerprint = receiver.name, receiver.fingerprint
        self.noted: dict[_Asked, Prompt] = {}
        self._receiver, self._replies = receiver, replies

    def reply(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        samples: int = 1,
    ) -> list[Reply]:
        """Return a reply a prompt; in a rehearsal, errors."""
        if temperature or samples != 1:
            raise ValueError(f"one greedy reply a prompt can be asked beforehand, not {samples} at {temperature}")
        keys: list[_Asked] = [(self.prompt_key(prompt), max_tokens, tuple(stop)) for prompt in prompts]
        if self._replies is None:
            self.noted.update(zip(keys, prompts, strict=True))
            return [Reply(text="", finish="error", error="not asked yet")] * len(keys)
        missing = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in self._replies}
        late = self._receiver.reply(list(missing.values()), max_tokens=max_tokens, stop=stop) if missing else []
        known = {**self._replies, **dict(zip(missing, late, strict=True))}
        return [known[key] for key in keys]

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        """Return the receiver's own scores."""
        return self._receiver.score(prompts, options)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the receiver's own counts."""
        return self._receiver.count_tokens(texts)

    def prompt_key(self, prompt: Prompt) -> str:
        """Return the receiver's own name of the input."""
        return self._receiver.prompt_key(prompt)
