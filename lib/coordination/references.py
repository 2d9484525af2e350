"""What a selector has to be compared with: ablations, one action always, chance with the same mix, and hindsight.

Context
-------
Appendix C.6 of the paper (tables 20, 23 and 24): policies are compared by accuracy - 1e-4 tokens on stored outcomes.

Intuition
---------
A selector that beats ``always skip`` may just send often; so it also stands beside a policy that takes the same actions
equally often, at random steps. What it is ahead of that one comes from choosing the steps. An ablation leaves one term of
the value out and shows whether that term changed anything. The oracle knows each step's outcome and cannot be deployed.

How to read the result
----------------------
``tokens`` is what the stored arms paid, as the paper counts; ``decision_tokens`` adds what choosing itself costs, where it is given:
a policy that probes pays it at every step. ``on_frontier`` means that no other deployable policy is at least as accurate with
no more tokens and better in one of both; it looks at ``decision_tokens`` where these are known for all.
All policies choose among the same actions at the same steps; ``dropped`` counts steps that lacked an action's outcome.

Not covered: intervals (`lib.evaluation.inference`, clustered by instance, on `per_step`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.coordination.actions import ACTIONS, TERMS, Action, with_table
from lib.coordination.calibration import (
    TOKEN_PRICE,
    Calibration,
    Judged,
    calibrate,
    judge,
    split_instances,
)
from lib.coordination.protocol import DIGITS
from lib.coordination.survey import GATE
from lib.seeds import generator

FRACTIONS = (0.05, 0.1, 0.2, 0.4)
SPLITS = 20
DRAWS = 200
CHANCE = "random, same mix"
_NO_GATE = "selector, no gate"
_PROBING = ("selector", *(f"drop {term}" for term in TERMS if term != "gain"))  # behind the gate
_POLICY = ["policy", "accuracy", "tokens", "utility", "utility_sd", "decision_tokens", "decision_utility"]


def references(
    signals: pd.DataFrame,
    outcomes: pd.DataFrame,
    calibration: Calibration,
    *,
    overhead: Mapping[tuple[str, Action], float] | None = None,
    gate: float | None = GATE,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the selector and everything to compare it with, on steps of instances that were not calibrated on.

    Parameters
    ----------
    signals, outcomes : of the steps to judge; tax and residual are those of `calibration`
    overhead : (step id, action) to tokens that choosing this action costs beyond its stored arm: probes, and candidates that
        are not sent (`lib.coordination.survey.choosing_overhead`)
    gate : as in `lib.coordination.survey.Settings`; the selector and its ablations skip gated regimes and pay nothing there
    draws, seed : of the random policy

    Returns
    -------
    DataFrame, one row a policy: ``policy``, ``accuracy``, ``tokens`` (mean a step), ``utility``, ``utility_sd`` (over draws; null but
    for chance), ``decision_tokens`` and ``decision_utility`` (null without `overhead`), ``share_<action>``, ``oracle_only``,
    ``on_frontier``, ``steps``, ``dropped``

    Raises
    ------
    ValueError
        If an instance was calibrated on; as `judge`; if a step and action has no overhead.
    """
    judged = judge(with_table(_unseen(signals, calibration), calibration.table), outcomes)
    chosen = policies(judged, calibration, gate)
    extra = charges(judged, calibration, list(chosen), overhead=overhead, gate=gate)
    rows = [_row(name, judged, one, extra[name]) for name, one in chosen.items()]
    rows.insert(1, _chance(judged, chosen["selector"], overhead is not None, draws, seed))
    frame = pd.DataFrame(rows)
    frame = frame.assign(oracle_only=frame["policy"] == "oracle", on_frontier=_frontier(frame))
    return frame.assign(steps=len(judged.hit), dropped=judged.dropped)


