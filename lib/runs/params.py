"""Read what a notebook may be asked, and check what it is asked before a kernel starts.

Parameters are the assignments of literals in the notebook's single cell tagged `parameters`, read by `ast`:

    receiver: str = "qwen-coder-0.5b"       # short name of the model
    caps: list[float] = [0.25, 0.5]         # budget as a share of all bytes; range: 0..1
    order: Literal["wire", "score"] = "wire"

The comment at the end of the line is the help text. `range: LOW..HIGH` inside it (either end may be left out, both
ends count) bounds a number, or each number of a list or dict. Annotations are optional; without one the default's
own type is expected.

Values come from a profile, `params/<profile>/<notebook>.yaml` (a plain papermill `-f` file), and from `name=value`
texts of a command line, which follow the declared type. Names that look like secrets take the NAME of an
environment variable only.

Not covered: defaults that are computed, and parameters of other languages than Python.
"""

from __future__ import annotations

import ast
import difflib
import io
import re
import tokenize
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from lib.runs.kinds import ANY, Kind, KindError, convert, from_text, kind_of_annotation, kind_of_value

_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"[;,]?\s*\brange:\s*(?P<low>{_NUMBER})?\s*\.\.\s*(?P<high>{_NUMBER})?(?![\d.])")
_SECRET = frozenset({"key", "apikey", "token", "password", "passwd", "secret", "credential", "credentials"})


class ParameterError(Exception):
    """A parameters cell that cannot be read, or values that do not fit it; the message names place and fix."""


class ParameterSpec(msgspec.Struct, frozen=True):
    """One declared parameter.

    Attributes
    ----------
    name : str
    kind : Kind
        The declared type, or the default's own.
    default : Any
        The plain JSON value in the cell.
    help : str
        The comment beside it, without the range.
    low, high : float, optional
        Inclusive bounds of a number, or of each number in a list or dict.
    line : int
        Line in the cell, from 1.
    """

    name: str
    kind: Kind
    default: Any
    help: str = ""
    low: float | None = None
    high: float | None = None
    line: int = 0

    def check(self, value: Any) -> Any:
        """Return `value` as this parameter's plain JSON value, or raise `KindError`."""
        if _looks_secret(self.name) and isinstance(value, str):
            raise KindError("looks like a secret, and parameters are stored; " + _SECRET_REMEDY.format(name=self.name))
        if _names_secret(self.name) and isinstance(value, str) and not re.fullmatch(r"[A-Z][A-Z0-9_]*", value):
            raise KindError(
                f"{_masked(value)} is not the NAME of an environment variable (capitals, digits, underscores)"
            )
        plain = convert(self.kind, value)
        for number in _numbers(plain):
            if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
                raise KindError(f"{number:g} is outside{self.bounds()}")
        return plain

    def bounds(self) -> str:
        """Return the range as ` 0..1`, or nothing where there is none."""
        if self.low is None and self.high is None:
            return ""
        return f" {'' if self.low is None else f'{self.low:g}'}..{'' if self.high is None else f'{self.high:g}'}"


_SECRET_REMEDY = "pass the NAME of an environment variable in a parameter `{name}_env`"


