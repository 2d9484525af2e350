"""A threshold is claimed only where nothing speaks against it, and what could not be done is said."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lib.coordination.anchors import sender_anchors
from lib.coordination.crossing_fits import MODELS
from lib.coordination.ladder import read_messages, write_messages
from lib.coordination.scoring import score_records
from lib.coordination.threshold import find_threshold, ladder_anchors
from tests.coordination.exchanges import Listening, decide, step_set


def anchors_of(x: list[float], y: list[float], steps: int = 100) -> pd.DataFrame:
    """Anchors of four families, receivers all different."""
    names = [f"r{place:02}" for place in range(len(x))]
    frame = pd.DataFrame({"receiver_model": names, "receiver_only": x, "gap": y, "steps": steps})
    frame["benchmark"] = [f"f{place % 4}" for place in range(len(x))]
    return frame.assign(anchor=frame["benchmark"] + "/" + frame["receiver_model"])


X = np.linspace(0.05, 0.95, 24)
NOISE = np.random.default_rng(0).normal(0, 0.03, 24)


def test_a_falling_line_with_little_noise_is_identified() -> None:
    found = find_threshold(anchors_of(X.tolist(), (0.4 - 0.65 * X + NOISE).tolist()), draws=400)
    assert found.identified and found.doubts == () and found.skipped == {}
    assert found.fits["linear"].crossing == pytest.approx(0.4 / 0.65, abs=0.05)
    assert set(found.fits) == set(MODELS) and found.folds == 10
    interval = found.intervals["linear"]
    assert interval.low < 0.4 / 0.65 < interval.high and interval.dropped == 0
    assert found.signs.agree >= 22
    curves = found.curves(11)
    assert len(curves) == 44
    line = curves[curves["model"] == "linear"].set_index("x")["y"]
    assert line.loc[0.5] == pytest.approx(float(found.fits["linear"].predict(0.5)))


def test_noise_alone_is_doubted() -> None:
    found = find_threshold(anchors_of(X.tolist(), (NOISE * 4).tolist()), draws=400)
    assert not found.identified
    assert any("resamples" in one or "does not fall" in one for one in found.doubts)


@pytest.mark.parametrize(
    ("y", "doubt"),
    [
        (lambda x: 0.2 + 0.1 * x, "no anchor harms"),
        (lambda x: -0.2 - 0.1 * x, "no anchor helps"),
        (lambda x: 0.0 * x, "no sender makes a difference"),
        (lambda x: -0.3 + 0.6 * x, "the line does not fall"),
        (lambda x: np.where(x > 0.2, -0.02 - 0.3 * x, 0.01), "outside the accuracies measured"),
        (lambda x: 2 * (x - 0.2) * (x - 0.9), "two crossings predict"),
        (lambda x: np.where(np.arange(len(x)) % 5, 0.3, -0.3), "one sign for all agrees with 19"),
    ],
)
def test_each_doubt_has_its_reason(y, doubt: str) -> None:  # type: ignore[no-untyped-def]
    found = find_threshold(anchors_of(X.tolist(), y(X).tolist()), draws=200)
    assert any(doubt in one for one in found.doubts), found.doubts


def test_a_short_ladder_is_told_what_it_lacks() -> None:
    found = find_threshold(anchors_of([0.2, 0.2, 0.8], [0.2, 0.1, -0.1]), draws=200)
    assert not found.identified and "there are 3 anchors, fewer than 10" in found.doubts
    assert "hinge fit" in found.skipped and "linear" in found.fits and found.folds in (0, 3)
    one = find_threshold(anchors_of([0.2], [0.2]), draws=200)
    assert {"linear fit", "hinge fit"} <= set(one.skipped) and "no line can be fitted" in one.doubts
    assert one.scores.empty and one.folds == 0


def test_no_anchor_at_all_is_no_threshold() -> None:
    empty = anchors_of([0.2], [np.nan])
    found = find_threshold(empty, draws=200)
    assert not found.identified and found.anchors.empty and found.fits == {} and found.curves().empty


def test_pairs_of_one_receiver_are_held_out_together() -> None:
    twice = pd.concat([anchors_of(X.tolist(), (0.4 - 0.65 * X + NOISE).tolist())] * 2, ignore_index=True)
    scores = find_threshold(twice, folds=6, draws=100).scores
    assert (scores.groupby("anchor")["fold"].nunique() == 1).all() and scores["fold"].nunique() == 6


def test_a_ladder_gives_an_anchor_for_every_pair() -> None:
    made = step_set()
    steps = {"toy": made.steps}
    written = {
        name: write_messages(Listening(script, name), steps)
        for name, script in (("big", decide), ("mid", decide), ("mute", lambda _: ""))
    }
    records = read_messages(Listening(name="reader"), steps, written)
    scored = score_records(records, made.gold, made.steps, snap=True)
    anchors = ladder_anchors(scored, ["big", "mid", "mute"])
    assert anchors[["strong", "weak"]].values.tolist() == [["big", "mid"], ["big", "mute"], ["mid", "mute"]]
    assert anchors["gap"].tolist() == [0.0, 1.0, 1.0] and (anchors["receiver_only"] == 0).all()
    pd.testing.assert_frame_equal(
        anchors.iloc[[1]].reset_index(drop=True), sender_anchors(scored, strong="big", weak="mute")
    )
    for wrong in (["big"], ["big", "big"]):
        with pytest.raises(ValueError, match="each once"):
            ladder_anchors(scored, wrong)
