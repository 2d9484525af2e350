"""Take a small receiver's taste for one label out of its verdicts.

Context. A small model that reads a claim and some reports orders the cases well - it finds "yes" likelier where the reports agree than
where they differ - but leans on one answer: depending on the worked examples it says CONTRADICT always or never.

Intuition. One number a label, in nats, is added to the log-probability of the label's first token. The three numbers are fitted
once, as the intercepts of a logistic regression on the model's own scores of the labels behind the report that it copied, over
calibration tasks that belong to no split, with all their packets delivered. Where there was none to copy the label is settled, and
the task does not enter the fit. The numbers are part of the prompt, so every context, the empty one included, is judged alike.

How to read it. `Calibration.offsets` are the numbers, `accuracy_before` and `accuracy_after` the labels right on the
calibration tasks themselves (not an estimate for others). Gold labels of calibration tasks are used, of no other task.

Not covered: calibrated probabilities; offsets that depend on the delivered packets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from scipy.optimize import minimize

from lib.messages.packets import Packet
from lib.messages.prompts import NOTHING, receiver_prompt, verdict_openings
from lib.models.receiver import Prompt, Receiver
from lib.tasks.reply import read_reply
from lib.tasks.task import LABELS, Gold, Task

REPLY_TOKENS = 96  # room for the copied report and the label
LIMIT = 12.0  # nats; an offset beyond this would silence a label for good


class Calibration(msgspec.Struct, frozen=True):
    """Label offsets and what they were fitted on; see the module's header."""

    offsets: dict[str, float]
    task_ids: tuple[str, ...]
    accuracy_before: float
    accuracy_after: float
    receiver: str


def fit_offsets(scores: np.ndarray, labels: Sequence[str]) -> dict[str, float]:
    """Return the offset of each label, in nats; the last label's is 0.

    Parameters
    ----------
    scores : ndarray, shape (n_tasks, 3)
        Log-likelihoods of the labels in the order of `LABELS`.
    labels : sequence of str
        Gold labels.

    Raises
    ------
    ValueError
        Without tasks, when a label of `labels` is unknown, or when a score is missing or not finite.
    """
    if len(scores) == 0 or len(scores) != len(labels):
        raise ValueError(f"calibration needs one row of scores a gold label, got {len(scores)} and {len(labels)}")
    if scores.shape[1:] != (len(LABELS),):
        raise ValueError(f"calibration needs a score for each of {', '.join(LABELS)}, got shape {scores.shape}")
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
        raise ValueError(
            f"calibration, row {row}: scores {scores[row].tolist()} are not all finite; check the receiver"
        )
    unknown = sorted(set(labels) - set(LABELS))
    if unknown:
        raise ValueError(f"calibration: gold label {unknown[0]!r} is none of {', '.join(LABELS)}")
    gold = np.asarray([LABELS.index(label) for label in labels])
    centred = scores - scores.mean(axis=1, keepdims=True)
    scale = max(float(centred.std()), 1e-6)

    def loss(x: np.ndarray) -> float:
        logits = np.exp(x[0]) * centred / scale + np.asarray([x[1], x[2], 0.0])
        logits -= logits.max(axis=1, keepdims=True)
        likelihood = logits[np.arange(len(gold)), gold] - np.log(np.exp(logits).sum(axis=1))
        # The weak prior keeps the fit finite where every task is told apart.
        return float(-likelihood.sum() + 0.05 * (x**2).sum())

    slope, first, second = minimize(loss, np.zeros(3), method="L-BFGS-B", bounds=[(-3, 3), (-20, 20), (-20, 20)]).x
    nats = np.asarray([first, second, 0.0]) * scale / np.exp(slope)
    return {label: round(float(np.clip(value, -LIMIT, LIMIT)), 4) for label, value in zip(LABELS, nats, strict=True)}


def calibrate(
    receiver: Receiver,
    tasks: Sequence[Task],
    packets: Mapping[str, Sequence[Packet]],
    gold: Mapping[str, Gold],
) -> Calibration:
    """Fit the label offsets of `receiver` on verification tasks with all their packets.

    Parameters
    ----------
    tasks : verification tasks that belong to no split
    packets, gold : by task id

    Raises
    ------
    ValueError
        Without tasks, or if a task is of another kind or has no gold label.
    """
    labels = [gold[task.id].label for task in tasks]
    for task, label in zip(tasks, labels, strict=True):
        if task.kind != "verification" or label not in LABELS:
            raise ValueError(
                f"task {task.id!r}: calibration needs verification tasks with a label, not {task.kind}, {label}"
            )
    if not tasks:
        raise ValueError("calibration needs at least one task")
    prompts = [receiver_prompt(task, packets[task.id]) for task in tasks]
    copied = _copied(receiver, prompts)
    free = [place for place, report in enumerate(copied) if report != NOTHING]
    before = np.full(len(tasks), LABELS.index("NOT_ENOUGH_INFO"))
    after, offsets = before.copy(), dict.fromkeys(LABELS, 0.0)
    if free:
        openings = [verdict_openings(copied[place]) for place in free]
        scores = receiver.score([prompts[place] for place in free], openings)
        offsets = fit_offsets(scores, [str(labels[place]) for place in free])
        before[free] = scores.argmax(axis=1)
        after[free] = (scores + np.asarray([offsets[label] for label in LABELS])).argmax(axis=1)
    gold_index = np.asarray([LABELS.index(str(label)) for label in labels])
    return Calibration(
        offsets=offsets,
        task_ids=tuple(task.id for task in tasks),
        accuracy_before=float((before == gold_index).mean()),
        accuracy_after=float((after == gold_index).mean()),
        receiver=receiver.fingerprint,
    )


def _copied(receiver: Receiver, prompts: Sequence[Prompt]) -> list[str]:
    """Return the report that each reply copies; `NOTHING` where the reply has none."""
    copied = []
    for reply in receiver.reply(prompts, max_tokens=REPLY_TOKENS):
        said = read_reply(reply.text).parsed or {}
        copied.append(str(said.get("report", NOTHING)))
    return copied


class Renderer:
    """`receiver_prompt` with the label offsets of each task family: what replay and policies ask with.

    Parameters
    ----------
    calibrations : mapping of task family to Calibration
        Families that are missing get no offsets.
    """

    def __init__(self, calibrations: Mapping[str, Calibration] | None = None) -> None:
        self.calibrations = dict(calibrations or {})

    def __call__(self, task: Task, packets: Sequence[Packet]) -> Prompt:
        """Return the prompt of a delivered packet set."""
        known = self.calibrations.get(task.family)
        return receiver_prompt(task, packets, known.offsets if known else None)
