"""The protocol of a BANDMAS study up to the frozen predictor: split, replay, fit, freeze.

Context
-------
A pool of tasks is split once per seed into profile, validation and final parts. Replays may be read for profile and
validation tasks of *that* seed; the predictor is fitted on profile tasks, checked on validation tasks (nothing is
chosen by them), frozen with its fingerprint, and only then are final tasks scheduled.

Intuition
---------
The replay effects of a task do not depend on the split, so the contexts of every task that some seed may replay are
asked once, all in one receiver call. What a seed may *read* of them is cut to its own profile and validation tasks
(`visible_effects`): the same task may be a final task under another seed, and there its effects do not exist.

How to read the result
----------------------
`fit_splits` gives one `Fitted` a workload and seed: the frozen predictor, its gate, and how well held-out effects are
ranked. `freeze_predictors` writes them down; `lib.bandmas.schedule` goes on from there.

Not covered: schedules, answers and scores of final tasks (`lib.bandmas.schedule`, `lib.bandmas.results`); tuning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from lib.bandmas.admission import admit_static, wire_cap
from lib.bandmas.diagnostics import (
    cross_fitted,
    not_crossed,
    rank_correlation,
    recall_at_cap,
    signal_by_level,
    useful_packet_recall,
)
from lib.bandmas.features import labelled, packet_features
from lib.bandmas.promotion import Gate, promotion_gate
from lib.bandmas.replay import Job, LeakError, Render, Utility, effects_of, label_composition, replay_outcomes
from lib.bandmas.scores import policy_scores
from lib.bandmas.shrinkage import LEVELS, PredictorError, ShrinkagePredictor
from lib.bandmas.traffic import Traffic
from lib.messages.prompts import receiver_prompt
from lib.models.receiver import Receiver
from lib.tasks.task import Split, split_tasks


class Fitted(msgspec.Struct, frozen=True):
    """What one seed learned on one workload before it saw any final task.

    Parameters
    ----------
    workload, seed, split : where it belongs
    predictor, fingerprint : fitted on profile tasks; SHA-256 of its state
    gate : verdict on promotion over profile and validation tasks
    crossed : cross-fitted predictions of the profile packets, see `cross_fitted`; empty with fewer than two tasks
    correlation, recall : Spearman and useful-packet recall of `crossed`; NaN where undefined
    chance : share of positive packets among them, about what a random order recalls
    validation_correlation : Spearman of the frozen predictor on validation packets, looked at and never tuned on
    packets, unmeasured : profile packets with an effect, and without one (failed calls)
    baselines, baseline_fingerprints : policy -> reproduced baseline trained on the same profile tasks, and SHA-256 of its
        state; empty in a study without them
    """

    workload: str
    seed: int
    split: Split
    predictor: Any
    fingerprint: str
    gate: Gate
    crossed: Any
    correlation: float
    recall: float
    chance: float
    validation_correlation: float
    packets: int
    unmeasured: int
    baselines: dict[str, Any] = {}
    baseline_fingerprints: dict[str, str] = {}


Splits = Mapping[str, Mapping[int, Split]]  # workload -> seed -> split


def splits_of(traffics: Mapping[str, Traffic], seeds: Iterable[int]) -> dict[str, dict[int, Split]]:
    """Return the split of every workload and seed; shares of 40, 20 and 40 % (spec, section 1)."""
    order = list(seeds)
    if not order or len(set(order)) != len(order):
        raise ValueError(f"seeds: need at least one, each once, not {order}")
    return {name: {seed: split_tasks(traffic.tasks, seed) for seed in order} for name, traffic in traffics.items()}


def replayable_ids(splits: Mapping[int, Split]) -> list[str]:
    """Return the ids that some seed may replay: its profile and validation tasks, each once, in a fixed order."""
    return sorted({task_id for split in splits.values() for task_id in (*split.profile, *split.validation)})


def replay_jobs(traffics: Mapping[str, Traffic], splits: Splits) -> list[Job]:
    """Return (task, packets) of every task that some seed may replay, workload by workload."""
    return [job for name, traffic in traffics.items() for job in traffic.jobs(replayable_ids(splits[name]))]


def replay_all(
    receiver: Receiver,
    traffics: Mapping[str, Traffic],
    splits: Splits,
    utility: Utility,
    *,
    render: Render = receiver_prompt,
    max_tokens: int = 256,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Replay every task that some seed may replay, all contexts of all workloads in one receiver call.

    Returns
    -------
    outcomes, effects : frames of `replay_outcomes` and `effects_of` with a ``workload`` column; the effects also with
        ``marker`` and ``wire_bytes``
    """
    jobs = replay_jobs(traffics, splits)
    owner = {task_id: name for name in traffics for task_id in replayable_ids(splits[name])}
    outcomes = replay_outcomes(receiver, jobs, utility, render, set(owner), max_tokens=max_tokens)
    effects = effects_of(outcomes, jobs)
    features = packet_features([packet for _, packets in jobs for packet in packets]).set_index("packet_id")
    effects = effects.assign(**{name: effects["packet_id"].map(features[name]) for name in ("marker", "wire_bytes")})
    for frame in (outcomes, effects):
        frame.insert(0, "workload", frame["task_id"].map(owner))
    return outcomes, effects


