"""Choose a rule for K on profile questions and judge it on others.

Context
-------
`lib.moc.adaptive_hops` makes and compares rules that set K for each agent. This module asks the questions: every rule on the
same profile questions, then the chosen rule and a fixed K on judged questions that had no part in the choice.

Intuition
---------
The best of many rules on few questions is partly luck. Luck does not carry over to other questions, so only these count.

How to read the result
----------------------
`outcomes_table` has one row a rule and question. The chosen rule's rows on judged questions, against those of the fixed K, are the
result; its rows on profile questions are not.

Not covered: statistics of the difference (`lib.evaluation`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pandas as pd

from lib.moc.accounting import tokens_table
from lib.moc.adaptive_hops import HopRule, ProfileOutcome
from lib.moc.grading import graded_runs
from lib.moc.record import TeamRun
from lib.moc.study import arm_steps
from lib.moc.team import DagFor
from lib.moc.waves import Steps, in_step
from lib.models.receiver import Receiver
from lib.seeds import hash_order
from lib.tasks.questions import QuestionSet, RunCode

Sets = Mapping[str, QuestionSet]


def split_sets(sets: Sets, share: float, seed: int) -> tuple[dict[str, QuestionSet], dict[str, QuestionSet]]:
    """Split each set into profile and judged questions, by hash.

    Parameters
    ----------
    share : of profile questions, in (0, 1); rounded to whole questions, at least one on either side

    Returns
    -------
    (profile, judged) with the same names; questions keep their order

    Raises
    ------
    ValueError
        For a share out of range or a set with fewer than two questions.
    """
    if not 0 < share < 1:
        raise ValueError(f"profile_share: must lie between 0 and 1, not {share}")
    parts: tuple[dict[str, QuestionSet], dict[str, QuestionSet]] = ({}, {})
    for name, one in sets.items():
        if len(one.questions) < 2:
            raise ValueError(f"question set {name}: {len(one.questions)} question; profile and judged need one each")
        count = min(len(one.questions) - 1, max(1, round(share * len(one.questions))))
        chosen = set(hash_order([question.id for question in one.questions], "moc-profile", seed)[:count])
        for part, inside in zip(parts, (True, False), strict=True):
            questions = tuple(question for question in one.questions if (question.id in chosen) is inside)
            answers = {question.id: one.answers[question.id] for question in questions}
            part[name] = msgspec.structs.replace(one, questions=questions, answers=answers)
    return parts


def run_rules(
    receiver: Receiver, sets: Sets, dag_for: DagFor, rules: Sequence[HopRule], **settings: Any
) -> dict[HopRule, list[TeamRun]]:
    """Answer every question under every rule, in the arm ``moc``, all of them in step.

    `settings` are those of `lib.moc.study.arm_steps` but ``k``.
    """
    steps: dict[HopRule, list[Steps]] = {}
    for rule in rules:
        adaptive: dict[str, Any] = {} if rule.limit is None else {"hops_of": rule.hops}
        steps[rule] = arm_steps(receiver, sets, dag_for, "moc", k=rule.most, **adaptive, **settings)
    runs = iter(in_step([one for own in steps.values() for one in own]))
    return {rule: [run for _ in own for run in next(runs)] for rule, own in steps.items()}


def outcomes_table(
    runs: Mapping[HopRule, Sequence[TeamRun]], sets: Sets, *, run_code: RunCode | None = None
) -> pd.DataFrame:
    """Return what every question came to under every rule.

    Returns
    -------
    DataFrame: ``rule``, ``question_set``, ``question_id``, ``correct`` (null: not judged), ``agent_tokens``, ``distiller_tokens``,
    ``total_tokens`` (Int64, null where unknown), ``merges``, ``mean_reach`` (K, mean over workers)
    """
    parts = []
    for rule, own in runs.items():
        graded = graded_runs(own, sets, run_code=run_code, extractors=["robust"])
        spent = tokens_table(own)[["agent_tokens", "distiller_tokens", "total_tokens", "merges"]]
        part = pd.concat([graded[["question_set", "question_id", "correct"]], spent], axis=1)
        reach = [sum(one.reach for one in run.messages) / len(run.messages) for run in own]
        part.insert(0, "rule", rule.name)
        parts.append(part.assign(mean_reach=reach))
    return pd.concat(parts, ignore_index=True)


def profile_outcomes(table: pd.DataFrame, rules: Sequence[HopRule]) -> list[ProfileOutcome]:
    """Return the rows of `outcomes_table`, of profile questions, for `lib.moc.adaptive_hops.choose_rule`.

    Tokens are those of agents and distiller together. Where they are unknown the question counts as not graded.
    """
    named = {rule.name: rule for rule in rules}
    outcomes = []
    for row in table.to_dict("records"):
        known = not pd.isna(row["correct"]) and not pd.isna(row["total_tokens"])
        tokens = float(row["total_tokens"]) if known else math.inf
        accuracy = float(row["correct"]) if known else None
        outcomes.append(ProfileOutcome(named[row["rule"]], row["question_id"], accuracy, tokens))
    return outcomes
