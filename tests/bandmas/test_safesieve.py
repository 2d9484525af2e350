"""Tests of lib/bandmas/safesieve.py. Formulae: test_fusion.py; clusters: test_zero_extension.py."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.bandmas import fusion, safesieve
from lib.bandmas.baselines import BaselineError
from lib.bandmas.fusion import SafeSieveSettings, compatibility, fusion_weights, threshold
from lib.bandmas.safesieve import VARIANTS, Channel, SafeSieve, train_safesieve
from lib.bandmas.schedule import admit_kept, schedules_of
from lib.bandmas.scores import lexical_relevance
from lib.messages import Packet, batch_bytes
from lib.models.receiver import Prompt
from lib.tasks.task import Split
from tests.bandmas.games import Recorder, render
from tests.bandmas.streams import Value, even, ids_of, scored, slots_of, stream
from tests.bandmas.test_fusion import Axes

TYPES = ("claim", "evidence", "uncertainty")


def train(
    value: Value, slots: int = 4, tasks: int = 11, receiver: Recorder | None = None, **settings: object
) -> SafeSieve:
    traffic, splits = even(slots, tasks)
    how = SafeSieveSettings(**settings)
    made = train_safesieve(
        receiver or Recorder(), {"game": traffic}, splits, scored(value), settings=how, render=render
    )
    return made["game", 0]


def never(task_id: str, ids: frozenset[str]) -> tuple[float, float]:
    return 0.0, 1.0


def always(task_id: str, ids: frozenset[str]) -> tuple[float, float]:
    return 0.5, 0.0


def asked_of(receiver: Recorder) -> list[tuple[str, list[str]]]:
    return [tuple(json.loads(text)) for batch in receiver.batches for text in batch]


def test_tasks_between_two_cuts_are_asked_together_one_context_each() -> None:
    receiver = Recorder()
    trained = train(
        always, receiver=receiver
    )  # 10 profile tasks, 13 steps of schedule, cuts from step 2 on at every step
    assert [len(batch) for batch in receiver.batches] == [2, *[1] * 8] and trained.contexts == 10
    asked = asked_of(receiver)
    assert sorted(task_id for task_id, _ in asked) == sorted(f"game{index}" for index in range(10))
    assert len(asked[0][1]) == len(asked[1][1]) == 12, "nothing is cut in the warm-up"


def test_what_is_cut_stays_away() -> None:
    for value in (always, never):
        receiver = Recorder()
        trained = train(value, receiver=receiver)
        spoken = [{(int(i[-6:-4]), TYPES[int(i[-2:])]) for i in ids} for _, ids in asked_of(receiver)]
        assert all(later <= before for before, later in itertools.pairwise(spoken))
        for step, channels in enumerate(spoken, start=1):
            assert channels == {(c.slot, c.type) for c in trained.channels if c.cut_at is None or c.cut_at >= step}
        cut = [channel for channel in trained.channels if channel.cut_at is not None]
        assert 0 < len(cut) < 6 and all(channel.rank == 3 and channel.score is None for channel in cut)


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
@pytest.mark.parametrize("node_key", ["channel", "route"])
def test_less_than_half_is_cut_and_something_is_left(slots: int, node_key: str) -> None:
    trained = train(never, slots, node_key=node_key)
    cut = sum(channel.cut_at is not None for channel in trained.channels)
    assert cut / len(trained.channels) < 0.5 and len(trained.channels) == slots * (3 if node_key == "channel" else 1)


def test_at_the_start_a_score_is_compatibility_alone() -> None:
    sieve = safesieve._Sieve(stream({"t1": range(3)}).packets["t1"], 10, SafeSieveSettings(a0=0.7))
    assert sieve.look(0).scores.tolist() == pytest.approx((0.7 * sieve.compatible).tolist())
    by_hand = [
        compatibility(lexical_relevance(safesieve.RECEIVER_TEXT, f"{kind} from reader {slot}"), x)
        for slot in range(3)
        for kind, x in zip(TYPES, (0.75, 1.0, 0.25), strict=True)
    ]
    assert sieve.compatible.tolist() == pytest.approx(by_hand)


def test_credit_goes_to_the_channels_that_were_there() -> None:
    def first(task_id: str, ids: frozenset[str]) -> tuple[float, float]:
        return float(0 in slots_of(ids) and task_id != "game3"), 0.0

    trained = train(first, warm_up=0.9)  # nothing is cut before the end of training
    assert {channel.credits for channel in trained.channels} == {9}
    history = [channel.history for channel in trained.channels]
    assert history == pytest.approx([1.0] * 12, abs=1e-3), "equal credit is the mean"
    assert train(first, warm_up=0.9, history_scale="raw").channels[0].history == pytest.approx(1 / 12, abs=1e-4)
    assert all(channel.credits == channel.history == 0 for channel in train(never).channels)
    half = train(lambda task_id, ids: (0.49, 1.0))
    assert sum(channel.credits for channel in half.channels) == 0, "an answer is right from one half on"


def test_a_channel_absent_from_a_task_gets_no_credit_for_it() -> None:
    traffic = stream({"a": [0], "b": [0, 1], "final": [0, 1]})
    splits = {"game": {0: Split(0, ("a", "b"), (), ("final",))}}
    how = SafeSieveSettings(warm_up=1.0)
    trained = train_safesieve(Recorder(), {"game": traffic}, splits, scored(always), settings=how, render=render)
    assert [channel.credits for channel in trained["game", 0].channels] == [2, 2, 2, 1, 1, 1]


def test_the_last_score_fuses_both_parts() -> None:
    trained = train(always)
    content, credit = fusion_weights(10 / 13)
    assert trained.content_weight == pytest.approx(content) and trained.threshold == pytest.approx(threshold(10 / 13))
    assert 0.2 <= trained.credit_weight <= credit, "cutting weak channels raises the mean and lowers the weight"
    alive = [channel for channel in trained.channels if channel.cut_at is None]
    for channel in alive:
        fused = trained.content_weight * channel.compatibility + trained.credit_weight * channel.history
        assert channel.score == pytest.approx(fused)
    assert min(channel.level for channel in alive) == 0 and max(channel.level for channel in alive) == 1
    weights = [train(always, r_max=r_max).credit_weight for r_max in (0.0, 0.5)]
    assert weights[0] == pytest.approx(credit) and weights[1] < credit, "without a cut the weight is the schedule's"


def test_weak_channels_go_first() -> None:
    """Requests and uncertainty complete the receiver least; nothing else tells these channels apart."""
    trained = train(never)
    cut = [channel for channel in trained.channels if channel.cut_at is not None]
    assert {channel.type for channel in cut if channel.cut_at == min(one.cut_at for one in cut)} == {"uncertainty"}
    assert {channel.type for channel in trained.channels if channel.rank < 3} <= {"claim", "evidence"}


def test_classes_follow_group_and_threshold() -> None:
    high = {"warm_up": 1.0, "th0": 0.7, "th_max": 0.71}  # claims stand at two thirds, between this and its half
    seen = set()
    for value, settings in itertools.product((always, never), ({}, {"cut_weight": "as_printed"}, {"g": 0.0}, high)):
        trained = train(value, **settings)
        seen |= {(channel.type, channel.rank) for channel in trained.channels if settings == high and value == never}
        for channel in trained.channels:
            if channel.cut_at is not None:
                assert (channel.rank, channel.group, channel.level) == (3, None, None)
            elif channel.group == len(trained.channels):
                assert channel.rank == 1
            else:
                assert channel.rank == (2 if channel.level >= trained.threshold else 3)
    assert seen == {("claim", 3), ("evidence", 2), ("uncertainty", 3)}


def test_a_bounded_end_leaves_more_than_half() -> None:
    for value in (always, never):
        literal, bounded = train(value), train(value, final_classes="r_max")
        assert bounded.sizes()[0] > 6 >= 12 - sum(channel.rank == 3 for channel in bounded.channels) - 1
        for one, two in zip(literal.channels, bounded.channels, strict=True):
            assert two.rank <= one.rank and (two.cut_at is None or two.rank == 3)
        assert bounded.sizes()[0] >= literal.sizes()[0]


def channel(slot: int, kind: str, rank: int, history: float = 1.0, **more: object) -> Channel:
    head = {"complement": fusion.TO_RECEIVER.get(kind, 0.5), "compatibility": 0.5, "credits": 3, "history": history}
    end = {"score": 0.4 + 0.1 * history, "level": 0.5, "group": 6 if rank == 1 else 0, "rank": rank, "cut_at": None}
    return Channel(**{"slot": slot, "type": kind, **head, **end, **more})


def state(channels: Sequence[Channel], **settings: object) -> SafeSieve:
    head = {"workload": "game", "seed": 0, "contexts": 8, "failed": 0, "encoder_sha256": ""}
    weights = {"content_weight": 0.2, "credit_weight": 0.8, "threshold": 0.55}
    return SafeSieve(**head, **weights, settings=SafeSieveSettings(**settings), channels=tuple(channels))


def sent(trained: SafeSieve, packets: Sequence[Packet], cap: int | None = None) -> list[str]:
    scores, kept = trained.select("the evidence of 1", packets)
    return ids_of(admit_kept(packets, scores, kept, cap).admitted)


PACKETS = stream({"t1": range(2)}).packets["t1"]
CLAIM0, EVIDENCE0, DOUBT0, CLAIM1, EVIDENCE1, DOUBT1 = (packet.packet_id for packet in PACKETS)


def trained_by_hand(**settings: object) -> SafeSieve:
    return state(
        [
            *(channel(0, "claim", 2, 3.0), channel(0, "evidence", 1, 0.1), channel(0, "uncertainty", 3, 9.0)),
            *(channel(1, "claim", 2, 2.0), channel(1, "evidence", 1, 0.1), channel(1, "uncertainty", 3, 9.0)),
        ],
        **settings,
    )


def test_classes_come_before_scores_and_the_third_is_never_sent() -> None:
    scores, kept = trained_by_hand().select("the evidence of 1", PACKETS)
    order = [PACKETS[place].packet_id for place in np.argsort(-scores)]
    assert order[:4] == [EVIDENCE1, EVIDENCE0, CLAIM0, CLAIM1], "class 1 by its words, then class 2 by its credit"
    assert kept.tolist() == [True, True, False] * 2
    assert sent(trained_by_hand(), PACKETS) == [CLAIM0, EVIDENCE0, CLAIM1, EVIDENCE1], "though there is room for all"


def test_within_a_class_content_and_credit_are_fused() -> None:
    scores, _ = trained_by_hand().select("the evidence of 1", PACKETS)
    for place, credit, x in ((1, 0.1, 1.0), (4, 0.1, 1.0)):
        near = lexical_relevance("the evidence of 1", PACKETS[place].content)
        assert scores[place] == pytest.approx(0.2 * (0.5 * near + 0.5 * x) + 0.8 * credit)
    assert scores[0] - scores[3] == pytest.approx(
        0.8 * (3.0 - 2.0) - 0.1 * lexical_relevance("the evidence of 1", PACKETS[3].content)
    )


def test_a_task_of_the_third_class_alone_is_sent_after_all() -> None:
    doubts = [PACKETS[2], PACKETS[5]]
    assert sent(trained_by_hand(), doubts) == [DOUBT0, DOUBT1]
    dead = state([channel(0, "claim", 3, 2.0), channel(1, "claim", 3, 5.0)])
    assert sent(dead, [PACKETS[0], PACKETS[3]], cap=batch_bytes([PACKETS[0]])) == [CLAIM1], "in score order"


def test_an_unseen_channel_is_neutral_and_follows_its_type() -> None:
    new = stream({"t2": [7]}).packets["t2"]
    trained = trained_by_hand()
    scores, kept = trained.select("nothing in common", new)
    assert kept.all(), "its credit, the mean, is above the threshold"
    mean = np.mean([one.history for one in trained.channels])
    assert scores[1] == pytest.approx(0.2 * 0.5 + 0.8 * mean), "class 1 with its type"
    low = state([channel(0, "claim", 2, 1.0, score=5.0), channel(1, "claim", 2, 1.0, score=9.0)])
    assert low.select("q", new)[1].all(), "below every score seen, so class 3 like all of its task"
    both = [*new, *PACKETS[:1]]
    assert low.select("q", both)[1].tolist() == [False, False, False, True]
    bounded = msgspec.structs.replace(low, settings=SafeSieveSettings(final_classes="r_max"))
    assert bounded.select("q", both)[1].all(), "what was never seen cannot have been cut"


def test_a_route_is_one_node_with_the_mean_of_its_types() -> None:
    trained = train(always, node_key="route")
    assert [(one.slot, one.type) for one in trained.channels] == [(slot, "") for slot in range(4)]
    assert [one.complement for one in trained.channels] == pytest.approx([(0.75 + 1.0 + 0.25) / 3] * 4)
    scores, kept = trained.select("q", stream({"t": [0, 9]}).packets["t"])
    assert len(set(np.round(scores[:3], 9))) == 1 and len(set(kept[:3])) == 1, "types of a route are not told apart"
    assert np.isfinite(scores).all()


@given(st.permutations(range(6)), st.integers(0, 2000), st.sampled_from(["", "lexical"]))
def test_input_order_changes_nothing_and_the_cap_holds(order: list[int], cap: int, query: str) -> None:
    trained, mixed = trained_by_hand(), [PACKETS[place] for place in order]
    one = admit_kept(PACKETS, *trained.select(query, PACKETS), cap)
    assert admit_kept(mixed, *trained.select(query, mixed), cap) == one and one.bytes <= cap


def test_no_packets_no_scores() -> None:
    scores, kept = trained_by_hand().select("q", [])
    assert scores.shape == kept.shape == (0,)


def test_a_named_embedder_is_used_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fusion, safesieve):
        monkeypatch.setattr(module, "embedder", Axes)
    trained = train(always, encoder="axes")
    assert trained.encoder_sha256 == Axes.sha256 != train(always).encoder_sha256 == ""
    by_hand = msgspec.structs.replace(trained_by_hand(encoder="axes"), encoder_sha256=Axes.sha256)
    scores = by_hand.select("x", [msgspec.structs.replace(packet, content="x") for packet in PACKETS])[0]
    with pytest.raises(BaselineError, match="game, seed 0: encoder 'axes' has other weights than in training"):
        trained_by_hand(encoder="axes").select("x", PACKETS)
    assert scores[1] == pytest.approx(0.2 * (0.5 * 1.0 + 0.5 * 1.0) + 0.8 * 0.1)


def test_failed_calls_are_counted_and_give_no_credit() -> None:
    def down(prompt: Prompt) -> str:
        raise RuntimeError("down")

    trained = train(always, receiver=Recorder(down))
    assert trained.failed == trained.contexts == 10 and {one.credits for one in trained.channels} == {0}


def test_training_is_repeatable_and_reads_no_other_part_of_the_split() -> None:
    traffic, _ = even(4)
    split = {"game": {0: Split(0, ("game0", "game1", "game2"), ("game3",), ("game4",))}}

    def strict(task_id: str, ids: frozenset[str]) -> tuple[float, float]:
        assert task_id in split["game"][0].profile
        return always(task_id, ids)

    one, two = (train_safesieve(Recorder(), {"game": traffic}, split, scored(strict), render=render) for _ in range(2))
    assert one == two and one["game", 0].fingerprint() == two["game", 0].fingerprint()
    assert train(always).fingerprint() != train(never).fingerprint()


def test_the_schedule_is_counted_in_exact_shares() -> None:
    packets = stream({"t1": range(20)}).packets["t1"]  # 60 channels
    assert safesieve._Sieve(packets, 50, SafeSieveSettings(horizon=1.1)).horizon == 55, "in floats it is more"
    sieve = safesieve._Sieve(packets, 40, SafeSieveSettings(horizon=1.1))
    assert (sieve.horizon, sieve.warm_up, sieve.interval) == (44, 8, 4)
    assert [sieve.next_cut(step) for step in (0, 7, 8, 11, 12)] == [8, 8, 12, 12, 16]
    before = int(sieve.alive.sum())
    sieve.cut(8)
    weak = before - int(sieve.alive.sum())
    assert weak >= 3, "a cut takes a twentieth of all channels, 3 of 60, or more"


def test_schedules_carry_the_fingerprint() -> None:
    traffic, splits = even(4)
    trained = train(always)
    finals = splits["game"][0].final
    made = schedules_of(traffic, finals, None, policies=["safesieve"], betas=[0.3], baselines={"safesieve": trained})
    assert [one.predictor for one in made] == [trained.fingerprint()]
    assert made[0].admission.bytes <= made[0].admission.cap_bytes


def test_variants_differ_in_one_setting() -> None:
    default = msgspec.structs.asdict(SafeSieveSettings())
    for name, settings in list(VARIANTS.items())[1:]:
        (changed,) = [(k, v) for k, v in msgspec.structs.asdict(settings).items() if v != default[k]]
        assert name == f"{changed[0]}={changed[1]:g}" if isinstance(changed[1], float) else f"{changed[0]}={changed[1]}"
