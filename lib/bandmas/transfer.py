"""Does what one receiver taught a scheduler hold for another receiver?

Context
-------
A replay effect is measured on one receiver. The BANDMAS paper repeats its comparison with a second model, which is
replayed and gets a predictor of its own (Table IV). Left open is the case that saves the replays: a predictor trained
on the replays of receiver A schedules for receiver B.

Intuition
---------
Messages are written once and frozen, so every receiver is asked about the same packets. A schedule is made from
packets and a frozen predictor and does not know who will answer. So the schedules of every predictor are made once and
each receiver answers all of them: a matrix with a row for each receiver that was trained on and a column for each that
answers. Where two predictors send the same set, both get the same answer, and their difference is exactly zero.

How to read the result
----------------------
`transfer_results` has one row a schedule and receiver: ``trained_on`` says whose replays the predictor learned from
(null for policies that learn nothing), ``answered_by`` who answered. On the diagonal the predictor is the receiver's
own, as in Table IV. `predicted_across` and `set_overlap` say why a cell is high or low: whether the order of held-out
effects carries over, and whether the packets sent differ at all.

Effects are read of profile and validation tasks alone; final tasks are scheduled and answered, see `lib.bandmas.study`.

Not covered: intervals and tests (`lib.evaluation.transfer_summary`); predictors that learn from several receivers;
messages written anew for each receiver.
"""

from __future__ import annotations

import gc
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pandas as pd

from lib.bandmas.diagnostics import rank_correlation
from lib.bandmas.replay import ZERO
from lib.bandmas.results import ContextKey, result_table
from lib.bandmas.schedule import EMPTY, FULL, Schedule, schedule_finals
from lib.bandmas.study import Fitted, Splits, fit_splits, freeze_predictors, visible_effects
from lib.bandmas.traffic import Traffic, load_workloads, traffic_of
from lib.messages.calibrate import Renderer, calibrate
from lib.messages.corpus import load_corpus
from lib.models.receiver import Receiver, Reply
from lib.tasks.task import Workload

LEARNED = "causal"
SHARED = (FULL, EMPTY, "semantic", "random")  # policies that send the same whoever answers
SIGNS = ("helpful", "idle", "harmful")

T = TypeVar("T")


def in_turn(
    names: Sequence[str], opened: Callable[[str], Receiver], work: Callable[[str, Receiver], T]
) -> dict[str, T]:
    """Let one receiver after the other work, with no more than one of them in memory.

    Parameters
    ----------
    names : of the receivers, each once
    opened : opens a receiver by name
    work : gets name and receiver and must not keep the receiver

    Returns
    -------
    dict, name -> what `work` returned

    Raises
    ------
    ValueError
        If there is no name, or one occurs twice.
    """
    if not names or len(set(names)) != len(names):
        raise ValueError(f"receivers: need at least one, each once, not {list(names)}")
    done = {}
    for name in names:
        done[name] = work(name, opened(name))
        gc.collect()  # a model refers to itself; without this it would outlive the opening of the next one
    return done


def calibrated_on(
    receiver: Receiver, folder: Path | str, studied: Mapping[str, Workload], count: int, **knobs: Any
) -> Renderer:
    """Return the renderer whose label offsets fit `receiver`, from calibration messages that another one wrote.

    The writer's turn is over by then: its messages are read from where `calibrated_renderer` froze them.

    Parameters
    ----------
    receiver : judges the claims
    folder : the calibration folder of `lib.bandmas.verdicts.calibrated_renderer`; without messages there are no offsets
    studied, count, knobs : as in that call
    """
    calibrations = {}
    for name in studied:
        if not (Path(folder) / name).is_dir():
            continue
        known = load_workloads([name], len(studied[name].tasks) + count, **knobs)[name]
        corpus = load_corpus(Path(folder) / name, version=known.version)
        wrote = corpus.by_task()
        spare = [task for task in known.tasks if task.id in wrote]
        packets = traffic_of(spare, corpus).packets
        calibrations[spare[0].family] = calibrate(receiver, spare, packets, known.gold)
    return Renderer(calibrations)


