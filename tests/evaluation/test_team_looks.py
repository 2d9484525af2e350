"""Tests of lib/evaluation/team_looks.py: an arm looks the same everywhere, its K are told apart."""

from __future__ import annotations

import doctest

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from lib.evaluation import team_looks as module
from lib.evaluation.team_looks import ARM_NAMES, legend_below, series_of
from tests.evaluation.test_figures import HOSTILE


def table(*rows: tuple[str, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["arm", "k"])


def test_known_arms_come_first_and_keep_their_look() -> None:
    every = series_of(table(("new", 1), ("moc", 2), ("single", 0), ("moc_flow", 2), ("vanilla", 1)))
    assert [one.arm for one in every] == [*ARM_NAMES, "new"]
    assert [one.name for one in every] == [*ARM_NAMES.values(), "new"]
    looks = {one.arm: (one.colour, one.marker) for one in every}
    assert len(set(looks.values())) == 5
    assert {one.arm: (one.colour, one.marker) for one in series_of(table(("moc", 3)))} == {"moc": looks["moc"]}


def test_several_k_are_shades_of_one_colour_and_have_their_own_rows() -> None:
    frame = table(("moc", 3), ("vanilla", 1), ("moc", 1), ("moc", 2))
    vanilla, *moc = series_of(frame)
    assert vanilla.k is None and [one.name for one in moc] == ["MOC, K = 1", "MOC, K = 2", "MOC, K = 3"]
    brightness = [sum(one.colour) for one in moc]
    assert brightness == sorted(brightness, reverse=True) and len({one.marker for one in moc}) == 1
    assert moc[2].colour == pytest.approx(series_of(table(("moc", 2)))[0].colour)
    assert [one.rows(frame)["k"].tolist() for one in moc] == [[1], [2], [3]]


def test_unknown_arms_are_literal_and_as_many_as_there_are() -> None:
    names = [HOSTILE, *(f"arm {place}" for place in range(5))]
    series = series_of(table(*((name, 1) for name in names)))
    assert [one.arm for one in series] == names
    assert "\n" not in series[0].name and "$5" not in series[0].name.replace(r"\$", "")
    assert series_of(table()) == []


def test_a_legend_has_rows_of_about_equal_length() -> None:
    figure, axis = plt.subplots(layout="constrained")
    for name in "abcde":
        axis.plot([0, 1], label=name)
    legend_below(figure, [axis], columns=4)
    assert figure.legends[0]._ncols == 3
    plt.close(figure)
    bare, axis = plt.subplots()
    legend_below(bare, [axis], columns=4)
    plt.close(bare)
    assert bare.legends == []


def test_examples() -> None:
    assert doctest.testmod(module).failed == 0
