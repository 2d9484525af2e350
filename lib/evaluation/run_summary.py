"""Compare many runs in one table: pick them, see in what they differ, and average over seeds.

Context: the index of runs, or the table of a sweep, holds one row a run: parameters in columns `p.<name>`, headline numbers in
`h.<name>`, and status, notebook, seconds.

Intuition: of all parameters only those count that differ among the runs picked. Some of these are compared (axes), some are
seeds, over which a mean and its interval are taken; what is left is averaged over in silence unless it is named, so it is named.

How to read the result: an interval is Student's t over the runs of a cell, 95 %. It says how far the mean would move with other
seeds, and nothing about tasks that all seeds share. One run has no interval.

Not covered: paired tests between arms inside a run (`lib.evaluation.inference`), where the table comes from, drawing
(`lib.evaluation.run_figures`).
"""

from __future__ import annotations

import difflib
import json
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from lib.evaluation.frames import need_columns

PARAMETER, HEADLINE = "p.", "h."
_CONDITION = re.compile(r"\s*(?P<name>[^\s=!<>~]+)\s*(?P<sign><=|>=|!=|=|<|>|~)\s*(?P<value>.*?)\s*")
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def pick_runs(frame: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """Return the rows that fulfil every condition.

    Parameters
    ----------
    frame : one row a run
    conditions : texts such as ``status = ok``, ``p.receiver != scripted``, ``seconds < 60`` or ``notebook ~ 12_`` (contains);
        the name stands alone on the left. A missing value fulfils none but ``!=``.

    Raises
    ------
    ValueError
        For a text that is no condition, a column that is not there (with what may have been meant), or an order of texts.

    >>> frame = pd.DataFrame({"p.cap": [0.25, 0.5], "status": ["ok", "ok"]})
    >>> pick_runs(frame, ["p.cap > 0.3", "status = ok"])["p.cap"].tolist()
    [0.5]
    """
    kept = pd.Series(True, index=frame.index)
    for text in conditions:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise ValueError(f"condition '{text}': write it as `column = value`, with =, !=, <, <=, >, >= or ~")
        name, sign, value = match["name"], match["sign"], match["value"]
        _need(frame, name, f"condition '{text}'")
        kept &= _holds(frame[name], sign, value, text)
    return frame[kept].reset_index(drop=True)


def varied(frame: pd.DataFrame) -> list[str]:
    """Return the columns of parameters that differ among the rows, a missing value being one value more."""
    names = [str(name) for name in frame.columns if str(name).startswith(PARAMETER)]
    return [name for name in names if frame[name].nunique(dropna=False) > 1]


def differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Return in what the runs differ: ``parameter``, ``values`` (how many), and ``runs``, each value with its number of runs."""
    rows = []
    for name in varied(frame):
        counts = frame[name].map(value_text).value_counts(sort=False)
        order = in_value_order(counts.index)
        told = ", ".join(f"{text} ({counts[text]})" for text in order[:12]) + (", ..." if len(order) > 12 else "")
        rows.append((name.removeprefix(PARAMETER), len(counts), told))
    return pd.DataFrame(rows, columns=["parameter", "values", "runs"])


def of_names(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return those of the parameter columns that belong to parameters of these names, members of mappings included.

    >>> of_names(["p.worlds.seed", "p.seeds", "p.worldsize"], ["worlds"])
    ['p.worlds.seed']
    """
    heads = [f"{PARAMETER}{name.removeprefix(PARAMETER)}" for name in names]
    return [column for column in columns if any(column == head or column.startswith(f"{head}.") for head in heads)]


def distinct_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of every notebook and parameters.

    The same question asked of an earlier version of the notebook, library or data is no further seed: it would count twice.
    """
    names = [str(name) for name in frame.columns if str(name).startswith(PARAMETER)]
    keys = frame.reindex(columns=["notebook", *names]).map(value_text)
    return frame[~keys.duplicated(keep="last")].reset_index(drop=True)


def busiest_notebook(frame: pd.DataFrame) -> str:
    """Return the notebook with the most rows, the first by name among equals; empty where there is none."""
    if "notebook" not in frame or frame.empty:
        return ""
    counts = frame["notebook"].value_counts()
    return str(min(counts.index, key=lambda name: (-counts[name], name)))


@dataclass(frozen=True)
class View:
    """What is compared: columns, empty where the runs offer none.

    Attributes
    ----------
    value : str
        Headline number.
    x, colour : str
        Parameters it is drawn against.
    seeds, left : tuple of str
        Parameters that differ and are averaged over: meant to be, and because nothing else was said.
    """

    value: str = ""
    x: str = ""
    colour: str = ""
    seeds: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def by(self) -> list[str]:
        """The parameters that name a cell."""
        return [name for name in (self.x, self.colour) if name]


def view_of(
    frame: pd.DataFrame,
    seeds: Sequence[str],
    *,
    value: str = "",
    x: str = "",
    colour: str = "",
    first: Sequence[str] = (),
) -> View:
    """Return what to compare: what was asked for, and where nothing was, what differs among the rows.

    Parameters
    ----------
    frame : one row a run
    seeds : names of parameters to average over
    value, x, colour : columns; empty: the headline number with the most distinct values, and the first parameters that differ
    first : names of parameters to prefer

    Raises
    ------
    ValueError
        For a column that is not there, with what may have been meant.
    """
    for field, name in (("value", value), ("x", x), ("colour", colour)):
        if name and len(frame):
            _need(frame, name, field)
    differ = varied(frame)
    over = of_names(differ, seeds)
    preferred = of_names(differ, first)
    free = [name for name in [*preferred, *(n for n in differ if n not in preferred)] if name not in (*over, x, colour)]
    x = x or (free.pop(0) if free else "")
    colour = colour or (free.pop(0) if free else "")
    value = value or next(iter(number_columns(frame)), "")
    kept = tuple(name for name in over if name not in (x, colour))
    return View(value, x, colour, kept, tuple(name for name in free if name not in (x, colour)))


def over_runs(frame: pd.DataFrame, by: Sequence[str], value: str, *, level: float = 0.95) -> pd.DataFrame:
    """Return mean and interval of a headline number over the runs of each cell.

    Parameters
    ----------
    frame : one row a run
    by : columns that name a cell; values are told as text, see `value_text`
    value : column of the number

    Returns
    -------
    DataFrame
        `by`, ``runs`` (all rows of the cell), ``counted`` (those that have the number), ``mean``, ``low``, ``high`` (missing
        with fewer than two), in the order of the values.
    """
    need_columns(frame, [*by, value])
    rows = pd.DataFrame({name: frame[name].map(value_text) for name in by}, index=frame.index)
    rows["value"] = numbers_of(frame[value])
    found = []
    for key, group in rows.groupby(list(by), sort=False) if by else [((), rows)]:
        known = group["value"].dropna().to_numpy(float)
        mean = float(known.mean()) if len(known) else math.nan
        reach = math.nan
        if len(known) > 1:
            reach = float(stats.t.ppf((1 + level) / 2, len(known) - 1) * known.std(ddof=1) / math.sqrt(len(known)))
        found.append((*key, len(group), len(known), mean, mean - reach, mean + reach))
    table = pd.DataFrame(found, columns=[*by, "runs", "counted", "mean", "low", "high"])
    places = {name: {text: place for place, text in enumerate(in_value_order(table[name]))} for name in by}
    if not by:
        return table
    return table.sort_values(list(by), key=lambda texts: texts.map(places[str(texts.name)])).reset_index(drop=True)


def numbers_of(column: pd.Series) -> pd.Series:
    """Return a column as floating-point numbers; what is none is missing, and true counts as 1."""
    return pd.to_numeric(column, errors="coerce").astype("Float64").astype(float)


def number_columns(frame: pd.DataFrame) -> list[str]:
    """Return the headline columns that hold numbers, those with the most distinct ones first."""
    names = [str(name) for name in frame.columns if str(name).startswith(HEADLINE)]
    distinct = {name: int(numbers_of(frame.loc[:, name]).nunique()) for name in names}  # missing is no number
    return sorted((name for name in names if distinct[name]), key=lambda name: -distinct[name])


def value_text(value: Any) -> str:
    """Return a parameter's value as text: numbers without idle zeros, a list of one as its member, missing as a dash.

    >>> [value_text(value) for value in (0.50, "[0.25]", "scripted", True, None)]
    ['0.5', '0.25', 'scripted', 'True', '-']
    """
    if isinstance(value, str):
        inner = _only_member(value)
        return value if inner is None else value_text(inner)
    if value is None or pd.isna(value):
        return "-"
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    return f"{value:g}" if isinstance(value, int | float | np.number) else str(value)


def in_value_order(texts: Sequence[str] | pd.Series | pd.Index) -> list[str]:
    """Return the distinct texts, numbers by size and before all others, which keep their order.

    >>> in_value_order(["b", "10", "9.5", "a", "10"])
    ['9.5', '10', 'b', 'a']
    """
    distinct = list(dict.fromkeys(texts))
    numbers = [text for text in distinct if as_number(text) is not None]
    return [*sorted(numbers, key=float), *(text for text in distinct if text not in numbers)]


def as_number(text: str) -> float | None:
    """Return a text as a finite number, or None where it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _need(frame: pd.DataFrame, name: str, where: str) -> None:
    """Raise with a hint when no run has this column."""
    known = [str(column) for column in frame.columns]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else f"; there are: {', '.join(known)}"
        raise ValueError(f"{where}: no run has the column '{name}'{hint}")


def _only_member(text: str) -> Any:
    if not text.startswith("["):
        return None
    try:
        members = json.loads(text)
    except ValueError:
        return None
    return members[0] if isinstance(members, list) and len(members) == 1 else None


def _holds(column: pd.Series, sign: str, value: str, text: str) -> pd.Series:
    known = column.notna()
    texts = column.map(value_text)
    wanted = value_text(value.strip("\"'"))
    number = as_number(wanted)
    if sign == "~":
        return known & texts.str.contains(wanted, regex=False)
    if sign in ("=", "!="):
        same = texts == wanted
        if number is not None:
            same |= numbers_of(texts) == number
        return ~(known & same) if sign == "!=" else known & same
    if number is None:
        raise ValueError(f"condition '{text}': {sign} compares numbers, and '{wanted}' is none")
    return _COMPARE[sign](numbers_of(texts), number).fillna(False).astype(bool)
