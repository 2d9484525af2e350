"""The growth of admission: three ways, one result."""

from __future__ import annotations

import pandas as pd
import pytest

from lib.bandmas.admission import admit_static
from lib.messages import batch_bytes
from lib.runs.bench import admission
from lib.runs.bench.admission import ANEW, GIVEN, MEASURED, admission_curve, admission_packets, admit_anew


@pytest.fixture(scope="module")
def curve() -> pd.DataFrame:
    return admission_curve([1, 12, 120], anew_up_to=12, rounds=2)


def test_the_packets_are_one_task_of_exactly_that_many_and_the_same_every_time() -> None:
    packets = admission_packets(13)
    assert len(packets) == len({packet.packet_id for packet in packets}) == 13
    assert {packet.task_id for packet in packets} == {"task"}
    assert packets == admission_packets(13) != admission_packets(14)[:13]


def test_all_ways_admit_the_same_and_what_is_left_out_is_null(curve: pd.DataFrame) -> None:
    assert curve[["packets", "way"]].to_numpy().tolist() == [
        [count, way] for count in (1, 12, 120) for way in (GIVEN, MEASURED, ANEW)
    ]
    left_out = (curve["packets"] == 120) & (curve["way"] == ANEW)
    assert curve[~left_out].notna().all(axis=None) and curve[~left_out]["same"].all()
    assert curve[left_out].drop(columns=["packets", "way"]).isna().all(axis=None)
    timed = curve[~left_out]
    assert (timed["least"] <= timed["milliseconds"]).all() and (timed["milliseconds"] <= timed["most"]).all()
    assert timed["microseconds_per_packet"].tolist() == pytest.approx(
        (1000 * timed["milliseconds"] / timed["packets"]).tolist()
    )


def test_admitting_anew_is_algorithm_1() -> None:
    packets = admission_packets(30)
    scores = [float(-len(packet.content)) for packet in packets]
    cap = batch_bytes(packets) // 3
    anew = admit_anew(packets, scores, cap)
    assert anew == admit_static(packets, scores, cap)
    assert 0 < len(anew.admitted) < 30 and anew.bytes == batch_bytes(anew.admitted) <= cap


def test_a_way_that_admits_other_packets_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = admission.admit_static
    wrong = lambda packets, scores, cap, sizes=None: right(packets, scores, cap - 100 if sizes else cap, sizes=sizes)  # noqa: E731
    monkeypatch.setattr(admission, "admit_static", wrong)
    same = admission_curve([12], rounds=1).set_index("way")["same"]
    assert same.to_dict() == {GIVEN: False, MEASURED: True, ANEW: True}


def test_serialising_anew_grows_faster_than_a_pass_with_sizes() -> None:
    """From 50 to 800 packets the work of one grows 16 times, of the other 256 times; the machine may be busy."""
    curve = admission_curve([50, 800], rounds=3).pivot(index="way", columns="packets", values="least")
    growth = curve[800] / curve[50]
    assert growth[GIVEN] < 60 < growth[ANEW]


def test_numbers_below_one_are_refused() -> None:
    for wrong in ({"counts": [0]}, {"counts": [5], "rounds": 0}, {"counts": []}):
        with pytest.raises(ValueError, match="counts and rounds must be 1 or more"):
            admission_curve(**wrong)
