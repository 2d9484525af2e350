"""Tests of lib/bandmas/verdicts.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

import lib.bandmas.verdicts as module
from lib.bandmas.traffic import load_workloads, traffic_of
from lib.bandmas.verdicts import calibrated_renderer, calibration_table
from lib.messages.calibrate import Calibration, Renderer, calibrate
from lib.messages.corpus import load_corpus
from lib.messages.prompts import receiver_prompt
from lib.models.receiver import Prompt, Reply
from lib.models.scripted import ScriptedReceiver
from lib.tasks.task import LABELS, Gold, Workload
from tests.messages.letters import letters

NAMES = ("worlds_verification", "worlds_bridge")
KNOBS: dict[str, Any] = {"readers": {"worlds_verification": 3}, "distractors": {"worlds_verification": 1}, "noise": 0.0}


class Watching(ScriptedReceiver):
    """The scripted receiver, remembering what it was asked."""

    def __init__(self, name: str = "watching") -> None:
        super().__init__(name=name)
        self.asked: list[Prompt] = []
        self.scored: list[Prompt] = []

    def reply(self, prompts: Sequence[Prompt], **options: Any) -> list[Reply]:
        self.asked += prompts
        return super().reply(prompts, **options)

    def score(self, prompts: Sequence[Prompt], options: Any) -> np.ndarray:
        self.scored += prompts
        return super().score(prompts, options)


@pytest.fixture(scope="module")
def studied() -> dict[str, Workload]:
    return load_workloads(NAMES, 5, **KNOBS)


def test_the_study_s_tasks_are_left_alone(studied: dict[str, Workload], tmp_path: Path) -> None:
    """The tasks after the study's calibrate, and nothing of the study's is read, asked or scored."""
    judge, writer = Watching("judge"), Watching("writer")
    render = calibrated_renderer(judge, writer, studied, 6, tmp_path, **KNOBS)
    (known,) = render.calibrations.values()
    used = {task.id for workload in studied.values() for task in workload.tasks}
    after = load_workloads(NAMES[:1], 11, **KNOBS)[NAMES[0]].tasks
    assert [task.id for task in after[:5]] == [task.id for task in studied[NAMES[0]].tasks]
    assert known.task_ids == tuple(task.id for task in after[5:])
    assert not used & set(known.task_ids)
    # Generated claims are unlike one another, so a prompt about a studied task would hold its claim.
    said = " ".join(prompt.turns[-1].text for prompt in judge.scored + writer.asked)
    assert not any(task.query in said for workload in studied.values() for task in workload.tasks)
    assert all(task.query in said for task in after[5:])
    assert judge.asked == judge.scored and (len(judge.scored), len(writer.asked)) == (6, 6 * 3)
    assert known.receiver == judge.fingerprint


def test_offsets_are_those_of_the_frozen_messages(studied: dict[str, Workload], tmp_path: Path) -> None:
    render = calibrated_renderer(ScriptedReceiver(), ScriptedReceiver(), studied, 6, tmp_path, letters(1), **KNOBS)
    larger = load_workloads(NAMES[:1], 11, **KNOBS)[NAMES[0]]
    corpus = load_corpus(tmp_path / NAMES[0], version=larger.version)
    assert [path.name for path in tmp_path.iterdir()] == [NAMES[0]]
    assert corpus.manifest["decoding"]["shortlist"] == "letters:1"
    spare = larger.tasks[5:]
    expected = calibrate(ScriptedReceiver(), spare, traffic_of(spare, corpus).packets, larger.gold)
    assert render.calibrations == {spare[0].family: expected}
    again = calibrated_renderer(ScriptedReceiver(), ScriptedReceiver(), studied, 6, tmp_path, letters(1), **KNOBS)
    assert again.calibrations == render.calibrations


def test_gold_of_the_study_has_no_part(studied: dict[str, Workload], tmp_path: Path) -> None:
    spoiled = {
        name: msgspec.structs.replace(w, gold={task.id: Gold(task.id, "SUPPORT", "x", ()) for task in w.tasks})
        for name, w in studied.items()
    }
    made = [
        calibrated_renderer(ScriptedReceiver(), ScriptedReceiver(), some, 6, tmp_path / str(i), **KNOBS).calibrations
        for i, some in enumerate((studied, spoiled))
    ]
    assert made[0] == made[1]


def test_every_delivered_set_of_a_claim_gets_the_same_offsets(studied: dict[str, Workload], tmp_path: Path) -> None:
    render = calibrated_renderer(ScriptedReceiver(), ScriptedReceiver(), studied, 9, tmp_path, **KNOBS)
    (known,) = render.calibrations.values()
    claim, question = studied[NAMES[0]].tasks[0], studied[NAMES[1]].tasks[0]
    assert set(known.offsets) == set(LABELS)
    assert render(claim, ()) == receiver_prompt(claim, (), known.offsets) != receiver_prompt(claim, ())
    assert render(question, ()) == receiver_prompt(question, ())


def test_nothing_is_asked_where_nothing_is_calibrated(studied: dict[str, Workload], tmp_path: Path) -> None:
    judge = Watching()
    unlabelled = {NAMES[1]: studied[NAMES[1]]}
    for some, count in ((studied, 0), (unlabelled, 6), ({}, 6)):
        render = calibrated_renderer(judge, judge, some, count, tmp_path, **KNOBS)
        assert render.calibrations == {}
        task = studied[NAMES[0]].tasks[0]
        assert render(task, ()) == receiver_prompt(task, ())
    assert (judge.asked, judge.scored, list(tmp_path.iterdir())) == ([], [], [])


@pytest.mark.parametrize(("there", "left"), [(5, 0), (8, 3)])
def test_too_few_tasks_beside_the_study_are_refused(
    studied: dict[str, Workload], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int, left: int
) -> None:
    pool = load_workloads(NAMES[:1], there, **KNOBS)
    monkeypatch.setattr(module, "load_workloads", lambda names, limit, **knobs: pool)
    with pytest.raises(ValueError, match=f"'worlds_verification': 5 tasks are studied and {left} more are there, of 6"):
        calibrated_renderer(ScriptedReceiver(), ScriptedReceiver(), studied, 6, tmp_path, **KNOBS)
    with pytest.raises(ValueError, match="0 or more tasks, not -1"):
        calibrated_renderer(ScriptedReceiver(), ScriptedReceiver(), studied, -1, tmp_path, **KNOBS)


def test_a_table_has_a_row_a_family_and_its_columns_without_any() -> None:
    known = Calibration(dict(zip(LABELS, (1.5, -2.0, 0.0), strict=True)), ("a", "b"), 0.25, 0.75, "scripted")
    table = calibration_table(Renderer({"worlds": known, "scifact": known}))
    assert table.to_dict("records")[0] == {
        "family": "worlds",
        "tasks": 2,
        "nats_support": 1.5,
        "nats_contradict": -2.0,
        "nats_not_enough_info": 0.0,
        "accuracy_before": 0.25,
        "accuracy_after": 0.75,
    }
    assert list(table["family"]) == ["worlds", "scifact"]
    empty = calibration_table(Renderer())
    assert isinstance(empty, pd.DataFrame)
    assert list(empty.columns) == list(table.columns)
    assert len(empty) == 0
