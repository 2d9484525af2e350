"""Families by label: knobs, cut contexts, and where their data come from."""

from __future__ import annotations

import pytest

from lib.tasks import FAMILIES, family_origins, load_families, load_steps
from lib.tasks.step_families import MADE, OWN, PACKAGE, base_family
from lib.tasks.task import WorkloadError


def test_every_family_has_an_origin_and_what_is_made_needs_nothing() -> None:
    origins = family_origins().set_index("family")["origin"]
    assert list(origins.index) == list(FAMILIES) and set(origins) == {MADE, PACKAGE, OWN}
    assert origins["shared_episodes"] == MADE and origins["tau_bench"] == OWN
    assert list(origins[origins == PACKAGE].index) == ["bfcl", "bfcl_multi_turn", "tau2", "swebench_lite"]


def test_one_family_stands_twice_with_different_knobs() -> None:
    labels = ["shared_episodes", "shared_episodes:fresh=1.0,lag=2"]
    plain, fresh = load_families(labels, limit=2).values()
    assert [{step.family for step in one.steps} for one in (plain, fresh)] == [{label} for label in labels]
    assert [step.id for step in plain.steps] == [step.id for step in fresh.steps] and plain.gold == fresh.gold
    assert fresh.steps[5].local_view != plain.steps[5].local_view
    assert fresh.steps[5].local_view == load_steps("shared_episodes", 2, fresh=1.0, lag=2).steps[5].local_view
    assert [base_family(label) for label in labels] == ["shared_episodes"] * 2


def test_the_first_steps_of_each_instance_are_kept() -> None:
    (few,) = load_families(["shared_episodes"], 2, steps=3).values()
    assert [step.index for step in few.steps] == [0, 1, 2] * 2 and set(few.gold) == {step.id for step in few.steps}


def test_contexts_are_cut_and_nothing_else() -> None:
    whole, short = (load_families(["shared_episodes"], 1, characters=n)["shared_episodes"] for n in (None, 100))
    assert all(len(step.context) <= 104 and step.context.endswith("...") for step in short.steps)
    assert [step.local_view for step in whole.steps] == [step.local_view for step in short.steps]
    assert whole.gold == short.gold


@pytest.mark.parametrize(
    ("labels", "characters", "words"),
    [
        (["shared_episodes", "shared_episodes"], None, "named twice"),
        (["shared_episodes:fresh"], None, "'fresh' is not knob=value"),
        (["shared_episodes:fresch=1"], None, "did you mean 'fresh'"),
        (["shared_episode"], None, "did you mean 'shared_episodes'"),
        (["shared_episodes"], 0, "characters must be at least 1"),
    ],
)
def test_refusals(labels: list[str], characters: int | None, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        load_families(labels, 1, characters=characters)
