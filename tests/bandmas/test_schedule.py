"""Tests of lib/bandmas/schedule.py: no outcome leaks into a schedule, and caps hold."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lib.bandmas import PredictorError, policy_scores, rank
from lib.bandmas.admission import wire_sizes
from lib.bandmas.agentprune import train_agentprune
from lib.bandmas.results import scorer_of
from lib.bandmas.safesieve import train_safesieve
from lib.bandmas.schedule import STUDY_POLICIES, Schedule, admit_kept, ranked_by, schedule_finals, schedules_of
from lib.bandmas.scores import BASELINES
from lib.bandmas.study import Fitted, freeze_predictors, with_baselines
from lib.bandmas.traffic import load_workloads, traffic_of
from lib.messages import batch_bytes, encode_batch
from lib.messages.packets import Packet
from lib.messages.produce import produce
from lib.messages.prompts import NO_EVIDENCE, query_line, receiver_prompt
from lib.models.receiver import Prompt, Receiver, Reply
from lib.models.scripted import ScriptedReceiver
from lib.tasks.task import Gold, Task, Workload
from tests.bandmas.studies import BETAS, NAMES, Study, run_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return run_study(ScriptedReceiver(), tmp_path_factory.mktemp("study"))


def as_bytes(schedules: Sequence[Schedule]) -> bytes:
    return msgspec.json.encode(schedules)


class Liar(ScriptedReceiver):
    """Answers every prompt about one of `tasks` with nonsense."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        super().__init__()
        self.queries = {query_line(task) for task in tasks}

    def reply(self, prompts: Sequence[Prompt], **options: Any) -> list[Reply]:
        replies = super().reply(prompts, **options)
        return [
            msgspec.structs.replace(reply, text='{"label": "SUPPORT", "answer": "lie", "evidence": []}')
            if self.queries & set(prompt.turns[-1].text.split("\n"))
            else reply
            for prompt, reply in zip(prompts, replies, strict=True)
        ]


def false_gold(workload: Workload, task_ids: Sequence[str]) -> Workload:
    """Return the workload with other gold for `task_ids`."""
    wrong = {
        task_id: Gold(task_id, "CONTRADICT" if one.label != "CONTRADICT" else "SUPPORT", "wrong", (("nowhere", 0),))
        for task_id, one in workload.gold.items()
        if task_id in task_ids
    }
    return msgspec.structs.replace(workload, gold={**workload.gold, **wrong})


@pytest.mark.parametrize("seed", [0, 1])
def test_final_gold_and_final_replies_leave_every_schedule_byte_identical(
    study: Study, tmp_path: Path, seed: int
) -> None:
    """The whole pipeline again, from replay to scheduling, with another truth about this seed's final tasks."""
    final = {name: study.splits[name][seed].final for name in NAMES}
    workloads = {name: false_gold(study.workloads[name], final[name]) for name in NAMES}
    liar = Liar([study.traffics[name].tasks[task_id] for name in NAMES for task_id in final[name]])
    other = run_study(liar, tmp_path, workloads=workloads, reader=ScriptedReceiver())
    changed = study.results["seed"] == seed
    assert (study.results["raw"] != other.results["raw"])[changed].all(), "every final reply was changed"
    assert (study.results["gold"] != other.results["gold"])[changed].all(), "and every final gold"

    before, after = ([one for one in made.schedules if one.seed == seed] for made in (study, other))
    assert len(before) == 96 and as_bytes(after) == as_bytes(before)
    assert as_bytes(study.schedules) != as_bytes(other.schedules), "the other seed learned from some of these tasks"


def test_with_a_frozen_predictor_no_gold_at_all_reaches_a_schedule(study: Study, tmp_path: Path) -> None:
    """All gold mutated: effects and a new fit would differ, the schedules of the frozen predictor do not."""
    workloads = {name: false_gold(study.workloads[name], list(study.workloads[name].gold)) for name in NAMES}
    other = run_study(ScriptedReceiver(), tmp_path, workloads=workloads)
    assert [fit.fingerprint for fit in other.fits] != [fit.fingerprint for fit in study.fits]
    frozen = freeze_predictors(study.fits, tmp_path / "frozen")
    assert as_bytes(schedule_finals(other.traffics, frozen, betas=BETAS)) == as_bytes(study.schedules)


def test_no_argument_of_a_schedule_can_carry_an_outcome() -> None:
    annotations = {name: str(p.annotation) for name, p in inspect.signature(schedules_of).parameters.items()}
    assert set(annotations) == {
        *("traffic", "task_ids", "predictor", "seed", "policies", "betas", "lambda1", "fingerprint", "baselines"),
    }
    assert not any(word in text for text in annotations.values() for word in ("Workload", "Gold", "Reply", "DataFrame"))


