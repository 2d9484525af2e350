"""Render the finished runs as static pages with an index: `python -m lib report`.

For every notebook and profile the newest finished run whose files are there gets a page; the index shows title, question,
status, seconds, headline numbers and links. The report is built beside the old one and takes its place when it is whole. It
counts as failed when a page that should be there is missing or has no outputs.

Not covered: running anything. Links lead into the run folders, so the report belongs with them.
"""

from __future__ import annotations

import html
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lib.runs.context import RESULT
from lib.runs.index import newest, read_index
from lib.runs.layout import Layout, find_notebooks
from lib.runs.notebook import Say
from lib.runs.page import (
    document,
    facts_of,
    has_outputs,
    heading,
    links_of,
    numbers_of,
    page_of,
    read_executed,
    text_html,
)
from lib.runs.params import ParameterError, did_you_mean


class Report(msgspec.Struct, frozen=True):
    """What was written and what is wrong with it: `problems` is empty when the report is whole."""

    folder: Path
    pages: tuple[Path, ...]
    problems: tuple[str, ...]


class _Entry(msgspec.Struct, frozen=True):
    """One run on the index page."""

    page: str
    title: str
    question: str
    result: dict[str, Any]
    folder: str
    note: str


def build_report(layout: Layout, profile: str | None = None, *, say: Say = print) -> Report:
    """Write `outputs/report/` and say what is missing.

    Parameters
    ----------
    layout : Layout
    profile : str, optional
        Report this profile only, and count every notebook without a finished run of it as missing.
    say : callable
        Receives each line of progress.

    Raises
    ------
    ParameterError
        For a profile that neither a folder of `params/` nor a run has; the message says which there are.
    """
    stems = [path.stem for path in find_notebooks(layout)]
    entries, problems = read_index(layout.outputs)
    profiles_seen = sorted({*layout.profiles(), *(str(entry.get("profile")) for entry in entries)})
    if profile is not None and profile not in profiles_seen:
        raise ParameterError(f"--profile {profile}: no such profile{did_you_mean(profile, profiles_seen)}")
    finished = _finished_runs(layout, entries)
    last = _last(entries)
    target = layout.outputs / "report"
    partial = layout.outputs / f".report-{uuid.uuid4().hex[:8]}"
    partial.mkdir(parents=True)
    shown: list[_Entry] = []
    absent: list[str] = []
    try:
        for stem in stems:
            profiles = sorted(name for notebook, name in finished if notebook == stem and profile in (None, name))
            for name in profiles:
                try:
                    shown.append(_write_page(finished[stem, name], last, layout.outputs, partial))
                    say(f"report: {stem} ({name})")
                except ParameterError as error:
                    problems.append(str(error))
            if not profiles:
                absent.append(stem)
                gone = [
                    entry["run_id"]
                    for entry in entries
                    if entry.get("notebook") == stem
                    and entry.get("status") == "ok"
                    and profile in (None, entry.get("profile"))
                ]
                if gone:
                    problems.append(
                        f"{stem}: its finished run {gone[-1]} is in the index, its folder is gone; run it again"
                    )
                elif profile is not None:
                    problems.append(f"{stem}: no finished run with profile {profile}; make it with `python -m lib run`")
        if not shown:
            problems.append(f"{layout.outputs}: no finished run of any notebook; make some with `python -m lib run`")
        (partial / "index.html").write_text(_index_page(shown, absent, last), encoding="utf-8")
        problems += [f"{path.name}: the page is empty" for path in partial.glob("*.html") if not path.stat().st_size]
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    pages = tuple(target / name for name in ["index.html", *(entry.page for entry in shown)])
    return Report(target, pages, tuple(problems))


def _finished_runs(layout: Layout, entries: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return for every (notebook, profile) the newest finished run whose folder is there."""
    there = [entry for entry in entries if (layout.outputs / str(entry.get("folder")) / RESULT).exists()]
    return newest(there, "ok")


def _last(entries: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(str(entry.get("notebook")), str(entry.get("profile"))): entry for entry in entries}


def _write_page(
    entry: Mapping[str, Any], last: Mapping[tuple[str, str], Mapping[str, Any]], outputs: Path, target: Path
) -> _Entry:
    """Write the page of one run and return its entry for the index."""
    folder = outputs / str(entry["folder"])
    try:
        result = msgspec.json.decode((folder / RESULT).read_bytes(), type=dict[str, Any])
        float(result["seconds"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise ParameterError(f"{folder / RESULT}: damaged ({error}); run the notebook again with --force") from error
    result["profile"] = entry["profile"]  # profiles that ask the same share a run
    stem = str(entry["notebook"])
    book = read_executed(folder / f"{stem}.ipynb")
    if not has_outputs(book):
        raise ParameterError(f"{folder / stem}.ipynb: no cell has any output; the page would be empty")
    page = f"{stem}-{entry['profile']}.html"
    title, question = heading(book, stem)
    (target / page).write_text(page_of(book, result, f"../{folder.name}"), encoding="utf-8")
    newer = last[stem, str(entry["profile"])]
    note = "" if newer["status"] == "ok" else f"A newer run {newer['status']}: {newer['error']}"
    return _Entry(page, title, question, result, f"../{folder.name}", note)


def _index_page(
    shown: Sequence[_Entry], absent: Sequence[str], last: Mapping[tuple[str, str], Mapping[str, Any]]
) -> str:
    """Return the index: one entry a run, then the notebooks that have none."""
    parts = ["<h1>The Agent Communication Lab</h1>"]
    seconds = sum(float(entry.result["seconds"]) for entry in shown)
    parts.append(f'<div class="facts"><span>{len(shown)} runs</span><span>{seconds:.0f} s in all</span></div>')
    for entry in shown:
        picture = next((name for name in entry.result.get("figures", []) if name.endswith(".png")), None)
        image = f'<img alt="" src="{html.escape(f"{entry.folder}/figures/{picture}")}">' if picture else ""
        note = f'<p class="note">{html.escape(entry.note)}</p>' if entry.note else ""
        parts.append(
            f'<section class="entry"><div><h2><a href="{html.escape(entry.page)}">{html.escape(entry.title)}</a></h2>'
            f"{text_html(entry.question)}"
            f'<div class="facts"><span>{html.escape(str(entry.result["notebook"]))}</span>{facts_of(entry.result)}</div>'
            f"{note}{numbers_of(entry.result.get('headline', {}))}"
            f'<details class="more"><summary>Files</summary>{links_of(entry.result, entry.folder)}</details></div>{image}</section>'
        )
    if absent:
        rows = []
        for stem in absent:
            tries = [entry for (notebook, _), entry in last.items() if notebook == stem]
            status = f"{tries[-1]['status']}: {tries[-1]['error']}" if tries else "not run yet"
            rows.append(f'<li>{html.escape(stem)} <span class="status missing">{html.escape(status)}</span></li>')
        parts.append(f"<h2>Without a finished run</h2><ul>{''.join(rows)}</ul>")
    return document("The Agent Communication Lab", "".join(parts))
