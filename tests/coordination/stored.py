"""Signals and stored outcomes of many steps, made by rule, for tests of calibration and of references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.coordination.action_outcomes import OUTCOMES
from lib.coordination.actions import ACTIONS, SIGNALS, Action
from lib.seeds import generator

COSTS = {"skip": 100.0, "compress": 228.0, "raw": 1100.0, "escalate": 456.0, "refresh": 342.0}


def signals_of(gains: np.ndarray, *, regimes: Sequence[str] = ("toy",), each: int = 2) -> pd.DataFrame:
    """Signals of (n_steps, 5) gains; `each` steps an instance, instances in turn in the regimes."""
    rows = []
    for place, row in enumerate(gains):
        instance, index = divmod(place, each)
        for action, gain in zip(ACTIONS, row, strict=True):
            named = (f"i{instance}/{index}", f"i{instance}", regimes[instance % len(regimes)], each - index, action)
            rows.append((*named, gain, 0.0, COSTS[action], 0.0))
    return pd.DataFrame(rows, columns=list(SIGNALS))


def outcomes_of(signals: pd.DataFrame, hits: Mapping[Action, Sequence[float]]) -> pd.DataFrame:
    """Outcomes of the steps of `signals`; an action costs what its rule of thumb says."""
    steps = signals.iloc[:: len(ACTIONS)]
    rows = [
        (step, instance, regime, action, float(hit), COSTS[action])
        for action, own in hits.items()
        for step, instance, regime, hit in zip(
            steps["step_id"], steps["instance_id"], steps["regime"], own, strict=True
        )
    ]
    return pd.DataFrame(rows, columns=list(OUTCOMES))


def world(n: int = 120, *, regimes: Sequence[str] = ("toy",)) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Steps of which half need the message: there its gain is high and it hits; elsewhere skipping does."""
    rng = generator("stored world", n)
    needs = np.arange(n) % 2 == 1
    gains = np.zeros((n, 5))
    gains[:, 1:] = np.where(needs, 1.0, 0.0)[:, None] + rng.uniform(0, 0.2, (n, 1))
    signals = signals_of(gains, regimes=regimes)
    right = needs.astype(float)
    hits = {"skip": 1 - right, "compress": right, "raw": np.ones(n), "escalate": right, "refresh": right}
    return signals, outcomes_of(signals, hits)  # type: ignore[arg-type]
