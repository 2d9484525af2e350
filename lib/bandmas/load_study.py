"""The load study: what the queues can bear, every policy at every offered load, and what the answers were worth.

Context
-------
The paper offers loads from half to one and a half times mu_ref, what the slower of link and receiver can do under full
communication, and compares utility with tail latency (section V-F, Figure 5 and Table V).

Intuition
---------
Calibration tasks, disjoint from the final ones, tell three things before any final task arrives: mu_ref, the scales of
the prices (what static causal admission sends on average), and the receiver's time as a function of tokens. Then every
policy meets the same arrivals at every load. Utilities are joined last, by packet set: no decision ever sees them.

How to read the result
----------------------
Below a load of one, static admission meets most deadlines and there is little to adapt to; above it the queue grows
for as long as tasks arrive, so tail latency belongs to the number of arrivals as much as to the load. `load_sweep`
gives one row an arrival, `scored_arrivals` adds the utilities, `scheduler_times` the cost of deciding.

Not covered: intervals and figures (`lib.evaluation.load_summary`, `lib.evaluation.load_figures`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
import pandas as pd

from lib.bandmas.adaptive import (
    AdaptiveController,
    Backlog,
    Candidates,
    Prices,
    Pricing,
    System,
    admit_adaptive,
    candidates_of,
)
from lib.bandmas.admission import admit_static, wire_cap
from lib.bandmas.load import (
    CALIBRATION_TASKS,
    RUN_COLUMNS,
    Sent,
    arrivals_of,
    calibration_ids,
    run_adaptive,
    run_static,
)
from lib.bandmas.queueing import capacity
from lib.bandmas.replay import PARTS, outcome_of, outcome_table
from lib.bandmas.results import ContextKey, context_key, outcome_records, scorer_of
from lib.bandmas.schedule import FULL, schedules_of
from lib.bandmas.scores import LAMBDA1, policy_scores
from lib.bandmas.service import ContextAnswers, Service, ServiceModel, fit_service
from lib.bandmas.shrinkage import PredictorError
from lib.bandmas.study import Fitted
from lib.bandmas.traffic import Traffic
from lib.models.receiver import Reply
from lib.seeds import hash_order
from lib.tasks.task import Workload

RHOS = (0.5, 0.8, 1.0, 1.2, 1.5)  # offered loads of the paper, section V-F
STATIC = (FULL, "semantic", "causal")
ADAPTIVE = "adaptive"


class LoadCase(msgspec.Struct, frozen=True):
    """One workload and seed under load: what is scheduled, by which frozen predictor, through what.

    Parameters
    ----------
    traffic, fit : packets, and the frozen predictor
    tokens : packet id -> tokens of its content
    beta : cap, as a share of each task's full bytes
    system : link rate, deadline and context limit
    eta : step of the prices
    scored_by, lambda1 : the frozen value of adaptive packets, ``causal`` or ``hybrid``, and the weight in the latter
    warm_up : calibration tasks
    count : arrivals after them, see `arrivals_of`

    Raises
    ------
    PredictorError
        If the predictor is not the one whose fingerprint was recorded when it was fitted.
    """

    traffic: Traffic
    fit: Fitted
    tokens: Mapping[str, int]
    beta: float
    system: System = System()
    eta: float = 0.05
    scored_by: str = "causal"
    lambda1: float = LAMBDA1
    warm_up: int = CALIBRATION_TASKS
    count: int | None = None

    def __post_init__(self) -> None:
        if self.fit.predictor.fingerprint() != self.fit.fingerprint:
            raise PredictorError(f"{self}: the predictor changed after it was frozen; load the saved one")

    def __str__(self) -> str:
        return f"{self.fit.workload}, seed {self.fit.seed}"

    @property
    def calibration(self) -> tuple[str, ...]:
        """Ids of the calibration tasks."""
        return calibration_ids(self.fit.split, self.warm_up)

    def values(self, task_id: str, policy: str) -> np.ndarray:
        """Return the frozen values of one task's packets, which `policy` ranks by."""
        query, packets = self.traffic.tasks[task_id].query, self.traffic.packets[task_id]
        name = self.scored_by if policy == ADAPTIVE else policy
        return policy_scores(name, query, packets, self.fit.predictor, self.fit.seed, lambda1=self.lambda1)

    def cap(self, task_id: str) -> int:
        """Return the byte cap of one task."""
        return wire_cap(self.beta, self.traffic.full_bytes[task_id])

    def candidates(self, task_id: str) -> Candidates:
        """Return the packets of one task as the adaptive policy ranks them."""
        packets = self.traffic.packets[task_id]
        return candidates_of(task_id, packets, self.values(task_id, ADAPTIVE), self.tokens, self.cap(task_id))