def visible_effects(
    effects: pd.DataFrame, split: Split, parts: Sequence[str] = ("profile", "validation")
) -> pd.DataFrame:
    """Return the effects that this split may read: those of its own profile and validation tasks.

    Raises
    ------
    LeakError
        If another part is asked for: final tasks have no effects.
    """
    for part in parts:
        if part not in ("profile", "validation"):
            raise LeakError(
                f"effects of the {part!r} part of seed {split.seed} may not be read; use profile, validation"
            )
    ids = {task_id for part in parts for task_id in getattr(split, part)}
    return effects[effects["task_id"].isin(ids)].reset_index(drop=True)


def fit_split(
    traffic: Traffic, split: Split, effects: pd.DataFrame, *, alpha: float = 6.0, levels: str = "leaf"
) -> Fitted:
    """Fit the predictor of one seed on its profile tasks and look at it on its validation tasks.

    Parameters
    ----------
    traffic : packets of the workload
    split : the seed's split
    effects : replay effects of any tasks; rows outside this split's profile and validation parts are not read
    alpha, levels : of `ShrinkagePredictor`, fixed beforehand

    Raises
    ------
    PredictorError
        If no profile packet has a measured effect.
    """
    profile = visible_effects(effects, split, ["profile"])
    validation = visible_effects(effects, split, ["validation"])
    missing = sorted({*split.profile} - {*profile["task_id"]} - {i for i in split.profile if not traffic.packets[i]})
    if missing:
        raise ValueError(f"{traffic.workload}: profile task {missing[0]!r} was not replayed; replay all of the split")
    X, y = labelled(_features(traffic, split.profile), profile)
    if X.empty:
        raise PredictorError(
            f"{traffic.workload}, seed {split.seed}: no profile packet has a measured effect, because calls failed; run "
            "again (failed calls are asked anew) or take more tasks"
        )
    model = ShrinkagePredictor(alpha=alpha, levels=levels)
    predictor = model.fit(X, y)
    crossed = cross_fitted(X, y, predictor=ShrinkagePredictor(alpha=alpha, levels=levels)) if _several(X) else None
    seen = [message for i in (*split.profile, *split.validation) for message in traffic.messages[i]]
    return Fitted(
        workload=traffic.workload,
        seed=split.seed,
        split=split,
        predictor=predictor,
        fingerprint=predictor.fingerprint(),
        gate=promotion_gate(pd.concat([profile, validation]), seen),
        crossed=not_crossed(levels) if crossed is None else crossed,
        correlation=math.nan if crossed is None else rank_correlation(crossed),
        recall=math.nan if crossed is None else useful_packet_recall(crossed),
        chance=float(label_composition(profile)["positive_share"].iloc[0]),
        validation_correlation=_validation_correlation(predictor, traffic, split, validation),
        packets=len(X),
        unmeasured=len(profile) - len(X),
    )


def fit_splits(
    traffics: Mapping[str, Traffic],
    splits: Splits,
    effects: pd.DataFrame,
    *,
    alpha: float = 6.0,
    levels: str = "leaf",
) -> list[Fitted]:
    """Fit every workload and seed; see `fit_split`."""
    return [
        fit_split(traffic, split, effects, alpha=alpha, levels=levels)
        for name, traffic in traffics.items()
        for split in splits[name].values()
    ]


