"""A sender with one more instruction: derive the message anew, or write it shorter.

Context
-------
The paper's selector has two candidates a step (section 3.2): the message, and one written under the instruction to derive
it again from the current state. Its threshold controller has a message that was cut or broken rewritten.

Intuition
---------
A sender is a `Receiver` that is given a prompt. Putting one sentence before the last line of the request leaves all else
as it was, so both candidates share what comes before it, and nobody else has to know that there are two.

How to read the result
----------------------
`Instructed` answers for the model it wraps and has its name. Its fingerprint names the instruction.

Not covered: what else could be asked of a sender.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from lib.models.receiver import Prompt, Receiver, Reply
from lib.seeds import digest

REFRESH = "Derive it anew from the current state, as the view and the context show it now; rely on nothing said before."
REWRITE = "A first message was cut or could not be read. Write a complete one that is much shorter than the limit."


class Instructed:
    """A model whose prompts are given one more instruction, before the last line of the first request.

    Parameters
    ----------
    model : who answers
    instruction : one line
    """

    def __init__(self, model: Receiver, instruction: str) -> None:
        self.model = model
        self.instruction = instruction
        self.name = model.name
        self.fingerprint = digest(model.fingerprint, "instructed", instruction)

    def reply(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        samples: int = 1,
    ) -> list[Reply]:
        """Answer every prompt with the instruction added; see `Receiver.reply`."""
        asked = [self._add(prompt) for prompt in prompts]
        return self.model.reply(asked, max_tokens=max_tokens, stop=stop, temperature=temperature, samples=samples)

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        """Score options under prompts with the instruction added; see `Receiver.score`."""
        return self.model.score([self._add(prompt) for prompt in prompts], options)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the model's tokens."""
        return self.model.count_tokens(texts)

    def prompt_key(self, prompt: Prompt) -> str:
        """Name the prompt with the instruction added."""
        return self.model.prompt_key(self._add(prompt))

    def _add(self, prompt: Prompt) -> Prompt:
        place = next(place for place, turn in enumerate(prompt.turns) if turn.role == "user")
        *before, last = prompt.turns[place].text.split("\n")
        turn = msgspec.structs.replace(prompt.turns[place], text="\n".join([*before, self.instruction, last]))
        return msgspec.structs.replace(prompt, turns=(*prompt.turns[:place], turn, *prompt.turns[place + 1 :]))
