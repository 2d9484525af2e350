"""The paper profile can be planned: every notebook has its file, every name in it means something, every file says where it is from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lib.models.choose import SCRIPTS
from lib.models.endpoint_settings import PREFIX, read_settings
from lib.runs.layout import checkout, find_notebooks
from lib.runs.notebook import Plan, plan_runs
from lib.sources import catalogue, is_commit
from lib.tasks.questions import QUESTION_SETS
from lib.tasks.registry import WORKLOADS
from lib.tasks.step_families import base_family
from lib.tasks.steps import FAMILIES

LAYOUT = checkout()
NOTEBOOKS = find_notebooks(LAYOUT)
POOLS = {"workload": WORKLOADS, "workloads": WORKLOADS, "question_sets": QUESTION_SETS, "families": FAMILIES}
WHO = ("receiver", "receivers", "producer", "sender", "senders", "distiller")
RULES = ("", "receiver", "extractive")  # no receiver's name


def file_of(notebook: Path) -> Path:
    return LAYOUT.params / "paper" / f"{notebook.stem}.yaml"


def planned(notebook: Path) -> Plan:
    (plan,) = plan_runs(LAYOUT, [notebook], "paper", say=lambda _: None)
    return plan


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(member) for member in value]


def resolvable(name: str, parameters: dict[str, Any], comment: str) -> bool:
    """Tell whether a receiver's name can be opened; a hub id needs its commit, or a comment that asks for it."""
    if name in SCRIPTS or name in catalogue() or name in RULES:
        return True
    if name.startswith(PREFIX):
        return bool(read_settings(name).model)
    commit = parameters.get("revisions", {}).get(name) or parameters.get("revision", "")
    return "/" in name and (is_commit(commit) or "`revisions`" in comment)


def test_no_file_is_without_its_notebook() -> None:
    assert {path.stem for path in (LAYOUT.params / "paper").glob("*.yaml")} <= {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_file_is_valid_and_says_where_its_numbers_are_from(notebook: Path) -> None:
    text = file_of(notebook).read_text(encoding="utf-8")
    comment = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    assert re.search(r"[Ss]ection|[Aa]ppendix|Table|Figure|paper", comment), (
        f"{file_of(notebook)}: say what in the paper it follows"
    )
    parameters = planned(notebook).parameters
    for name, known in POOLS.items():
        unknown = {base_family(pool) for pool in listed(parameters.get(name, []))} - set(known)
        assert not unknown, f"{name}: {unknown}"
    for name in WHO:
        for receiver in listed(parameters.get(name, [])):
            assert resolvable(receiver, parameters, comment), f"{name}: {receiver}"


def test_published_counts_caps_and_seeds() -> None:
    """Section V-A of BANDMAS, section 5.1 and appendix B.1 of MOC."""
    by_number = {notebook.stem[:2]: planned(notebook).parameters for notebook in NOTEBOOKS}
    for number in ("11", "12", "13", "14", "15", "16"):
        assert by_number[number]["seeds"] == [0, 1, 2] and by_number[number]["max_tokens"] == 256
        assert by_number[number]["tasks"] == 400
    assert by_number["12"]["betas"] == [0.25, 0.5, 0.75] and by_number["12"]["lambda1"] == 0.75
    for number in ("12", "13", "14"):
        assert by_number[number]["main_cap"] == {"scifact": 0.5, "hotpotqa": 0.25, "fanoutqa": 0.5}
    assert by_number["15"]["main_cap"] == {"scifact": 0.5, "hotpotqa": 0.35}
    for number in ("30", "31", "32", "33", "34"):
        assert (by_number[number]["kappa"], by_number[number]["candidates"]) == (0.45, 5)
        assert (by_number[number]["gamma"], by_number[number]["epsilon"]) == (1.0, 0.1)
    assert by_number["31"]["questions"] == by_number["32"]["questions"] == 0  # all of appendix B.1
