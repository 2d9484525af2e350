"""Steps from tau-bench and tau2-bench: which tool a customer-service agent calls next.

Context
-------
One of the paper's six benchmark families, there weakly helped by messages. `load` reads the tasks of the first tau-bench,
`load_tau2` those of its successor (airline and retail). Both carry the calls of a right solution in order.

Intuition
---------
The receiver sees the beginning of what the customer wants and the calls made so far. The sender also sees all of what the
customer wants, the customer's own records and the policy that the agent must keep.

How to read the result
----------------------
One step a call, in the order of the annotation. That order is one of several: reads may come in another order, and what
the annotation never looks up may be looked up. So a miss is a departure from the annotation, not always an error, and
accuracies are low. What a call does to the records is settled by `tool_actions`.

Not covered: arguments, the talk with a simulated customer, the end state of the records; the telecom domain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lib.sources import locate
from lib.tasks.candidates import candidate_names, cut_text, lines_of, make_step
from lib.tasks.records import Record, first_file, read_records
from lib.tasks.steps import Step, StepGold
from lib.tasks.task import WorkloadError
from lib.tasks.tool_actions import LEGEND, TAU_AIRLINE, TAU_RETAIL, actions_of

VERSIONS = {"tau_bench": "tau_bench-1", "tau2": "tau2-1"}
TOOLS = {"airline": TAU_AIRLINE, "retail": TAU_RETAIL}
GOAL_CHARACTERS = 400  # of the customer's wish in the local view, as in the paper's records
_OWNED = {"airline": "reservations", "retail": "orders"}  # field of a user's record, and the table it points into
_PLACES = {"airline": "a flight booking desk", "retail": "an online shop"}
_WISH = ("reason_for_call", "known_info", "unknown_info", "task_instructions")

Tables = dict[str, dict[str, Any]]


def load(*, path: str | None = None) -> list[tuple[Step, StepGold]]:
    """Load tau-bench: tasks, policies and databases as JSON Lines.

    Parameters
    ----------
    path
        Folder with ``tasks.jsonl``, ``policies.jsonl`` and ``db.jsonl.gz`` (or ``db.jsonl``); None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field, or calls a tool that the domain does not have.
    SourceError
        The data are not there.
    """
    folder = locate("tau_bench") if path is None else Path(path).expanduser()
    databases: dict[str, Tables] = {domain: {} for domain in TOOLS}
    for row in read_records(first_file(folder, ("db.jsonl.gz", "db.jsonl"), "tau-bench database")):
        tables = databases[_domain(row)]
        tables.setdefault(row.need("table", str), {})[row.need("key", str)] = row.need("value", dict)
    policies = {_domain(row): row.need("text", str) for row in read_records(folder / "policies.jsonl")}
    pairs: list[tuple[Step, StepGold]] = []
    for record in read_records(folder / "tasks.jsonl"):
        domain, wish = _domain(record), record.need("instruction", str)
        calls = [(call["name"], call["kwargs"]) for call in record.need("actions", list)]
        context = _context(domain, wish, record.need("user_id", str), databases[domain], policies.get(domain, ""))
        pairs += _steps("tau_bench", record, record.text_id("id"), domain, (wish, wish), context, calls)
    return pairs


def load_tau2(*, path: str | None = None) -> list[tuple[Step, StepGold]]:
    """Load tau2-bench, airline and retail, from its own files.

    Parameters
    ----------
    path
        Folder with ``airline/`` and ``retail/``, each with ``tasks.json``, ``policy.md`` and ``db.json``; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field, or calls a tool that the domain does not have.
    SourceError
        The data are not there.
    """
    folder = locate("tau2") if path is None else Path(path).expanduser()
    pairs: list[tuple[Step, StepGold]] = []
    for domain in TOOLS:
        tables = _json(folder / domain / "db.json")
        policy = (folder / domain / "policy.md").read_text(encoding="utf-8")
        for record in read_records(folder / domain / "tasks.json"):
            told = record.need("user_scenario", dict)["instructions"]
            wish = "\n".join(told[field] for field in _WISH if told.get(field))
            criteria = record.need("evaluation_criteria", dict)
            calls = [(call["name"], call["arguments"]) for call in criteria.get("actions") or ()]
            context = _context(domain, wish, _user_in(wish, tables["users"]), tables, policy)
            name = f"{domain}-{record.text_id('id')}"
            pairs += _steps("tau2", record, name, domain, (told["reason_for_call"], wish), context, calls)
    return pairs


def _steps(
    family: str,
    record: Record,
    name: str,
    domain: str,
    wishes: tuple[str, str],
    context: str,
    calls: list[tuple[str, dict[str, Any]]],
) -> Iterator[tuple[Step, StepGold]]:
    """Yield one step a call; `wishes` are what the local view begins to tell and what it is a part of."""
    tools = TOOLS[domain]
    if strange := [tool for tool, _ in calls if tool not in tools]:
        raise WorkloadError(f"{record.place}: {strange[0]!r} is no tool of {domain}; known: {', '.join(tools)}")
    others = [tool for table in TOOLS.values() for tool in table if tool not in tools]
    artifacts = candidate_names({tool for tool, _ in calls}, tools, others, family=family, instance=name)
    for index, (tool, _) in enumerate(calls):
        made = [f"{earlier}({_arguments(given)})" for earlier, given in calls[:index]]
        yield make_step(
            family=family,
            instance=name,
            index=index,
            version=VERSIONS[family],
            local_view=lines_of(
                ("Place of work", _PLACES[domain]),
                ("What the customer was told to want", cut_text(wishes[0], GOAL_CHARACTERS)),
                ("Calls made so far", "\n".join(made) or "none"),
                ("Actions", LEGEND),
            ),
            context=context,
            artifacts=artifacts,
            pairs=[(tool, action) for action in actions_of(tool, tools, family)],
        )


def _context(domain: str, wish: str, user: str, tables: Tables, policy: str) -> str:
    """Return what the sender sees beyond the local view: the whole wish, the customer's records, the policy."""
    profile = tables["users"].get(user, {})
    rows = [f"users/{user}: {_compact(profile)}"] if profile else []
    for key in profile.get(_OWNED[domain], ()):
        rows.append(f"{_OWNED[domain]}/{key}: {_compact(tables[_OWNED[domain]].get(key, {}))}")
    return lines_of(("All that the customer was told", wish), ("Records", "\n".join(rows)), ("Policy", policy.strip()))


def _user_in(wish: str, users: dict[str, Any]) -> str:
    """Return the id of the customer that a wish names by id, by e-mail address, or by name and zip code; else ""."""
    words = set(re.findall(r"[\w.@+-]*\w", wish))
    for user in users:
        if user in words or users[user].get("email") in words:
            return user
    for user, profile in users.items():
        name = profile.get("name", {})
        if {name.get("first_name"), name.get("last_name"), profile.get("address", {}).get("zip")} <= words:
            return user
    return ""


def _domain(record: Record) -> str:
    domain: str = record.need("domain", str)
    if domain not in TOOLS:
        raise WorkloadError(f"{record.place}: 'domain' is {domain!r}, expected {' or '.join(TOOLS)}")
    return domain


def _arguments(given: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_compact(value)}" for name, value in given.items())


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WorkloadError(f"{path}: not a whole JSON file ({error}); restore it from its source") from error
