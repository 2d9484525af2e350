"""Label offsets for a study: calibration tasks that no split ever sees.

A study takes the first tasks of each workload. The tasks after them calibrate the receiver's verdicts (see
lib/messages/calibrate.py): their readers write messages like all others, their gold labels fit three numbers a family, and they are
never replayed, scheduled or scored.

Not covered: workloads without labels, which need no offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from lib.bandmas.traffic import frozen_corpora, load_workloads, traffic_of
from lib.messages.calibrate import Calibration, Renderer, calibrate
from lib.messages.shortlist import Shortlist
from lib.models.receiver import Receiver
from lib.tasks.task import LABELS, Workload


def calibrated_renderer(
    receiver: Receiver,
    writer: Receiver,
    studied: Mapping[str, Workload],
    count: int,
    folder: Path | str,
    shortlist: Shortlist | None = None,
    **knobs: Any,
) -> Renderer:
    """Return the renderer whose label offsets fit `receiver` on `count` tasks outside the study.

    Parameters
    ----------
    receiver : judges the claims; `writer` : writes the readers' messages
    studied : the workloads of the study, by name
    count : calibration tasks a verification workload; 0 leaves the labels as they are
    folder : where the calibration messages are frozen
    shortlist, knobs : as for the study's own messages and workloads

    Raises
    ------
    ValueError
        If a verification workload has fewer than `count` tasks beyond the study's, or `count` is negative.
    """
    if count < 0:
        raise ValueError(f"calibration must be 0 or more tasks, not {count}")
    names = [name for name, workload in studied.items() if workload.tasks and workload.tasks[0].kind == "verification"]
    if not count or not names:
        return Renderer()
    calibrations: dict[str, Calibration] = {}
    for name in names:
        used = {task.id for task in studied[name].tasks}
        larger = load_workloads([name], len(used) + count, **knobs)[name]
        spare = tuple(task for task in larger.tasks if task.id not in used)[:count]
        if len(spare) < count:
            raise ValueError(
                f"workload {name!r}: {len(used)} tasks are studied and {len(spare)} more are there, of {count} for "
                "calibration; lower tasks, or calibration (0: none)"
            )
        chosen = msgspec.structs.replace(larger, tasks=spare, gold={task.id: larger.gold[task.id] for task in spare})
        corpus = frozen_corpora(writer, {name: chosen}, folder, shortlist)[name]
        packets = traffic_of(spare, corpus).packets
        calibrations[spare[0].family] = calibrate(receiver, spare, packets, chosen.gold)
    return Renderer(calibrations)


def calibration_table(renderer: Renderer) -> pd.DataFrame:
    """Return one row a calibrated family: tasks, offsets in nats, labels right before and after on the calibration tasks.

    Without a calibrated family the table has its columns and no row.
    """
    nats = [f"nats_{label.lower()}" for label in LABELS]
    rows = [
        {
            "family": family,
            "tasks": len(known.task_ids),
            **dict(zip(nats, (known.offsets[label] for label in LABELS), strict=True)),
            "accuracy_before": known.accuracy_before,
            "accuracy_after": known.accuracy_after,
        }
        for family, known in renderer.calibrations.items()
    ]
    return pd.DataFrame(rows, columns=["family", "tasks", *nats, "accuracy_before", "accuracy_after"])
