"""Figures of receivers: what is drawn is the data, own predictors are framed, texts can be read, labels are literal."""

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
from matplotlib.patches import Rectangle

from lib.evaluation.looks import policy_colour
from lib.evaluation.transfer_figures import policy_points, receiver_map, sign_map
from tests.evaluation.drawing import draws_equally_twice
from tests.evaluation.test_figures import HOSTILE, texts

NAMES = ("small", "large", HOSTILE)
SIGNS = ("helpful", "idle", "harmful")


def cells(names: tuple[str, ...] = NAMES) -> pd.DataFrame:
    rows = [
        {
            "workload": workload,
            "trained_on": source,
            "answered_by": target,
            "gain": 0.0 if source == target else 0.3 - 0.1 * names.index(source) - 0.2 * names.index(target),
            "main": f"-0.{names.index(source)}{names.index(target)}",
            "detail": "own" if source == target else "-0.1\n[-0.2, +0.1]",
        }
        for workload, source, target in itertools.product(("worlds", HOSTILE), names, names)
    ]
    return pd.DataFrame(rows)


def counts() -> pd.DataFrame:
    rows = []
    for workload, (first, second) in itertools.product(("worlds", "more"), itertools.combinations(NAMES, 2)):
        for place, (one, other) in enumerate(itertools.product(SIGNS, SIGNS)):
            rows.append((workload, first, second, one, other, place, place / 36))
    columns = ["workload", "first", "second", "sign_first", "sign_second", "packets", "share"]
    return pd.DataFrame(rows, columns=columns)


def points() -> pd.DataFrame:
    rows = [
        (workload, name, policy, 0.1 * place + 0.05, 0.02 if place else np.nan)
        for workload, name, (place, policy) in itertools.product(
            ("worlds", HOSTILE), NAMES, enumerate(("empty", "random", "semantic", "causal", "full"))
        )
    ]
    return pd.DataFrame(rows, columns=["workload", "answered_by", "policy", "task_utility_mean", "task_utility_sd"])


ALL = {
    "map": lambda: receiver_map(cells(), "gain", main="main", detail="detail", label="Gain"),
    "signs": lambda: sign_map(counts()),
    "points": lambda: policy_points(points()),
}


def grid(axis: Axes) -> np.ndarray:
    return np.ma.filled(axis.images[0].get_array().astype(float), np.nan)


@pytest.mark.parametrize("name", ALL)
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, name: str) -> None:
    draws_equally_twice(ALL[name], tmp_path, name)
    assert not any(
        "$5\n" in text or "\x00" in text or "<b>" in text.replace("$6 <b>", "") for text in texts(ALL[name]())
    )


@pytest.mark.parametrize("name", ALL)
def test_figures_are_released_to_the_caller(name: str) -> None:
    before = plt.get_fignums()
    assert isinstance(ALL[name](), Figure)
    assert plt.get_fignums() == before


# --------------------------------------------------------------------------------------------------------------------- matrix


def test_rows_are_trained_on_and_columns_answered_by() -> None:
    shuffled = cells().iloc[::-1]
    figure = receiver_map(cells(), "gain", main="main")
    axis = figure.axes[0]
    expected = [[0.0 if i == j else 0.3 - 0.1 * i - 0.2 * j for j in range(3)] for i in range(3)]
    assert np.allclose(grid(axis), expected)
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("Predictor trained on", "Answered by")
    assert [label.get_text() for label in axis.get_xticklabels()][:2] == ["small", "large"]
    assert [label.get_text() for label in axis.get_yticklabels()][:2] == ["small", "large"]
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["", "", ""], "named once, at the left"
    turned = receiver_map(shuffled, "gain", main="main").axes[0]
    assert [label.get_text() for label in turned.get_xticklabels()][1:] == ["large", "small"]
    assert np.allclose(grid(turned), np.array(expected)[::-1, ::-1])


def test_two_other_sides_of_the_same_models_are_drawn_alike() -> None:
    other = cells().rename(columns={"trained_on": "sender", "answered_by": "receiver"})
    named = {"sides": ("sender", "receiver"), "axes_named": ("Written by", "Read by")}
    axis = receiver_map(other, "gain", main="main", **named).axes[0]
    np.testing.assert_array_equal(grid(axis), grid(receiver_map(cells(), "gain", main="main").axes[0]))
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("Written by", "Read by")
    with pytest.raises(ValueError, match="receiver"):
        receiver_map(cells(), "gain", main="main", **named)


def test_texts_stand_in_their_cells_with_a_true_minus() -> None:
    axis = receiver_map(cells(), "gain", main="main", detail="detail").axes[0]
    said = {(round(text.get_position()[0]), round(text.get_position()[1])): [] for text in axis.texts}
    for text in axis.texts:
        said[round(text.get_position()[0]), round(text.get_position()[1])].append(text.get_text())
    assert said[2, 0] == ["\u22120.02", "\u22120.1\n[\u22120.2, +0.1]"] and said[1, 1] == ["\u22120.11", "own"]


def test_only_the_diagonal_is_framed() -> None:
    for axis in receiver_map(cells(), "gain", main="main").axes[:2]:
        frames = [one for one in axis.patches if isinstance(one, Rectangle) and not one.get_hatch()]
        assert [one.get_xy() for one in frames] == [(k - 0.5, k - 0.5) for k in range(3)]


