"""Figures of teams: marks stand at their tokens, bars are the intervals, stacks add up, cells hold their numbers."""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from lib.evaluation.moc_figures import accuracy_against_tokens, order_density_maps, token_bars
from tests.evaluation.drawing import draws_equally_twice
from tests.evaluation.test_figures import HOSTILE, texts

PARTS = [f"{part}_{kind}" for part in ("worker", "decision", "distiller") for kind in ("prompt", "new")]
SPENT = {
    ("single", 0): (0, 0, 400, 100, 0, 0),
    ("vanilla", 1): (2000, 500, 900, 100, 0, 0),
    ("moc", 2): (2400, 450, 900, 100, 1500, 600),
    ("moc", 3): (2600, 450, 900, 100, 3000, 900),
}
ACCURACY = {("single", 0): 0.5, ("vanilla", 1): 0.62, ("moc", 2): 0.66, ("moc", 3): 0.64}


def schemes(sets: tuple[str, ...] = ("gsm8k", HOSTILE)) -> pd.DataFrame:
    rows = []
    for name, ((arm, k), spent) in itertools.product(sets, SPENT.items()):
        row = {"question_set": name, "arm": arm, "k": k, "accuracy": ACCURACY[arm, k]}
        row |= {"low": ACCURACY[arm, k] - 0.1, "high": ACCURACY[arm, k] + 0.08}
        row |= {f"{part}_tokens_mean": float(number) for part, number in zip(PARTS, spent, strict=True)}
        rows.append(row | {"agent_tokens_mean": float(sum(spent[:4])), "distiller_tokens_mean": float(sum(spent[4:]))})
    return pd.DataFrame(rows)


def grid(sets: tuple[str, ...] = ("gsm8k", HOSTILE)) -> pd.DataFrame:
    rows = [
        (name, density, k, 0.5 + 0.1 * density + 0.01 * k, 1000 * density + 700 * k, 164)
        for name, density, k in itertools.product(sets, (1.0, 0.3, 0.5), (3, 1, 2))
    ]
    return pd.DataFrame(
        rows, columns=["question_set", "requested_density", "k", "accuracy", "total_tokens_mean", "asked"]
    )


ALL = {
    "pareto": lambda: accuracy_against_tokens(schemes().assign(at=HOSTILE), note="at"),
    "bars": lambda: token_bars(schemes().assign(at=HOSTILE), note="at"),
    "maps": lambda: order_density_maps(grid()),
}


def marks(axis: Axes) -> dict[str, list[tuple[float, float]]]:
    found = {}
    for line in axis.lines:
        if not line.get_label().startswith("_") and line.get_label() != "Pareto front":
            found[line.get_label()] = list(zip(*(map(float, data) for data in line.get_data()), strict=True))
    return found


def front(axis: Axes) -> list[tuple[float, float]]:
    line = next(line for line in axis.lines if line.get_label() == "Pareto front")
    assert line.get_drawstyle() == "steps-post", "until the next one, the last is the best that can be had"
    return list(zip(*(map(float, data) for data in line.get_data()), strict=True))


@pytest.mark.parametrize("name", ALL)
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, name: str) -> None:
    draws_equally_twice(ALL[name], tmp_path, name)
    assert not any("$5\n" in text or "\x00" in text for text in texts(ALL[name]()))


@pytest.mark.parametrize("name", ALL)
def test_figures_are_released_to_the_caller(name: str) -> None:
    before = plt.get_fignums()
    assert isinstance(ALL[name](), Figure)
    assert plt.get_fignums() == before


# --------------------------------------------------------------------------------------------------------- accuracy and tokens


def test_every_arm_stands_at_its_tokens_without_and_with_the_distiller() -> None:
    alone, whole = accuracy_against_tokens(schemes(("gsm8k",))).axes
    left = {"Single model": 500, "Vanilla team": 3500, "MOC, K = 2": 3850, "MOC, K = 3": 4050}
    assert marks(alone) == {
        name: [(tokens, ACCURACY[key])] for (name, tokens), key in zip(left.items(), ACCURACY, strict=True)
    }
    assert {name: spot[0][0] for name, spot in marks(whole).items()} == left | {"MOC, K = 2": 5950, "MOC, K = 3": 7950}
    assert (alone.get_title(loc="left"), whole.get_title(loc="left")) == ("gsm8k: agents alone", "With the distiller")
    assert alone.get_xlim() == whole.get_xlim(), "what the distiller adds can be seen"
    assert alone.get_ylabel() == "Accuracy" and whole.get_xlabel() == "All tokens a question"


