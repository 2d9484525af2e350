"""The paper's numbers beside the step families."""

from __future__ import annotations

import doctest

import pandas as pd
import pytest

from lib.coordination import published as module
from lib.coordination.published import BENCHMARKS, FOLDER, benchmark_of, difference_note, published
from lib.tasks.steps import FAMILIES

NAMES = [file.stem for file in FOLDER.glob("*.csv")]


def test_every_family_has_a_counterpart() -> None:
    assert set(BENCHMARKS) == set(FAMILIES)
    with pytest.raises(ValueError, match="family 'x' has no counterpart"):
        benchmark_of("x")


def test_published_numbers_stand_beside_their_family() -> None:
    arms = published("arms", ["contextbench", "toolsandbox"]).query("receiver == 'Qwen3.5-9B'")
    found = arms.set_index(["family", "arm"])["hit_joint"]
    assert found["contextbench"].to_dict() == {"RO": 0.633, "SF": 0.294, "MA": 0.775}
    assert found["toolsandbox"].to_dict() == {"RO": 0.889, "MA": 0.653}
    anchors = published("anchors", FAMILIES).drop_duplicates("benchmark").set_index("benchmark")["gap"]
    assert (anchors > 0).sum() == 3 == (anchors < 0).sum()


def test_numbers_agree_with_each_other() -> None:
    selector = pd.read_csv(FOLDER / "selector.csv")
    text = pd.read_csv(FOLDER / "text.csv")

    def row(policy: str, table: str, benchmark: str) -> pd.Series:
        own = (selector["policy"] == policy) & (selector["table"] == table) & (selector["benchmark"] == benchmark)
        return selector[own].squeeze()

    gate, send = (row(policy, "Figure 6", "ToolSandbox")["tokens"] for policy in ("gate", "always-send"))
    saving = text[(text["quantity"] == "token_saving") & (text["note"] == "36 online steps")]["value"].item()
    assert round(100 * (1 - gate / send), 1) == saving
    chosen, alone = row("selector", "Figure 6", "ContextBench"), row("drop-gain", "20", "ContextBench")
    gained = text[text["quantity"] == "accuracy_difference"]["value"].item()
    assert round(100 * (chosen["accuracy"] - alone["accuracy"]), 2) == gained


@pytest.mark.parametrize("name", NAMES)
def test_every_number_says_where_it_was_read(name: str) -> None:
    table = pd.read_csv(FOLDER / f"{name}.csv")
    assert table["source"].str.startswith("Receiver-relative paper, ").all()
    assert set(table["benchmark"]) <= {*BENCHMARKS.values(), "all"}


def test_rows_on_all_benchmarks_come_for_each_family() -> None:
    text = published("text", ["bfcl", "tau_bench"])
    assert text[text["quantity"] == "crossing"]["family"].tolist() == ["bfcl", "bfcl", "tau_bench", "tau_bench"]
    assert published("text", []).empty
    with pytest.raises(ValueError, match="no such published table; there are anchors, arms, selector, text"):
        published("table9", ["bfcl"])


def test_notes_say_what_differs() -> None:
    assert difference_note("bfcl", "m", "9 steps") == "the same data set, BFCL; steps as defined here; model m; 9 steps"
    assert doctest.testmod(module).failed == 0
