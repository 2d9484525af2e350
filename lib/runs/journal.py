"""Note what a run asks: our name of every prompt beside the store's.

Context. The store names a question by token ids, frozen replies name it by its words (`lib.runs.frozen`). To take the answers
of a run out of the store, both names must be known.

Intuition. Whoever stands behind the store is asked for the token name of every prompt, answered before or not. `Journaled` stands
there and writes both names down.

How to read it. One JSON Lines file a process and receiver; `read_journals` joins them by receiver.

Not covered: answers, which are in the store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lib.models.receiver import Prompt, Receiver, Reply
from lib.runs.frozen import prompt_text_key, text_key

JOURNAL = "LAB_JOURNAL"  # environment variable: the folder in which runs note what they ask


class Journaled:
    """A receiver that notes what it is asked; it implements the `Receiver` protocol.

    Put it behind a `StoredReceiver`, which asks it for the name of every prompt.

    Parameters
    ----------
    receiver : Receiver
        Who answers.
    folder : path
        Gets one file a process and receiver.
    """

    def __init__(self, receiver: Receiver, folder: Path | str) -> None:
        self.receiver = receiver
        self.name = receiver.name
        self.fingerprint = receiver.fingerprint
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.path = Path(folder) / f"{receiver.name.replace(os.sep, '_')}-{os.getpid()}.jsonl"
        self._head = ["receiver", receiver.name, receiver.fingerprint, getattr(receiver, "dtype", "none")]
        self._noted: set[str] = set()

    def reply(self, prompts: Sequence[Prompt], **options: Any) -> list[Reply]:
        """See `Receiver.reply`."""
        return self.receiver.reply(prompts, **options)

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        """See `Receiver.score`."""
        return self.receiver.score(prompts, options)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens and note the counts."""
        counts = self.receiver.count_tokens(texts)
        self._note(["tokens", text_key(text), count] for text, count in zip(texts, counts, strict=True))
        return counts

    def prompt_key(self, prompt: Prompt) -> str:
        """Return the receiver's name of the prompt and note it beside ours."""
        key = self.receiver.prompt_key(prompt)
        self._note([["prompt", key, prompt_text_key(prompt)]])
        return key

    def _note(self, entries: Iterable[list[Any]]) -> None:
        lines = [line for entry in entries if (line := json.dumps(entry)) not in self._noted]
        if lines:
            self._noted.update(lines)
            head = [] if self.path.exists() else [json.dumps(self._head)]
            with self.path.open("a", encoding="utf-8") as out:
                out.write("".join(f"{line}\n" for line in [*head, *lines]))


class Journal(msgspec.Struct):
    """What the runs of one receiver asked: our names of prompts by the store's, and token counts by text."""

    receiver: str
    fingerprint: str
    dtype: str
    prompts: dict[str, str]
    tokens: dict[str, int]


def read_journals(folder: Path | str) -> dict[str, Journal]:
    """Return the journals of a folder by receiver name; a last line that was cut off is left out.

    Raises
    ------
    ValueError
        If one receiver name stands for two fingerprints: its runs used different weights, precision or engine.
    """
    journals: dict[str, Journal] = {}
    for path in sorted(Path(folder).glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").split("\n")
        entries = [json.loads(line) for line in lines[:-1]]
        if not entries:
            continue
        _, name, fingerprint, dtype = entries[0]
        journal = journals.setdefault(name, Journal(name, fingerprint, dtype, {}, {}))
        if journal.fingerprint != fingerprint:
            raise ValueError(
                f"{path}: {name} has another fingerprint than in earlier journals; empty {folder}, run again"
            )
        for kind, first, second in entries[1:]:
            (journal.prompts if kind == "prompt" else journal.tokens)[first] = second
    return journals
