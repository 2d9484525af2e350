"""Promotion gate: fallback rate, restoration, positive effects."""

from __future__ import annotations

import pandas as pd
import pytest

from lib.bandmas import promotion
from lib.bandmas.promotion import promotion_gate
from lib.messages import Message, freeze


def messages(count: int, fallbacks: int) -> list[Message]:
    return [
        Message(
            "t1",
            slot,
            slot,
            f"reader_{slot}",
            "verifier",
            "D",
            "a claim here",
            "b",
            "c",
            "d",
            fallback=slot < fallbacks,
        )
        for slot in range(count)
    ]


def effects(*rce: float | None) -> pd.DataFrame:
    return pd.DataFrame({"packet_id": [f"p{i}" for i in range(len(rce))], "rce": rce}).astype({"rce": float})


def test_gate_passes_at_ten_percent_fallbacks_with_one_positive_effect() -> None:
    gate = promotion_gate(effects(0.5, 0.0, 0.0, -0.1), messages(10, 1))
    assert gate.passed
    assert gate.reasons == ()
    assert (gate.fallback_rate, gate.positive_share, gate.zero_share, gate.negative_share) == (0.1, 0.25, 0.5, 0.25)


def test_gate_reads_a_corpus() -> None:
    origin = {"prompts_sha256": "p", "sources_sha256": "s", "model": "m", "model_fingerprint": "f", "decoding": {}}
    assert promotion_gate(effects(0.5), freeze("w", "1", messages(10, 1), origin)).fallback_rate == 0.1


def test_too_many_fallbacks_fail() -> None:
    gate = promotion_gate(effects(0.5), messages(10, 2))
    assert not gate.passed
    assert gate.reasons == ("malformed traffic: 20.0% of messages are fallbacks, at most 10.0% may be",)
    assert promotion_gate(effects(0.5), messages(10, 2), max_fallback_rate=0.2).passed


@pytest.mark.parametrize("rce", [(), (0.0, -0.2), (None, None), (5e-10,)])
def test_no_positive_effect_fails(rce: tuple[float | None, ...]) -> None:
    gate = promotion_gate(effects(*rce), messages(10, 0))
    assert not gate.passed
    assert "no positive replay effect" in gate.reasons[0]
    assert gate.positive_share in (None, 0.0)


def test_no_messages_and_broken_packets_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert promotion_gate(effects(0.5), []).reasons == ("the corpus has no messages",)
    monkeypatch.setattr(promotion, "reassemble", lambda packets: "lost")
    gate = promotion_gate(effects(0.5), messages(2, 0))
    assert gate.broken == ("t1|m00", "t1|m01")
    assert "2 messages are not restored" in gate.reasons[0]
