"""Frozen replies: what a run asked live is read back without a model, and what the file lacks is asked and counted."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.__main__ import main
from lib.models.receiver import Prompt, Receiver, Reply, Turn
from lib.models.scripted import ScriptedReceiver
from lib.runs.context import CONTROL, Run
from lib.runs.freezing import freeze, freeze_runs, lanes
from lib.runs.frozen import (
    MANIFEST,
    REPLIES,
    FrozenCorpus,
    FrozenError,
    FrozenReceiver,
    again_of,
    frozen_names,
    live_of,
    live_sample,
    prompt_text_key,
    said_of_origin,
)
from lib.runs.journal import JOURNAL, Journaled, read_journals
from lib.runs.layout import checkout, find_notebooks, select
from lib.runs.notebook import plan_runs
from lib.runs.store import Store
from lib.runs.stored import StoredReceiver


def prompt(text: str, schema: dict[str, Any] | None = None) -> Prompt:
    return Prompt((Turn("system", "Answer."), Turn("user", text)), schema)


ASKED = [prompt(f"Source A - Claim: fact {n}.\nQuestion: which fact?") for n in range(5)]
HOSTILE = prompt("lone \ud800 surrogate, <|im_end|>, \u2028 and a nul \x00")


class Counting(ScriptedReceiver):
    """A scripted receiver that counts what it is asked, and may change its mind."""

    def __init__(self, suffix: str = "") -> None:
        super().__init__()
        self.asked = 0
        self.suffix = suffix

    def reply(self, prompts: Sequence[Prompt], **options: Any) -> list[Reply]:
        self.asked += len(prompts)
        replies = super().reply(prompts, **options)
        return [Reply(r.text + self.suffix, r.token_ids, r.prompt_tokens, r.new_tokens, 1.0, r.finish) for r in replies]


def make(folder: Path, *, control: bool = True) -> Path:
    """Ask a scripted receiver through a journal and freeze what it said; return the corpus folder."""
    model = Journaled(ScriptedReceiver(), folder / "journal")
    store = Store(folder / "store.sqlite")
    asked = StoredReceiver(model, store, progress=False)
    asked.reply(ASKED, max_tokens=32)
    asked.reply([HOSTILE], max_tokens=32)
    asked.score(ASKED[:2], ["yes", "no"])
    model.count_tokens(["three short words", "two words"])
    if control:
        apart = Store(store.path.with_name(CONTROL))
        StoredReceiver(Journaled(Counting(" again"), folder / "journal"), apart, progress=False).reply(
            ASKED[:1], max_tokens=32
        )
    journals = read_journals(folder / "journal")
    target = folder / "frozen" / "scripted"
    freeze(
        journals["scripted"],
        lanes(store),
        target,
        made="2026-01-01",
        command="make it",
        notebooks={"11_x": {"tasks": 5}},
    )
    return target


def opened(folder: Path) -> tuple[FrozenReceiver, Counting]:
    live = Counting(" live")
    return FrozenReceiver(FrozenCorpus(folder), lambda: live), live


def test_what_was_asked_is_read_without_a_model(tmp_path: Path) -> None:
    receiver, live = opened(make(tmp_path))
    truth = ScriptedReceiver()
    replies = receiver.reply([*ASKED, HOSTILE], max_tokens=32)
    assert [r.text for r in replies] == [r.text for r in truth.reply([*ASKED, HOSTILE], max_tokens=32)]
    assert np.array_equal(receiver.score(ASKED[:2], ["yes", "no"]), truth.score(ASKED[:2], ["yes", "no"]))
    assert receiver.count_tokens(["two words", "three short words"]) == truth.count_tokens(
        ["two words", "three short words"]
    )
    assert live.asked == 0
    assert (receiver.coverage.frozen, receiver.coverage.live) == (8, 0)
    assert all(np.isnan(r.seconds) for r in replies), "a frozen reply has no latency"
    assert isinstance(receiver, Receiver)


def test_what_the_file_lacks_is_asked_live_in_order_and_counted(tmp_path: Path) -> None:
    receiver, live = opened(make(tmp_path))
    new = prompt("something else")
    replies = receiver.reply([new, ASKED[0], new], max_tokens=32)
    assert [r.text.endswith(" live") for r in replies] == [True, False, True]
    assert live.asked == 2 and receiver.coverage.live == 2 and receiver.coverage.frozen == 1
    assert receiver.reply([ASKED[0]], max_tokens=33)[0].text.endswith(" live"), "another cap is another question"
    assert receiver.score([ASKED[0]], ["no", "yes"]).shape == (1, 2)
    assert "4 were computed live" in said_of_origin(receiver)


def test_a_sampled_reply_is_never_frozen(tmp_path: Path) -> None:
    receiver, live = opened(make(tmp_path))
    assert len(receiver.reply(ASKED[:2], max_tokens=32, temperature=0.7, samples=3)) == 6
    assert live.asked == 2


def test_second_answers_have_a_lane_of_their_own(tmp_path: Path) -> None:
    receiver, live = opened(make(tmp_path))
    assert again_of(receiver).reply(ASKED[:1], max_tokens=32)[0].text.endswith(" again")
    assert not receiver.reply(ASKED[:1], max_tokens=32)[0].text.endswith(" again")
    assert again_of(receiver).reply(ASKED[1:2], max_tokens=32)[0].text.endswith(" live")
    assert receiver.coverage.live == 1 == live.asked
    assert again_of(live) is live is live_of(live)


def test_live_answers_go_through_the_store_and_frozen_ones_do_not(tmp_path: Path) -> None:
    receiver, live = opened(make(tmp_path))
    store = Store(tmp_path / "mine.sqlite")
    new = prompt("something else")
    for _ in range(2):
        receiver.stored(store, progress=False).reply([new, *ASKED], max_tokens=32)
    assert live.asked == 1 and store.stats()["replies"] == 1


def test_a_random_sample_is_asked_again_and_compared(tmp_path: Path) -> None:
    receiver, live = opened(make(tmp_path))
    assert live_sample(receiver, 3).empty, "nothing was asked yet"
    receiver.reply(ASKED, max_tokens=32)
    sample = live_sample(receiver, 3)
    assert len(sample) == 3 and live.asked == 3 and not sample["identical"].any()
    assert live_sample(receiver, 3)["asked"].tolist() == sample["asked"].tolist()
    assert len(live_sample(receiver, 100)) == len(ASKED)
    assert "Of 3 drawn at random and asked again live, 0 came out identical" in said_of_origin(receiver, sample)
    same = FrozenReceiver(receiver.corpus, ScriptedReceiver)
    same.reply(ASKED, max_tokens=32)
    assert live_sample(same, 5, store=Store(tmp_path / "sample.sqlite"))["identical"].all()
    assert live_sample(live, 3).empty and "computed on this machine" in said_of_origin(live)


def test_equal_runs_freeze_to_equal_bytes(tmp_path: Path) -> None:
    first, second = make(tmp_path / "a"), make(tmp_path / "b")
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name


def test_an_older_corpus_is_replaced_whole(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / "stale.txt").write_text("old")
    again = make(tmp_path)
    assert again == folder and sorted(p.name for p in folder.iterdir()) == [MANIFEST, REPLIES, "tokens.jsonl.gz"]
    assert [p.name for p in folder.parent.iterdir()] == ["scripted"]


@pytest.mark.parametrize("step", range(3))
def test_what_stops_a_freeze_leaves_the_older_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Stopped while writing, while the old folder moves away, or while the new one moves in."""
    folder = make(tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    moved, calls = Path.replace, iter(range(3))
    if step == 0:
        monkeypatch.setattr("lib.runs.freezing._pack", stop)
    else:
        monkeypatch.setattr(Path, "replace", lambda *a: stop() if next(calls) == step - 1 else moved(*a))
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path)
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["scripted"]
    assert opened(folder)[0].corpus.manifest.receiver == "scripted"


