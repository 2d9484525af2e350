"""Put a store in front of a receiver, so that nothing is computed twice and nothing is lost.

`StoredReceiver` answers from the store what the store has, asks the receiver for the rest in chunks, and commits
each chunk before the next one starts: killing the process anywhere costs at most the chunk in flight. Order is
kept, identical prompts of one call are computed once, failed calls are recorded and tried again by the next call.

Latency is never taken from the store: a reply that was stored comes back with `seconds = nan`. With `no_cache`
everything is computed, nothing is read or written, and the seconds are real.

Not covered: sharing partial work inside a chunk; prompts of different decoding parameters in one call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from lib.models.receiver import Prompt, Receiver, Reply, options_per_prompt
from lib.runs.progress import Progress
from lib.runs.store import Key, Store, decoding_key

_NOT_MEASURED = math.nan  # the seconds of a stored reply: another run's clock
_Compute = Callable[[Any, int], list[list[Any]]]  # (what is asked, samples) -> samples of each


class _Codec(msgspec.Struct, frozen=True):
    """How one kind of value is written as JSON, read back, and recognised as failed."""

    pack: Callable[[Any], dict[str, Any]]
    unpack: Callable[[dict[str, Any]], Any]
    error: Callable[[Any], str | None]


class StoredReceiver:
    """A receiver that remembers; it implements the `Receiver` protocol.

    Parameters
    ----------
    receiver : Receiver
        Who computes what is missing.
    store : Store
        Where replies are kept.
    chunk : int
        Prompts computed between two commits: the most that a kill can cost. Larger chunks share more prefixes.
    progress : str or False, optional
        Label of the progress line; default the receiver's name, False for silence.
    no_cache : bool
        Compute everything, read and write nothing: for latency measurements.

    Attributes
    ----------
    computed : int
        Prompts that this object had the receiver compute.
    """

    def __init__(
        self,
        receiver: Receiver,
        store: Store,
        *,
        chunk: int = 64,
        progress: str | bool | None = None,
        no_cache: bool = False,
    ) -> None:
        if chunk < 1:
            raise ValueError(f"chunk: {chunk}; at least one prompt must be computed between two commits")
        self.receiver = receiver
        self.store = store
        self.chunk = chunk
        self.no_cache = no_cache
        self.name = receiver.name
        self.fingerprint = receiver.fingerprint
        self.computed = 0
        self._label = "" if progress is False else str(progress) if isinstance(progress, str) else receiver.name

    def reply(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        samples: int = 1,
    ) -> list[Reply]:
        """Answer every prompt, from the store where it can; see `Receiver.reply`.

        At temperature 0 one reply is stored and repeated `samples` times. Above 0 the k samples are k rows; when some
        of a prompt's samples are missing, all up to the last missing one are computed (a receiver names its samples by
        index) and the missing ones are kept.
        """
        if samples < 1:
            raise ValueError(f"samples: {samples}; at least one reply a prompt")
        decoding = decoding_key(max_tokens=int(max_tokens), stop=sorted(set(stop)), temperature=float(temperature))
        width = samples if temperature > 0 else 1

        def compute(some: Sequence[Prompt], wanted: int) -> list[list[Reply]]:
            replies = self.receiver.reply(
                some, max_tokens=max_tokens, stop=stop, temperature=temperature, samples=wanted
            )
            if len(replies) != len(some) * wanted:
                raise ValueError(f"{self.name}: {len(replies)} replies to {len(some)} prompts x {wanted} samples")
            return [replies[i * wanted : (i + 1) * wanted] for i in range(len(some))]

        keys = [Key("reply", self.fingerprint, self.prompt_key(prompt), decoding) for prompt in prompts]
        rows = self._rows(_REPLY, keys, prompts, width, compute)
        return [reply for key in keys for reply in (rows[key] if temperature > 0 else rows[key] * samples)]

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        """Return log-likelihoods in nats, shape (n_prompts, n_options), from the store where it can.

        See `Receiver.score`. A prompt asked with two option lists is two rows.
        """
        listed = options_per_prompt(len(prompts), options)
        keys = [
            Key("score", self.fingerprint, self.prompt_key(prompt), decoding_key(options=row))
            for prompt, row in zip(prompts, listed, strict=True)
        ]

        def compute(some: Sequence[tuple[Prompt, list[str]]], wanted: int) -> list[list[np.ndarray]]:
            scores = self.receiver.score([prompt for prompt, _ in some], [row for _, row in some])
            expected = (len(some), len(some[0][1]))
            if scores.shape != expected:
                raise ValueError(f"{self.name}: scores of shape {scores.shape}, expected {expected}")
            return [[np.asarray(row, dtype=float)] for row in scores]

        rows = self._rows(_SCORES, keys, list(zip(prompts, listed, strict=True)), 1, compute)
        width = len(listed[0]) if listed else 0
        return np.array([rows[key][0] for key in keys], dtype=float).reshape(len(prompts), width)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the receiver's own tokens in each text."""
        return self.receiver.count_tokens(texts)

    def prompt_key(self, prompt: Prompt) -> str:
        """Return the receiver's name of the exact input."""
        return self.receiver.prompt_key(prompt)

    def _rows(
        self, codec: _Codec, keys: Sequence[Key], asked: Sequence[Any], width: int, compute: _Compute
    ) -> dict[Key, list[Any]]:
        """Return the values of samples 0 .. width - 1 of each distinct key."""
        first = dict(zip(reversed(keys), reversed(asked), strict=True))
        distinct = list(dict.fromkeys(keys))  # in the order given
        samples = {key: [msgspec.structs.replace(key, sample=s) for s in range(width)] for key in distinct}
        values: dict[Key, Any] = {}
        if not self.no_cache:
            stored = self.store.get([row for rows in samples.values() for row in rows])
            values = {row: codec.unpack(value) for row, value in stored.items()}
        missing = [key for key in distinct if any(row not in values for row in samples[key])]
        with self._progress(len(distinct), len(distinct) - len(missing)) as progress:
            for start in range(0, len(missing), self.chunk):
                some = missing[start : start + self.chunk]
                absent = [row for key in some for row in samples[key] if row not in values]
                wanted = 1 + max(row.sample for row in absent)
                with self._failures_recorded(absent):
                    computed = compute([first[key] for key in some], wanted)
                self.computed += len(some)
                fresh: dict[Key, Any] = {}
                for key, found in zip(some, computed, strict=True):
                    fresh.update(zip(samples[key][:wanted], found[:width], strict=True))
                fresh = {row: fresh[row] for row in absent}
                values.update(fresh if self.no_cache else self._keep(codec, fresh))
                if progress:
                    progress.advance(len(some))
        return {key: [values[row] for row in samples[key]] for key in distinct}

    def _keep(self, codec: _Codec, fresh: dict[Key, Any]) -> dict[Key, Any]:
        """Commit a chunk. Where another process was first its value is returned: both report what is stored."""
        failed = [(row, reason) for row, value in fresh.items() if (reason := codec.error(value)) is not None]
        broken = {row for row, _ in failed}
        good = {row: codec.pack(value) for row, value in fresh.items() if row not in broken}
        if failed:
            self.store.put_failures(failed, name=self.name)
        if good and self.store.put(good.items(), name=self.name) < len(good):
            kept = self.store.get(list(good), count=False)
            theirs = {row: value for row, value in kept.items() if value != good[row]}
            return {**fresh, **{row: codec.unpack(value) for row, value in theirs.items()}}
        return fresh

    @contextmanager
    def _failures_recorded(self, rows: Sequence[Key]) -> Iterator[None]:
        """Record an exception of the receiver for every row it cost, then let it through."""
        try:
            yield
        except Exception as error:
            if not self.no_cache:
                reason = f"{type(error).__name__}: {error}"
                self.store.put_failures([(row, reason) for row in rows], name=self.name)
            raise

    @contextmanager
    def _progress(self, total: int, done: int) -> Iterator[Progress | None]:
        if not self._label or done == total:
            yield None
            return
        with Progress(total, self._label, done=done) as progress:
            yield progress


