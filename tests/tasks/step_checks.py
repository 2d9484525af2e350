"""Checks that every family of steps has to pass, whatever it is made from."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.stats import chisquare

from lib.tasks.candidates import SIZE
from lib.tasks.steps import ACTIONS, Pair, Step, StepGold, StepSet, check_gold

UNLIKELY = 1e-3  # of the chi-square tests; hashes are fixed, so a test passes or fails for good


def check_steps(made: StepSet, steps: int, instances: int) -> None:
    """Gold scores 1 and a constant wrong pair 0 on the whole set; lists are sound and say nothing by their order."""
    check = check_gold(made)
    assert (check.steps, check.instances, check.failures) == (steps, instances, ())
    assert (check.gold_share, check.wrong_share) == (1.0, 0.0)
    names: dict[str, set[str]] = {}
    for step in made.steps:
        assert len(step.artifacts) == SIZE and sorted(step.actions) == sorted(ACTIONS)
        assert names.setdefault(step.instance_id, set(step.artifacts)) == set(step.artifacts), "one set an instance"
        assert step.local_view and step.context and step.family == made.name
        assert "Actions: " in step.local_view or made.name == "shared_episodes"
        assert all(name.isprintable() and name == name.strip() for name in step.artifacts), "single clean lines"
    if steps >= 5 * SIZE:
        assert chisquare(positions(made)).pvalue > UNLIKELY


def positions(made: StepSet) -> list[int]:
    """Count at which place of its list the first acceptable artifact by name stands, over steps."""
    counts = [0] * SIZE
    for step in made.steps:
        counts[step.artifacts.index(made.gold[step.id].pairs[0][0])] += 1
    return counts


def check_untold(pairs: Sequence[Pair], other: Sequence[Pair], step: int) -> None:
    """Two sets that differ in the gold of one step look the same up to and at that step, to everybody but the scorer."""
    assert pairs[step][1] != other[step][1], "the gold of the step must differ, or nothing is tested"
    for (mine, _), (theirs, _) in zip(pairs[: step + 1], other[: step + 1], strict=True):
        assert (mine.local_view, mine.context, mine.actions) == (theirs.local_view, theirs.context, theirs.actions)
        assert mine.artifacts == theirs.artifacts


def make(instance: str, index: int = 0, pairs: tuple[tuple[str, str], ...] = (("a.py", "edit"),)) -> Pair:
    """A tiny step with two artifacts."""
    step = Step(f"{instance}/{index}", "toy", instance, index, "view", "context", ACTIONS, ("a.py", "b.py"), "toy-1")
    return step, StepGold(step.id, pairs)
