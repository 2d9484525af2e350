"""Many hops: teams of agents on a graph, evidence from several hops back, merged to a budget (MOC).

The method stands here by name. What is imported by its module: `lib.moc.gdesigner` (graphs made for a question; it loads
torch), `lib.moc.adaptive_hops` (K by a rule), `lib.moc.programs` (runs what a mathematics team programs).
"""

from __future__ import annotations

from lib.moc.accounting import edges_table, messages_table, runtime_table, tokens_table
from lib.moc.arms import ARMS, Arm, arm_of
from lib.moc.consolidate import Consolidation, Merge, consolidate, consolidate_many
from lib.moc.dag import Dag, DagError, chain_dag, dag_of, full_dag, kahn_order, random_dag
from lib.moc.distill import Candidate, Distiller, ExtractiveDistiller, Item, ReceiverDistiller
from lib.moc.flow import hop_sets, k_order_flow, merge_demand, message_budget
from lib.moc.poison import Attack, Poisoned, adoption_table, poison_teams, spread_edges, spread_summary, wrong_answers
from lib.moc.record import AgentMessage, Delivery, TeamRun
from lib.moc.roles import ROLES, Role, roles_of
from lib.moc.team import run_teams, wave_levels
from lib.moc.vote import majority, vote_table

__all__ = [
    "ARMS",
    "AgentMessage",
    "Arm",
    "Attack",
    "Candidate",
    "Consolidation",
    "Dag",
    "DagError",
    "Delivery",
    "Distiller",
    "ExtractiveDistiller",
    "Item",
    "Merge",
    "Poisoned",
    "ROLES",
    "ReceiverDistiller",
    "Role",
    "TeamRun",
    "adoption_table",
    "arm_of",
    "chain_dag",
    "consolidate",
    "consolidate_many",
    "dag_of",
    "edges_table",
    "full_dag",
    "hop_sets",
    "k_order_flow",
    "kahn_order",
    "majority",
    "merge_demand",
    "message_budget",
    "messages_table",
    "poison_teams",
    "random_dag",
    "roles_of",
    "run_teams",
    "runtime_table",
    "spread_edges",
    "spread_summary",
    "tokens_table",
    "vote_table",
    "wave_levels",
    "wrong_answers",
]
