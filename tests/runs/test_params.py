"""Parameters: what a cell declares, what fits it, and what is refused before a kernel starts."""

from __future__ import annotations

import datetime
import json
from pathlib import Path, PurePosixPath
from typing import Any

import nbformat
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.runs.params import (
    ParameterError,
    ParameterSpec,
    load_profile,
    parse_cell,
    read_parameters,
    resolve,
    split_overrides,
)


def cell(source: str) -> dict[str, ParameterSpec]:
    return {spec.name: spec for spec in parse_cell(source, "nb.ipynb, cell 3")}


def one(source: str, value: Any) -> Any:
    specs = cell(source)
    (name,) = specs
    return resolve(specs, {name: value})[name]


def typed(source: str, text: str) -> Any:
    specs = cell(source)
    (name,) = specs
    return resolve(specs, overrides={name: text})[name]


def notebook(path: Path, *sources: str, tag: int | None = 0) -> Path:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    if tag is not None:
        book.cells[tag].metadata["tags"] = ["parameters"]
    nbformat.write(book, path)
    return path


ROW_39 = """from typing import Literal
opt: str | None = None           # an option
old: "str|None" = None
mode: Literal["a", "b"] = "a"    # which way
url = "http://x?a=1&b=2"
tag = "a#b"                      # help, after a text with a mark
a: int = 3; b: int = 4           # two on a line
tasks: list[str] = ["a=b", "c"]
weights: dict[str, float] = {    # over several lines
    "x": 0.5,
    "y": 1,  # a comment inside
}  # last word
share: float = 0.5  # of all tasks; range: 0..1
steep = -1e-3
many = 1_000
on = True
"""


def test_row_39_every_parameter_is_seen() -> None:
    """Case 39 (papermill#806, #807): annotations, Literal, values with '=' or '#', two on a line are all listed."""
    specs = cell(ROW_39)
    assert {name: (str(spec.kind), spec.default) for name, spec in specs.items()} == {
        "opt": ("str | None", None),
        "old": ("str | None", None),
        "mode": ("one of 'a', 'b'", "a"),
        "url": ("str", "http://x?a=1&b=2"),
        "tag": ("str", "a#b"),
        "a": ("int", 3),
        "b": ("int", 4),
        "tasks": ("list[str]", ["a=b", "c"]),
        "weights": ("dict[str, float]", {"x": 0.5, "y": 1.0}),
        "share": ("float", 0.5),
        "steep": ("float", -0.001),
        "many": ("int", 1000),
        "on": ("bool", True),
    }
    assert specs["opt"].help == "an option"
    assert specs["tag"].help == "help, after a text with a mark"
    assert specs["a"].help == specs["b"].help == "two on a line"
    assert specs["weights"].help == "last word"
    assert (specs["share"].help, specs["share"].low, specs["share"].high) == ("of all tasks", 0.0, 1.0)
    assert specs["tasks"].line == 8


def test_row_39_an_unknown_name_is_an_error_that_helps() -> None:
    """Case 39: an unknown name is refused before anything runs, with what may have been meant."""
    with pytest.raises(ParameterError, match="unknown parameter 'shares'; did you mean 'share'?"):
        resolve(cell(ROW_39), {"shares": 0.1})
    with pytest.raises(ParameterError, match="unknown parameter 'zzz'; there are: opt, old"):
        resolve(cell(ROW_39), overrides={"zzz": "1"})
    with pytest.raises(ParameterError, match="there are none"):
        resolve({}, {"x": 1})


def test_row_38_python_values_become_json_or_are_refused_by_name() -> None:
    """Case 38 (papermill#484): numpy scalars, tuples, paths and dict keys keep their meaning."""
    specs = cell("seed: int = 0\nhops: list[int] = []\nw: dict[str, float] = {}\nwhere: str = ''\nloose = {}")
    given = {"seed": np.int64(5), "hops": (1, 2), "w": {1: 0.5}, "where": PurePosixPath("a/b")}
    values = resolve(specs, given)
    assert values == {"seed": 5, "hops": [1, 2], "w": {"1": 0.5}, "where": "a/b", "loose": {}}
    assert [type(values[name]) for name in ("seed", "hops", "where")] == [int, list, str]
    with pytest.raises(ParameterError, match=r"loose: key 1 is of type int, and JSON keys are text; write '1'"):
        resolve(specs, {"loose": {1: 0.5}})