def effect_pairs(effects: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return what the same packet was worth to every two receivers.

    Parameters
    ----------
    effects : receiver -> effects of `lib.bandmas.study.replay_all`, on the same frozen messages and splits

    Returns
    -------
    DataFrame, one row a packet and pair of receivers: ``workload``, ``task_id``, ``packet_id``, ``type``, ``first``,
    ``second`` (receivers), ``rce_first``, ``rce_second``; null where a call failed

    Raises
    ------
    ValueError
        If two receivers were not replayed on the same packets.
    """
    head = ["workload", "task_id", "packet_id", "type"]
    parts = [pd.DataFrame(columns=[*head, "first", "second", "rce_first", "rce_second"])]
    for first, second in itertools.combinations(effects, 2):
        one, other = effects[first], effects[second]
        if not one[head].reset_index(drop=True).equals(other[head].reset_index(drop=True)):
            raise ValueError(
                f"{first} and {second} were replayed on other packets; replay both on the same frozen messages"
            )
        names = one[head].reset_index(drop=True).assign(first=first, second=second)
        parts.append(names.assign(rce_first=one["rce"].to_numpy(), rce_second=other["rce"].to_numpy()))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def signs_of(effects: pd.Series) -> pd.Series:
    """Return ``helpful``, ``idle`` (below 1e-9 either way) or ``harmful`` for each effect, null where it is null."""
    words = np.select([effects >= ZERO, effects <= -ZERO, effects.notna()], ["helpful", "harmful", "idle"], "")
    return pd.Series(words, index=effects.index, dtype=object).where(effects.notna())


def sign_counts(pairs: pd.DataFrame, by: Sequence[str] = ("workload", "first", "second")) -> pd.DataFrame:
    """Return how often two receivers find the same packet helpful, idle or harmful.

    Parameters
    ----------
    pairs : from `effect_pairs`; a packet without an effect on either side is not counted
    by : groups, a table of nine cells each

    Returns
    -------
    DataFrame with `by`, ``sign_first``, ``sign_second`` (of `SIGNS`), ``packets`` and ``share`` of the group; all nine
    cells, also empty ones
    """
    known = pairs.dropna(subset=["rce_first", "rce_second"])
    known = known.assign(sign_first=signs_of(known["rce_first"]), sign_second=signs_of(known["rce_second"]))
    rows = []
    for key, group in known.groupby(list(by), sort=False):
        counts = Counter(zip(group["sign_first"], group["sign_second"], strict=True))
        for cell in itertools.product(SIGNS, SIGNS):
            rows.append((*key, *cell, counts[cell], counts[cell] / len(group)))
    return pd.DataFrame(rows, columns=[*by, "sign_first", "sign_second", "packets", "share"])


def sign_agreement(counts: pd.DataFrame, by: Sequence[str] = ("workload", "first", "second")) -> pd.DataFrame:
    """Return three shares of the packets of each group of `sign_counts`.

    Returns
    -------
    DataFrame with `by`, ``same`` (both receivers say the same), ``opposite`` (helpful to one, harmful to the other) and
    ``idle_to_one`` (idle to one of them alone); they sum to 1
    """
    idle = (counts["sign_first"] == "idle").astype(int) + (counts["sign_second"] == "idle").astype(int)
    same = counts["sign_first"] == counts["sign_second"]
    kinds = {"same": same, "opposite": ~same & (idle == 0), "idle_to_one": idle == 1}
    shares = counts.assign(**{name: counts["share"].where(mask, 0.0) for name, mask in kinds.items()})
    return shares.groupby(list(by), sort=False)[list(kinds)].sum().reset_index()


def frozen_fits(
    traffics: Mapping[str, Traffic],
    splits: Splits,
    effects: Mapping[str, pd.DataFrame],
    folder: Path | str,
    *,
    alpha: float = 6.0,
    levels: str = "leaf",
) -> dict[str, list[Fitted]]:
    """Fit and freeze a predictor for every receiver, workload and seed, each on the receiver's own replays.

    Parameters
    ----------
    effects : receiver -> replay effects
    folder : gets one folder a receiver, numbered in their order, see `freeze_predictors`
    alpha, levels : of `ShrinkagePredictor`, the same for all
    """
    fits = {}
    for place, (name, measured) in enumerate(effects.items()):
        made = fit_splits(traffics, splits, measured, alpha=alpha, levels=levels)
        fits[name] = freeze_predictors(made, Path(folder) / f"{place:02d}-{Path(name).name}")
    return fits


class TransferSchedules(msgspec.Struct, frozen=True):
    """What is sent of every final task.

    Parameters
    ----------
    shared : schedules of policies that learn nothing, the same for every receiver
    learned : receiver trained on -> causal schedules of its predictors, aligned with one another
    """

    shared: list[Schedule]
    learned: dict[str, list[Schedule]]

    @property
    def everything(self) -> list[Schedule]:
        """Every schedule once: what each receiver answers."""
        return [*self.shared, *itertools.chain.from_iterable(self.learned.values())]


def transfer_schedules(
    traffics: Mapping[str, Traffic],
    fits: Mapping[str, Sequence[Fitted]],
    caps: Mapping[str, float],
    *,
    shared: Sequence[str] = SHARED,
) -> TransferSchedules:
    """Schedule the final tasks under every receiver's predictor, at one cap a workload.

    There is no argument for replies, gold answers or effects: only packets, queries and frozen predictors are read.

    Parameters
    ----------
    fits : receiver -> its frozen fits, from `frozen_fits`
    caps : workload -> cap as a share of a task's full bytes
    shared : policies without a predictor that stand beside
    """
    betas = {name: (cap,) for name, cap in caps.items()}
    some = next(iter(fits.values()))  # they share the splits, and nothing else of it is used
    return TransferSchedules(
        shared=schedule_finals(traffics, some, policies=shared, betas=betas),
        learned={name: schedule_finals(traffics, own, policies=[LEARNED], betas=betas) for name, own in fits.items()},
    )


def transfer_results(
    schedules: TransferSchedules,
    replies: Mapping[str, Mapping[ContextKey, Reply]],
    workloads: Mapping[str, Workload],
    tokens: Mapping[str, Mapping[str, int]],
    fits: Mapping[str, Sequence[Fitted]],
) -> pd.DataFrame:
    """Score what every receiver answered to every schedule.

    Parameters
    ----------
    schedules : from `transfer_schedules`
    replies : receiver -> its answers to all of them, from `lib.bandmas.results.answer_schedules`
    workloads : with gold
    tokens : receiver -> packet id -> tokens of its content
    fits : receiver -> fits, for the column ``promoted``: whether the predictor *trained on* passed its gate

    Returns
    -------
    DataFrame of `lib.bandmas.results.result_table` with ``trained_on`` (null without a predictor) and ``answered_by``
    """
    passed: dict[tuple[str | None, str, int], bool] = {
        (name, fit.workload, fit.seed): fit.gate.passed for name, own in fits.items() for fit in own
    }
    learned = [name for name, made in schedules.learned.items() for _ in made]
    trained_on = [*[None] * len(schedules.shared), *learned]
    parts = []
    for name, answers in replies.items():
        part = result_table(schedules.everything, answers, workloads, tokens[name])
        gates = [passed.get(key) for key in zip(trained_on, part["workload"], part["seed"], strict=True)]
        part = part.assign(promoted=pd.array(gates, dtype="boolean"))
        part.insert(0, "trained_on", pd.Series(trained_on, dtype=object))
        part.insert(1, "answered_by", name)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def own_results(results: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each receiver with its own predictor, and of the policies without one (paper, Table IV)."""
    return results[results["trained_on"].isna() | (results["trained_on"] == results["answered_by"])]


def predicted_across(fits: Mapping[str, Sequence[Fitted]], effects: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return how well predictions learned from one receiver rank the held-out effects of another.

    Predictions are cross-fitted on the profile tasks: the folds that predict a task hold no effect of it, of either
    receiver.

    Returns
    -------
    DataFrame, one row a pair of receivers, workload and seed: ``trained_on``, ``answered_by``, ``workload``, ``seed``,
    ``correlation`` (Spearman; NaN where a side is constant), ``packets``. With itself a receiver has `Fitted.correlation`
    """
    rows = []
    for source, own in fits.items():
        for target, measured in effects.items():
            for fit in own:
                theirs = visible_effects(measured, fit.split, ["profile"])[["packet_id", "rce"]].dropna()
                met = fit.crossed[["packet_id", "predicted"]].merge(theirs, on="packet_id")
                rows.append((source, target, fit.workload, fit.seed, rank_correlation(met), len(met)))
    columns = ["trained_on", "answered_by", "workload", "seed", "correlation", "packets"]
    return pd.DataFrame(rows, columns=columns)


def set_overlap(schedules: TransferSchedules) -> pd.DataFrame:
    """Return how far the packets that two predictors send are the same.

    Returns
    -------
    DataFrame, one row a pair of receivers and workload: ``trained_on``, ``answered_by`` (whose own predictor is the
    other side), ``workload``, ``identical`` (share of final tasks, over all seeds, with equal sets), ``overlap`` (mean
    packets in both sets over packets in either), ``items``. Tasks without a packet are left out
    """
    rows = []
    for (source, ours), (target, theirs) in itertools.product(schedules.learned.items(), repeat=2):
        for a, b in zip(ours, theirs, strict=True):
            one, other = ({packet.packet_id for packet in side.admission.admitted} for side in (a, b))
            if a.admission.full_bytes:
                overlap = len(one & other) / len(one | other) if one | other else 1.0
                rows.append((source, target, a.workload, one == other, overlap))
    columns = ["trained_on", "answered_by", "workload"]
    groups = pd.DataFrame(rows, columns=[*columns, "identical", "overlap"]).groupby(columns, sort=False)
    return groups[["identical", "overlap"]].mean().assign(items=groups.size()).reset_index()
