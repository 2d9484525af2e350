"""Figures: what is drawn is the data, labels are literal, looks stay with policies, repeated runs are equal."""

from __future__ import annotations

import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text

from lib.evaluation.figures import (
    effect_waterfall,
    frontier,
    kib_bars,
    label_bars,
    plain_text,
    predicted_vs_measured,
)
from tests.evaluation.drawing import draws_equally_twice

HOSTILE = "costs $5\nor $6 <b>👨‍👩‍👧</b> \\alpha_{1} שלום 漢字 \x00"


def sweep() -> pd.DataFrame:
    rows = [
        {
            "workload": w,
            "policy": p,
            "beta": b,
            "task_utility_mean": u,
            "task_utility_sd": 0.02,
            "bytes_mean": 1000 * b,
            "bytes_sd": 9.0,
        }
        for w, (p, u), b in itertools.product(
            ["worlds", HOSTILE], [("causal", 0.6), ("semantic", 0.4), (HOSTILE, 0.3)], [0.5, 0.25]
        )
    ]
    return pd.DataFrame(rows).assign(utility_per_kib=0.8, utility_per_kib_sd=0.1)


def effects() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "packet_id": ["t|m00|s00", "t|m00|s01", "t|m01|s00", "t|m01|s01"],
            "type": ["claim", "evidence", HOSTILE, "request"],
            "sufficiency": [0.1, 0.9, -0.5, np.nan],
            "necessity": [0.1, 0.3, -0.1, np.nan],
            "rce": [0.1, 0.6, -0.3, np.nan],
        }
    )


def judged(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    predicted = rng.choice([-0.1, 0.0, 0.1, 0.2], n)
    return pd.DataFrame(
        {"predicted": predicted, "rce": predicted + rng.normal(0, 0.2, n), "type": rng.choice(["claim", "evidence"], n)}
    )


LABELS = pd.DataFrame(
    {
        "type": ["claim", HOSTILE],
        "labelled": [10, 0],
        "positive_share": [0.5, np.nan],
        "zero_share": [0.46, np.nan],
        "negative_share": [0.04, np.nan],
    }
)

ALL = {
    "frontier": lambda: frontier(sweep()),
    "kib": lambda: kib_bars(sweep().query("beta == 0.5")),
    "labels": lambda: label_bars(LABELS, by="type"),
    "predicted": lambda: predicted_vs_measured(judged(), correlation=0.5, recall=0.6),
    "waterfall": lambda: effect_waterfall(effects(), {"t|m00|s00": HOSTILE}, title=HOSTILE),
}


def texts(figure: Figure) -> list[str]:
    found = []
    for axis in figure.axes:
        found += [axis.get_title(loc="left"), axis.get_xlabel(), axis.get_ylabel(), *(t.get_text() for t in axis.texts)]
        found += [label.get_text() for label in (*axis.get_xticklabels(), *axis.get_yticklabels())]
    for legend in [*figure.legends, *(axis.get_legend() for axis in figure.axes if axis.get_legend())]:
        found += [entry.get_text() for entry in legend.get_texts()]
    return found


@pytest.mark.parametrize("name", ALL)
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, name: str) -> None:
    draws_equally_twice(ALL[name], tmp_path, name)


@pytest.mark.parametrize("name", ALL)
def test_figures_are_released_to_the_caller(name: str) -> None:
    before = plt.get_fignums()
    assert isinstance(ALL[name](), Figure)
    assert plt.get_fignums() == before


@settings(max_examples=200)
@given(st.text(max_size=80), st.integers(8, 60))
def test_plain_text_is_one_short_line_without_live_signs(text: str, width: int) -> None:
    label = plain_text(text, width)
    assert len(label.replace(r"\$", "$")) <= width
    assert label.splitlines() in ([], [label])
    assert "$" not in label.replace(r"\$", "")


def test_plain_text_by_hand() -> None:
    assert plain_text("costs $5 and $6") == r"costs \$5 and \$6"
    assert plain_text("a\n\tb\x00c\u202e") == "a bc"
    assert plain_text("漢") == "\u25a1"
    assert plain_text("x" * 20, 8) == "x" * 7 + "…"
    assert plain_text(7) == "7"
    assert plain_text(r"a\$b") == r"a\\$b"


@pytest.mark.parametrize("text", ["costs $5 and $6", r"\$x$", r"\alpha $_1$", "$", r"\\$a$"])
def test_drawn_label_reads_as_the_text(text: str) -> None:
    """What the text engine draws after its own unescaping is the text itself, never mathematics."""
    drawn, mathematics = Text()._preprocess_math(plain_text(text))
    assert (drawn, mathematics) == (text, False)