def read_parameters(notebook: str | Path) -> dict[str, ParameterSpec]:
    """Return the parameters that a notebook declares, in the order of its cell.

    Raises
    ------
    ParameterError
        When the file is no notebook, when it has not exactly one `parameters` cell, or when the cell holds something
        else than assignments of literals; the message names notebook, cell and line.
    """
    path = Path(notebook)
    try:
        content = msgspec.json.decode(path.read_bytes())
        cells = [(cell["metadata"].get("tags", []), _source(cell)) for cell in content["cells"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParameterError(f"{path}: not a readable notebook ({error})") from error
    tagged = [(number, source) for number, (tags, source) in enumerate(cells, 1) if "parameters" in tags]
    if len(tagged) != 1:
        raise ParameterError(f"{path}: {len(tagged)} cells are tagged 'parameters', exactly one is needed")
    number, source = tagged[0]
    return {spec.name: spec for spec in parse_cell(source, f"{path.name}, cell {number}")}


def parse_cell(source: str, where: str) -> list[ParameterSpec]:
    """Return the parameters of a cell's source; `where` (notebook and cell) opens every error message."""
    try:
        statements = ast.parse(source).body
        comments = _comments(source)
    except (SyntaxError, tokenize.TokenError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ParameterError(f"{where}, line {line}: not plain Python ({error.args[0]})") from error
    found: dict[str, ParameterSpec] = {}
    for statement in statements:
        place = f"{where}, line {statement.lineno}"
        if isinstance(statement, ast.ImportFrom) and statement.module in ("typing", "__future__"):
            continue  # what annotations need
        try:
            spec = _spec(statement, comments)
        except KindError as error:
            raise ParameterError(f"{place}: {error}") from None
        if spec.name in found:
            raise ParameterError(f"{place}: parameter '{spec.name}' is set twice; keep one default")
        found[spec.name] = spec
    return list(found.values())


def load_profile(path: str | Path) -> dict[str, Any]:
    """Return the values of a papermill `-f` file; `ParameterError` when it is not one mapping with distinct names."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain YAML in which a name that stands twice is a mistake, not a silent override."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [self.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
            twice = {str(name) for name in names if names.count(name) > 1}
            if twice:
                raise yaml.YAMLError(f"line {node.start_mark.line + 1}: {', '.join(sorted(twice))} stands twice")
            return super().construct_mapping(node, deep=deep)

    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8"), Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ParameterError(f"{path}: expected one mapping of parameter names to values, as papermill -f reads it")
    return content


def split_overrides(texts: Iterable[str]) -> dict[str, str]:
    """Split `name=value` texts of a command line; the last one wins."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ParameterError(f"-p {text}: expected name=value")
        found[name.strip()] = value
    return found


def resolve(
    specs: Mapping[str, ParameterSpec],
    profile: Mapping[str, Any] | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    where: str = "parameters",
) -> dict[str, Any]:
    """Return a value for every parameter: the default, unless the profile, unless an override.

    Parameters
    ----------
    specs : mapping
        From `read_parameters`.
    profile : mapping, optional
        Python values, from a YAML file or a caller.
    overrides : mapping, optional
        Texts of a command line.
    where : str
        Opens the error message: whose values these are.

    Raises
    ------
    ParameterError
        Naming every unknown name (with what may have been meant) and every value that does not fit.
    """
    values = {name: spec.default for name, spec in specs.items()}
    problems = []
    for source, reads in ((profile or {}, ParameterSpec.check), (overrides or {}, _check_text)):
        for name, value in source.items():
            if name not in specs:
                problems.append(f"unknown parameter '{name}'{did_you_mean(name, specs)}")
                continue
            try:
                values[name] = reads(specs[name], value)
            except KindError as error:
                problems.append(f"{name}: {error}")
    if problems:
        raise ParameterError(f"{where}: {'; '.join(problems)}")
    return values


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'caps'?`, or the names there are when none is near."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; there are: {', '.join(names)}" if names else "; there are none"


def _check_text(spec: ParameterSpec, text: str) -> Any:
    if _looks_secret(spec.name) and spec.kind.name in ("str", "any", "union"):
        spec.check(text)
    return spec.check(from_text(spec.kind, text))


def _spec(statement: ast.stmt, comments: Mapping[int, str]) -> ParameterSpec:
    """Turn one assignment into a parameter."""
    annotation: ast.expr | None = None
    target: ast.expr | None = None
    if isinstance(statement, ast.AnnAssign):
        target, annotation, value = statement.target, statement.annotation, statement.value
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Name):
        shown = ast.unparse(statement).split("\n")[0]
        raise KindError(f"'{shown}' is not an assignment of a literal to one name; move it to another cell")
    if value is None:
        raise KindError(f"parameter '{target.id}' has no default")
    try:
        default = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError):
        raise KindError(
            f"{target.id} = {ast.unparse(value)}: the default is not a literal; write the value itself"
        ) from None
    help_text, low, high = _help(comments.get(statement.end_lineno or statement.lineno, ""))
    try:
        kind = kind_of_annotation(annotation) if annotation is not None else kind_of_value(convert(ANY, default))
        spec = ParameterSpec(target.id, kind, None, help_text, low, high, statement.lineno)
        default = spec.check(default)
        if (low, high) != (None, None) and not _has_numbers(kind):
            raise KindError(f"a range was given for {kind}")
    except KindError as error:
        raise KindError(f"{target.id}: {error}") from None
    return msgspec.structs.replace(spec, default=default)


def _comments(source: str) -> dict[int, str]:
    """Return line number -> comment text; `ast` drops comments and a search for '#' would find those inside strings."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("#").strip() for token in tokens if token.type == tokenize.COMMENT}


def _help(comment: str) -> tuple[str, float | None, float | None]:
    """Split a comment into help text and bounds."""
    match = _RANGE.search(comment)
    if match is None:
        if re.search(r"\brange:", comment):
            raise KindError(f"comment '{comment}': write a range as `range: 0..1`, `range: 1..` or `range: ..9`")
        return comment, None, None
    low, high = (float(end) if end else None for end in match.group("low", "high"))
    if low is not None and high is not None and low > high:
        raise KindError(f"comment '{comment}': the range is empty")
    rest = (comment[: match.start()] + comment[match.end() :]).strip(" ;,")
    return rest, low, high


def _numbers(value: Any) -> Iterable[float]:
    if isinstance(value, list | dict):
        for member in value if isinstance(value, list) else value.values():
            yield from _numbers(member)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _has_numbers(kind: Kind) -> bool:
    if kind.name in ("list", "dict", "union"):
        return not kind.inner or any(_has_numbers(member) for member in kind.inner)
    return kind.name in ("int", "float", "any")


def _looks_secret(name: str) -> bool:
    return bool(_SECRET & set(name.lower().split("_"))) and not _names_secret(name)


def _names_secret(name: str) -> bool:
    parts = name.lower().split("_")
    return parts[-1] == "env" and bool(_SECRET & set(parts))


def _masked(value: str) -> str:
    """Show enough of a value to find it, not enough to use it: it may be the secret itself."""
    return f"'{value[:3]}...'"


def _source(cell: Mapping[str, Any]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)
