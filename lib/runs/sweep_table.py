"""The table of a sweep, `outputs/sweeps/<name>/runs.parquet`, and how a notebook reads it or the index of runs.

One row a run, also one that failed or was not made yet: parameters as `p.<name>`, headline numbers as `h.<name>`, both missing
(null) where there are none. `sweep.json` beside it says which parameters are compared and which are seeds.

Not covered: choosing among the runs and drawing them (`lib.evaluation.run_summary`, `lib.evaluation.run_figures`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lib.runs.context import OUTPUTS, RESULT, write_json
from lib.runs.index import INDEX, read_index, runs_frame
from lib.runs.layout import Layout, checkout
from lib.runs.notebook import Plan
from lib.runs.params import ParameterError, did_you_mean
from lib.runs.sweep import Sweep
from lib.runs.sweep_worker import Outcome

if TYPE_CHECKING:
    import pandas as pd

TABLE, ABOUT = "runs.parquet", "sweep.json"
MISSING = "missing"  # status of a run that was not made yet


class Runs(msgspec.Struct, frozen=True):
    """Runs to compare: their table, where it comes from, and what a sweep says of its parameters (empty otherwise)."""

    frame: Any
    origin: str
    grid: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()


def write_table(outputs: Path, sweep: Sweep, outcomes: Mapping[str, Outcome]) -> pd.DataFrame:
    """Write the sweep's table, whole or not at all, and return it."""
    rows = [_row(outputs, sweep, plan, outcomes.get(plan.run_id)) for plan in sweep.plans]
    frame = runs_frame(rows)
    folder = outputs / "sweeps" / sweep.name
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{TABLE}.{os.getpid()}"
    frame.to_parquet(partial, index=False)
    about = {"notebook": sweep.plans[0].notebook.stem, "runs": len(frame), "grid": sweep.grid, "seeds": sweep.seeds}
    write_json(folder / ABOUT, about)
    os.replace(partial, folder / TABLE)
    return frame


def read_runs(source: str = "", *, layout: Layout | None = None, without: str = "") -> Runs:
    """Return the runs that `source` names, the last record of each.

    Parameters
    ----------
    source : str
        Empty: the index of the outputs. Else the name of a sweep made there; or a folder with an index or a sweep's table, or such
        a file itself, counted from the checkout.
    layout : Layout, optional
        Default: this checkout, with the outputs that the run of a notebook belongs to.
    without : str
        Notebook whose own runs are left out.

    Raises
    ------
    ParameterError
        When `source` names none of these.
    """
    import pandas as pd

    layout = layout or checkout(os.environ.get(OUTPUTS))
    sweeps = layout.outputs / "sweeps"
    place = layout.outputs / INDEX
    if source:
        place = sweeps / source if (sweeps / source / TABLE).is_file() else layout.root / source
    if place.is_dir():
        place = place / (TABLE if (place / TABLE).is_file() else INDEX)
    if source and not place.is_file():
        known = sorted(path.parent.name for path in sweeps.glob(f"*/{TABLE}"))
        raise ParameterError(f"source: {source} is no sweep, folder or file of runs{did_you_mean(source, known)}")
    grid: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    if place.suffix == ".parquet":
        frame, about = pd.read_parquet(place), place.with_name(ABOUT)
        if about.is_file():
            told = msgspec.json.decode(about.read_bytes())
            grid, seeds = tuple(told["grid"]), tuple(told["seeds"])
    else:
        last = {entry["run_id"]: entry for entry in read_index(place.parent)[0]}
        frame = runs_frame(last.values())
    if without and "notebook" in frame:
        frame = frame[frame["notebook"] != without].reset_index(drop=True)
    near = next((folder for folder in (layout.root, layout.outputs.parent) if place.is_relative_to(folder)), None)
    return Runs(frame, (place.relative_to(near) if near is not None else place).as_posix(), grid, seeds)


def _row(outputs: Path, sweep: Sweep, plan: Plan, outcome: Outcome | None) -> dict[str, Any]:
    """Return a run's record from its folder, or from how its last try ended where it has none."""
    run_id = plan.run_id
    row: dict[str, Any] = {"run_id": run_id, "notebook": plan.notebook.stem, "profile": plan.profile}
    row |= {"label": sweep.labels[run_id], "status": MISSING, "seconds": None, "started": None, "error": None}
    row |= {"folder": None, "parameters": plan.parameters, "headline": {}}
    for folder in (outputs / run_id, outputs / f"{run_id}-failed"):
        try:
            result = msgspec.json.decode((folder / RESULT).read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            continue
        error = result["error"]
        told = f"cell {error['cell']}: {error['name']}: {error['value'][:300]}" if error else None
        row |= {name: result[name] for name in ("status", "seconds", "started", "headline")}
        return row | {"error": told, "folder": folder.name}
    if outcome is not None and outcome.error is not None:
        row |= {"status": outcome.status, "error": f"{outcome.error['name']}: {outcome.error['value'][:300]}"}
    return row