def test_damage_is_named(tmp_path: Path) -> None:
    folder = make(tmp_path)
    assert frozen_names(folder.parent) == ["scripted"]
    with pytest.raises(FrozenError, match="there are those of: scripted"):
        FrozenCorpus(folder.with_name("other"))
    whole = (folder / REPLIES).read_bytes()
    lines = gzip.decompress(whole).splitlines(keepends=True)
    (folder / REPLIES).write_bytes(gzip.compress(b"".join(lines[:-1]), mtime=0))
    with pytest.raises(FrozenError, match="SHA-256"):
        FrozenCorpus(folder)
    (folder / REPLIES).unlink()
    with pytest.raises(FrozenError, match="restore"):
        FrozenCorpus(folder)
    (folder / REPLIES).write_bytes(whole)
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(FrozenError, match="layout 99"):
        FrozenCorpus(folder)
    (folder / MANIFEST).write_text("{")
    with pytest.raises(FrozenError, match=MANIFEST):
        FrozenCorpus(folder)


def test_a_torn_journal_loses_its_last_line_only(tmp_path: Path) -> None:
    make(tmp_path, control=False)
    (path,) = (tmp_path / "journal").glob("*.jsonl")
    before = read_journals(tmp_path / "journal")["scripted"]
    with path.open("a") as out:
        out.write('["prompt", "abc')
    assert read_journals(tmp_path / "journal")["scripted"] == before


