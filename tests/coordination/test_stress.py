"""Stored messages under stress: pairs with the whole message, fields that were kept, names that must not leak."""

from __future__ import annotations

import msgspec
import pandas as pd
import pytest

from lib.coordination.arms import replay_messages
from lib.coordination.recode import LeakError
from lib.coordination.scoring import score_records
from lib.coordination.sending import encode_again, send_messages
from lib.coordination.stress import (
    assert_no_leak,
    kept_and_followed,
    message_lengths,
    recoded,
    recoding_drop,
    with_whole,
)
from tests.coordination.exchanges import Listening, step_set

SET = step_set()
SENT = send_messages(Listening(name="sender"), SET.steps, 64)


def swept(budgets: tuple[int | None, ...] = (0, 7, None), encoding: str = "prose") -> pd.DataFrame:
    records = replay_messages([Listening()], SET.steps, encode_again(SENT, encoding), budgets=budgets)
    return score_records(records, SET.gold, SET.steps, snap=False)


def test_each_row_stands_beside_the_whole_message() -> None:
    pairs = with_whole(swept((0, 7, 200, None)))
    rates = pairs.groupby("budget_tokens")[["left", "right"]].mean()
    # Seven words name the action, not the file; the receiver falls back to reading the first one.
    assert rates["right"].eq(1).all() and rates["left"].tolist() == [0, 0, 1]
    uncut = pairs[~pairs["message_truncated"]]
    assert set(uncut["budget_tokens"]) == {200} and uncut["delta"].eq(0).all()
    with pytest.raises(ValueError, match="whole message was not read"):
        with_whole(swept((0, 7)))


def test_fields_that_a_cut_leaves() -> None:
    frame = swept((3, 5, None), "header")
    found = kept_and_followed(frame, {"toy": SENT}, {"toy": SET}).set_index("budget_tokens")
    assert (
        set(found["encoding_format"]) == {"header"}
        and found["cut"].tolist() == [3, 3]
        and found["kept_both"].tolist() == [3, 3]
    )
    assert (
        found["followed_both"].tolist() == [3, 3] and found["hit_kept"].eq(1).all() and found["hit_lost"].isna().all()
    )
    lost = kept_and_followed(swept((7, None)), {"toy": SENT}, {"toy": SET}).iloc[0]
    assert (lost["cut"], lost["kept_both"], lost["followed_both"], lost["hit_lost"]) == (3, 0, 0, 0.0)
    bare = {"toy": {name: msgspec.structs.replace(one, payload=None) for name, one in SENT.items()}}
    assert kept_and_followed(frame, bare, {"toy": SET}).empty


def test_lengths_count_what_was_written() -> None:
    one = next(iter(SENT.values()))
    others = {
        "silent": msgspec.structs.replace(one, step_id="silent", text="", payload=None, tries=2),
        "capped": msgspec.structs.replace(one, step_id="capped", text="a b c", payload=None, finish="length"),
    }
    row = message_lengths({"toy": {**SENT, **others}}, Listening()).iloc[0]
    assert (row["messages"], row["longest"]) == (5, len(one.text.split()))
    assert row[["empty", "capped", "raw_text", "asked_twice"]].tolist() == [0.2, 0.2, 0.4, 0.2]


def test_a_drop_is_measured_where_the_name_was_right_and_no_name_leaks() -> None:
    found = recoded(SENT)
    assert len(found.messages) == 3 and not found.refused
    again = score_records(replay_messages([Listening()], SET.steps, found.messages), SET.gold, SET.steps, snap=False)
    assert_no_leak(again, {"toy": SENT})
    drop = recoding_drop(swept((None,)), again)
    assert drop["right"].eq(1).all() and drop["left"].eq(0).all() and len(drop) == 3, "this reader copies names"
    assert recoding_drop(swept((0,)), again).empty, "nothing was right with an empty message"
    with pytest.raises(LeakError, match="shows 'src/file_0.py'"):
        assert_no_leak(swept((None,)), {"toy": SENT})
    broken = msgspec.structs.replace(SENT["one/0"], error="no memory", payload=None)
    assert recoded({**SENT, "one/0": broken}).refused == {"one/0": "the sender failed"}
