"""Merge messages that say nearly the same until no more are left than the budget allows: the operator Phi.

Context
-------
An agent that looks several hops back would read too much. The MOC paper (section 4.2, Algorithm 1) therefore
merges its messages: the most similar ones first, two into one, until at most B remain (eq. 16, `lib.moc.flow.message_budget`).
The merged text is written by a distiller (eq. 13), chosen among candidates by its closeness to both sources (eq. 15), and
held to kappa times their tokens.

Intuition
---------
Three things survive a merge. *Place*: the later of the two is the anchor, so the order far to near holds. *Origin*: every
source id is in exactly one item at any time. *Length*: the cap is enforced, not asked for, so the texts can only get
shorter. What may not survive is content, and that is what an experiment with Phi measures.

An iteration merges all pairs within epsilon of the closest (`lib.moc.similarity`), even where fewer would do. It
can so end below the budget, yet never below ceil((B + 1) / 2), since B + 1 messages make at most half as many pairs.

How to read the result
----------------------
`Consolidation.merges` tells for each merge what went in, what came out, and by which way: a candidate as it was, one cut to
the cap (`length_repaired`), or, where every candidate failed or was empty, the beginning of the later message
(`distill_failed`). `score` is between -2 and 2, the sum of two cosines. `seconds` keep embedding, similarity and distillation
apart (Table 3 of the paper); a call that served several agents is shared out by the texts it was asked for.

Not covered: choosing the budget, the block that shows the items (`lib.moc.prompts`), and exceptions of a distiller: a call that
fails comes back as a failed candidate, anything raised is an error of the program.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from lib.moc.distill import Candidate, Distiller, Embed, Item
from lib.moc.length import CountTokens, cut_to
from lib.moc.similarity import DIGITS, cosine, disjoint_pairs, unit_rows


class Merge(msgspec.Struct, frozen=True):
    """What happened when two items became one.

    Parameters
    ----------
    iteration : 0-based pass of the loop
    earlier, later : ids of the two items; the later one is the anchor
    hop : of the merged item
    earlier_tokens, later_tokens, tokens : sizes before and after, in the target's tokens
    cap : most tokens the merged text may have, floor(kappa x both), at least 1 where the sources have any
    similarity : cosine of the two
    style : of the candidate that was kept; None where none could be
    score : cosine of the final text with the one plus that with the other (eq. 15)
    length_repaired : no candidate was within the cap, so the best was cut
    distill_failed : no candidate said anything that fits, so the beginning of the later message stands for both
    candidates, usable : how many were made, and how many of them said something
    errors : reasons of the candidates that failed
    prompt_tokens, new_tokens : of all candidates, in the distiller's tokens; None where one of them is unknown
    """

    iteration: int
    earlier: tuple[str, ...]
    later: tuple[str, ...]
    hop: int
    earlier_tokens: int
    later_tokens: int
    tokens: int
    cap: int
    similarity: float
    style: str | None
    score: float
    length_repaired: bool
    distill_failed: bool
    candidates: int
    usable: int
    errors: tuple[str, ...]
    prompt_tokens: int | None
    new_tokens: int | None


class Consolidation(msgspec.Struct, frozen=True):
    """The items that are left for one target agent, and what it took.

    Parameters
    ----------
    items : in the order of their ranks
    merges : in the order in which they happened; empty where nothing was over the budget
    seconds : wall time by part: embedding, similarity, distillation; nan where replies came from a store
    distiller_prompt_tokens, distiller_new_tokens : of all candidates of all merges; None where one is unknown
    """

    items: tuple[Item, ...]
    merges: tuple[Merge, ...]
    seconds: dict[str, float]
    distiller_prompt_tokens: int | None
    distiller_new_tokens: int | None


def consolidate(
    items: Sequence[Item],
    budget: int,
    *,
    embed: Embed,
    distiller: Distiller,
    count_tokens: CountTokens,
    epsilon: float = 0.1,
    kappa: float = 0.45,
) -> Consolidation:
    """Merge the messages of one target agent until at most `budget` are left (Algorithm 1).

    Parameters
    ----------
    items : sequence of Item
        With distinct ranks; no id in two of them.
    budget : int
        Messages, from `message_budget`. One message is never merged away, so 0 acts as 1.
    embed : callable
        Texts to vectors, shape (n_texts, d); see `Embedder.encode`. Vectors of zeros or of no number are similar to nothing.
    distiller : Distiller
        Proposes merged texts.
    count_tokens : callable
        Tokens of each text by the tokenizer of the *target* agent's model.
    epsilon : float
        Slack on the similarity within which pairs are merged in the same iteration.
    kappa : float
        Tokens of a merged text over those of its sources, above 0 and below 0.5.

    Returns
    -------
    Consolidation; its items are the given ones, in rank order, where there are no more than `budget`. Nothing is embedded then.

    Raises
    ------
    ValueError
        For a parameter out of range, equal ranks, an id in two items, or an embedder or distiller that returns too few or
        too many results.
    """
    return consolidate_many(
        [(items, budget)], embed=embed, distiller=distiller, count_tokens=count_tokens, epsilon=epsilon, kappa=kappa
    )[0]


def consolidate_many(
    jobs: Sequence[tuple[Sequence[Item], int]],
    *,
    embed: Embed,
    distiller: Distiller,
    count_tokens: CountTokens,
    epsilon: float = 0.1,
    kappa: float = 0.45,
) -> list[Consolidation]:
    """Do what `consolidate` does for many independent agents; each iteration of all of them is one call of the distiller.

    Parameters
    ----------
    jobs : sequence of (items, budget)
        One for each target agent. The others are as for `consolidate`.

    Returns
    -------
    list of Consolidation, in the order of `jobs`, each the same as alone but for its seconds.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon: a slack is at least 0, not {epsilon}")
    if not 0 < kappa < 0.5:
        raise ValueError(f"kappa: a merged text has more than 0 and less than 0.5 of both sources' tokens, not {kappa}")
    tools = _Tools(embed, distiller, count_tokens, epsilon, kappa)
    agents = [_Agent(items, budget) for items, budget in jobs]
    waiting = [agent for agent in agents if agent.over_budget]
    fresh = tools.measured([(agent, item.text) for agent in waiting for item in agent.items])
    for agent in waiting:
        agent.texts = [next(fresh) for _ in agent.items]
    iteration = 0
    while waiting:
        tools.merge_round(waiting, iteration)
        waiting = [agent for agent in waiting if agent.over_budget]
        iteration += 1
    return [agent.result() for agent in agents]


