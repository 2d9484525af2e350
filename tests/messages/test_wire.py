"""Wire: exact bytes, order, headers, torn input, incremental accounting, cuts."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.messages import (
    Message,
    Packet,
    WireAccount,
    WireError,
    batch_bytes,
    decode_batch,
    encode_batch,
    packet_bytes,
    packetize,
    packetize_task,
)
from lib.messages.wire import KEYS, context_tokens, cut_bytes, size_table
from tests.messages.strategies import any_text, task_messages
from tests.messages.test_message import message


def reference(packets: list[Packet], shared_header: bool) -> bytes:
    """The format again, written with the standard library alone."""
    packets = sorted(packets, key=lambda packet: packet.packet_id)
    keys = KEYS[2:] if shared_header else KEYS
    rows: list[dict[str, object]] = [{key: getattr(packet, key) for key in keys} for packet in packets]
    if shared_header and packets:
        receiver = packets[0].route.split("->")[-1]
        rows.insert(0, {"task_id": packets[0].task_id, "receiver": receiver, "n": len(packets)})
    return "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows).encode()


@given(task_messages(), st.booleans())
def test_bytes_match_the_standard_library(items: list[Message], shared: bool) -> None:
    packets = packetize_task(items)
    data = encode_batch(packets, shared_header=shared)
    assert data == reference(packets, shared)
    assert batch_bytes(packets, shared_header=shared) == len(data)


def test_every_character_costs_what_json_costs() -> None:
    packet = packetize(message())[0]
    every = "".join(chr(code) for code in range(0xD800)) + "😀\U0010ffff"
    packet = msgspec.structs.replace(packet, content=every)
    assert encode_batch([packet]) == reference([packet], False)


def test_record_form_and_empty_batch() -> None:
    packets = packetize(message())
    assert encode_batch(packets[:1]) == (
        b'{"task_id":"t1","route":"reader_0->verifier","message_id":"m00","group_id":"g00","segment":0,"type":"claim",'
        b'"content":"Water boils at 100 C"}\n'
    )
    assert encode_batch([]) == b""
    assert encode_batch([], shared_header=True) == b""
    assert batch_bytes([]) == 0
    assert decode_batch(b"") == []


@given(task_messages(), st.booleans(), st.randoms(use_true_random=False))
def test_bytes_do_not_depend_on_the_order_given(items: list[Message], shared: bool, rng: object) -> None:
    packets = packetize_task(items)
    mixed = packets.copy()
    rng.shuffle(mixed)
    assert encode_batch(mixed, shared_header=shared) == encode_batch(packets, shared_header=shared)


@given(task_messages(), st.booleans())
def test_decode_returns_what_was_encoded(items: list[Message], shared: bool) -> None:
    packets = packetize_task(items, "sentence")
    records = decode_batch(encode_batch(packets, shared_header=shared))
    assert [record["content"] for record in records] == [packet.content for packet in packets]
    assert [(r["message_id"], r["segment"]) for r in records] == [(p.message_id, p.segment) for p in packets]
    if shared:
        assert all(record["receiver"] == "verifier" and record["task_id"] == "task-1" for record in records)
    else:
        assert [record["route"] for record in records] == [packet.route for packet in packets]


@settings(max_examples=200)
@given(task_messages(), st.booleans(), st.data())
def test_account_agrees_with_full_serialisation(items: list[Message], shared: bool, data: st.DataObject) -> None:
    packets = data.draw(st.permutations(packetize_task(items, "sentence")))
    account, held = WireAccount(shared_header=shared), []
    assert account.bytes == 0
    for packet in packets:
        asked = account.bytes_if_added(packet)
        assert asked == batch_bytes([*held, packet], shared_header=shared)
        assert account.bytes == batch_bytes(held, shared_header=shared) < asked
        if data.draw(st.booleans()):
            held.append(packet)
            assert account.add(packet) == asked
            assert account.count == len(held)


def test_account_follows_the_digits_of_the_header_count() -> None:
    packets = packetize(message(claim=" ".join(f"Sentence number {i} is here." for i in range(120))), "sentence")
    account = WireAccount(shared_header=True)
    for count, packet in enumerate(packets, start=1):
        assert account.add(packet) == len(encode_batch(packets[:count], shared_header=True))
    assert account.count > 100


def test_account_asks_without_touching_the_batch_and_encodes_one_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a question does not grow with the batch: one record is encoded, however many are held."""
    packets = packetize(message(claim=" ".join(f"Sentence number {i} is here." for i in range(50))), "sentence")
    account = WireAccount()
    for packet in packets[:-1]:
        account.add(packet)
    calls = []
    original = msgspec.json.encode
    monkeypatch.setattr("lib.messages.wire.msgspec.json.encode", lambda record: calls.append(1) or original(record))
    account.bytes_if_added(packets[-1])
    assert len(calls) == 1
    assert account.count == len(packets) - 1


