"""Make one message of two: the candidates among which a merge chooses.

Context
-------
Where two messages are merged, a small model D writes the text that replaces both (MOC paper, eq. 13), several times over, and
the best candidate is kept (eq. 15). `ReceiverDistiller` asks any receiver: five prompts once each, as the paper's public
code does, or one prompt with several samples, as its text says. `ExtractiveDistiller` asks no model: it picks sentences.

Intuition
---------
A distiller proposes, it does not choose: it never sees the other messages, the target agent or the question, and what is too
long, empty or far from its sources is sorted out by `lib.moc.consolidate`. It is handed all pairs that are merged at one time,
of all agents that wait for it, because one call for many prompts costs far less than many calls.

How to read the result
----------------------
A candidate that could not be made is marked `failed` and keeps the reason. The tokens of every candidate count as cost, also of
those that are rejected; a count that the backend does not tell is None. The extractive distiller spends no tokens: 0.

Not covered: facts. Nothing here checks that a candidate says only what its sources say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec
import numpy as np

from lib.moc.distill_prompts import STYLES, distill_prompt, distill_prompts_hash, message_lines, unfence
from lib.moc.length import CountTokens, sentences
from lib.moc.similarity import DIGITS, unit_rows
from lib.models.receiver import Prompt, Receiver, Reply
from lib.seeds import digest

Embed = Callable[[Sequence[str]], np.ndarray]  # texts -> vectors, shape (n_texts, d)
Mode = Literal["styles", "samples"]
TEMPERATURES = {"styles": 0.1, "samples": 0.7}  # of the paper's public code; settled here for "samples"
ROOM = 1.25  # tokens a candidate may take to be written, in caps: its tokenizer need not be the one that sets the cap
LEAST_ROOM = 32  # tokens


class Item(msgspec.Struct, frozen=True):
    """One message on its way to a target agent: as it was said, or merged from several.

    Parameters
    ----------
    text : what the target will read, without a header
    ids, roles : of the agents whose words are in it, in the order in which they were merged; one role an id
    hop : hops from the agent to the target, the smallest where merged
    rank : place in the target's evidence order, far to near; a merged item keeps the rank of the later of the two

    Raises
    ------
    ValueError
        Without an id, or when there is not one role for each id.
    """

    text: str
    ids: tuple[str, ...]
    roles: tuple[str, ...]
    hop: int
    rank: int

    def __post_init__(self) -> None:
        if not self.ids or len(self.ids) != len(self.roles):
            raise ValueError(f"item {self.ids}: needs at least one id and one role for each, got roles {self.roles}")


class Candidate(msgspec.Struct, frozen=True):
    """One proposal for a merged text.

    Parameters
    ----------
    text : plain text; empty when failed
    style : a key of `STYLES`, ``sample-<i>`` or ``extract``
    prompt_tokens, new_tokens : what it cost, in the distiller's own tokens; None where unknown
    failed, error : whether the call failed, and why
    seconds : the distiller's share of work for it; nan where the reply came from a store, so was not timed
    """

    text: str
    style: str
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    failed: bool = False
    error: str | None = None
    seconds: float = 0.0


@runtime_checkable
class Distiller(Protocol):
    """Proposes merged texts.

    Attributes
    ----------
    name : str
        Short name for tables.
    fingerprint : str
        Identity of all that decides a candidate besides the pair and the cap.
    """

    name: str
    fingerprint: str

    def candidates(self, pairs: Sequence[tuple[Item, Item]], caps: Sequence[int]) -> list[list[Candidate]]:
        """Return the candidates of every pair (earlier, later), in order; `caps` are tokens of the target's tokenizer."""
        ...


