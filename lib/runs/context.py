"""What a notebook asks of its run: a folder, the store, and a place for tables, figures and headline numbers.

    from lib.runs import start_run
    run = start_run()
    receiver = run.stored(receiver)           # answers from the store what the store has
    run.table(frame, "policies")              # tables/policies.parquet and .json
    run.figure(figure, "utility_by_cap")      # figures/utility_by_cap.png and .svg
    run.record(tasks=30, gain=0.12)           # headline numbers for the index and the report

The same cells work in a batch run, where the runner says through the environment where everything goes, and in JupyterLab,
where it goes to `outputs/interactive/<notebook>/`.

Not covered: the run's status and its entry in the index, which are the runner's.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib.runs.frozen import FrozenCorpus, FrozenError, FrozenReceiver
from lib.runs.journal import JOURNAL, Journaled
from lib.runs.store import Store
from lib.runs.stored import StoredReceiver

if TYPE_CHECKING:
    import pandas as pd

    from lib.models.receiver import Receiver

FOLDER, PROFILE, OUTPUTS = "LAB_RUN_FOLDER", "LAB_RUN_PROFILE", "LAB_OUTPUTS"
STORE, NO_CACHE, FROZEN_FOLDER = "LAB_STORE", "LAB_NO_CACHE", "LAB_FROZEN"
CONTROL = "noise-control.sqlite"  # the store of second answers, beside the first
LIVE, FROZEN = "live", "frozen"
RESULT = "result.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


class Run:
    """One run of a notebook; see the module header. Made by `start_run`.

    Attributes
    ----------
    folder : Path
        Where this run's files go. In a batch run it is moved once the run has ended: keep relative paths.
    profile : str
        "smoke", "laptop", "paper", or "interactive".
    """

    def __init__(self, folder: Path, profile: str, store_path: Path, no_cache: bool) -> None:
        self.folder = folder
        self.profile = profile
        self.no_cache = no_cache
        self._store_path = store_path

    @cached_property
    def store(self) -> Store:
        """The store of model replies that all runs share."""
        return self._open_store(self._store_path)

    def receiver(
        self, name: str, *, corpus: str = LIVE, dtype: str = "auto", device: str = "auto", revision: str | None = None
    ) -> Receiver:
        """Return the receiver called `name`: a live one, or with `corpus="frozen"` the replies of it that ship with us.

        Parameters
        ----------
        name, dtype, device, revision
            As in `lib.models.open_receiver`; they are also those of the live receiver behind frozen replies.
        corpus : str
            ``live`` or ``frozen``, see `lib.runs.frozen`.

        Raises
        ------
        FrozenError
            If no replies of this receiver are frozen.
        """

        def opened() -> Receiver:
            return self._open_receiver(name, dtype=dtype, device=device, revision=revision)

        if corpus not in (LIVE, FROZEN):
            raise FrozenError(f"corpus: {corpus!r}; say live or frozen")
        if corpus == FROZEN:
            return FrozenReceiver(FrozenCorpus(frozen_folder() / name), opened)
        journal = os.environ.get(JOURNAL)
        return Journaled(opened(), journal) if journal else opened()

    def stored(
        self, receiver: Receiver, *, chunk: int = 64, progress: str | bool | None = None, no_cache: bool = False
    ) -> StoredReceiver | FrozenReceiver:
        """Return `receiver` behind the store; `no_cache` (or `--no-cache` of the runner) computes everything.

        Frozen replies stay where they are: only what they lack is answered through the store.
        """
        options: dict[str, Any] = {"chunk": chunk, "progress": progress, "no_cache": no_cache or self.no_cache}
        if isinstance(receiver, FrozenReceiver):
            return receiver.stored(self.store, **options)
        return StoredReceiver(receiver, self.store, **options)

    def again(self, receiver: Receiver, *, progress: str | bool | None = None) -> StoredReceiver | FrozenReceiver:
        """Return who answers the same questions a second time: the noise control, behind a store of its own.

        Behind the run's store a second answer would be the first one, read again.
        """
        options: dict[str, Any] = {"progress": progress, "no_cache": self.no_cache}
        apart = self._open_store(self._store_path.with_name(CONTROL))
        if isinstance(receiver, FrozenReceiver):
            return receiver.again().stored(apart, **options)
        return StoredReceiver(receiver, apart, **options)

    def record(self, **numbers: Any) -> None:
        """Add headline numbers: numbers, text, booleans or None. NaN becomes null; a later value replaces an earlier one.

        Raises
        ------
        TypeError
            Naming the number that is something else.
        """
        plain = {}
        for name, value in numbers.items():
            plain[name] = _scalar(value)
            if isinstance(plain[name], list | dict):
                raise TypeError(
                    f"record({name}=...): {type(value).__name__} is no single value; write it with run.table"
                )
        path = self.folder / RESULT
        result = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        result["headline"] = {**result.get("headline", {}), **plain}
        write_json(path, result)

    def table(self, frame: pd.DataFrame, name: str) -> pd.DataFrame:
        """Write `tables/<name>.parquet` and `.json` (records; missing is null) and return the table that was written.

        A named or non-default index becomes columns; column levels are joined by "_".
        """
        import pandas as pd

        table = frame.copy()
        if not isinstance(table.index, pd.RangeIndex) or table.index.name is not None:
            table = table.reset_index(drop=all(level is None for level in table.index.names))
        table.columns = pd.Index(
            ["_".join(str(part) for part in c if part != "") if isinstance(c, tuple) else str(c) for c in table.columns]
        )
        target = self._target("tables", name)
        rows = [{column: _scalar(value) for column, value in row.items()} for row in table.to_dict("records")]
        try:
            table.to_parquet(_partial(target.with_suffix(".parquet")), index=False)
        except (ValueError, TypeError) as error:
            raise TypeError(f"table '{name}': a column mixes types that parquet cannot hold: {error}") from error
        os.replace(_partial(target.with_suffix(".parquet")), target.with_suffix(".parquet"))
        write_json(target.with_suffix(".json"), rows)
        return table

    def figure(self, figure: Any, name: str) -> None:
        """Write `figures/<name>.png` and `.svg` of a matplotlib figure, axes or seaborn grid."""
        import matplotlib

        drawn = getattr(figure, "figure", figure)
        target = self._target("figures", name)
        # no date and a fixed salt: the same figure gives the same bytes
        with matplotlib.rc_context({"svg.hashsalt": name}):
            for suffix, options in ((".png", {"dpi": 150}), (".svg", {"metadata": {"Date": None}})):
                path = target.with_suffix(suffix)
                drawn.savefig(_partial(path), format=suffix[1:], bbox_inches="tight", **options)
                os.replace(_partial(path), path)

    def _open_store(self, path: Path) -> Store:
        return Store(path)

    def _open_receiver(self, name: str, **options: Any) -> Receiver:
        from lib.models import open_receiver

        return open_receiver(name, **options)

    def _target(self, kind: str, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{kind[:-1]} name '{name}': use lower-case letters, digits, '-' and '_'")
        (self.folder / kind).mkdir(exist_ok=True)
        return self.folder / kind / name


make_run: Callable[..., Run] = Run  # what `start_run` makes; a rehearsal (`lib.runs.rehearse`) puts its own here


def start_run(notebook: str | None = None, parameters: Mapping[str, Any] | None = None) -> Run:
    """Return the run this notebook belongs to.

    Parameters
    ----------
    notebook : str, optional
        Name for the folder of an interactive run; default the notebook's own name where the front end tells it.
    parameters : mapping, optional
        What an interactive run writes into its `result.json`; a batch run knows its parameters.
    """
    folder = run_folder(notebook)
    folder.mkdir(parents=True, exist_ok=True)
    batch = bool(os.environ.get(FOLDER))
    if not batch:
        write_json(folder / RESULT, {"status": "interactive", "parameters": dict(parameters or {}), "headline": {}})
    store = Path(os.environ.get(STORE) or _outputs() / "store.sqlite")
    profile = os.environ.get(PROFILE, "interactive") if batch else "interactive"
    return make_run(folder, profile, store, no_cache=os.environ.get(NO_CACHE) == "1")


def run_folder(notebook: str | None = None) -> Path:
    """Return where this run's files go; see `start_run`."""
    if os.environ.get(FOLDER):
        return Path(os.environ[FOLDER])
    return _outputs() / "interactive" / (notebook or _notebook_name())