def _pack_reply(reply: Reply) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(reply)
    del value["error"]
    value["token_ids"] = [int(token) for token in reply.token_ids]
    return value


def _unpack_reply(value: dict[str, Any]) -> Reply:
    return Reply(
        text=value["text"],
        token_ids=tuple(value["token_ids"]),
        prompt_tokens=value["prompt_tokens"],
        new_tokens=value["new_tokens"],
        seconds=_NOT_MEASURED,
        finish=value["finish"],
    )


def _reply_error(reply: Reply) -> str | None:
    return (reply.error or "no reason given") if reply.finish == "error" or reply.error is not None else None


def _pack_scores(scores: np.ndarray) -> dict[str, Any]:
    # an impossible option has log-likelihood -inf, which JSON has no number for
    return {"scores": ["-inf" if value == -math.inf else float(value) for value in scores]}


def _unpack_scores(value: dict[str, Any]) -> np.ndarray:
    return np.array([float(score) for score in value["scores"]])


def _scores_error(scores: np.ndarray) -> str | None:
    return "a log-likelihood is not a number" if bool(np.isnan(scores).any() or (scores == math.inf).any()) else None


_REPLY = _Codec(_pack_reply, _unpack_reply, _reply_error)
_SCORES = _Codec(_pack_scores, _unpack_scores, _scores_error)
