"""Arrivals under load with known statistics, for the tests of summaries and figures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

POLICIES = ("full", "semantic", "causal", "adaptive")
RHOS = (0.5, 1.0, 1.5)


def arrivals(
    workloads: Sequence[str] = ("worlds_bridge",),
    *,
    seeds: int = 3,
    tasks: int = 12,
    rounds: int = 1,
    policies: Sequence[str] = POLICIES,
) -> pd.DataFrame:
    """Return one row an arrival; latency grows with the load and the policy's place, utilities fall with both."""
    rows = []
    cells = itertools.product(workloads, range(seeds), enumerate(policies), RHOS, range(tasks * rounds))
    for workload, seed, (weight, policy), rho, place in cells:
        drawn = np.random.default_rng([seed, place, weight]).uniform(0, 1, 3)
        adaptive = policy == "adaptive"
        latency = 0.6 + rho * (0.3 + drawn[0]) * (4 - weight)
        rows.append(
            {
                "workload": workload,
                "policy": policy,
                "rho": rho,
                "seed": seed,
                "task_id": f"s{seed}t{place % tasks}",
                "place": place,
                "warm_up": False,
                "latency_s": latency,
                "missed": latency > 2.5,
                "answered": True,
                "task_utility": float(drawn[1] > 0.4 + 0.1 * rho),
                "evidence_utility": drawn[2],
                "bytes": 400.0 * (4 - weight),
                "context_tokens": 20 * (4 - weight),
                "n_sent": 4 - weight,
                "transfer_s": 0.1 * (4 - weight),
                "service_s": 0.5,
                "price_bytes": 0.01 * place * rho if adaptive else np.nan,
                "price_latency": 0.02 * place * rho if adaptive else np.nan,
                "price_context": 0.0 if adaptive else np.nan,
            }
        )
    return pd.DataFrame(rows)
