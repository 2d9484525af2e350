"""Steps from ToolSandbox: which tool a phone's assistant calls next, by the milestones of a scenario.

Context
-------
One of the paper's six benchmark families, there with high local sufficiency: a message may only distract. Milestones say
what must have happened, a call of a tool or a change of a database, and which of them wait for which.

Intuition
---------
The receiver sees what the user asks and the calls made so far. The sender also sees what the user wants and knows, the
state of the phone, and the tools that the scenario offers.

How to read the result
----------------------
One step a milestone that a tool call meets. At a step every milestone counts whose predecessors are met, so where the
scenario leaves the order open, so does the gold. A change of a database stands for the one tool that makes it. Milestones
that no call meets (what the assistant says) are passed over.

Not covered: arguments; the generated variants with more tools or scrambled names; milestones without a tool's name; what
must not be called.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lib.sources import locate
from lib.tasks.candidates import candidate_names, lines_of, make_step
from lib.tasks.records import Record, first_file, read_records
from lib.tasks.steps import Step, StepGold
from lib.tasks.tool_actions import LEGEND, TOOLSANDBOX, actions_of

FAMILY, VERSION = "toolsandbox", "toolsandbox-1"
_FILES = ("scenarios.jsonl", "scenarios.jsonl.gz")
_BOILERPLATE = "<USER_INSTRUCTION>"
_CHANGES = {
    ("CONTACT", "addition_similarity"): "add_contact",
    ("CONTACT", "update_similarity"): "modify_contact",
    ("CONTACT", "removal_similarity"): "remove_contact",
    ("REMINDER", "addition_similarity"): "add_reminder",
    ("REMINDER", "update_similarity"): "modify_reminder",
    ("REMINDER", "removal_similarity"): "remove_reminder",
    ("MESSAGING", "addition_similarity"): "send_message_with_phone_number",
}
_SETTINGS = {
    "cellular": "set_cellular_service_status",
    "wifi": "set_wifi_status",
    "location_service": "set_location_service_status",
    "low_battery_mode": "set_low_battery_mode_status",
}
_PHONES = {
    "base": "Low battery mode is off; cellular, wifi and location service are on.",
    "base_cellular_off": "Cellular service is off.",
    "base_wifi_off": "Wifi is off.",
    "base_location_service_off": "Location service is off.",
    "base_low_battery_mode_on_wifi_off_location_service_off_cellular_off": "Low battery mode is on; wifi, location service "
    "and cellular service are off and cannot be turned on before low battery mode is off.",
}


def load(*, path: str | None = None) -> list[tuple[Step, StepGold]]:
    """Load every scenario that has a milestone which a tool call meets.

    Parameters
    ----------
    path
        ``scenarios.jsonl`` or its folder; None asks `lib.sources`.

    Raises
    ------
    WorkloadError
        A record lacks a field, or names a tool without an action type.
    SourceError
        The data are not there.
    """
    folder = locate("toolsandbox") if path is None else Path(path).expanduser()
    records = read_records(first_file(folder, _FILES, "ToolSandbox scenarios"))
    return [pair for record in records for pair in _steps(record)]


def _steps(record: Record) -> Iterator[tuple[Step, StepGold]]:
    name = record.text_id("name")
    wanted = {place: tools for place, milestone in enumerate(_milestones(record)) if (tools := _tools(milestone))}
    waits = _waits_for(record)
    offered = [tool for tool in record.data.get("tool_allow_list") or () if tool in TOOLSANDBOX]
    right = {tool for tools in wanted.values() for tool in tools}
    artifacts = candidate_names(right, offered, TOOLSANDBOX, family=FAMILY, instance=name)
    asked = [said["content"] for said in record.need("messages", list) if said.get("recipient") == "AGENT"]
    met: set[int] = set()
    for index, place in enumerate(wanted):
        ready = [other for other in wanted if other not in met and not (waits[other] & set(wanted)) - met]
        # Calls are named without arguments: milestones leave some of these open.
        made = [wanted[earlier][0] for earlier in wanted if earlier in met]
        yield make_step(
            family=FAMILY,
            instance=name,
            index=index,
            version=VERSION,
            local_view=lines_of(
                ("The user asks", "\n".join(asked)),
                ("Calls made so far", ", ".join(made) or "none"),
                ("Actions", LEGEND),
            ),
            context=_context(record, offered),
            artifacts=artifacts,
            pairs=[
                (tool, action)
                for other in ready
                for tool in wanted[other]
                for action in actions_of(tool, TOOLSANDBOX, FAMILY)
            ],
        )
        met.add(place)


def _milestones(record: Record) -> list[dict[str, Any]]:
    milestones: list[dict[str, Any]] = record.need("milestones", list)
    return milestones


def _tools(milestone: dict[str, Any]) -> list[str]:
    """Return the tools that meet a milestone, sorted; none where the assistant speaks or the source leaves it open."""
    found = set()
    for constraint in milestone["snapshot_constraints"]:
        target = constraint.get("target_dataframe")
        change = constraint.get("snapshot_constraint")
        space = constraint.get("database_namespace")
        if space == "SANDBOX" and isinstance(target, dict) and "tool_trace" in target:
            traces = target["tool_trace"] if isinstance(target["tool_trace"], list) else [target["tool_trace"]]
            found |= {trace["tool_name"] for trace in traces if isinstance(trace.get("tool_name"), str)}
        elif space == "SETTING" and isinstance(target, dict):
            found |= {_SETTINGS[field] for field in target if field in _SETTINGS}
        elif isinstance(change, str) and (space, change) in _CHANGES:
            found.add(_CHANGES[space, change])
    return sorted(found)


def _waits_for(record: Record) -> list[set[int]]:
    """Return, for each milestone, all milestones that come before it; without edges they are a chain."""
    count = len(_milestones(record))
    edges = record.data.get("milestone_edge_list")
    before: list[set[int]] = [set() for _ in range(count)]
    for first, then in edges if edges is not None else ((place, place + 1) for place in range(count - 1)):
        before[then].add(first)
    for _ in range(count):  # what a predecessor waits for is waited for as well
        before = [mine.union(*(before[place] for place in mine)) for mine in before]
    return before


def _context(record: Record, offered: list[str]) -> str:
    said = [message.get("content") for message in record.need("messages", list) if message.get("sender") == "SYSTEM"]
    wish = "\n".join(text.replace(_BOILERPLATE, "").strip() for text in said if isinstance(text, str))
    phone = record.need("base_scenario", str)
    return lines_of(
        ("What the user wants and knows", record.data.get("user_goal") or wish),
        ("State of the phone", _PHONES.get(phone, json.dumps(phone))),
        ("Tools at hand", ", ".join(sorted(offered))),
    )
