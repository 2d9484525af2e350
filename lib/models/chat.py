"""From chat turns to exact token ids.

The model's own chat template decides the frame; the text inside it is data. Each turn's text is replaced by a marker before the
template runs, the rendered frame is cut at the markers, frame pieces are tokenised with special tokens on and texts with
special tokens off. So a text that spells `<|im_end|>` becomes ordinary characters, and equal turns always give equal token runs,
which is what the prefix tree lives on. The sequence starts with exactly one beginning-of-sequence token where the tokenizer uses one.

Not covered: templates that rewrite, repeat, drop or reorder the texts of turns (refused by name); tokens that a tokenizer adds
without calling them special, such as Qwen's `<tool_call>` (they stay one token in a text, and open or close no turn).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lib.models.receiver import Prompt

_MARK = "LabTurn{index}Text"


class ChatEncoder:
    """Turns prompts into token ids with a tokenizer's chat template.

    Raises
    ------
    ValueError
        When the tokenizer has no chat template.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(f"model {name!r}: its tokenizer has no chat template; choose an instruction-tuned model")
        self.tokenizer = tokenizer
        self.name = name
        self.special_ids = _special_ids(tokenizer)
        bos = tokenizer.bos_token_id
        plain = tokenizer("x")["input_ids"]
        self.adds_bos = bos is not None and len(plain) > 1 and plain[0] == bos
        self.encode_text = lru_cache(maxsize=65_536)(self._encode_text)
        self.frame = lru_cache(maxsize=256)(self._frame)

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the prompt's token ids, ready for the model to continue."""
        pieces = self.frame(tuple(turn.role for turn in prompt.turns))
        ids = list(pieces[0])
        for turn, piece in zip(prompt.turns, pieces[1:], strict=True):
            ids.extend(self.encode_text(turn.text))
            ids.extend(piece)
        return self._one_bos(ids)

    def _one_bos(self, ids: list[int]) -> list[int]:
        """Start with exactly one beginning-of-sequence token, where the tokenizer uses one."""
        bos = self.tokenizer.bos_token_id
        if bos is None:
            return ids
        start = 0
        while start < len(ids) and ids[start] == bos:
            start += 1
        needed = 1 if (self.adds_bos or start) else 0
        return [bos] * needed + ids[start:]

    def _encode_text(self, text: str) -> tuple[int, ...]:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            found = f"U+{ord(text[error.start]):04X} at character {error.start}"
            raise ValueError(
                f"a turn's text holds a lone surrogate, {found}, which has no UTF-8 form; remove it"
            ) from None
        ids = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        forged = self.special_ids.intersection(ids)
        if forged:
            raise ValueError(
                f"model {self.name!r}: text became the special tokens {sorted(forged)}; its tokenizer cannot switch them off"
            )
        return tuple(ids)

    def _frame(self, roles: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the token runs around the turns' texts, one more than there are turns."""
        marks = [_MARK.format(index=index) for index in range(len(roles))]
        turns = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]
        try:
            rendered = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except (
            Exception
        ) as error:  # a template raises as it likes, for a role it does not know or an order it does not want
            raise ValueError(
                f"model {self.name!r}: its chat template refuses turns with roles {list(roles)}: {error}"
            ) from error
        if any(rendered.count(mark) != 1 for mark in marks):
            raise ValueError(
                f"model {self.name!r}: its chat template drops, rewrites or repeats turns with roles {list(roles)}"
            )
        pieces = []
        for mark in marks:
            before, found, rendered = rendered.partition(mark)
            if not found:
                raise ValueError(f"model {self.name!r}: its chat template reorders turns with roles {list(roles)}")
            pieces.append(before)
        pieces.append(rendered)
        return tuple(
            tuple(self.tokenizer(piece, add_special_tokens=False)["input_ids"]) if piece else () for piece in pieces
        )


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """Return every id that no text may become: named special tokens and those only marked special, such as Qwen's turn marks.

    An unknown token that has no other office is left out: it stands for characters the vocabulary lacks.
    """
    marked = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    unknown = tokenizer.unk_token_id
    if unknown in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        unknown = None
    return frozenset(marked.union(tokenizer.all_special_ids) - {unknown})
