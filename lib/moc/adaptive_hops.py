"""How far back an agent should read: the hop order K by a rule, chosen on profile questions.

Context
-------
MOC reads K = 2 hops everywhere, and names a K that adapts as future work (its conclusion). In its own Table 6 K = 3 is
best at density 0.5 and below K = 1 at density 0.7: far evidence helps in thin graphs and crowds dense ones.

Intuition
---------
A hop is worth reading while it is cheap: it brings few tokens, or few messages, or the graph is thin. All this is known
before the agent is asked, so a rule can set K for each agent anew.

How to read the result
----------------------
`HopRule.hops` starts at K = 1 and takes the next hop while the rule lets it in; it stops at a hop where nobody stands,
since K also enters the message budget. `choose_rule` compares rules on the same profile questions by
mean accuracy - price x mean tokens. The value of the best of many rules is too good; `Choice.held_out` is not: each
question is scored with the rule that the other questions choose.

Not covered: running the team under each rule (the caller does, on profile questions only); rules that read messages,
and trust in their senders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
import pandas as pd

from lib.moc.dag import Dag
from lib.moc.flow import hop_sets

DIGITS = 12  # values equal to so many decimal places are ties
Measure = Literal["none", "added_tokens", "total_tokens", "messages", "density"]
UNITS = {"added_tokens": "tokens a hop", "total_tokens": "tokens", "messages": "messages", "density": "density"}


class HopRuleError(ValueError):
    """A rule that cannot be made or chosen; the text names the field or column and the fix."""


class HopRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which hops an agent reads.

    Parameters
    ----------
    measure : what decides about a hop beyond the first: ``added_tokens`` (tokens waiting at that hop), ``total_tokens``
        (tokens within that hop), ``messages`` (messages within that hop), ``density`` (of the graph), or ``none``, a
        fixed K
    limit : a hop is read while its measure is at most this; None with ``none``
    most : largest K

    Raises
    ------
    HopRuleError
        If `most` is below 1, or the limit is missing, negative, not finite, or given with ``none``.
    """

    measure: Measure = "none"
    limit: float | None = None
    most: int = 2

    def __post_init__(self) -> None:
        if self.measure != "none" and self.measure not in UNITS:
            raise HopRuleError(f"measure: must be one of none, {', '.join(UNITS)}, not {self.measure!r}")
        if self.most < 1:
            raise HopRuleError(f"most: an agent reads 1 hop at least, not {self.most}")
        if (self.limit is None) != (self.measure == "none"):
            raise HopRuleError(
                f"limit: {self.limit!r} does not go with measure {self.measure!r}; 'none' alone has none"
            )
        if self.limit is not None and not 0 <= self.limit < math.inf:
            raise HopRuleError(f"limit: must be a finite number of at least 0, not {self.limit!r}")

    @property
    def name(self) -> str:
        """What the rule says, such as ``K<=3, 200 tokens a hop``."""
        if self.limit is None:
            return f"K={self.most}"
        return f"K<={self.most}, {self.limit:g} {UNITS[self.measure]}"

    def hops(self, dag: Dag, target: int, tokens: Mapping[int, int]) -> int:
        """Return K for one agent, from 1 to `most`.

        Parameters
        ----------
        dag : who feeds whom
        target : the agent that is about to read
        tokens : length of the output of every agent that spoke; one that is missing here has no message and counts
            nowhere
        """
        if self.limit is None:
            return self.most
        total = count = 0
        for hop, agents in hop_sets(dag, target, self.most).items():
            lengths = [tokens[agent] for agent in agents if agent in tokens]
            total, count = total + sum(lengths), count + len(lengths)
            if hop > 1:
                values = {"added_tokens": sum(lengths), "total_tokens": total, "messages": count}
                if not agents or values.get(self.measure, dag.density) > self.limit:
                    return hop - 1
        return self.most


def candidate_rules(
    fixed: Sequence[int] = (1, 2, 3),
    most: int = 3,
    *,
    added_tokens: Sequence[float] = (100, 200, 400),
    total_tokens: Sequence[float] = (300, 600, 1200),
    messages: Sequence[float] = (3, 4, 6),
    density: Sequence[float] = (0.4, 0.6),
) -> tuple[HopRule, ...]:
    """Return fixed rules and, for each limit, an adaptive one of at most `most` hops.

    With gamma = 1 and up to three hops, ``messages`` at most 4 is the rule that never merges: it needs no distiller.
    """
    grid: dict[Measure, Sequence[float]] = {
        "added_tokens": added_tokens,
        "total_tokens": total_tokens,
        "messages": messages,
        "density": density,
    }
    return (
        *(HopRule(most=k) for k in fixed),
        *(HopRule(measure, float(limit), most) for measure, limits in grid.items() for limit in limits),
    )


