"""Answer schedules, score the answers, and time some of them.

All distinct (task, packet set) contexts of all schedules go to the receiver in one call: policies that send the same
packets share one answer, so a difference between two policies is never the receiver's noise on equal input. Scoring
comes last and is the only step here that sees gold answers. The result is one row a workload, policy, cap, seed and
task, with the raw reply, what was extracted, the gold and the reason; a failed call has null utilities, never 0.

Latency is measured live, one prompt at a time after warm-up calls, on a sample of the schedules, and stands in a table
of its own: everything else repeats exactly, a clock does not.

Not covered: queues and offered load; means, intervals and tests (`lib.evaluation`).
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from lib.bandmas.replay import Render
from lib.bandmas.schedule import REFERENCES, Schedule, admit_kept, ranked_by
from lib.bandmas.scores import LAMBDA1, LEARNED
from lib.bandmas.study import Fitted
from lib.bandmas.traffic import Traffic, all_tasks
from lib.messages.packets import Packet
from lib.messages.prompts import receiver_prompt
from lib.models.receiver import Receiver, Reply
from lib.seeds import hash_order
from lib.tasks.scoring import Score, score_reply
from lib.tasks.task import Gold, Workload

ContextKey = tuple[str, tuple[str, ...]]  # (task id, delivered packet ids in order)
Scorer = Callable[[str, str], Score]

WARM_UP = 3  # discarded calls before any is timed (paper: latency is warmed)
COLUMNS = (
    *("workload", "policy", "beta", "seed", "task_id", "task_utility", "evidence_utility", "utility"),
    *("bytes", "full_bytes", "cap_bytes", "saving", "n_admitted", "n_packets", "context_tokens"),
    *("answered", "parsed", "repaired", "cut_short", "promoted", "predictor"),
    *("raw", "extracted", "gold", "reason", "packet_ids"),
)


def scorer_of(workloads: Mapping[str, Workload]) -> Scorer:
    """Return the metric of a study: (task id, raw reply) -> `Score`, over the tasks of all workloads.

    It holds the gold answers, so it belongs behind the receiver: nothing that schedules may be given it.
    """
    known = {task.id: (task, workload.gold[task.id]) for workload in workloads.values() for task in workload.tasks}

    def score(task_id: str, raw: str) -> Score:
        task, gold = known[task_id]
        return score_reply(task, gold, raw)

    return score


def context_key(schedule: Schedule) -> ContextKey:
    """Return what the receiver's answer depends on: the task and the delivered set."""
    return schedule.task_id, tuple(packet.packet_id for packet in schedule.admission.admitted)


def answer_schedules(
    receiver: Receiver,
    schedules: Sequence[Schedule],
    traffics: Mapping[str, Traffic],
    *,
    render: Render = receiver_prompt,
    max_tokens: int = 256,
) -> dict[ContextKey, Reply]:
    """Answer every distinct context of all schedules in one receiver call.

    Contexts of a task stand together in the call, larger sets first, so that a receiver can share their beginnings.
    """
    tasks = all_tasks(traffics)
    place = {task_id: index for index, task_id in enumerate(tasks)}
    sets: dict[ContextKey, tuple[Packet, ...]] = {context_key(one): one.admission.admitted for one in schedules}
    keys = sorted(sets, key=lambda key: (place[key[0]], -len(key[1]), key[1]))
    prompts = [render(tasks[key[0]], sets[key]) for key in keys]
    replies = receiver.reply(prompts, max_tokens=max_tokens) if prompts else []
    return dict(zip(keys, replies, strict=True))


def result_table(
    schedules: Sequence[Schedule],
    replies: Mapping[ContextKey, Reply],
    workloads: Mapping[str, Workload],
    tokens: Mapping[str, int],
    fits: Sequence[Fitted] = (),
) -> pd.DataFrame:
    """Score the answers: one row a schedule.

    Parameters
    ----------
    schedules, replies : from `schedule_finals` and `answer_schedules`
    workloads : with gold
    tokens : packet id -> tokens of its content, see `packet_tokens`
    fits : tell which predictors passed their gate (column ``promoted``)

    Returns
    -------
    DataFrame with ``workload``, ``policy``, ``beta``, ``seed``, ``task_id``; ``task_utility``, ``evidence_utility``,
    ``utility`` in [0, 1], null where the call failed; ``bytes``, ``full_bytes``, ``cap_bytes`` (null for full),
    ``saving`` (null where a task has no traffic), ``n_admitted``, ``n_packets``, ``context_tokens``; the flags
    ``answered`` (the call succeeded), ``parsed`` (the reply holds an object), ``repaired`` (after one mending),
    ``cut_short`` (by the token limit), ``promoted``; ``predictor`` (fingerprint), and as text ``raw``, ``extracted``, ``gold``, ``reason``,
    ``packet_ids``
    """
    scorer = scorer_of(workloads)
    gold = {task_id: one for workload in workloads.values() for task_id, one in workload.gold.items()}
    passed = {(fit.workload, fit.seed): fit.gate.passed for fit in fits}
    scored = {key: _scored(key[0], reply, scorer, gold[key[0]]) for key, reply in replies.items()}
    rows = []
    for one in schedules:
        key, sent = context_key(one), one.admission
        promoted = passed.get((one.workload, one.seed)) if one.policy in LEARNED else None
        head = (one.workload, one.policy, one.beta, one.seed, one.task_id)
        rows.append(
            {
                **dict(zip(COLUMNS, head, strict=False)),
                "bytes": sent.bytes,
                "full_bytes": sent.full_bytes,
                "cap_bytes": sent.cap_bytes,
                "saving": sent.saving,
                "n_admitted": len(sent.admitted),
                "n_packets": len(sent.admitted) + len(sent.skipped),
                "context_tokens": sum(tokens[packet_id] for packet_id in key[1]),
                **scored[key],
                "promoted": promoted,
                "predictor": one.predictor,
                "packet_ids": " ".join(key[1]),
            }
        )
    kinds = dict.fromkeys(("task_utility", "evidence_utility", "utility", "saving"), "float64")
    kinds |= {"cap_bytes": "Int64", "promoted": "boolean"}
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(kinds)


