"""Figures over runs: what is drawn is what the table says."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.patches import Rectangle

from lib.evaluation.run_figures import run_lines, run_map
from lib.evaluation.run_summary import over_runs


@pytest.fixture
def runs() -> pd.DataFrame:
    cells = [(cap, model, seed) for cap in ("[0.25]", "[0.5]", "[1]") for model in ("a$b$", "b") for seed in (0, 1)]
    frame = pd.DataFrame(cells, columns=["p.cap", "p.model", "p.seed"])
    return frame.assign(**{"h.gain": [0.1 * place - 0.5 for place in range(len(frame))]})


def texts(figure: object) -> list[str]:
    return [text.get_text() for axis in figure.axes for text in axis.texts]  # type: ignore[attr-defined]


def test_a_number_on_the_axis_makes_lines_with_whiskers(runs: pd.DataFrame) -> None:
    table = over_runs(runs, ["p.cap", "p.model"], "h.gain")
    axis = run_lines(table, runs, "p.cap", value="h.gain", colour="p.model").axes[0]
    lines = [part for part in axis.containers if isinstance(part, ErrorbarContainer)]
    assert len(lines) == 2
    means = table[table["p.model"] == "b"]["mean"].tolist()
    assert lines[1].lines[0].get_ydata().tolist() == pytest.approx(means)
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["0.25", "0.5", "1"]
    assert [part.get_text() for part in axis.get_legend().get_texts()] == [r"a\$b\$", "b"]
    assert sum(len(part.get_offsets()) for part in axis.collections if len(part.get_offsets()) == 6) == 12


def test_a_text_on_the_axis_makes_bars(runs: pd.DataFrame) -> None:
    table = over_runs(runs, ["p.model"], "h.gain")
    axis = run_lines(table, runs, "p.model", value="h.gain").axes[0]
    (bars,) = [part for part in axis.containers if isinstance(part, BarContainer)]
    assert [bar.get_height() for bar in bars] == pytest.approx(table["mean"].tolist())
    assert axis.get_legend() is None and axis.get_ylabel() == "gain"


def test_one_run_in_a_cell_has_no_whisker(runs: pd.DataFrame) -> None:
    for count, drawn in ((1, False), (3, True)):
        some = runs.head(count).assign(**{"p.model": "b"})
        axis = run_lines(over_runs(some, ["p.model"], "h.gain"), some, "p.model", value="h.gain").axes[0]
        (bars,) = [part for part in axis.containers if isinstance(part, BarContainer)]
        (whisker,) = bars.errorbar.lines[2][0].get_segments()  # type: ignore[union-attr]
        assert bool(pd.notna(whisker).all() and len(whisker)) is drawn


def test_a_map_shows_means_counts_and_holes(runs: pd.DataFrame) -> None:
    table = over_runs(runs[(runs["p.cap"] != "[1]") | (runs["p.model"] == "b")], ["p.cap", "p.model"], "h.gain")
    figure = run_map(table, "p.model", "p.cap", label="gain")
    assert len(texts(figure)) == 10 and texts(figure).count("n = 2") == 5
    assert "-0.450" in texts(figure)[0].replace("\u2212", "-")
    hatched = [part for part in figure.axes[0].patches if isinstance(part, Rectangle) and part.get_hatch()]
    assert [(part.get_x(), part.get_y()) for part in hatched] == [(1.5, -0.5)]


def test_equal_distance_from_zero_is_equally_strong() -> None:
    table = pd.DataFrame({"p.a": ["1", "2", "3"], "p.b": "x", "mean": [-0.2, 0.0, 0.1], "counted": 1})
    red, pale, blue = (part.get_facecolor() for part in run_map(table, "p.b", "p.a").axes[0].patches)
    assert red[0] > red[2] and blue[2] > blue[0] and min(pale[:3]) > 0.9
    assert sum(red[:3]) < sum(blue[:3]), "twice as far is darker"


def test_a_cell_that_occurs_twice_is_refused(runs: pd.DataFrame) -> None:
    table = pd.DataFrame({"p.a": ["1", "1"], "p.b": "x", "mean": 0.1, "counted": 1})
    with pytest.raises(ValueError, match="occurs twice"):
        run_map(table, "p.a", "p.b")


def test_an_empty_table_is_an_empty_figure(runs: pd.DataFrame) -> None:
    table = over_runs(runs.head(0), ["p.cap", "p.model"], "h.gain")
    assert len(run_lines(table, runs.head(0), "p.cap", value="h.gain", colour="p.model").axes) == 1
    assert texts(run_map(table, "p.cap", "p.model")) == []
