"""Figures of lost decisions: stacks hold the shares and sum to one, rates stand at their values, the paper stands apart."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from lib.evaluation.closure_figures import STAGES, outcome_bars, wrong_action_points
from lib.evaluation.saving import save_figure
from tests.evaluation.test_figures import HOSTILE, texts

SHARES = {"big": (0.5, 0.25, 0.125, 0.125, 0.0), "small": (0.04, 0.0, 0.3, 0.5, 0.16)}
RATES = ("wrong_action_rate", "wrong_action_rate_with_invalid")
PAPER = pd.DataFrame(
    [("GLM-5", 0.445, 0.455), ("o3", 0.408, 0.805)], columns=["subject", RATES[0], "one_minus_conversion"]
)


def closures(names: tuple[str, ...] = ("big", "small"), families: tuple[str, ...] = ("near", "far")) -> pd.DataFrame:
    rows = [
        {
            "benchmark": family,
            "receiver_model": name,
            "steps": 16,
            "failed": 2,
            **dict(zip(STAGES, shares, strict=True)),
        }
        for family, (name, shares) in itertools.product(families, zip(names, SHARES.values(), strict=True))
    ]
    table = pd.DataFrame(rows)
    for place, rate in enumerate(RATES):
        table[rate] = np.linspace(0.2, 0.5, len(table)) + 0.1 * place
        table[f"{rate}_low"], table[f"{rate}_high"] = table[rate] - 0.1, table[rate] + 0.2
    return table


ALL = {
    "bars": lambda: outcome_bars(closures(("big", HOSTILE), ("near", HOSTILE))),
    "rates": lambda: wrong_action_points(closures(("big", HOSTILE)), published=PAPER.assign(subject=HOSTILE)),
}


def stack(axis: Axes, row: int) -> dict[str, tuple[float, float]]:
    """Left end and width of every stage of a row, by its colour."""
    names = {to_rgb(colour): stage for stage, (_, colour, _) in STAGES.items()}
    bars = [one for one in axis.patches if isinstance(one, Rectangle) and one.get_width() > 0]
    here = [bar for bar in bars if round(bar.get_y() + bar.get_height() / 2) == row]
    return {names[bar.get_facecolor()[:3]]: (bar.get_x(), bar.get_width()) for bar in here}


@pytest.mark.parametrize("name", ALL)
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, name: str) -> None:
    before = plt.get_fignums()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (save_figure(ALL[name](), tmp_path / folder, name) for folder in "ab")
    for ending in ("png", "svg"):
        assert one[ending].read_bytes() == two[ending].read_bytes()
    assert not any("$5\n" in text or "\x00" in text for text in texts(ALL[name]()))
    assert plt.get_fignums() == before


def test_bars_hold_the_shares_in_the_order_of_the_stages() -> None:
    near, far = outcome_bars(closures()).axes
    assert [near.get_title(loc="left"), far.get_title(loc="left")] == ["near", "far"]
    for row, shares in enumerate(SHARES.values()):
        found, left = stack(near, row), 0.0
        for stage, share in zip(STAGES, shares, strict=True):
            if share:
                assert found[stage] == pytest.approx((left, share)), stage
            left += share
        assert set(found) == {stage for stage, share in zip(STAGES, shares, strict=True) if share}
    told = [text.get_text() for text in near.texts]
    assert told == ["50", "25", "12", "12", "14", "30", "50", "16", "14"], "4 % has no room; 14 of 16 were answered"
    assert [label.get_text() for label in near.get_yticklabels()] == ["big", "small"]


def test_null_shares_and_missing_rows_are_left_empty() -> None:
    table = closures().astype(dict.fromkeys(STAGES, "Float64"))
    table.loc[table["receiver_model"] == "small", list(STAGES)] = pd.NA
    near = outcome_bars(table.assign(failed=[2, 16] * 2)).axes[0]
    assert stack(near, 1) == {} and near.texts[-1].get_text() == "0"
    far = outcome_bars(closures().iloc[:3]).axes[1]
    assert stack(far, 0) and not stack(far, 1)
    assert outcome_bars(closures().iloc[:0]).axes


def test_rates_stand_at_their_values_with_their_ends() -> None:
    table = closures()
    axis = wrong_action_points(table, published=PAPER).axes[0]
    for container, rate, shift in zip(axis.containers, RATES, (-0.13, 0.13), strict=True):
        line, _, (bars,) = container.lines
        assert line.get_xdata() == pytest.approx(table[rate].to_numpy()[:2])
        assert line.get_ydata() == pytest.approx([shift, 1 + shift])
        ends = [segment[:, 0].tolist() for segment in bars.get_segments()]
        assert np.array(ends) == pytest.approx(table[[f"{rate}_low", f"{rate}_high"]].to_numpy()[:2])


def test_an_unknown_rate_is_not_drawn_and_the_paper_has_its_panel() -> None:
    table = closures().astype({RATES[0]: "Float64"})
    table.loc[0, [RATES[0], f"{RATES[0]}_low", f"{RATES[0]}_high"]] = pd.NA
    near, _, paper = wrong_action_points(table, published=PAPER).axes
    assert len(near.containers[0].lines[0].get_xdata()) == 1
    assert [label.get_text() for label in paper.get_yticklabels()] == ["GLM-5", "o3"]
    assert [line.get_xdata().tolist() for line in paper.lines] == [[0.445, 0.408], [0.455, 0.805]]
    assert len(wrong_action_points(table, published=PAPER.iloc[:0]).axes) == 2


def test_wrong_frames_are_named() -> None:
    with pytest.raises(ValueError, match="closure"):
        outcome_bars(closures().drop(columns="closure"))
    with pytest.raises(ValueError, match="twice"):
        outcome_bars(pd.concat([closures()] * 2))
    with pytest.raises(ValueError, match="wrong_action_rate_low"):
        wrong_action_points(closures().drop(columns="wrong_action_rate_low"))
    with pytest.raises(ValueError, match="one_minus_conversion"):
        wrong_action_points(closures(), published=PAPER.drop(columns="one_minus_conversion"))
