"""Figures of effects: what is drawn is the data, scales are centred, signs part at zero, labels are literal."""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.evaluation.effect_figures import calibration, interaction_map, rce_against_shapley
from lib.evaluation.inference import task_cluster_bootstrap
from lib.evaluation.looks import type_look
from tests.evaluation.drawing import draws_equally_twice
from tests.evaluation.test_figures import HOSTILE, texts

IDS = ["t|m00|s00", "t|m00|s01", "t|m01|s00", "t|m02|s00"]
VALUES = [0.4, -0.1, 0.0, -0.2, np.nan, 0.05]


def pairs() -> pd.DataFrame:
    first, second = zip(*itertools.combinations(IDS, 2), strict=True)
    return pd.DataFrame({"task_id": "t", "first": first, "second": second, "index": VALUES})


def compared() -> pd.DataFrame:
    shapley = np.array([0.2, -0.1, 0.05, 0.0, 0.3, np.nan])
    reach = np.array([0, 0, 0.04, 0, 0, 0])
    return pd.DataFrame(
        {
            "workload": ["worlds", "worlds", "worlds", HOSTILE, HOSTILE, HOSTILE],
            "type": ["claim", "evidence", "claim", HOSTILE, "request", "claim"],
            "method": ["exact", "exact", "sampled", "exact", "exact", "exact"],
            "shapley": shapley,
            "low": shapley - reach,
            "high": shapley + reach,
            "rce": [0.3, 0.1, 0.05, 0.0, 0.25, 0.1],
        }
    )


