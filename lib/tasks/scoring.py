"""Score a receiver's reply: task utility T, evidence utility E, and U = (T + E) / 2.

T is label accuracy (verification), HotpotQA's answer F1 (bridge) or token F1 over the flattened answer (fan-out). E is the set F1
over (source, sentence) pairs or page titles. Every score keeps the raw text, what was extracted, the gold and the reason. All
listed ids count, also of sources that were never delivered: falling back to delivered evidence would reward sending.

Not covered: corpus measures (`lib.tasks.scifact_metrics`), loose accuracy (`lib.tasks.fanoutqa_answers`), significance.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec

from lib.tasks.answers import comparable_title, hotpot_answer_f1, parse_label, set_f1, token_f1
from lib.tasks.fanoutqa_answers import flatten_answer
from lib.tasks.reply import ReadEvidence, read_evidence, read_reply
from lib.tasks.task import LABELS, EvidenceId, Gold, Task, WorkloadError

NeiEvidence = Literal["one_if_empty", "skip"]


class Score(msgspec.Struct, frozen=True):
    """One scored reply.

    Parameters
    ----------
    task_id
        Id of the task.
    raw
        The reply as it came.
    parsed
        The JSON object in it, None if there was none.
    repaired
        Whether the text was no valid JSON and was mended once.
    label, answer
        What was extracted; None if it is not there. For verification tasks `answer` is the label.
    evidence
        Cited ids, without repeats.
    gold_answer, gold_evidence
        The gold, beside what it is compared with.
    task_utility, evidence_utility, utility
        T, E and U in [0, 1]; E is None where it is left out by choice, and U is T then.
    reason
        Why the score is what it is, in words.
    """

    task_id: str
    raw: str
    parsed: dict[str, Any] | None
    repaired: bool
    label: str | None
    answer: Any
    evidence: tuple[EvidenceId, ...]
    gold_answer: Any
    gold_evidence: tuple[EvidenceId, ...]
    task_utility: float
    evidence_utility: float | None
    utility: float
    reason: str


class ScoreSummary(msgspec.Struct, frozen=True):
    """Means over *every item asked*, with coverage beside them.

    An item without a score (an error) adds nothing to the numerator and stays in the denominator. The evidence mean leaves out
    items whose evidence is not scored by choice; it is None if there are no others.
    """

    asked: int
    scored: int
    coverage: float
    task_utility: float
    evidence_utility: float | None
    utility: float
    repaired: int
    unparsed: int


def score_reply(task: Task, gold: Gold, raw: str, *, nei_evidence: NeiEvidence = "one_if_empty") -> Score:
    """Score one reply.

    Parameters
    ----------
    task
        The task; its sources resolve quotations and spellings of ids.
    gold
        Its gold.
    raw
        The receiver's text.
    nei_evidence
        For claims whose gold has no evidence: "one_if_empty" gives E = 1 if the reply cites nothing, else 0; "skip" leaves E out.

    Returns
    -------
    Score
        A reply that holds no JSON object, or no evidence field, never earns evidence: silence is not an answer.

    Notes
    -----
    Source: BANDMAS specification, section 3; scorers specification, sections 1 to 4.
    """
    if task.id != gold.task_id:
        raise WorkloadError(f"score_reply: gold of {gold.task_id!r} was given for task {task.id!r}")
    reply = read_reply(raw)
    parsed = reply.parsed
    evidence = ReadEvidence((), False, ()) if parsed is None else read_evidence(task, parsed)
    label, answer, t, why = _task_part(task, gold, parsed)
    e, why_evidence = _evidence_part(task, gold, evidence, nei_evidence)
    reasons = [reply.reason, why, why_evidence, *evidence.remarks]
    return Score(
        task_id=task.id,
        raw=raw,
        parsed=parsed,
        repaired=reply.repaired,
        label=label,
        answer=answer,
        evidence=evidence.ids,
        gold_answer=gold.label if task.kind == "verification" else gold.answer,
        gold_evidence=gold.evidence,
        task_utility=t,
        evidence_utility=e,
        utility=t if e is None else 0.5 * t + 0.5 * e,
        reason="; ".join(part for part in reasons if part),
    )


def summarize_scores(scores: Sequence[Score], asked: int | Collection[str]) -> ScoreSummary:
    """Return means over every item asked.

    Parameters
    ----------
    scores
        One score for each item that has one.
    asked
        How many items were asked, or their task ids (then repeats and strangers are refused).

    Examples
    --------
    100 items, 10 errors, 80 right: the headline is 0.8, the coverage 0.9.

    Raises
    ------
    WorkloadError
        More scores than items, a task scored twice, or one that was not asked.
    """
    if isinstance(asked, int):
        total = asked
    else:
        ids = [score.task_id for score in scores]
        strangers = sorted(set(ids) - set(asked))
        if strangers:
            raise WorkloadError(f"summarize_scores: task {strangers[0]!r} was not asked")
        if len(set(ids)) != len(ids):
            raise WorkloadError("summarize_scores: a task is scored twice; average its repeats first")
        total = len(set(asked))
    if len(scores) > total or total < 1:
        raise WorkloadError(f"summarize_scores: {len(scores)} scores for {total} items asked")
    with_evidence = [score.evidence_utility for score in scores if score.evidence_utility is not None]
    evidence_total = total - (len(scores) - len(with_evidence))
    return ScoreSummary(
        asked=total,
        scored=len(scores),
        coverage=len(scores) / total,
        task_utility=sum(score.task_utility for score in scores) / total,
        evidence_utility=sum(with_evidence) / evidence_total if evidence_total else None,
        utility=sum(score.utility for score in scores) / total,
        repaired=sum(score.repaired and score.parsed is not None for score in scores),
        unparsed=sum(score.parsed is None for score in scores),
    )


def _task_part(task: Task, gold: Gold, parsed: dict[str, Any] | None) -> tuple[str | None, Any, float, str]:
    """Return label, answer, T and the reason."""
    if parsed is None:
        return None, None, 0.0, ""
    if task.kind == "verification":
        label = parse_label(parsed.get("label"))
        if label is None:
            shown = (
                "label missing"
                if "label" not in parsed
                else f"label {parsed['label']!r} is none of {', '.join(LABELS)}"
            )
            return None, None, 0.0, shown
        right = label == gold.label
        return label, label, float(right), f"label {label} {'is right' if right else f'but gold is {gold.label}'}"
    answer = parsed.get("answer")
    if answer is None:
        return None, None, 0.0, "answer missing"
    text = flatten_answer(answer)
    wanted = flatten_answer(gold.answer)
    t = hotpot_answer_f1(text, wanted) if task.kind == "bridge" else token_f1(text, wanted)
    return None, answer, t, f"answer F1 {t:.2f}"


def _evidence_part(
    task: Task, gold: Gold, evidence: ReadEvidence, nei_evidence: NeiEvidence
) -> tuple[float | None, str]:
    """Return E and the reason."""
    if not gold.evidence:
        if nei_evidence == "skip":
            return None, "no gold evidence: not scored"
        if not evidence.present:
            return 0.0, "no evidence field"
        return float(not evidence.ids), f"gold has no evidence, {len(evidence.ids)} cited"
    listed, wanted = _comparable(task, evidence.ids), _comparable(task, gold.evidence)
    e = set_f1(listed, wanted)
    return (
        e,
        f"evidence F1 {e:.2f} ({len(set(listed) & set(wanted))} of {len(set(wanted))} found, {len(set(listed))} cited)",
    )


def _comparable(task: Task, ids: Sequence[EvidenceId]) -> list[EvidenceId]:
    # Page titles of fan-out questions compare in normal form; sentence ids exactly.
    return [(comparable_title(source), None) for source, _ in ids] if task.kind == "fanout" else list(ids)
