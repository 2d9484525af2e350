"""Write tables and figures whole or not at all, so that a reader never meets half a file and equal results give equal bytes.

Tables go to parquet for machines and JSON beside it; missing values are null in both. Figures go to PNG and SVG
without dates, versions or random ids.

Not covered: where results belong (the runner's business) and HTML (`lib.evaluation.tables`).
"""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
DPI = 200


def save_table(frame: pd.DataFrame, folder: Path | str, name: str) -> dict[str, Path]:
    """Write `frame` as ``<name>.parquet`` and ``<name>.json`` and return both paths.

    Parameters
    ----------
    frame : columns with text names; the index is not written. Cells may be numbers, text, None, lists, dicts or
        records; what parquet has no column
        type for is written as JSON text
    folder : created when missing
    name : file name without ending: letters, digits, ``_``, ``-``, ``.``
    """
    folder = _checked(folder, name)
    plain = pd.DataFrame({column: _column(frame[column]) for column in frame.columns})
    buffer = io.BytesIO()
    plain.to_parquet(buffer, index=False)
    records = [{key: _plain(value) for key, value in row.items()} for row in frame.to_dict("records")]
    text = json.dumps(records, ensure_ascii=False, indent=1, allow_nan=False)
    paths = {"parquet": folder / f"{name}.parquet", "json": folder / f"{name}.json"}
    write_whole(paths["parquet"], buffer.getvalue())
    write_whole(paths["json"], (text + "\n").encode("utf-8", errors="replace"))
    return paths


def save_figure(figure: Figure, folder: Path | str, name: str) -> dict[str, Path]:
    """Write `figure` as ``<name>.png`` (200 dpi) and ``<name>.svg`` and return both paths; repeated runs give the same bytes."""
    folder = _checked(folder, name)
    paths = {}
    # A fixed salt names the SVG's inner ids; the metadata would otherwise hold the date and the version of the plotting library.
    with mpl.rc_context({"svg.hashsalt": name}):
        for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, dpi=DPI, metadata=metadata, bbox_inches="tight")
            paths[ending] = folder / f"{name}.{ending}"
            write_whole(paths[ending], buffer.getvalue())
    return paths


def write_whole(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step; an equal file is left untouched."""
    if path.is_file() and path.read_bytes() == data:
        return
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        Path(scratch).chmod(0o644)  # mkstemp makes it private
        os.replace(scratch, path)
    finally:
        Path(scratch).unlink(missing_ok=True)


def _checked(folder: Path | str, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise ValueError(f"name {name!r}: use letters, digits, '_', '-' and '.' only, without a folder")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _column(values: pd.Series) -> pd.Series:
    """Return a column that parquet can hold: text with only valid characters, and JSON for nested cells."""
    if values.dtype != object and not isinstance(values.dtype, pd.StringDtype):
        return values
    cells = [_plain(value) for value in values]
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {bool} or kinds <= {int, float}:
        return pd.Series(cells, index=values.index).convert_dtypes()
    texts = [cell if cell is None or isinstance(cell, str) else json.dumps(cell, ensure_ascii=False) for cell in cells]
    return pd.Series(texts, index=values.index, dtype="string")


def _plain(value: Any) -> Any:
    """Return `value` as JSON data; NaN, infinity and missing become null, records become dicts."""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode("utf-8")
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, np.ndarray)):
        return [_plain(item) for item in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)]
    if hasattr(value, "__struct_fields__"):
        return {key: _plain(getattr(value, key)) for key in value.__struct_fields__}
    if value is None or pd.isna(value):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, (bool, int, float)) else str(value)