def test_doubled_packet_is_refused() -> None:
    packet = packetize(message())[0]
    account = WireAccount()
    account.add(packet)
    for act in (lambda: encode_batch([packet, packet]), lambda: account.add(packet)):
        with pytest.raises(WireError, match=r"'t1\|m00\|s00' occurs twice"):
            act()


def test_shared_header_is_for_one_task_and_receiver() -> None:
    first = packetize(message())[0]
    for other in (packetize(message(task_id="t2"))[0], packetize(message(slot=1, receiver="answerer"))[0]):
        account = WireAccount(shared_header=True)
        account.add(first)
        with pytest.raises(WireError, match="one task and one receiver"):
            encode_batch([first, other], shared_header=True)
        with pytest.raises(WireError, match="one task and one receiver"):
            account.add(other)
        assert batch_bytes([first, other]) == packet_bytes(first) + packet_bytes(other)


def test_surrogate_is_refused_by_packet() -> None:
    packet = msgspec.structs.replace(packetize(message())[0], content="\ud83d")
    with pytest.raises(WireError, match=r"packet 't1\|m00\|s00'"):
        encode_batch([packet])


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'{"id": 7, "tex', 1),
        (b"\xf0", 1),
        (b"\xf0\n", 1),
        (b"[1]\n", 1),
        (b'{"task_id":"t"}\n', 1),
        (b"[" * 100_000 + b"\n", 1),
    ],
)
def test_torn_or_foreign_lines_are_named(data: bytes, line: int) -> None:
    """Case 34: a torn tail is refused by its line, wherever it stands."""
    good = encode_batch(packetize(message()))
    with pytest.raises(WireError, match=f"^line {line}:"):
        decode_batch(data)
    with pytest.raises(WireError, match=f"^line {good.count(10) + line}:"):
        decode_batch(good + data)


def test_header_count_is_checked() -> None:
    data = encode_batch(packetize(message()), shared_header=True)
    with pytest.raises(WireError, match="announces 2 records, 1 follow"):
        decode_batch(b"\n".join(data.split(b"\n")[:2]) + b"\n")


def test_envelope_is_the_larger_part_of_a_short_packet() -> None:
    """Spec 0, F3: short fields with a verbose envelope put most of the wire into the envelope."""
    packets = packetize(
        message(task_id="scifact-1234", uncertainty="altitude was not given", request="send the altitude please")
    )
    content = sum(len(packet.content.encode()) for packet in packets)
    assert 0.68 <= 1 - content / batch_bytes(packets) <= 0.85


@given(any_text, st.integers(0, 60))
def test_cut_is_the_longest_prefix_within_the_limit(text: str, limit: int) -> None:
    cut = cut_bytes(text, limit)
    assert text.startswith(cut)
    assert len(cut.encode()) <= limit
    assert cut == text or len(text[: len(cut) + 1].encode()) > limit


def test_case_28_bytes_are_utf8_bytes_and_cuts_keep_code_points() -> None:
    """Case 28: ten emoji and an accent under 17 bytes; a family emoji with joiners; columns kept apart."""
    text = "😀" * 10 + "é"
    assert cut_bytes(text, 17) == "😀" * 4
    family = "👨‍👩‍👧‍👦"
    assert [len(cut_bytes(family, limit).encode()) for limit in (3, 4, 7, 11, 25)] == [0, 4, 7, 11, 25]
    packet = msgspec.structs.replace(packetize(message())[0], content=text)
    row = size_table([packet], lambda texts: [3 for _ in texts]).iloc[0]
    assert (row["chars"], row["content_bytes"], row["tokens"]) == (11, 42, 3)
    assert row["wire_bytes"] == len(encode_batch([packet]))


def test_tokens_are_null_without_a_counter_and_the_estimate_is_separate() -> None:
    packets = packetize(message())
    assert size_table(packets)["tokens"].isna().all()
    assert context_tokens([msgspec.structs.replace(packets[0], content="12345")]) == [2]
    assert context_tokens([msgspec.structs.replace(packets[0], content="")]) == [0]
    assert context_tokens(packets, lambda texts: [len(text.split()) for text in texts])[0] == 5
