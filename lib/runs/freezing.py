"""Make frozen replies: note what a run asks, then take the answers out of the store.

Context
-------
A run with frozen replies must find every question of the notebooks in the file. So the notebooks themselves say what they
ask: they are run live once, with a journal, and their answers are taken out of the store.

Intuition
---------
The store names a question by token ids, the file by its words. The journal (`lib.runs.journal`) has both names of every
question; the rest is a join.

How to read the result
----------------------
`freeze` writes `data/frozen/<receiver>/`: replies, token counts, messages, and a manifest with their hashes. Equal stores and journals give
equal bytes. A question that has no answer in the store (a failed call) is left out and counted.

Not covered: reading the file (`lib.runs.frozen`); the hours that the live runs take.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lib.messages.corpus import load_corpus
from lib.runs.context import CONTROL, STORE
from lib.runs.frozen import AGAIN, FIRST, FORMAT, MANIFEST, MESSAGES, REPLIES, TOKENS, Manifest, Row, asked_key
from lib.runs.journal import JOURNAL, Journal, read_journals
from lib.runs.layout import Layout
from lib.runs.notebook import Plan, Say, run_notebooks
from lib.runs.store import Store


def freeze(
    journal: Journal,
    stores: Mapping[str, Store],
    folder: Path | str,
    *,
    made: str,
    command: str,
    notebooks: Mapping[str, Mapping[str, Any]],
    messages: Mapping[str, Path] | None = None,
) -> Manifest:
    """Write the frozen replies of one receiver and return their manifest.

    Parameters
    ----------
    journal : from `read_journals`
    stores : lane -> store, see `lanes`
    folder : `data/frozen/<receiver>`; replaced
    made, command, notebooks : go into the manifest
    messages : workload -> folder of its corpus, copied for those who want to read them

    Raises
    ------
    ValueError
        If the stores hold no answer to what was asked.
    """
    rows = sorted(
        (row for lane, store in stores.items() for row in _answers(store, lane, journal)),
        key=lambda row: (row.lane, row.asked),
    )
    if not rows:
        raise ValueError(f"{journal.receiver}: the store holds no answer to what was asked; run the notebooks first")
    folder = Path(folder)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    previous = partial.with_name(f"{partial.name}.previous")
    partial.mkdir(parents=True)
    try:
        for name, source in (messages or {}).items():
            shutil.copytree(source, partial / MESSAGES / name)
        sha256 = {
            REPLIES: _pack(partial / REPLIES, [msgspec.json.encode(row) for row in rows]),
            TOKENS: _pack(partial / TOKENS, [msgspec.json.encode(pair) for pair in sorted(journal.tokens.items())]),
        }
        for path in sorted((partial / MESSAGES).rglob("*")):
            if path.is_file():
                sha256[path.relative_to(partial).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
        manifest = Manifest(
            format=FORMAT,
            receiver=journal.receiver,
            fingerprint=journal.fingerprint,
            dtype=journal.dtype,
            made=made,
            command=command,
            notebooks={name: dict(values) for name, values in notebooks.items()},
            rows=len(rows),
            sha256=sha256,
        )
        text = json.dumps(msgspec.to_builtins(manifest), indent=1, ensure_ascii=False) + "\n"
        (partial / MANIFEST).write_text(text, encoding="utf-8")
        if folder.exists():
            folder.replace(previous)
        partial.replace(folder)
    finally:
        if previous.exists() and not folder.exists():
            previous.replace(folder)
        shutil.rmtree(previous, ignore_errors=True)
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


def freeze_runs(
    layout: Layout, plans: Sequence[Plan], *, command: str, made: str, root: Path, say: Say = print, timeout: int = 0
) -> int:
    """Run notebooks live with a journal, then freeze every receiver that they asked; return the number of failed runs.

    Parameters
    ----------
    plans : from `plan_runs`, with `corpus` live; finished runs are made again, from stored replies
    command, made : go into the manifests
    root : `data/frozen`
    """
    journal = layout.outputs / "journal"
    shutil.rmtree(journal, ignore_errors=True)
    os.environ[JOURNAL] = str(journal)
    try:
        results = run_notebooks(layout, plans, force=True, timeout=timeout, say=say)
    finally:
        del os.environ[JOURNAL]
    failed = [result for result in results if result.status != "ok"]
    if failed:
        say(f"{len(failed)} of {len(results)} notebooks did not finish; nothing is frozen before all of them do")
        return len(failed)
    store = Store(os.environ.get(STORE) or layout.outputs / "store.sqlite")
    corpora = {
        path.name: path for result in results for path in sorted((result.folder / "corpora").glob("*")) if path.is_dir()
    }
    writers = {workload: load_corpus(path).manifest["model"] for workload, path in corpora.items()}
    for name, noted in read_journals(journal).items():
        manifest = freeze(
            noted,
            lanes(store),
            root / name,
            made=made,
            command=command,
            notebooks={plan.notebook.stem: plan.parameters for plan in plans},
            messages={workload: path for workload, path in corpora.items() if writers[workload] == name},
        )
        size = sum(path.stat().st_size for path in (root / name).rglob("*") if path.is_file())
        say(f"{root / name}: {manifest.rows} answers, {size / 1e6:.1f} MB")
    return 0


def lanes(store: Store) -> dict[str, Store]:
    """Return the stores by lane: the runs' own one, and that of the noise control beside it where there is one."""
    control = store.path.with_name(CONTROL)
    return {FIRST: store, **({AGAIN: Store(control)} if control.is_file() else {})}


def _answers(store: Store, lane: str, journal: Journal) -> Iterable[Row]:
    """Return the greedy answers of a store to what the journal asked."""
    for key, value in store.rows(journal.fingerprint):
        decoding = json.loads(key.decoding)
        if key.prompt not in journal.prompts or key.sample or decoding.get("temperature"):
            continue
        asked = asked_key(journal.prompts[key.prompt], key.decoding)
        if key.kind == "score":
            yield Row(asked, scores=[float(score) for score in value["scores"]], lane=lane)
        else:
            yield Row(asked, value["text"], value["prompt_tokens"], value["new_tokens"], value["finish"], lane=lane)


def _pack(path: Path, lines: Sequence[bytes]) -> str:
    """Write lines as gzip without a time stamp and return the file's SHA-256."""
    packed = gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0)
    path.write_bytes(packed)
    return hashlib.sha256(packed).hexdigest()
