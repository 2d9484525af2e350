"""Which packets: replay effects, the shrinkage predictor, scores and admission under a byte cap (BANDMAS)."""

from __future__ import annotations

from lib.bandmas.promotion import Gate, promotion_gate
from lib.bandmas.replay import (
    FlipRate,
    LeakError,
    aa_control,
    effects_of,
    flip_rate,
    label_composition,
    replay_contexts,
    replay_effects,
    replay_many,
    replay_outcomes,
)

__all__ = [
    "FlipRate",
    "Gate",
    "LeakError",
    "aa_control",
    "effects_of",
    "flip_rate",
    "label_composition",
    "promotion_gate",
    "replay_contexts",
    "replay_effects",
    "replay_many",
    "replay_outcomes",
]
