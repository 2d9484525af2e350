"""How much the reproduced baselines depend on choices that their sources leave open.

Each named variant of AgentPrune and SafeSieve differs from the reproduction in one setting. All variants are trained on
profile tasks, frozen, and scheduled on the final tasks under the same cap; training and answers share receiver calls
and stored replies. The table is for reading beside the main results: no variant is chosen by it, and the reproduction
stays the one that was fixed beforehand.

`same_sets` says how often a variant sends exactly what the reproduction sends. Where it is 1 the choice does not matter
here, whatever the scores are.

Not covered: intervals; a difference between two rows is a difference of few tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lib.bandmas import agentprune, safesieve
from lib.bandmas.agentprune import AgentPruneSettings, agentprune_learner
from lib.bandmas.baselines import FrozenState, Learner, learn_together
from lib.bandmas.fusion import SafeSieveSettings
from lib.bandmas.replay import PARTS, Outcome, Render, Utility, outcome_of
from lib.bandmas.results import answer_schedules, context_key
from lib.bandmas.safesieve import safesieve_learner
from lib.bandmas.schedule import Schedule, schedules_of
from lib.bandmas.study import Splits
from lib.bandmas.traffic import Traffic
from lib.messages.prompts import receiver_prompt
from lib.models.receiver import Receiver

COLUMNS = (
    *("workload", "policy", "variant", "task_utility", "evidence_utility", "utility", "bytes", "saving", "same_sets"),
    *("coverage", "edges_kept", "edges", "contexts", "tasks", "seeds"),
)


def sensitivity_table(
    receiver: Receiver,
    traffics: Mapping[str, Traffic],
    splits: Splits,
    utility: Utility,
    caps: Mapping[str, float],
    *,
    agentprune_variants: Mapping[str, AgentPruneSettings] = agentprune.VARIANTS,
    safesieve_variants: Mapping[str, SafeSieveSettings] = safesieve.VARIANTS,
    render: Render = receiver_prompt,
    max_tokens: int = 256,
) -> pd.DataFrame:
    """Train every variant on profile tasks, schedule the final tasks with it, and return one row a variant and workload.

    Parameters
    ----------
    receiver, traffics, splits, utility, render, max_tokens : as in `lib.bandmas.study.replay_all`
    caps : workload -> byte cap, as a share of the full bytes
    agentprune_variants, safesieve_variants : name -> settings; the first of each is what the others are compared with

    Returns
    -------
    DataFrame with ``workload``, ``policy``, ``variant``; ``task_utility``, ``evidence_utility``, ``utility`` (means within
    each seed, then over seeds; a failed call earned nothing), ``bytes`` and ``saving`` (means over tasks within each
    seed, then over seeds), ``same_sets`` (share of final tasks with the same packets as under the first variant),
    ``coverage`` (share answered), ``edges_kept`` and ``edges`` (means over seeds), ``contexts`` (asked in training, all
    seeds), ``tasks`` (final tasks, all seeds) and ``seeds``
    """
    learners: dict[tuple[str, str, str, int], Learner[Any]] = {}
    for name, traffic in traffics.items():
        for seed, split in splits[name].items():
            for variant, how in agentprune_variants.items():
                learners[name, "agentprune", variant, seed] = agentprune_learner(traffic, split, how)
            for variant, choice in safesieve_variants.items():
                learners[name, "safesieve", variant, seed] = safesieve_learner(traffic, split, choice)
    states = learn_together(receiver, learners, utility, render=render, max_tokens=max_tokens)
    schedules: dict[tuple[str, str, str, int], list[Schedule]] = {}
    for (name, policy, variant, seed), state in states.items():
        finals, trained = splits[name][seed].final, {policy: state}
        schedules[name, policy, variant, seed] = schedules_of(
            traffics[name], finals, None, seed=seed, policies=[policy], betas=[caps[name]], baselines=trained
        )
    every = [one for made in schedules.values() for one in made]
    replies = answer_schedules(receiver, every, traffics, render=render, max_tokens=max_tokens)
    outcomes = {key: outcome_of(key[0], reply, utility) for key, reply in replies.items()}
    first = {"agentprune": next(iter(agentprune_variants), ""), "safesieve": next(iter(safesieve_variants), "")}
    rows = [
        {**_item(one, default, outcomes[context_key(one)]), **_trained(states[name, policy, variant, seed])}
        | {"workload": name, "policy": policy, "variant": variant, "seed": seed}
        for (name, policy, variant, seed), made in schedules.items()
        for one, default in zip(made, schedules[name, policy, first[policy], seed], strict=True)
    ]
    return _summary(pd.DataFrame(rows))


def _item(one: Schedule, default: Schedule, outcome: Outcome) -> dict[str, Any]:
    """Return what one final task says; what was asked and not answered earned nothing."""
    answered = outcome["finish"] != "error"
    return {
        **{part: outcome[part] if answered else 0.0 for part in PARTS},
        "bytes": one.admission.bytes,
        "saving": one.admission.saving,
        "same_sets": context_key(one) == context_key(default),
        "coverage": answered,
    }


def _trained(state: FrozenState) -> dict[str, int]:
    kept, edges = state.sizes()
    return {"edges_kept": kept, "edges": edges, "contexts": state.contexts}


def _summary(items: pd.DataFrame) -> pd.DataFrame:
    """Return means within each seed, then over seeds; contexts and tasks are summed."""
    if items.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    row = ["workload", "policy", "variant"]
    numbers = items.drop(columns=row).astype(float).assign(tasks=1.0)
    by_seed = numbers.assign(**items[row]).groupby([*row, "seed"], sort=False)
    seeds = by_seed.mean().assign(tasks=by_seed["tasks"].sum())
    over = seeds.groupby(row, sort=False)
    totals = over[["contexts", "tasks"]].sum().astype(int)
    return over.mean().assign(**totals, seeds=over.size()).reset_index()[list(COLUMNS)]
