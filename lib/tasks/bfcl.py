"""Steps from BFCL: which function to call next, for single requests and for conversations of several turns.

Context
-------
One of the paper's six benchmark families, there with high local sufficiency: the request alone nearly settles the call.
`load` reads the single-turn categories, `load_multi_turn` the base category of the multi-turn tasks. Either reads the
files of the package ``bfcl-eval`` or a slice of the same records as JSON Lines.

Intuition
---------
The receiver sees the request and, in a conversation, the calls already made for it. The sender also sees what the
functions do and, in a conversation, the state at its start and all earlier requests and calls.

How to read the result
----------------------
Single turn: one step an instance; where several calls are wanted, any of them may come first. Every call is ``run_test``,
and the local view says so, as in the paper's records. Several turns: one step a call, in the order of the ground truth,
which is one of several orders that would reach the same state; the action is that of `tool_actions`.

Not covered: arguments (a step is a function and a type of action); the categories live, Java, JavaScript, memory and
web search; irrelevance, where no call is right.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lib.seeds import generator
from lib.sources import locate
from lib.tasks.candidates import SIZE, alike, candidate_names, lines_of, make_step
from lib.tasks.records import Record, read_records
from lib.tasks.steps import Step, StepGold
from lib.tasks.task import WorkloadError
from lib.tasks.tool_actions import BFCL_CLASSES, LEGEND, actions_of

FAMILY, VERSION = "bfcl", "bfcl-1"
MULTI_FAMILY, MULTI_VERSION = "bfcl_multi_turn", "bfcl_multi_turn-1"
CATEGORIES = ("simple_python", "multiple", "parallel", "parallel_multiple")
CALL_LEGEND = "run_test: call a function. edit, create, delete, read, configure: work on files; there are none here."
_DOCUMENTS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}


def load(*, path: str | None = None) -> list[tuple[Step, StepGold]]:
    """Load the single-turn categories: one step a record.

    Parameters
    ----------
    path
        Folder of the package's files or of ``single_turn.jsonl``, or that file; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field or calls a function that it does not offer.
    SourceError
        The data are not there.
    """
    records = list(_answered(_folder(path), "single_turn.jsonl", CATEGORIES))
    offered: dict[str, dict[str, None]] = {}
    for record in records:
        offered.setdefault(record.need("category", str), {}).update(dict.fromkeys(_functions(record)))
    return [_single(record, list(offered[record.data["category"]])) for record in records]


def load_multi_turn(*, path: str | None = None) -> list[tuple[Step, StepGold]]:
    """Load the multi-turn base tasks: one step a call of the ground truth.

    Parameters
    ----------
    path
        Folder of the package's files, or of ``multi_turn_base.jsonl`` and ``multi_turn_func_doc.jsonl``; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field, names a class or function without a document, or holds a call that is none.
    SourceError
        The data are not there.
    """
    folder = _folder(path)
    documents = _read_documents(folder)
    records = _answered(folder, "multi_turn_base.jsonl", ("multi_turn_base",))
    return [pair for record in records for pair in _conversation(record, documents)]


def _folder(path: str | None) -> Path:
    return locate("bfcl") if path is None else Path(path).expanduser()


# ------------------------------------------------------------------------------------------------------------------------ single turn


def _single(record: Record, others: list[str]) -> tuple[Step, StepGold]:
    name, functions = record.text_id("id"), _functions(record)
    called = sorted({call for answer in record.need("ground_truth", list) for call in answer})
    if not called or not set(called) <= set(functions):
        raise WorkloadError(f"{record.place}: 'ground_truth' must call functions of 'function', got {called}")
    strangers: list[str] = []
    for place in generator(FAMILY, "distractors", name).permutation(len(others)):
        # Another record's function may do the same thing under a similar name; it would then be right as well.
        if len(strangers) < SIZE and not any(alike(others[place], call) for call in called):
            strangers.append(others[place])
    turns = [turn["content"] for turn in record.need("question", list)[0]]
    offers = [f"- {function}: {functions[function]}" for function in sorted(functions)]
    return make_step(
        family=FAMILY,
        instance=name,
        index=0,
        version=VERSION,
        local_view=lines_of(("Request", "\n".join(turns)), ("Actions", CALL_LEGEND)),
        context="Functions that can be called:\n" + "\n".join(offers),
        artifacts=candidate_names(called, functions, strangers, family=FAMILY, instance=name),
        pairs=[(call, "run_test") for call in called],
    )


def _functions(record: Record) -> dict[str, str]:
    """Return what each offered function does and takes, by name."""
    found = {}
    for function in record.need("function", list):
        takes = {name: about.get("description", "") for name, about in function["parameters"]["properties"].items()}
        found[function["name"]] = f"{function['description']} Parameters: {_compact(takes)}"
    return found


# ---------------------------------------------------------------------------------------------------------------------- several turns


def _conversation(record: Record, documents: dict[str, dict[str, str]]) -> Iterator[tuple[Step, StepGold]]:
    name, turns = record.text_id("id"), record.need("question", list)
    wanted = record.need("ground_truth", list)
    if len(turns) != len(wanted):
        raise WorkloadError(f"{record.place}: {len(turns)} turns in 'question' but {len(wanted)} in 'ground_truth'")
    classes = [_document(record, kind) for kind in record.need("involved_classes", list)]
    excluded = set(record.data.get("excluded_function") or ())
    table = {tool: action for kind in classes for tool, action in BFCL_CLASSES[kind].items()}
    near = {tool: about for kind in classes for tool, about in documents[kind].items() if tool not in excluded}
    far = [tool for kind in documents if kind not in classes for tool in documents[kind] if tool not in near]
    calls = [[_called(record, call) for call in turn] for turn in wanted]
    right = {tool for turn in calls for tool in turn}
    artifacts = candidate_names(right, near, far, family=MULTI_FAMILY, instance=name)
    before: list[str] = []
    index = 0
    for turn, tools, texts in zip(turns, calls, wanted, strict=True):
        request = "\n".join(said["content"] for said in turn)
        for place, tool in enumerate(tools):
            yield make_step(
                family=MULTI_FAMILY,
                instance=name,
                index=index,
                version=MULTI_VERSION,
                local_view=lines_of(
                    ("Request", request),
                    ("Calls made for it so far", "\n".join(texts[:place]) or "none"),
                    ("Actions", LEGEND),
                ),
                context=lines_of(
                    ("Earlier requests and calls", "\n".join(before) or "none"),
                    ("State at the start", _compact(record.need("initial_config", dict))),
                    ("Functions", "\n".join(f"- {tool}: {near[tool]}" for tool in sorted(near))),
                ),
                artifacts=artifacts,
                pairs=[(tool, action) for action in actions_of(tool, table, MULTI_FAMILY)],
            )
            index += 1
        before += [f"Request: {request}", *(f"Call: {text}" for text in texts)]


def _document(record: Record, kind: str) -> str:
    if kind not in _DOCUMENTS:
        raise WorkloadError(f"{record.place}: 'involved_classes' names {kind!r}; known: {', '.join(_DOCUMENTS)}")
    return _DOCUMENTS[kind]


def _called(record: Record, text: str) -> str:
    """Return the function that a call in Python syntax calls."""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise WorkloadError(f"{record.place}: 'ground_truth' holds {text!r}, which is no call: {error}") from error
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise WorkloadError(f"{record.place}: 'ground_truth' holds {text!r}, which is no call of a function")
    return call.func.id


# --------------------------------------------------------------------------------------------------------------------------- reading


def _answered(folder: Path, slice_name: str, categories: tuple[str, ...]) -> Iterator[Record]:
    """Yield records with ground truth and category, from a slice or from the package's pairs of files."""
    whole = folder if folder.is_file() else folder / slice_name
    if whole.is_file():
        yield from read_records(whole)
        return
    for category in categories:
        file = f"BFCL_v4_{category}.json"
        answers = {
            row.text_id("id"): row.need("ground_truth", list) for row in _lines(folder / "possible_answer" / file)
        }
        for record in _lines(folder / file):
            if record.text_id("id") not in answers:
                raise WorkloadError(f"{record.place}: no answer to {record.text_id('id')!r} in possible_answer/{file}")
            more = {"category": category, "ground_truth": answers[record.text_id("id")]}
            yield Record(record.place, record.data | more)


