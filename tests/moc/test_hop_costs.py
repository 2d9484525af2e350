"""Tests of lib/moc/hop_costs.py: the parts add up to what the team read, and a hop is paid once a reader."""

from __future__ import annotations

import math

import msgspec
import pytest

from lib.moc.accounting import edges_table, tokens_table
from lib.moc.dag import chain_dag, random_dag
from lib.moc.distill import ExtractiveDistiller
from lib.moc.hop_costs import ANYWAY, DECISION, FRAME, cost_parts, hop_costs
from lib.moc.team import run_teams
from lib.models.scripted_team import team_script
from lib.tasks import load_questions
from tests.moc.crew import Crew
from tests.moc.embedding import count_words, hash_embed

STORIES = load_questions("arithmetic", 3)
GRAPH = random_dag(7, 0.5, 42)  # one agent hears six messages, one more than the budget
MERGING = {"embed": hash_embed, "distiller": ExtractiveDistiller(hash_embed, count_words)}


def team(arm: str, k: int = 2, graph: object = GRAPH) -> list:
    return run_teams(Crew(team_script), STORIES.questions, lambda _: graph, arm, k=k, **MERGING)


def test_parts_add_up_to_the_prompt_tokens_of_the_team() -> None:
    runs = [*team("vanilla"), *team("moc_flow"), *team("moc"), *team("moc_flow", 3)]
    table = hop_costs(runs)
    assert table[["arm", "k"]].values.tolist() == [["vanilla", 1], ["moc_flow", 2], ["moc", 2], ["moc_flow", 3]]
    assert cost_parts(table) == [ANYWAY, FRAME, "hop 1", "hop 2", "hop 3", DECISION]
    spent = tokens_table(runs).groupby(["arm", "k"], sort=False)["agent_prompt_tokens"].mean().astype(float)
    assert table[cost_parts(table)].sum(axis=1).tolist() == pytest.approx(spent.tolist())
    assert table["prompt_tokens"].tolist() == pytest.approx(spent.tolist())
    assert (table["questions"] == 3).all() and (table[FRAME] > 0).all()


def test_vanilla_pays_for_one_hop_and_merging_takes_from_hops_alone() -> None:
    table = hop_costs([*team("vanilla"), *team("moc_flow"), *team("moc")]).set_index("arm")
    assert table.loc["vanilla", "hop 2"] == 0 < table.loc["moc_flow", "hop 2"]
    assert table.loc["moc", ["hop 1", "hop 2"]].sum() < table.loc["moc_flow", ["hop 1", "hop 2"]].sum()
    assert table[ANYWAY].nunique() == 1
    assert table.loc["moc", "distiller_tokens"] == 0  # the extractive distiller asks no model


def test_on_a_chain_a_second_hop_is_every_message_but_the_last_two() -> None:
    runs = team("moc_flow", 2, chain_dag(4))
    edges = edges_table(runs)
    far = edges[(edges["hop"] == 2) & (edges["target"] != "decision")]
    assert hop_costs(runs)["hop 2"].item() == pytest.approx(far["shown_tokens"].sum() / 3)
    assert len(far) == 3 * 2


def test_unknown_prompt_tokens_stay_unknown() -> None:
    runs = team("vanilla")
    lost = msgspec.structs.replace(runs[0].decision, prompt_tokens=None)
    row = hop_costs([msgspec.structs.replace(runs[0], decision=lost), *runs[1:]]).iloc[0]
    assert math.isnan(row["prompt_tokens"]) and math.isnan(row[ANYWAY]) and row["hop 1"] > 0
