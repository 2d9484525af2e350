"""Tests of lib/bandmas/agentprune.py."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.bandmas.agentprune import VARIANTS, AgentPrune, AgentPruneSettings, Edge, train_agentprune
from lib.bandmas.baselines import BaselineError
from lib.bandmas.schedule import admit_kept, schedules_of
from lib.bandmas.traffic import Traffic
from lib.messages import Packet, batch_bytes
from lib.models.receiver import Prompt
from lib.tasks.task import Split
from tests.bandmas.games import Recorder, echo, render
from tests.bandmas.streams import Value, even, ids_of, scored, slots_of, stream


def train(
    value: Value, slots: int = 4, tasks: int = 8, receiver: Recorder | None = None, **settings: object
) -> AgentPrune:
    traffic, splits = even(slots, tasks)
    how = AgentPruneSettings(**settings)
    made = train_agentprune(
        receiver or Recorder(), {"game": traffic}, splits, scored(value), settings=how, render=render
    )
    return made["game", 0]


def first_slot(task_id: str, ids: frozenset[str]) -> tuple[float, float]:
    return (float(0 in slots_of(ids)),) * 2


def all_slots(task_id: str, ids: frozenset[str]) -> tuple[float, float]:
    return (len(slots_of(ids)) / 4,) * 2


def state(edges: Sequence[Edge], **settings: object) -> AgentPrune:
    turns = any(edge.family == "temporal" for edge in edges)
    head = {"workload": "game", "seed": 0, "contexts": 40, "failed": 0, "rewarded": 9, "turns": turns}
    return AgentPrune(**head, settings=AgentPruneSettings(**settings), edges=tuple(edges))


def senders(*logits: float, cut: Sequence[int] = ()) -> list[Edge]:
    return [Edge("spatial", slot, "", logit, slot not in cut) for slot, logit in enumerate(logits)]


def packets(slots: int = 4) -> tuple[Packet, ...]:
    return stream({"t1": range(slots)}).packets["t1"]


def sent_slots(trained: AgentPrune, packets: Sequence[Packet], cap: int | None = None) -> list[int]:
    scores, kept = trained.select("q", packets)
    return sorted(slots_of(ids_of(admit_kept(packets, scores, kept, cap).admitted)))


def test_a_bandit_learns_the_arm_that_pays() -> None:
    """Slot 0 decides: its logit rises. Slot 1 has an expected gradient of zero and stays near its start on average."""
    logits = []
    for seed in range(12):
        traffic, splits = even(2)
        splits = {"game": {seed: msgspec.structs.replace(splits["game"][0], seed=seed)}}
        how = AgentPruneSettings(iterations=50, cut_until=0)
        trained = train_agentprune(
            Recorder(), {"game": traffic}, splits, scored(first_slot), settings=how, render=render
        )
        logits.append([edge.logit for edge in trained["game", seed].edges])
    zero, one = np.array(logits).T
    assert (zero > one).all() and zero.min() > 1
    assert abs(one.mean()) < 0.5 < zero.mean() / 4


def test_training_asks_whole_messages_of_profile_tasks_in_few_calls() -> None:
    receiver = Recorder()
    trained = train(all_slots, receiver=receiver)
    asked = [json.loads(text) for batch in receiver.batches for text in batch]
    assert len(receiver.batches) <= 10 and trained.contexts == 40
    assert len({(task_id, *ids) for task_id, ids in asked}) == len(asked) <= 40, "no context is asked twice"
    assert {task_id for task_id, _ in asked} <= {f"game{index}" for index in range(7)}, "the final task is never asked"
    for task_id, ids in asked:
        assert ids == [f"{task_id}|m{slot:02d}|s{segment:02d}" for slot in slots_of(ids) for segment in range(3)]


def test_workloads_and_seeds_share_their_calls() -> None:
    (one, splits), (two, others) = even(3), even(3, name="other")
    splits = {"game": {seed: msgspec.structs.replace(splits["game"][0], seed=seed) for seed in (0, 1)}, **others}
    receiver = Recorder()
    trained = train_agentprune(receiver, {"game": one, "other": two}, splits, scored(all_slots), render=render)
    assert list(trained) == [("game", 0), ("game", 1), ("other", 0)] and len(receiver.batches) <= 10
    assert [(state.workload, state.seed) for state in trained.values()] == list(trained)
    alone = train_agentprune(Recorder(), {"other": two}, others, scored(all_slots), render=render)
    assert alone["other", 0] == trained["other", 0], "company changes nothing"
    assert trained["game", 0].edges != trained["game", 1].edges


@pytest.mark.parametrize(("slots", "left"), [(1, 1), (2, 1), (3, 1), (4, 2), (6, 3), (12, 7)])
def test_two_cuts_of_a_quarter(slots: int, left: int) -> None:
    trained = train(all_slots, slots)
    assert trained.sizes() == (left, slots)
    cut = [edge.logit for edge in trained.edges if not edge.kept]
    assert max(cut, default=-np.inf) <= max(edge.logit for edge in trained.edges if edge.kept)


def test_the_sender_that_pays_survives() -> None:
    assert train(first_slot, slots=3).edges[0].kept
    assert train(lambda task_id, ids: (float(slots_of(ids) >= {2}),) * 2, slots=3).edges[2].kept


def test_packets_on_cut_edges_are_never_sent() -> None:
    trained = state(senders(0.3, 0.9, 0.1, 0.5, cut=[1, 2]))
    assert sent_slots(trained, packets()) == [0, 3], "though there is room for all"
    scores, kept = trained.select("q", packets())
    sent = admit_kept(packets(), scores, kept, 500)
    assert sent.bytes <= 500 and slots_of(ids_of(sent.admitted)) == {3}, "the higher logit goes first"
    assert {*sent.admitted, *sent.skipped} == {*packets()} and sent.full_bytes == batch_bytes(packets())


def test_a_task_on_cut_edges_alone_keeps_its_best() -> None:
    trained = state(senders(0.3, 0.9, 0.1, 0.1, cut=[0, 1, 2]))
    assert sent_slots(trained, packets(3)) == [1]
    tied = state(senders(0.3, 0.3, cut=[0, 1]))
    assert sent_slots(tied, packets(2)) == [0], "ties go to the lower index"


def test_a_slot_that_training_never_saw_is_open_at_logit_zero() -> None:
    trained = state(senders(0.3, -0.2))
    scores, kept = trained.select("q", packets(3))
    assert kept.all() and scores.tolist() == [*[0.3] * 3, *[-0.2] * 3, *[0.0] * 3]


def test_only_slots_and_turns_are_read() -> None:
    trained = state(senders(0.3, 0.9, 0.1, 0.5, cut=[2]))
    blank = [
        msgspec.structs.replace(p, content="other words", span="x", source_id="?", type="claim") for p in packets()
    ]
    for one, two in zip(trained.select("q", packets()), trained.select("another question", blank), strict=True):
        assert one.tolist() == two.tolist()


@given(st.permutations(range(12)), st.integers(0, 3000), st.lists(st.floats(-2, 2), min_size=4, max_size=4), st.data())
def test_input_order_changes_nothing_and_the_cap_holds(
    order: list[int], cap: int, logits: list[float], data: st.DataObject
) -> None:
    cut = data.draw(st.sets(st.integers(0, 3)))
    for settings in ({}, {"eval_sampling": True}):
        trained, straight = state(senders(*logits, cut=sorted(cut)), **settings), packets()
        mixed = [straight[place] for place in order]
        one = admit_kept(straight, *trained.select("q", straight), cap)
        assert admit_kept(mixed, *trained.select("q", mixed), cap) == one and one.bytes <= cap


def test_no_packets_no_scores() -> None:
    for settings in ({}, {"eval_sampling": True}):
        scores, kept = state(senders(0.1), **settings).select("q", [])
        assert scores.shape == kept.shape == (0,)


def test_without_rewards_packets_go_in_index_order_and_a_warning_says_so() -> None:
    with pytest.warns(UserWarning, match="game, seed 0: no answer in AgentPrune's training earned anything"):
        trained = train(lambda task_id, ids: (0.0, 0.0))
    assert [edge.logit for edge in trained.edges] == [0.0] * 4 and trained.rewarded == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(all_slots)


def test_failed_calls_are_counted_and_not_learned_from() -> None:
    def half(prompt: Prompt) -> str:
        if '"game0"' in prompt.turns[-1].text:
            raise RuntimeError("down")
        return echo(prompt)

    whole, hurt = train(all_slots), train(all_slots, receiver=Recorder(half))
    assert 0 < hurt.failed < hurt.contexts == 40 and hurt.edges != whole.edges
    with pytest.warns(UserWarning, match="earned anything"):
        dead = train(all_slots, receiver=Recorder(lambda prompt: 1 / 0))
    assert dead.failed == 40 and {edge.logit for edge in dead.edges} == {0.0}


def test_few_tasks_fill_a_batch_by_wrapping_around() -> None:
    receiver = Recorder()
    trained = train(all_slots, tasks=3, receiver=receiver)  # two profile tasks, so each stands in a batch twice
    assert trained.contexts == 40
    assert any(len(batch) > 2 for batch in receiver.batches), "a task in a batch twice is drawn anew"


def test_one_slot_sends_in_emission_order() -> None:
    trained = train(first_slot, slots=1)
    scores, kept = trained.select("q", packets(1))
    assert trained.sizes() == (1, 1) and kept.all() and len(set(scores)) == 1


def turning(traffic: Traffic) -> Traffic:
    """Return the stream with the last packet of every message said one turn later."""
    later = {
        task_id: tuple(msgspec.structs.replace(p, turn=p.slot + (p.segment == 2)) for p in own)
        for task_id, own in traffic.packets.items()
    }
    return msgspec.structs.replace(traffic, packets=later)


def test_turn_edges_exist_where_a_reader_speaks_twice() -> None:
    assert not train(all_slots).turns
    assert [
        edge.index for edge in train(all_slots, slots=6, turn_edges="always").edges if edge.family == "temporal"
    ] == [
        *(0, 1, 2, 3),
    ], "later turns share one edge"
    (traffic, splits), receiver = even(4), Recorder()
    streams = {"game": turning(traffic)}
    trained = train_agentprune(receiver, streams, splits, scored(all_slots), render=render)["game", 0]
    families = [edge.family for edge in trained.edges]
    assert trained.turns and families == ["spatial"] * 4 + ["temporal"] * 4
    assert sum(edge.kept for edge in trained.edges) == 4, "both families are cut"
    for task_id, ids in (json.loads(text) for batch in receiver.batches for text in batch):
        own = streams["game"].packets[task_id]
        sent = [packet for packet in own if packet.packet_id in ids]
        slots, turns = {packet.slot for packet in sent}, {min(packet.turn, 3) for packet in sent}
        assert sent == [p for p in own if p.slot in slots and min(p.turn, 3) in turns], "both edges must be drawn"


def test_a_packet_needs_both_of_its_edges() -> None:
    turns = [Edge("temporal", turn, "", 0.5 * turn, turn != 1) for turn in range(4)]
    trained = state([*senders(0.1, 0.2, 0.3, 0.4, cut=[3]), *turns])
    scores, kept = trained.select("q", packets())
    assert kept.tolist() == [True] * 3 + [False] * 3 + [True] * 3 + [False] * 3  # turn i is slot i here
    assert scores[::3].tolist() == pytest.approx([0.1, 0.7, 1.3, 1.9])


def test_a_finer_key_cuts_types() -> None:
    def evidence(task_id: str, ids: frozenset[str]) -> tuple[float, float]:
        return (float(any(packet_id.endswith("s01") for packet_id in ids)),) * 2

    receiver = Recorder()
    trained = train(evidence, receiver=receiver, edge_key="route_type")
    assert trained.sizes() == (7, 12)  # round(3) of 12, then round(2.25) of 9
    assert {(edge.index, edge.type) for edge in trained.edges} == {
        (slot, kind) for slot in range(4) for kind in ("claim", "evidence", "uncertainty")
    }
    parts = [len(ids) % 3 for batch in receiver.batches for _, ids in map(json.loads, batch)]
    assert any(parts), "messages are delivered in part"


def test_the_binary_reward_asks_whether_the_answer_is_right() -> None:
    def close(task_id: str, ids: frozenset[str]) -> tuple[float, float]:
        return 0.49 + 0.02 * (0 in slots_of(ids)), 0.3

    assert train(close, reward="task_binary").rewarded < train(close).rewarded == 40
    assert train(close, reward="task_binary").edges[0].logit > 0.2


def test_one_shot_cuts_once_and_stops() -> None:
    trained = train(all_slots, slots=8, schedule="one_shot", rate=0.5)
    assert trained.contexts == 20 and trained.sizes() == (4, 8)


def test_more_iterations_do_not_cut_more() -> None:
    assert train(all_slots, slots=8, iterations=20).sizes() == train(all_slots, slots=8).sizes() == (4, 8)


def test_a_training_cap_bounds_what_is_delivered() -> None:
    traffic, _ = even(4)
    sizes = {p.packet_id: batch_bytes([p]) for own in traffic.packets.values() for p in own}
    receiver = Recorder()
    train(all_slots, receiver=receiver, train_beta=0.25)
    sent = [
        (task_id, sum(sizes[i] for i in ids)) for batch in receiver.batches for task_id, ids in map(json.loads, batch)
    ]
    assert all(size <= traffic.full_bytes[task_id] // 4 for task_id, size in sent) and max(size for _, size in sent) > 0


def test_drawing_at_evaluation_is_repeatable_and_draws_survivors_alone() -> None:
    trained = state(senders(0.0, 0.0, 0.0, 0.0, cut=[1]), eval_sampling=True)
    drawn = set()
    for index in range(40):
        cut = stream({f"t{index}": range(4)}).packets[f"t{index}"]
        slots = tuple(sent_slots(trained, cut))
        assert slots and 1 not in slots and slots == tuple(sent_slots(trained, cut))
        drawn.add(slots)
    assert len(drawn) > 3


def test_penalties_are_options_that_change_logits() -> None:
    plain, low, near = (train(all_slots, **more) for more in ({}, {"nuclear": 0.5}, {"anchor": 0.5}))
    means = [np.mean([edge.logit for edge in trained.edges]) for trained in (low, plain, near)]
    assert means[0] < means[1] < means[2]


def test_training_is_repeatable_and_reads_no_other_part_of_the_split() -> None:
    traffic, _ = even(4)
    split = {"game": {0: Split(0, ("game0", "game1", "game2"), ("game3",), ("game4",))}}

    def strict(task_id: str, ids: frozenset[str]) -> tuple[float, float]:
        assert task_id in split["game"][0].profile
        return all_slots(task_id, ids)

    one, two = (
        train_agentprune(Recorder(), {"game": traffic}, split, scored(strict), render=render)["game", 0]
        for _ in range(2)
    )
    assert one == two and one.fingerprint() == two.fingerprint()


def test_schedules_carry_the_fingerprint_and_the_cap() -> None:
    traffic, splits = even(4)
    trained = train(all_slots)
    finals = splits["game"][0].final
    made = schedules_of(traffic, finals, None, policies=["agentprune"], betas=[0.3], baselines={"agentprune": trained})
    assert [one.predictor for one in made] == [trained.fingerprint()]
    assert made[0].admission.bytes <= made[0].admission.cap_bytes == int(0.3 * traffic.full_bytes[finals[0]])
    with pytest.raises(ValueError, match="policy 'agentprune' needs its trained state"):
        schedules_of(traffic, finals, None, policies=["agentprune"])


def test_settings_are_checked_and_variants_differ_in_one() -> None:
    for wrong, message in (
        ({"edge_key": "type"}, "edge_key must be one of route, route_type, not 'type'"),
        ({"schedule": "never"}, "schedule must be one of two_step, one_shot"),
        ({"rate": 25}, "rate must lie between 0 and 1, not 25"),
        ({"batch": 0}, "batch must be at least 1"),
    ):
        with pytest.raises(BaselineError, match=f"AgentPrune: {message}"):
            AgentPruneSettings(**wrong)
    default = msgspec.structs.asdict(AgentPruneSettings())
    for name, settings in list(VARIANTS.items())[1:]:
        (changed,) = [(k, v) for k, v in msgspec.structs.asdict(settings).items() if v != default[k]]
        assert name == f"{changed[0]}={changed[1]}"
