"""Steps from ContextBench: which file to read next, and at last which to change, for a repair in eight languages.

Context
-------
One of the paper's six benchmark families, there the one that messages help most. People marked the spans of code that a
repair has to read; the accepted patch says what it changes.

Intuition
---------
An instance first reads every file with a marked span, then changes every file of the patch. The receiver sees the first
line of the issue and what was done. The sender also sees the whole issue, the code read so far, and which of the two
phases the repair is in.

How to read the result
----------------------
Files of a phase may come in any order, so every one that is still open counts. The phase follows from the annotation
alone: without a message nothing says whether enough was read. The patch may create or delete files, so actions differ.

Not covered: spans (an artifact is a file); other context that would do; the 500 and 1,136 instances of the larger sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lib.sources import locate
from lib.tasks.candidates import candidate_names, cut_text, lines_of, make_step
from lib.tasks.code_steps import LEGEND, patched_files, paths_in
from lib.tasks.records import Record, first_file, read_records
from lib.tasks.steps import Step, StepGold
from lib.tasks.task import WorkloadError

FAMILY, VERSION = "contextbench", "contextbench-1"
TITLE_CHARACTERS = 200  # of the issue in the local view
CODE_CHARACTERS = 1500  # of each file read so far, in the sender's context
_FILES = ("verified_test.jsonl.gz", "verified_test.jsonl", "contextbench_verified_test.parquet")
_ROOT = re.compile(r"^/workspace/(?:[^/]*__[^/]*/)?")  # where the annotators' checkouts lay


class _Instance(NamedTuple):
    record: Record
    code: dict[str, str]  # marked code by file, in the order of the annotation
    patch: dict[str, str]  # action by file

    @property
    def files(self) -> set[str]:
        return {*self.code, *self.patch}


def load(*, path: str | None = None) -> list[tuple[Step, StepGold]]:
    """Load all instances: one step a file to read, then one a file to change.

    Parameters
    ----------
    path
        Data file or folder; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field, marks no code, or its patch changes no file.
    SourceError
        The data are not there.
    """
    folder = locate("contextbench") if path is None else Path(path).expanduser()
    records = read_records(first_file(folder, _FILES, "ContextBench instances"))
    instances = [_read(record) for record in records]
    return [pair for instance in instances for pair in _steps(instance, instances)]


def _read(record: Record) -> _Instance:
    code: dict[str, str] = {}
    for span in record.need("gold_context", list):
        file = _ROOT.sub("", span["file"])
        code[file] = f"{code[file]}\n{span['content']}" if file in code else span["content"]
    patch = patched_files(record.need("patch", str))
    if not code or not patch:
        raise WorkloadError(f"{record.place}: 'gold_context' or 'patch' names no file; is this the right file?")
    return _Instance(record, code, patch)


def _steps(instance: _Instance, instances: list[_Instance]) -> Iterator[tuple[Step, StepGold]]:
    record = instance.record
    name, repo = record.text_id("instance_id"), record.need("repo", str)
    language, issue = record.need("language", str), record.need("problem_statement", str).strip()
    same = [other for other in instances if other.record.data["repo"] == repo]
    speaking = [other for other in instances if other.record.data["language"] == language]
    tiers = [paths_in(issue, {file.split("/")[0] for other in same for file in other.files})]
    tiers += [[file for other in pool for file in other.files] for pool in (same, speaking, instances)]
    artifacts = candidate_names(instance.files, *tiers, family=FAMILY, instance=name)
    plan = [(file, "read") for file in instance.code] + list(instance.patch.items())
    for index, (_, action) in enumerate(plan):
        read = action == "read"
        # Files of a phase may come in any order: the pairs of this phase that are still open all count.
        still_open = [pair for pair in plan[index:] if (pair[1] == "read") == read]
        yield make_step(
            family=FAMILY,
            instance=name,
            index=index,
            version=VERSION,
            local_view=lines_of(
                ("Repository", f"{repo} ({language})"),
                ("Issue, its beginning", cut_text(issue.split("\n")[0].strip(), TITLE_CHARACTERS)),
                ("Done so far", "\n".join(f"{done} {file}" for file, done in plan[:index]) or "nothing"),
                ("Actions", LEGEND),
            ),
            context=lines_of(
                ("Phase", "read the code that the repair needs" if read else "all is read; change the files"),
                ("Issue", issue),
                ("Code read so far", _excerpts(instance, [file for file, done in plan[:index] if done == "read"])),
            ),
            artifacts=artifacts,
            pairs=still_open,
        )


def _excerpts(instance: _Instance, files: list[str]) -> str:
    return "\n".join(f"{file}\n{cut_text(instance.code[file], CODE_CHARACTERS)}" for file in files)
