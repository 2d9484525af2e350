"""Show how far long work is, and how long it will still take.

One `Progress` serves four places: a terminal (a bar that redraws itself), JupyterLab (one line that updates in
place), a batch run (the line goes to a small file that the runner prints every few seconds, so that executed
notebooks stay clean) and everything else (a plain line every few seconds). Work that ends within `quiet` seconds
shows nothing.

Not covered: nested bars, widgets.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

PROGRESS_FILE = "LAB_PROGRESS_FILE"  # environment variable: where a batch run wants the current line


def duration(seconds: float) -> str:
    """Return a length of time as `0:07`, `12:03` or `1:02:45`."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


class Progress:
    """Progress over a known number of units.

    Parameters
    ----------
    total : int
        Units of work, already finished ones included.
    label : str
        What is being done.
    unit : str
        Plural name of a unit.
    done : int
        Units finished before this call; they do not count towards the speed.
    every : float
        Seconds between two plain lines. A bar redraws five times a second at most.
    quiet : float
        Seconds of work that pass before anything is shown.
    stream : text file, optional
        Default `sys.stderr` on a terminal, else `sys.stdout`.

    Examples
    --------
    >>> with Progress(3, "replies", quiet=99) as progress:
    ...     for _ in range(3):
    ...         progress.advance()
    >>> progress.done
    3
    """

    def __init__(
        self,
        total: int,
        label: str,
        unit: str = "prompts",
        *,
        done: int = 0,
        every: float = 5.0,
        quiet: float = 1.0,
        stream: TextIO | None = None,
    ) -> None:
        self.total, self.label, self.unit, self.done = total, label, unit, done
        self._before = done
        self._mode = "line" if stream is not None and not stream.isatty() else _mode()
        self._stream = stream or (sys.stderr if self._mode == "bar" else sys.stdout)
        self._every = every if self._mode == "line" else 0.2
        self._quiet = quiet
        self._started = time.monotonic()
        self._shown = 0.0
        self._handle: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def advance(self, units: int = 1) -> None:
        """Count `units` as finished and show it when it is time."""
        self.done += units
        now = time.monotonic()
        if now - self._started >= self._quiet and (now - self._shown >= self._every or self._shown == 0.0):
            self._show()

    def close(self) -> None:
        """Show the final state of work that was shown at all."""
        if self._shown:
            self._show()
            if self._mode == "bar":
                self._stream.write("\n")
                self._stream.flush()

    def line(self) -> str:
        """Return the state as one line: `label 320/1456 prompts, 22 %, 12.3/s, about 1:32 left`."""
        elapsed = time.monotonic() - self._started
        share = self.done / self.total if self.total else 1.0
        text = f"{self.label} {self.done}/{self.total} {self.unit}, {100 * share:.0f} %"
        fresh = self.done - self._before
        if fresh and elapsed > 0:
            text += f", {fresh / elapsed:.3g}/s"
            left = (self.total - self.done) * elapsed / fresh
            text += f", about {duration(left)} left" if self.done < self.total else f", took {duration(elapsed)}"
        return text

    def _show(self) -> None:
        self._shown = time.monotonic()
        text = self.line()
        if self._mode == "file":
            path = Path(os.environ[PROGRESS_FILE])
            partial = path.with_name(f"{path.name}.{os.getpid()}")
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, path)  # the runner never reads half a line
        elif self._mode == "lab":
            self._handle = _update(self._handle, text)
        elif self._mode == "bar":
            filled = round(24 * (self.done / self.total if self.total else 1.0))
            self._stream.write(f"\r\x1b[2K[{'#' * filled}{'.' * (24 - filled)}] {text}")
            self._stream.flush()
        else:
            self._stream.write(text + "\n")
            self._stream.flush()


def _mode() -> str:
    """Tell where progress goes: "file", "lab", "bar" or "line"."""
    if os.environ.get(PROGRESS_FILE):
        return "file"
    if _in_jupyter():
        return "lab"
    return "bar" if sys.stderr.isatty() else "line"


def _in_jupyter() -> bool:
    """Tell whether this process is the kernel of a notebook that somebody looks at."""
    ipython = sys.modules.get("IPython")  # never imported here: a kernel has it loaded already
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _update(handle: Any, text: str) -> Any:
    """Write `text` over the line shown before, in a notebook's output area."""
    from IPython.display import display

    if handle is None:
        return display({"text/plain": text}, raw=True, display_id=True)
    handle.update({"text/plain": text}, raw=True)
    return handle
