"""Read OpenTelemetry spans of GenAI calls into messages.

Context
-------
A trace is no chat. Every call repeats the history that it was given, a message appears in the span that said it and
again in every span that heard it, and spans are written when they end. The convention has changed its shapes several
times (`lib.messages.otel_spans`) and has not settled how one agent hands over to another.

Intuition
---------
The trace is played back in time. When a span begins, what it read is compared with what has been said: a text that is
known is not new, but its reader now counts among the receivers; a text that nobody said is a message of its own, by
its name, by the agent that called, or by its role. When a span ends, what it said is new, unless an enclosing or
enclosed span of the same agent has it already.

Hand-offs are seen in all three forms: a tool call such as ``transfer_to_x`` or attributes that name source and
target; a child span of another agent, whose task then comes from the agent of the parent span; and names of senders
in the history.

How to read the result
----------------------
Receivers are agents that demonstrably read the message. One that nobody read later goes back to the agent of the
parent span, or to the user.

Not covered: links between traces.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from lib.messages.log_content import add_calls, add_result, as_text, note_parts, read_call
from lib.messages.logged import Collector, Kind
from lib.messages.logs_openai import kind_of
from lib.messages.otel_spans import Said, Span, content_free, is_span, messages_in, read_span, span_records
from lib.seeds import digest
from lib.tasks.reply import storable

NAME = "otel"
SHAPE = 'OTLP JSON {"resourceSpans": [...]} or spans {"name", "context", "attributes"} with gen_ai attributes'
_AGENT, _CONVERSATION = "gen_ai.agent.name", "gen_ai.conversation.id"
_USAGE = {
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
}
_TARGET = re.compile(r".*(?:hand_?off|transfer|delegat)\w*\.(?:.*\.)?(?:target|to)(?:\..*)?", re.IGNORECASE)
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def sees(value: Any) -> bool:
    """Tell whether a JSON value is, or holds, spans."""
    if isinstance(value, list):
        return any(is_span(item) or sees(item) for item in value if isinstance(item, Mapping))
    return isinstance(value, Mapping) and (is_span(value) or "resourceSpans" in value or "resource_spans" in value)


class Reader:
    """Gathers the spans of one file and plays them back at the end."""

    def __init__(self, out: Collector) -> None:
        self.out = out
        self._spans: dict[tuple[str, str], Span] = {}
        self._raw: dict[tuple[str, str], str] = {}

    def read(self, value: Any, place: str) -> None:
        """Keep the spans of one value."""
        found = False
        for where, raw, _ in span_records(value, place):
            found = True
            span = read_span(raw, where)
            if not span.id:
                self.out.problem(where, "spanId", "is missing; without it a span has no place in its trace")
                continue
            key, content = (span.trace, span.id), digest(storable(as_text(raw)))
            if key in self._spans:
                same = self._raw[key] == content
                if not same:
                    self.out.problem(where, "spanId", f"{span.id!r} stands for another span too; the first is kept")
                self.out.skipped["span exported twice"] += same
                continue
            self._spans[key], self._raw[key] = span, content
        if not found:
            self.out.problem(place or "the file", "", f"no spans: {kind_of(value)}")

    def finish(self) -> None:
        """Play the spans back in time and add their messages."""
        trees: dict[str, dict[str, Span]] = {}
        for (trace, span_id), span in self._spans.items():
            trees.setdefault(trace, {})[span_id] = span
        playbacks: dict[str, _Playback] = {}
        moments: list[tuple[tuple[float, int, int, int, int], Span, _Playback]] = []
        last = -math.inf
        for place, span in enumerate(self._spans.values()):
            above = _ancestors(span, trees[span.trace])
            conversation = _conversation(span, above, trees)
            playback = playbacks.setdefault(conversation, _Playback(self.out, conversation))
            playback.above[span.trace, span.id] = above
            if span.parent and span.parent not in trees[span.trace]:
                self.out.notes["span whose parent is not in the file (taken for a root)"] += 1
            # A span without a time takes the place that it has in the file.
            start = last if span.start is None else span.start
            end = max(start, start if span.end is None else span.end)
            last = end
            depth = 0 if span.start is None else len(above)
            # Of what happens at one moment: first ends what began before, the innermost first, then the next begins.
            moments.append(((start, 1, depth, place, 0), span, playback))
            ends = (end, 0, -depth, place, 1) if end > start else (end, 1, depth, place, 1)
            moments.append((ends, span, playback))
        for key, span, playback in sorted(moments, key=lambda moment: moment[0]):
            (playback.end if key[-1] else playback.begin)(span)
        for playback in playbacks.values():
            playback.deliver()
        if self._spans and not len(self.out):
            reason = f"spans hold no message text; record it by setting {CAPTURE}=true where the agents run"
            self.out.problem("the file", "gen_ai.input.messages", reason)


class _Playback:
    """One conversation while its spans begin and end."""

    def __init__(self, out: Collector, conversation: str) -> None:
        self.out, self.conversation = out, conversation
        self.above: dict[tuple[str, str], list[Span]] = {}  # span -> the spans around it, nearest first
        self._by_text: dict[str, list[int]] = {}  # text -> messages that say it, in order
        self._said_in: dict[int, tuple[str, Span]] = {}  # message -> (agent, span that said or first read it)
        self._home: dict[int, str] = {}  # message -> who gets it if nobody reads it

    def begin(self, span: Span) -> None:
        """Compare what a span read with what was said."""
        read, said = messages_in(span)
        if not read and not said and span.attributes.get("gen_ai.operation.name") != "execute_tool":
            self.out.skipped["span without message content"] += 1
        agent, caller = self._agent(span), self._caller(span)
        counts: Counter[str] = Counter()
        for one in read:
            for text in self._texts(one):
                known = self._by_text.get(text, [])
                counts[text] += 1
                if counts[text] <= len(known):
                    self.out.heard(known[counts[text] - 1], agent)
                    self.out.skipped["message repeated in the history of a span"] += 1
                else:
                    self._read(one, text, agent, caller, span)

    def end(self, span: Span) -> None:
        """Add what a span said, or the call and result of a tool."""
        agent, attributes = self._agent(span), span.attributes
        if attributes.get("gen_ai.operation.name") == "execute_tool":
            self._tool(span, agent)
            return
        usage: dict[str, Any] = {
            name: next((attributes[key] for key in keys if key in attributes), None) for name, keys in _USAGE.items()
        }
        where: dict[str, Any] = {"place": span.place, "conversation": self.conversation, "time": span.end}
        for one in messages_in(span)[1]:
            text = one.content.text
            if text and self._nested(text, agent, span):
                self.out.skipped["message that an enclosed span has too"] += 1
            elif text:
                extra = {**one.extra, "span": span.name, "attributes": content_free(attributes)}
                extra |= note_parts(self.out, one.content)
                order = self.out.add(sender=one.name or agent, text=text, usage=usage, extra=extra, **where)
                self._keep(text, order, agent, span)
                self._home[order] = self._caller(span) or "user"
                usage = {}
            calls = self.out.calls
            new = [one for one in one.content.calls if not one.id or (self.conversation, one.id) not in calls]
            add_calls(self.out, tuple(new), sender=agent, usage=usage, **where)

    def deliver(self) -> None:
        """Give every message that nobody read to the agent that called, or to the user."""
        for order, name in self._home.items():
            if self.out.unheard(order):
                self.out.heard(order, name)

    def _read(self, one: Said, text: str, agent: str, caller: str, span: Span) -> None:
        """Add a message that a span read and nobody in the trace said."""
        kind: Kind = "system" if one.role in ("system", "developer") else "message"
        by_role = {"user": caller or "user", "assistant": agent}
        sender = one.name or by_role.get(one.role, one.role)
        where: dict[str, Any] = {"place": span.place, "conversation": self.conversation, "time": span.start}
        if one.role == "tool" or one.content.results:
            call_id = next((known for known, said in one.content.results if said == text), "")
            add_result(self.out, text, call_id, tool=one.name, extra=one.extra, **where)
            order = len(self.out) - 1
        else:
            extra = {**one.extra, **note_parts(self.out, one.content)}
            order = self.out.add(
                sender=sender, receivers=[agent] if agent != sender else [], kind=kind, text=text, extra=extra, **where
            )
        self._keep(text, order, sender, span)

    def _tool(self, span: Span, agent: str) -> None:
        """Add the call and the result of a tool's own span, unless a message of the model had them."""
        attributes, caller = span.attributes, agent or "assistant"
        tool, call_id = (
            str(attributes.get("gen_ai.tool.name") or "tool"),
            str(attributes.get("gen_ai.tool.call.id") or ""),
        )
        target = next(
            (value for name, value in attributes.items() if _TARGET.fullmatch(name) and isinstance(value, str)), ""
        )
        where: dict[str, Any] = {"place": span.place, "conversation": self.conversation}
        if not call_id or (self.conversation, call_id) not in self.out.calls:
            record = {"name": f"transfer_to_{target}" if target else tool, "id": call_id}
            record["arguments"] = as_text(attributes.get("gen_ai.tool.call.arguments"))
            add_calls(self.out, (read_call(record),), sender=caller, time=span.start, **where)
        result = attributes.get("gen_ai.tool.call.result")
        if result is None:
            return
        text = as_text(result)
        add_result(self.out, text, call_id, tool=tool, extra=content_free(attributes), time=span.end, **where)
        self._keep(text, len(self.out) - 1, tool, span)

    def _texts(self, one: Said) -> list[str]:
        texts = [one.content.text] if one.content.text else []
        return texts + [text for _, text in one.content.results if text]

    def _keep(self, text: str, order: int, agent: str, span: Span) -> None:
        self._by_text.setdefault(text, []).append(order)
        self._said_in[order] = (agent, span)

    def _nested(self, text: str, agent: str, span: Span) -> bool:
        """Tell whether a span inside or around this one, of the same agent, has said the text already."""
        for order in self._by_text.get(text, []):
            who, where = self._said_in[order]
            if who == agent and order in self._home and (span in self._around(where) or where in self._around(span)):
                return True
        return False

    def _around(self, span: Span) -> list[Span]:
        return self.above[span.trace, span.id]

    def _agent(self, span: Span) -> str:
        named = (one.attributes.get(_AGENT) for one in (span, *self._around(span)))
        return next((str(name) for name in named if name), "assistant")

    def _caller(self, span: Span) -> str:
        """Return the agent of the nearest enclosing span that is another agent's, or empty text."""
        mine = self._agent(span)
        names = (one.attributes.get(_AGENT) for one in self._around(span))
        return next((str(name) for name in names if name and str(name) != mine), "")


def _ancestors(span: Span, tree: Mapping[str, Span]) -> list[Span]:
    """Return the spans around a span, nearest first; a circle of parents ends where it closes."""
    found: list[Span] = []
    seen = {span.id}
    parent = span.parent
    while parent in tree and parent not in seen:
        seen.add(parent)
        found.append(tree[parent])
        parent = tree[parent].parent
    return found


def _conversation(span: Span, above: list[Span], trees: Mapping[str, Mapping[str, Span]]) -> str:
    """Return the conversation that a span, one around it or any of its trace names; else the trace where there are several."""
    spans = (span, *above, *trees[span.trace].values())
    named = next((str(one.attributes[_CONVERSATION]) for one in spans if one.attributes.get(_CONVERSATION)), "")
    return named or (span.trace if len(trees) > 1 else "")
