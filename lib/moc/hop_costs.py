"""What each hop costs: the tokens that a team reads, by where they come from.

Context
-------
Looking back further adds messages to prompts (MOC paper, Figure 3b counts the sum). Here the input tokens of a team are taken
apart: what every prompt holds anyway, the frame around messages, the messages by the hop they come from, and what the
decision agent reads.

Intuition
---------
The decision agent reads everybody once, whatever K is, and each prompt repeats role and question. Against these the price of a
second hop may be small, and a merge, which takes from a hop, can save no more than that hop has.

How to read the result
----------------------
The parts of a row add up to its ``prompt_tokens``, means over questions. A merged text counts at the hops of its messages, in equal
shares. ``distiller_tokens`` stand apart: they are read by another call, not by the team.

Not covered: new tokens (`lib.moc.accounting.tokens_table`).
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from lib.moc.accounting import edges_table, messages_table, tokens_table
from lib.moc.record import TeamRun

ANYWAY, FRAME, DECISION = "roles and questions", "headers", "decision agent"


def hop_costs(runs: Iterable[TeamRun]) -> pd.DataFrame:
    """Return the input tokens of each arm by where they come from, means over questions.

    Returns
    -------
    DataFrame, one row an arm and K, in order of appearance: ``arm``, ``k``, ``questions``; the parts ``roles and questions`` (all that
    a prompt holds without messages), ``headers`` (lead-ins and header lines of all blocks), ``hop 1`` to the furthest hop of any arm
    (messages to workers) and ``decision agent`` (messages to it); ``prompt_tokens``, their sum; ``distiller_tokens``, NaN where unknown

    Notes
    -----
    A prompt's tokens are the backend's, a message's are counted alone; tokens that form across their border count as ``roles and
    questions``. Where a backend does not tell a prompt's tokens, that part and the sum are NaN.
    """
    runs = list(runs)
    keys = ["arm", "k"]
    said, edges = messages_table(runs).astype({"prompt_tokens": "float64"}), edges_table(runs)
    shown = edges["shown_tokens"].astype(float)
    part = "hop " + edges["hop"].astype(str)
    part = part.where(edges["target"] != "decision", DECISION)
    messages = shown.groupby([edges["arm"], edges["k"], part]).sum().unstack(fill_value=0)
    hops = sorted((name for name in messages.columns if name.startswith("hop ")), key=lambda name: int(name[4:]))
    groups = said.groupby(keys, sort=False)
    table = pd.DataFrame({"questions": groups["question_id"].nunique()})
    prompts = groups["prompt_tokens"].agg(_whole_sum)
    blocks = groups["received_tokens"].sum().astype(float)
    messages = messages.reindex(table.index, fill_value=0.0)
    table[ANYWAY] = prompts - blocks
    table[FRAME] = blocks - messages.sum(axis=1)
    for name in (*hops, DECISION):
        table[name] = messages.get(name, 0.0)
    table["prompt_tokens"] = prompts
    spent = tokens_table(runs).astype({"distiller_tokens": "float64"})
    table["distiller_tokens"] = spent.groupby(keys, sort=False)["distiller_tokens"].agg(_whole_sum)
    sums = [name for name in table.columns if name != "questions"]
    table[sums] = table[sums].div(table["questions"], axis=0)
    return table.reset_index()


def _whole_sum(column: pd.Series) -> float:
    return float(column.sum(skipna=False))


def cost_parts(table: pd.DataFrame) -> list[str]:
    """Return the names of the parts in a table of `hop_costs`, in reading order."""
    return [name for name in table.columns if name in (ANYWAY, FRAME, DECISION) or name.startswith("hop ")]
