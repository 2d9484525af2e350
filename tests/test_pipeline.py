"""The whole suite's spine at once: readers, packets, replays, predictors, schedules and results behind one store."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lib.bandmas import aa_control, flip_rate
from lib.bandmas.results import scorer_of
from lib.bandmas.study import fit_table, replay_all, replay_jobs
from lib.bandmas.traffic import load_workloads
from lib.evaluation.summary import main_table, paired_table, savings
from lib.messages.prompts import receiver_prompt
from lib.models.choose import open_receiver
from lib.models.scripted import ScriptedReceiver
from lib.runs.layout import checkout
from lib.runs.params import load_profile, read_parameters, resolve
from lib.runs.store import Store
from lib.runs.stored import StoredReceiver
from tests.bandmas.studies import NAMES, Counting, Dying, Study, run_study

SHARED = (
    *("receiver", "producer", "dtype", "corpus", "revision", "workloads", "tasks", "readers", "distractors"),
    *("worlds", "embedder", "quotable", "calibration", "seeds", "max_tokens"),
)
REFERENCE = "12_compare_policies_under_caps"
STUDIES = (
    *("10_build_packets_and_wire", "11_replay_packet_effects", "13_ablate_packet_boundaries"),
    *("14_schedule_under_load", "16_explain_effects_with_shapley"),
)


def stored(receiver: ScriptedReceiver, folder: Path, chunk: int = 16) -> StoredReceiver:
    return StoredReceiver(receiver, Store(folder / "store.sqlite"), chunk=chunk, progress=False)


def equal(first: Study, second: Study) -> bool:
    """Tell whether two studies made the same tables."""
    tables = [[study.effects, study.results, fit_table(study.fits)] for study in (first, second)]
    return all(a.equals(b) for a, b in zip(*tables, strict=True)) and first.schedules == second.schedules


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return run_study(ScriptedReceiver(), tmp_path_factory.mktemp("undisturbed"))


def test_a_second_study_computes_nothing(undisturbed: Study, tmp_path: Path) -> None:
    first = run_study(stored(ScriptedReceiver(), tmp_path), tmp_path / "a")
    again = ScriptedReceiver()
    second = run_study(stored(again, tmp_path), tmp_path / "b")
    assert again.calls == 0
    assert equal(first, second) and equal(first, undisturbed)


@pytest.mark.parametrize("lives", [1, 60, 100, 250, 400])
def test_a_study_killed_anywhere_ends_with_the_tables_of_an_undisturbed_one(
    undisturbed: Study, tmp_path: Path, lives: int
) -> None:
    """Public fault report 41: after a kill only what is missing is computed."""
    dying = Dying(lives)
    with pytest.raises(KeyboardInterrupt):
        run_study(stored(dying, tmp_path), tmp_path / "a")
    finishing = ScriptedReceiver()
    resumed = run_study(stored(finishing, tmp_path), tmp_path / "a")
    assert equal(resumed, undisturbed)
    (rows,) = sqlite3.connect(tmp_path / "store.sqlite").execute("SELECT count(*) FROM reply").fetchone()
    assert dying.calls + finishing.calls == rows, "nothing was computed twice"


def test_replays_of_one_notebook_serve_the_next(undisturbed: Study, tmp_path: Path) -> None:
    """The replay notebook and the policy notebook ask the same contexts."""
    study, receiver = undisturbed, ScriptedReceiver()
    replay_all(stored(receiver, tmp_path), study.traffics, study.splits, scorer_of(study.workloads))
    assert receiver.calls == len(study.outcomes)
    later = Counting()
    again = run_study(stored(later, tmp_path), tmp_path / "a")
    asked = [later.prompt_key(prompt) for batch in later.batches for prompt in batch]
    assert not set(asked) & set(study.outcomes["prompt_key"]) and equal(again, study)


def test_the_noise_control_resumes_from_a_store_of_its_own(undisturbed: Study, tmp_path: Path) -> None:
    study, scorer = undisturbed, scorer_of(undisturbed.workloads)
    jobs = replay_jobs(study.traffics, study.splits)
    ids = {task.id for task, _ in jobs}
    rates = []
    for receiver in (ScriptedReceiver(), again := ScriptedReceiver()):
        apart = stored(receiver, tmp_path)
        control = aa_control(apart, jobs, scorer, receiver_prompt, ids, first=study.outcomes, separate_store=True)
        rates.append(flip_rate(control))
    assert again.calls == 0 and rates[0] == rates[1]
    assert (rates[0].utility, rates[0].asked, rates[0].failed) == (0.0, 2 * len(jobs), 0)


def test_the_tables_of_the_study_hold_together(undisturbed: Study) -> None:
    frame = undisturbed.results
    by = ["workload", "policy", "beta"]
    table = main_table(frame, by, measures=("bytes", "context_tokens"))
    assert not table.filter(like="_mean").isna().any().any()
    per_task = frame[frame["policy"] == "causal"].groupby([*by, "seed"])["saving"].mean()
    joined = savings(frame, by).set_index([*by, "seed"])["saving_of_tasks"]
    pd.testing.assert_series_equal(per_task, joined.loc[per_task.index], check_names=False)
    margin = paired_table(
        frame[frame["policy"].isin(["full", "empty"])], "full", "empty", values=["task_utility"], resamples=200
    ).set_index("workload")
    for name in NAMES:
        pair = frame[(frame["workload"] == name) & frame["policy"].isin(["full", "empty"])]
        wide = pair.pivot(index=["seed", "task_id"], columns="policy", values="task_utility")
        difference = (wide["full"] - wide["empty"]).groupby("task_id").mean().mean()
        assert margin.loc[name, "difference"] == pytest.approx(difference)
    assert margin.loc["worlds_verification", "difference"] > 0, "messages help the scripted receiver"


def shared_values(profile: str, notebook: str) -> dict[str, Any]:
    """Return what a profile gives the notebook for those of the shared parameters that it has."""
    specs = read_parameters(checkout().notebooks / f"{notebook}.ipynb")
    file = checkout().params / profile / f"{notebook}.yaml"
    given = resolve(specs, load_profile(file), where=str(file))
    return {key: given[key] for key in SHARED if key in given}


@pytest.mark.parametrize("profile", checkout().profiles())
def test_the_notebooks_of_a_profile_study_the_same_tasks(profile: str) -> None:
    """What the first computes serves the next only if they ask for the same workloads, or some of them, splits and replies."""
    reference = shared_values(profile, REFERENCE)
    assert set(reference) == set(SHARED)
    for name in STUDIES:
        some = shared_values(profile, name)
        assert {"receiver", "workloads", "tasks", "readers", "worlds"} <= set(some), name
        # The split of a seed does not depend on the other seeds.
        assert set(some.pop("seeds", [])) <= set(reference["seeds"]), name
        assert set(some.pop("workloads")) <= set(reference["workloads"]), name
        assert some == {key: reference[key] for key in some}, name


@pytest.mark.parametrize("profile", checkout().profiles())
def test_a_selector_over_frozen_study_packets_asks_for_that_study(profile: str) -> None:
    """Its replies come from data/frozen only if it names the same tasks, messages and caps as the notebook of policies."""
    name = "25_select_a_protocol"
    file = checkout().params / profile / f"{name}.yaml"
    mine = resolve(read_parameters(checkout().notebooks / f"{name}.ipynb"), load_profile(file), where=str(file))
    if mine["corpus"] == "frozen":
        theirs, workload = shared_values(profile, REFERENCE), mine["workload"]
        betas = load_profile(checkout().params / profile / f"{REFERENCE}.yaml")["betas"]
        assert [theirs[key] for key in ("receiver", "corpus", "dtype", "embedder", "quotable", "producer")] == [
            *(mine[key] for key in ("packet_receiver", "corpus", "dtype", "embedder")),
            1,
            "",
        ]
        assert workload in theirs["workloads"] and 0 in theirs["seeds"] and mine["study"]["beta"] in betas
        tasks = theirs["tasks"]
        wanted = {"tasks": tasks[workload] if isinstance(tasks, dict) else tasks, "max_tokens": theirs["max_tokens"]}
        wanted |= {knob: theirs[knob][workload] for knob in ("readers", "distractors")}
        assert {key: mine["study"][key] for key in wanted} == wanted


@pytest.mark.real("smollm2-135m")
def test_a_real_small_model_runs_the_whole_study(tmp_path: Path) -> None:
    """Readers, replay, fit, schedule and answers by a real model, stopped after the readers and resumed from the store."""
    loaded = load_workloads(["worlds_bridge"], 5, readers={"worlds_bridge": 2}, distractors={"worlds_bridge": 0})
    store = Store(tmp_path / "store.sqlite")
    model = open_receiver("smollm2-135m")
    study = run_study(StoredReceiver(model, store, progress=False), tmp_path / "a", seeds=(0,), workloads=loaded)
    assert len(study.effects) == sum(
        len(study.traffics["worlds_bridge"].packets[i]) for i in study.effects["task_id"].unique()
    )
    assert study.effects["rce"].notna().all() and study.results["answered"].all()
    capped = study.results.dropna(subset=["cap_bytes"])
    assert len(capped) and (capped["bytes"] <= capped["cap_bytes"]).all()
    again = StoredReceiver(model, store, progress=False)
    assert equal(run_study(again, tmp_path / "b", seeds=(0,), workloads=loaded), study)
    assert again.computed == 0
