"""Workloads over invented corpora, in three structures with known answers.

*verification*: one source decides whether a claim holds; *bridge*: one source names the middle entity, another tells about it, and
the question names only the first; *fan-out*: the same fact is asked of several entities, each in a source of its own. Around them
stand pages of similar names. Redundancy repeats a decisive fact in another reader's page (then either sentence is evidence);
noise adds a sentence that gives another value and says that this is wrong.

Not covered: questions that need arithmetic, time or common sense; long pages; more than one language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from lib.seeds import digest
from lib.tasks.task import Gold, Kind, Task, Workload, WorkloadError, build_workload
from lib.tasks.worlds.draw import Draw
from lib.tasks.worlds.structures import VERSION, Draft, Fact, Knobs, draft_bridge, draft_fanout, draft_verification

DEFAULT_COUNT = 400
_PROBABILITIES = ("redundancy", "noise", "negation")


class Made(msgspec.Struct, frozen=True):
    """A task, its gold and the decisive sentences."""

    task: Task
    gold: Gold
    facts: tuple[Fact, ...]


def load_verification(
    *,
    limit: int | None = None,
    seed: int = 0,
    n: int = DEFAULT_COUNT,
    readers: int = 4,
    distractors: int = 2,
    redundancy: float = 0.2,
    noise: float = 0.2,
    negation: float = 0.1,
) -> Workload:
    """Generate claims to verify, with balanced labels.

    Parameters
    ----------
    limit
        At most this many tasks (with `n`, the smaller counts).
    seed
        Names the world; task i of a seed is the same whatever `n` is.
    n
        Number of tasks.
    readers
        Sources a task, each for one reader.
    distractors
        Sources about entities of similar name; what is left of `readers` are pages on unrelated things.
    redundancy
        Probability that a second source repeats the decisive fact in other words.
    noise
        Probability of a sentence that gives another value and says that it is wrong.
    negation
        Probability of a negated claim, the same for all three labels so that "not" tells nothing.

    Returns
    -------
    Workload
        Labels come in shuffled blocks of three, so that any prefix is balanced to one task.
    """
    knobs = Knobs(readers=readers, distractors=distractors, redundancy=redundancy, noise=noise, negation=negation)
    return _load("worlds_verification", _count(n, limit), seed, knobs)


def load_bridge(
    *,
    limit: int | None = None,
    seed: int = 0,
    n: int = DEFAULT_COUNT,
    readers: int = 4,
    distractors: int = 2,
    redundancy: float = 0.2,
    noise: float = 0.2,
) -> Workload:
    """Generate two-step questions; knobs as in `load_verification`. The first two distractors form a complete false chain."""
    knobs = Knobs(readers=readers, distractors=distractors, redundancy=redundancy, noise=noise)
    return _load("worlds_bridge", _count(n, limit), seed, knobs)


def load_fanout(
    *,
    limit: int | None = None,
    seed: int = 0,
    n: int = DEFAULT_COUNT,
    readers: int = 5,
    distractors: int = 1,
    redundancy: float = 0.2,
    noise: float = 0.2,
) -> Workload:
    """Generate questions about `readers` - `distractors` entities at once; knobs as in `load_verification`."""
    knobs = Knobs(readers=readers, distractors=distractors, redundancy=redundancy, noise=noise)
    return _load("worlds_fanout", _count(n, limit), seed, knobs)


def make_worlds(name: str, count: int, seed: int, knobs: Knobs) -> Iterator[Made]:
    """Yield `count` tasks with gold and decisive sentences; the loaders drop the last."""
    kind, prefix, draft = _KINDS[name]
    _check(name, kind, knobs)
    # 0 and 0.0 name the same world.
    named = {k: float(v) if k in _PROBABILITIES else v for k, v in msgspec.to_builtins(knobs).items()}
    stem = f"{prefix}-{digest(name, seed, named)[:6]}"
    seen: set[str] = set()
    for i in range(count):
        attempt = 0
        made = draft(Draw(VERSION, name, seed, i, attempt), knobs, i, seed)
        # Names rarely repeat across tasks; where they do, the later task is written anew, so that no two are alike.
        while seen & set(made.subjects):
            attempt += 1
            made = draft(Draw(VERSION, name, seed, i, attempt), knobs, i, seed)
        seen |= set(made.subjects)
        yield _finish(made, f"{stem}-{i:04d}", name, kind, Draw(VERSION, name, seed, i, "slots"))


def _load(name: str, count: int, seed: int, knobs: Knobs) -> Workload:
    return build_workload(name, VERSION, ((made.task, made.gold) for made in make_worlds(name, count, seed, knobs)))


def _count(n: int, limit: int | None) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise WorkloadError(f"worlds: n must be a whole number of at least 1, got {n!r}")
    return n if limit is None else min(n, limit)


def _check(name: str, kind: Kind, knobs: Knobs) -> None:
    for field, kinds, wanted in (
        ("readers", int, "a whole number"),
        ("distractors", int, "a whole number"),
        ("redundancy", (int, float), "a number"),
        ("noise", (int, float), "a number"),
        ("negation", (int, float), "a number"),
    ):
        value = getattr(knobs, field)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise WorkloadError(f"{name}: {field} must be {wanted}, got {value!r}")
    least = {"verification": 1, "bridge": 2, "fanout": 2}[kind]
    if not least <= knobs.readers <= 12:
        raise WorkloadError(f"{name}: readers must lie between {least} and 12, got {knobs.readers}")
    if not 0 <= knobs.distractors <= knobs.readers - least:
        raise WorkloadError(
            f"{name}: distractors must lie between 0 and readers - {least} = {knobs.readers - least}, got {knobs.distractors}"
        )
    for field in _PROBABILITIES:
        if not 0 <= getattr(knobs, field) <= 1:
            raise WorkloadError(f"{name}: {field} is a probability between 0 and 1, got {getattr(knobs, field)}")


def _finish(draft: Draft, task_id: str, family: str, kind: Kind, draw: Draw) -> Made:
    sources = draw.shuffled([page.source for page in draft.pages])
    task = Task(id=task_id, family=family, kind=kind, query=draft.query, sources=tuple(sources), version=VERSION)
    gold = Gold(task_id=task_id, label=draft.label, answer=draft.answer, evidence=draft.evidence)
    return Made(task=task, gold=gold, facts=draft.facts)


_KINDS: dict[str, tuple[Kind, str, Callable[[Draw, Knobs, int, int], Draft]]] = {
    "worlds_verification": ("verification", "wv", draft_verification),
    "worlds_bridge": ("bridge", "wb", draft_bridge),
    "worlds_fanout": ("fanout", "wf", draft_fanout),
}
