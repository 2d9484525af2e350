"""Which packets: replay effects, the shrinkage predictor, scores and admission under a byte cap (BANDMAS)."""

from __future__ import annotations

from lib.bandmas.admission import Admission, admit_static, rank, wire_cap
from lib.bandmas.diagnostics import cross_fitted, rank_correlation, recall_at_cap, useful_packet_recall
from lib.bandmas.features import labelled, marker, packet_features
from lib.bandmas.noise import FlipRate, aa_control, flip_rate
from lib.bandmas.promotion import Gate, promotion_gate
from lib.bandmas.replay import (
    LeakError,
    effects_of,
    label_composition,
    replay_contexts,
    replay_effects,
    replay_many,
    replay_outcomes,
)
from lib.bandmas.scores import POLICIES, lexical_relevance, oracle_scores, policy_scores
from lib.bandmas.shrinkage import PredictorError, ShrinkagePredictor

__all__ = [
    "Admission",
    "FlipRate",
    "Gate",
    "LeakError",
    "POLICIES",
    "PredictorError",
    "ShrinkagePredictor",
    "aa_control",
    "admit_static",
    "cross_fitted",
    "effects_of",
    "flip_rate",
    "label_composition",
    "labelled",
    "lexical_relevance",
    "marker",
    "oracle_scores",
    "packet_features",
    "policy_scores",
    "promotion_gate",
    "rank",
    "rank_correlation",
    "recall_at_cap",
    "replay_contexts",
    "replay_effects",
    "replay_many",
    "replay_outcomes",
    "useful_packet_recall",
    "wire_cap",
]