class Capacity(msgspec.Struct, frozen=True):
    """What full communication and static admission use on the calibration tasks of one case.

    Parameters
    ----------
    workload, seed, tasks : where it belongs, and how many tasks it was measured on
    full_bytes, full_seconds : means of full communication: bytes, and seconds at the receiver
    per_second : mu_ref, tasks a second of the slower of link and receiver
    bottleneck : which one that is, ``link`` or ``receiver``
    bytes_scale, context_scale : C_b and C_q, means of static admission by the value that adaptive admission uses
    """

    workload: str
    seed: int
    tasks: int
    full_bytes: float
    full_seconds: float
    per_second: float
    bottleneck: str
    bytes_scale: float
    context_scale: float


def static_sets(case: LoadCase, policies: Sequence[str] = STATIC) -> dict[str, dict[str, Sent]]:
    """Return what static policies send of every calibration and final task: policy -> task id -> packets and sizes."""
    task_ids = [*case.calibration, *case.fit.split.final]
    sets: dict[str, dict[str, Sent]] = {policy: {} for policy in policies}
    for one in schedules_of(
        case.traffic,
        task_ids,
        case.fit.predictor,
        seed=case.fit.seed,
        policies=policies,
        betas=[case.beta],
        lambda1=case.lambda1,
        fingerprint=case.fit.fingerprint,
    ):
        ids = context_key(one)[1]
        tokens = sum(case.tokens[packet_id] for packet_id in ids)
        sets[one.policy][one.task_id] = Sent(ids, one.admission.bytes, tokens)
    return sets


def contexts_of(sets: Mapping[str, Mapping[str, Sent]], task_ids: Iterable[str] | None = None) -> dict[ContextKey, int]:
    """Return every distinct packet set and its tokens, of all tasks or of some."""
    wanted = None if task_ids is None else set(task_ids)
    return {
        (task_id, sent.packet_ids): sent.context_tokens
        for by_task in sets.values()
        for task_id, sent in by_task.items()
        if wanted is None or task_id in wanted
    }


def calibration_calls(
    cases: Sequence[LoadCase],
    sets: Mapping[tuple[str, int], Mapping[str, Mapping[str, Sent]]],
    service: Service,
    answers: ContextAnswers,
    *,
    tick: Callable[[], None] | None = None,
) -> pd.DataFrame:
    """Return what the receiver took for each distinct packet set of the calibration tasks, all policies together.

    Parameters
    ----------
    sets : (workload, seed) -> `static_sets` of that case
    service : `LiveService` to measure, or `ReplayedService` of an assumed model
    answers : those behind `service`
    tick : called after each call, to show progress

    Returns
    -------
    DataFrame, one row a call, in hash order, so that a machine that warms up favours no policy: ``workload``,
    ``task_id``, ``packet_ids``, ``context_tokens``, ``new_tokens``, ``seconds``, ``failed``
    """
    wanted = {
        key: (case.fit.workload, tokens)
        for case in cases
        for key, tokens in contexts_of(sets[case.fit.workload, case.fit.seed], case.calibration).items()
    }
    rows = []
    for key in hash_order(wanted, "load-calibration"):
        workload, tokens = wanted[key]
        seconds = service.seconds(key, tokens)
        reply = answers.reply(key)
        head = {"workload": workload, "task_id": key[0], "packet_ids": " ".join(key[1]), "context_tokens": tokens}
        rows.append({**head, "new_tokens": reply.new_tokens, "seconds": seconds, "failed": reply.finish == "error"})
        if tick:
            tick()
    columns = ["workload", "task_id", "packet_ids", "context_tokens", "new_tokens", "seconds", "failed"]
    return pd.DataFrame(rows, columns=columns).astype({"new_tokens": "Int64", "failed": bool})