def with_baselines(fits: Sequence[Fitted], **trained: Mapping[tuple[str, int], Any]) -> list[Fitted]:
    """Return the fits with reproduced baselines, so that they are frozen and scheduled beside the learned policies.

    Parameters
    ----------
    trained : policy -> (workload, seed) -> state, from `train_agentprune` and `train_safesieve`

    Raises
    ------
    PredictorError
        If a baseline was not trained for a fit.
    """
    joined = []
    for fit in fits:
        missing = [policy for policy, states in trained.items() if (fit.workload, fit.seed) not in states]
        if missing:
            raise PredictorError(
                f"{fit.workload}, seed {fit.seed}: {missing[0]} was not trained here; train it on the same splits"
            )
        states = fit.baselines | {policy: states[fit.workload, fit.seed] for policy, states in trained.items()}
        prints = {policy: state.fingerprint() for policy, state in states.items()}
        joined.append(msgspec.structs.replace(fit, baselines=states, baseline_fingerprints=prints))
    return joined


def freeze_predictors(fits: Sequence[Fitted], folder: Path | str) -> list[Fitted]:
    """Write each predictor as `<workload>-<seed>.json` and return the fits with what was read back.

    Baselines are written beside it as `<workload>-<seed>-<policy>.json`.

    Raises
    ------
    PredictorError
        If a predictor or baseline does not come back with the fingerprint it was fitted with.
    """
    frozen = []
    for fit in fits:
        path = fit.predictor.save(Path(folder) / f"{fit.workload}-{fit.seed}.json")
        loaded = ShrinkagePredictor.load(path)
        if loaded.fingerprint() != fit.fingerprint:
            raise PredictorError(f"{path}: the predictor changed between fitting and freezing; fit it again")
        baselines = {}
        for policy, state in fit.baselines.items():
            path = state.save(Path(folder) / f"{fit.workload}-{fit.seed}-{policy}.json")
            baselines[policy] = type(state).load(path)
            if baselines[policy].fingerprint() != fit.baseline_fingerprints[policy]:
                raise PredictorError(f"{path}: {policy} changed between training and freezing; train it again")
        frozen.append(msgspec.structs.replace(fit, predictor=loaded, baselines=baselines))
    return frozen


def fit_table(fits: Sequence[Fitted]) -> pd.DataFrame:
    """Return one row a workload and seed: counts, gate, label shares, correlations, recall and fingerprint."""
    return pd.DataFrame(
        [
            {
                "workload": fit.workload,
                "seed": fit.seed,
                **{f"{part}_tasks": len(getattr(fit.split, part)) for part in ("profile", "validation", "final")},
                "packets": fit.packets,
                "unmeasured": fit.unmeasured,
                "positive_share": fit.gate.positive_share,
                "zero_share": fit.gate.zero_share,
                "negative_share": fit.gate.negative_share,
                "correlation": fit.correlation,
                "recall": fit.recall,
                "chance": fit.chance,
                "validation_correlation": fit.validation_correlation,
                "promoted": fit.gate.passed,
                "reasons": "; ".join(fit.gate.reasons),
                "fingerprint": fit.fingerprint,
            }
            for fit in fits
        ]
    )


def support_table(traffics: Mapping[str, Traffic], fits: Sequence[Fitted]) -> pd.DataFrame:
    """Return, per workload and level, how many labelled packets stand behind the scores of final packets.

    Returns
    -------
    DataFrame with ``workload``, ``level``, ``cells`` (mean over seeds), ``median_support`` (packets) and
    ``unseen_share`` (final packets whose cell is new and gets its prior). Only packets are read, no outcome.
    """
    rows = []
    for fit in fits:
        trace = fit.predictor.trace(_features(traffics[fit.workload], fit.split.final))
        for level in LEVELS[fit.predictor.levels]:
            support = trace[f"n_{level}"]
            head = {"workload": fit.workload, "level": level, "cells": len(fit.predictor.cells_[level])}
            rows.append({**head, "median_support": support.median(), "unseen_share": float((support == 0).mean())})
    columns = ["cells", "median_support", "unseen_share"]
    return pd.DataFrame(rows).groupby(["workload", "level"], sort=False)[columns].mean().reset_index()


