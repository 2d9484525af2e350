"""What each policy sends of each final task: schedules, made before any final reply exists.

`schedules_of` sees queries, packets, sizes and a frozen predictor. Gold answers, replies and replay effects have no
way in, so equal inputs give equal schedules byte for byte, whatever the outcomes are. `schedule_finals` does it for
the final tasks of every workload and seed, after checking that the predictor is still the one that was frozen.

Full communication (no cap) and Empty (nothing sent) frame the policies: they are scheduled once a task. The reproduced
baselines choose among packets before the rest is ranked: `ranked_by` gives scores and what may be sent for any policy,
`admit_kept` admits under the cap. The packets of a task are serialised once, whatever the number of policies and caps.

Not covered: answers and scores (`lib.bandmas.results`), adaptive admission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from lib.bandmas.admission import Admission, WireSizes, admit_static, wire_cap, wire_sizes
from lib.bandmas.scores import BASELINES, LAMBDA1, LEARNED, POLICIES, Baseline, Predictor, policy_scores
from lib.bandmas.shrinkage import PredictorError
from lib.bandmas.study import Fitted
from lib.bandmas.traffic import Traffic
from lib.messages.packets import Packet

FULL, EMPTY = "full", "empty"
STUDY_POLICIES = (FULL, EMPTY, "causal", "hybrid", "semantic", "random", "smallest_first")
REFERENCES = {FULL: 1.0, EMPTY: 0.0}  # scheduled once a task, at these shares of the full bytes


class Schedule(msgspec.Struct, frozen=True):
    """What one policy sends of one final task under one cap.

    Parameters
    ----------
    workload, seed, policy, beta, task_id : names it; `beta` is the cap as a share of the full bytes
    predictor : fingerprint of the predictor behind a learned policy or of the trained baseline, else None
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
    baselines: Mapping[str, Baseline] | None = None,
) -> list[Schedule]:
    """Schedule tasks under every policy and cap from packets, queries and a frozen predictor alone.

    Parameters
    ----------
    traffic : tasks (queries) and packets
    task_ids : what to schedule
    predictor : fitted and frozen; None if no policy needs one
    seed : names the draw of the random policy
    policies : of `lib.bandmas.scores.POLICIES` and `BASELINES`, and ``empty``; ``full`` and ``empty`` are scheduled once a
        task
    betas : caps, as shares of each task's full bytes
    lambda1 : weight of the predicted effect in ``hybrid``
    fingerprint : the predictor's, recorded in the schedules of learned policies
    baselines : policy -> trained state, for those of `BASELINES` that are scheduled
    """
    known = (*POLICIES, *BASELINES, EMPTY)
    unknown = [policy for policy in policies if policy not in known]
    if unknown:
        raise ValueError(f"policy {unknown[0]!r} is unknown: use some of {', '.join(known)}")
    trained = dict(baselines or {})
    sizes = {task_id: wire_sizes(traffic.packets[task_id]) for task_id in task_ids}
    made = []
    for policy in policies:
        behind = fingerprint if policy in LEARNED else None
        behind = trained[policy].fingerprint() if policy in trained else behind
        for task_id in task_ids:
            packets, full = traffic.packets[task_id], traffic.full_bytes[task_id]
            query = traffic.tasks[task_id].query
            scores, kept = ranked_by(policy, query, packets, predictor, seed, lambda1=lambda1, baselines=trained)
            for beta in [REFERENCES[policy]] if policy in REFERENCES else betas:
                cap = None if policy == FULL else wire_cap(beta, full)
                admission = admit_kept(packets, scores, kept, cap, sizes=sizes[task_id])
                made.append(Schedule(traffic.workload, seed, policy, float(beta), task_id, behind, admission))
    return made


def ranked_by(
    policy: str,
    task_query: str,
    packets: Sequence[Packet],
    predictor: Predictor | None = None,
    seed: int = 0,
    *,
    lambda1: float = LAMBDA1,
    baselines: Mapping[str, Baseline] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return, under any policy, a score for each packet of one task, and whether it may be sent at all.

    Parameters
    ----------
    policy, task_query, packets, predictor, seed, lambda1 : as in `policy_scores`
    baselines : policy -> trained state

    Returns
    -------
    scores : (n_packets,) higher first; zeros for ``full`` and ``empty``
    kept : (n_packets,) bool; all True but for the baselines

    Raises
    ------
    ValueError
        If a baseline has no trained state, and as `policy_scores`.
    """
    everything = np.ones(len(packets), dtype=bool)
    if policy in REFERENCES:
        return np.zeros(len(packets)), everything
    if policy not in BASELINES:
        return policy_scores(policy, task_query, packets, predictor, seed, lambda1=lambda1), everything
    if not baselines or policy not in baselines:
        raise ValueError(f"policy {policy!r} needs its trained state: train it and pass it among the baselines")
    return baselines[policy].select(task_query, packets)


def admit_kept(
    packets: Sequence[Packet],
    scores: np.ndarray,
    kept: np.ndarray,
    cap_bytes: int | None,
    *,
    sizes: WireSizes | None = None,
) -> Admission:
    """Admit under a cap what a policy keeps; the other packets are skipped, however much room is left.

    Parameters
    ----------
    packets, scores, cap_bytes, sizes : as in `admit_static`
    kept : (n_packets,) bool
    """
    known = wire_sizes(packets) if sizes is None else sizes
    if kept.all():
        return admit_static(packets, scores, cap_bytes, sizes=known)
    open_ = [packet for packet, keep in zip(packets, kept, strict=True) if keep]
    refused = [packet for packet, keep in zip(packets, kept, strict=True) if not keep]
    sent = admit_static(open_, scores[kept], cap_bytes, sizes=known)
    skipped = sorted((*sent.skipped, *refused), key=lambda packet: packet.packet_id)
    full_bytes = known.batch(sum(known.records[packet.packet_id] for packet in packets), len(packets))
    return msgspec.structs.replace(sent, skipped=tuple(skipped), full_bytes=full_bytes)


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
        If a predictor or baseline is not the one whose fingerprint was recorded when it was fitted.
    """
    schedules = []
    for fit in fits:
        if fit.predictor.fingerprint() != fit.fingerprint:
            raise PredictorError(
                f"{fit.workload}, seed {fit.seed}: the predictor changed after it was frozen; load the saved one"
            )
        for policy, state in fit.baselines.items():
            if state.fingerprint() != fit.baseline_fingerprints[policy]:
                raise PredictorError(
                    f"{fit.workload}, seed {fit.seed}: {policy} changed after it was frozen; load the saved one"
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
            baselines=fit.baselines,
        )
    return schedules