# ---------------------------------------------------------------------------------------------------------------- parts


class _Text(msgspec.Struct, frozen=True):
    """What is known of a text: its direction, shape (d,), of length 1 or 0, and its tokens."""

    vector: np.ndarray
    tokens: int


class _Agent:
    """One target agent's items on their way; `texts` measures those of an agent over its budget."""

    def __init__(self, items: Sequence[Item], budget: int) -> None:
        if budget < 0:
            raise ValueError(f"budget: an agent reads at least 0 messages, not {budget}")
        self.items = sorted(items, key=lambda item: item.rank)
        self.budget = budget
        self.texts: list[_Text] = []
        self.merges: list[Merge] = []
        self.seconds = {"embedding": 0.0, "similarity": 0.0, "distillation": 0.0}
        ranks = [item.rank for item in items]
        ids = [name for item in items for name in item.ids]
        if len(set(ranks)) != len(ranks):
            raise ValueError(f"items: the ranks {sorted(ranks)} are not distinct; give each message its own")
        if len(set(ids)) != len(ids):
            raise ValueError(f"items: an agent is in two of them, {sorted(ids)}; give each agent one message")

    @property
    def over_budget(self) -> bool:
        return len(self.items) > max(self.budget, 1)

    def result(self) -> Consolidation:
        return Consolidation(
            items=tuple(self.items),
            merges=tuple(self.merges),
            seconds=self.seconds,
            distiller_prompt_tokens=_total(merge.prompt_tokens for merge in self.merges),
            distiller_new_tokens=_total(merge.new_tokens for merge in self.merges),
        )


