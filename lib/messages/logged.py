"""A message as a log of another system holds it, and what became of everything else in that log.

Context
-------
Real logs have no typed four-field messages. What every format can say is who spoke, to whom, what, in which order
and, with luck, when and at what cost in tokens. `LoggedMessage` holds that and nothing else by name; every other
field of the record stays in `extra`.

Intuition
---------
An import is honest if its parts add up. Each record of a log becomes a message, or is counted in `skipped` under the
reason, or stands in `problems` with its line and field. What was changed on the way (a lone surrogate, a doubled id,
a time that runs backwards) is counted in `notes`.

How to read the result
----------------------
`receivers` are the agents that the log names or shows to have heard the message. Where it says nothing, `broadcast`
is True and the receivers are all other agents of the conversation, which is how a group chat works and an assumption
all the same. `usage` is None where tokens were not counted; a count of 0 prompt tokens, which no call can have, is
read as not counted.

Not covered: images, audio and other parts without text (kept in `extra`, counted); an object that names a key twice
(the last counts, as JSON readers do).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from lib.tasks.reply import storable

Kind = Literal["message", "handoff", "tool_call", "tool_result", "system", "event"]
CONVERSATION_FIELDS = ("conversation_id", "thread_id", "session_id")


class LogError(ValueError):
    """A log that cannot be read; the text names the file, what was seen and the fix."""


class Usage(msgspec.Struct, frozen=True):
    """Tokens of the call that made a message, as the log counted them; None where it did not."""

    input: int | None
    output: int | None
    cached: int | None = None


class Problem(msgspec.Struct, frozen=True):
    """A record that could not be read: where, which field (empty: the whole record), and why."""

    place: str
    field: str
    reason: str


class LoggedMessage(msgspec.Struct, frozen=True):
    """One message of a log.

    Parameters
    ----------
    order : place among the messages of the whole import, 0-based
    message_id : the log's own id, made unique; `order` as text where it has none
    conversation : id of the conversation; empty where the log holds one and does not name it
    sender, receivers : names of agents, tools or roles
    broadcast : whether `receivers` is assumed, see the module header
    kind : ``message``, ``handoff`` (control is passed to the receiver), ``tool_call``, ``tool_result``, ``system`` (instructions) or
        ``event`` (what an agent kept to itself, such as a thought)
    text : the exact text; may be empty
    time : seconds since 1970 UTC; a time without a zone is read as UTC; None where there is none
    usage : tokens, or None
    place : where in the file, e.g. ``line 3, message 2``
    extra : every field that has no place above
    """

    order: int
    message_id: str
    conversation: str
    sender: str
    receivers: tuple[str, ...]
    broadcast: bool
    kind: Kind
    text: str
    time: float | None
    usage: Usage | None
    place: str
    extra: dict[str, Any]


class ImportedLog(msgspec.Struct, frozen=True):
    """What a log held: messages in order, counts of what was left out and changed, and what could not be read."""

    format: str
    messages: tuple[LoggedMessage, ...]
    skipped: dict[str, int]
    notes: dict[str, int]
    problems: tuple[Problem, ...]

    def conversations(self) -> dict[str, tuple[LoggedMessage, ...]]:
        """Return conversation id -> its messages, in the order they begin."""
        groups: dict[str, list[LoggedMessage]] = {}
        for message in self.messages:
            groups.setdefault(message.conversation, []).append(message)
        return {name: tuple(group) for name, group in groups.items()}


class Collector:
    """Gathers messages while a log is read, and the counts of everything that becomes none.

    Attributes
    ----------
    skipped, notes : reason -> count
    problems : list of Problem
    """

    def __init__(self) -> None:
        self.skipped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.problems: list[Problem] = []
        self.calls: dict[tuple[str, str], tuple[str, str]] = {}  # (conversation, call id) -> (caller, tool)
        self._messages: list[LoggedMessage] = []
        self._ids: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._messages)

    def add(
        self,
        *,
        sender: str,
        text: str,
        place: str,
        kind: Kind = "message",
        receivers: Iterable[str] = (),
        conversation: str = "",
        given_id: object = None,
        time: object = None,
        usage: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> int:
        """Add one message and return its `order`; names and text are made storable as UTF-8, times and usage are read."""
        rest = dict(extra or {})
        moment = read_time(time)
        if moment is None and time is not None:
            rest["time"] = time
            self.notes["a time that could not be read (kept in extra)"] += 1
        clean = storable(text)
        if clean != text:
            rest["text_escaped"] = json.dumps(text)
            self.notes["text with a lone surrogate (replaced; the original, escaped, is in extra)"] += 1
        if not clean.strip():
            self.notes["message without text"] += 1
        self._messages.append(
            LoggedMessage(
                order=len(self._messages),
                message_id=self._unique(given_id),
                conversation=storable(conversation),
                sender=storable(sender),
                receivers=tuple(dict.fromkeys(storable(name) for name in receivers)),
                broadcast=False,
                kind=kind,
                text=clean,
                time=moment,
                usage=self._usage(usage),
                place=place,
                extra=storable(rest),
            )
        )
        return len(self._messages) - 1

    def heard(self, order: int, agent: str) -> None:
        """Note that `agent` was shown the message `order`."""
        message = self._messages[order]
        if agent not in (message.sender, *message.receivers):
            self._messages[order] = msgspec.structs.replace(message, receivers=(*message.receivers, storable(agent)))

    def unheard(self, order: int) -> bool:
        """Tell whether the message `order` has no receiver so far."""
        return not self._messages[order].receivers

    def problem(self, place: str, field: str, reason: str) -> None:
        """Note a record that could not be read."""
        self.problems.append(Problem(place, field, reason))

    def finish(self, name: str) -> ImportedLog:
        """Return the import; receivers that the log does not name become all other agents of the conversation."""
        agents: dict[str, dict[str, None]] = {}
        last: dict[str, float] = {}
        for message in self._messages:
            known = agents.setdefault(message.conversation, {})
            if message.kind in ("message", "handoff"):
                known[message.sender] = None
                known.update(dict.fromkeys(message.receivers))
            if message.time is not None:
                if message.time < last.get(message.conversation, -math.inf):
                    self.notes["time before that of the message before it (the log's order is kept)"] += 1
                last[message.conversation] = message.time
        done = []
        for message in self._messages:
            if not message.receivers and message.kind != "event":
                others = tuple(agent for agent in agents[message.conversation] if agent != message.sender)
                message = msgspec.structs.replace(message, receivers=others, broadcast=True)
            done.append(message)
        return ImportedLog(name, tuple(done), dict(self.skipped), dict(self.notes), tuple(self.problems))

    def _unique(self, given: object) -> str:
        name = storable(given) if isinstance(given, str) and given else str(len(self._messages))
        if isinstance(given, int) and not isinstance(given, bool):
            name = str(given)
        self._ids[name] += 1
        if self._ids[name] == 1:
            return name
        self.notes["id that another message has too (a number was added)"] += 1
        count = self._ids[name]
        while self._ids[f"{name}#{count}"]:
            count += 1
        self._ids[f"{name}#{count}"] += 1
        return f"{name}#{count}"

    def _usage(self, counted: Mapping[str, Any] | None) -> Usage | None:
        if not isinstance(counted, Mapping):
            return None
        details = counted.get("prompt_tokens_details") or counted.get("input_token_details") or {}
        read = Usage(
            _count(counted, "input_tokens", "prompt_tokens"),
            _count(counted, "output_tokens", "completion_tokens"),
            _count(details if isinstance(details, Mapping) else {}, "cached_tokens", "cache_read"),
        )
        if read.input == 0:
            self.notes["usage of 0 prompt tokens (read as not counted)"] += 1
            read = Usage(None, read.output or None, read.cached or None)
        return None if read.input is None and read.output is None else read


def read_time(value: object) -> float | None:
    """Return seconds since 1970 UTC of an ISO text or of a number of seconds, milli-, micro- or nanoseconds; None if it is neither.

    >>> read_time("2026-03-01T10:00:00Z") == read_time(1772359200000) == read_time(
    ...     "1772359200000000000"
    ... ) == 1772359200.0
    True
    """
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            try:
                moment = datetime.fromisoformat(str(value).strip())
            except ValueError:
                return None
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        return None
    for limit, unit in ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6)):
        if value < limit:
            return value / unit
    return value / 1e9


def conversation_of(record: Mapping[str, Any]) -> str:
    """Return the conversation that a record names, or empty text."""
    return next((str(record[name]) for name in CONVERSATION_FIELDS if isinstance(record.get(name), str | int)), "")


def _count(counted: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = counted.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
