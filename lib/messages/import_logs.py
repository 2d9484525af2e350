"""Read the log of another agent system into messages.

Context
-------
Four families of logs are known: AutoGen dumps, LangChain and LangGraph message lists, OpenAI chat lists, and
OpenTelemetry spans of the GenAI conventions. Each has a module that says which shapes it reads. Which one a file is
in is seen from its content, never from its name.

Intuition
---------
`read_log` answers who said what to whom, in which order. What to do with it is `lib.messages.free_text`: cut it into
packets whose exact bytes can be counted, so that a receiver can be asked again without each of them.

How to read the result
----------------------
`import_table` says in one table how many records became messages and what became of the rest; the counts are part of
the result, not a warning that scrolls by.

Not covered: what a log leaves out. Most formats do not say who heard a message, see `lib.messages.logged`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from lib.messages import logs_autogen, logs_langchain, logs_openai, logs_otel
from lib.messages.log_files import Value, read_values
from lib.messages.logged import Collector, ImportedLog, LogError, Problem
from lib.messages.logs_openai import kind_of

Format = Literal["auto", "autogen", "langchain", "openai", "otel"]
# Tried in this order: a shape that only one format has comes before those that several share.
_FORMATS = {module.NAME: module for module in (logs_otel, logs_langchain, logs_autogen, logs_openai)}
FORMATS = tuple(sorted(_FORMATS))
_PROBE = 50  # values that are looked at to see the format
_SHOWN = 3  # problems that an error quotes


def read_log(path: str | Path, format: Format = "auto", *, strict: bool = False) -> ImportedLog:
    """Read a log file.

    Parameters
    ----------
    path : JSON or JSON Lines; the latter is read line by line, and only messages are kept in memory
    format : one of `FORMATS`, or "auto" to see it from the content
    strict : refuse a log with any record that cannot be read, instead of reporting it in `problems`

    Returns
    -------
    ImportedLog
        Messages in the order of the log (OpenTelemetry: in time order, since spans are written when they end).

    Raises
    ------
    LogError
        When the file is no log that is known (the message says what was seen and what is known), when nothing in it could be read, or with
        `strict` at the first problem; each names line or message and field.
    """
    if format not in ("auto", *FORMATS):
        raise LogError(f"format {format!r} is unknown: use auto or one of {', '.join(FORMATS)}")
    out = Collector()
    values = read_values(path)
    probed: list[Value | Problem] = []
    name: str = format if format != "auto" else ""
    for found in values if not name else ():
        probed.append(found)
        name = _format_of(found.content) if isinstance(found, Value) else ""
        if name or len(probed) == _PROBE:
            break
    if not name:
        raise LogError(f"{path}: {_seen(probed)}. Known formats: {known_formats()}")
    reader = _FORMATS[name].Reader(out)
    for found in _checked(chain(probed, values), out, path, strict):
        reader.read(found.content, found.place)
        _refuse(out, path, strict)
    reader.finish()
    _refuse(out, path, strict)
    if not len(out):
        why = "; ".join(_problem(one) for one in out.problems[:_SHOWN])
        left = ", ".join(f"{count} x {reason}" for reason, count in out.skipped.items())
        raise LogError(f"{path}: read as {name}, but it holds no message. {why or left or 'It is empty'}")
    return out.finish(name)


def import_table(log: ImportedLog) -> pd.DataFrame:
    """Return what became of the records of a log: columns ``what``, ``count`` and ``note``."""
    kinds = pd.Series([message.kind for message in log.messages]).value_counts()
    rows = [(f"{kind}", int(count), "read") for kind, count in kinds.items()]
    rows += [(reason, count, "left out") for reason, count in log.skipped.items()]
    rows += [(reason, count, "changed or missing") for reason, count in log.notes.items()]
    if log.problems:
        shown = "; ".join(_problem(one) for one in log.problems[:_SHOWN])
        rows.append(("could not be read", len(log.problems), shown))
    return pd.DataFrame(rows, columns=["what", "count", "note"])


def message_table(log: ImportedLog) -> pd.DataFrame:
    """Return one row a message: order, conversation, sender, receivers, kind, time, tokens, bytes and text."""
    return pd.DataFrame(
        {
            "order": [message.order for message in log.messages],
            "conversation": [message.conversation for message in log.messages],
            "sender": [message.sender for message in log.messages],
            "receivers": [", ".join(message.receivers) for message in log.messages],
            "broadcast": [message.broadcast for message in log.messages],
            "kind": [message.kind for message in log.messages],
            "time": pd.array([message.time for message in log.messages], dtype="Float64"),
            "input_tokens": pd.array([m.usage.input if m.usage else None for m in log.messages], dtype="Int64"),
            "output_tokens": pd.array([m.usage.output if m.usage else None for m in log.messages], dtype="Int64"),
            "bytes": [len(message.text.encode("utf-8")) for message in log.messages],
            "text": [message.text for message in log.messages],
        }
    )


def known_formats() -> str:
    """Return the formats that are read, each with its shape, for messages of error."""
    return "; ".join(f"{name}: {_FORMATS[name].SHAPE}" for name in FORMATS)


def _format_of(content: Any) -> str:
    return next((name for name, module in _FORMATS.items() if module.sees(content)), "")


def _seen(probed: list[Value | Problem]) -> str:
    values = [found for found in probed if isinstance(found, Value)]
    if not values:
        return f"no line is JSON; {_problem(probed[0])}" if isinstance(probed[0], Problem) else "it is empty"
    place = values[0].place or "the file"
    return f"no format that is known; {place} holds {kind_of(values[0].content)}"


def _checked(found: Iterator[Value | Problem], out: Collector, path: str | Path, strict: bool) -> Iterator[Value]:
    """Yield the values; what is no JSON goes to the problems."""
    for one in found:
        if isinstance(one, Value):
            yield one
        else:
            out.problems.append(one)
            _refuse(out, path, strict)


def _refuse(out: Collector, path: str | Path, strict: bool) -> None:
    if strict and out.problems:
        raise LogError(f"{path}: {_problem(out.problems[0])}")


def _problem(one: Problem) -> str:
    return f"{one.place or 'the file'}{f', field {one.field!r}' if one.field else ''}: {one.reason}"