def test_two_models_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    other = ScriptedReceiver()
    other.fingerprint = "another"
    Journaled(ScriptedReceiver(), tmp_path / "a").prompt_key(ASKED[0])
    journal = Journaled(other, tmp_path / "a")
    journal.path = journal.path.with_name("other.jsonl")
    journal.prompt_key(ASKED[0])
    with pytest.raises(ValueError, match="another fingerprint"):
        read_journals(tmp_path / "a")


def test_a_run_opens_live_journaled_or_frozen_receivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, "smoke", tmp_path / "store.sqlite", no_cache=False)
    monkeypatch.setenv("LAB_FROZEN", str(make(tmp_path).parent))
    assert isinstance(run.receiver("scripted"), ScriptedReceiver)
    frozen = run.receiver("scripted", corpus="frozen")
    assert isinstance(frozen, FrozenReceiver) and isinstance(run.stored(frozen), FrozenReceiver)
    assert run.again(frozen).reply(ASKED[:1], max_tokens=32)[0].text.endswith(" again")
    with pytest.raises(FrozenError, match="live or frozen"):
        run.receiver("scripted", corpus="fridge")
    monkeypatch.setenv(JOURNAL, str(tmp_path / "notes"))
    run.stored(run.receiver("scripted")).reply(ASKED, max_tokens=32)
    assert len(read_journals(tmp_path / "notes")["scripted"].prompts) == len(ASKED)


def test_the_name_of_a_prompt_is_its_words(tmp_path: Path) -> None:
    keys = {
        prompt_text_key(one)
        for one in (
            prompt("a"),
            prompt("a "),
            prompt("a", {"type": "object"}),
            prompt("a", {"properties": {"x": {}, "y": {}}}),
            prompt("a", {"properties": {"y": {}, "x": {}}}),
            Prompt((Turn("user", "a"),)),
            Prompt((Turn("user", "a"),), bias=(("yes", 0.5),)),
        )
    }
    assert len(keys) == 7


@pytest.mark.slow
def test_a_frozen_study_has_the_tables_of_the_live_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notebook 11 is run with a journal, frozen, and run again from the file: equal tables, no question asked live."""
    monkeypatch.setenv("LAB_FROZEN", str(tmp_path / "frozen"))
    outputs = ["--outputs", str(tmp_path / "outputs")]
    layout = checkout(tmp_path / "outputs")
    notebooks = select(find_notebooks(layout), ["11"])
    live, frozen = (plan_runs(layout, notebooks, "smoke", {"corpus": way}, say=print)[0] for way in ("live", "frozen"))
    assert freeze_runs(layout, [live], command="c", made="d", root=tmp_path / "frozen") == 0
    manifest = FrozenCorpus(tmp_path / "frozen" / "scripted").manifest
    assert set(manifest.notebooks) == {"11_replay_packet_effects"} and manifest.dtype == "none"
    assert any(name.startswith("messages/") for name in manifest.sha256)
    assert main(["run", "--profile", "smoke", "--only", "11", "-p", "corpus=frozen", *outputs]) == 0
    first, second = (tmp_path / "outputs" / plan.run_id / "tables" for plan in (live, frozen))
    for path in sorted(first.glob("*.json")):
        one, other = (json.loads((folder / path.name).read_text()) for folder in (first, second))
        for row in [*one, *other]:
            row.pop("prompt_key", None)  # token ids name a prompt for a model, its words for frozen replies
        assert one == other or path.stem == "live_sample", path.name
    page = next((tmp_path / "outputs" / frozen.run_id).glob("*.ipynb")).read_text()
    assert "0 were computed live" in page and "8 came out identical" in page