def test_caps_are_kept_and_references_frame_them(study: Study) -> None:
    for one in study.schedules:
        traffic, sent = study.traffics[one.workload], one.admission
        full = traffic.full_bytes[one.task_id]
        assert sent.bytes == batch_bytes(sent.admitted)
        assert {*sent.admitted, *sent.skipped} == {*traffic.packets[one.task_id]}
        if one.policy == "full":
            assert (one.beta, sent.cap_bytes, sent.bytes, sent.skipped) == (1.0, None, full, ())
        elif one.policy == "empty":
            assert (one.beta, sent.cap_bytes, sent.bytes, sent.admitted) == (0.0, 0, 0, ())
        else:
            assert sent.bytes <= sent.cap_bytes == int(Fraction(str(one.beta)) * full)


def test_every_policy_cap_seed_and_final_task_is_scheduled_once(study: Study) -> None:
    expected = {
        (name, seed, policy, beta, task_id)
        for name in NAMES
        for seed, split in study.splits[name].items()
        for task_id in split.final
        for policy in STUDY_POLICIES
        for beta in {"full": (1.0,), "empty": (0.0,)}.get(policy, BETAS[name])
    }
    made = [(one.workload, one.seed, one.policy, one.beta, one.task_id) for one in study.schedules]
    assert len(made) == len(set(made)) and set(made) == expected


def test_a_schedule_takes_packets_in_score_order(study: Study) -> None:
    def skipped_first(packets: Sequence[Packet], one: Schedule, fit: Fitted) -> bool:
        """Tell whether some skipped packet ranks above an admitted one without being too large at its turn."""
        query = study.traffics[one.workload].tasks[one.task_id].query
        sent: list[Packet] = []
        for packet in rank(packets, policy_scores(one.policy, query, packets, fit.predictor, one.seed)):
            fits = batch_bytes([*sent, packet]) <= one.admission.cap_bytes
            if fits != (packet in one.admission.admitted):
                return True
            sent += [packet] if fits else []
        return False

    fits = {(fit.workload, fit.seed): fit for fit in study.fits}
    capped = [one for one in study.schedules if one.policy not in ("full", "empty")]
    assert not any(
        skipped_first(study.traffics[one.workload].packets[one.task_id], one, fits[one.workload, one.seed])
        for one in capped
    )


def test_learned_policies_name_their_predictor(study: Study) -> None:
    prints = {(fit.workload, fit.seed): fit.fingerprint for fit in study.fits}
    for one in study.schedules:
        learned = one.policy in ("causal", "hybrid")
        assert one.predictor == (prints[one.workload, one.seed] if learned else None)


def test_a_predictor_that_is_not_the_frozen_one_is_refused(study: Study) -> None:
    swapped = [msgspec.structs.replace(study.fits[0], predictor=study.fits[1].predictor)]
    with pytest.raises(PredictorError, match="worlds_verification, seed 0: the predictor changed after it was frozen"):
        schedule_finals(study.traffics, swapped, betas=BETAS)


def baseline_fits(study: Study, workloads: dict[str, Workload], receiver: Receiver, folder: Path) -> list[Fitted]:
    """Train, join and freeze both baselines on the profile tasks of a study."""
    how = (receiver, study.traffics, study.splits, scorer_of(workloads))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # false gold may pay nothing
        fits = with_baselines(study.fits, agentprune=train_agentprune(*how), safesieve=train_safesieve(*how))
    return freeze_predictors(fits, folder)


@pytest.mark.parametrize("seed", [0, 1])
def test_baselines_are_trained_and_scheduled_without_final_gold_or_replies(
    study: Study, tmp_path: Path, seed: int
) -> None:
    final = {name: study.splits[name][seed].final for name in NAMES}
    clean = baseline_fits(study, study.workloads, ScriptedReceiver(), tmp_path / "clean")
    liar = Liar([study.traffics[name].tasks[task_id] for name in NAMES for task_id in final[name]])
    workloads = {name: false_gold(study.workloads[name], final[name]) for name in NAMES}
    other = baseline_fits(study, workloads, liar, tmp_path / "other")
    made = [schedule_finals(study.traffics, fits, policies=BASELINES, betas=BETAS) for fits in (clean, other)]
    mine = [[one for one in some if one.seed == seed] for some in made]
    assert len(mine[0]) == 32 and as_bytes(mine[0]) == as_bytes(mine[1])
    changed = {fit.seed for fit, lied in zip(clean, other, strict=True) if fit.baselines != lied.baselines}
    assert changed == {1 - seed}, "the other seed learned from some of these tasks"