def charges(
    judged: Judged,
    calibration: Calibration,
    names: Sequence[str],
    *,
    overhead: Mapping[tuple[str, Action], float] | None = None,
    gate: float | None = GATE,
) -> dict[str, np.ndarray]:
    """Return what choosing costs each policy at every step and action, (n_steps, 5) tokens; nan without `overhead`.

    A policy that probes pays at every step that the gate leaves open, or at all of them if it has no gate; any other pays nothing.
    """
    extra = _overhead(judged, overhead)
    free = extra if overhead is None else np.zeros_like(extra)
    closed = _gated(judged, calibration, gate)
    paid = {name: np.where(closed[:, None], free, extra) for name in _PROBING} | {_NO_GATE: extra}
    return {name: paid.get(name, free) for name in names}


def policies(judged: Judged, calibration: Calibration, gate: float | None = GATE) -> dict[str, np.ndarray]:
    """Return the actions that each policy takes, as places in `ACTIONS`, (n_steps,); chance is left to `references`."""
    closed = _gated(judged, calibration, gate)
    open_choice = _best(judged.values(calibration.prices))
    chosen = {"selector": np.where(closed, 0, open_choice), _NO_GATE: open_choice}
    for term in TERMS:
        chosen[f"drop {term}"] = np.where(closed, 0, _best(judged.values(calibration.prices, (term,))))
    for action in judged.available:
        chosen[f"always {action}"] = np.full(len(judged.hit), ACTIONS.index(action))
    hindsight = np.where(np.isin(ACTIONS, judged.available), judged.utility, -np.inf)
    return {**chosen, "oracle": _best(hindsight)}


def per_step(judged: Judged, chosen: np.ndarray) -> pd.DataFrame:
    """Return what a policy got at every step: ``step_id``, ``instance_id``, ``regime``, ``action``, ``hit``, ``tokens``, ``utility``."""
    first = judged.signals.iloc[:: len(ACTIONS)]
    at = np.arange(len(chosen))
    return pd.DataFrame(
        {
            **{name: first[name].to_numpy() for name in ("step_id", "instance_id", "regime")},
            "action": [ACTIONS[place] for place in chosen],
            "hit": judged.hit[at, chosen],
            "tokens": judged.tokens[at, chosen],
            "utility": judged.utility[at, chosen],
        }
    )