class _Pair(msgspec.Struct):
    """One merge of an iteration: whose, which positions u < v, how similar, and the cap of its text."""

    agent: _Agent
    u: int
    v: int
    similarity: float
    cap: int

    @property
    def sources(self) -> tuple[Item, Item]:
        return self.agent.items[self.u], self.agent.items[self.v]

    @property
    def direction(self) -> np.ndarray:
        """Sum of the two sources' unit vectors, shape (d,): its product with a unit vector is the score of eq. 15."""
        return self.agent.texts[self.u].vector + self.agent.texts[self.v].vector


class _Choice(msgspec.Struct):
    """The text that a merge ends with: which style it has (None: no candidate's), whether a candidate was cut, its measure."""

    text: str
    style: str | None
    repaired: bool = False
    measure: _Text | None = None  # None where the text is no whole candidate and is still to be measured


class _Tools(msgspec.Struct, frozen=True):
    """What every agent's merging uses."""

    embed: Embed
    distiller: Distiller
    count_tokens: CountTokens
    epsilon: float
    kappa: float

    def merge_round(self, agents: Sequence[_Agent], iteration: int) -> None:
        """Run one iteration of every agent: find its pairs, have all texts written at once, and put them in place."""
        pairs = [pair for agent in agents for pair in self._pairs(agent)]
        tried = self._distil(pairs)
        choices = self._choose(pairs, tried)
        cut = [(pair, choice) for pair, choice in zip(pairs, choices, strict=True) if choice.measure is None]
        fresh = self.measured([(pair.agent, choice.text) for pair, choice in cut])
        for _, choice in cut:
            choice.measure = next(fresh)
        for pair, made, choice in zip(pairs, tried, choices, strict=True):
            _replace(pair, made, choice, iteration)
        for agent in agents:
            gone = {pair.u for pair in pairs if pair.agent is agent}
            agent.items = [item for index, item in enumerate(agent.items) if index not in gone]
            agent.texts = [text for index, text in enumerate(agent.texts) if index not in gone]

    def measured(self, owned: Sequence[tuple[_Agent, str]]) -> Iterator[_Text]:
        """Return what is known of each text, in order; its share of the time goes to the agent that owns it."""
        counts = self.counted([text for _, text in owned])
        return map(_Text, self._embedded(owned), counts)

    def counted(self, texts: Sequence[str]) -> list[int]:
        """Return the target's tokens of each text."""
        counts = self.count_tokens(texts) if texts else []
        if len(counts) != len(texts):
            raise ValueError(f"count_tokens: {len(counts)} counts for {len(texts)} texts")
        return counts

    def _embedded(self, owned: Sequence[tuple[_Agent, str]]) -> list[np.ndarray]:
        if not owned:
            return []
        started = time.perf_counter()
        vectors = np.asarray(self.embed([text for _, text in owned]))
        if vectors.ndim != 2 or len(vectors) != len(owned):
            raise ValueError(f"embed: shape {vectors.shape} for {len(owned)} texts; it must be (n_texts, d)")
        units = list(unit_rows(vectors))
        share = (time.perf_counter() - started) / len(owned)
        for agent, _ in owned:
            agent.seconds["embedding"] += share
        return units

    def _pairs(self, agent: _Agent) -> list[_Pair]:
        started = time.perf_counter()
        similarity = cosine(np.stack([text.vector for text in agent.texts]))
        found = disjoint_pairs(similarity, self.epsilon)
        agent.seconds["similarity"] += time.perf_counter() - started
        return [
            _Pair(agent, u, v, float(similarity[u, v]), self._cap(agent.texts[u], agent.texts[v])) for u, v in found
        ]

    def _cap(self, earlier: _Text, later: _Text) -> int:
        both = earlier.tokens + later.tokens
        # Rounding first: 0.29 x 100 is a hair below 29 in floating point. Sources that are both empty stay empty.
        return max(min(1, both), math.floor(round(self.kappa * both, 9)))

    def _distil(self, pairs: Sequence[_Pair]) -> list[list[Candidate]]:
        """Return the candidates of every pair, from one call."""
        started = time.perf_counter()
        tried = self.distiller.candidates([pair.sources for pair in pairs], [pair.cap for pair in pairs])
        share = (time.perf_counter() - started) / len(pairs)
        if len(tried) != len(pairs):
            raise ValueError(
                f"distiller {self.distiller.name!r}: {len(tried)} lists of candidates for {len(pairs)} pairs"
            )
        for pair, made in zip(pairs, tried, strict=True):
            # A reply from a store took no time worth telling; its seconds are nan, and so is every sum with it.
            untimed = any(math.isnan(candidate.seconds) for candidate in made)
            pair.agent.seconds["distillation"] += math.nan if untimed else share
        return tried

    def _choose(self, pairs: Sequence[_Pair], tried: Sequence[Sequence[Candidate]]) -> list[_Choice]:
        """Return the text of every merge: the best candidate within the cap, else the best one cut, else a beginning."""
        usable = [[candidate for candidate in made if _says_something(candidate)] for made in tried]
        counts = iter(self.counted([candidate.text for made in usable for candidate in made]))
        eligible = []
        for pair, made in zip(pairs, usable, strict=True):
            sized = [(candidate, next(counts)) for candidate in made]
            eligible.append([entry for entry in sized if entry[1] <= pair.cap] or sized)
        owned = [(pair.agent, entry[0].text) for pair, some in zip(pairs, eligible, strict=True) for entry in some]
        vectors = iter(self._embedded(owned))
        choices = []
        for pair, some in zip(pairs, eligible, strict=True):
            choice = self._best(pair, [(candidate, _Text(next(vectors), tokens)) for candidate, tokens in some])
            choices.append(choice or self._beginning(pair))
        return choices

    def _best(self, pair: _Pair, measured: Sequence[tuple[Candidate, _Text]]) -> _Choice | None:
        """Return the candidate nearest to both sources (eq. 15; the first of equals), or None where nothing of it is left."""
        if not measured:
            return None
        scores = [round(float(measure.vector @ pair.direction), DIGITS) for _, measure in measured]
        candidate, measure = measured[scores.index(max(scores))]
        if measure.tokens <= pair.cap:
            return _Choice(candidate.text, candidate.style, measure=measure)
        text = cut_to(candidate.text, pair.cap, self.count_tokens)
        return _Choice(text, candidate.style, repaired=True) if text.strip() else None

    def _beginning(self, pair: _Pair) -> _Choice:
        """Return the beginning of the later message, of the earlier one where nothing of the later fits, else nothing."""
        texts = (cut_to(item.text, pair.cap, self.count_tokens) for item in reversed(pair.sources))
        return _Choice(next((text for text in texts if text.strip()), ""), None)


