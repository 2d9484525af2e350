"""Stand-ins for receiver and store, with which a notebook asks its true questions and nobody computes an answer.

Context
-------
How many questions a study asks, and how long they are, follows from code, tasks and earlier answers. The surest count is made by
the study's own code: it runs, and what it asks is counted instead of computed.

Intuition
---------
`PlannedStore` answers what the true store knows, read only, and keeps everything else in a file of the plan. `PlannedReceiver` answers
the rest by the rules of `lib.models.scripted`, made about as long as a model's replies, names prompts as the true receiver
would, and counts the tokens that this one would read, batch by batch, in the same trees.

How to read the result
----------------------
Prompts that hang on nothing but tasks are the true ones, so their counts are exact. Where the next question depends on an answer
(which packets are admitted, what an agent heard), rules have answered in a model's place: counts there are an estimate.

Not covered: running the notebooks (`lib.runs.rehearse`), seconds (`lib.runs.probe`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from lib.models import open_receiver
from lib.models.choose import SCRIPTED, SCRIPTS
from lib.models.prefix_tree import build_tree, group_prompts
from lib.models.receiver import Prompt, Receiver, Reply, options_per_prompt
from lib.models.unloaded import PromptReader, open_unloaded
from lib.runs.context import CONTROL, Run
from lib.runs.frozen import FrozenReceiver
from lib.runs.store import Key, Store
from lib.runs.tally import Ledger
from lib.seeds import seed_of

MAX_SLOTS, MAX_ROW_TOKENS = (
    12_288,
    32_768,
)  # of TransformersReceiver; naming it here would load torch for plans without a model
FREE_WORDS = 120  # words of a free reply, where its cap allows; a schema's reply is as long as the schema asks
_WORDS_A_TOKEN = 0.6


class PlannedReceiver:
    """Answers by rules and counts what the receiver called `name` would compute; it implements the `Receiver` protocol.

    Parameters
    ----------
    reader : PromptReader
        Whose tokens and names.
    ledger : Ledger
        Gets the counts, under `reader.name`.
    options : dict, optional
        How the true receiver would be opened, for a probe of it.
    """

    def __init__(self, reader: PromptReader, ledger: Ledger, options: dict[str, Any] | None = None) -> None:
        self.reader, self.ledger, self.options = reader, ledger, options or {}
        self.name, self.fingerprint = reader.name, reader.fingerprint
        self.dtype = "none"
        own = reader.name in SCRIPTS
        self.rules: Receiver = open_receiver(reader.name if own else SCRIPTED)
        self._lengthen = not own
        self.kept = 0  # questions that came through a store: the others are asked anew by every run

    def reply(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        samples: int = 1,
    ) -> list[Reply]:
        """Answer by rules and count; see `Receiver.reply`."""
        replies = self.rules.reply(prompts, max_tokens=max_tokens, stop=stop, temperature=temperature, samples=samples)
        owners = [prompt for prompt in prompts for _ in range(samples)]
        rows: dict[tuple[str, int], tuple[list[int], int]] = {}
        cut, answered = 0, []
        for place, (prompt, reply) in enumerate(zip(owners, replies, strict=True)):
            ids = self.reader.ids(prompt)
            if self.reader.context is not None and len(ids) + max_tokens > self.reader.context:
                cut += 1
                reason = f"prompt of {len(ids)} tokens + {max_tokens} new tokens exceed the model's context"
                answered.append(Reply(text="", prompt_tokens=len(ids), finish="error", error=reason))
                continue
            if self._lengthen:
                longer = lengthened(reply.text, prompt, max_tokens) if prompt.schema is None else doubting(reply.text)
                reply = msgspec.structs.replace(reply, text=longer)
            new = min(max_tokens, max(1, len(self.reader.text_ids(reply.text))))
            sample = place % samples if temperature > 0 else 0
            rows[self.reader.prompt_key(prompt), sample] = ids, new
            answered.append(msgspec.structs.replace(reply, prompt_tokens=len(ids), new_tokens=new))
        self._count(list(rows.values()), max_tokens, cut)
        return answered

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        """Score by rules and count; see `Receiver.score`."""
        sequences = []
        for prompt, row in zip(prompts, options_per_prompt(len(prompts), options), strict=True):
            ids = self.reader.ids(prompt)
            sequences += [[*ids, *list(self.reader.text_ids(option))[:-1]] for option in row]
        self._read(sequences)
        self._asked(len(prompts))
        return self.rules.score(prompts, options)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens, the receiver's own where its tokenizer is here."""
        return [len(self.reader.text_ids(text)) for text in texts]

    def prompt_key(self, prompt: Prompt) -> str:
        """Return the receiver's name of the prompt."""
        return self.reader.prompt_key(prompt)

    def _count(self, rows: list[tuple[list[int], int]], max_tokens: int, cut: int) -> None:
        """Count a batch as `TransformersReceiver` computes it: trees of a bounded size, decoded in blocks."""
        self._asked(len(rows) + cut, cut=cut)
        for group in self._read([ids for ids, _ in rows]):
            block = max(1, MAX_ROW_TOKENS // max(len(rows[index][0]) + max_tokens for index in group))
            new = [rows[index][1] for index in group]
            steps = sum(max(new[start : start + block]) for start in range(0, len(new), block))
            self.ledger.add(self.name, bound=max_tokens * len(group), expected=sum(new), steps=steps)

    def _read(self, sequences: list[list[int]]) -> list[list[int]]:
        groups = group_prompts(sequences, MAX_SLOTS)
        for group in groups:
            tree = build_tree([sequences[index] for index in group])
            self.ledger.add(self.name, naive=tree.naive_tokens, tree=len(tree))
        return groups

    def _asked(self, computed: int, cut: int = 0) -> None:
        kept = min(self.kept, computed)
        self.kept -= kept
        self.ledger.add(self.name, calls=computed - kept, unkept=computed - kept, computed=computed, cut=cut)


class PlannedStore(Store):
    """A store of the plan's own over the true one, which is read and never written.

    Parameters
    ----------
    path : where the plan keeps the answers of its rules
    true : the store of the runs; None, or a file that is not there, knows nothing
    receivers : fingerprint -> who counts
    """

    def __init__(self, path: Path, true: Path | None, receivers: dict[str, PlannedReceiver]) -> None:
        super().__init__(path)
        self.receivers = receivers
        self._true = Store(true, read_only=True) if true is not None and true.exists() else None

    def close(self) -> None:
        """Close both files."""
        super().close()
        if self._true is not None:
            self._true.close()

    def get(self, keys: Sequence[Key], *, count: bool = True) -> dict[Key, dict[str, Any]]:
        """Return what either store has; `count` adds to the ledger."""
        known = self._true.get(keys, count=False) if self._true is not None else {}
        made = super().get([key for key in keys if key not in known], count=False)
        if count:
            for fingerprint in dict.fromkeys(key.receiver for key in keys):
                receiver = self.receivers[fingerprint]
                mine = {key for key in keys if key.receiver == fingerprint}
                stored, repeated = len(mine & known.keys()), len(mine & made.keys())
                receiver.ledger.add(receiver.name, calls=len(mine), stored=stored, repeated=repeated)
                receiver.kept = len(mine) - stored - repeated
        return {**known, **made}


class RehearsedRun(Run):
    """A run whose receivers and stores are stand-ins; `start_run` makes it while a notebook is rehearsed.

    Parameters
    ----------
    folder, profile, store_path, no_cache : as of `Run`; the store is the plan's own
    ledger : gets the counts
    true_store : the store of the runs, for what is known already
    """

    def __init__(
        self, folder: Path, profile: str, store_path: Path, no_cache: bool, *, ledger: Ledger, true_store: Path
    ) -> None:
        super().__init__(folder, profile, store_path, no_cache)
        self.ledger, self._true_store = ledger, true_store
        self.opened: dict[str, PlannedReceiver] = {}
        self.frozen: list[FrozenReceiver] = []
        self.stores: list[PlannedStore] = []

    def receiver(self, name: str, **options: Any) -> Receiver:
        """Return a stand-in, behind frozen replies where these are asked for."""
        receiver = super().receiver(name, **options)
        if isinstance(receiver, FrozenReceiver):
            self.frozen.append(receiver)
        return receiver

    def figure(self, figure: Any, name: str) -> None:
        """Write nothing: drawing is the slowest part of a notebook that asks nobody."""

    def finish(self) -> None:
        """Close the stores and count what frozen files have answered."""
        for receiver in self.frozen:
            found = receiver.coverage.frozen
            self.ledger.add(receiver.name, calls=found, frozen=found)
        for store in self.stores:
            store.close()

    def _open_store(self, path: Path) -> Store:
        true = self._true_store.with_name(CONTROL) if path.name == CONTROL else self._true_store
        self.stores.append(PlannedStore(path, true, self.opened))
        return self.stores[-1]

    def _open_receiver(self, name: str, **options: Any) -> Receiver:
        reader = open_unloaded(name, **options)
        if reader.fingerprint not in self.opened:
            self.opened[reader.fingerprint] = PlannedReceiver(reader, self.ledger, {"model": name, **options})
        if not reader.exact:
            self.ledger.guess(reader.name)
        return self.opened[reader.fingerprint]


def lengthened(text: str, prompt: Prompt, max_tokens: int) -> str:
    """Return a free reply with words of its prompt before it, so that it is about as long as a model's reply under this cap.

    The words begin at a place that hangs on the prompt, so that two agents do not say the same.
    """
    words = prompt.turns[-1].text.split()
    room = min(FREE_WORDS, int(_WORDS_A_TOKEN * max_tokens)) - len(text.split())
    if room <= 0 or not words:
        return text
    start = seed_of("lengthened", prompt.turns[0].text, prompt.turns[-1].text) % len(words)
    said = [words[(start + place) % len(words)] for place in range(room)]
    return f"{' '.join(said)}\n{text}"


def doubting(text: str) -> str:
    """Return a reader's reply with its uncertainty filled in: rules state none, models mostly do, and it makes a packet.

    Messages of three packets are what models of one or two billion parameters write here on average; very small ones write four.
    """
    if '"uncertainty": "none stated"' not in text:
        return text
    said = json.loads(text)
    said["uncertainty"] = f"Whether it is still so is not stated: {said.get('claim', '')}"
    return json.dumps(said, ensure_ascii=False)
