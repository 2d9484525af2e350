"""Tests of lib/bandmas/baselines.py: common receiver calls and the frozen state."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lib.bandmas.agentprune import AgentPrune, AgentPruneSettings, Edge
from lib.bandmas.baselines import BaselineError, baseline_table, learn_together, profile_jobs
from lib.bandmas.replay import Job
from lib.bandmas.safesieve import SafeSieve
from lib.models.receiver import Prompt
from lib.tasks.task import Split
from tests.bandmas.games import Recorder, packets_of, render, task
from tests.bandmas.streams import scored, slots_of, stream

PAYS = scored(lambda task_id, ids: (len(slots_of(ids)) / 4, 0.0))


def state(edges: int = 1, **more: Any) -> AgentPrune:
    made = tuple(Edge("spatial", index, "", 0.1 * index, index > 0) for index in range(edges))
    head = {"workload": "game", "seed": 0, "contexts": 4, "failed": 0, "rewarded": 1, "turns": False}
    return AgentPrune(**head | more, settings=AgentPruneSettings(), edges=made)


def learner(rounds: list[list[Job]], heard: list[list[float | None]]) -> Generator[list[Job], Any, AgentPrune]:
    for jobs in rounds:
        heard.append([outcome["task_utility"] for outcome in (yield jobs)])
    return state()


def test_one_call_a_round_and_no_context_twice() -> None:
    (one, two), packets = (task("t1"), task("t2")), packets_of("t1", 3)
    heard: dict[str, list[list[float | None]]] = {"a": [], "b": [], "idle": []}
    learners = {
        "a": learner([[(one, packets), (one, packets[:1])], [(one, packets[::-1]), (two, [])]], heard["a"]),
        "b": learner([[(one, packets[:1])], [], [(one, packets[1:])]], heard["b"]),
        "idle": learner([], heard["idle"]),
    }
    receiver = Recorder()
    states = learn_together(receiver, learners, PAYS, render=render)
    assert heard == {"a": [[0.75, 0.25], [0.75, 0.0]], "b": [[0.25], [], [0.5]], "idle": []}
    assert [len(batch) for batch in receiver.batches] == [2, 1, 1], "a round asks what is new, all learners together"
    assert list(states) == ["a", "b", "idle"] and set(states.values()) == {state()}
    assert receiver.batches[0][0] == render(one, packets).turns[-1].text, "larger sets first"


def test_a_failed_call_has_no_utility() -> None:
    def fail(prompt: Prompt) -> str:
        raise RuntimeError("down")

    heard: list[list[float | None]] = []
    learn_together(Recorder(fail), {"a": learner([[(task("t1"), packets_of("t1", 1))]], heard)}, PAYS, render=render)
    assert heard == [[None]]


def test_only_profile_tasks_with_packets_may_be_learned_from() -> None:
    traffic = stream({"p": range(2), "empty": (), "v": range(2), "f": range(2)})
    jobs = profile_jobs(traffic, Split(3, ("p", "empty"), ("v",), ("f",)))
    assert [job[0].id for job in jobs] == ["p"]
    with pytest.raises(BaselineError, match="game, seed 3: no profile task has packets"):
        profile_jobs(traffic, Split(3, ("empty",), ("v",), ("f",)))


def test_a_state_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    made = state(edges=3)
    path = made.save(tmp_path / "folder" / "state.json")
    loaded = AgentPrune.load(path)
    assert loaded == made and loaded.fingerprint() == made.fingerprint()
    assert state(edges=2).fingerprint() != made.fingerprint() != state(edges=3, seed=1).fingerprint()
    nudged = msgspec.structs.replace(made.edges[1], logit=float(np.nextafter(made.edges[1].logit, 1)))
    assert (
        msgspec.structs.replace(made, edges=(made.edges[0], nudged, made.edges[2])).fingerprint() != made.fingerprint()
    )


def test_a_file_that_is_no_such_state_is_named(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="gone.json: no such file"):
        AgentPrune.load(tmp_path / "gone.json")
    path = state().save(tmp_path / "state.json")
    with pytest.raises(BaselineError, match="state.json: not a saved SafeSieve"):
        SafeSieve.load(path)
    path.write_text(path.read_text().replace('"route"', '"root"'))
    with pytest.raises(BaselineError, match="state.json: not a saved AgentPrune .*root"):
        AgentPrune.load(path)


def test_the_table_has_one_row_a_fit_and_baseline() -> None:
    class Fit(msgspec.Struct):
        workload: str
        seed: int
        baselines: dict[str, Any]
        baseline_fingerprints: dict[str, str]

    made = state(edges=3, failed=1)
    table = baseline_table([Fit("game", 0, {"agentprune": made}, {"agentprune": "f" * 64}), Fit("game", 1, {}, {})])
    assert table.to_dict("records") == [
        {"workload": "game", "seed": 0, "policy": "agentprune", "contexts": 4, "failed": 1, "edges_kept": 2, "edges": 3}
        | {"fingerprint": "f" * 64}
    ]
    assert list(baseline_table([])) == list(table)