def test_frontier_draws_each_policy_over_its_caps_in_order() -> None:
    figure = frontier(sweep())
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["worlds", plain_text(HOSTILE)]
    lines = {line.get_label(): line for line in figure.axes[0].containers}
    assert set(lines) == {"BANDMAS causal", "Semantic relevance", plain_text(HOSTILE, 24)}
    data = lines["BANDMAS causal"].lines[0]
    assert data.get_xdata().tolist() == [250, 500]
    assert data.get_ydata().tolist() == [0.6, 0.6]
    assert figure.axes[0].get_xlabel() == "Transmitted bytes per task"


def test_the_marked_cap_of_a_panel_has_black_edges() -> None:
    def edged(figure: Figure) -> list[list[tuple[float, float]]]:
        black = [[line for line in axis.lines if line.get_markeredgecolor() == "black"] for axis in figure.axes]
        return [[point for line in lines for point in zip(*line.get_data(), strict=True)] for lines in black]

    assert edged(frontier(sweep())) == [[], []]
    assert edged(frontier(sweep(), marked={"worlds": 0.25})) == [[(250, 0.6), (250, 0.4), (250, 0.3)], []]
    assert edged(frontier(sweep(), marked={"worlds": 0.9})) == [[], []], "a cap that was not run marks nothing"


def test_one_seed_has_no_error_bar_but_is_drawn() -> None:
    table = sweep().assign(task_utility_sd=np.nan, bytes_sd=np.nan)
    assert len(frontier(table).axes[0].containers) == 3


def test_kib_bars_show_values_and_the_papers_marks() -> None:
    published = pd.DataFrame({"workload": ["worlds"], "policy": ["causal"], "utility_per_kib": [1.7]})
    figure = kib_bars(sweep().query("beta == 0.5"), published=published)
    axis = figure.axes[0]
    assert [patch.get_height() for patch in axis.patches] == [0.8] * 3
    assert [label.get_text() for label in axis.get_xticklabels()] == ["Causal", "Semantic", plain_text(HOSTILE, 18)]
    mark = next(line for line in axis.lines if line.get_label() == "paper")
    assert (list(mark.get_xdata()), list(mark.get_ydata())) == ([0], [1.7])


def test_label_bars_stack_to_the_shares() -> None:
    axis = label_bars(LABELS, by="type").axes[0]
    first = [patch.get_width() for patch in axis.patches][::2]
    assert first == pytest.approx([0.5, 0.46, 0.04])
    assert [text.get_text() for text in axis.texts] == ["50%", "46%"]
    assert axis.get_yticklabels()[0].get_text() == "claim  (n = 10)"


def test_predicted_dots_stay_near_their_values_and_bins_average_all() -> None:
    frame = judged()
    figure = predicted_vs_measured(frame, correlation=0.512)
    axis = figure.axes[0]
    assert axis.get_title(loc="left") == "Rank correlation 0.51"
    dots = np.concatenate(
        [points.get_offsets() for points in axis.collections if points.get_label() in ("claim", "evidence")]
    )
    assert len(dots) == len(frame)
    assert np.abs(np.sort(dots[:, 0]) - np.sort(frame["predicted"])).max() < 1e-12
    means = next(bar for bar in axis.containers if bar.get_label() == "bin mean").lines[0]
    expected = frame.groupby("predicted")["rce"].mean()
    assert np.allclose(means.get_ydata(), expected)


def test_constant_predictions_and_no_packets_are_drawn() -> None:
    assert predicted_vs_measured(judged().assign(predicted=0.3)).axes
    assert predicted_vs_measured(judged().iloc[:0], correlation=float("nan")).axes[0].get_title(loc="left") == ""
    assert effect_waterfall(effects().iloc[:0]).axes


def test_waterfall_sorts_by_effect_with_unmeasured_last() -> None:
    axis = effect_waterfall(effects(), {"t|m00|s01": "[S0] text"}).axes[0]
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names[0] == "m00/s01  evidence: [S0] text"
    assert names[1] == "m00/s00  claim"
    assert names[-1] == "m01/s01  request"
    assert [patch.get_width() for patch in axis.patches] == [0.6, 0.1, -0.3, 0.0]
    low, high = axis.get_xlim()
    assert low < -0.5
    assert high > 0.9


@pytest.mark.parametrize(
    ("draw", "column"),
    [
        (frontier, "bytes_mean"),
        (kib_bars, "utility_per_kib_sd"),
        (predicted_vs_measured, "rce"),
        (effect_waterfall, "rce"),
    ],
)
def test_missing_columns_are_named(draw: object, column: str) -> None:
    source = {frontier: sweep, kib_bars: sweep, predicted_vs_measured: judged, effect_waterfall: effects}[draw]()
    with pytest.raises(ValueError, match=column):
        draw(source.drop(columns=column))


def test_hostile_text_reaches_no_label_unescaped() -> None:
    for draw in ALL.values():
        assert not any("$5\n" in text or "\x00" in text for text in texts(draw()))
