"""The names a receiver chooses from: acceptable ones among distractors of the same source, in an order that says nothing.

Context
-------
The paper's protocol offers 32 artifacts and six types of action at every step, 192 pairs. In the rows of its public
companion that were looked at, the right artifact stood first in the list.

Intuition
---------
An instance has one set of names: whatever is acceptable at any of its steps, filled up from tiers of distractors, the
nearest first (tools of the same scenario, then other tools; files of the same repository, then other files). Were the
set drawn anew for every step, the names that stay would be the right ones. Each step then shuffles names and actions by
hash of (family, instance, step).

How to read the result
----------------------
Where the source has too few names, pads ``_negative_NN`` fill the list, as in the paper's records. Nobody takes a pad
for an artifact, so the list is as hard as the number of its other names; the cards say how many there are.

Not covered: whether a distractor would have been right as well; a family that draws near distractors says in its card
what it does about that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from lib.seeds import hash_order
from lib.tasks.steps import ACTIONS, Step, StepGold
from lib.tasks.task import WorkloadError

SIZE = 32
"""Artifacts at a step."""

PAD = "_negative_"
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def candidate_names(
    right: Collection[str], *tiers: Iterable[str], family: str, instance: str, size: int = SIZE
) -> tuple[str, ...]:
    """Return the names of an instance: all of `right`, then of each tier what fits, then pads.

    Parameters
    ----------
    right
        Every artifact that is acceptable at some step of the instance.
    tiers
        Distractors, nearest tier first; within a tier they are taken in the order of a hash of (family, instance).
    size
        Names in all.

    Returns
    -------
    tuple of str
        `size` names, sorted, so that their order says nothing either.

    Raises
    ------
    WorkloadError
        If `right` alone is larger than `size`.

    Examples
    --------
    >>> candidate_names(["a.py"], ["b.py", "a.py"], family="f", instance="i", size=4)
    ('_negative_00', '_negative_01', 'a.py', 'b.py')
    """
    names = dict.fromkeys(sorted(set(right)))
    if len(names) > size:
        raise WorkloadError(
            f"{family}: {instance}: {len(names)} artifacts are acceptable, more than the {size} of a list"
        )
    for tier in tiers:
        for name in hash_order(sorted(set(tier) - set(names)), "candidates", family, instance):
            if len(names) == size:
                return tuple(sorted(names))
            names[name] = None
    pads = (f"{PAD}{number:02d}" for number in range(size - len(names)))
    return tuple(sorted([*names, *pads]))


def make_step(
    *,
    family: str,
    instance: str,
    index: int,
    version: str,
    local_view: str,
    context: str,
    artifacts: Iterable[str],
    pairs: Iterable[tuple[str, str]],
) -> tuple[Step, StepGold]:
    """Return a step with its artifacts and actions shuffled, and its gold with every pair once, sorted."""
    identity = f"{instance}/{index}"
    step = Step(
        id=identity,
        family=family,
        instance_id=instance,
        index=index,
        local_view=local_view,
        context=context,
        actions=tuple(hash_order(ACTIONS, "actions", family, instance, index)),
        artifacts=tuple(hash_order(artifacts, "artifacts", family, instance, index)),
        version=version,
    )
    return step, StepGold(step_id=identity, pairs=tuple(sorted(set(pairs))))


def alike(name: str, other: str) -> bool:
    """Say whether two names share at least half of the words that either holds.

    A distractor that is alike may be as right as the one that counts.

    >>> alike("calc_triangle_area", "triangleArea"), alike("calc_triangle_area", "calc_loan")
    (True, False)
    """
    mine, others = ({word.lower() for word in _WORD.findall(text)} for text in (name, other))
    return bool(mine & others) and 2 * len(mine & others) >= len(mine | others)


def cut_text(text: str, characters: int) -> str:
    """Return at most `characters` of a text, cut between words and marked where something is gone.

    >>> cut_text("one two three", 9)
    'one two ...'
    """
    if len(text) <= characters:
        return text
    head = text[: characters + 1]
    return f"{head[: head.rindex(' ')] if ' ' in head else head[:characters]} ..."


def lines_of(*parts: tuple[str, str]) -> str:
    """Return titled parts of a view as text, one below the other; a part without text is left out."""
    return "\n".join(f"{title}: {text}" if "\n" not in text else f"{title}:\n{text}" for title, text in parts if text)
