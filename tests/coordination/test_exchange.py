"""Records as a frame, the rates that belong beside every comparison, and the examples in the docstrings."""

from __future__ import annotations

import doctest
import importlib

import msgspec
import pandas as pd
import pytest

from lib.coordination.arms import replay_messages, run_arms, send_messages
from lib.coordination.exchange import Record, message_rates, records_frame
from tests.coordination.exchanges import Listening, decide, is_sender, step_set

STEPS = step_set(4).steps


@pytest.mark.parametrize("module", ["parse", "payload", "prompts", "recode", "scoring"])
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"lib.coordination.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


def test_a_frame_keeps_fields_and_nulls() -> None:
    records = run_arms(STEPS, receiver=Listening(), budget=8)
    frame = records_frame(records)
    assert list(frame.columns) == list(Record.__struct_fields__) and len(frame) == 12
    alone = frame[frame["arm"] == "RO"].iloc[0]
    assert alone["message_empty"] is pd.NA and alone["budget_tokens"] is pd.NA and alone["message_shown"] is None
    assert frame["budget_tokens"].sum() == 32 and frame["parse_valid"].all()
    assert list(records_frame([]).columns) == list(frame.columns)


def test_rates_count_what_went_wrong() -> None:
    """Of four messages one is empty and one is raw text; one receiver call fails; one reply is unreadable."""

    def sender(prompt):  # type: ignore[no-untyped-def]
        text = prompt.turns[1].text
        return "" if "Ticket 0" in text else "Edit it." if "Ticket 1" in text else decide(prompt)

    def receiver(prompt):  # type: ignore[no-untyped-def]
        if "Ticket 2" in prompt.turns[1].text:
            raise RuntimeError("no memory")
        return "no idea" if "Ticket 3" in prompt.turns[1].text else decide(prompt)

    model, other = Listening(receiver), Listening(sender, "other")
    records = run_arms(STEPS, receiver=model, sender=other, arms=("RO", "MA"), budget=4)
    rates = message_rates(records_frame(records)).set_index("arm")
    assert rates.loc["MA", ["steps", "failed"]].tolist() == [4, 1]
    shares = rates.loc["MA", ["empty", "truncated", "capped", "raw_text", "unreadable"]].tolist()
    assert shares == pytest.approx([0.25, 0.5, 0.0, 0.5, 1 / 3])
    assert rates.loc["RO", ["empty", "truncated", "capped", "raw_text"]].isna().all()
    assert rates.loc["RO", "unreadable"] == pytest.approx(1 / 3)


def test_rates_of_capped_senders_and_of_no_answers() -> None:
    sender = Listening(lambda prompt: "word " * 9 if is_sender(prompt) else decide(prompt))
    messages = send_messages(sender, STEPS, 4, mode="direct")
    frame = records_frame(replay_messages([sender], STEPS, messages, budgets=(0, None)))
    rates = message_rates(frame, by=["budget_tokens"])
    assert rates["capped"].tolist() == [1.0, 1.0] and rates["raw_text"].isna().all()
    assert rates["empty"].tolist() == [1.0, 0.0] and rates["truncated"].tolist() == [1.0, 0.0]
    lost = frame.assign(answered=False, parse_valid=pd.NA).astype({"parse_valid": "boolean"})
    assert message_rates(lost, by=["arm"]).loc[0, "unreadable"] is pd.NA


def test_records_survive_json() -> None:
    records = run_arms(STEPS, receiver=Listening())
    assert msgspec.json.decode(msgspec.json.encode(records), type=list[Record]) == records
