"""Figures of a lie: bars are the shares, numbers who could adopt it, the control stands apart."""

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

from lib.evaluation.saving import save_figure
from lib.evaluation.spread_figures import spread_bars
from lib.evaluation.team_looks import series_of
from tests.evaluation.test_figures import HOSTILE, texts

ARMS = (("vanilla", 1), ("moc", 2))
SHARES = {"decision": 0.25, "hop 10": 0.0, "hop 1": 0.5, "unreached": 0.05, "hop 2": 0.75}


def spread(kinds: tuple[str, ...] = ("answer",)) -> pd.DataFrame:
    rows = []
    for kind, (arm, k), (reach, share) in itertools.product(kinds, ARMS, SHARES.items()):
        own = share if arm == "vanilla" else share / 2
        rows.append((kind, arm, k, reach, own, own - 0.05, own + 0.2, round(40 * own), 40))
    return pd.DataFrame(rows, columns=["kind", "arm", "k", "reach", "share", "low", "high", "hits", "known"])


def bars(axis: Axes, colour: object) -> dict[int, float]:
    return {
        round(bar.get_x() + bar.get_width() / 2): bar.get_height()
        for container in axis.containers
        for bar in getattr(container, "patches", [])
        if to_rgb(bar.get_facecolor()) == pytest.approx(to_rgb(colour))
    }


def test_hostile_labels_draw_without_warning_and_equally_twice(tmp_path: Path) -> None:
    def draw() -> plt.Figure:
        rows = spread(("answer", HOSTILE)).replace({"arm": {"moc": HOSTILE}})
        return spread_bars(rows, control=rows.assign(share=0.02), panel="kind")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (save_figure(draw(), tmp_path / name, "spread") for name in "ab")
    for ending in ("png", "svg"):
        assert one[ending].read_bytes() == two[ending].read_bytes()
    before = plt.get_fignums()
    assert not any("$5\n" in text or "\x00" in text for text in texts(draw()))
    assert plt.get_fignums() == before


def test_bars_are_shares_by_hop_then_decision_then_control() -> None:
    axis = spread_bars(spread()).axes[0]
    names = [label.get_text().replace("\n", " ") for label in axis.get_xticklabels()]
    assert names == ["hop 1", "hop 2", "hop 10", "decision agent", "not reached (control)"]
    vanilla, moc = series_of(spread())
    assert bars(axis, vanilla.colour) == pytest.approx({0: 0.5, 1: 0.75, 2: 0.0, 3: 0.25, 4: 0.05})
    assert bars(axis, moc.colour) == pytest.approx({0: 0.25, 1: 0.375, 2: 0.0, 3: 0.125, 4: 0.025})
    assert [text.get_text() for text in axis.texts][:3] == ["10/40", "0/40", "20/40"]
    grey = [patch for patch in axis.patches if patch.get_width() == 1]
    assert [(patch.get_x(), patch.get_width()) for patch in grey] == [(3.5, 1.0)]


def test_no_two_bars_share_a_place_and_nothing_is_cut_off() -> None:
    rows = spread().assign(high=1.0, share=0.99)
    axis = spread_bars(rows).axes[0]
    spans = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in axis.patches if bar.get_width() < 0.9)
    assert all(one[1] <= two[0] + 1e-9 for one, two in itertools.pairwise(spans)) and len(spans) == 10
    assert axis.get_ylim()[1] > 1.05 and axis.get_yticks()[-1] == 1


def test_intervals_are_drawn_as_given() -> None:
    axis = spread_bars(spread()[lambda rows: rows["arm"] == "moc"]).axes[0]
    lines = [segment for one in axis.collections for segment in getattr(one, "get_segments", list)()]
    ends = {round(float(line[0, 0])): line[:, 1] for line in lines if np.ptp(line[:, 0]) == 0}
    assert ends[0] == pytest.approx([0.2, 0.45]) and ends[1] == pytest.approx([0.325, 0.575])


def test_the_control_is_a_line_across_its_bar() -> None:
    control = spread().assign(share=lambda rows: rows["share"] / 10)
    axis = spread_bars(spread(), control=control).axes[0]
    heights = sorted(float(line.get_ydata()[0]) for line in axis.lines if line.get_label() == "without attack")
    assert heights == pytest.approx(sorted(control["share"]))
    assert spread_bars(spread(), control=control.iloc[:0]).axes


def test_panels_hold_their_own_rows() -> None:
    rows = spread(("answer", "instruction"))
    rows.loc[rows["kind"] == "instruction", "share"] += 0.1
    control = spread(("answer", "instruction")).assign(share=lambda one: 0.01 + 0.02 * (one["kind"] != "answer"))
    one, two = spread_bars(rows, control=control, panel="kind").axes
    colour = series_of(rows)[0].colour
    assert bars(two, colour)[0] == pytest.approx(bars(one, colour)[0] + 0.1)
    assert [axis.get_title(loc="left") for axis in (one, two)] == ["answer", "instruction"]
    for axis, noise in ((one, 0.01), (two, 0.03)):
        lines = [line.get_ydata() for line in axis.lines if line.get_label() == "without attack"]
        assert np.allclose(lines, noise) and len(lines) == 10


def test_a_reach_that_nobody_could_adopt_at_is_empty() -> None:
    rows = spread()
    rows.loc[rows["reach"] == "hop 2", ["share", "low", "high"]] = np.nan
    axis = spread_bars(rows).axes[0]
    assert sorted(bars(axis, series_of(rows)[0].colour)) == [0, 2, 3, 4]
    assert spread_bars(rows.iloc[:0]).axes


def test_missing_columns_are_named() -> None:
    with pytest.raises(ValueError, match="known"):
        spread_bars(spread().drop(columns="known"))
    with pytest.raises(ValueError, match="hits"):
        spread_bars(spread(), control=spread().drop(columns="hits"))