def service_models(calls: pd.DataFrame) -> dict[str, ServiceModel]:
    """Fit the service model of every workload on its calibration calls; failed calls tell nothing of an answer's time.

    Raises
    ------
    ValueError
        Naming the workload none of whose calls can be used.
    """
    models = {}
    for workload, rows in calls.groupby("workload", sort=False):
        good = rows[~rows["failed"] & rows["new_tokens"].notna()]
        if good.empty:
            raise ValueError(f"{workload}: no calibration call was answered with a known length; mend the receiver")
        models[str(workload)] = fit_service(good["context_tokens"], good["new_tokens"].astype(float), good["seconds"])
    return models


def capacity_of(case: LoadCase, sets: Mapping[str, Mapping[str, Sent]], service: Service) -> Capacity:
    """Return mu_ref and the price scales of a case, from its calibration tasks.

    Parameters
    ----------
    sets : from `static_sets`, with full communication and the policy that values adaptive packets
    service : tells the receiver's seconds

    Raises
    ------
    ValueError
        If `sets` lack one of the two policies.
    """
    missing = {FULL, case.scored_by} - set(sets)
    if missing:
        raise ValueError(f"{case}: capacity needs the sets of {sorted(missing)[0]!r}; name it in static_sets")
    ids = case.calibration
    full = [sets[FULL][task_id] for task_id in ids]
    scaled = [sets[case.scored_by][task_id] for task_id in ids]
    full_bytes = statistics.fmean(one.bytes for one in full)
    full_seconds = statistics.fmean(
        service.seconds((task_id, one.packet_ids), one.context_tokens) for task_id, one in zip(ids, full, strict=True)
    )
    return Capacity(
        workload=case.fit.workload,
        seed=case.fit.seed,
        tasks=len(ids),
        full_bytes=full_bytes,
        full_seconds=full_seconds,
        per_second=capacity(full_bytes, full_seconds, case.system.rate),
        bottleneck="link" if 8 * full_bytes / case.system.rate > full_seconds else "receiver",
        bytes_scale=statistics.fmean(one.bytes for one in scaled),
        context_scale=statistics.fmean(one.context_tokens for one in scaled),
    )


def load_sweep(
    case: LoadCase,
    sets: Mapping[str, Mapping[str, Sent]],
    known: Capacity,
    service: Service,
    model: ServiceModel,
    *,
    rhos: Sequence[float] = RHOS,
    adaptive: bool = True,
) -> pd.DataFrame:
    """Run the static policies of `sets`, and adaptive admission, at every load.

    Parameters
    ----------
    sets : from `static_sets`
    known : capacity and price scales
    service : what the queues take as the receiver's time: `ReplayedService` or `LiveService`
    model : what the scheduler believes of it, fitted on calibration calls
    rhos : offered loads, as shares of mu_ref

    Returns
    -------
    DataFrame, one row an arrival: ``workload``, ``seed``, ``policy``, ``rho`` and the columns of `run_static`
    """
    arrivals = arrivals_of(case.fit.workload, case.fit.split, warm_up=case.warm_up, count=case.count)
    offered = {task_id: case.candidates(task_id) for task_id in arrivals.tasks} if adaptive else {}
    pricing = _pricing(case, known)
    parts = []
    for policy in (*sets, *([ADAPTIVE] if adaptive else [])):
        for rho in rhos:
            rate = rho * known.per_second
            if policy == ADAPTIVE:
                controller = AdaptiveController(case.system, pricing, model)
                frame = run_adaptive(arrivals, rate, offered, service, controller)
            else:
                frame = run_static(arrivals, rate, sets[policy], service, case.system)
            parts.append(frame.assign(workload=case.fit.workload, seed=case.fit.seed, policy=policy, rho=float(rho)))
    return pd.concat(parts, ignore_index=True)[["workload", "seed", "policy", "rho", *RUN_COLUMNS]]