class ProfileOutcome(msgspec.Struct, frozen=True):
    """What one profile question came to under one rule.

    Parameters
    ----------
    rule : the rule
    question_id : of a profile question
    accuracy : of the team's answer, in [0, 1]; None where it could not be graded
    tokens : what the team cost, as the caller counts it
    """

    rule: HopRule
    question_id: str
    accuracy: float | None
    tokens: float


class Choice(msgspec.Struct, frozen=True):
    """The rule chosen, and what the choice rests on.

    Parameters
    ----------
    rule : the chosen one
    price : accuracy that one token costs, lambda
    questions : profile questions that count: those graded under every rule
    left_out : those that do not
    held_out : mean value of each question under the rule that the others choose; None with one question
    table : one row a rule, best first: ``rule``, ``accuracy``, ``tokens`` (means), ``value``, ``chosen_without`` (share of
        questions without which the others choose this rule)
    """

    rule: HopRule
    price: float
    questions: int
    left_out: int
    held_out: float | None
    table: pd.DataFrame


def choose_rule(outcomes: Sequence[ProfileOutcome], price: float = 0.0) -> Choice:
    """Choose the rule of the highest mean accuracy - price x mean tokens on profile questions.

    Parameters
    ----------
    outcomes : every question once under every rule
    price : lambda, accuracy a token costs; 0.0001 pays 100 tokens for one percentage point

    Returns
    -------
    Choice; equal values go to fewer tokens, then to the rule that `outcomes` names first

    Raises
    ------
    HopRuleError
        If a question lacks a rule or has it twice, no question is graded under all rules, or the price is negative.

    Notes
    -----
    A question that some rule left ungraded is left out for all rules, so that all are compared on the same questions.
    """
    if not (math.isfinite(price) and price >= 0):
        raise HopRuleError(f"price: must be a finite number of at least 0, not {price!r}")
    rules = list(dict.fromkeys(outcome.rule for outcome in outcomes))
    questions = list(dict.fromkeys(outcome.question_id for outcome in outcomes))
    found = {(outcome.question_id, outcome.rule): outcome for outcome in outcomes}
    if len(found) < len(outcomes):
        raise HopRuleError("outcomes: a question stands twice under one rule; give each pair once")
    for question in questions:
        for rule in rules:
            if (question, rule) not in found:
                raise HopRuleError(
                    f"outcomes: question {question!r} lacks rule {rule.name!r}; ask all under every rule"
                )
    graded = [question for question in questions if all(found[question, rule].accuracy is not None for rule in rules)]
    if not graded:
        raise HopRuleError("outcomes: no question was graded under every rule; nothing can be chosen")
    own = [[found[question, rule] for rule in rules] for question in graded]
    accuracy = np.array([[outcome.accuracy for outcome in row] for row in own], dtype=float)  # (n_questions, n_rules)
    tokens = np.array([[outcome.tokens for outcome in row] for row in own], dtype=float)
    order = _ranked(accuracy, tokens, price)
    others, held_out = np.zeros(0, dtype=int), None
    if len(graded) > 1:
        rows = np.arange(len(graded))
        others = np.array([_ranked(accuracy[rows != row], tokens[rows != row], price)[0] for row in rows])
        held_out = float((accuracy - price * tokens)[rows, others].mean())
    table = pd.DataFrame(
        {
            "rule": [rules[place].name for place in order],
            "accuracy": accuracy.mean(axis=0)[order],
            "tokens": tokens.mean(axis=0)[order],
            "value": (accuracy - price * tokens).mean(axis=0)[order],
            "chosen_without": [float((others == place).mean()) if len(others) else math.nan for place in order],
        }
    )
    left_out = len(questions) - len(graded)
    return Choice(rules[order[0]], price, len(graded), left_out, held_out, table)


def _ranked(accuracy: np.ndarray, tokens: np.ndarray, price: float) -> list[int]:
    """Return the rules, best first."""
    value, cost = (np.round(x.mean(axis=0), DIGITS).tolist() for x in (accuracy - price * tokens, tokens))
    return sorted(range(len(value)), key=lambda place: (-value[place], cost[place], place))
