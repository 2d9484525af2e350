"""Figures of one log: every agent and ranking is drawn, labels are plain text."""

from __future__ import annotations

import pandas as pd
import pytest

from lib.evaluation.log_figures import agent_bars, cap_curves


def agents() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "sender": ["plan$ner", "<b>critic</b>"],
            "packets": [3, 2],
            "helpful": [2, 0],
            "harmful": [0, 1],
            "gain": [1.5, 0.0],
            "loss": [0.0, -0.5],
            "share_of_bytes": [0.6, 0.4],
        }
    )


def test_every_agent_has_its_bars_and_its_name() -> None:
    worth, cost = agent_bars(agents()).axes[:2]
    assert [label.get_text() for label in worth.get_yticklabels()] == [r"plan\$ner", "<b>critic</b>"]
    assert [bar.get_width() for bar in worth.patches] == [1.5, 0.0, 0.0, -0.5]
    assert [bar.get_width() for bar in cost.patches] == [0.6, 0.4]
    assert [text.get_text() for text in worth.texts] == ["2 of 3 help", "0 of 2 help, 1 harm"]


def test_one_agent_worth_nothing_can_be_drawn() -> None:
    worth = agent_bars(agents().head(1).assign(gain=0.0, helpful=0)).axes[0]
    assert worth.get_xlim()[1] > 0


def test_every_ranking_is_a_line_between_empty_and_full() -> None:
    table = pd.DataFrame(
        {
            "policy": ["full", "empty", "oracle", "oracle", "latest first", "latest first"],
            "bytes": [100, 0, 20, 40, 30, 60],
            "utility": [1.0, 0.0, 1.0, 1.0, 0.0, None],
        }
    )
    figure = cap_curves(table, ylabel="Same answer")
    (axis,) = figure.axes
    assert axis.get_ylabel() == "Same answer"
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {
        "Full communication",
        "Empty",
        "Oracle RCE",
        "latest first",
    }
    with pytest.raises(ValueError, match="utility"):
        cap_curves(table.drop(columns="utility"))
