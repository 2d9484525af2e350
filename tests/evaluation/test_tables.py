"""Tables: literal text, digits and dashes, comparison with published numbers."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.evaluation.summary import main_table
from lib.evaluation.tables import compare_published, html_table, main_cells, mean_sd
from tests.evaluation.test_summary import frame, published_table1


class Cells(HTMLParser):
    """Collect the text of body cells and every tag seen."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self._open = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag == "td":
            self.cells.append("")
            self._open = True

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._open:
            self.cells[-1] += data


HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(1)"> **b** [x](javascript:alert(1)) $1 &amp; $2'


def test_case_46_text_of_any_place_is_shown_literally() -> None:
    """Case 46: markup in cells, column names, groups, title and note is text, neither HTML nor Markdown nor mathematics."""
    table = pd.DataFrame({"group": [HOSTILE], HOSTILE: [HOSTILE], "n": [1.5]})
    html = html_table(table, title=HOSTILE, subtitle=HOSTILE, note=HOSTILE, groups="group").html
    seen = Cells(html)
    assert not seen.tags & {"script", "img", "a", "b", "strong", "em"}
    assert seen.cells.count(HOSTILE) == 4  # title, subtitle, cell, note
    assert "<script" not in html
    assert 'class="tex2jax_ignore mathjax_ignore"' in html


@settings(deadline=None, max_examples=30)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30))
def test_any_cell_text_survives(text: str) -> None:
    cells = Cells(html_table(pd.DataFrame({"a": [text]})).html).cells
    assert [" ".join(cell.split()) for cell in cells] == [" ".join(text.split())]


def test_digits_dashes_and_alignment() -> None:
    table = pd.DataFrame(
        {
            "name": ["a", None],
            "x": [0.12345, np.nan],
            "k": [3, 4],
            "y": [1.0, 2.0],
            "t": pd.array([1, None], dtype="Int64"),
        }
    )
    html = html_table(table, digits={"x": 2, "y": 0}, bold=[1]).html
    assert Cells(html).cells == ["a", "0.12", "3", "1", "1", "–", "–", "4", "2", "–"]
    assert len(re.findall(r"gt_row gt_right", html)) == 8
    assert "font-weight: bold" in html[html.index("<tbody") :]


def test_repeated_tables_are_equal() -> None:
    one, two = (html_table(pd.DataFrame({"a": [1.0]}), title="T").html for _ in range(2))
    assert one == two


def test_table_is_shown_by_notebooks() -> None:
    table = html_table(pd.DataFrame({"a": [1.0]}))
    assert table._repr_html_() == table.html


@pytest.mark.parametrize(
    ("mean", "sd", "digits", "text"),
    [
        (0.679, 0.013, 3, "0.679 ± 0.013"),
        (0.5, None, 1, "0.5"),
        (0.5, np.nan, 1, "0.5"),
        (None, 1.0, 1, "–"),
        (np.nan, None, 1, "–"),
    ],
)
def test_mean_sd(mean: float | None, sd: float | None, digits: int, text: str) -> None:
    assert mean_sd(mean, sd, digits) == text


def test_main_cells_show_both_savings_coverage_and_a_dash_for_full() -> None:
    cells = main_cells(main_table(frame()).assign(beta=[1.0, 0.5])).set_index("Policy")
    assert cells.loc["Full communication", "Saving, mean of tasks (%)"] == "–"
    causal = cells.loc["BANDMAS causal"]
    assert causal["Saving, mean of tasks (%)"] == "60.0"
    assert causal["Cap"] == "0.50"
    assert causal["Coverage"] == "50 %"
    assert causal["Task"] == "0.625 ± 0.177"
    assert causal["Workload"] == "worlds"


def test_main_cells_without_latency() -> None:
    table = main_table(frame(), measures=["bytes"])
    assert main_cells(table)["Latency (ms)"].tolist() == ["–", "–"]


def test_comparison_shows_every_published_number_and_what_is_missing() -> None:
    published = published_table1().query("benchmark == 'SciFact'").rename(columns={"benchmark": "workload"})
    ours = main_table(frame()).assign(workload="SciFact")
    table = compare_published(
        published, ours, ["workload", "policy"], {"task_utility": 3, "bytes": 1}, {"task_utility": "another model"}
    )
    assert table.columns.tolist() == ["workload", "policy", "quantity", "paper", "this run", "note"]
    assert len(table) == 12
    rows = table.set_index(["policy", "quantity"])
    assert rows.loc[("causal", "task utility")].tolist() == [
        "SciFact",
        "0.679 ± 0.013",
        "0.625 ± 0.177",
        "another model",
    ]
    assert rows.loc[("causal", "bytes"), "note"] == ""
    assert rows.loc[("agentprune", "bytes"), ["this run", "note"]].tolist() == ["–", "not part of this run"]


def test_comparison_skips_what_the_paper_does_not_give() -> None:
    published = published_table1().rename(columns={"benchmark": "workload"})
    table = compare_published(published, main_table(frame()), ["workload", "policy"], {"saving_percent": 1})
    assert len(table) == 15


def test_comparison_refuses_doubled_rows() -> None:
    ours = main_table(frame())
    with pytest.raises(ValueError, match="several rows"):
        compare_published(ours, pd.concat([ours, ours]), ["policy"], {"bytes": 1})


def test_published_folder_is_part_of_the_checkout() -> None:
    assert (Path(__file__).parents[2] / "data" / "published" / "bandmas_table1.csv").is_file()
