"""Tests of lib/moc/designing.py, with the rule-made team."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from lib.moc.dag import chain_dag, dag_of, full_dag
from lib.moc.designing import (
    designed_graphs,
    designer_for,
    edge_shares,
    mean_probabilities,
    query_vectors,
    team_utility,
)
from lib.moc.gdesigner import CODE, PAPER
from lib.moc.role_graph import ROLE_PAIRS, role_graph
from lib.moc.roles import roles_of
from lib.models import Prompt
from lib.models.scripted_team import team_script
from lib.tasks import load_questions
from tests.moc.crew import Crew
from tests.moc.embedding import hash_embed

STORIES = load_questions("arithmetic", 12)


@pytest.mark.parametrize("domain", ["choice", "math", "code"])
def test_the_code_variant_mixes_along_roles_and_the_paper_variant_along_its_anchor(domain: str) -> None:
    names = [role.name for role in roles_of(domain, 7)]
    code, paper = (designer_for(domain, 7, hash_embed, settings) for settings in (CODE, PAPER))
    assert (code._connections == role_graph(names, ROLE_PAIRS[domain])).all()
    assert (paper._connections == chain_dag(7).adjacency).all()


def test_a_graph_belongs_to_question_and_seed() -> None:
    made = designer_for("math", 5, hash_embed)
    graphs = designed_graphs(made, STORIES.questions, hash_embed, 1)
    assert list(graphs) == [question.id for question in STORIES.questions]
    alone = designed_graphs(made, STORIES.questions[7:8], hash_embed, 1)
    assert alone == {name: graphs[name] for name in alone}
    assert designed_graphs(made, STORIES.questions, hash_embed, 2) != graphs


def test_utility_is_right_answers_of_plain_teams_also_where_a_question_stands_twice() -> None:
    crew = Crew(team_script)
    utility = team_utility(crew, STORIES, max_tokens=200)
    asked = [(0, chain_dag(3)), (1, full_dag(3, 0)), (0, dag_of(3, []))]
    earned = utility(asked)
    assert set(earned) <= {0.0, 1.0} and len(earned) == 3
    alone = team_utility(Crew(team_script), STORIES, max_tokens=200)
    assert [alone([one])[0] for one in asked] == earned


def test_training_teams_speak_plainly() -> None:
    crew = Crew(team_script)
    team_utility(crew, STORIES)([(0, chain_dag(4))])
    assert [prompt.turns[-1].text.count("<<< Agent") for prompt in crew.prompts[:-1]] == [0, 1, 1, 1]


def test_gold_decides_what_is_earned_and_reaches_no_prompt() -> None:
    wrong = {name: msgspec.structs.replace(gold, answer="7654321") for name, gold in STORIES.answers.items()}
    right, other = Crew(team_script), Crew(team_script)
    asked = [(index, chain_dag(3)) for index in range(12)]
    assert sum(filter(None, team_utility(right, STORIES)(asked))) > 6
    assert team_utility(other, msgspec.structs.replace(STORIES, answers=wrong))(asked) == [0.0] * 12
    assert right.prompts == other.prompts


def test_a_decision_that_fails_earns_nothing_known() -> None:
    def script(prompt: Prompt) -> str:
        if prompt.turns[0].text.startswith("You decide"):
            raise RuntimeError("no connection")
        return team_script(prompt)

    assert team_utility(Crew(script), STORIES)([(0, chain_dag(2))]) == [None]


def test_a_designer_is_trained_on_profile_questions_by_teams() -> None:
    made = designer_for("math", 4, hash_embed, msgspec.structs.replace(CODE, iterations=2, batch=3))
    before = designed_graphs(made, STORIES.questions, hash_embed, 1)
    made.fit(query_vectors(STORIES.questions[:5], hash_embed), team_utility(Crew(team_script), STORIES))
    assert [row.asked for row in made.history] == [3, 3]
    assert designed_graphs(made, STORIES.questions, hash_embed, 1) != before


def test_probabilities_and_shares_leave_the_diagonal_out() -> None:
    made = designer_for("math", 5, hash_embed)
    mean = mean_probabilities(made, STORIES.questions, hash_embed)
    assert np.isnan(np.diag(mean)).all() and np.nanmin(mean) > 0.26 and np.nanmax(mean) < 0.74
    shares = edge_shares({"a": chain_dag(3), "b": dag_of(3, [(0, 2)])})
    assert np.nan_to_num(shares, nan=-1).tolist() == [[-1, 0.5, 0.5], [0, -1, 0.5], [0, 0, -1]]
    for graphs in ({}, {"a": chain_dag(3), "b": chain_dag(4)}):
        with pytest.raises(ValueError, match="one number of agents"):
            edge_shares(graphs)
