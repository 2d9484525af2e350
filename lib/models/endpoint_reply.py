"""Read what a server answered to a chat, whatever it is.

A body is read field by field, because servers differ and proxies send pages of their own: what is missing is None, what is refused or
broken is an error reply that says so, what was cut keeps its beginning and is marked. Nothing is filled in.

Not covered: streamed answers, tool calls (an error reply), thoughts that a server returns beside the reply (left out).
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

from lib.models.endpoint_settings import hide_key
from lib.models.receiver import Reply

_CUT = ("length", "max_tokens", "model_length")
_SHOWN = 160  # characters of a strange body that an error repeats


def read_reply(body: str, *, max_tokens: int, stop: Sequence[str] = ()) -> Reply:
    """Return the reply in the body of a chat completion; `seconds` is left at 0.

    Parameters
    ----------
    body : str
        As it came.
    max_tokens : int
        The cap that was asked for: without a finish reason, as many new tokens are a cut reply.
    stop : sequence of str
        The reply ends before the first of them, also where a server sends it along.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return failed(
            f"the server's answer is no JSON: {body[:_SHOWN]!r}" if body.strip() else "the server's answer is empty"
        )
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        said = value.get("error") if isinstance(value, dict) else None
        about = f": {json.dumps(said, ensure_ascii=False)[:_SHOWN]}" if said else ""
        return failed(f"the server's answer holds no choice{about}")
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        return failed("the server's answer holds no message")
    reason = choice.get("finish_reason")
    counts = _usage(value.get("usage"))
    if message.get("refusal") or reason == "content_filter":
        return failed(f"refused: {message.get('refusal') or 'the server filtered the reply'}", *counts)
    text = _text(message.get("content"))
    if not text and message.get("tool_calls"):
        return failed("the server took the reply for a tool call and kept its text", *counts)
    cut = min((text.find(mark) for mark in stop if mark and mark in text), default=None)
    finish = "length" if reason in _CUT or (reason is None and (counts[1] or 0) >= max_tokens) else "stop"
    return Reply(
        text=text if cut is None else text[:cut],
        prompt_tokens=counts[0],
        new_tokens=counts[1],
        finish=finish if cut is None else "stop",
    )


def failed(reason: str, prompt_tokens: int | None = None, new_tokens: int | None = None) -> Reply:
    """Return an error reply; no key stands in it."""
    return Reply(text="", prompt_tokens=prompt_tokens, new_tokens=new_tokens, finish="error", error=hide_key(reason))


def schema_fault(text: str, schema: dict[str, Any]) -> str | None:
    """Return why a reply does not satisfy its schema, or None when it does."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "it is no JSON"
    jsonschema = importlib.import_module("jsonschema")
    problem = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(value))
    return None if problem is None else f"{problem.json_path}: {problem.message[:_SHOWN]}"


def _text(content: Any) -> str:
    """Return a message's text; some servers send it in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _usage(usage: Any) -> tuple[int | None, int | None]:
    """Return (prompt tokens, new tokens), None where untold. No prompt has 0 tokens: a server that says so did not count."""
    counts = usage if isinstance(usage, dict) else {}
    prompt, new = counts.get("prompt_tokens"), counts.get("completion_tokens")
    told = [number if isinstance(number, int) and not isinstance(number, bool) else None for number in (prompt, new)]
    if not told[0] or told[0] < 0:
        return None, None
    return told[0], told[1] if told[1] is None or told[1] >= 0 else None