def _replace(pair: _Pair, made: Sequence[Candidate], choice: _Choice, iteration: int) -> None:
    """Put the merged item in the place of the later one, and record the merge; the earlier one is dropped by the caller."""
    agent, (earlier, later) = pair.agent, pair.sources
    assert choice.measure is not None, "measured before it is put in place"
    agent.merges.append(
        Merge(
            iteration=iteration,
            earlier=earlier.ids,
            later=later.ids,
            hop=min(earlier.hop, later.hop),
            earlier_tokens=agent.texts[pair.u].tokens,
            later_tokens=agent.texts[pair.v].tokens,
            tokens=choice.measure.tokens,
            cap=pair.cap,
            similarity=pair.similarity,
            style=choice.style,
            score=round(float(choice.measure.vector @ pair.direction), DIGITS),
            length_repaired=choice.repaired,
            distill_failed=choice.style is None,
            candidates=len(made),
            usable=sum(_says_something(candidate) for candidate in made),
            errors=tuple(candidate.error or "no reason given" for candidate in made if candidate.failed),
            prompt_tokens=_total(candidate.prompt_tokens for candidate in made),
            new_tokens=_total(candidate.new_tokens for candidate in made),
        )
    )
    agent.items[pair.v] = Item(
        text=choice.text,
        ids=earlier.ids + later.ids,
        roles=earlier.roles + later.roles,
        hop=min(earlier.hop, later.hop),
        rank=later.rank,
    )
    agent.texts[pair.v] = choice.measure


def _says_something(candidate: Candidate) -> bool:
    return not candidate.failed and bool(candidate.text.strip())


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum, or None where a count is unknown: a part of the cost would look like all of it."""
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)
