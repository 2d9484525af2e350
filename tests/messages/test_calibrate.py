"""Label offsets: known leanings are found, degenerate scores stay finite, and only verification prompts carry them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from lib.messages.calibrate import LIMIT, Calibration, Renderer, calibrate, fit_offsets
from lib.messages.packets import Packet, packetize_task
from lib.messages.produce import produce
from lib.messages.prompts import receiver_prompt, verdict_openings
from lib.models.receiver import Prompt, Reply, options_per_prompt
from lib.models.scripted import ScriptedReceiver
from lib.seeds import generator
from lib.tasks.registry import load_workload
from lib.tasks.task import LABELS, Gold, Task

LEANINGS = [(0.0, 0.0), (2.0, -1.0), (-3.0, 0.5), (-4.0, -4.0), (1.0, 5.0)]


def leaning_scores(leaning: tuple[float, float], n: int = 3000, *parts: object) -> tuple[np.ndarray, list[str]]:
    """Draw scores of a model that is right on average but for a leaning, nats a label, and the gold labels.

    The gold label is drawn from the softmax of the unleaning scores, so exactly `-leaning` undoes the leaning. A constant a
    task is added, as the length of a prompt would.
    """
    draw = generator("calibrate", list(leaning), *parts)
    true = draw.normal(0, 2, size=(n, 3))
    odds = np.exp(true) / np.exp(true).sum(axis=1, keepdims=True)
    gold = [LABELS[int(draw.choice(3, p=row))] for row in odds]
    return true + np.array([*leaning, 0.0]) + draw.normal(-30, 10, size=(n, 1)), gold


def loss(scores: np.ndarray, labels: Sequence[str], offsets: dict[str, float]) -> float:
    """Return the mean log-loss of shifted scores, under the best temperature."""
    shifted = scores + np.array([offsets[label] for label in LABELS])
    gold = np.array([LABELS.index(label) for label in labels])

    def at(log_slope: float) -> float:
        logits = np.exp(log_slope) * shifted
        logits = logits - logits.max(axis=1, keepdims=True)
        return float((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(gold)), gold]).mean())

    return float(minimize_scalar(at, bounds=(-6, 3), method="bounded").fun)


def nats(offsets: dict[str, float]) -> list[float]:
    assert list(offsets) == list(LABELS)
    return list(offsets.values())


# ---------------------------------------------------------------------------------------------------------------------------- fit


@pytest.mark.parametrize("leaning", LEANINGS)
@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
def test_a_known_leaning_is_found(leaning: tuple[float, float], temperature: float) -> None:
    """Also of a model that is too sure or too shy by a factor: the offsets are in its own nats, up to the limit."""
    scores, gold = leaning_scores(leaning)
    found = nats(fit_offsets(scores * temperature, gold))
    wanted = np.clip([-value * temperature for value in (*leaning, 0.0)], -LIMIT, LIMIT).tolist()
    assert found == pytest.approx(wanted, abs=0.35 * temperature)


@pytest.mark.parametrize("leaning", LEANINGS[1:])
def test_the_fit_lowers_the_loss_also_of_other_tasks(leaning: tuple[float, float]) -> None:
    scores, gold = leaning_scores(leaning, 60)
    others, their_gold = leaning_scores(leaning, 2000, "others")
    offsets, none = fit_offsets(scores, gold), dict.fromkeys(LABELS, 0.0)
    assert loss(scores, gold, offsets) < loss(scores, gold, none) - 0.05
    assert loss(others, their_gold, offsets) < loss(others, their_gold, none) - 0.05


def test_no_other_offsets_do_better() -> None:
    scores, gold = leaning_scores((2.0, -1.0), 400)
    offsets = fit_offsets(scores, gold)
    best = loss(scores, gold, offsets)
    for label in LABELS:
        for step in (-0.5, 0.5):
            assert loss(scores, gold, {**offsets, label: offsets[label] + step}) > best


def test_a_constant_of_a_task_changes_nothing() -> None:
    scores, gold = leaning_scores((1.0, -2.0), 50)
    shifts = generator("shift").normal(0, 100, size=(50, 1))
    assert nats(fit_offsets(scores + shifts, gold)) == pytest.approx(nats(fit_offsets(scores, gold)), abs=0.01)


def test_the_order_of_tasks_changes_nothing() -> None:
    scores, gold = leaning_scores((1.0, -2.0), 50)
    order = generator("order").permutation(50)
    turned = fit_offsets(scores[order], [gold[index] for index in order])
    assert nats(turned) == pytest.approx(nats(fit_offsets(scores, gold)), abs=0.01)


@given(
    rows=st.lists(
        st.tuples(*[st.floats(-1e4, 0)] * 3, st.sampled_from(LABELS)),
        min_size=1,
        max_size=12,
    )
)
def test_any_scores_give_finite_offsets_within_the_limit(rows: list[tuple[float, float, float, str]]) -> None:
    offsets = nats(fit_offsets(np.array([row[:3] for row in rows]), [row[3] for row in rows]))
    assert np.isfinite(offsets).all()
    assert np.abs(offsets).max() <= LIMIT
    assert offsets[2] == 0.0


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros((4, 3)),
        np.tile([-1.0, -2.0, -3.0], (4, 1)),
        np.array([[-900.0, -1.0, -2.0]] * 4),
        np.array([[-1.0, -500.0, -500.0], [-500.0, -1.0, -500.0], [-500.0, -500.0, -1.0], [-1.0, -500.0, -500.0]]),
    ],
    ids=["all equal", "one row repeated", "one label far off", "told apart by far"],
)
@pytest.mark.parametrize("gold", [["SUPPORT"] * 4, [LABELS[i % 3] for i in range(4)], ["NOT_ENOUGH_INFO"] * 4])
@pytest.mark.parametrize("n", [1, 4])
def test_degenerate_scores_give_finite_offsets(scores: np.ndarray, gold: list[str], n: int) -> None:
    offsets = nats(fit_offsets(scores[:n], gold[:n]))
    assert np.isfinite(offsets).all()
    assert np.abs(offsets).max() <= LIMIT


def test_a_sole_label_is_leaned_to_and_not_away_from() -> None:
    scores, _ = leaning_scores((0.0, 0.0), 30)
    for index, label in enumerate(LABELS):
        offsets = nats(fit_offsets(scores, [label] * 30))
        assert offsets[index] == max(offsets)
        assert offsets[index] > sorted(offsets)[1]


@pytest.mark.parametrize(
    ("scores", "labels", "words"),
    [
        (np.zeros((0, 3)), [], "one row of scores a gold label, got 0 and 0"),
        (np.zeros((2, 3)), ["SUPPORT"], "got 2 and 1"),
        (np.zeros((1, 3)), ["supports"], "'supports'.*SUPPORT, CONTRADICT, NOT_ENOUGH_INFO"),
        (np.zeros((1, 2)), ["SUPPORT"], r"a score for each of SUPPORT, CONTRADICT, NOT_ENOUGH_INFO.*\(1, 2\)"),
        (np.array([[0.0, np.nan, 0.0]]), ["SUPPORT"], "row 0.*finite"),
        (np.array([[0.0, 0.0, 0.0], [0.0, -np.inf, 0.0]]), ["SUPPORT"] * 2, "row 1.*finite"),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_name(scores: np.ndarray, labels: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit_offsets(scores, labels)


# ---------------------------------------------------------------------------------------------------------------------- calibrate


class Leaning(ScriptedReceiver):
    """Scores labels by the drawn scores above, in the order of the tasks, and remembers what it was asked."""

    def __init__(self, scores: np.ndarray) -> None:
        super().__init__(name="leaning")
        self.scores = scores
        self.asked: list[Prompt] = []

    def score(self, prompts: Sequence[Prompt], options: Any) -> np.ndarray:
        said = reports_of(self.reply(prompts))
        assert "none" not in said
        assert options_per_prompt(len(prompts), options) == [verdict_openings(report) for report in said]
        self.asked += prompts
        return self.scores[: len(prompts)]


def reports_of(replies: Sequence[Reply]) -> list[str]:
    return [json.loads(reply.text)["report"] for reply in replies]


Claims = tuple[list[Task], dict[str, list[Packet]], dict[str, Gold]]


@pytest.fixture(scope="module")
def claims() -> Claims:
    workload = load_workload("worlds_verification", limit=60)
    messages = produce(ScriptedReceiver(), workload).by_task()
    return list(workload.tasks), {name: packetize_task(said) for name, said in messages.items()}, workload.gold


def test_offsets_are_fitted_on_the_plain_prompts_with_all_packets(claims: Claims) -> None:
    """A task whose reply copies no report has its label settled: it counts as such and does not enter the fit."""
    tasks, packets, gold = claims
    packets = {task.id: packets[task.id] if place % 4 else [] for place, task in enumerate(tasks)}
    asked = [receiver_prompt(task, packets[task.id]) for task in tasks]
    free = [i for i, report in enumerate(reports_of(ScriptedReceiver().reply(asked))) if report != "none"]
    assert 20 < len(free) < len(tasks)
    draw = generator("scores")
    right = np.array([[label == gold[task.id].label for label in LABELS] for task in tasks])
    scores = 2.0 * right[free] + draw.normal(0, 1, size=(len(free), 3)) + np.array([-4.0, 0.0, 0.0])
    receiver = Leaning(scores)
    made = calibrate(receiver, tasks, packets, gold)
    assert receiver.asked == [asked[i] for i in free]
    assert made.task_ids == tuple(task.id for task in tasks)
    assert made.receiver == receiver.fingerprint
    assert made.offsets == fit_offsets(scores, [str(gold[tasks[i].id].label) for i in free])
    wanted = right.argmax(axis=1)
    unknown = LABELS.index("NOT_ENOUGH_INFO")
    before, after = np.full(len(tasks), unknown), np.full(len(tasks), unknown)
    before[free], after[free] = scores.argmax(axis=1), (scores + list(made.offsets.values())).argmax(axis=1)
    assert made.accuracy_before == (before == wanted).mean()
    assert made.accuracy_after == (after == wanted).mean() > made.accuracy_before


def test_without_any_report_there_is_nothing_to_fit(claims: Claims) -> None:
    tasks, _, gold = claims
    made = calibrate(ScriptedReceiver(), tasks, dict.fromkeys((task.id for task in tasks), ()), gold)
    assert made.offsets == dict.fromkeys(LABELS, 0.0)
    assert made.accuracy_before == made.accuracy_after == np.mean([gold[t.id].label == LABELS[2] for t in tasks])


def test_the_scripted_receiver_can_be_calibrated_and_repeats_itself(claims: Claims) -> None:
    tasks, packets, gold = claims
    made = calibrate(ScriptedReceiver(), tasks, packets, gold)
    assert made == calibrate(ScriptedReceiver(), tasks, packets, gold)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Calibration) == made


def test_gold_of_other_tasks_has_no_part(claims: Claims) -> None:
    tasks, packets, gold = claims
    few = tasks[:9]
    others = {
        name: one if name in {task.id for task in few} else Gold(name, "SUPPORT", "x", ()) for name, one in gold.items()
    }
    assert calibrate(ScriptedReceiver(), few, packets, others) == calibrate(ScriptedReceiver(), few, packets, gold)


@pytest.mark.parametrize("name", ["worlds_bridge", "worlds_fanout"])
def test_tasks_without_labels_are_refused(name: str) -> None:
    workload = load_workload(name, limit=2)
    with pytest.raises(ValueError, match=f"task '{workload.tasks[0].id}': calibration needs verification tasks"):
        calibrate(ScriptedReceiver(), workload.tasks, dict.fromkeys((t.id for t in workload.tasks), ()), workload.gold)


def test_a_claim_without_a_label_is_refused(claims: Claims) -> None:
    tasks, packets, gold = claims
    for label in (None, "MAYBE"):
        with pytest.raises(ValueError, match=f"task '{tasks[1].id}': .* not verification, {label}"):
            calibrate(ScriptedReceiver(), tasks, packets, {**gold, tasks[1].id: Gold(tasks[1].id, label, label, ())})


def test_no_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        calibrate(ScriptedReceiver(), [], {}, {})


@pytest.mark.parametrize("lift", [(2.0, -1.0, 0.0), (-3.0, 4.0, 0.0)])
def test_shifted_scores_are_the_verdicts_that_are_decoded(claims: Claims, lift: tuple[float, float, float]) -> None:
    """What offsets are fitted on is the choice they act on: the label's first token, behind the report that was copied.

    The tiny model's tokens are letters, so its openings end with a label's first letter, which settles it.
    """
    from tests.models.tiny import chat_receiver

    receiver = chat_receiver("llama", dtype=torch.float64, pack=False, max_position_embeddings=8192)
    tasks, packets, _ = claims
    offsets = dict(zip(LABELS, lift, strict=True))
    asked = [(task, packets[task.id][:count]) for task in tasks[:2] for count in (0, 3)]
    plain = [receiver_prompt(*one) for one in asked]
    copied = reports_of(receiver.reply(plain, max_tokens=200))
    begun = [[f'{{"report":{json.dumps(report)},"label":"{label[0]}' for label in LABELS] for report in copied]
    for row, report in zip(begun, copied, strict=True):
        assert all(full.startswith(cut) for cut, full in zip(row, verdict_openings(report), strict=True))
    chosen = (receiver.score(plain, begun) + np.array(lift)).argmax(axis=1)
    expected = [LABELS[2 if report == "none" else i] for i, report in zip(chosen, copied, strict=True)]
    replies = receiver.reply([receiver_prompt(*one, offsets) for one in asked], max_tokens=200)
    assert reports_of(replies) == copied
    assert [json.loads(reply.text)["label"] for reply in replies] == expected


# ----------------------------------------------------------------------------------------------------------------------- renderer


def calibration(**offsets: float) -> Calibration:
    return Calibration({**dict.fromkeys(LABELS, 0.0), **offsets}, ("c1",), 0.4, 0.6, "scripted")


def test_offsets_are_applied_to_their_own_family(claims: Claims) -> None:
    tasks, packets, _ = claims
    other = msgspec.structs.replace(tasks[0], family="scifact")
    render = Renderer({tasks[0].family: calibration(SUPPORT=1.5), "scifact": calibration(CONTRADICT=-2.0)})
    for delivered in ((), packets[tasks[0].id][:2], packets[tasks[0].id]):
        plain = receiver_prompt(tasks[0], delivered)
        assert plain.bias == ()
        shifted = (("SUPPORT", 1.5), ("CONTRADICT", 0.0), ("NOT_ENOUGH_INFO", 0.0))
        assert render(tasks[0], delivered) == msgspec.structs.replace(plain, bias=shifted)
        assert dict(render(other, delivered).bias) == {"SUPPORT": 0.0, "CONTRADICT": -2.0, "NOT_ENOUGH_INFO": 0.0}
        unknown = msgspec.structs.replace(tasks[0], family="elsewhere")
        assert render(unknown, delivered) == Renderer()(unknown, delivered) == receiver_prompt(unknown, delivered)


@pytest.mark.parametrize("name", ["worlds_bridge", "worlds_fanout"])
def test_other_kinds_get_no_offsets_even_of_their_own_family(name: str) -> None:
    (task,) = load_workload(name, limit=1).tasks
    assert Renderer({task.family: calibration(SUPPORT=3.0)})(task, ()) == receiver_prompt(task, ())