def test_bars_are_the_intervals() -> None:
    axis = accuracy_against_tokens(schemes(("gsm8k",))).axes[0]
    ends = sorted(
        tuple(segment[:, 1].round(6)) for bar in axis.containers for segment in bar.lines[2][0].get_segments()
    )
    expected = sorted((round(value - 0.1, 6), round(value + 0.08, 6)) for value in ACCURACY.values())
    assert [tuple(map(float, pair)) for pair in ends] == expected


def test_the_front_steps_over_what_nobody_beats() -> None:
    alone, whole = accuracy_against_tokens(schemes(("gsm8k",))).axes
    assert front(alone) == [(500, 0.5), (3500, 0.62), (3850, 0.66)]
    assert front(whole) == [(500, 0.5), (3500, 0.62), (5950, 0.66)]
    dear = schemes(("gsm8k",))
    dear.loc[dear["arm"] == "moc", "accuracy"] = [0.62, 0.7]
    assert front(accuracy_against_tokens(dear).axes[1]) == [(500, 0.5), (3500, 0.62), (7950, 0.7)]


def test_a_thin_line_shows_what_the_distiller_moves() -> None:
    whole = accuracy_against_tokens(schemes(("gsm8k",))).axes[1]
    moved = [tuple(map(float, line.get_xdata())) for line in whole.lines if line.get_linestyle() == ":"]
    assert (3850, 5950) in moved and (4050, 7950) in moved


def test_an_arm_without_a_number_is_not_drawn() -> None:
    table = schemes(("gsm8k",))
    table.loc[table["k"] == 3, "distiller_tokens_mean"] = np.nan
    table.loc[table["arm"] == "vanilla", ["accuracy", "low", "high"]] = np.nan
    alone, whole = accuracy_against_tokens(table).axes
    assert set(marks(alone)) == {"Single model", "MOC, K = 2", "MOC, K = 3"}
    assert set(marks(whole)) == {"Single model", "MOC, K = 2"}
    assert accuracy_against_tokens(schemes().iloc[:0]).axes


def test_notes_stand_at_their_marks() -> None:
    table = schemes(("gsm8k",)).assign(at=["a", "b", "c", "d"])
    alone, whole = accuracy_against_tokens(table, note="at").axes
    assert {text.get_text(): text.xy for text in whole.texts}["c"] == (5950, 0.66)
    assert not alone.texts, "once, where the marks lie further apart"


# ---------------------------------------------------------------------------------------------------------------------- tokens


def test_a_bar_is_the_sum_of_its_parts() -> None:
    figure = token_bars(schemes(("gsm8k",)))
    axis = figure.axes[0]
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == ["Single model", "Vanilla team", "MOC, K = 2", "MOC, K = 3"]
    drawn = [[(bar.get_x(), bar.get_width()) for bar in axis.patches[6 * row : 6 * row + 6]] for row in range(4)]
    for bars, spent in zip(drawn, SPENT.values(), strict=True):
        assert [width for _, width in bars] == pytest.approx(spent)
        assert [left for left, _ in bars] == pytest.approx(np.cumsum((0, *spent))[:-1])
    assert [text.get_text() for text in axis.texts] == ["500", "3.5k", "6.0k", "8.0k"]
    assert axis.get_xlim()[1] > 7950


def test_reading_and_writing_differ_by_hatch_parts_by_colour() -> None:
    figure = token_bars(schemes(("gsm8k",)))
    first = figure.axes[0].patches[:6]
    assert [bool(bar.get_hatch()) for bar in first] == [False, True] * 3
    assert len({to_rgb(bar.get_facecolor()) for bar in first}) == 3
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named[::2] == ["workers: read", "decision agent: read", "distiller: read"]


def test_an_unknown_part_is_a_question_mark() -> None:
    table = schemes(("gsm8k",))
    table.loc[table["arm"] == "vanilla", "distiller_prompt_tokens_mean"] = np.nan
    said = [text.get_text() for text in token_bars(table).axes[0].texts]
    assert said == ["500", "3.5k + ?", "6.0k", "8.0k"]


