"""Which step families can be had here, and several of them at once, each under the name that tables show.

Context
-------
A study of coordination compares families: their steps need more or less help from upstream. Some are made here, some come
with a package of a registry, and some have to be put into ``LAB_DATA``.

Intuition
---------
A family is named in one line, with its knobs where it has any: ``shared_episodes:fresh=0.9``. That line is also its name in
tables, so one family can stand there twice with different knobs.

How to read the result
----------------------
`family_origins` says where each family comes from. A context can be cut to a number of characters for receivers with a short
window: `load_families` does so for every sender and every arm alike, and the share of cut contexts belongs beside the result.

Not covered: what counts as right at a step (`lib.tasks.steps` and the card of the family).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pandas as pd
import yaml

from lib.sources import WheelRoute, entry_of
from lib.tasks.candidates import cut_text
from lib.tasks.steps import FAMILIES, StepSet, load_steps
from lib.tasks.task import WorkloadError

MADE, PACKAGE, OWN = "made here", "registry package", "own copy in LAB_DATA"


def family_origins(names: Sequence[str] = FAMILIES) -> pd.DataFrame:
    """Return where families come from.

    Returns
    -------
    DataFrame with the columns ``family``, ``origin`` (made here, registry package, own copy in LAB_DATA), ``title``, ``licence`` and
    ``home``
    """
    rows = []
    for name in names:
        entry = entry_of({"bfcl_multi_turn": "bfcl"}.get(name, name))
        packed = any(isinstance(route, WheelRoute) for route in entry.routes)
        origin = MADE if entry.kind == "generated" else PACKAGE if packed else OWN
        rows.append((name, origin, entry.title, entry.licence, entry.home))
    return pd.DataFrame(rows, columns=["family", "origin", "title", "licence", "home"])


def base_family(label: str) -> str:
    """Return the family of a label.

    >>> base_family("shared_episodes:fresh=0.9")
    'shared_episodes'
    """
    return label.partition(":")[0]


def load_families(
    labels: Sequence[str],
    limit: int | None = None,
    seed: int = 0,
    *,
    steps: int | None = None,
    characters: int | None = None,
) -> dict[str, StepSet]:
    """Load several families; `family` of their steps is the label.

    Parameters
    ----------
    labels
        Families, each with knobs after a colon where wanted: ``name`` or ``name:knob=value,knob=value``.
    limit, seed
        As in `lib.tasks.steps.load_steps`: at most this many instances a family, drawn by hash.
    steps
        At most the first so many steps of each instance; None takes all.
    characters
        A longer context is cut between words to at most this many characters and marked; None leaves it whole.

    Raises
    ------
    WorkloadError
        A label twice, or not of this form; unknown names and knobs; a number of steps or characters below 1.
    SourceError
        A data set is not there; the message names the file and the fix.
    """
    if len(set(labels)) != len(labels):
        raise WorkloadError(f"families: one is named twice in {list(labels)}; name each once")
    for what, number in (("characters", characters), ("steps", steps)):
        if number is not None and number < 1:
            raise WorkloadError(f"families: {what} must be at least 1, not {number}; None takes all")
    return {label: _labelled(label, limit, seed, steps, characters) for label in labels}


def _labelled(label: str, limit: int | None, seed: int, most: int | None, characters: int | None) -> StepSet:
    name, _, rest = label.partition(":")
    knobs = {}
    for part in filter(None, rest.split(",")):
        knob, equals, value = part.partition("=")
        if not equals:
            raise WorkloadError(f"families: {label!r}: {part!r} is not knob=value")
        knobs[knob.strip()] = yaml.safe_load(value)
    found = load_steps(name, limit, seed, **knobs)
    steps = []
    for step in found.steps:
        if most is None or step.index < most:
            context = step.context if characters is None else cut_text(step.context, characters)
            steps.append(msgspec.structs.replace(step, family=label, context=context))
    return StepSet(label, found.version, tuple(steps), {step.id: found.gold[step.id] for step in steps})