class ReceiverDistiller:
    """A model that is asked to merge.

    Parameters
    ----------
    receiver : Receiver
        Who writes; usually smaller than the agents (paper: gemma2-9b beside 27b and more).
    mode : str
        "styles" asks each of the five prompts once; "samples" asks the first one several times.
    count : int
        Candidates a pair (M of the paper), at most 5 in "styles".
    temperature : float, optional
        Default 0.1 in "styles", 0.7 in "samples".

    Raises
    ------
    ValueError
        For an unknown mode, a count out of range, or samples that would all be equal.
    """

    def __init__(
        self, receiver: Receiver, mode: Mode = "styles", count: int = 5, temperature: float | None = None
    ) -> None:
        if mode not in TEMPERATURES:
            raise ValueError(f"mode {mode!r} is not known; choose one of {', '.join(TEMPERATURES)}")
        if count < 1 or (mode == "styles" and count > len(STYLES)):
            limit = f"1 to {len(STYLES)}" if mode == "styles" else "at least 1"
            raise ValueError(f"count: mode {mode!r} makes {limit} candidates a pair, not {count}")
        self.temperature = TEMPERATURES[mode] if temperature is None else temperature
        if mode == "samples" and count > 1 and self.temperature <= 0:
            raise ValueError("temperature: samples at 0 are all the same; use mode='styles' or a temperature above 0")
        self.receiver = receiver
        self.mode = mode
        self.count = count
        self.name = f"{receiver.name}, {count} {mode}"
        parts = (distill_prompts_hash(), mode, count, self.temperature, ROOM, LEAST_ROOM)
        self.fingerprint = digest("receiver-distiller-1", receiver.fingerprint, *parts)

    def candidates(self, pairs: Sequence[tuple[Item, Item]], caps: Sequence[int]) -> list[list[Candidate]]:
        """Ask for all pairs at once; see `Distiller.candidates`.

        A call of a receiver has one limit for its replies. So pairs are asked in groups of about equal caps (a group spans a
        factor of two), which also makes a candidate independent of the pairs it is asked with.
        """
        if not pairs:
            return []
        styles = list(STYLES)[: self.count if self.mode == "styles" else 1]
        prompts = self._prompts(pairs, caps, styles)
        groups: dict[int, list[int]] = {}
        for index, cap in enumerate(caps):
            groups.setdefault(reply_room(cap), []).append(index)
        made: list[list[Candidate]] = [[] for _ in pairs]
        samples = self.count if self.mode == "samples" else 1
        for room, members in sorted(groups.items()):
            asked = [prompt for index in members for prompt in prompts[index]]
            replies = self.receiver.reply(asked, max_tokens=room, temperature=self.temperature, samples=samples)
            if len(replies) != len(asked) * samples:
                raise ValueError(f"{self.receiver.name}: {len(replies)} replies to {len(asked)} prompts x {samples}")
            for place, index in enumerate(members):
                own = replies[place * self.count : (place + 1) * self.count]
                labels = styles if self.mode == "styles" else [f"sample-{i}" for i in range(samples)]
                made[index] = [_candidate(reply, label) for reply, label in zip(own, labels, strict=True)]
        return made

    def _prompts(
        self, pairs: Sequence[tuple[Item, Item]], caps: Sequence[int], styles: Sequence[str]
    ) -> list[list[Prompt]]:
        """Return one prompt a style for every pair; the length is told as a share and in words, since models count no tokens."""
        tokens = self.receiver.count_tokens([item.text for pair in pairs for item in pair])
        prompts = []
        for index, ((earlier, later), cap) in enumerate(zip(pairs, caps, strict=True)):
            length = max(1, tokens[2 * index] + tokens[2 * index + 1])
            cap = min(cap, length)
            words = len(earlier.text.split()) + len(later.text.split())
            limit = max(1, cap * words // length) if 4 * words >= length else None  # fewer: no spaces between words
            messages = (
                message_lines("AGENT_1", earlier.ids, earlier.roles, earlier.text),
                message_lines("AGENT_2", later.ids, later.roles, later.text),
            )
            percent = max(1, 100 * cap // length)
            prompts.append([distill_prompt(messages, style, percent, limit) for style in styles])
        return prompts


def reply_room(cap: int) -> int:
    """Return the tokens a candidate may take to be written: a power of two, so that similar caps share a call.

    >>> reply_room(10), reply_room(60), reply_room(102), reply_room(103)
    (32, 128, 128, 256)
    """
    return max(LEAST_ROOM, 2 ** math.ceil(math.log2(max(1.0, ROOM * cap))))


def _candidate(reply: Reply, style: str) -> Candidate:
    failed = reply.finish == "error" or reply.error is not None
    return Candidate(
        text=unfence(reply.text),
        style=style,
        prompt_tokens=reply.prompt_tokens,
        # A failed call names no new tokens; that it made none is not known.
        new_tokens=reply.new_tokens,
        failed=failed,
        error=(reply.error or "the call failed without a reason") if failed else None,
        seconds=reply.seconds,
    )


class ExtractiveDistiller:
    """A deterministic distiller without a model: sentences of both messages, chosen by maximal marginal relevance.

    The next sentence is the one with the best `balance` x (cosine with the two messages' mean direction) minus
    (1 - `balance`) x (largest cosine with a sentence already chosen), if the text stays within the cap with it (Carbonell and
    Goldstein 1998). Chosen sentences stand in reading order, the earlier message first; a sentence that occurs
    again is taken once. Where no sentence fits, the best one is proposed whole, for the merge to cut.

    Parameters
    ----------
    embed : callable
        Texts to vectors, shape (n_texts, d).
    count_tokens : callable
        Tokens of each text by the target's tokenizer, which sets the caps.
    balance : float
        Weight of relevance against novelty, 0 to 1.

    Raises
    ------
    ValueError
        For a balance outside 0 to 1.
    """

    def __init__(self, embed: Embed, count_tokens: CountTokens, balance: float = 0.7) -> None:
        if not 0 <= balance <= 1:
            raise ValueError(f"balance: a weight is between 0 and 1, not {balance}")
        self.embed = embed
        self.count_tokens = count_tokens
        self.balance = balance
        self.name = "extractive"
        self.fingerprint = digest("extractive-distiller-1", balance)

    def candidates(self, pairs: Sequence[tuple[Item, Item]], caps: Sequence[int]) -> list[list[Candidate]]:
        """Propose one text for every pair; see `Distiller.candidates`."""
        parts = [_distinct([*sentences(f"{earlier.text}\n"), *sentences(later.text)]) for earlier, later in pairs]
        texts = [text for (u, v), own in zip(pairs, parts, strict=True) for text in (u.text, v.text, *own)]
        vectors = unit_rows(self.embed(texts)) if texts else np.zeros((0, 1))
        made, start = [], 0
        for own, cap in zip(parts, caps, strict=True):
            sources, rows = vectors[start : start + 2], vectors[start + 2 : start + 2 + len(own)]
            start += 2 + len(own)
            text = self._extract(own, rows, unit_rows(sources.sum(axis=0, keepdims=True))[0], cap)
            made.append([Candidate(text=text, style="extract", prompt_tokens=0, new_tokens=0)])
        return made

    def _extract(self, parts: Sequence[str], vectors: np.ndarray, direction: np.ndarray, cap: int) -> str:
        if not parts:
            return ""
        relevance = np.round(vectors @ direction, DIGITS)
        redundancy = np.full(len(parts), -1.0)
        chosen: list[int] = []
        open_parts = set(range(len(parts)))
        while open_parts:
            seen = redundancy if chosen else np.zeros(len(parts))
            worth = np.round(self.balance * relevance - (1 - self.balance) * seen, DIGITS)
            best = min(open_parts, key=lambda index: (-worth[index], index))
            open_parts.remove(best)
            if self.count_tokens([_joined(parts, [*chosen, best])])[0] <= cap:
                chosen.append(best)
                redundancy = np.maximum(redundancy, np.round(vectors @ vectors[best], DIGITS))
        if not chosen:
            chosen = [int(np.argmax(relevance))]
        return _joined(parts, chosen)


def _distinct(parts: Sequence[str]) -> list[str]:
    """Return the parts that say something, each once; parts that differ in white space alone are the same."""
    first: dict[str, str] = {}
    for part in parts:
        if part.strip():
            first.setdefault(" ".join(part.split()), part)
    return list(first.values())


def _joined(parts: Sequence[str], chosen: Sequence[int]) -> str:
    """Return the chosen parts in reading order; parts without white space behind them get a space."""
    texts = [parts[index] for index in sorted(chosen)]
    return "".join(text if text[-1].isspace() else f"{text} " for text in texts).rstrip()