def answer_table(replies: Mapping[ContextKey, Reply], workloads: Mapping[str, Workload]) -> pd.DataFrame:
    """Score every answered packet set: one row each, with the raw reply, what was extracted, the gold and the reason.

    Returns
    -------
    DataFrame with ``task_id``, ``packet_ids`` (joined by blanks), ``n_sent``, ``task_utility``, ``evidence_utility``,
    ``utility`` (null where the call failed), ``raw``, ``extracted``, ``gold``, ``reason`` and the reply's costs
    """
    scorer = scorer_of(workloads)
    rows = [
        {"task_id": key[0], "contexts": key[1], "n_sent": len(key[1]), **outcome_of(key[0], reply, scorer)}
        for key, reply in replies.items()
    ]
    names = ["task_id", "contexts", "n_sent", "raw", *PARTS, "score", "prompt_tokens", "new_tokens", "seconds"]
    table = outcome_records(outcome_table(rows, [*names, "finish", "error"]), workloads)
    return table.rename(columns={"contexts": "packet_ids"})


def scored_arrivals(runs: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """Return the arrivals without warm-up and with the utilities of what was sent.

    Parameters
    ----------
    runs : rows of `load_sweep`
    answers : from `answer_table`

    Returns
    -------
    DataFrame with ``task_utility``, ``evidence_utility``, ``utility`` (null where the call failed) and ``answered``

    Raises
    ------
    ValueError
        If a packet set that was sent has no answer.
    """
    kept = runs[~runs["warm_up"]].reset_index(drop=True)
    known = answers[["task_id", "packet_ids", *PARTS]].assign(answered=answers["finish"] != "error")
    joined = kept.merge(known, on=["task_id", "packet_ids"], how="left", validate="many_to_one")
    if joined["answered"].isna().any():
        row = joined.loc[joined["answered"].isna()].iloc[0]
        raise ValueError(f"task {row['task_id']!r}: no answer to {row['packet_ids']!r}; ask it before scoring")
    return joined.astype({"answered": bool})


def scheduler_times(
    case: LoadCase,
    known: Capacity,
    model: ServiceModel,
    *,
    policies: Sequence[str] = (*STATIC, ADAPTIVE),
    task_ids: Sequence[str] | None = None,
    repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> pd.DataFrame:
    """Time the scheduler alone, score and admit, as the median of `repeats` (paper, Table V).

    Packets and their token counts are at hand; serialising packets for their sizes is part of the time. Full
    communication scores nothing and takes none.

    Parameters
    ----------
    task_ids : which tasks; default the final ones

    Returns
    -------
    DataFrame, one row a policy and task: ``workload``, ``seed``, ``policy``, ``task_id``, ``n_packets``,
    ``scheduler_ms``
    """
    pricing = _pricing(case, known)
    rows = []
    for policy in policies:
        for task_id in case.fit.split.final if task_ids is None else task_ids:
            packets = case.traffic.packets[task_id]
            taken = []
            for _ in range(0 if policy == FULL else repeats):
                start = clock()
                if policy == ADAPTIVE:
                    admit_adaptive(case.candidates(task_id), Backlog(0.0), Prices(), case.system, pricing, model)
                else:
                    admit_static(packets, case.values(task_id, policy), case.cap(task_id))
                taken.append(clock() - start)
            head = {"workload": case.fit.workload, "seed": case.fit.seed, "policy": policy, "task_id": task_id}
            median = 1000 * statistics.median(taken) if taken else 0.0
            rows.append({**head, "n_packets": len(packets), "scheduler_ms": median})
    return pd.DataFrame(rows, columns=["workload", "seed", "policy", "task_id", "n_packets", "scheduler_ms"])


def _pricing(case: LoadCase, known: Capacity) -> Pricing:
    return Pricing(known.bytes_scale, known.context_scale, latency_scale=case.system.deadline, eta=case.eta)
