"""Execute one notebook in this process's own kernel: the child that the runner starts, `python -m lib.runs.execute JOB`.

Papermill injects the parameters and keeps the notebook; this module adds what a batch needs: the kernel listens on files
instead of ports (two kernels never race for one), every cell has a time limit, a cell's output is cut at a size with a note
saying so, and a cell that ran out of time or lost its kernel is marked as failed instead of completed. The child tells the
runner what it does in `status.json` and how it ended in `outcome.json`. When the runner dies, the child sees its standard
input close and takes the kernel with it.

Not covered: choosing notebooks, folders and parameters (`notebook.py`), and kernels of other languages.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from lib.runs.context import write_json

TEXT_LIMIT = 100_000  # characters of printed text kept for a cell
DATA_LIMIT = 10_000_000  # characters of tables and figures (base64) kept for a cell
STATUS, OUTCOME = "status.json", "outcome.json"
_kernels: list[int] = []  # process groups to take along when the runner dies


class Job(msgspec.Struct, frozen=True):
    """What the runner asks: paths are absolute, `timeout` is seconds a cell may take (0: no limit)."""

    notebook: str
    folder: str
    name: str
    parameters: dict[str, Any]
    timeout: int


def main(job_path: str) -> int:
    """Execute the job and return 0 when every cell ran."""
    job = msgspec.json.decode(Path(job_path).read_bytes(), type=Job)
    threading.Thread(target=_die_with_the_runner, daemon=True).start()
    # sockets need short paths, and a user's IPython start-up files are no part of a run
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as short:
        os.environ["JUPYTER_RUNTIME_DIR"] = short
        os.environ["IPYTHONDIR"] = str(Path(short) / "ipython")
        outcome = _execute(job, Path(short))
    write_json(Path(job.folder) / OUTCOME, outcome)
    return 0 if outcome["status"] == "ok" else 1


def _execute(job: Job, runtime: Path) -> dict[str, Any]:
    """Run the notebook through papermill and return how it ended."""
    import papermill
    from papermill.engines import papermill_engines
    from papermill.exceptions import PapermillExecutionError

    # its own reader of the parameters cell misses many forms; ours has checked every name already
    logging.getLogger("papermill").setLevel(logging.ERROR)
    papermill_engines.register("lab", _engine(job, runtime))
    output = Path(job.folder) / f"{job.name}.ipynb"
    try:
        papermill.execute_notebook(
            # papermill formats its paths with the parameters, so braces in a path have to be doubled
            job.notebook.replace("{", "{{").replace("}", "}}"),
            str(output).replace("{", "{{").replace("}", "}}"),
            parameters=job.parameters,
            engine_name="lab",
            kernel_name="python3",
            language="python",
            progress_bar=False,
            cwd=str(Path(job.notebook).parent),
            execution_timeout=job.timeout or None,
            autosave_cell_every=0,
        )
    except PapermillExecutionError as error:
        return {
            "status": "failed",
            "error": {
                "cell": error.cell_index + 1,
                "name": error.ename,
                "value": error.evalue,
                "source": error.source,
                "traceback": list(error.traceback),
            },
        }
    return {"status": "ok", "error": None}


def _engine(job: Job, runtime: Path) -> Any:
    """Return a papermill engine for this job. Built here so that importing this module does not load Jupyter."""
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from papermill.clientwrap import PapermillNotebookClient
    from papermill.engines import Engine

    class Client(PapermillNotebookClient):
        """Papermill's client with file sockets, output limits and honest cell status."""

        def create_kernel_manager(self) -> Any:
            manager = super().create_kernel_manager()
            # this interpreter, whatever kernel of the same name the user has installed elsewhere
            manager.kernel_spec.argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            if hasattr(os, "fork"):
                manager.transport = "ipc"
                manager.ip = str(runtime / "k")
                manager.connection_file = str(runtime / "kernel.json")
            return manager

        async def async_start_new_kernel(self, **options: Any) -> None:
            await super().async_start_new_kernel(**options)
            process = getattr(self.km.provisioner, "process", None)
            if process is not None:
                _kernels.append(process.pid)

        def papermill_execute_cells(self) -> None:
            for index, cell in enumerate(self.nb.cells):
                write_json(Path(job.folder) / STATUS, _status(self.nb.cells, index))
                self.used = {"text": 0, "data": 0, "cut": 0}
                self.nb_man.cell_start(cell, index)
                try:
                    self.execute_cell(cell, index)
                except CellExecutionError as error:
                    self.nb_man.cell_exception(cell, cell_index=index, exception=error)
                    return
                except (CellTimeoutError, DeadKernelError, RuntimeError) as error:
                    self.shutdown_kernel = "immediate"  # it would not answer
                    cell.outputs.append(_error_output(error, job.timeout))
                    self.nb_man.cell_exception(cell, cell_index=index, exception=error)
                    raise
                finally:
                    _tidy(cell, self.used["cut"])
                    self.nb_man.cell_complete(cell, cell_index=index)

        def output(self, outs: Any, msg: Any, display_id: Any, cell_index: int) -> Any:
            if not _within_limits(msg, self.used):
                return None
            captured = self.output_hook_stack[msg["parent_header"].get("msg_id")]
            last = outs[-1] if outs and not captured and not self.clear_before_next_output else {}
            if msg["msg_type"] == "stream" and last.get("name") == msg["content"]["name"]:
                last["text"] += msg["content"]["text"]
                return last
            return super().output(outs, msg, display_id, cell_index)

    class LabEngine(Engine):
        """Papermill engine that uses the client above."""

        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> Any:
            client = Client(
                nb_man,
                kernel_name=kernel_name,
                timeout=options.get("execution_timeout"),
                startup_timeout=120,  # a busy machine starts kernels slowly
                iopub_timeout=60,
                interrupt_on_timeout=False,
            )
            try:
                return client.execute()
            except (CellTimeoutError, DeadKernelError, RuntimeError):
                # marked in its cell, papermill reports it from there; anything else is not the notebook's doing
                if any(cell.metadata.papermill["status"] == nb_man.FAILED for cell in nb_man.nb.cells):
                    return nb_man.nb
                raise

    return LabEngine


