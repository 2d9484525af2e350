"""Figures of a selector: marks where the table says, the price of choosing, shares that fill a bar, hostile labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from lib.evaluation.selector_figures import action_mix, calibration_curves, policy_frontier, term_dots
from tests.evaluation.drawing import draws_equally_twice
from tests.evaluation.test_figures import HOSTILE, texts

NONE = float("nan")


def signals(name: str = "toy") -> pd.DataFrame:
    rows = [(name, "skip", 0.0, 0.3, 100.0), (name, "raw", 0.5, 0.0, 900.0), (name, "compress", NONE, 0.1, 228.0)]
    return pd.DataFrame(rows, columns=["regime", "action", "gain", "tax", "cost"])


def chosen(name: str = "toy") -> pd.DataFrame:
    rows = (
        [("selector", "skip")] * 3 + [("selector", "raw")] + [("oracle", "raw")] * 4 + [("random, same mix", None)] * 4
    )
    return pd.DataFrame(rows, columns=["policy", "action"]).assign(regime=name)


def policies(name: str = "toy") -> pd.DataFrame:
    rows = [
        ("selector", 0.8, 300.0, 900.0, True, False),
        ("always skip", 0.5, 100.0, 100.0, True, False),
        ("drop gain", 0.4, 100.0, 120.0, False, False),
        (name, NONE, 100.0, NONE, False, False),
        ("oracle", 1.0, 200.0, 200.0, False, True),
    ]
    table = pd.DataFrame(rows, columns=["policy", "hit", "tokens", "decision_tokens", "on_frontier", "oracle_only"])
    table = table.assign(hit_low=table["hit"] - 0.1, hit_high=table["hit"] + 0.1, regime=name)
    return table.assign(decision_tokens_low=NONE, decision_tokens_high=NONE)


def sweep() -> pd.DataFrame:
    columns = [f"{name}_{end}" for name in ("accuracy", "utility", "cost_share") for end in ("mean", "sd")]
    return pd.DataFrame([[0.1, *[0.5, NONE] * 3], [0.4, *[0.6, 0.1] * 3]], columns=["fraction", *columns])


ALL = {
    "terms": lambda: term_dots(pd.concat([signals(), signals(HOSTILE)])),
    "mix": lambda: action_mix(pd.concat([chosen(), chosen(HOSTILE)]), panel="regime"),
    "frontier": lambda: policy_frontier(pd.concat([policies(), policies(HOSTILE)]), panel="regime"),
    "sweep": lambda: calibration_curves(sweep()),
}


@pytest.mark.parametrize("name", ALL)
def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path, name: str) -> None:
    draws_equally_twice(ALL[name], tmp_path, name)


def test_policies_stand_where_the_table_says_and_the_oracle_is_open() -> None:
    axis = policy_frontier(policies()).axes[0]
    marks = {line.get_label(): line for line in axis.lines if len(line.get_xdata()) == 1}
    assert set(marks) == {"selector", "always skip", "drop gain", "oracle"}, "a null has no mark"
    assert (marks["selector"].get_xdata()[0], marks["selector"].get_ydata()[0]) == (900.0, 0.8)
    assert to_hex(marks["oracle"].get_markerfacecolor()) == "#ffffff" != to_hex(marks["selector"].get_markerfacecolor())
    by_label = {line.get_label(): line for line in axis.lines}
    assert list(by_label["frontier"].get_xdata()) == [100.0, 900.0]
    assert list(by_label["price of choosing"].get_xdata()) == [300.0, 900.0]
    assert axis.get_xscale() == "log" and axis.get_ylim()[0] < 0.3
    level = policies().assign(decision_tokens=150.0)
    assert policy_frontier(level).axes[0].get_xscale() == "linear"


def test_shares_fill_a_bar_and_chance_has_none() -> None:
    axis = action_mix(chosen()).axes[0]
    ends = {}
    for bar in axis.patches:
        ends.setdefault(round(bar.get_y()), []).append(bar.get_width())
    assert [sum(widths) for widths in ends.values()] == [1.0, 1.0] and sorted(ends[0]) == [0.25, 0.75]
    assert not any("random" in text for text in texts(axis.figure))


def test_terms_are_means_over_what_is_known() -> None:
    figure = term_dots(pd.concat([signals(), signals().assign(gain=1.5)]))
    points = {
        float(x): float(y)
        for line in figure.axes[0].lines
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }
    assert points[1.0] == 2.0, "raw, mean of 0.5 and 1.5"
    assert points[1.5] == 1.0 and len(figure.axes) == 3, "compress, whose null is left out"


def test_a_sweep_shows_its_spread_and_one_draw_has_none() -> None:
    figure = calibration_curves(sweep())
    assert np.allclose(figure.axes[0].lines[0].get_xdata(), [10, 40]) and len(figure.axes) == 3


def test_no_rows_and_missing_columns() -> None:
    assert policy_frontier(policies().iloc[:0]).axes and action_mix(chosen().iloc[:0]).axes
    assert term_dots(signals().iloc[:0]).axes
    for draw, frame, column in (
        (policy_frontier, policies(), "hit_low"),
        (action_mix, chosen(), "action"),
        (term_dots, signals(), "tax"),
        (calibration_curves, sweep(), "utility_sd"),
    ):
        with pytest.raises(ValueError, match="lacks the columns"):
            draw(frame.drop(columns=column))
