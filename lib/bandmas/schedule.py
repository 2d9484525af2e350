"""What each policy sends of each final task: schedules, made before any final reply exists.

`schedules_of` sees queries, packets, sizes and a frozen predictor. Gold answers, replies and replay effects have no
way in, so equal inputs give equal schedules byte for byte, whatever the outcomes are. `schedule_finals` does it for
the final tasks of every workload and seed, after checking that the predictor is still the one that was frozen.

Full communication (no cap) and Empty (nothing sent) frame the policies: they are scheduled once a task.

Not covered: answers and scores (`lib.bandmas.results`), adaptive admission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from lib.bandmas.admission import Admission, admit_static, wire_cap
from lib.bandmas.scores import LAMBDA1, LEARNED, POLICIES, Predictor, policy_scores
from lib.bandmas.shrinkage import PredictorError
from lib.bandmas.study import Fitted
from lib.bandmas.traffic import Traffic

FULL, EMPTY = "full", "empty"
STUDY_POLICIES = (FULL, EMPTY, "causal", "hybrid", "semantic", "random", "smallest_first")
REFERENCES = {FULL: 1.0, EMPTY: 0.0}  # scheduled once a task, at these shares of the full bytes


class Schedule(msgspec.Struct, frozen=True):
    """What one policy sends of one final task under one cap.

    Parameters
    ----------
    workload, seed, policy, beta, task_id : names it; `beta` is the cap as a share of the full bytes
    predictor : fingerprint of the predictor behind a learned policy, else None
    admission : packets admitted and skipped, with exact bytes
    """

    workload: str
    seed: int
    policy: str
    beta: float
    task_id: str
    predictor: str | None
    admission: Admission


def schedules_of(
    traffic: Traffic,
    task_ids: Sequence[str],
    predictor: Predictor | None,
    *,
    seed: int = 0,
    policies: Sequence[str] = STUDY_POLICIES,
    betas: Sequence[float] = (0.5,),
    lambda1: float = LAMBDA1,
    fingerprint: str | None = None,
) -> list[Schedule]:
    """Schedule tasks under every policy and cap from packets, queries and a frozen predictor alone.

    Parameters
    ----------
    traffic : tasks (queries) and packets
    task_ids : what to schedule
    predictor : fitted and frozen; None if no policy needs one
    seed : names the draw of the random policy
    policies : of `lib.bandmas.scores.POLICIES`, and ``empty``; ``full`` and ``empty`` are scheduled once a task
    betas : caps, as shares of each task's full bytes
    lambda1 : weight of the predicted effect in ``hybrid``
    fingerprint : the predictor's, recorded in the schedules of learned policies
    """
    unknown = [policy for policy in policies if policy not in (*POLICIES, EMPTY)]
    if unknown:
        raise ValueError(f"policy {unknown[0]!r} is unknown: use some of {', '.join((*POLICIES, EMPTY))}")
    made = []
    for policy in policies:
        for task_id in task_ids:
            packets, full = traffic.packets[task_id], traffic.full_bytes[task_id]
            scores = (
                np.zeros(len(packets))
                if policy in REFERENCES
                else policy_scores(policy, traffic.tasks[task_id].query, packets, predictor, seed, lambda1=lambda1)
            )
            for beta in [REFERENCES[policy]] if policy in REFERENCES else betas:
                admission = admit_static(packets, scores, None if policy == FULL else wire_cap(beta, full))
                behind = fingerprint if policy in LEARNED else None
                made.append(Schedule(traffic.workload, seed, policy, float(beta), task_id, behind, admission))
    return made


def schedule_finals(
    traffics: Mapping[str, Traffic],
    fits: Sequence[Fitted],
    *,
    policies: Sequence[str] = STUDY_POLICIES,
    betas: Mapping[str, Sequence[float]],
    lambda1: float = LAMBDA1,
) -> list[Schedule]:
    """Schedule the final tasks of every fit.

    Parameters
    ----------
    betas : workload -> caps

    Raises
    ------
    PredictorError
        If a predictor is not the one whose fingerprint was recorded when it was fitted.
    """
    schedules = []
    for fit in fits:
        if fit.predictor.fingerprint() != fit.fingerprint:
            raise PredictorError(
                f"{fit.workload}, seed {fit.seed}: the predictor changed after it was frozen; load the saved one"
            )
        schedules += schedules_of(
            traffics[fit.workload],
            fit.split.final,
            fit.predictor,
            seed=fit.seed,
            policies=policies,
            betas=betas[fit.workload],
            lambda1=lambda1,
            fingerprint=fit.fingerprint,
        )
    return schedules