def signal_table(fits: Sequence[Fitted]) -> pd.DataFrame:
    """Return, per workload and level, how well that level alone ranks held-out profile packets.

    Returns
    -------
    DataFrame with ``workload``, ``level``, ``correlation`` and ``recall``, means over the seeds with cross-fitted predictions
    """
    parts = [signal_by_level(fit.crossed).assign(workload=fit.workload) for fit in fits if len(fit.crossed)]
    if not parts:
        return pd.DataFrame(columns=["workload", "level", "correlation", "recall"])
    return pd.concat(parts).groupby(["workload", "level"], sort=False)[["correlation", "recall"]].mean().reset_index()


def cell_table(fits: Sequence[Fitted], level: str, *, most: int = 8) -> pd.DataFrame:
    """Return the cells of one level with most labelled packets, and what they say.

    Parameters
    ----------
    fits : one seed's fits, or more; a cell is a row for each
    level : one of the predictor's levels
    most : cells a fit

    Returns
    -------
    DataFrame with ``workload``, ``seed``, ``cell``, ``packets``, ``mean`` (of their effects) and ``weight`` (its share in
    the cell's estimate; the rest is the broader cells')
    """
    rows = []
    for fit in fits:
        cells = sorted(fit.predictor.cells_[level].items(), key=lambda cell: (-cell[1][0], cell[0]))
        for key, (n, mean) in cells[:most]:
            name = " / ".join(str(part) for part in key)
            rows.append((fit.workload, fit.seed, name, n, mean, n / (n + fit.predictor.alpha)))
    return pd.DataFrame(rows, columns=["workload", "seed", "cell", "packets", "mean", "weight"])


def recall_under_cap(
    traffics: Mapping[str, Traffic], fits: Sequence[Fitted], effects: pd.DataFrame, beta: float
) -> pd.DataFrame:
    """Return the share of helpful profile packets that a byte cap keeps, by ranking.

    The predicted ranking is cross-fitted: no task is ranked by a predictor that saw it. Semantic relevance and a
    random order stand beside it.

    Returns
    -------
    DataFrame, one row a fit: ``workload``, ``seed``, ``predicted``, ``semantic``, ``random``; NaN without a helpful
    packet or without cross-fitted predictions
    """
    rows = []
    for fit in fits:
        traffic, known = (
            traffics[fit.workload],
            dict(zip(fit.crossed["packet_id"], fit.crossed["predicted"], strict=True)),
        )
        admitted: dict[str, dict[str, set[str]]] = {"predicted": {}, "semantic": {}, "random": {}}
        for task_id in fit.split.profile if known else ():
            packets = [packet for packet in traffic.packets[task_id] if packet.packet_id in known]
            cap = wire_cap(beta, traffic.full_bytes[task_id])
            for name, tasks in admitted.items():
                scores = (
                    np.array([known[packet.packet_id] for packet in packets])
                    if name == "predicted"
                    else policy_scores(name, traffic.tasks[task_id].query, packets, seed=fit.seed)
                )
                tasks[task_id] = {packet.packet_id for packet in admit_static(packets, scores, cap).admitted}
        measured = visible_effects(effects, fit.split, ["profile"])
        kept = {name: recall_at_cap(measured, tasks) if tasks else math.nan for name, tasks in admitted.items()}
        rows.append({"workload": fit.workload, "seed": fit.seed, **kept})
    return pd.DataFrame(rows, columns=["workload", "seed", "predicted", "semantic", "random"])


def _features(traffic: Traffic, task_ids: Iterable[str]) -> pd.DataFrame:
    return packet_features([packet for task_id in task_ids for packet in traffic.packets[task_id]])


def _several(features: pd.DataFrame) -> bool:
    return features["task_id"].nunique() >= 2


def _validation_correlation(
    predictor: ShrinkagePredictor, traffic: Traffic, split: Split, effects: pd.DataFrame
) -> float:
    X, y = labelled(_features(traffic, split.validation), effects)
    return math.nan if X.empty else rank_correlation(pd.DataFrame({"predicted": predictor.predict(X), "rce": y}))