def held(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    cell = rng.integers(0, 12, n)
    predicted = np.linspace(-0.1, 0.3, 12)[cell]
    return pd.DataFrame(
        {
            "workload": np.where(np.arange(n) % 2, HOSTILE, "worlds"),
            "task_id": [f"t{k // 8}" for k in range(n)],
            "predicted": predicted,
            "rce": predicted + rng.normal(0, 0.1, n),
            "cell": [f"cell {k}" for k in cell],
            "support": cell * 3,
        }
    )


ALL = {
    "map": lambda: interaction_map(pairs(), {IDS[0]: "claim", IDS[1]: HOSTILE}, title=HOSTILE),
    "rce": lambda: rce_against_shapley(compared(), facts={HOSTILE: HOSTILE}),
    "calibration": lambda: calibration(held(), alpha=6.0, resamples=100),
}


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


# ------------------------------------------------------------------------------------------------------------------- map


def test_map_shows_each_pair_once_below_the_diagonal_around_zero() -> None:
    shuffled = pairs().sample(frac=1, random_state=1)
    swapped = shuffled.rename(columns={"first": "second", "second": "first"})
    for frame in (pairs(), shuffled, swapped):
        axis = interaction_map(frame).axes[0]
        cells = np.ma.filled(axis.images[0].get_array(), np.nan)
        expected = np.full((4, 4), np.nan)
        expected[[1, 2, 3, 2, 3, 3], [0, 0, 0, 1, 1, 2]] = VALUES
        assert np.array_equal(cells, expected, equal_nan=True)
        assert axis.images[0].get_clim() == (-0.4, 0.4)
        middle = axis.images[0].cmap(axis.images[0].norm(0.0))
        assert np.ptp(middle[:3]) < 0.01, "zero is grey"
        blue, orange = (axis.images[0].cmap(axis.images[0].norm(value)) for value in (0.4, -0.4))
        assert blue[2] > blue[0] and orange[0] > orange[2]


def test_map_labels_are_short_and_messages_are_parted() -> None:
    axis = interaction_map(pairs(), {IDS[1]: "evidence"}).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["m00/s01  evidence", "m01/s00", "m02/s00"]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["m00/s00", "m00/s01", "m01/s00"]
    numbers = sorted(text.get_text() for text in axis.texts)
    assert numbers == sorted(["0.40", "\u22120.10", "0", "\u22120.20", "0.05"])
    assert len(axis.patches) == 1 and axis.patches[0].get_hatch(), "the unknown pair is hatched"
    edges = {line.get_ydata()[0] for line in axis.lines if line.get_ydata()[0] == line.get_ydata()[1]}
    assert edges == {1.5, 2.5}


def test_map_of_many_packets_leaves_out_the_numbers() -> None:
    ids = [f"t|m{k:02d}|s00" for k in range(16)]
    first, second = zip(*itertools.combinations(ids, 2), strict=True)
    axis = interaction_map(pd.DataFrame({"task_id": "t", "first": first, "second": second, "index": 0.1})).axes[0]
    assert not axis.texts and len(axis.get_yticklabels()) == 15


def test_map_of_nothing_known_or_no_pair_is_drawn() -> None:
    assert interaction_map(pairs().assign(index=np.nan)).axes
    assert interaction_map(pairs().iloc[:0]).axes
    assert interaction_map(pairs().assign(index=0.0)).axes[0].images[0].get_clim()[1] > 0


def test_map_without_interactions_has_a_scale_to_compare_with() -> None:
    norm = interaction_map(pairs().assign(index=0.0)).axes[0].images[0].norm
    assert (norm.vmin, norm.vmax) == (-0.1, 0.1)


def test_map_refuses_several_tasks_and_doubled_pairs() -> None:
    with pytest.raises(ValueError, match="pairs of 2 tasks; an interaction map shows one"):
        interaction_map(pd.concat([pairs(), pairs().assign(task_id="u")]))
    with pytest.raises(ValueError, match="a pair occurs twice"):
        interaction_map(pd.concat([pairs(), pairs()]))


# --------------------------------------------------------------------------------------------------------------- scatter


def marks(axis: Axes) -> dict[str, np.ndarray]:
    return {str(one.get_label()): one.get_offsets() for one in axis.collections if len(one.get_offsets())}


def test_scatter_puts_shapley_across_and_rce_up_near_their_values() -> None:
    axis = rce_against_shapley(compared()).axes[0]
    drawn = {name: dots for name, dots in marks(axis).items() if not name.startswith("_")}
    assert set(drawn) == {"claim", "evidence", "claim (sampled)"}
    low, high = axis.get_xlim()
    shift = 0.0061 * (high - low)
    assert np.allclose(drawn["claim"], [[0.2, 0.3]], atol=shift)
    assert np.allclose(drawn["evidence"], [[-0.1, 0.1]], atol=shift)
    assert axis.get_xlabel() == "Shapley value (utility)" and axis.get_ylabel() == "RCE (utility)"


def test_scatter_has_the_identity_and_shades_opposite_signs_alone() -> None:
    for axis in rce_against_shapley(compared()).axes:
        assert axis.get_xlim() == axis.get_ylim()
        (line,) = [one for one in axis.lines if one.get_linestyle() == "--"]
        assert np.array_equal(line.get_xdata(), line.get_ydata())
        low, high = axis.get_xlim()
        boxes = [patch.get_bbox().extents.tolist() for patch in axis.patches]
        assert boxes == [pytest.approx([low, 0, 0, high]), pytest.approx([0, low, high, 0])]
        assert low < 0 < high


def test_sampled_marks_are_open_and_carry_their_interval() -> None:
    axis = rce_against_shapley(compared()).axes[0]
    looks = {str(one.get_label()): one for one in axis.collections}
    assert len(looks["claim (sampled)"].get_facecolor()) == 0 and len(looks["claim"].get_facecolor()) == 1
    (bar,) = axis.containers
    (segment,) = bar.lines[2][0].get_segments()
    assert np.ptp(segment[:, 0]) == pytest.approx(0.08)


def test_packets_without_a_value_are_left_out_and_an_empty_panel_is_drawn() -> None:
    assert sum(len(dots) for name, dots in marks(rce_against_shapley(compared()).axes[1]).items()) == 2
    nothing = compared().assign(rce=np.nan)
    assert [axis.get_xlim()[0] < 0 < axis.get_xlim()[1] for axis in rce_against_shapley(nothing).axes] == [True, True]
    assert rce_against_shapley(compared().iloc[:0]).axes


def test_types_look_the_same_whatever_stands_beside_them() -> None:
    for frame in (compared(), compared()[compared()["type"] == "claim"]):
        dots = next(one for one in rce_against_shapley(frame).axes[0].collections if one.get_label() == "claim")
        assert dots.get_edgecolor()[0][:3] == pytest.approx(type_look("claim")[0])


# ----------------------------------------------------------------------------------------------------------- calibration


def bin_means(axis: Axes) -> tuple[np.ndarray, list[list[float]]]:
    """Return the points of the bin means and the ends of their bars, none for a bin without an interval."""
    (bar,) = axis.containers
    line = bar.lines[0]
    ends = [segment[:, 1].tolist() for segment in bar.lines[2][0].get_segments() if segment.size]
    return np.column_stack([line.get_xdata(), line.get_ydata()]), ends


def test_few_predictions_are_bins_with_their_mean_and_task_interval() -> None:
    frame = held().assign(workload="worlds", predicted=np.tile([0.0, 0.1, 0.2], 40))
    points, ends = bin_means(calibration(frame, resamples=300).axes[0])
    groups = frame.groupby("predicted")
    assert points[:, 0].tolist() == [0.0, 0.1, 0.2]
    assert np.allclose(points[:, 1], groups["rce"].mean())
    for reach, (_, group) in zip(ends, groups, strict=True):
        known = task_cluster_bootstrap(group["rce"], group["task_id"], weights="row", resamples=300)
        assert sorted(reach) == pytest.approx([known.low, known.high])


def test_many_predictions_fill_bins_about_equally_and_lose_no_packet() -> None:
    frame = held(400).assign(workload="worlds", predicted=np.random.default_rng(1).normal(0, 1, 400))
    points, _ = bin_means(calibration(frame, bins=4, resamples=100).axes[0])
    assert len(points) == 4
    assert points[:, 1].mean() == pytest.approx(frame["rce"].mean())
    assert (np.diff(points[:, 0]) > 0).all()


def test_cells_stand_above_each_other_with_effect_and_support() -> None:
    frame = held()
    figure = calibration(frame, resamples=100)
    above, below = figure.axes[0], figure.axes[2]
    cells = frame[frame["workload"] == "worlds"].groupby("cell")[["predicted", "rce", "support"]].mean()
    circles = next(one for one in above.collections if str(one.get_label()).startswith("cell"))
    assert np.allclose(circles.get_offsets(), cells[["predicted", "rce"]])
    assert np.allclose(below.collections[0].get_offsets(), cells[["predicted", "support"]])
    sizes = frame[frame["workload"] == "worlds"].groupby("cell").size()
    assert np.array_equal(np.argsort(circles.get_sizes(), kind="stable"), np.argsort(sizes.to_numpy(), kind="stable"))
    assert above.get_xlim() == below.get_xlim()


def test_a_bin_of_one_task_has_no_interval_and_nothing_held_out_is_drawn() -> None:
    single = held().assign(workload="worlds", task_id="t0", predicted=0.1)
    points, ends = bin_means(calibration(single, resamples=100).axes[0])
    assert len(points) == 1 and ends == []
    assert calibration(held().iloc[:0], resamples=100).axes
    gone = calibration(held().assign(rce=np.nan), alpha=6.0, resamples=100)
    assert [axis.get_title(loc="left") for axis in gone.axes[:1]] == ["worlds"]


def test_shrinkage_strength_is_drawn_where_it_is_named() -> None:
    lines = [line.get_ydata()[0] for line in calibration(held(), alpha=6.0, resamples=100).axes[2].lines]
    assert lines == [6.0]
    assert not calibration(held(), resamples=100).axes[2].lines


@pytest.mark.parametrize(
    ("draw", "frame", "column"),
    [
        (interaction_map, pairs, "index"),
        (rce_against_shapley, compared, "shapley"),
        (calibration, held, "support"),
    ],
)
def test_missing_columns_are_named(draw: object, frame: object, column: str) -> None:
    with pytest.raises(ValueError, match=column):
        draw(frame().drop(columns=column))
