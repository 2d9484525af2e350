"""Read a sweep file and list its runs: one notebook under many parameters.

Context: a comparison over caps, models and seeds is the same notebook run again and again. A sweep file says which values:

    notebook: 12_compare_policies_under_caps   # number, name, or the start of one
    base: smoke                                # a profile, or a parameter file; without it the notebook's own defaults
    parameters: {tasks: 10}                    # what all runs share and `base` does not say
    grid:                                      # every combination of these values ...
      receiver: [scripted, scripted-skimming]
    seeds:                                     # ... each of them once for every combination of these
      worlds: [{seed: 0}, {seed: 1}]
    resources: {GPU: 1, memory_gb: 8}          # what one run takes of a worker
    retries: 1                                 # further tries of a run that failed
    timeout: 7200                              # seconds a cell may take, 0 for no limit

In place of `grid` there may be `list`, the combinations one by one: `list: [{receiver: scripted, tasks: 5}, ...]`. The product
counts from the right: the last name varies fastest, seeds fastest of all. `seeds` differ from `grid` in meaning only: results
are averaged over seeds and compared over the rest.

How to read the result: a run has the id that `python -m lib run` would give it, so runs that were made before, by whatever
command, are not made again.

Not covered: running them (`lib.runs.sweep_cluster`) and their table (`lib.runs.sweep_table`).
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from lib.runs.index import flat_values
from lib.runs.kinds import KindError
from lib.runs.layout import Layout, content_hashes, find_notebooks, run_id, select
from lib.runs.notebook import CELL_SECONDS, Plan
from lib.runs.params import ParameterError, ParameterSpec, did_you_mean, load_profile, read_parameters, resolve

MOST_RUNS = 100_000  # more is a slip of the pen
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_FIELDS = ("notebook", "base", "parameters", "grid", "list", "seeds", "resources", "retries", "timeout")


class Sweep(msgspec.Struct, frozen=True):
    """The runs of one sweep file, all of them checked.

    Attributes
    ----------
    name : str
        The file's stem; also the folder of its table.
    plans : tuple of Plan
        Distinct runs in the file's order; their profile is ``sweep-<name>``.
    labels : mapping
        Run id -> what sets this run apart, as `name=value`.
    grid, seeds : tuple of str
        Names of the parameters that are compared, and of those that are averaged over.
    duplicates : int
        Combinations that ask for the same as an earlier one.
    resources : mapping
        What one run takes of a worker.
    retries, timeout : int
        Further tries of a run that failed; seconds a cell may take, 0 for no limit.
    """

    name: str
    plans: tuple[Plan, ...]
    labels: dict[str, str]
    grid: tuple[str, ...]
    seeds: tuple[str, ...]
    duplicates: int = 0
    resources: dict[str, float] = {}
    retries: int = 1
    timeout: int = CELL_SECONDS


def find_sweep(layout: Layout, text: str) -> Path:
    """Return the sweep file that `text` names: a path, or the name of a file in params/sweeps.

    Raises
    ------
    ParameterError
        When there is none; the message says what may have been meant.
    """
    folder = layout.params / "sweeps"
    for path in (Path(text), folder / text, folder / f"{text}.yaml"):
        if path.is_file():
            return path.absolute()
    known = [path.stem for path in sorted(folder.glob("*.yaml"))]
    raise ParameterError(f"sweep {text}: no such file, here or in params/sweeps{did_you_mean(Path(text).stem, known)}")


def read_sweep(path: Path, layout: Layout) -> Sweep:
    """Return the runs of a sweep file, with every value of every cell checked.

    Raises
    ------
    ParameterError
        Naming file, field and fix: an unknown field, notebook or parameter, a value of the wrong type or out of range, nothing to run.
    """
    content = load_profile(path)
    for name in content:
        if name not in _FIELDS:
            raise ParameterError(f"{path}: unknown field '{name}'{did_you_mean(name, _FIELDS)}")
    if not _NAME.fullmatch(path.stem):
        raise ParameterError(f"{path}: the file's name names the sweep; use lower-case letters, digits, '-' and '_'")
    notebook = _notebook(content.get("notebook"), path, layout)
    specs = read_parameters(notebook)
    shared = {**_base(content.get("base"), notebook, specs, path, layout), **_mapping(content, "parameters", path)}
    shared = resolve(specs, shared, where=f"{path}: parameters")
    cells = _cells(content, path)
    seeds = _product(content, "seeds", path)
    _check_values(specs, content, cells, seeds, path)
    hashes = content_hashes(notebook, layout)
    plans: dict[str, Plan] = {}
    values: dict[str, dict[str, Any]] = {}
    for cell, seed in itertools.product(cells, seeds):
        given = {**cell, **seed}
        parameters = resolve(specs, {**shared, **given}, where=str(path))
        identity = run_id(notebook, parameters, hashes)
        plans.setdefault(identity, Plan(notebook, f"sweep-{path.stem}", parameters, hashes, identity))
        values.setdefault(identity, {name: parameters[name] for name in given})
    return Sweep(
        name=path.stem,
        plans=tuple(plans.values()),
        labels=labels_of(values),
        grid=tuple(dict.fromkeys(name for cell in cells for name in cell)),
        seeds=tuple(seeds[0]),
        duplicates=len(cells) * len(seeds) - len(plans),
        resources=_resources(content, path),
        retries=_whole(content, "retries", 1, path),
        timeout=_whole(content, "timeout", CELL_SECONDS, path),
    )


def labels_of(values: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return run id -> what sets the run apart: what differs among the runs, members of mappings by themselves.

    >>> labels_of({"a": {"caps": {"x": 0.5, "y": 1}, "model": "m"}, "b": {"caps": {"x": 0.7, "y": 1}, "model": "n"}})
    {'a': 'caps.x=0.5 model=m', 'b': 'caps.x=0.7 model=n'}
    """
    flat = {identity: dict(flat_values(given)) for identity, given in values.items()}
    names = dict.fromkeys(name for one in flat.values() for name in one)
    differ = [name for name in names if len({json.dumps(one.get(name)) for one in flat.values()}) > 1]
    return {
        identity: " ".join(f"{name}={one[name]}" for name in differ if name in one) or "as its base"
        for identity, one in flat.items()
    }