def test_baselines_stand_under_the_same_cap_and_name_their_state(study: Study, tmp_path: Path) -> None:
    fits = baseline_fits(study, study.workloads, ScriptedReceiver(), tmp_path)
    prints = {
        (fit.workload, fit.seed, policy): fit.baselines[policy].fingerprint() for fit in fits for policy in BASELINES
    }
    made = schedule_finals(study.traffics, fits, policies=(*STUDY_POLICIES, *BASELINES), betas=BETAS)
    assert as_bytes([one for one in made if one.policy not in BASELINES]) == as_bytes(study.schedules)
    capped = [one for one in made if one.policy in BASELINES]
    assert len(capped) == 2 * 32
    for one in capped:
        full = study.traffics[one.workload].full_bytes[one.task_id]
        assert one.predictor == prints[one.workload, one.seed, one.policy]
        assert one.admission.bytes <= one.admission.cap_bytes == int(Fraction(str(one.beta)) * full)
        assert {*one.admission.admitted, *one.admission.skipped} == {*study.traffics[one.workload].packets[one.task_id]}
        assert one.admission.full_bytes == full
    swapped = [msgspec.structs.replace(fits[0], baselines=fits[1].baselines)]
    with pytest.raises(PredictorError, match="worlds_verification, seed 0: agentprune changed after it was frozen"):
        schedule_finals(study.traffics, swapped, betas=BETAS)


def test_a_task_is_serialised_once_for_all_policies_and_caps(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    traffic, seen = study.traffics["worlds_bridge"], []

    def watched(packets: Sequence[Packet], **options: Any) -> bytes:
        seen.append(packets[0].task_id)
        return encode_batch(packets, **options)

    monkeypatch.setattr("lib.bandmas.admission.encode_batch", watched)
    policies = ["full", "empty", "semantic", "random"]
    made = schedules_of(traffic, list(traffic.tasks), None, policies=policies, betas=[0.25, 0.5])
    assert len(made) == 6 * len(traffic.tasks) and sorted(seen) == sorted(traffic.tasks)


def test_refused_packets_stay_out_and_are_counted(study: Study) -> None:
    packets = study.traffics["worlds_bridge"].packets[study.splits["worlds_bridge"][0].final[0]]
    scores, kept = np.arange(len(packets), dtype=float), np.arange(len(packets)) % 2 == 0
    sent = admit_kept(packets, scores, kept, None)
    assert admit_kept(packets, scores, kept, None, sizes=wire_sizes(packets)) == sent
    assert sent.admitted == packets[::2] and sent.skipped == packets[1::2]
    assert (sent.bytes, sent.full_bytes) == (batch_bytes(packets[::2]), batch_bytes(packets))
    none = admit_kept(packets, scores, np.zeros(len(packets), dtype=bool), 500)
    assert (none.admitted, none.skipped, none.bytes) == ((), packets, 0)


def test_a_policy_that_is_no_baseline_refuses_nothing(study: Study) -> None:
    packets = study.traffics["worlds_bridge"].packets[study.splits["worlds_bridge"][0].final[0]]
    for policy in ("full", "empty", "semantic", "causal"):
        scores, kept = ranked_by(policy, "q", packets, study.fits[0].predictor)
        assert kept.all() and scores.shape == (len(packets),)
    with pytest.raises(ValueError, match="policy 'safesieve' needs its trained state"):
        ranked_by("safesieve", "q", packets, study.fits[0].predictor)


def test_an_unknown_policy_and_a_missing_predictor_are_named(study: Study) -> None:
    traffic = study.traffics["worlds_bridge"]
    with pytest.raises(ValueError, match="policy 'best' is unknown: use some of full, causal"):
        schedules_of(traffic, list(traffic.tasks), None, policies=["best"])
    with pytest.raises(ValueError, match="policy 'causal' needs a fitted predictor"):
        schedules_of(traffic, list(traffic.tasks), None, policies=["causal"])
    assert len(schedules_of(traffic, list(traffic.tasks), None, policies=["semantic"])) == len(traffic.tasks)


def test_a_task_without_traffic_is_scheduled_empty(tmp_path: Path) -> None:
    workloads = load_workloads(["worlds_bridge"], 3)
    tasks = [msgspec.structs.replace(task, sources=()) for task in workloads["worlds_bridge"].tasks[:1]]
    traffic = traffic_of(tasks, produce(ScriptedReceiver(), workloads["worlds_bridge"], tasks))
    for one in schedules_of(traffic, [tasks[0].id], None, policies=["full", "empty", "semantic", "random"]):
        assert (one.admission.admitted, one.admission.bytes, one.admission.saving) == ((), 0, None)
    assert NO_EVIDENCE in receiver_prompt(tasks[0], ()).turns[-1].text
