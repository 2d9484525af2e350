"""What a lie does on its way: edge by edge, through merges, and against what changes by itself.

Context
-------
`lib.moc.poison` runs teams with and without a lying agent and says who adopted the lie. Three questions remain. Along which edges
did it travel? What is left of it where messages are merged? And how often would a reader have changed to the same wrong answer
without any attack?

Intuition
---------
A reader who hears a wrong answer and gives it need not have it from there. So an edge whose source is wrong is compared with one
whose source is not. And a run asked a second time, in other company, moves by itself where the model's arithmetic is
inexact: those moves, counted in the same way, are the control.

How to read the result
----------------------
`edge_rates`: among readers who could still adopt the lie, the share that did, by hop and by whether the source was wrong. A reader
counts at each of its sources. `merge_fates`: what a merged text with the attacker's message in it says. `control_of`: the
adoption table of a second run without attack, in which "adopted" is noise.

Not covered: why a reader believed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pandas as pd

from lib.moc.poison import Poisoned
from lib.moc.record import TeamRun
from lib.moc.team import DagFor, run_teams
from lib.models.receiver import Receiver
from lib.tasks.questions import Answer, Extractor, Question, extract_answer, grade

FATES = ("gives the lie", "gives another answer", "gives no answer")


def edge_rates(edges: pd.DataFrame) -> pd.DataFrame:
    """Return how often a reader adopted the lie, by what stood on the edge.

    Parameters
    ----------
    edges : from `lib.moc.poison.spread_edges`

    Returns
    -------
    DataFrame, one row an arm, K, reader, hop and source: ``reader`` (worker or decision), ``hop``, ``source`` (``attacker``, ``other,
    wrong``, ``other``), ``edges``, ``could_adopt`` (edges whose reader could still adopt it), ``adopted``, ``rate`` (null without such
    edges). Edges whose source cannot be told (it failed) are left out.
    """
    told = edges[edges["source_wrong"].notna()]
    source = [
        "attacker" if lies else "other, wrong" if wrong else "other"
        for lies, wrong in zip(told["from_attacker"], told["source_wrong"], strict=True)
    ]
    reader = ["decision" if target == "decision" else "worker" for target in told["target"]]
    arms = {arm: place for place, arm in enumerate(dict.fromkeys(edges["arm"]))}
    keyed = told.assign(source=source, reader=reader, arm_place=told["arm"].map(arms))
    keyed["reader_place"] = keyed["reader"].eq("decision")
    groups = keyed.groupby(["arm_place", "arm", "k", "reader_place", "reader", "hop", "source"])
    table = groups.agg(
        edges=("target", "size"),
        could_adopt=("adopted", "count"),
        adopted=("adopted", "sum"),
        rate=("adopted", "mean"),
    )
    return table.reset_index().drop(columns=["arm_place", "reader_place"])


def merge_fates(
    studies: Mapping[str, Poisoned], questions: Sequence[Question], extractor: Extractor = "robust"
) -> pd.DataFrame:
    """Return what became of the attacker's message where it was merged with others.

    Returns
    -------
    DataFrame, one row a merged text that holds it: ``question_id``, ``arm``, ``target``, ``sources`` (agents, as text), ``fate`` (one of
    `FATES`, by the answer that is read out of the merged text), ``text``
    """
    known = {question.id: question for question in questions}
    rows: list[dict[str, Any]] = []
    for study in studies.values():
        for run in study.attacked:
            attacker, question = str(study.attackers[run.question_id]), known[run.question_id]
            wrong = Answer(question.id, study.wrong[run.question_id])
            for target, done in run.consolidations:
                for item in done.items:
                    if attacker in item.ids and len(item.ids) > 1:
                        says = extract_answer(question, item.text, extractor) is not None
                        lies = says and grade(question, wrong, item.text, extractor).correct
                        row = {"question_id": run.question_id, "arm": run.arm, "target": target}
                        fate = FATES[0] if lies else FATES[1] if says else FATES[2]
                        rows.append(row | {"sources": " & ".join(item.ids), "fate": fate, "text": item.text})
    return pd.DataFrame(rows, columns=["question_id", "arm", "target", "sources", "fate", "text"])


def ask_again(
    receiver: Receiver, questions: Sequence[Question], dag_for: DagFor, arm: str, *, group: int = 0, **settings: Any
) -> list[TeamRun]:
    """Run a team a second time, in other batches: the last questions first, so many at a time.

    Parameters
    ----------
    receiver : one that does not read the first answers from a store, such as `lib.runs.context.Run.again` returns
    group : questions a call; 0 takes half of them, at least one
    settings : those of the first run, for `lib.moc.team.team_steps`

    Returns
    -------
    The runs in the order of `questions`. Nothing but the company of each prompt differs from the first time.
    """
    if group < 0:
        raise ValueError(f"group: at least one question a call, or 0 for half of them, not {group}")
    size = group or max(1, len(questions) // 2)
    backward = list(reversed(questions))
    runs = [
        run
        for start in range(0, len(backward), size)
        for run in run_teams(receiver, backward[start : start + size], dag_for, arm, **settings)
    ]
    return runs[::-1]


def control_of(study: Poisoned, again: Sequence[TeamRun]) -> Poisoned:
    """Return a study in which a second run without attack stands where the attacked one stood.

    In its adoption table "adopted" counts readers who changed to the wrong answer by themselves.

    Raises
    ------
    ValueError
        For runs of other questions, arms or graphs.
    """
    if [(run.question_id, run.arm, run.dag) for run in again] != [
        (run.question_id, run.arm, run.dag) for run in study.clean
    ]:
        raise ValueError("again: must hold the clean runs' questions, arm and graphs, in their order")
    return msgspec.structs.replace(study, attacked=tuple(again))
