"""The types a notebook parameter may have, and how a value is brought to one.

A kind is read from an annotation (`int`, `list[str]`, `dict[str, float]`, `Literal["a", "b"]`, `str | None`, or the
same as a string) or from an unannotated default. `convert` takes values from Python and YAML: numpy scalars, tuples
and paths become their plain JSON counterparts where the kind says so; everything else that does not fit is refused
by name. `from_text` takes values typed on a command line and follows the declared kind: `true` is True for a bool
and "true" for a str, `007` is 7 for an int and "007" for a str.

Not covered: tuples, sets, dates and classes as declared types: a parameter is JSON, because papermill writes it
into a cell.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Literal

import msgspec

Name = Literal["any", "none", "bool", "int", "float", "str", "list", "dict", "choice", "union"]

_WORDS = {True: ("true", "yes", "on", "1"), False: ("false", "no", "off", "0")}
_NONE = ("none", "null")


class KindError(ValueError):
    """An annotation that is no kind, or a value that does not fit its kind; the caller adds where."""


class Kind(msgspec.Struct, frozen=True):
    """A declared type: `inner` are the members of a union or the element of a list or dict, `values` the choices."""

    name: Name
    inner: tuple[Kind, ...] = ()
    values: tuple[Any, ...] = ()

    def __str__(self) -> str:
        if self.name == "union":
            return " | ".join(map(str, self.inner))
        if self.name == "choice":
            return f"one of {', '.join(map(repr, self.values))}"
        if self.name == "list" and self.inner:
            return f"list[{self.inner[0]}]"
        if self.name == "dict" and self.inner:
            return f"dict[str, {self.inner[0]}]"
        return {"none": "None", "any": "any JSON value"}.get(self.name, self.name)


ANY = Kind("any")
_SIMPLE: dict[str, Kind] = {
    "int": Kind("int"),
    "float": Kind("float"),
    "str": Kind("str"),
    "bool": Kind("bool"),
    "None": Kind("none"),
    "Any": ANY,
    "list": Kind("list"),
    "dict": Kind("dict"),
    "List": Kind("list"),
    "Dict": Kind("dict"),
}


def kind_of_annotation(node: ast.expr) -> Kind:
    """Return the kind that an annotation declares; `KindError` names what is not understood."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return kind_of_annotation(ast.parse(node.value.strip(), mode="eval").body)
        except SyntaxError:
            raise KindError(f"annotation {node.value!r} is not a type") from None
    if isinstance(node, ast.Constant) and node.value is None:
        return _SIMPLE["None"]
    name = _tail(node)
    if name in _SIMPLE:
        return _SIMPLE[name]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union([kind_of_annotation(node.left), kind_of_annotation(node.right)])
    if isinstance(node, ast.Subscript):
        inside = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        outer = _tail(node.value)
        if outer == "Literal":
            return Kind("choice", values=tuple(_choice(value) for value in inside))
        if outer == "Optional" and len(inside) == 1:
            return _union([kind_of_annotation(inside[0]), _SIMPLE["None"]])
        if outer == "Union":
            return _union([kind_of_annotation(member) for member in inside])
        if outer in ("list", "List") and len(inside) == 1:
            return Kind("list", (kind_of_annotation(inside[0]),))
        if outer in ("dict", "Dict") and len(inside) == 2:
            if kind_of_annotation(inside[0]).name != "str":
                raise KindError(f"{ast.unparse(node)}: keys must be str (a parameter is JSON, whose keys are text)")
            return Kind("dict", (kind_of_annotation(inside[1]),))
    raise KindError(
        f"annotation {ast.unparse(node)} is not supported; use int, float, str, bool, None, list[...], dict[str, ...], "
        "Literal[...] or a union of these"
    )


def kind_of_value(value: Any) -> Kind:
    """Return the kind of an unannotated default: its own type; None and empty or mixed containers leave it open."""
    if value is None:
        return ANY
    if isinstance(value, list | dict):
        members = value if isinstance(value, list) else value.values()
        inner = {kind_of_value(member) for member in members}
        if inner == {_SIMPLE["int"], _SIMPLE["float"]}:
            inner = {_SIMPLE["float"]}
        known = tuple(inner) if len(inner) == 1 else ()
        return Kind("list" if isinstance(value, list) else "dict", known)
    return _SIMPLE[type(value).__name__]


def convert(kind: Kind, value: Any) -> Any:
    """Return `value` as the plain JSON value that `kind` asks for, or raise `KindError` saying what is wrong."""
    value = _plain(value)
    if kind.name == "any":
        return _convert_any(value)
    if kind.name == "none" and value is None:
        return None
    if kind.name == "union":
        return _convert_union(kind, value)
    if kind.name == "choice":
        for choice in kind.values:
            if type(choice) is type(value) and choice == value:
                return choice
    if kind.name == "bool" and isinstance(value, bool):
        return value
    if kind.name == "int" and isinstance(value, int) and not isinstance(value, bool):
        return _fits(int(value))
    if kind.name == "float" and isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(float(value))
    if kind.name == "str" and isinstance(value, str):
        return _written(str(value))
    if kind.name == "list" and isinstance(value, list):
        inner = kind.inner[0] if kind.inner else ANY
        return [_member(f"[{i}]", inner, member) for i, member in enumerate(value)]
    if kind.name == "dict" and isinstance(value, Mapping):
        inner = kind.inner[0] if kind.inner else ANY
        return {_text_key(key, declared=bool(kind.inner)): _member(f"[{key!r}]", inner, v) for key, v in value.items()}
    raise KindError(f"{_shown(value)} is {_type_name(value)}, expected {kind}{_hint(kind, value)}")


