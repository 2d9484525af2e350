"""The selector over several step families: measure, carry out every action, and choose fold by fold as it would in use.

Context
-------
Section 3.2 and appendix C.6 of the paper. A study measures all signals once, runs every action once, and keeps both; policies,
ablations and calibrations are then looked up without asking a model again. In use a selector asks only for what it chose:
`choose_families` does that, with what other instances fixed, and pays for it.

Intuition
---------
Both ways must agree: the action that is chosen in use is the action that the stored signals choose. They can, since each decision
looks at its own step and at a table alone. A study that finds a difference has found a leak.

How to read the result
----------------------
Step ids may repeat between families that differ in a knob. `step_name` puts the family before the id, and every frame of a study
uses these names.

Nothing here can see gold; `lib.coordination.selector_outcomes` scores what comes out.

Not covered: prices and tables (`lib.coordination.crossfit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pandas as pd

from lib.coordination.actions import Action, Prices, ToolTable
from lib.coordination.controller import Controlled, run_controller
from lib.coordination.exchange import Record
from lib.coordination.selector import Choice, run_actions, select
from lib.coordination.sending import check_distinct
from lib.coordination.survey import Settings, Survey, choosing_overhead, survey_steps
from lib.models.receiver import Receiver
from lib.tasks.steps import Step


class Measured(msgspec.Struct, frozen=True):
    """What was measured and carried out, whatever anyone chooses.

    Attributes
    ----------
    signals : `lib.coordination.actions.SIGNALS` of all families, steps named by `step_name`
    overhead : (step name, action) to tokens, as `lib.coordination.survey.choosing_overhead`
    surveys : by family, with the candidate messages
    records : by family and action
    """

    signals: pd.DataFrame
    overhead: dict[tuple[str, Action], float]
    surveys: dict[str, Survey]
    records: dict[str, dict[Action, list[Record]]]


class Fixed(msgspec.Struct, frozen=True):
    """What one fold is judged with, and its steps by family."""

    steps: dict[str, list[Step]]
    table: ToolTable
    prices: Prices


def step_name(family: str, step_id: str) -> str:
    """Return a step's name among several families.

    >>> step_name("bfcl", "i0/0")
    'bfcl i0/0'
    """
    return f"{family} {step_id}"


def measure_families(
    families: Mapping[str, Sequence[Step]],
    *,
    receiver: Receiver,
    sender: Receiver,
    strong: Receiver | None = None,
    settings: Settings | None = None,
) -> Measured:
    """Write candidates, probe and carry out every action at every step of every family.

    Parameters
    ----------
    families : label to steps; gold is no part of a step
    receiver, sender, strong, settings : as in `lib.coordination.selector.select`

    Raises
    ------
    NoLogProbabilities
        If a receiver has none.
    ValueError
        If there are no steps, or a family has a step twice.
    """
    settings = settings or Settings()
    if not any(families.values()):
        raise ValueError("families: there are no steps to measure")
    surveys, records, parts = {}, {}, []
    overhead: dict[tuple[str, Action], float] = {}
    for family, steps in families.items():
        check_distinct(steps)
        survey = survey_steps(steps, receiver=receiver, sender=sender, strong=strong, settings=settings)
        surveys[family] = survey
        records[family] = run_actions(
            steps, receiver=receiver, candidates=survey.candidates, strong=strong, settings=settings
        )
        names = [step_name(family, one) for one in survey.signals["step_id"]]
        parts.append(survey.signals.assign(step_id=names))
        overhead |= {
            (step_name(family, step), action): paid for (step, action), paid in choosing_overhead(survey).items()
        }
    return Measured(pd.concat(parts, ignore_index=True), overhead, surveys, records)


def fixed_folds(
    families: Mapping[str, Sequence[Step]], fold_of: Mapping[str, int], fixed: Sequence[tuple[ToolTable, Prices]]
) -> list[Fixed]:
    """Return the steps of every fold beside what it is judged with.

    Parameters
    ----------
    fold_of : step name to fold, as it was judged; a step without one is left out
    fixed : table and prices by fold
    """
    folds: list[dict[str, list[Step]]] = [{family: [] for family in families} for _ in fixed]
    for family, steps in families.items():
        for step in steps:
            place = fold_of.get(step_name(family, step.id))
            if place is not None:
                folds[place][family].append(step)
    return [Fixed(steps, table, prices) for steps, (table, prices) in zip(folds, fixed, strict=True)]


def choose_families(
    folds: Sequence[Fixed],
    *,
    receiver: Receiver,
    sender: Receiver,
    strong: Receiver | None = None,
    settings: Settings | None = None,
) -> dict[str, list[Choice]]:
    """Let the selector choose and act at every step, as in use; return its choices by family."""
    choices: dict[str, list[Choice]] = {}
    for fold in folds:
        for family, steps in fold.steps.items():
            own = select(
                steps,
                receiver=receiver,
                sender=sender,
                strong=strong,
                table=fold.table,
                prices=fold.prices,
                settings=settings,
            )
            choices.setdefault(family, []).extend(own)
    return choices


def control_families(
    folds: Sequence[Fixed],
    *,
    receiver: Receiver,
    sender: Receiver,
    strong: Receiver | None = None,
    settings: Settings | None = None,
) -> dict[str, list[Controlled]]:
    """Let the controller by thresholds act at every step; it reads the gate's table of each fold and no price."""
    done: dict[str, list[Controlled]] = {}
    for fold in folds:
        for family, steps in fold.steps.items():
            own = run_controller(
                steps, receiver=receiver, sender=sender, strong=strong, table=fold.table, settings=settings
            )
            done.setdefault(family, []).extend(own)
    return done
