from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lib.tasks.bfcl import CATEGORIES, load, load_multi_turn
from lib.tasks.candidates import alike
from lib.tasks.steps import load_steps
from lib.tasks.task import WorkloadError
from lib.tasks.tool_actions import BFCL_CLASSES
from tests.tasks.benchmark_files import write
from tests.tasks.step_checks import check_steps, check_untold

FUNCTIONS = ("area.circle", "get_weather", "book_hotel", "rank_teams", "send_mail", "circle_area")


def function(name: str) -> dict[str, Any]:
    takes = {"type": "dict", "properties": {"x": {"type": "float", "description": f"input of {name}"}}, "required": []}
    return {"name": name, "description": f"Does {name}.", "parameters": takes}


def single(number: int, called: list[str], offered: list[str]) -> dict[str, Any]:
    asked = [[{"role": "user", "content": f"Please do number {number}."}]]
    truth = [{name: {"x": [1]}} for name in called]
    fields = {"id": f"multiple_{number}", "category": "multiple", "question": asked}
    return fields | {"function": [function(name) for name in offered], "ground_truth": truth}


SINGLES = [single(number, [name], [name]) for number, name in enumerate(FUNCTIONS)]


def talk(last: str = "mkdir(dir_name='b')", first: str = "cd(folder='a')") -> dict[str, Any]:
    turns = [[{"role": "user", "content": text}] for text in ("Go to a.", "Nothing.", "Tidy up.")]
    fields = {"id": "talk_0", "category": "multi_turn_base", "question": turns, "excluded_function": ["mv"]}
    more = {"initial_config": {"GorillaFileSystem": {"root": "a"}}, "involved_classes": ["GorillaFileSystem"]}
    return fields | more | {"ground_truth": [[first], [], ["ls()", "rm('x')", last]]}


DOCUMENTS = [
    {"file": kind, "name": name, "description": f"A class. Tool description: Does {name}."}
    for kind, tools in BFCL_CLASSES.items()
    for name in tools
]


def folder_of(tmp_path: Path, talks: list[dict[str, Any]]) -> str:
    tmp_path.mkdir(exist_ok=True)
    write(tmp_path / "multi_turn_base.jsonl", talks)
    write(tmp_path / "multi_turn_func_doc.jsonl", DOCUMENTS)
    return str(tmp_path)


def test_single_turn(tmp_path: Path) -> None:
    rows = [*SINGLES, single(6, ["get_weather", "book_hotel"], ["book_hotel", "get_weather", "rank_teams"])]
    made = load_steps("bfcl", path=write(tmp_path / "single_turn.jsonl", rows))
    step, gold = made.steps[6], made.gold["multiple_6/0"]
    assert gold.pairs == (("book_hotel", "run_test"), ("get_weather", "run_test"))
    assert step.local_view.startswith("Request: Please do number 6.\n") and "Does" not in step.local_view
    assert step.context.count("Does ") == 3 and "input of rank_teams" in step.context
    circle = made.steps[0].artifacts
    assert alike("area.circle", "circle_area") and "circle_area" not in circle and "send_mail" in circle


def test_several_turns(tmp_path: Path) -> None:
    made = load_steps("bfcl_multi_turn", path=folder_of(tmp_path, [talk()]))
    assert [made.gold[step.id].pairs for step in made.steps] == [
        (("cd", "configure"),),
        (("ls", "read"),),
        (("rm", "delete"),),
        (("mkdir", "create"),),
    ]
    last = made.steps[3]
    assert "Request: Tidy up." in last.local_view and "ls()\nrm('x')" in last.local_view
    assert "Go to a." not in last.local_view and "Request: Go to a.\nCall: cd(folder='a')" in last.context
    assert "mv" not in last.artifacts and "- cp: Does cp." in last.context
    assert set(BFCL_CLASSES["gorilla_file_system"]) - {"mv"} <= set(last.artifacts)


def test_gold_is_not_told(tmp_path: Path) -> None:
    one, other = ("mkdir(dir_name='b')", "touch(file_name='b')")
    loaded = [load_multi_turn(path=folder_of(tmp_path / last[:2], [talk(last)])) for last in (one, other)]
    check_untold(loaded[0], loaded[1], 3)
    offered = ["get_weather", "book_hotel"]
    pairs = [load(path=write(tmp_path / f"{name}.jsonl", [*SINGLES, single(9, [name], offered)])) for name in offered]
    mine, theirs = pairs[0][-1], pairs[1][-1]
    assert mine[1] != theirs[1] and (mine[0].local_view, mine[0].context) == (theirs[0].local_view, theirs[0].context)


def test_the_package_s_files_give_the_same_steps(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    (folder / "possible_answer").mkdir(parents=True)
    (folder / "multi_turn_func_doc").mkdir()
    rows = {category: [] for category in CATEGORIES} | {"multiple": SINGLES, "multi_turn_base": [talk()]}
    for category, records in rows.items():
        answers = [{"id": row["id"], "ground_truth": row["ground_truth"]} for row in records]
        asked = [{k: v for k, v in row.items() if k not in {"ground_truth", "category"}} for row in records]
        for name, kept in ((f"possible_answer/BFCL_v4_{category}.json", answers), (f"BFCL_v4_{category}.json", asked)):
            (folder / name).write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    for kind in BFCL_CLASSES:
        text = "".join(json.dumps(row) + "\n" for row in DOCUMENTS if row["file"] == kind)
        (folder / "multi_turn_func_doc" / f"{kind}.json").write_text(text, encoding="utf-8")
    assert load(path=str(folder)) == load(path=write(tmp_path / "single_turn.jsonl", SINGLES))
    assert load_multi_turn(path=str(folder)) == load_multi_turn(path=folder_of(tmp_path, [talk()]))
    (folder / "possible_answer" / "BFCL_v4_multiple.json").write_text("", encoding="utf-8")
    with pytest.raises(WorkloadError, match="no answer to 'multiple_0'"):
        load(path=str(folder))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (talk("mkdir"), "'mkdir', which is no call of a function"),
        (talk("mkdir("), "which is no call: "),
        (talk("fly()"), "tool 'fly' has no action type"),
        (talk() | {"involved_classes": ["Oven"]}, "names 'Oven'; known: GorillaFileSystem"),
        (talk() | {"ground_truth": []}, "3 turns in 'question' but 0"),
    ],
)
def test_broken_conversations_name_line_and_field(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        load_multi_turn(path=folder_of(tmp_path, [row]))


def test_broken_single_turns_name_line_and_field(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"line 1: 'ground_truth' must call functions of 'function', got \['fly'\]"):
        load(path=write(tmp_path / "single_turn.jsonl", [single(0, ["fly"], ["book_hotel"])]))


@pytest.mark.real("bfcl")
def test_the_real_requests() -> None:
    made = load_steps("bfcl")
    check_steps(made, 1000, 1000)
    assert made.version == "bfcl-1+3448b512a678", "the package's files and the slice hold the same records"


@pytest.mark.real("bfcl")
def test_the_real_conversations() -> None:
    made = load_steps("bfcl_multi_turn")
    check_steps(made, 1142, 200)
    assert made.version == "bfcl_multi_turn-1+3cfc5e0e6aaa", "the package's files and the slice hold the same records"