def test_sets_share_a_scale_and_notes_follow_names() -> None:
    table = schemes(("small", "large"))
    table.loc[table["question_set"] == "large", [f"{part}_tokens_mean" for part in PARTS]] *= 10
    small, large = token_bars(table.assign(rho="ρ = 0.5"), note="rho").axes
    assert small.get_xlim() == large.get_xlim() and small.get_title(loc="left") == "small"
    assert small.get_yticklabels()[0].get_text() == "Single model, ρ = 0.5"


# ------------------------------------------------------------------------------------------------------------------------ maps


def cells(axis: Axes) -> dict[tuple[int, int], list[str]]:
    found: dict[tuple[int, int], list[str]] = {}
    for text in axis.texts:
        across, up = text.get_position()
        found.setdefault((round(up), round(across)), []).append(text.get_text())
    return found


def test_cells_hold_number_and_count_in_rising_order() -> None:
    accuracy, tokens = order_density_maps(grid(("gsm8k",))).axes
    assert [label.get_text() for label in accuracy.get_yticklabels()] == ["0.3", "0.5", "1.0"]
    assert [label.get_text() for label in accuracy.get_xticklabels()] == ["1", "2", "3"]
    assert cells(accuracy)[0, 2] == ["0.560", "n = 164"] and cells(accuracy)[2, 0] == ["0.610", "n = 164"]
    assert cells(tokens)[0, 0] == ["1.0k", "n = 164"] and cells(tokens)[2, 2] == ["3.1k", "n = 164"]
    assert (accuracy.get_xlabel(), accuracy.get_ylabel()) == ("K", "Density ρ")
    assert [axis.get_title(loc="left") for axis in (accuracy, tokens)] == [
        "gsm8k: accuracy",
        "gsm8k: tokens a question",
    ]


def test_darker_is_more_and_ink_can_be_read() -> None:
    for axis in order_density_maps(grid(("gsm8k",))).axes:
        ground = {
            (round(box.get_y() + 0.5), round(box.get_x() + 0.5)): to_rgb(box.get_facecolor()) for box in axis.patches
        }
        assert sum(ground[2, 2]) < sum(ground[1, 1]) < sum(ground[0, 0])
        weights = np.array([0.299, 0.587, 0.114])
        for text in axis.texts:
            here = ground[round(text.get_position()[1]), round(text.get_position()[0])]
            assert abs(weights @ here - weights @ to_rgb(text.get_color())) > 0.35


def test_missing_cells_are_hatched_and_doubled_ones_refused() -> None:
    table = grid(("gsm8k",)).assign(total_tokens_mean=lambda one: one["total_tokens_mean"].mask(one["k"] == 2))
    accuracy, tokens = order_density_maps(table.iloc[1:]).axes
    hatched = [
        {(round(box.get_y() + 0.5), round(box.get_x() + 0.5)) for box in axis.patches if box.get_hatch()}
        for axis in (accuracy, tokens)
    ]
    assert hatched == [{(2, 2)}, {(0, 1), (1, 1), (2, 1), (2, 2)}]
    assert (2, 2) not in cells(accuracy)
    with pytest.raises(ValueError, match="a cell occurs twice; give each requested_density and k once a question_set"):
        order_density_maps(pd.concat([grid(), grid()]))
    assert order_density_maps(grid().iloc[:0]).axes
    assert order_density_maps(grid(("gsm8k",)).assign(accuracy=0.5)).axes


def test_other_measures_can_be_shown() -> None:
    table = grid(("7 agents",)).rename(columns={"requested_density": "agents", "asked": "graphs"})
    figure = order_density_maps(table, row="agents", count="graphs", labels=("Heard", "Merged"))
    assert figure.axes[0].get_ylabel() == "agents" and figure.axes[1].get_title(loc="left") == "7 agents: merged"


@pytest.mark.parametrize(
    ("draw", "column"),
    [
        (lambda name: accuracy_against_tokens(schemes().drop(columns=name)), "agent_tokens_mean"),
        (lambda name: token_bars(schemes().drop(columns=name)), "distiller_new_tokens_mean"),
        (lambda name: order_density_maps(grid().drop(columns=name)), "asked"),
    ],
)
def test_missing_columns_are_named(draw: object, column: str) -> None:
    with pytest.raises(ValueError, match=column):
        draw(column)
