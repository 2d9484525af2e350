"""Strict recoding: no name is left, and nothing but the name is gone."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.arms import replay_messages, send_messages
from lib.coordination.exchange import ENCODINGS, Payload
from lib.coordination.recode import LOCATE, LeakError, leaked_names, recode, recode_messages, target_names
from tests.coordination.exchanges import Listening, step_set

NAME = "src/db/deletion.py"
PAYLOAD = Payload("edit", NAME, f"Collector in {NAME} skips; see Deletion.PY", "deletion.py is slow", "keep it")

artifacts = st.sampled_from([NAME, "find_temperature", "a.py", "x\\y.c", "target", "e", "edit"])
texts = st.lists(
    st.sampled_from([NAME, "deletion.py", "a.py", "y.c", "e", "the", "collector", " ", "A.PY"]), max_size=6
)


def test_the_name_is_masked_wherever_it_stands() -> None:
    assert recode(PAYLOAD) == Payload(
        "edit", LOCATE, "Collector in the target skips; see the target", "the target is slow", "keep it"
    )


@given(artifacts, texts.map("".join), texts.map(" ".join), st.sampled_from(ENCODINGS))
def test_no_recoded_text_holds_the_name_and_the_action_stays(
    artifact: str, rationale: str, context: str, encoding: str
) -> None:
    payload = Payload("read", artifact, rationale, context)
    sent = send_messages(Listening(), step_set(1).steps, 8)["one/0"]
    recoding = recode_messages({"one/0": msgspec.structs.replace(sent, payload=payload, encoding=encoding)})
    assert set(recoding.messages) ^ set(recoding.refused) == {"one/0"}
    for recoded in recoding.messages.values():
        assert not leaked_names(recoded.text, artifact)
        assert recoded.payload.action_type == "read" and "read" in recoded.text
        assert recoded.encoding == encoding


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (Payload("edit", "", "it fails"), "names no artifact"),
        (Payload("edit", NAME), "nothing but its name"),
        (Payload("edit", NAME, f"{NAME}: deletion.py"), "nothing but its name"),
        (Payload("edit", "edit", "it fails"), "still holds 'edit'"),
        (Payload("edit", "target", "the target fails"), "still holds 'target'"),
    ],
)
def test_refusals_say_why(payload: Payload, reason: str) -> None:
    with pytest.raises(LeakError, match=reason):
        recode(payload)


def test_names_are_the_path_and_its_basename() -> None:
    assert target_names("a\\b\\c.py/") == ("a\\b\\c.py/", "c.py")
    assert leaked_names("see C.PY", "a/c.py") == ("c.py",)


def test_an_encoding_that_spells_the_name_itself_is_refused() -> None:
    sent = send_messages(Listening(), step_set(1).steps, 8)["one/0"]
    clash = msgspec.structs.replace(sent, payload=Payload("go", "constraint", "it", "", "no retry"), encoding="json")
    assert "encoding json itself" in recode_messages({"a": clash}).refused["a"]


def test_recoded_messages_replay_and_raw_ones_are_refused() -> None:
    steps = step_set().steps
    messages = send_messages(Listening(), steps, 16)
    messages["one/0"] = msgspec.structs.replace(messages["one/0"], payload=None)
    recoding = recode_messages(messages)
    assert list(recoding.messages) == ["one/1", "one/2"] and "payload" in recoding.refused["one/0"]
    records = replay_messages([Listening()], steps[1:], recoding.messages)
    # This receiver follows names alone, so it loses what it knew; step and gold are the same ones.
    assert [one.artifact_pred for one in records] == ["src/file_2.py"] * 2
    assert all("src/file" not in one.message_shown for one in records)