def frozen_folder() -> Path:
    """Return the folder of frozen replies, one folder a receiver: `data/frozen`, or what LAB_FROZEN says."""
    return Path(os.environ.get(FROZEN_FOLDER) or Path(__file__).resolve().parents[2] / "data" / "frozen")


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole or not at all."""
    _partial(path).write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")
    os.replace(_partial(path), path)


def _outputs() -> Path:
    default = Path(__file__).resolve().parents[2] / "outputs"
    return Path(os.environ.get(OUTPUTS) or default)


def _notebook_name() -> str:
    """Return the notebook's stem as JupyterLab or VS Code tell it, else "notebook"."""
    told = os.environ.get("JPY_SESSION_NAME", "")
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if not told and shell is not None:
        told = str(shell.user_ns.get("__vsc_ipynb_file__", ""))
    stem = Path(told).stem
    return stem if told.endswith(".ipynb") and stem else "notebook"


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _scalar(value: Any) -> Any:
    """Return a table cell or number as JSON: missing is null, infinities are text, times are ISO text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return _scalar(value.tolist())
    if isinstance(value, float):
        return None if math.isnan(value) else value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [_scalar(member) for member in value]
    if isinstance(value, Mapping):
        return {str(key): _scalar(member) for key, member in value.items()}
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"{value!r} is of type {type(value).__name__}, which JSON cannot hold")
