"""Replies that ship with the repository: read them where they exist, ask a live receiver for the rest, compare a sample.

Context
-------
A study of some hundred tasks asks a model tens of thousands of times, which takes a processor hours. The replies are a few
megabytes of text. `data/frozen/<receiver>/` holds them, so that every table and figure can be computed in minutes, on any
machine, without the model.

Intuition
---------
A frozen reply is named by what was asked, word by word: turns, schema, label offsets and decoding. No tokenizer is
needed to look it up. A prompt that differs in one character is another prompt: it is asked live, and counted.

How to read the result
----------------------
`FrozenReceiver` is a `Receiver`. `coverage` says how much of a run came from the file and how much was computed. The frozen
replies were computed once, on one machine; `live_sample` asks a random sample of them again, here and now, and says how
many came out the same. Where weights are bfloat16 a few will differ, as they do between two batches on one machine.

Not covered: making the file (`lib.runs.freezing`); latency, which is always measured live.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from lib.models.receiver import Prompt, Receiver, Reply, options_per_prompt
from lib.runs.store import Store, decoding_key
from lib.runs.stored import StoredReceiver
from lib.seeds import digest, hash_order

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
MANIFEST, REPLIES, TOKENS, MESSAGES = "manifest.json", "replies.jsonl.gz", "tokens.jsonl.gz", "messages"
FIRST, AGAIN = "first", "again"  # the study's own replies, and those of the noise control to the same prompts


class FrozenError(ValueError):
    """A frozen corpus that is not there or cannot be used; the text names the file and the fix."""


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """What a frozen corpus is and how it was made.

    Parameters
    ----------
    receiver, fingerprint, dtype : who answered: short name, identity of weights and engine, precision
    made : date
    command : makes it again
    notebooks : stem -> parameters whose questions are in it
    rows : replies and scores
    sha256 : file name -> SHA-256
    """

    format: int
    receiver: str
    fingerprint: str
    dtype: str
    made: str
    command: str
    notebooks: dict[str, dict[str, Any]]
    rows: int
    sha256: dict[str, str]


class Row(msgspec.Struct, omit_defaults=True):
    """One frozen answer: a reply (``text``) or log-likelihoods in nats (``scores``)."""

    asked: str
    text: str | None = None
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    finish: str = "stop"
    scores: list[float] | None = None
    lane: str = FIRST


def asked_key(prompt_name: str, decoding: str) -> str:
    """Return the name of a question: 32 hex digits of the SHA-256 of the prompt's name (`prompt_text_key`) and the decoding."""
    return digest([prompt_name, decoding])[:32]


def prompt_text_key(prompt: Prompt) -> str:
    """Return the SHA-256 of a prompt as text; no tokenizer has a part in it.

    The order of a schema's keys counts: it is the order in which a reply is written.
    """
    # the standard encoder escapes what UTF-8 cannot hold (a lone surrogate in a message)
    return hashlib.sha256(json.dumps(msgspec.to_builtins(prompt)).encode("ascii")).hexdigest()


def text_key(text: str) -> str:
    """Return the name under which a text's token count is kept."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class FrozenCorpus:
    """The content of one folder of `data/frozen/`, read once and checked against its hashes.

    Raises
    ------
    FrozenError
        If the folder or a file is missing, torn, or not what the manifest says.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        try:
            self.manifest = msgspec.json.decode((self.folder / MANIFEST).read_bytes(), type=Manifest)
        except FileNotFoundError:
            there = ", ".join(frozen_names(self.folder.parent)) or "none"
            raise FrozenError(
                f"{self.folder}: no frozen replies; there are those of: {there}; use corpus=live for any other receiver"
            ) from None
        except msgspec.DecodeError as error:
            raise FrozenError(f"{self.folder / MANIFEST}: {error}; restore the file") from None
        if self.manifest.format != FORMAT:
            raise FrozenError(f"{self.folder}: layout {self.manifest.format}, this version reads {FORMAT}")
        self.rows: dict[tuple[str, str], Row] = {}
        for line in self._lines(REPLIES):
            row = msgspec.json.decode(line, type=Row)
            self.rows[row.lane, row.asked] = row
        self.tokens: dict[str, int] = {}
        for line in self._lines(TOKENS):
            name, count = msgspec.json.decode(line, type=tuple[str, int])
            self.tokens[name] = count

    def _lines(self, name: str) -> list[bytes]:
        path = self.folder / name
        try:
            packed = path.read_bytes()
        except FileNotFoundError:
            raise FrozenError(f"{path}: no such file; restore it") from None
        if hashlib.sha256(packed).hexdigest() != self.manifest.sha256.get(name):
            raise FrozenError(f"{path}: its SHA-256 is not the manifest's; restore the file")
        return gzip.decompress(packed).splitlines()


