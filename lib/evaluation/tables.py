"""Tables for people.

A table shows numbers with a fixed number of digits, mean and deviation in one cell, a dash where nothing is known,
and every text exactly as it is: names, messages and replies come from models and data sets, so they are escaped and
never run as HTML or Markdown. Tables for machines are written by `save_table`.

Not covered: statistics; a table shows what it is given.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from great_tables import GT, loc, style

from lib.evaluation.looks import POLICY_NAMES
from lib.evaluation.saving import save_table

__all__ = ["compare_published", "html_table", "mean_sd", "main_cells", "save_table"]

DASH = "\u2013"


@dataclass(frozen=True)
class HtmlTable:
    """A finished table; notebooks show it as the last expression of a cell."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def mean_sd(mean: float | None, sd: float | None = None, digits: int = 3) -> str:
    """Return ``mean ± sd``, the mean alone where the deviation is unknown, a dash where the mean is.

    >>> mean_sd(0.679, 0.013), mean_sd(0.5, float("nan"), 1), mean_sd(None)
    ('0.679 ± 0.013', '0.5', '–')
    """
    if mean is None or pd.isna(mean):
        return DASH
    text = f"{mean:.{digits}f}"
    return text if sd is None or pd.isna(sd) else f"{text} ± {sd:.{digits}f}"


def main_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of the policy table (Table I form) from `lib.evaluation.summary.main_table`.

    Parameters
    ----------
    table : rows with the columns of `main_table`; ``workload`` and ``beta`` are shown if present

    Returns
    -------
    DataFrame of text
    """
    rows = []
    for row in table.to_dict("records"):
        cells: dict[str, str] = {}
        if "workload" in row:
            cells["Workload"] = str(row["workload"])
        cells["Policy"] = POLICY_NAMES.get(str(row["policy"]), str(row["policy"]))
        if "beta" in row:
            cells["Cap"] = mean_sd(row["beta"], digits=2)
        full = row["policy"] == "full"
        cells |= {
            "Task": mean_sd(row["task_utility_mean"], row["task_utility_sd"]),
            "Evidence": mean_sd(row["evidence_utility_mean"], row["evidence_utility_sd"]),
            "Coverage": mean_sd(100 * row["task_utility_coverage"], digits=0) + " %",
            "Bytes": mean_sd(row["bytes_mean"], row["bytes_sd"], 1),
            "Saving, mean of tasks (%)": DASH if full else mean_sd(100 * row["saving_of_tasks_mean"], digits=1),
            "Saving, ratio of means (%)": DASH if full else mean_sd(100 * row["saving_of_means_mean"], digits=1),
            "Latency (ms)": mean_sd(row.get("latency_ms_mean"), row.get("latency_ms_sd"), 1),
            "Utility per KiB": mean_sd(row["utility_per_kib"], row["utility_per_kib_sd"]),
        }
        rows.append(cells)
    return pd.DataFrame(rows)


def html_table(
    frame: pd.DataFrame,
    *,
    title: str = "",
    subtitle: str = "",
    note: str = "",
    groups: str | None = None,
    digits: int | Mapping[str, int] = 3,
    bold: Sequence[int] = (),
) -> HtmlTable:
    """Return a table for a notebook or page; all text is shown literally.

    Parameters
    ----------
    frame : rows to show; the index is not
    title, subtitle, note : plain text
    groups : column whose values become group headings
    digits : decimals of floating-point columns, one for all or by column (default 3 for the rest)
    bold : positions of rows to set in bold

    Returns
    -------
    HtmlTable
    """
    shown = pd.DataFrame(
        {str(column): _cells(frame[column], _digits(digits, str(column))) for column in frame.columns}
    ).reset_index(drop=True)
    # The id names the style sheet; a hash of the content keeps repeated runs identical.
    content = "\x1f".join([title, subtitle, note, shown.to_csv(index=False)])
    table = GT(
        shown, groupname_col=groups, id="t" + hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:12]
    )
    if title:
        table = table.tab_header(title=title, subtitle=subtitle or None)
    if note:
        table = table.tab_source_note(note)
    numeric = [str(c) for c in frame.columns if _is_number(frame[c]) and str(c) != groups]
    if numeric:
        table = table.cols_align("right", columns=numeric)
    if bold:
        table = table.tab_style(style=style.text(weight="bold"), locations=loc.body(rows=list(bold)))
    table = table.tab_options(
        table_font_size="14px",
        heading_align="left",
        column_labels_font_weight="bold",
        row_group_font_weight="bold",
        data_row_padding="5px",
        source_notes_font_size="12px",
    )
    # Notebooks typeset $...$ in HTML outputs; these classes keep both versions of the typesetter away from the cells.
    return HtmlTable(f'<div class="tex2jax_ignore mathjax_ignore">{table.as_raw_html()}</div>')


def compare_published(
    published: pd.DataFrame,
    ours: pd.DataFrame,
    keys: Sequence[str],
    values: Mapping[str, int],
    notes: Mapping[str, str] | str = "",
) -> pd.DataFrame:
    """Return "paper | this run | note": one row for each published number.

    Parameters
    ----------
    published, ours : rows identified by `keys`; a value is read from column ``<value>_mean`` with ``<value>_sd``, or
        from ``<value>``
    keys : columns that both have, e.g. ``["workload", "policy"]``
    values : value name -> digits
    notes : one note for all, or by value name; a row that this run lacks says so instead

    Returns
    -------
    DataFrame of text: the keys, ``quantity``, ``paper``, ``this run``, ``note``
    """
    known = {tuple(row[key] for key in keys): row for row in ours.to_dict("records")}
    if len(known) != len(ours):
        raise ValueError(f"this run has several rows for one of {list(keys)}")
    rows = []
    for paper in published.to_dict("records"):
        key = tuple(paper[name] for name in keys)
        mine = known.get(key)
        for value, digits in values.items():
            theirs = _pick(paper, value, digits)
            if theirs == DASH:
                continue
            note = notes if isinstance(notes, str) else notes.get(value, "")
            own = DASH if mine is None else _pick(mine, value, digits)
            rows.append(
                {
                    **dict(zip(keys, map(str, key), strict=True)),
                    "quantity": value.replace("_", " "),
                    "paper": theirs,
                    "this run": own,
                    "note": "not part of this run" if own == DASH else note,
                }
            )
    return pd.DataFrame(rows, columns=[*keys, "quantity", "paper", "this run", "note"])


def _pick(row: Mapping[object, object], value: str, digits: int) -> str:
    mean = row.get(f"{value}_mean", row.get(value))
    sd = row.get(f"{value}_sd")
    return mean_sd(_number(mean), _number(sd), digits)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not math.isnan(value) else None


def _digits(digits: int | Mapping[str, int], column: str) -> int:
    return digits if isinstance(digits, int) else digits.get(column, 3)


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _cells(column: pd.Series, digits: int) -> list[str]:
    """Return each cell as text: numbers with their digits, missing as a dash, the rest as it stands."""
    if pd.api.types.is_float_dtype(column):
        return [mean_sd(value, digits=digits) for value in column]
    return [
        DASH if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)) else str(value) for value in column
    ]
