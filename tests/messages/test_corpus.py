"""Corpora: byte-identical reload, manifest, damage named by file and line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib.messages.corpus import MANIFEST, Corpus, CorpusError, freeze, load_corpus, save_corpus
from lib.messages.message import Message
from tests.messages.strategies import task_messages
from tests.messages.test_message import message

ORIGIN = {
    "prompts_sha256": "p" * 64,
    "sources_sha256": "s" * 64,
    "model": "scripted",
    "model_fingerprint": "f" * 64,
    "decoding": {"temperature": 0.0, "max_tokens": 256, "stop": ("\n",)},
}


def corpus(count: int = 3) -> Corpus:
    items = [
        message(slot=slot, turn=slot, fallback=slot == 1, claim=f"claim number {slot} 😀\u200d")
        for slot in range(count)
    ]
    return freeze("worlds", "1+abc", [*items[::-1], message(task_id="t0")], ORIGIN)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def messages_file(folder: Path) -> Path:
    (path,) = folder.glob("messages-*.jsonl")
    return path


def test_reload_is_equal_and_resaves_to_the_same_bytes(tmp_path: Path) -> None:
    item = corpus()
    save_corpus(tmp_path / "a", item)
    loaded = load_corpus(tmp_path / "a")
    assert loaded == item
    save_corpus(tmp_path / "b", loaded)
    assert files(tmp_path / "a") == files(tmp_path / "b")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(task_messages())
def test_hostile_messages_reload_byte_for_byte(tmp_path: Path, items: list[Message]) -> None:
    item = freeze("worlds", "1", items, ORIGIN)
    save_corpus(tmp_path, item)
    loaded = load_corpus(tmp_path)
    assert loaded == item
    assert [m.text for m in loaded.messages] == [m.text for m in sorted(items, key=lambda m: m.slot)]


@given(st.permutations(range(4)))
def test_order_given_does_not_matter(order: list[int]) -> None:
    items = [message(slot=slot) for slot in range(4)]
    assert freeze("w", "1", [items[i] for i in order], ORIGIN) == freeze("w", "1", items, ORIGIN)


def test_messages_are_sorted_and_grouped() -> None:
    item = corpus()
    assert [(m.task_id, m.slot) for m in item.messages] == [("t0", 0), ("t1", 0), ("t1", 1), ("t1", 2)]
    assert {task: [m.slot for m in group] for task, group in item.by_task().items()} == {"t0": [0], "t1": [0, 1, 2]}


def test_manifest_counts_and_origin() -> None:
    manifest = corpus().manifest
    assert (manifest["messages"], manifest["tasks"], manifest["fallbacks"]) == (4, 2, 1)
    assert manifest["decoding"]["stop"] == ["\n"]
    assert {key: manifest[key] for key in ("prompts_sha256", "sources_sha256", "model_fingerprint")} == {
        key: ORIGIN[key] for key in ("prompts_sha256", "sources_sha256", "model_fingerprint")
    }
    assert corpus().fallback_rate == 0.25
    assert freeze("w", "1", [], ORIGIN).fallback_rate != freeze("w", "1", [], ORIGIN).fallback_rate  # NaN, never 0


def test_saving_again_touches_nothing(tmp_path: Path) -> None:
    save_corpus(tmp_path, corpus())
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    save_corpus(tmp_path, corpus())
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_new_corpus_replaces_the_old_one_whole(tmp_path: Path) -> None:
    save_corpus(tmp_path, corpus(2))
    save_corpus(tmp_path, corpus(3))
    assert load_corpus(tmp_path) == corpus(3)
    assert len(list(tmp_path.iterdir())) == 2


def test_write_cut_before_the_manifest_leaves_the_old_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_corpus(tmp_path, corpus(2))
    replace = os.replace

    def die_at_manifest(source: str, target: Path) -> None:
        if Path(target).name == MANIFEST:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr("lib.messages.corpus.os.replace", die_at_manifest)
    with pytest.raises(KeyboardInterrupt):
        save_corpus(tmp_path, corpus(3))
    monkeypatch.undo()
    assert load_corpus(tmp_path) == corpus(2)
    assert not list(tmp_path.glob(".*"))
    save_corpus(tmp_path, corpus(3))
    assert load_corpus(tmp_path) == corpus(3)


def test_tampered_line_is_named(tmp_path: Path) -> None:
    save_corpus(tmp_path, corpus())
    path = messages_file(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"claim number 1", b"claim number 9"))
    with pytest.raises(CorpusError, match=r"messages-.*\.jsonl, line 3: changed since"):
        load_corpus(tmp_path)


@pytest.mark.parametrize("cut", [5, 1])
def test_torn_tail_is_named(tmp_path: Path, cut: int) -> None:
    """Case 34: the last record is cut, once inside it and once before its line feed."""
    save_corpus(tmp_path, corpus())
    path = messages_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CorpusError, match=r"\.jsonl, line 4: torn record"):
        load_corpus(tmp_path)


def test_half_a_character_at_the_end_is_named(tmp_path: Path) -> None:
    """Case 34: a file that ends in byte 0xF0."""
    save_corpus(tmp_path, corpus())
    path = messages_file(tmp_path)
    path.write_bytes(path.read_bytes() + b"\xf0")
    with pytest.raises(CorpusError, match=r"\.jsonl, line 5: torn record"):
        load_corpus(tmp_path)


def test_missing_and_extra_lines_are_named(tmp_path: Path) -> None:
    save_corpus(tmp_path, corpus())
    path = messages_file(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(CorpusError, match="line 4: 3 records where 4 were frozen"):
        load_corpus(tmp_path)
    path.write_bytes(b"".join([*lines, lines[-1]]))
    with pytest.raises(CorpusError, match="line 5: 5 records where 4 were frozen"):
        load_corpus(tmp_path)


def test_torn_manifest_is_named_with_its_line(tmp_path: Path) -> None:
    save_corpus(tmp_path, corpus())
    path = tmp_path / MANIFEST
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(CorpusError, match=r"manifest\.json, line \d+: torn or not JSON"):
        load_corpus(tmp_path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CorpusError, match=r"manifest\.json, line 1: not UTF-8"):
        load_corpus(tmp_path)


@pytest.mark.parametrize("key", ["messages_sha256", "decoding", "lines_sha256"])
def test_missing_manifest_field_is_named(tmp_path: Path, key: str) -> None:
    save_corpus(tmp_path, corpus())
    manifest = json.loads((tmp_path / MANIFEST).read_text(encoding="utf-8"))
    del manifest[key]
    (tmp_path / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(CorpusError, match=rf"manifest\.json: .*missing required field `{key}`"):
        load_corpus(tmp_path)


def test_missing_folder_and_foreign_version(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no such file"):
        load_corpus(tmp_path / "none")
    save_corpus(tmp_path, corpus())
    assert load_corpus(tmp_path, version="1+abc").version == "1+abc"
    with pytest.raises(CorpusError, match=r"'1\+abc', not '2'"):
        load_corpus(tmp_path, version="2")


def test_freeze_refuses_doubles_and_bad_origin() -> None:
    with pytest.raises(CorpusError, match="two messages in slot 0"):
        freeze("w", "1", [message(), message(turn=2)], ORIGIN)
    with pytest.raises(CorpusError, match=r"lacks \['model'\] and has unknown \['modell'\]"):
        freeze("w", "1", [], {"modell" if key == "model" else key: value for key, value in ORIGIN.items()})
    with pytest.raises(CorpusError, match=r"origin: Expected `str`, got `null` - at `\$\.model`"):
        freeze("w", "1", [], {**ORIGIN, "model": None})


def test_hand_made_manifest_is_not_saved(tmp_path: Path) -> None:
    item = corpus()
    with pytest.raises(CorpusError, match="does not match"):
        save_corpus(tmp_path, Corpus(item.workload, item.version, item.messages[:1], item.manifest))