@pytest.mark.parametrize(
    ("source", "value", "expected"),
    [
        ("x: float = 0.0", np.float32(0.5), 0.5),
        ("x: float = 0.0", 3, 3.0),
        ("x: bool = False", np.bool_(True), True),
        ("x: list[float] = []", np.array([1, 2]), [1.0, 2.0]),
        ("x: list[list[int]] = []", ((1, 2), (3,)), [[1, 2], [3]]),
        ("x: dict[str, list[str]] = {}", {"a": ("b",)}, {"a": ["b"]}),
        ("x: int | None = None", np.int8(3), 3),
        ("x = None", {"a": [1, None, (2.5,)]}, {"a": [1, None, [2.5]]}),
        ("x: str = ''", np.str_("é"), "é"),
        ("x = [1, 2.5]", [3], [3.0]),
        ("x: Optional[int] = None", None, None),
        ("x: typing.Union[int, str] = 1", "a", "a"),
        ("x: Literal[1, 2] = 1", 2, 2),
    ],
)
def test_values_that_fit(source: str, value: Any, expected: Any) -> None:
    result = one(source, value)
    assert result == expected
    assert type(result) is type(expected)
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize(
    ("source", "value", "words"),
    [
        ("x: int = 0", "two", "'two' is of type str, expected int"),
        ("x: int = 0", "2", "leave out the quotes"),
        ("x: int = 0", True, "True is of type bool, expected int"),
        ("x: int = 0", 2.5, "2.5 is of type float, expected int"),
        ("x: int = 0", None, "None is None, expected int"),
        ("x: str = ''", 7, "7 is of type int, expected str; put it in quotes"),
        ("x: str = ''", datetime.date(2026, 1, 2), "put it in quotes"),
        ("x: float = 0.0", "1e-3", "YAML reads 1e-3 as text, write 1.0e-03 or 0.001"),
        ("x: float = 0.0", float("nan"), "nan is not a finite number"),
        ("x: list[int] = []", [1, "b"], r"\[1\] 'b' is of type str, expected int"),
        ("x: list[list[int]] = []", [[1], [2, None]], r"\[1\]\[1\] None is None"),
        ("x: list[int] = []", {1, 2}, "a set has no order, use a list"),
        ("x: dict[str, int] = {}", {2.5: 1}, "key 2.5 is of type float"),
        ("x: Literal['a', 'b'] = 'a'", "c", "expected one of 'a', 'b'"),
        ("x: Literal[1, 2] = 1", True, "expected one of 1, 2"),
        ("x: str | None = None", 3, "expected str | None"),
        ("x = None", object(), "which JSON cannot hold"),
        ("x: float = 0.5  # share; range: 0..1", 1.5, r"1.5 is outside 0\.\.1"),
        ("x: int = 5  # range: 1..", 0, r"0 is outside 1\.\."),
        ("x: list[float] = [0.5]  # range: ..0.9", [0.1, 0.95], r"0.95 is outside \.\.0\.9"),
        ("x: str = ''", "a\udcffb", r"'a\\udcffb' is no Unicode text \(it holds U\+DCFF\)"),
        ("x: list[str] = []", ["a", "\ud800"], r"\[1\] '\\ud800' is no Unicode text"),
        ("x: dict[str, int] = {}", {"\ud800": 1}, "is no Unicode text"),
        ("x = None", {"a": ["\ud800"]}, "is no Unicode text"),
        ("x: list[int] = []", [2**63], r"\[0\] a whole number of more than 64 bits"),
        ("x = None", -(2**63) - 1, "a whole number of more than 64 bits"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(source: str, value: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=f"^parameters: x: .*{words}"):
        one(source, value)


def test_all_problems_come_at_once() -> None:
    with pytest.raises(ParameterError, match="a: .*; b: .*; unknown parameter 'c'"):
        resolve(cell("a: int = 1\nb: int = 2"), {"a": "x", "b": "y", "c": 1})


def test_row_40_command_line_texts_follow_the_declared_type() -> None:
    """Case 40 (papermill#396, #55): true, 007 and lists mean what the declaration says."""
    specs = cell("resume: bool = False\ntag: str = ''\nnumber: int = 0\nseeds: list[int] = []\nname: str = ''")
    values = resolve(
        specs, overrides={"resume": "true", "tag": "007", "number": "007", "seeds": "[1,2]", "name": "true"}
    )
    assert values == {"resume": True, "tag": "007", "number": 7, "seeds": [1, 2], "name": "true"}


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("x: bool = True", "No", False),
        ("x: float = 0.0", "1e5", 100000.0),
        ("x: float = 0.0", "-.5", -0.5),
        ("x: list[int] = []", "1,2, 3", [1, 2, 3]),
        ("x: list[int] = []", "(1, 2)", [1, 2]),
        ("x: list[int] = []", "", []),
        ("x: list[str] = []", "007,true", ["007", "true"]),
        ("x: list[str] = []", '["a,b", "c"]', ["a,b", "c"]),
        ("x: dict[str, float] = {}", '{"a": 1}', {"a": 1.0}),
        ("x: dict[str, bool] = {}", "{'a': True}", {"a": True}),
        ("x: str | None = 'a'", "none", None),
        ("x: str | None = 'a'", "nothing", "nothing"),
        ("x: int | str = 1", "7", 7),
        ("x: int | str = 1", "7b", "7b"),
        ("x: Literal[1, 2, 'auto'] = 1", "2", 2),
        ("x: str = ''", "a=b#c ", "a=b#c "),
        ("x = None", "[1, null]", [1, None]),
        ("x = None", "plain words", "plain words"),
        ("x: int = 3  # range: 0..9", " 9 ", 9),
    ],
)
def test_texts_that_fit(source: str, text: str, expected: Any) -> None:
    result = typed(source, text)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("x: int = 0", "1_000"),
        ("x: int = 0", "1e5"),
        ("x: int = 0", "٣"),
        ("x: float = 0.0", "nan"),
        ("x: float = 0.0", "1e999"),
        ("x: bool = False", "2"),
        ("x: list[int] = []", "[1, 2"),
        ("x: list[int] = []", "1,b"),
        ("x: list[int] = []", "['1']"),
        ("x: dict[str, int] = {}", "a:1"),
        ("x: Literal['a'] = 'a'", "b"),
        ("x: int = 3  # range: 0..9", "10"),
        ("x: int = 0", "9" * 20),
        ("x: int = 0", "9" * 5000),
        ("x: list[int] = []", f"[{'9' * 5000}]"),
        ("x = None", "9" * 30),
        ("x: str = ''", "a\udcffb"),
        ("x: str | None = None", "\ud800"),
        ("x: list[str] = []", "a,\ud800"),
        ("x: list[str] = []", '["\\ud800"]'),
    ],
)
def test_texts_that_do_not_fit(source: str, text: str) -> None:
    with pytest.raises(ParameterError, match="x: "):
        typed(source, text)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1\ny = 10 * 2", r"cell 3, line 2: y = 10 \* 2: the default is not a literal"),
        ("x = Path('a')", "line 1: x = Path"),
        ("import os", "'import os' is not an assignment"),
        ("a, b = 1, 2", "is not an assignment of a literal to one name"),
        ("a = b = 1", "is not an assignment"),
        ("x.y = 1", "is not an assignment"),
        ("x: int", "'x' has no default"),
        ("x += 1", "is not an assignment"),
        ("x = 1\nx = 2", "line 2: parameter 'x' is set twice"),
        ("%matplotlib inline", "line 1: not plain Python"),
        ("x = (", "not plain Python"),
        ("x: int = 'a'", "x: 'a' is of type str, expected int"),
        ("x: set = 1", "annotation set is not supported"),
        ("x: tuple[int, ...] = (1,)", "is not supported"),
        ("x: dict[int, str] = {}", "keys must be str"),
        ("x: 'int |' = 1", "is not a type"),
        ("x: Literal[1.5] = 1.5", "choices are text"),
        ("x = {1, 2}", "a set has no order"),
        ("x = b'a'", "JSON cannot hold"),
        ("x = 5  # range: 0..4", r"x: 5 is outside 0\.\.4"),
        ("x = 5  # range: 0-9", "write a range as"),
        ("x = 5  # range: 9..0", "the range is empty"),
        ("x = 'a'  # range: 0..1", "a range was given for str"),
        ("for i in []:\n    pass", "'for i in ..:' is not an assignment"),
    ],
)
def test_cells_that_cannot_be_read_are_refused_with_their_place(source: str, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        cell(source)


def test_a_tuple_default_reaches_the_notebook_as_the_list_it_will_always_be() -> None:
    assert resolve(cell("hops = (1, 2)")) == {"hops": [1, 2]}


@pytest.mark.parametrize("name", ["api_key", "token", "OPENAI_API_KEY", "db_password", "client_secret"])
def test_secrets_are_not_parameters(name: str) -> None:
    """Parameters are stored in notebooks and indexes (papermill#271): a secret's value may not be one."""
    with pytest.raises(ParameterError, match="NAME of an environment variable"):
        cell(f"{name} = 'sk-123'")
    specs = cell(f"{name}: str | None = None")
    for refused in ({"profile": {name: "sk-123"}}, {"overrides": {name: "sk-123"}}):
        with pytest.raises(ParameterError, match="NAME of an environment variable") as caught:
            resolve(specs, **refused)
        assert "sk-123" not in str(caught.value)


def test_the_name_of_an_environment_variable_is_a_parameter() -> None:
    specs = cell("api_key_env: str = 'OPENAI_API_KEY'\nmax_tokens: int = 8")
    assert resolve(specs, {"api_key_env": "MY_KEY", "max_tokens": 9}) == {"api_key_env": "MY_KEY", "max_tokens": 9}
    with pytest.raises(ParameterError, match="is not the NAME") as caught:
        resolve(specs, {"api_key_env": "sk-123abc"})
    assert "sk-123abc" not in str(caught.value)


def test_a_notebook_has_one_parameters_cell(tmp_path: Path) -> None:
    path = notebook(tmp_path / "10_x.ipynb", "import sys", "seed: int = 7  # what", tag=1)
    assert read_parameters(path)["seed"].default == 7
    with pytest.raises(ParameterError, match="0 cells are tagged"):
        read_parameters(notebook(tmp_path / "none.ipynb", "x = 1", tag=None))
    with pytest.raises(ParameterError, match=r"bad\.ipynb, cell 1, line 1"):
        read_parameters(notebook(tmp_path / "bad.ipynb", "x = f()"))
    for content in ("{}", "[]", '{"id": 7, "tex', ""):
        (tmp_path / "torn.ipynb").write_text(content)
        with pytest.raises(ParameterError, match="torn.ipynb: not a readable notebook"):
            read_parameters(tmp_path / "torn.ipynb")
    with pytest.raises(ParameterError, match="missing.ipynb"):
        read_parameters(tmp_path / "missing.ipynb")


def test_profiles_are_plain_papermill_files(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("receiver: scripted\ncaps: [0.25, 0.5]\n# a remark\nname: null\n")
    assert load_profile(path) == {"receiver": "scripted", "caps": [0.25, 0.5], "name": None}
    path.write_text("# nothing yet\n")
    assert load_profile(path) == {}
    for content, words in [
        ("a: 1\nb: 2\na: 3\n", "line 1: a stands twice"),
        ("- a\n", "one mapping"),
        ("1: a\n", "one mapping"),
        ("a: [1\n", "not readable as YAML"),
        ("a: !!python/object/apply:os.getcwd []\n", "not readable as YAML"),
    ]:
        path.write_text(content)
        with pytest.raises(ParameterError, match=words):
            load_profile(path)


def test_overrides_are_name_equals_value() -> None:
    assert split_overrides(["a=1", "b=x=y", "a=2", "c="]) == {"a": "2", "b": "x=y", "c": ""}
    for text in ["a", "=1", "a b=1"]:
        with pytest.raises(ParameterError, match="expected name=value"):
            split_overrides([text])


whole = st.integers(-(2**63), 2**63 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | whole | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(json_values)
def test_every_json_value_is_a_default_and_survives(value: Any) -> None:
    specs = cell(f"x = {value!r}")
    assert specs["x"].default == value
    assert resolve(specs)["x"] == value
    assert resolve(cell("x = None"), {"x": value})["x"] == value


@given(st.text())
def test_any_text_is_a_str_parameter_from_the_command_line(text: str) -> None:
    assert typed("x: str = ''", text) == text


@given(st.lists(whole | st.none(), max_size=5))
def test_json_lists_survive_the_command_line(value: list[int | None]) -> None:
    assert typed("x: list[int | None] = []", json.dumps(value)) == value