def frozen_names(root: Path | str) -> list[str]:
    """Return the receivers whose replies are frozen under `root`."""
    return sorted(path.parent.name for path in Path(root).glob(f"*/{MANIFEST}"))


class Coverage(msgspec.Struct):
    """How often a run's questions were answered from the file, and how often live."""

    frozen: int = 0
    live: int = 0


class FrozenReceiver:
    """A receiver that reads frozen replies; it implements the `Receiver` protocol.

    Parameters
    ----------
    corpus : FrozenCorpus
    open_live : callable
        Opens the receiver that answers what is not in the file. It is called when first needed.
    lane : str
        ``first`` for the study's replies, ``again`` for the second answers of the noise control.

    Attributes
    ----------
    coverage : Coverage
        Questions answered so far, from the file and live; shared with `again`.
    """

    def __init__(self, corpus: FrozenCorpus, open_live: Callable[[], Receiver], *, lane: str = FIRST) -> None:
        self.corpus = corpus
        self.name = corpus.manifest.receiver
        self.fingerprint = f"frozen:{corpus.manifest.sha256[REPLIES]}"
        self.lane = lane
        self.coverage = Coverage()
        self.seen: dict[str, tuple[Prompt, dict[str, Any]]] = {}
        self._live = _Once(open_live)

    @property
    def live(self) -> Receiver:
        """The receiver itself, opened when first asked for."""
        return self._live()

    def again(self) -> FrozenReceiver:
        """Return a receiver that reads the second answers to the same questions."""
        return self._sibling(AGAIN, self._live)

    def stored(self, store: Store, **options: Any) -> FrozenReceiver:
        """Return a receiver whose live answers go through `store`; frozen ones are in the file already."""
        return self._sibling(self.lane, _Once(lambda: StoredReceiver(self.live, store, **options)))

    def _sibling(self, lane: str, live: _Once) -> FrozenReceiver:
        other = FrozenReceiver(self.corpus, live, lane=lane)
        other.coverage, other.seen = self.coverage, self.seen
        return other

    def reply(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        samples: int = 1,
    ) -> list[Reply]:
        """Answer every prompt, from the file where it can; see `Receiver.reply`. Sampled replies are always live."""
        if temperature > 0:
            self.coverage.live += len(prompts)
            return self.live.reply(prompts, max_tokens=max_tokens, stop=stop, temperature=temperature, samples=samples)
        decoding = reply_decoding(max_tokens, stop)
        rows = self._rows(prompts, [decoding] * len(prompts))
        for prompt, row in zip(prompts, rows, strict=True):
            if row is not None and self.lane == FIRST:
                self.seen.setdefault(row.asked, (prompt, {"max_tokens": max_tokens, "stop": stop}))
        missing = [prompt for prompt, row in zip(prompts, rows, strict=True) if row is None]
        fresh = iter(self.live.reply(missing, max_tokens=max_tokens, stop=stop) if missing else [])
        replies = [next(fresh) if row is None else _reply(row) for row in rows]
        return [reply for reply in replies for _ in range(samples)]

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        """Return log-likelihoods in nats, shape (n_prompts, n_options); see `Receiver.score`."""
        listed = options_per_prompt(len(prompts), options)
        rows = self._rows(prompts, [decoding_key(options=row) for row in listed])
        lacking = [index for index, row in enumerate(rows) if row is None]
        fresh = iter(self.live.score([prompts[i] for i in lacking], [listed[i] for i in lacking]) if lacking else [])
        scores = [next(fresh) if row is None else row.scores for row in rows]
        return np.array(scores, dtype=float).reshape(len(prompts), len(listed[0]) if listed else 0)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the receiver's own tokens in each text, from the file where it can."""
        keys = [text_key(text) for text in texts]
        lacking = [text for text, key in zip(texts, keys, strict=True) if key not in self.corpus.tokens]
        fresh = iter(self.live.count_tokens(lacking) if lacking else [])
        return [self.corpus.tokens[key] if key in self.corpus.tokens else next(fresh) for key in keys]

    def prompt_key(self, prompt: Prompt) -> str:
        """Return the SHA-256 of the prompt as text."""
        return prompt_text_key(prompt)

    def _rows(self, prompts: Sequence[Prompt], decodings: Sequence[str]) -> list[Row | None]:
        names = map(prompt_text_key, prompts)
        keys = [asked_key(name, decoding) for name, decoding in zip(names, decodings, strict=True)]
        rows = [self.corpus.rows.get((self.lane, key)) for key in keys]
        self.coverage.frozen += sum(row is not None for row in rows)
        self.coverage.live += sum(row is None for row in rows)
        return rows