def calibration_sweep(
    signals: pd.DataFrame,
    outcomes: pd.DataFrame,
    *,
    fractions: Sequence[float] = FRACTIONS,
    splits: int = SPLITS,
    carry: Mapping[str, float] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how the selector, behind its gate, does on the other instances, for calibration sets of several sizes.

    Parameters
    ----------
    fractions : of the instances of each regime
    splits : draws of calibration instances for each fraction

    Returns
    -------
    DataFrame, one row a fraction: ``fraction``, ``splits``, ``instances`` (calibration instances, mean), and mean and sample
    deviation over splits of ``accuracy``, ``tokens``, ``utility`` and ``cost_share`` (tokens over those of always ``compress``; null
    if that was not run)
    """
    rows = []
    for fraction in fractions:
        for split in range(splits):
            inside, outside = split_instances(signals, fraction, fraction, split, seed)
            fixed = calibrate(inside, outcomes, carry=carry)
            judged = judge(with_table(outside, fixed.table), outcomes)
            steps = per_step(judged, policies(judged, fixed)["selector"])
            sent = judged.tokens[:, ACTIONS.index("compress")].mean()
            rows.append(
                {
                    "fraction": fraction,
                    "instances": len(fixed.instances),
                    "accuracy": steps["hit"].mean(),
                    "tokens": steps["tokens"].mean(),
                    "utility": steps["utility"].mean(),
                    "cost_share": steps["tokens"].mean() / sent,
                }
            )
    frame = pd.DataFrame(rows)
    measures = ["accuracy", "tokens", "utility", "cost_share"]
    groups = frame.groupby("fraction", sort=True)
    table = groups[measures].agg(["mean", "std"])
    table.columns = pd.Index([f"{name}_{what}" for name in measures for what in ("mean", "sd")])
    return table.assign(splits=splits, instances=groups["instances"].mean()).reset_index()


def _unseen(signals: pd.DataFrame, calibration: Calibration) -> pd.DataFrame:
    keys = set(zip(signals["regime"], signals["instance_id"], strict=True))
    seen = sorted(keys & set(calibration.instances))
    if seen:
        raise ValueError(f"signals: instance {seen[0]} was calibrated on; judge on the others (split_instances)")
    return signals


def _gated(judged: Judged, calibration: Calibration, gate: float | None) -> np.ndarray:
    """Return which steps the gate skips, (n_steps,); none where skipping was not run."""
    regimes = judged.signals["regime"].iloc[:: len(ACTIONS)]
    gated = [calibration.table.is_gated(str(regime), gate) for regime in regimes]
    return np.array(gated) & ("skip" in judged.available)


def _best(values: np.ndarray) -> np.ndarray:
    """Return the place of the largest value of each row; the first of equal ones."""
    return np.round(values, DIGITS).argmax(1)


def _overhead(judged: Judged, overhead: Mapping[tuple[str, Action], float] | None) -> np.ndarray:
    """Return the overhead of every step and action, (n_steps, 5); nan where none was given or an action is not available."""
    table = np.full(judged.hit.shape, np.nan)
    if overhead is None:
        return table
    for row, step in enumerate(judged.signals["step_id"].iloc[:: len(ACTIONS)]):
        for action in judged.available:
            if (step, action) not in overhead:
                raise ValueError(f"overhead: step {step!r} has none for {action}; give every step and action one")
            table[row, ACTIONS.index(action)] = overhead[step, action]
    return table


def _row(name: str, judged: Judged, chosen: np.ndarray, extra: np.ndarray) -> dict[str, object]:
    steps = per_step(judged, chosen)
    means = [float(steps[column].mean()) for column in ("hit", "tokens", "utility")]
    paid = float(extra[np.arange(len(chosen)), chosen].mean())
    return _figures(name, means, None, paid) | _shares(steps["action"])


def _chance(judged: Judged, selected: np.ndarray, charged: bool, draws: int, seed: int) -> dict[str, object]:
    """Return a policy that takes the selector's actions at random steps, mean over draws."""
    rng = generator("matched mix", seed)
    at = np.arange(len(selected))
    mixed = [rng.permutation(selected) for _ in range(draws)]
    every = (judged.hit, judged.tokens, judged.utility)
    drawn = np.array([[values[at, one].mean() for values in every] for one in mixed])  # (draws, 3)
    spread = float(drawn[:, 2].std(ddof=1)) if draws > 1 else None
    figures = _figures(CHANCE, drawn.mean(0).tolist(), spread, 0.0 if charged else float("nan"))
    return figures | _shares(pd.Series([ACTIONS[place] for place in selected]))


def _figures(name: str, means: Sequence[float], spread: float | None, extra: float) -> dict[str, object]:
    accuracy, tokens, utility = means
    charged = (tokens + extra, utility - TOKEN_PRICE * extra)
    return dict(zip(_POLICY, (name, accuracy, tokens, utility, spread, *charged), strict=True))


def _shares(actions: pd.Series) -> dict[str, object]:
    counted = actions.value_counts(normalize=True)
    return {f"share_{action}": float(counted.get(action, 0.0)) for action in ACTIONS}


def _frontier(frame: pd.DataFrame) -> list[bool]:
    """Return which deployable policies no other one beats in accuracy and tokens."""
    tokens = frame["decision_tokens"] if frame["decision_tokens"].notna().all() else frame["tokens"]
    points = np.round(np.column_stack([frame["accuracy"], -tokens]).astype(float), DIGITS)
    deployable = (frame["policy"] != "oracle").to_numpy()
    beaten = [
        bool(((points[deployable] >= point).all(1) & (points[deployable] > point).any(1)).any()) for point in points
    ]
    return [bool(one and not lost) for one, lost in zip(deployable, beaten, strict=True)]
