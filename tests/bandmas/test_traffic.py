"""Tests of lib/bandmas/traffic.py."""

from __future__ import annotations

import inspect
from pathlib import Path

import msgspec
import pytest

from lib.bandmas import traffic as module
from lib.bandmas.traffic import (
    frozen_corpora,
    load_workloads,
    packet_sizes,
    packet_tokens,
    traffic_of,
    traffic_table,
    traffics_of,
)
from lib.messages import CorpusError, batch_bytes, encode_batch, reassemble
from lib.models.scripted import ScriptedReceiver
from lib.tasks.task import Gold, Workload, WorkloadError
from tests.bandmas.studies import NAMES


@pytest.fixture(scope="module")
def workloads() -> dict[str, Workload]:
    return load_workloads(NAMES, 4, readers={"worlds_bridge": 3}, distractors={"worlds_bridge": 1}, noise=0.0)


@pytest.fixture(scope="module")
def corpora(workloads, tmp_path_factory):
    return frozen_corpora(ScriptedReceiver(), workloads, tmp_path_factory.mktemp("corpora"))


def test_knobs_reach_generated_workloads_by_name(workloads: dict[str, Workload]) -> None:
    assert {len(task.sources) for task in workloads["worlds_bridge"].tasks} == {3}
    assert {len(task.sources) for task in workloads["worlds_verification"].tasks} == {4}
    assert [len(workload.tasks) for workload in workloads.values()] == [4, 4]


def test_generated_workloads_have_as_many_tasks_as_are_asked() -> None:
    assert len(load_workloads(["worlds_verification"], 450)["worlds_verification"].tasks) == 450


def test_knobs_of_other_workloads_and_doubled_names_are_refused() -> None:
    for name in ("fanoutqa", "worlds_brigde"):
        with pytest.raises(WorkloadError, match=f"readers: '{name}' is no generated workload; there are worlds_ver"):
            load_workloads(["worlds_bridge"], 4, readers={name: 3})
    with pytest.raises(WorkloadError, match="workloads: none is named; choose from worlds_verification, "):
        load_workloads([], 4)
    with pytest.raises(WorkloadError, match="a name occurs twice"):
        load_workloads(["worlds_bridge", "worlds_bridge"], 4)


def test_a_limit_may_be_given_by_name() -> None:
    loaded = load_workloads(["worlds_bridge", "worlds_fanout"], {"worlds_fanout": 2, "worlds_bridge": 3, "scifact": 9})
    assert {name: len(workload.tasks) for name, workload in loaded.items()} == {"worlds_bridge": 3, "worlds_fanout": 2}
    assert loaded["worlds_bridge"] == load_workloads(["worlds_bridge"], 3)["worlds_bridge"]
    with pytest.raises(
        WorkloadError, match="tasks: no number for 'worlds_fanout'; there are numbers for worlds_bridge"
    ):
        load_workloads(["worlds_bridge", "worlds_fanout"], {"worlds_bridge": 3})


def test_workloads_that_share_a_task_id_are_refused(workloads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load_workload", lambda name, **_: workloads["worlds_bridge"])
    with pytest.raises(WorkloadError, match="is in 'a' and 'b'; study them apart"):
        load_workloads(["a", "b"], 4)


def test_corpora_are_frozen_and_what_is_read_back_is_returned(workloads, tmp_path: Path, monkeypatch) -> None:
    made = frozen_corpora(ScriptedReceiver(), workloads, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    assert frozen_corpora(ScriptedReceiver(), workloads, tmp_path) == made
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before

    read = module.load_corpus
    other = lambda folder, **options: msgspec.structs.replace(read(folder, **options), messages=())  # noqa: E731
    monkeypatch.setattr(module, "load_corpus", other)
    with pytest.raises(CorpusError, match="read back differ from those written"):
        frozen_corpora(ScriptedReceiver(), workloads, tmp_path)


def test_traffic_has_every_packet_and_exact_bytes(workloads, corpora) -> None:
    for name, traffic in traffics_of(workloads, corpora).items():
        assert list(traffic.tasks) == [task.id for task in workloads[name].tasks]
        for task_id, packets in traffic.packets.items():
            assert traffic.full_bytes[task_id] == batch_bytes(packets) == len(encode_batch(packets))
            for message in traffic.messages[task_id]:
                own = [packet for packet in packets if packet.message_id == message.message_id]
                assert reassemble(own) == message.text
        (job,) = traffic.jobs([workloads[name].tasks[1].id])
        assert job == (workloads[name].tasks[1], traffic.packets[workloads[name].tasks[1].id])


def test_a_task_without_messages_has_no_traffic_and_a_stranger_is_refused(workloads, corpora) -> None:
    tasks, corpus = workloads["worlds_bridge"].tasks, corpora["worlds_bridge"]
    silent = msgspec.structs.replace(
        corpus, messages=tuple(message for message in corpus.messages if message.task_id != tasks[0].id)
    )
    traffic = traffic_of(tasks, silent)
    assert (traffic.packets[tasks[0].id], traffic.full_bytes[tasks[0].id]) == ((), 0)
    with pytest.raises(ValueError, match=f"messages of task '{tasks[0].id}', which is not in the workload"):
        traffic_of(tasks[1:], corpus)


def test_gold_has_no_way_into_traffic() -> None:
    parameters = inspect.signature(traffic_of, eval_str=True).parameters.values()
    assert not any(kind in str(p.annotation) for p in parameters for kind in (Workload.__name__, Gold.__name__))


def test_sizes_and_envelope_share_add_up(workloads, corpora) -> None:
    traffics = traffics_of(workloads, corpora)
    count = ScriptedReceiver().count_tokens
    sizes, table = packet_sizes(traffics, count), traffic_table(traffics, count).set_index("workload")
    tokens = packet_tokens(traffics, count)
    for name, traffic in traffics.items():
        packets = [packet for cut in traffic.packets.values() for packet in cut]
        content = sum(len(packet.content.encode()) for packet in packets)
        wire = sum(batch_bytes([packet]) for packet in packets)
        row = table.loc[name]
        assert row["packets"] == len(packets) == (sizes["workload"] == name).sum()
        assert row["full_bytes"] == wire / 4 == sum(traffic.full_bytes.values()) / 4
        assert row["envelope_share"] == pytest.approx(1 - content / wire)
        assert row["context_tokens"] == sum(len(packet.content.split()) for packet in packets) / 4
        assert sum(tokens[packet.packet_id] for packet in packets) == row["context_tokens"] * 4
        assert row["fallbacks"] == traffic.fallbacks == 0
    assert ((sizes["envelope_share"] > 0) & (sizes["envelope_share"] < 1)).all()


def test_fallbacks_are_counted(workloads, tmp_path: Path) -> None:
    receiver = ScriptedReceiver(script=lambda prompt: "no JSON")
    traffics = traffics_of(workloads, frozen_corpora(receiver, workloads, tmp_path))
    assert traffics["worlds_bridge"].fallbacks == 4 * 3
    assert traffic_table(traffics).set_index("workload").loc["worlds_bridge", "fallbacks"] == 12
    assert traffic_table(traffics)["context_tokens"].isna().all()