def _read_documents(folder: Path) -> dict[str, dict[str, str]]:
    """Return what each function of each class does, by document and name."""
    base = folder.parent if folder.is_file() else folder
    found: dict[str, dict[str, str]] = {kind: {} for kind in BFCL_CLASSES}
    whole = base / "multi_turn_func_doc.jsonl"
    if whole.is_file():
        rows = [(row.need("file", str), row) for row in read_records(whole)]
    else:
        rows = [(kind, row) for kind in found for row in _lines(base / "multi_turn_func_doc" / f"{kind}.json")]
    for kind, row in rows:
        if kind in found:
            # The first sentences of a description say the same of every function of the class.
            found[kind][row.need("name", str)] = row.need("description", str).split("Tool description:")[-1].strip()
    return found


def _lines(path: Path) -> Iterator[Record]:
    """Yield the records of a JSON Lines file; the package's files hold JSON Lines under names that end in ``.json``."""
    if not path.is_file():
        raise WorkloadError(f"{path}: no such file; fetch the data set or set LAB_DATA to the folder that holds it")
    with path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            try:
                data: Any = json.loads(line)
            except ValueError as error:
                raise WorkloadError(f"{path}, line {number}: not JSON: {error}; restore the file") from error
            yield Record(f"{path}, line {number}", data)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