def _notebook(name: Any, path: Path, layout: Layout) -> Path:
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise ParameterError(f"{path}: notebook: expected the number or name of one notebook")
    try:
        found = select(find_notebooks(layout), [str(name)])
    except ParameterError as error:
        raise ParameterError(f"{path}: notebook: {str(error).removeprefix('--only ')}") from None
    if len(found) != 1:
        raise ParameterError(f"{path}: notebook: {name} means {', '.join(book.stem for book in found)}; name one")
    return found[0]


def _base(name: Any, notebook: Path, specs: Mapping[str, ParameterSpec], path: Path, layout: Layout) -> dict[str, Any]:
    """Return the values of the profile or parameter file that the sweep starts from."""
    if name is None:
        return {}
    profiles = layout.profiles()
    if name in profiles:
        file = layout.params / name / f"{notebook.stem}.yaml"
    elif isinstance(name, str) and name.endswith(".yaml"):
        file = layout.root / name
    else:
        hint = did_you_mean(str(name), profiles)
        raise ParameterError(f"{path}: base: {name!r} is neither a profile nor a .yaml file{hint}")
    if not file.is_file():
        raise ParameterError(f"{path}: base: {file} is not there")
    values = load_profile(file)
    resolve(specs, values, where=str(file))  # so that a message names the file where the mistake is
    return values


