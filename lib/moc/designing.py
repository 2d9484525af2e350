"""Design a graph for every question of a set: what ties G-Designer to roles, questions and right answers.

Context
-------
`lib.moc.gdesigner` knows vectors and graphs. Here a designer gets the roles of a domain, is trained on profile questions by
teams that speak plainly (K = 1), and draws one graph for each final question (MOC paper, 5.4). Every arm then runs on
these same graphs, so the difference between arms is one of communication alone.

Intuition
---------
A graph belongs to a question and a seed, never to an arm. One seed uses the same random numbers whatever was learned, so
graphs before and after training, or of two variants, differ by the designer and not by luck.

How to read the result
----------------------
`designed_graphs` maps each question's id to its graph. `edge_shares` is how often each pair became an edge; in the code variant it is not
symmetric although the logits are: low indices tend to feed high ones.

Not covered: which questions are profile questions (`lib.moc.hop_study.split_sets`), running the arms (`lib.moc.study`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from lib.moc.dag import Dag, chain_dag
from lib.moc.distill import Embed
from lib.moc.gdesigner import CODE, GDesigner, GDesignerSettings, Utility
from lib.moc.role_graph import ROLE_PAIRS, role_graph
from lib.moc.roles import roles_of
from lib.moc.team import run_teams
from lib.models.receiver import Receiver
from lib.seeds import seed_of
from lib.tasks.questions import Question, QuestionSet, RunCode, grade_all, question_text


def designer_for(
    domain: str, agents: int, embed: Embed, settings: GDesignerSettings = CODE, *, seed: int = 0
) -> GDesigner:
    """Return an untrained designer for a team of a domain.

    The code variant mixes agents along the role graph of the domain, the paper variant along a chain, its anchor.

    Raises
    ------
    ValueError
        For a domain without roles, or no agent.
    """
    roles = roles_of(domain, agents)
    if settings.variant == "code":
        connections = role_graph([role.name for role in roles], ROLE_PAIRS[domain])
    else:
        connections = chain_dag(agents).adjacency
    texts = [f"{role.name}. {role.description}" for role in roles]
    return GDesigner(embed(texts), connections, settings=settings, seed=seed)


def query_vectors(questions: Sequence[Question], embed: Embed) -> np.ndarray:
    """Return the embedding of what agents are shown of each question, shape (n_questions, width)."""
    return embed([question_text(question) for question in questions])


def team_utility(
    receiver: Receiver, profile: QuestionSet, *, run_code: RunCode | None = None, **settings: Any
) -> Utility:
    """Return what `GDesigner.fit` asks: 1 for a right answer of a plain team on a graph, 0 for a wrong one, None for no answer.

    Parameters
    ----------
    profile : the questions that may be asked, with their gold
    run_code : grades code questions; without it they earn None
    settings : passed to `lib.moc.team.team_steps`
    """

    def utility(asked: Sequence[tuple[int, Dag]]) -> list[float | None]:
        # The same question may stand in a batch twice, on two graphs; its id is in no prompt.
        copies = [
            msgspec.structs.replace(profile.questions[index], id=f"{place}:{profile.questions[index].id}")
            for place, (index, _) in enumerate(asked)
        ]
        graphs = {copy.id: dag for copy, (_, dag) in zip(copies, asked, strict=True)}
        runs = run_teams(receiver, copies, lambda question: graphs[question.id], "vanilla", **settings)
        items = []
        for (index, _), run in zip(asked, runs, strict=True):
            question = profile.questions[index]
            items.append((question, profile.answers[question.id], run.decision.text if run.decision.ok else None))
        graded = grade_all(items, run_code=run_code)
        return [None if one.correct is None else float(one.correct) for one in graded]

    return utility


def designed_graphs(designer: GDesigner, questions: Sequence[Question], embed: Embed, seed: int) -> dict[str, Dag]:
    """Return the graph of each question, by id, drawn with random numbers that `seed` and the id name."""
    vectors = query_vectors(questions, embed)
    return {
        question.id: designer.sample(vector, seed_of("designed-graph", seed, question.id))
        for question, vector in zip(questions, vectors, strict=True)
    }


def mean_probabilities(designer: GDesigner, questions: Sequence[Question], embed: Embed) -> np.ndarray:
    """Return `GDesigner.probabilities`, mean over questions, shape (n, n); NaN on the diagonal, which is never asked."""
    vectors = query_vectors(questions, embed)
    mean = np.mean([designer.probabilities(vector) for vector in vectors], axis=0)
    np.fill_diagonal(mean, np.nan)
    return mean


def edge_shares(graphs: Mapping[str, Dag]) -> np.ndarray:
    """Return the share of graphs that hold each edge, shape (n, n); NaN on the diagonal.

    Raises
    ------
    ValueError
        Without a graph, or where graphs differ in their number of agents.
    """
    sizes = {dag.n for dag in graphs.values()}
    if len(sizes) != 1:
        raise ValueError(f"graphs: need at least one, all of one number of agents, not {sorted(sizes)}")
    share = np.mean([dag.adjacency for dag in graphs.values()], axis=0)
    np.fill_diagonal(share, np.nan)
    return share