def test_scale_is_centred_and_small_differences_stay_pale() -> None:
    axis = receiver_map(cells(), "gain", main="main").axes[0]
    largest = cells()["gain"].abs().max()
    assert axis.images[0].get_clim() == pytest.approx((-largest, largest))
    blue, orange = (axis.images[0].cmap(axis.images[0].norm(value)) for value in (largest, -largest))
    assert blue[2] > blue[0] and orange[0] > orange[2]
    pale = receiver_map(cells().assign(gain=0.01), "gain", main="main").axes[0]
    assert pale.images[0].get_clim() == (-0.1, 0.1)
    shares = receiver_map(cells().assign(gain=0.5), "gain", main="main", limits=(0, 1)).axes[0]
    assert shares.images[0].get_clim() == (0, 1)


def test_ink_can_be_read_on_its_ground() -> None:
    frame = cells(("a", "b")).assign(gain=lambda one: np.linspace(-0.4, 0.4, len(one)))
    axis = receiver_map(frame, "gain", main="main", detail="detail").axes[0]
    image = axis.images[0]
    for text in axis.texts:
        ground = image.cmap(image.norm(grid(axis)[round(text.get_position()[1]), round(text.get_position()[0])]))[:3]
        weights = np.array([0.299, 0.587, 0.114])
        assert abs(weights @ ground - weights @ to_rgb(text.get_color())) > 0.35


def test_missing_cells_are_hatched() -> None:
    frame = cells().iloc[1:].assign(gain=lambda one: one["gain"].mask(one["main"] == "-0.12"))
    axis = receiver_map(frame, "gain", main="main").axes[0]
    hatched = {one.get_xy() for one in axis.patches if one.get_hatch()}
    first = list(dict.fromkeys([*frame["trained_on"], *frame["answered_by"]])).index("small")
    assert (first - 0.5, first - 0.5) in hatched and len(hatched) == 2


def test_a_doubled_cell_is_refused_and_nothing_is_drawn_for_nobody() -> None:
    with pytest.raises(ValueError, match="a cell occurs twice"):
        receiver_map(pd.concat([cells(), cells()]), "gain", main="main")
    assert receiver_map(cells().iloc[:0], "gain", main="main").axes
    assert receiver_map(cells(("alone",)), "gain", main="main").axes


# ---------------------------------------------------------------------------------------------------------------------- signs


def test_signs_have_a_matrix_for_each_pair_and_workload() -> None:
    figure = sign_map(counts().sample(frac=1, random_state=0))
    assert len(figure.axes) == 6
    figure = sign_map(counts())
    for axis in figure.axes:
        assert np.allclose(grid(axis), np.arange(9).reshape(3, 3) / 36)
        assert [label.get_text() for label in axis.get_xticklabels()] == list(SIGNS)
        shown = [text.get_text() for text in axis.texts]
        assert shown[:2] == ["0%", "n = 0"] and shown[-2:] == ["22%", "n = 8"]
    assert [(axis.get_ylabel(), axis.get_xlabel()) for axis in figure.axes[:2]] == [("small", "large")] * 2
    assert [axis.get_title(loc="left") for axis in figure.axes[:2]] == ["worlds", "more"]


def test_signs_of_no_pair_are_an_empty_figure() -> None:
    assert sign_map(counts().iloc[:0]).axes


# --------------------------------------------------------------------------------------------------------------------- points


def test_points_stand_at_their_receiver_in_the_policy_s_colour() -> None:
    axis = policy_points(points()).axes[0]
    assert [label.get_text() for label in axis.get_xticklabels()][:2] == ["small", "large"]
    drawn = {bar.get_label(): bar for bar in axis.containers}
    causal = drawn["BANDMAS causal"].lines[0]
    assert np.allclose(causal.get_ydata(), 0.35) and np.allclose(np.round(causal.get_xdata().astype(float)), [0, 1, 2])
    assert to_rgb(causal.get_color()) == pytest.approx(to_rgb(policy_colour("causal")))
    places = np.concatenate([bar.lines[0].get_xdata() for bar in axis.containers]).astype(float)
    assert len(np.unique(places.round(6))) == len(places), "no two marks share a place"
    assert axis.get_ylim()[0] < 0 < 0.05


def test_an_unknown_deviation_has_no_bar() -> None:
    drawn = {bar.get_label(): bar for bar in policy_points(points()).axes[0].containers}
    for name, reach in (("Empty", 0.0), ("Random", 0.04)):
        for segment in drawn[name].lines[2][0].get_segments():
            assert np.ptp(segment[:, 1]) == pytest.approx(reach)


@pytest.mark.parametrize(
    ("draw", "column"),
    [
        (lambda frame: receiver_map(cells().drop(columns=frame), "gain", main="main"), "answered_by"),
        (lambda frame: sign_map(counts().drop(columns=frame)), "share"),
        (lambda frame: policy_points(points().drop(columns=frame)), "task_utility_sd"),
    ],
)
def test_missing_columns_are_named(draw: object, column: str) -> None:
    with pytest.raises(ValueError, match=column):
        draw(column)
