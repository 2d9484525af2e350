from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lib.tasks.steps import load_steps
from lib.tasks.task import WorkloadError
from lib.tasks.tau import GOAL_CHARACTERS, load, load_tau2
from tests.tasks.benchmark_files import write
from tests.tasks.step_checks import check_steps, check_untold

USER = {
    "name": {"first_name": "Mia", "last_name": "Li"},
    "email": "mia@example.com",
    "address": {"zip": "78750"},
    "orders": ["#W1", "#W2"],
}
WISH = "You are Mia Li in 78750. " + "You want your lamp back. " * 20 + "At the very end: cancel the lamp."


def calls(last: str) -> list[dict[str, Any]]:
    return [{"name": "get_order_details", "kwargs": {"order_id": "#W1"}}, {"name": last, "kwargs": {"order_id": "#W1"}}]


def first_form(folder: Path, last: str = "cancel_pending_order") -> str:
    folder.mkdir(exist_ok=True)
    task = {"id": "retail-test-0", "domain": "retail", "user_id": "mia_li", "instruction": WISH, "actions": calls(last)}
    rows = [("users", "mia_li", USER), ("orders", "#W1", {"items": ["lamp"]}), ("orders", "#W3", {"items": ["sofa"]})]
    write(folder / "tasks.jsonl", [task, task | {"id": "retail-test-1", "actions": []}])
    write(folder / "policies.jsonl", [{"domain": "retail", "name": "wiki.md", "text": "Be kind."}])
    write(
        folder / "db.jsonl.gz", [{"domain": "retail", "table": t, "key": key, "value": value} for t, key, value in rows]
    )
    return str(folder)


def second_form(folder: Path, known: str = "You are Mia Li in 78750.") -> str:
    for domain in ("airline", "retail"):
        place = folder / domain
        place.mkdir(parents=True)
        told = {"reason_for_call": "Cancel the lamp.", "known_info": known, "unknown_info": None, "domain": domain}
        actions = [{"name": call["name"], "arguments": call["kwargs"]} for call in calls("cancel_pending_order")]
        task = {"id": "0", "user_scenario": {"instructions": told | {"task_instructions": "Insist."}}}
        write(
            place / "tasks.json", [task | {"evaluation_criteria": {"actions": actions if domain == "retail" else None}}]
        )
        (place / "policy.md").write_text("Be kind.", encoding="utf-8")
        tables = {"users": {"mia_li": USER}, "orders": {"#W1": {"items": ["lamp"]}}}
        (place / "db.json").write_text(json.dumps(tables), encoding="utf-8")
    return str(folder)


def test_tau_bench(tmp_path: Path) -> None:
    made = load_steps("tau_bench", path=first_form(tmp_path))
    assert [made.gold[step.id].pairs for step in made.steps] == [
        (("get_order_details", "read"),),
        (("cancel_pending_order", "delete"),),
    ]
    step = made.steps[1]
    assert 'get_order_details(order_id="#W1")' in step.local_view and "lamp back" in step.local_view
    assert "At the very end" not in step.local_view and "At the very end" in step.context
    assert '"lamp"' in step.context and "sofa" not in step.context and "Be kind." in step.context
    assert len(step.local_view) < GOAL_CHARACTERS + 600
    assert {"find_user_id_by_email", "book_reservation"} <= set(step.artifacts)


def test_tau2(tmp_path: Path) -> None:
    made = load_steps("tau2", path=second_form(tmp_path))
    assert [step.id for step in made.steps] == ["retail-0/0", "retail-0/1"]
    assert made.gold["retail-0/1"].pairs == (("cancel_pending_order", "delete"),)
    step = made.steps[0]
    assert "Cancel the lamp." in step.local_view and "Insist." not in step.local_view and "Insist." in step.context


@pytest.mark.parametrize("known", ["You are Mia Li in 78750.", "Your id is mia_li.", "Mail: mia@example.com."])
def test_the_customer_s_records_are_found_by_what_the_customer_says(tmp_path: Path, known: str) -> None:
    assert '"lamp"' in load_tau2(path=second_form(tmp_path, known))[0][0].context


def test_nobody_s_records_are_shown_where_the_customer_says_too_little(tmp_path: Path) -> None:
    assert "Records" not in load_tau2(path=second_form(tmp_path, "You are Mia Li."))[0][0].context


def test_gold_is_not_told(tmp_path: Path) -> None:
    lasts = ("cancel_pending_order", "modify_pending_order_items")
    one, other = (load(path=first_form(tmp_path / last, last)) for last in lasts)
    check_untold(one, other, 1)


def test_unknown_tools_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"line 1: 'fly' is no tool of retail; known: find_user_id_by_email"):
        load(path=first_form(tmp_path, "fly"))
    (tmp_path / "tasks.jsonl").write_text('{"id": "x", "domain": "bakery"}\n', encoding="utf-8")
    with pytest.raises(WorkloadError, match="'domain' is 'bakery', expected airline or retail"):
        load(path=str(tmp_path))


@pytest.mark.real("tau_bench")
def test_the_real_tau_bench() -> None:
    made = load_steps("tau_bench")
    check_steps(made, len(made.steps), len({step.instance_id for step in made.steps}))
    assert len(made.steps) >= 890 and all("Records" in step.context for step in made.steps)


@pytest.mark.real("tau2")
def test_the_real_tau2() -> None:
    made = load_steps("tau2")
    check_steps(made, 701, 155)
    assert sum("Records" in step.context for step in made.steps) == 701
