"""Figures of teams: what is drawn is the data, merges are framed, unknown numbers stay visible, texts are shown literally."""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from lib.evaluation.figures import save_figure
from lib.evaluation.hop_figures import hop_bars, pair_maps, similarity_map, two_measures
from lib.evaluation.looks import PALETTE
from tests.evaluation.test_figures import HOSTILE, texts

SIMILAR = np.array([[1.0, 0.9, 0.2], [0.9, 1.0, -0.1], [0.2, -0.1, 1.0]])
PAIRS = np.array([[np.nan, 0.3], [0.7, np.nan]])
COSTS = pd.DataFrame(
    {
        "arm": ["vanilla", HOSTILE],
        "frame": [100, 100],
        "hop 1": [50.0, 40.0],
        "hop 2": [0.0, 25.0],
        "distiller": [0, 300],
    }
)
MEASURES = pd.DataFrame(
    {
        "group": ["one", "one", HOSTILE, HOSTILE],
        "arm": ["vanilla", "moc"] * 2,
        "k": [1, 2] * 2,
        "accuracy": [0.5, 0.75, 0.25, np.nan],
        "low": [0.25, 0.5, 0.0, np.nan],
        "high": [0.75, 1.0, 0.5, np.nan],
        "agent_prompt_tokens_mean": [1000.0, 1200.0, 900.0, np.nan],
        "agent_prompt_tokens_low": [900.0, 1100.0, 850.0, np.nan],
        "agent_prompt_tokens_high": [1100.0, 1300.0, 950.0, np.nan],
    }
)
ALL = {
    "similarity_map": lambda: similarity_map(SIMILAR, ["a", HOSTILE, "c"], [(0, 1)], threshold=0.8),
    "pair_maps": lambda: pair_maps({"one": PAIRS, HOSTILE: PAIRS.T}, ["a", HOSTILE], label="share"),
    "hop_bars": lambda: hop_bars(COSTS, ["frame", "hop 1", "hop 2"], marked="distiller"),
    "two_measures": lambda: two_measures(MEASURES),
}


@pytest.mark.parametrize("name", ALL)
def test_every_figure_draws_without_warnings_shows_texts_literally_and_is_closed(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = ALL[name]()
        save_figure(figure, tmp_path, name)
    assert plt.get_fignums() == []
    assert isinstance(figure, Figure)
    assert any("$" in text and "\\$" in text for text in texts(figure)), "the hostile text is shown, escaped"


def test_similarities_are_the_lower_half_and_merged_pairs_are_framed() -> None:
    axis = similarity_map(SIMILAR, ["a", "b", "c"], [(1, 0)]).axes[0]
    drawn = np.ma.filled(axis.images[0].get_array(), np.nan)
    assert np.isnan(drawn[np.triu_indices(3)]).all() and drawn[1, 0] == 0.9 and drawn[2, 1] == -0.1
    frames = [patch for patch in axis.patches if to_rgb(patch.get_edgecolor()) == to_rgb(PALETTE[3])]
    assert [(round(box.get_x(), 2), round(box.get_y(), 2)) for box in frames] == [(-0.46, 0.54)]
    assert "\u22120.10" in [text.get_text() for text in axis.texts]
    with pytest.raises(ValueError, match="two are needed"):
        similarity_map(np.eye(1), ["a"])


def test_pairs_keep_their_direction_on_one_scale_and_the_unknown_is_hatched() -> None:
    first, second = pair_maps({"one": PAIRS, "two": PAIRS.T}, ["a", "b"], label="share", limits=(0.2, 0.8)).axes[:2]
    assert first.images[0].get_array()[1, 0] == 0.7 == second.images[0].get_array()[0, 1]
    assert {axis.images[0].norm.vmin for axis in (first, second)} == {0.2}
    assert sum(patch.get_hatch() == "////" for patch in first.patches) == 2
    for panels in ({}, {"one": np.eye(3)}):
        with pytest.raises(ValueError, match="at least one, each of shape"):
            pair_maps(panels, ["a", "b"], label="share")


def test_bars_stack_to_the_sum_and_the_distiller_stands_apart() -> None:
    axis = hop_bars(COSTS, ["frame", "hop 1", "hop 2"], marked="distiller").axes[0]
    widths = [patch.get_width() for patch in axis.patches]
    assert widths == [100, 100, 50, 40, 0, 25, 0, 300]
    assert [patch.get_x() for patch in axis.patches[4:6]] == [150, 140]
    assert {"150", "165", "300"} <= {text.get_text() for text in axis.texts}
    hop = axis.patches[2]
    assert to_rgb(hop.get_facecolor()) == to_rgb(PALETTE[0])
    unknown = hop_bars(COSTS.assign(distiller=np.nan), ["frame"], marked="distiller").axes[0]
    assert [text.get_text() for text in unknown.texts].count("\u2013") == 2
    with pytest.raises(ValueError, match="can be told apart"):
        wide = COSTS.assign(a=1, b=1, c=1, d=1)
        hop_bars(wide, ["frame", "a", "b", "c", "d"])


def test_two_measures_have_their_numbers_and_intervals() -> None:
    accuracy, tokens = two_measures(MEASURES).axes
    assert [bar.get_height() for bar in accuracy.patches[:2]] == [0.5, 0.25]
    assert [bar.get_height() for bar in tokens.patches[:2]] == [1000, 900]
    assert np.isnan(accuracy.patches[3].get_height())
    ends = [line.get_segments() for line in accuracy.collections]
    assert np.allclose(ends[0][0][:, 1], [0.25, 0.75])
    with pytest.raises(ValueError, match="lacks the columns"):
        two_measures(MEASURES.drop(columns="low"))
