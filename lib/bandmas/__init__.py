"""Which packets: replay effects, the shrinkage predictor, scores and admission under a byte cap (BANDMAS).

The methods stand here by name. The studies made of them are imported by their module: `lib.bandmas.study`, `schedule` and `results`
(policies under caps), `boundaries`, `load_study`, `sensitivity`.
"""

from __future__ import annotations

from lib.bandmas.adaptive import (
    AdaptiveController,
    Backlog,
    Candidates,
    Decision,
    Prices,
    Pricing,
    System,
    admit_adaptive,
    candidates_of,
)
from lib.bandmas.admission import Admission, WireSizes, admit_static, rank, wire_cap, wire_sizes
from lib.bandmas.agentprune import AgentPrune, AgentPruneSettings, train_agentprune
from lib.bandmas.baselines import BaselineError
from lib.bandmas.diagnostics import cross_fitted, rank_correlation, recall_at_cap, useful_packet_recall
from lib.bandmas.features import labelled, marker, packet_features
from lib.bandmas.fusion import SafeSieveSettings
from lib.bandmas.interactions import compare_rce, interaction_values, pair_interactions, rce_agreement
from lib.bandmas.noise import FlipRate, aa_control, flip_rate
from lib.bandmas.promotion import Gate, promotion_gate
from lib.bandmas.queueing import arrival_times, capacity, tandem, unit_gaps
from lib.bandmas.replay import (
    LeakError,
    effects_of,
    label_composition,
    replay_contexts,
    replay_effects,
    replay_many,
    replay_outcomes,
)
from lib.bandmas.safesieve import SafeSieve, train_safesieve
from lib.bandmas.scores import BASELINES, POLICIES, lexical_relevance, oracle_scores, policy_scores
from lib.bandmas.service import ServiceModel, fit_service
from lib.bandmas.shapley import ShapleyPlan, coalition_outcomes, shapley_effects, shapley_values
from lib.bandmas.shrinkage import PredictorError, ShrinkagePredictor

__all__ = [
    "AdaptiveController",
    "Admission",
    "AgentPrune",
    "AgentPruneSettings",
    "BASELINES",
    "Backlog",
    "BaselineError",
    "Candidates",
    "Decision",
    "FlipRate",
    "Gate",
    "LeakError",
    "POLICIES",
    "PredictorError",
    "Prices",
    "Pricing",
    "SafeSieve",
    "SafeSieveSettings",
    "ServiceModel",
    "ShapleyPlan",
    "ShrinkagePredictor",
    "System",
    "WireSizes",
    "aa_control",
    "admit_adaptive",
    "admit_static",
    "arrival_times",
    "candidates_of",
    "capacity",
    "coalition_outcomes",
    "compare_rce",
    "cross_fitted",
    "effects_of",
    "fit_service",
    "flip_rate",
    "interaction_values",
    "label_composition",
    "labelled",
    "lexical_relevance",
    "marker",
    "oracle_scores",
    "packet_features",
    "pair_interactions",
    "policy_scores",
    "promotion_gate",
    "rank",
    "rank_correlation",
    "rce_agreement",
    "recall_at_cap",
    "replay_contexts",
    "replay_effects",
    "replay_many",
    "replay_outcomes",
    "shapley_effects",
    "shapley_values",
    "tandem",
    "train_agentprune",
    "train_safesieve",
    "unit_gaps",
    "useful_packet_recall",
    "wire_cap",
    "wire_sizes",
]
