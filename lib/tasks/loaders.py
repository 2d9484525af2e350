"""Find the loader of a data set by name, and refuse what it does not know.

A registry maps names to (module, function), so that a loader is imported when it is asked for and no earlier: some need
scikit-learn, whose import costs a second, and some import the registry's own module.

Not covered: what a loader returns (`registry`, `steps`, `questions`).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lib.tasks.task import WorkloadError


def find_loader(
    kind: str, name: str, loaders: Mapping[str, tuple[str, str]], knobs: Iterable[str], *, what: str | None = None
) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """Return the loader called `name` and the names of its parameters.

    Parameters
    ----------
    kind, what : what is loaded, for messages about the data and about its name (default the same)
    loaders : name -> (module, function)
    knobs : names that are to be passed beside ``limit`` and ``seed``

    Raises
    ------
    WorkloadError
        Unknown name or knob; the message says what may have been meant.
    """
    if name not in loaders:
        raise WorkloadError(
            f"{what or kind} {name!r} is unknown{suggestion(name, loaders)}; known: {', '.join(loaders)}"
        )
    module, function = loaders[name]
    loader: Callable[..., Any] = getattr(importlib.import_module(module), function)
    parameters = tuple(inspect.signature(loader).parameters)
    known = tuple(parameter for parameter in parameters if parameter not in {"limit", "seed"})
    for knob in knobs:
        if knob not in known:
            raise WorkloadError(
                f"{kind} {name}: unknown knob {knob!r}{suggestion(knob, known)}; knobs: {', '.join(known)}"
            )
    return loader, parameters


def check_limit(kind: str, name: str, limit: object) -> None:
    """Refuse a limit that is neither None nor a whole number of at least 1."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise WorkloadError(f"{kind} {name}: limit must be a whole number of at least 1 or None, got {limit!r}")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)" where one of `known` is near to `name`, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
