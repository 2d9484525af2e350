from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lib.tasks.steps import load_steps
from lib.tasks.task import WorkloadError
from lib.tasks.toolsandbox import load
from tests.tasks.benchmark_files import write
from tests.tasks.step_checks import check_steps, check_untold


def constraint(space: str, target: Any, change: Any = "snapshot_similarity") -> dict[str, Any]:
    rule = {"database_namespace": space, "snapshot_constraint": change, "target_dataframe": target}
    return {"snapshot_constraints": [rule]}


def call(*tools: str) -> dict[str, Any]:
    traces: Any = [{"tool_name": tool, "arguments": {}} for tool in tools]
    return constraint("SANDBOX", {"sender": "X", "tool_trace": traces if len(tools) > 1 else traces[0]})


SAY = constraint("SANDBOX", {"sender": "AGENT", "content": "It is done."})
WIFI = constraint("SETTING", {"wifi": True})
SEND = constraint("MESSAGING", {"content": "hello"}, "addition_similarity")


def scenario(milestones: list[dict[str, Any]], edges: list[list[int]] | None = None, **more: Any) -> dict[str, Any]:
    said = [
        {"$spread": "user_simulator_few_shot_examples['x']"},
        {"sender": "SYSTEM", "recipient": "USER", "content": "<USER_INSTRUCTION>Say hello to Ann."},
        {"sender": "USER", "recipient": "AGENT", "content": "Say hello"},
    ]
    fields = {"name": "say_hello", "base_scenario": "base_wifi_off", "user_goal": "Say hello to Ann.", "messages": said}
    allowed = ["search_contacts", "send_message_with_phone_number", "set_wifi_status"]
    return fields | {"tool_allow_list": allowed, "milestones": milestones, "milestone_edge_list": edges} | more


def pairs_of(path: str) -> list[tuple[tuple[str, str], ...]]:
    made = load_steps("toolsandbox", path=path)
    return [made.gold[step.id].pairs for step in made.steps]


def test_milestones_without_edges_are_a_chain(tmp_path: Path) -> None:
    path = write(tmp_path / "scenarios.jsonl", [scenario([WIFI, call("search_contacts"), SEND, SAY])])
    assert pairs_of(path) == [
        (("set_wifi_status", "configure"),),
        (("search_contacts", "read"),),
        (("send_message_with_phone_number", "create"),),
    ]
    step = load(path=path)[2][0]
    assert "The user asks: Say hello\n" in step.local_view and "to Ann" not in step.local_view
    assert "Calls made so far: set_wifi_status, search_contacts" in step.local_view
    assert "Say hello to Ann." in step.context and "Wifi is off." in step.context and "search_contacts" in step.context


def test_what_the_scenario_leaves_open_stays_open(tmp_path: Path) -> None:
    """Wifi and the search may come in either order, both before the message; speech between them changes nothing."""
    milestones = [WIFI, call("search_contacts"), SAY, SEND]
    path = write(tmp_path / "scenarios.jsonl", [scenario(milestones, [[0, 2], [1, 2], [2, 3]])])
    either = (("search_contacts", "read"), ("set_wifi_status", "configure"))
    assert pairs_of(path) == [either, (("search_contacts", "read"),), (("send_message_with_phone_number", "create"),)]
    unordered = write(tmp_path / "open.jsonl", [scenario([WIFI, call("search_contacts")], [])])
    assert pairs_of(unordered)[0] == either


def test_alternative_traces_all_count_and_speech_alone_gives_no_step(tmp_path: Path) -> None:
    rows = [scenario([call("search_lat_lon", "get_current_location")]), scenario([SAY], name="mute")]
    path = write(tmp_path / "scenarios.jsonl.gz", rows)
    assert pairs_of(path) == [(("get_current_location", "read"), ("search_lat_lon", "read"))]


def test_gold_is_not_told(tmp_path: Path) -> None:
    one, other = (
        load(path=write(tmp_path / f"{tool}.jsonl", [scenario([WIFI, call(tool)])]))
        for tool in ("search_contacts", "search_messages")
    )
    assert set(one[0][0].artifacts) == set(other[0][0].artifacts), "all tools are on the list"
    check_untold(one, other, 1)


def test_unknown_tools_and_missing_fields_are_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="toolsandbox: tool 'fly' has no action type"):
        load(path=write(tmp_path / "scenarios.jsonl", [scenario([call("fly")])]))
    with pytest.raises(WorkloadError, match="line 1: field 'messages' is missing"):
        load(path=write(tmp_path / "scenarios.jsonl", [{"name": "x", "milestones": [WIFI]}]))


@pytest.mark.real("toolsandbox")
def test_the_real_scenarios() -> None:
    made = load_steps("toolsandbox")
    check_steps(made, len(made.steps), len({step.instance_id for step in made.steps}))
    assert len(made.steps) >= 149
