"""Does the predicted order agree with the measured one?

Predictions are cross-fitted: tasks are dealt into folds by hash, a predictor is fitted on all folds but one (bin
edges too) and predicts that one, so no packet is judged by a model that saw its task. Two numbers follow. The rank
correlation pools all packets. Useful-packet recall asks, for each task with k positive packets, how many of them are
among the k highest scores; chance reaches about the share of positive packets. Recall at the byte cap asks how many
positive packets the admitted sets hold.

Not covered: tuning. Validation tasks are looked at, nothing is chosen by them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.base import clone

from lib.bandmas.admission import DIGITS
from lib.bandmas.replay import ZERO
from lib.bandmas.shrinkage import LEVELS, ShrinkagePredictor
from lib.seeds import hash_order

FOLDS = 5


def task_folds(task_ids: Collection[str], folds: int = FOLDS, seed: int = 0) -> dict[str, int]:
    """Deal tasks into folds of nearly equal size by the hash order of their ids; no fold is empty.

    Raises
    ------
    ValueError
        If there are fewer than two tasks: nothing can be held out. With fewer tasks than folds, each task is a fold.
    """
    unique = set(task_ids)
    if len(unique) < 2:
        raise ValueError(f"cross-fitting needs at least two tasks, not {len(unique)}")
    count = min(folds, len(unique))
    if count < 2:
        raise ValueError(f"cross-fitting needs at least two folds, not {folds}")
    return {task_id: index % count for index, task_id in enumerate(hash_order(unique, "folds", seed))}


def cross_fitted(
    features: pd.DataFrame,
    effects: np.ndarray | pd.Series,
    *,
    predictor: ShrinkagePredictor | None = None,
    folds: int = FOLDS,
    seed: int = 0,
) -> pd.DataFrame:
    """Predict every packet's effect from the other folds' tasks.

    Parameters
    ----------
    features : rows of `packet_features`, with ``packet_id`` and ``task_id``
    effects : (n_packets,) measured RCE, aligned
    predictor : unfitted estimator to clone for each fold; default ``ShrinkagePredictor()``

    Returns
    -------
    DataFrame in row order: ``packet_id``, ``task_id``, ``type``, ``fold``, ``rce``, ``predicted``, and ``m_L``, the
    estimate of each level L on its own, see `ShrinkagePredictor.trace`
    """
    measured = np.asarray(effects, dtype=float)
    fold_of = task_folds(features["task_id"].tolist(), folds, seed)
    fold = features["task_id"].map(fold_of).to_numpy()
    traces = []
    for held in range(max(fold_of.values()) + 1):
        train, test = fold != held, fold == held
        fitted = clone(predictor if predictor is not None else ShrinkagePredictor())
        traces.append(fitted.fit(features[train], measured[train]).trace(features[test]))
    trace = pd.concat(traces).loc[features.index]
    frame = features[["packet_id", "task_id", "type"]].assign(fold=fold, rce=measured, predicted=trace["score"])
    return frame.join(trace[_estimates(trace)]).reset_index(drop=True)


def not_crossed(levels: str) -> pd.DataFrame:
    """Return the frame of `cross_fitted` without a row, for fewer than two tasks."""
    texts = {name: pd.Series(dtype=str) for name in ("packet_id", "task_id", "type")}
    numbers = ("rce", "predicted", *(f"m_{level}" for level in LEVELS[levels]))
    return pd.DataFrame(texts | {"fold": pd.Series(dtype=int)} | {name: pd.Series(dtype=float) for name in numbers})


def _estimates(frame: pd.DataFrame) -> list[str]:
    return [str(name) for name in frame.columns if str(name).startswith("m_")]


def rank_correlation(frame: pd.DataFrame, *, score: str = "predicted", label: str = "rce") -> float:
    """Return the Spearman correlation pooled over packets, average ranks; NaN if either side is constant or has under two packets."""
    a, b = (frame[name].to_numpy(float).round(DIGITS) for name in (score, label))
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(stats.spearmanr(a, b).statistic)


def useful_packet_recall(frame: pd.DataFrame, *, score: str = "predicted", label: str = "rce") -> float:
    """Return sum over tasks of |top k & positive| / sum of |positive|, with k the number of positive packets of the task.

    Ties in score go to the smaller packet id. Tasks without a positive packet add nothing; NaN if no task has one.
    """
    hit = total = 0
    for _, group in frame.groupby("task_id", sort=False):
        useful = set(group.loc[group[label] >= ZERO, "packet_id"])
        order = group.assign(_key=-group[score].round(DIGITS)).sort_values(["_key", "packet_id"])
        hit += len(useful & set(order["packet_id"].head(len(useful))))
        total += len(useful)
    return hit / total if total else float("nan")


def signal_by_level(crossed: pd.DataFrame) -> pd.DataFrame:
    """Return how well each level of the hierarchy alone ranks held-out effects.

    A level that ranks as well as the whole carries the signal; what a finer one adds is the difference.

    Parameters
    ----------
    crossed : from `cross_fitted`

    Returns
    -------
    DataFrame with ``level``, in the order of the hierarchy, ``correlation`` (Spearman) and ``recall`` (of useful packets)
    """
    columns = ["level", "correlation", "recall"]
    rows = [
        (name.removeprefix("m_"), rank_correlation(crossed, score=name), useful_packet_recall(crossed, score=name))
        for name in _estimates(crossed)
    ]
    return pd.DataFrame(rows, columns=columns)


def recall_at_cap(effects: pd.DataFrame, admitted: Mapping[str, Collection[str]], *, label: str = "rce") -> float:
    """Return the share of positive packets that were admitted.

    Parameters
    ----------
    effects : measured effects with ``task_id`` and ``packet_id``
    admitted : task id -> ids of the packets admitted under the cap
    """
    useful = effects[effects[label] >= ZERO]
    if useful.empty:
        return float("nan")
    missing = sorted(set(useful["task_id"]) - set(admitted))
    if missing:
        raise ValueError(f"no admission given for task {missing[0]!r}")
    return float(
        np.mean([packet in admitted[task] for task, packet in zip(useful["task_id"], useful["packet_id"], strict=True)])
    )