def outcome_records(outcomes: pd.DataFrame, workloads: Mapping[str, Workload]) -> pd.DataFrame:
    """Return replay outcomes as a table to keep: the metric's record becomes ``extracted``, ``gold`` and ``reason``.

    Seconds are left out: they are a share of a batch's work, and null for what came from a store.
    """
    gold = {task_id: one for workload in workloads.values() for task_id, one in workload.gold.items()}
    told = [
        {"extracted": None, "gold": _gold_text(gold[row["task_id"]]), "reason": f"the call failed: {row['error']}"}
        if row["score"] is None
        else _record(row["score"], gold[row["task_id"]])
        for row in outcomes.to_dict("records")
    ]
    table = outcomes.drop(columns=["score", "seconds"]).assign(contexts=[" ".join(one) for one in outcomes["contexts"]])
    columns = ("extracted", "gold", "reason")
    return storable(table.assign(**{name: pd.Series([row[name] for row in told], dtype=object) for name in columns}))


def storable(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with text that every file can hold: a lone surrogate is written as its escape."""
    kept = frame.copy()
    for name in frame.columns:
        if pd.api.types.is_object_dtype(frame[name]):
            cells = [_valid(cell) if isinstance(cell, str) else cell for cell in frame[name]]
            kept[name] = pd.Series(cells, index=frame.index, dtype=object)
    return kept


def at_caps(frame: pd.DataFrame, caps: Mapping[str, float]) -> pd.DataFrame:
    """Return the rows of each workload's one cap, with its full and empty references.

    Raises
    ------
    ValueError
        If a workload has no row at its cap: the cap was not scheduled.
    """
    reference = frame["policy"].isin(list(REFERENCES))
    chosen = frame["beta"] == frame["workload"].map(dict(caps))
    for name in frame["workload"].unique():
        capped = (frame["workload"] == name) & ~reference
        if capped.any() and not (capped & chosen).any():
            raise ValueError(f"{name}: no schedule at cap {caps.get(name)!r}; add it to the betas that are scheduled")
    return frame[reference | chosen].reset_index(drop=True)


def latency_sample(schedules: Sequence[Schedule], caps: Mapping[str, float], seed: int, tasks: int) -> list[Schedule]:
    """Return the schedules of the first `tasks` final tasks of each workload, at its cap, of one seed.

    The sample comes in hash order, so that a machine that warms up or slows down favours no policy.
    """
    chosen: list[Schedule] = []
    for name in dict.fromkeys(one.workload for one in schedules):
        mine = [one for one in schedules if one.workload == name and one.seed == seed]
        first = list(dict.fromkeys(one.task_id for one in mine))[:tasks]
        chosen += [one for one in mine if one.task_id in first and (one.policy in REFERENCES or one.beta == caps[name])]
    order = hash_order([f"{index}" for index in range(len(chosen))], "latency")
    return [chosen[int(index)] for index in order]


def measure_latency(
    receiver: Receiver,
    sample: Sequence[Schedule],
    traffics: Mapping[str, Traffic],
    fits: Sequence[Fitted],
    *,
    render: Render = receiver_prompt,
    max_tokens: int = 256,
    lambda1: float = LAMBDA1,
    warm_up: int = WARM_UP,
    repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
    tick: Callable[[], None] | None = None,
) -> pd.DataFrame:
    """Time the receiver and the scheduler on a sample, one prompt at a time, after `warm_up` discarded calls.

    Parameters
    ----------
    receiver : the *bare* receiver; one behind a store would be timed on reading
    sample : from `latency_sample`
    fits : give the predictors of learned policies and the trained baselines
    repeats : the scheduler (score and admit) is timed this often; the median counts. Serialising the task's packets for
        their sizes, once, is part of the time
    tick : called after each timed call, to show progress

    Returns
    -------
    DataFrame, in the order of `sample`: ``workload``, ``policy``, ``beta``, ``task_id``, ``latency_ms`` (null where
    the call failed), ``scheduler_ms``, ``n_admitted``, ``bytes``, ``prompt_tokens``, ``new_tokens``

    Raises
    ------
    ValueError
        If a stored receiver is passed.
    """
    if hasattr(receiver, "store"):
        raise ValueError(
            "measure_latency needs the bare receiver: a stored reply takes no time; pass the one inside it"
        )
    tasks = all_tasks(traffics)
    fit_of = {(fit.workload, fit.seed): fit for fit in fits}
    prompts = [render(tasks[one.task_id], one.admission.admitted) for one in sample]
    for index in range(warm_up if prompts else 0):
        receiver.reply([prompts[index % len(prompts)]], max_tokens=max_tokens)
    rows = []
    for one, prompt in zip(sample, prompts, strict=True):
        start = clock()
        reply = receiver.reply([prompt], max_tokens=max_tokens)[0]
        seconds = clock() - start
        fit = fit_of.get((one.workload, one.seed))
        scheduler = _scheduler_seconds(one, traffics[one.workload], fit, lambda1, repeats, clock)
        rows.append(
            {
                **{name: getattr(one, name) for name in ("workload", "policy", "beta", "task_id")},
                "latency_ms": math.nan if reply.finish == "error" else 1000 * seconds,
                "scheduler_ms": 1000 * scheduler,
                "n_admitted": len(one.admission.admitted),
                "bytes": one.admission.bytes,
                "prompt_tokens": reply.prompt_tokens,
                "new_tokens": reply.new_tokens,
            }
        )
        if tick:
            tick()
    columns = ["workload", "policy", "beta", "task_id", "latency_ms", "scheduler_ms", "n_admitted", "bytes"]
    frame = pd.DataFrame(rows, columns=[*columns, "prompt_tokens", "new_tokens"])
    return frame.astype({"prompt_tokens": "Int64", "new_tokens": "Int64"})


def _scheduler_seconds(
    one: Schedule,
    traffic: Traffic,
    fit: Fitted | None,
    lambda1: float,
    repeats: int,
    clock: Callable[[], float],
) -> float:
    """Return the median time of scoring and admitting this task's packets; 0 for references, which score nothing."""
    if one.policy in REFERENCES:
        return 0.0
    query, packets = traffic.tasks[one.task_id].query, traffic.packets[one.task_id]
    predictor, baselines = (fit.predictor, fit.baselines) if fit else (None, {})
    times = []
    for _ in range(repeats):
        start = clock()
        ranked = ranked_by(one.policy, query, packets, predictor, one.seed, lambda1=lambda1, baselines=baselines)
        admit_kept(packets, *ranked, one.admission.cap_bytes)
        times.append(clock() - start)
    return statistics.median(times)


def _scored(task_id: str, reply: Reply, scorer: Scorer, gold: Gold) -> dict[str, Any]:
    """Return the columns that one answer fills; the gold stands in every row, also beside a failed call."""
    if reply.finish == "error":
        nothing = dict.fromkeys(("task_utility", "evidence_utility", "utility"), math.nan)
        flags = {"answered": False, "parsed": False, "repaired": False, "cut_short": False}
        reason = f"the call failed: {reply.error or 'no reason given'}"
        return {**nothing, **flags, "raw": None, "extracted": None, "gold": _gold_text(gold), "reason": _valid(reason)}
    score = scorer(task_id, reply.text)
    return {
        "task_utility": score.task_utility,
        "evidence_utility": math.nan if score.evidence_utility is None else score.evidence_utility,
        "utility": score.utility,
        "answered": True,
        "parsed": score.parsed is not None,
        "repaired": score.repaired and score.parsed is not None,
        "cut_short": reply.finish == "length",
        "raw": _valid(score.raw),
        **_record(score, gold),
    }


def _record(score: Score, gold: Gold) -> dict[str, str | None]:
    """Return what was extracted, the gold beside it, and the reason, as text."""
    read = None if score.parsed is None else _text({"answer": score.answer, "evidence": score.evidence})
    return {"extracted": read, "gold": _gold_text(gold), "reason": _valid(score.reason)}


def _gold_text(gold: Gold) -> str:
    return _text({"answer": gold.answer if gold.label is None else gold.label, "evidence": gold.evidence})


def _text(value: object) -> str:
    return _valid(json.dumps(value, ensure_ascii=False))


def _valid(text: str) -> str:
    """Return text that every file can hold: a lone surrogate, which has no UTF-8 form, is written as its escape."""
    return text.encode("utf-8", errors="backslashreplace").decode("utf-8")