def _cells(content: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    """Return the combinations to compare: the product of `grid`, or those of `list`."""
    if "grid" in content and "list" in content:
        raise ParameterError(f"{path}: both grid and list are given; keep one")
    if not {"grid", "list", "seeds"} & set(content):
        raise ParameterError(f"{path}: nothing to vary; give grid, list or seeds")
    if "list" not in content:
        return _product(content, "grid", path)
    cells = content["list"]
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ParameterError(f"{path}: list: expected a list of mappings, each of parameter names to values")
    if not cells:
        raise ParameterError(f"{path}: list: it is empty; there is nothing to run")
    return cells


def _product(content: Mapping[str, Any], field: str, path: Path) -> list[dict[str, Any]]:
    """Return every combination of the values in a field; one without values where there is no such field."""
    values = _mapping(content, field, path)
    if field in content and not values:
        raise ParameterError(f"{path}: {field}: it is empty; leave it out or name a parameter")
    for name, choices in values.items():
        if not isinstance(choices, list):
            raise ParameterError(f"{path}: {field}.{name}: expected a list of values, such as [{choices}]")
        if not choices:
            raise ParameterError(f"{path}: {field}.{name}: no values, so there is nothing to run")
    count = math.prod(len(choices) for choices in values.values())
    if count > MOST_RUNS:
        raise ParameterError(f"{path}: {field}: {count} combinations; a sweep has at most {MOST_RUNS}")
    return [dict(zip(values, choice, strict=True)) for choice in itertools.product(*values.values())]


def _check_values(
    specs: Mapping[str, ParameterSpec],
    content: Mapping[str, Any],
    cells: list[dict[str, Any]],
    seeds: list[dict[str, Any]],
    path: Path,
) -> None:
    """Check each value once, where it stands, and tell all mistakes together."""
    fixed, varied = set(_mapping(content, "parameters", path)), {name for cell in cells for name in cell}
    problems = []
    for names, one, other in (
        (fixed & varied, "parameters", "grid or list"),
        (fixed & set(seeds[0]), "parameters", "seeds"),
        (varied & set(seeds[0]), "grid or list", "seeds"),
    ):
        problems += [f"'{name}' stands in {one} and in {other}; keep one" for name in sorted(names)]
    for place, name, value in _places(content):
        if name not in specs:
            problems.append(f"{place}: unknown parameter '{name}'{did_you_mean(name, specs)}")
            continue
        try:
            specs[name].check(value)
        except KindError as error:
            problems.append(f"{place}: {error}")
    if problems:
        raise ParameterError(f"{path}: {'; '.join(dict.fromkeys(problems))}")
    if len(cells) * len(seeds) > MOST_RUNS:
        raise ParameterError(f"{path}: {len(cells)} x {len(seeds)} runs; a sweep has at most {MOST_RUNS}")


def _places(content: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield every value of grid, list and seeds with its place in the file, counted from 1."""
    for field in ("grid", "seeds"):
        for name, choices in (content.get(field) or {}).items():
            for number, value in enumerate(choices, 1):
                yield f"{field}.{name}, value {number}", name, value
    for number, cell in enumerate(content.get("list") or [], 1):
        for name, value in cell.items():
            yield f"list, entry {number}, {name}", name, value


def _mapping(content: Mapping[str, Any], field: str, path: Path) -> dict[str, Any]:
    values = content.get(field)
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ParameterError(f"{path}: {field}: expected a mapping of names to values")
    return values


def _resources(content: Mapping[str, Any], path: Path) -> dict[str, float]:
    resources = _mapping(content, "resources", path)
    for name, amount in resources.items():
        number = isinstance(amount, int | float) and not isinstance(amount, bool) and math.isfinite(amount)
        if not number or amount <= 0:
            raise ParameterError(f"{path}: resources.{name}: {amount!r} is not a number above 0")
    return {name: float(amount) for name, amount in resources.items()}


def _whole(content: Mapping[str, Any], field: str, default: int, path: Path) -> int:
    value = content.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ParameterError(f"{path}: {field}: {value!r} is not a whole number from 0 up")
    return value