def _within_limits(msg: dict[str, Any], used: dict[str, int]) -> bool:
    """Count an output message against the cell's limits, cutting its text; False drops it."""
    content = msg["content"]
    if msg["msg_type"] == "stream":
        text = content["text"]
        room = max(0, TEXT_LIMIT - used["text"])
        used["text"] += len(text)
        used["cut"] += max(0, len(text) - room)
        content["text"] = text[:room]
        return room > 0
    if msg["msg_type"] in ("display_data", "execute_result"):
        size = sum(len(part) if isinstance(part, str) else len(json.dumps(part)) for part in content["data"].values())
        if used["data"] + size > DATA_LIMIT:
            used["cut"] += size
            return False
        used["data"] += size
    elif msg["msg_type"] == "error":
        content["evalue"] = content["evalue"][:TEXT_LIMIT]
        content["traceback"] = [line[:TEXT_LIMIT] for line in content["traceback"][-200:]]
    return True


def _tidy(cell: Any, cut: int) -> None:
    """Keep the last state of lines that redraw themselves, and say how much output was left out."""
    for output in cell.get("outputs", []):
        if output["output_type"] == "stream" and "\r" in output["text"]:
            lines = output["text"].replace("\r\n", "\n").split("\n")
            output["text"] = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines)
    if cut:
        import nbformat

        note = f"[output limit of a cell: {cut:,} characters were left out; write large results with run.table]\n"
        cell.outputs.append(nbformat.v4.new_output("stream", name="stderr", text=note))


def _error_output(error: BaseException, timeout: int) -> Any:
    import nbformat

    name = type(error).__name__
    if name == "CellTimeoutError":
        value = f"the cell ran longer than {timeout} s, the limit of a cell (--timeout)"
    elif name == "DeadKernelError":
        value = "the kernel process died while the cell ran (out of memory, or killed)"
    else:
        value = str(error)
    return nbformat.v4.new_output("error", ename=name, evalue=value, traceback=[f"{name}: {value}"])


def _status(cells: list[Any], index: int) -> dict[str, Any]:
    return {"cell": index + 1, "cells": len(cells), "since": time.time(), "source": cells[index].source}


def _die_with_the_runner() -> None:
    """Wait until the runner closes our standard input, which its death does too; then take the kernel along."""
    while os.read(0, 1024):
        continue
    for group in _kernels:
        try:
            os.killpg(group, signal.SIGKILL)  # jupyter_client gives each kernel a session of its own
        except ProcessLookupError:
            continue
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
