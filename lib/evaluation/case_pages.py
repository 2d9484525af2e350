"""One case as a page: the texts that everybody was shown, and below them what each reader answered, side by side.

Texts come from models and data sets. All of them are escaped, and shown with their line breaks; a long one scrolls in its box.

Not covered: which case (the caller's); the tables of numbers (`lib.evaluation.tables`).
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from lib.evaluation.frames import need_columns
from lib.evaluation.tables import DASH, HtmlTable

_BOX = "white-space:pre-wrap;word-break:break-word;margin:0;max-height:260px;overflow-y:auto;font-size:12px;text-align:left"
_HEAD = "text-align:left;vertical-align:top;font-size:13px;padding:6px 10px;border-top:1px solid #ddd"
_PLAIN = "border-collapse:collapse;width:100%;table-layout:fixed"


def case_page(
    title: str, texts: Mapping[str, str], readers: pd.DataFrame, *, name: str = "receiver", boxed: tuple[str, ...] = ()
) -> HtmlTable:
    """Return a page that a notebook shows as the last expression of a cell.

    Parameters
    ----------
    title : plain text
    texts : heading -> text, shown one below the other
    readers : one row a reader; every column but `name` becomes a line of the comparison
    name : column whose values head the columns of the comparison
    boxed : columns that hold texts rather than words; shown with their line breaks

    Raises
    ------
    ValueError
        If a column is missing.
    """
    need_columns(readers, [name, *boxed])
    rows = [_row(head, [_text(text)]) for head, text in texts.items()]
    lines = [str(column) for column in readers.columns if column != name]
    heads = "".join(f'<th style="{_HEAD}">{escape(str(one))}</th>' for one in readers[name])
    below = [
        _row(line.capitalize(), [_text(cell) if line in boxed else _word(cell) for cell in readers[line]])
        for line in lines
    ]
    parts = [
        f'<p style="font-weight:bold;text-align:left">{escape(title)}</p>',
        f'<table style="{_PLAIN}"><tbody>{"".join(rows)}</tbody></table>',
        f'<table style="{_PLAIN}"><thead><tr><th style="{_HEAD};width:130px"></th>{heads}</tr></thead>',
        f"<tbody>{''.join(below)}</tbody></table>",
    ]
    # Notebooks typeset $...$ in HTML outputs; these classes keep both versions of the typesetter away from the texts.
    return HtmlTable(f'<div class="tex2jax_ignore mathjax_ignore">{"".join(parts)}</div>')


def _row(head: str, cells: list[str]) -> str:
    shown = "".join(f'<td style="{_HEAD}">{cell}</td>' for cell in cells)
    return f'<tr><th style="{_HEAD};width:130px">{escape(head)}</th>{shown}</tr>'


def _word(cell: Any) -> str:
    return DASH if pd.isna(cell) else escape(str(cell))


def _text(cell: Any) -> str:
    return DASH if pd.isna(cell) else f'<pre style="{_BOX}">{escape(str(cell)) or "(empty)"}</pre>'
