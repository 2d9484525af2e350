"""All arms of a comparison: each sender once a family, the same text for every receiver, and nothing asked a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from lib.coordination.closure import check_fixed_messages
from lib.coordination.gain_study import ask_arms
from lib.coordination.scoring import score_families
from lib.runs.store import Store
from lib.runs.stored import StoredReceiver
from lib.tasks import load_families
from tests.coordination.exchanges import Listening, is_sender, step_set

FAMILIES = {"toy": step_set().steps}


def test_senders_write_once_and_receivers_read_the_same() -> None:
    receivers = [Listening(name="one"), Listening(name="two")]
    sender = Listening(name="sender")
    asked = ask_arms(FAMILIES, receivers, [sender, receivers[0]], budget=4)
    assert [one.batches for one in (sender, *receivers)] == [1, 5, 4], "a matched sender is asked to write as well"
    assert len(sender.prompts) == 3 and all(is_sender(prompt) for prompt in sender.prompts)
    assert set(asked.messages) == {("toy", "sender"), ("toy", "one")}
    counts = [(one.receiver_model, one.arm, one.sender_model) for one in asked.records]
    assert {key: counts.count(key) for key in counts} == {
        (name, arm, who): 3
        for name in ("one", "two")
        for arm, who in (("RO", None), ("SF", None), ("MA", "sender"), ("MA", "one"))
    }
    scored = score_families(asked.records, {"toy": step_set()}, snap=False)
    check_fixed_messages(scored, ["sender_model"])
    assert scored[scored["arm"] == "MA"]["message_tokens"].le(4).all()


def test_an_identical_run_asks_nobody(tmp_path: Path) -> None:
    def once() -> tuple[list[object], int]:
        models = [Listening(name="one"), Listening(name="two")]
        stored = [StoredReceiver(model, Store(tmp_path / "store.sqlite")) for model in models]
        records = ask_arms(FAMILIES, stored, [stored[0]], budget=8).records
        return list(records), sum(len(model.prompts) for model in models)

    first, asked = once()
    again, later = once()
    assert asked == 3 + 2 * 9 and later == 0, "three messages; three arms of two receivers"
    assert again == first


def test_the_same_step_ids_in_two_families_stay_apart() -> None:
    sets = load_families(["shared_episodes", "shared_episodes:fresh=1.0"], 1)
    asked = ask_arms({name: one.steps for name, one in sets.items()}, [Listening()], [])
    scored = score_families(asked.records, sets, snap=False)
    assert list(scored.index) == list(range(40)) and list(scored["step_id"][:2]) == [
        one.step_id for one in asked.records[:2]
    ]
    assert scored.groupby("benchmark").size().to_dict() == dict.fromkeys(sets, 20)
    with pytest.raises(ValueError, match="'toy': it has records but was not loaded"):
        score_families(ask_arms(FAMILIES, [Listening()], []).records, sets, snap=False)
    assert score_families([], sets, snap=False).empty


def test_refusals() -> None:
    with pytest.raises(ValueError, match="receivers: names must differ"):
        ask_arms(FAMILIES, [Listening(), Listening()], [])
    with pytest.raises(ValueError, match="senders: names must differ"):
        ask_arms(FAMILIES, [Listening()], [Listening(name="s"), Listening(name="s")])
    with pytest.raises(ValueError, match="at least one"):
        ask_arms(FAMILIES, [], [Listening()])
