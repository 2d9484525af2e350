from __future__ import annotations

import doctest
import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.candidates import PAD, SIZE, alike, candidate_names, cut_text, lines_of, make_step
from lib.tasks.steps import ACTIONS
from lib.tasks.task import WorkloadError

names = st.lists(st.text("abcdef", min_size=1, max_size=3), max_size=40)


@pytest.mark.parametrize("module", ["candidates", "code_steps", "repoeval"])
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"lib.tasks.{module}"))
    assert result.attempted > 0 and result.failed == 0


@given(names.map(lambda found: found[:10]), names, names, st.integers(10, SIZE))
def test_right_names_stay_and_near_ones_come_before_far_ones_and_pads(
    right: list[str], near: list[str], far: list[str], size: int
) -> None:
    chosen = candidate_names(right, near, far, family="f", instance="i", size=size)
    assert len(chosen) == len(set(chosen)) == size and list(chosen) == sorted(chosen)
    assert set(right) <= set(chosen)
    pads = [name for name in chosen if name.startswith(PAD)]
    if pads or set(chosen) & set(far) - set(near) - set(right):
        assert set(near) <= set(chosen)
    if pads:
        assert set(far) <= set(chosen)
    assert chosen == candidate_names(right[::-1], near[::-1], far[::-1], family="f", instance="i", size=size)


def test_which_distractors_are_taken_depends_on_the_instance_alone() -> None:
    pool = [f"{number}.py" for number in range(100)]
    drawn = [candidate_names(["x"], pool, family="f", instance=name) for name in ("i", "i", "j")]
    assert drawn[0] == drawn[1] != drawn[2]
    with pytest.raises(WorkloadError, match="f: i: 33 artifacts are acceptable"):
        candidate_names([str(number) for number in range(33)], family="f", instance="i")


def test_steps_are_shuffled_by_family_instance_and_step() -> None:
    pool = [f"{number}.py" for number in range(SIZE)]

    def order(family: str, instance: str, index: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        step, _ = make_step(
            family=family,
            instance=instance,
            index=index,
            version="v",
            local_view="",
            context="",
            artifacts=pool,
            pairs=[("1.py", "edit")],
        )
        assert set(step.artifacts) == set(pool) and set(step.actions) == set(ACTIONS)
        return step.artifacts, step.actions

    assert order("f", "i", 0) == order("f", "i", 0)
    assert len({order(*key)[0] for key in [("f", "i", 0), ("g", "i", 0), ("f", "j", 0), ("f", "i", 1)]}) == 4


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("math.factorial", "calculate_factorial", False),
        ("get_weather", "getWeather", True),
        ("geometry.area_triangle", "calc_area_triangle", True),
        ("get_weather", "get_stock_price", False),
        ("", "x", False),
    ],
)
def test_alike_names_share_half_of_their_words(name: str, other: str, same: bool) -> None:
    assert alike(name, other) is alike(other, name) is same


@given(st.text("ab \n", max_size=30), st.integers(1, 40))
def test_a_cut_text_is_a_beginning_of_at_most_so_many_characters(text: str, characters: int) -> None:
    cut = cut_text(text, characters)
    assert cut == text or (len(text) > characters and text.startswith(cut.removesuffix(" ...")))
    assert len(cut) <= max(len(text), characters + 4)


def test_parts_without_text_are_left_out() -> None:
    assert lines_of(("A", "x"), ("B", ""), ("C", "y\nz")) == "A: x\nC:\ny\nz"
