"""How sure a receiver is of its own next words, with a message and without.

Context
-------
Section 3.2 of the paper. Whether a message helps at a step is read from the receiver, not from the answer: s is the
surprisal, in nats, of what the receiver itself would say first, and the estimated gain of a message is
max(0, s without - s with). A probe is capped at four tokens.

Intuition
---------
A receiver that becomes surer of its own reply has probably found something in the message. It need not be right: this is a
difference of confidence, and a confident wrong message earns the same gain. Nothing here knows the answer.

Two signals are offered. ``first_token`` is the paper's: the receiver's own first tokens. Where every reply is JSON this is a
brace, and says how sure the receiver is of the format. ``action`` lets each action of the step follow the opening of the
reply and takes the surprisal of the likeliest, among the actions alone: how sure it is of the decision.

How to read the result
----------------------
Null means that a receiver said nothing or failed; such a message is not taken. Equal prompts are probed once: `calls` counts
distinct ones. A receiver without log-probabilities is refused, never replaced by a guess.

Not covered: surprisal of the right answer, which no decision may see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from lib.coordination.arms import Exposure
from lib.coordination.prompts import receiver_prompt
from lib.coordination.sending import failed, reply_all
from lib.models.receiver import Prompt, Receiver

Signal = Literal["first_token", "action"]
PROBE_CAP = 4  # tokens (paper)
OPENING = '{"action_type": "'


class NoLogProbabilities(ValueError):
    """The receiver cannot say how likely its words are."""


class Probe(NamedTuple):
    """One answer of a receiver to a probe.

    `surprisal` is in nats, mean over the tokens looked at; None where there was none. `tokens` were read and written; None where
    unknown.
    """

    surprisal: float | None
    tokens: int | None


class Probed(NamedTuple):
    """Probes in the order of the exposures, and how many distinct prompts were asked."""

    probes: list[Probe]
    calls: int


def probe(
    receiver: Receiver, exposures: Sequence[Exposure], *, signal: Signal = "first_token", tokens: int = 1
) -> Probed:
    """Return the receiver's surprisal at every exposure.

    Parameters
    ----------
    receiver : must implement `score`; replies and scores of all exposures are asked in one call each
    exposures : steps with what the receiver is shown; equal prompts are asked once
    signal : ``first_token`` or ``action``
    tokens : own first tokens that ``first_token`` looks at, 1 (the paper) to 4

    Raises
    ------
    NoLogProbabilities
        If the receiver has none.
    ValueError
        For an unknown signal or a number of tokens above the cap.
    """
    if signal not in ("first_token", "action"):
        raise ValueError(f"signal: {signal!r} is not known; choose first_token or action")
    if not 1 <= tokens <= PROBE_CAP:
        raise ValueError(f"tokens: a probe looks at 1 to {PROBE_CAP} tokens, not {tokens}")
    # Free of a schema: a forced opening says nothing about the receiver.
    prompts = [receiver_prompt(*exposure, constrained=False) for exposure in exposures]
    keys = [receiver.prompt_key(prompt) for prompt in prompts]
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    distinct = sorted(first.values())
    asked = [prompts[place] for place in distinct]
    if signal == "first_token":
        probes = _first_tokens(receiver, asked, tokens)
    else:
        probes = _actions(receiver, asked, [exposures[place].step.actions for place in distinct])
    found = {keys[place]: one for place, one in zip(distinct, probes, strict=True)}
    return Probed([found[key] for key in keys], len(distinct))


def gain(without: Probe, given: Probe) -> float | None:
    """Return max(0, surprisal without a message - surprisal with it) in nats; None where either is unknown.

    >>> (
    ...     gain(Probe(0.75, 10), Probe(0.25, 20)),
    ...     gain(Probe(0.25, 10), Probe(0.75, 20)),
    ...     gain(Probe(None, 10), Probe(0.5, 20)),
    ... )
    (0.5, 0.0, None)
    """
    if without.surprisal is None or given.surprisal is None:
        return None
    return max(0.0, without.surprisal - given.surprisal)


def _first_tokens(receiver: Receiver, prompts: Sequence[Prompt], tokens: int) -> list[Probe]:
    """Return the mean surprisal of the receiver's own first tokens."""
    replies = reply_all(receiver, prompts, tokens)
    said = [place for place, reply in enumerate(replies) if not failed(reply) and reply.text]
    scores = _scores(receiver, [prompts[place] for place in said], [[replies[place].text] for place in said])
    totals = dict(zip(said, scores[:, 0].tolist(), strict=True))
    probes = []
    for place, reply in enumerate(replies):
        count = len(reply.token_ids) or reply.new_tokens or 1
        known = place in totals and math.isfinite(totals[place])
        paid = (
            None if reply.prompt_tokens is None or reply.new_tokens is None else reply.prompt_tokens + reply.new_tokens
        )
        probes.append(Probe(-totals[place] / count if known else None, paid))
    return probes


def _actions(receiver: Receiver, prompts: Sequence[Prompt], actions: Sequence[Sequence[str]]) -> list[Probe]:
    """Return the surprisal of the likeliest action among a step's actions, after the opening of a reply."""
    options = [[f'{OPENING}{name}"' for name in names] for names in actions]
    lengths = [receiver.count_tokens(row) for row in options]
    # Scores refuse a prompt that is too long with an error; a reply says so for its own row alone.
    replies = reply_all(receiver, prompts, max((max(row) for row in lengths), default=1))
    probes: list[Probe] = [Probe(None, None)] * len(prompts)
    for size in sorted({len(row) for row in options}):  # one call serves steps with equally many actions
        places = [place for place, row in enumerate(options) if len(row) == size and not failed(replies[place])]
        scores = _scores(receiver, [prompts[place] for place in places], [options[place] for place in places])
        for place, row in zip(places, scores, strict=True):
            nats = float(np.logaddexp.reduce(row) - row.max())  # of the likeliest, among the actions
            read = replies[place].prompt_tokens
            paid = None if read is None else read + sum(lengths[place])
            probes[place] = Probe(nats if math.isfinite(nats) else None, paid)
    return probes


def _scores(receiver: Receiver, prompts: Sequence[Prompt], options: Sequence[Sequence[str]]) -> np.ndarray:
    """Return log-likelihoods, (n_prompts, n_options), or refuse a receiver that has none."""
    if not prompts:
        return np.zeros((0, 1))
    try:
        return receiver.score(prompts, options)
    except (NotImplementedError, AttributeError) as problem:
        raise NoLogProbabilities(
            f"receiver {receiver.name!r} gives no log-probabilities, and a gain is a difference of them; use a local model, or "
            "the threshold controller (lib.coordination.controller), which needs none"
        ) from problem
