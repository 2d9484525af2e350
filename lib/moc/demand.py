"""How much arrives, and how much must be merged: by density, order and number of agents, before any model is asked.

Context
-------
The paper varies edge density and order K (Figure 3a, Table 6) and the number of agents (Figure 3b). What reaches an agent, and
whether the budget of eq. 16 makes it merge, depends on the graph alone. So it can be counted on hundreds of random graphs.

Intuition
---------
Few edges: long paths, few messages, nothing over the budget. Many edges: most ancestors are direct, so K = 2 adds little that
K = 1 did not show, and the budget bites. In between K matters. At density 1 every ancestor is a direct one, and K changes
nothing but the budget.

How to read the result
----------------------
`demand_grid` gives means over graphs, each a team. ``density`` is what was drawn, ``requested_density`` what was asked for: the chain
through all agents alone has 2 of n agents' pairs, so small teams cannot be as thin as asked.

Not covered: how long messages are, and what merging costs (`lib.moc.accounting`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from lib.moc.dag import Dag, random_dag
from lib.moc.flow import hop_sets, message_budget

_MEANS = ("edges", "density", "heard", "most_heard", "beyond", "over_budget", "excess")


def demand_of(dag: Dag, k: int, gamma: float = 1.0) -> dict[str, float]:
    """Return what one team's agents hear.

    Returns
    -------
    dict: ``edges``; ``density``; ``heard``, messages a worker, mean; ``most_heard``, of the worker who hears most; ``beyond``, messages a
    worker that come from more than one hop, mean; ``over_budget``, workers who must merge; ``excess``, messages over the budget, of
    all workers together: the fewest merges that the team needs
    """
    heard = [[len(agents) for agents in hop_sets(dag, agent, k).values()] for agent in dag.order]  # (n, k) messages
    counts = [sum(own) for own in heard]
    excess = [max(0, count - message_budget(count, k, gamma)) for count in counts]
    return {
        "edges": float(len(dag.edges)),
        "density": dag.density,
        "heard": sum(counts) / dag.n,
        "most_heard": float(max(counts)),
        "beyond": sum(sum(own[1:]) for own in heard) / dag.n,
        "over_budget": float(sum(more > 0 for more in excess)),
        "excess": float(sum(excess)),
    }


def demand_grid(
    agents: Sequence[int],
    densities: Sequence[float],
    orders: Sequence[int],
    graph_seeds: Iterable[int],
    gamma: float = 1.0,
) -> pd.DataFrame:
    """Draw graphs for every combination and count what arrives.

    Parameters
    ----------
    agents, densities, orders : values of n, rho and K
    graph_seeds : one graph each, the same seeds in every combination

    Returns
    -------
    DataFrame, one row a combination: ``agents``, ``requested_density``, ``k``, ``graphs``, the means over graphs of `demand_of`, and
    ``merging_teams``, the share of graphs in which somebody must merge

    Raises
    ------
    ValueError
        Without a seed.
    """
    seeds = list(graph_seeds)
    if not seeds:
        raise ValueError("graph_seeds: at least one graph must be drawn")
    rows = []
    for n in agents:
        for density in densities:
            dags = [random_dag(n, density, seed) for seed in seeds]
            for k in orders:
                drawn = pd.DataFrame([demand_of(dag, k, gamma) for dag in dags])
                row = {"agents": n, "requested_density": density, "k": k, "graphs": len(seeds)}
                means = {name: float(drawn[name].mean()) for name in _MEANS}
                rows.append({**row, **means, "merging_teams": float((drawn["over_budget"] > 0).mean())})
    columns = ["agents", "requested_density", "k", "graphs", *_MEANS, "merging_teams"]
    return pd.DataFrame(rows, columns=columns)