def from_text(kind: Kind, text: str) -> Any:
    """Return the value that `text`, typed on a command line, means for `kind`; `KindError` when it means nothing."""
    word = text.strip()
    if kind.name == "str":
        return text
    if kind.name == "none" and word.lower() in _NONE:
        return None
    if kind.name == "bool":
        for value, words in _WORDS.items():
            if word.lower() in words:
                return value
    if kind.name == "int" and re.fullmatch(r"[+-]?[0-9]{1,4000}", word):  # Python refuses to read longer numbers
        return _fits(int(word))
    if kind.name == "float" and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", word):
        return _finite(float(word))
    if kind.name == "choice":
        for choice in kind.values:
            if word == str(choice):
                return choice
    if kind.name == "union":
        # text fits everything, so it is tried last: for `int | str`, 7 is a number
        for member in sorted(kind.inner, key=lambda member: member.name == "str"):
            try:
                return from_text(member, text)
            except KindError:
                continue
    if kind.name in ("list", "dict"):
        return convert(kind, _container(kind, word))
    if kind.name == "any":
        parsed = _parse(word)
        return convert(kind, text if parsed is None and word.lower() not in _NONE else parsed)
    raise KindError(f"{text!r} is not {kind}")


def _container(kind: Kind, word: str) -> Any:
    """Read a list or dict: JSON, Python's notation, or for a list of simple values `a,b,c`."""
    if word[:1] in ("[", "{", "("):
        value = _parse(word)
        if value is None:
            raise KindError(f"{word!r} is not {kind}: neither JSON nor Python notation")
        return value
    inner = kind.inner[0] if kind.inner else Kind("str")
    if kind.name == "list" and inner.name not in ("list", "dict"):
        return [from_text(inner, part.strip()) for part in word.split(",")] if word else []
    raise KindError(f"{word!r} is not {kind}; write JSON")


def _parse(word: str) -> Any:
    """Return the JSON or Python literal in `word`, else None."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(word)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def _union(kinds: list[Kind]) -> Kind:
    flat = [member for kind in kinds for member in (kind.inner if kind.name == "union" else (kind,))]
    return Kind("union", tuple(dict.fromkeys(flat)))


def _convert_union(kind: Kind, value: Any) -> Any:
    for member in kind.inner:
        try:
            return convert(member, value)
        except KindError:
            continue
    raise KindError(f"{_shown(value)} is {_type_name(value)}, expected {kind}")


def _convert_any(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _fits(value)
    if isinstance(value, str):
        return _written(value)
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, list):
        return [_member(f"[{i}]", ANY, member) for i, member in enumerate(value)]
    if isinstance(value, Mapping):
        return {_text_key(key, declared=False): _member(f"[{key!r}]", ANY, v) for key, v in value.items()}
    raise KindError(f"{_shown(value)} is {_type_name(value)}, which JSON cannot hold{_hint(ANY, value)}")


def _member(where: str, kind: Kind, value: Any) -> Any:
    try:
        return convert(kind, value)
    except KindError as error:
        raise KindError(f"{where} {error}" if not str(error).startswith("[") else f"{where}{error}") from None


def _plain(value: Any) -> Any:
    """Turn numpy scalars and arrays, tuples and paths into what they mean; numpy is recognised without being loaded."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    return value


def _text_key(key: Any, *, declared: bool) -> str:
    """Return a dict key as text. Whole numbers become text only where `dict[str, ...]` was declared."""
    key = _plain(key)
    if isinstance(key, str):
        return _written(str(key))
    if declared and isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    remedy = f"write {str(key)!r}" if isinstance(key, int | float) else "keys must be str"
    raise KindError(f"key {key!r} is {_type_name(key)}, and JSON keys are text; {remedy}")


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise KindError(f"{value} is not a finite number")
    return value


def _fits(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise KindError("a whole number of more than 64 bits, which no table can hold")
    return value


def _written(text: str) -> str:
    """Refuse text that no file can hold: half a surrogate pair, as bytes that are no UTF-8 become on a command line."""
    for character in text:
        if 0xD800 <= ord(character) <= 0xDFFF:
            raise KindError(f"{_shown(text)} is no Unicode text (it holds U+{ord(character):04X}); write it in UTF-8")
    return text


def _hint(kind: Kind, value: Any) -> str:
    """Say what to do about the mistakes that YAML and Python make easy."""
    if isinstance(value, str):
        try:
            from_text(kind, value)
        except KindError:
            return ""
        if kind.name == "float":
            return f"; YAML reads {value} as text, write {float(value):.1e} or {float(value)}"
        return "; leave out the quotes"
    if kind.name == "str" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if isinstance(value, set | frozenset):
        return "; a set has no order, use a list"
    if type(value).__name__ in ("date", "datetime"):
        return "; put it in quotes"
    return ""


def _type_name(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _tail(node: ast.expr) -> str:
    """Return `Literal` for both `Literal` and `typing.Literal`."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _choice(node: ast.expr) -> Any:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        value = ...
    if isinstance(value, str | int | bool) or value is None:
        return value
    raise KindError(f"Literal[{ast.unparse(node)}]: choices are text, whole numbers, booleans or None")