class _Once:
    """A callable that opens something at the first call and returns it at every further one."""

    def __init__(self, opened: Callable[[], Receiver]) -> None:
        self._open = opened
        self._kept: Receiver | None = None

    def __call__(self) -> Receiver:
        if self._kept is None:
            self._kept = self._open()
        return self._kept


def reply_decoding(max_tokens: int, stop: Sequence[str]) -> str:
    """Return the decoding part of a greedy question's name; the store names its rows by the same text."""
    return decoding_key(max_tokens=int(max_tokens), stop=sorted(set(stop)), temperature=0.0)


def _reply(row: Row) -> Reply:
    return Reply(
        text=row.text or "",
        prompt_tokens=row.prompt_tokens,
        new_tokens=row.new_tokens,
        seconds=math.nan,  # another machine's clock, which nobody should read
        finish=row.finish,
    )


def live_of(receiver: Receiver) -> Receiver:
    """Return the receiver that computes: the one behind frozen replies, or `receiver` itself. For latency."""
    return receiver.live if isinstance(receiver, FrozenReceiver) else receiver


def again_of(receiver: Receiver) -> Receiver:
    """Return who gives second answers to the same questions: the file's, or `receiver` itself. For noise controls."""
    return receiver.again() if isinstance(receiver, FrozenReceiver) else receiver


def live_sample(receiver: Receiver, count: int, *, store: Store | None = None, seed: int = 0) -> pd.DataFrame:
    """Ask a random sample of the questions that were answered from the file again, live.

    Parameters
    ----------
    receiver : the one opened for the run; a receiver without frozen replies gives an empty table
    count : at most this many questions, drawn by hash among those of this run
    store : keeps the live answers, so that the same run asks only once

    Returns
    -------
    DataFrame with ``asked``, ``frozen``, ``live`` (texts) and ``identical``
    """
    import pandas as pd

    columns = ["asked", "frozen", "live", "identical"]
    if not isinstance(receiver, FrozenReceiver) or not count:
        return pd.DataFrame(columns=columns)
    drawn = hash_order(receiver.seen, "live-sample", seed)[:count]
    asking = StoredReceiver(receiver.live, store, progress="live sample") if store else receiver.live
    groups: dict[str, list[str]] = {}
    for key in drawn:
        groups.setdefault(json.dumps(receiver.seen[key][1]), []).append(key)
    rows = []
    for keys in groups.values():
        replies = asking.reply([receiver.seen[key][0] for key in keys], **receiver.seen[keys[0]][1])
        for key, reply in zip(keys, replies, strict=True):
            text = receiver.corpus.rows[FIRST, key].text
            rows.append((key, text, reply.text, text == reply.text))
    return pd.DataFrame(rows, columns=columns)


def said_of_origin(receiver: Receiver, sample: pd.DataFrame | None = None) -> str:
    """Return one sentence that says where a run's replies come from, for the page on which the result stands."""
    if not isinstance(receiver, FrozenReceiver):
        return f"All replies are of `{receiver.name}`, computed on this machine or read from its store."
    made, coverage = receiver.corpus.manifest, receiver.coverage
    said = (
        f"Frozen replies: {coverage.frozen} answers of `{made.receiver}` ({made.dtype}, made {made.made}) were read from "
        f"`data/frozen/{receiver.corpus.folder.name}`, {coverage.live} were computed live."
    )
    if sample is not None and len(sample):
        same = int(sample["identical"].sum())
        said += f" Of {len(sample)} drawn at random and asked again live, {same} came out identical."
    return said
