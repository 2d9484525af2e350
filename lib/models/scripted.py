"""A receiver made of rules: deterministic, pure Python, instant.

It serves the tests and the smoke profile. It reads what a model would read - numbered source sentences or delivered packet
lines - ranks lines by word overlap with the question, and fills the schema from the best lines. So replies depend on what
was delivered: removing the decisive packet changes the answer, removing an idle one does not.

Not covered: language. It copies words and never reasons; its numbers say nothing about models.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from lib.models.receiver import Prompt, Reply, Turn, options_per_prompt, text_key
from lib.seeds import digest, seed_of

_WORD = re.compile(r"\w+", re.UNICODE)
_LINE = re.compile(r"^(?:Source (?P<source>.+?) - (?P<type>\w+): |\[S(?P<sentence>\d+)\] )(?P<text>.*)$")
_QUERY = re.compile(r"^(?:Claim|Question|Statement to check): (?P<text>.*)$", re.MULTILINE)
_STOP = frozenset(
    re.findall(
        r"\w+",
        "a an the of in on at to is was are were be by for and or what which who when where how did do does it its",
    )
)


def words(text: str) -> list[str]:
    """Return lower-case words without the commonest function words."""
    return [word for word in (match.group().lower() for match in _WORD.finditer(text)) if word not in _STOP]


def ranked_lines(text: str) -> list[tuple[float, str, str]]:
    """Return (overlap, source id, line) of every evidence line in a prompt, best first, ties in reading order."""
    query = _QUERY.search(text)
    asked = set(words(query.group("text"))) if query else set()
    found = []
    for position, line in enumerate(text.split("\n")):
        match = _LINE.match(line)
        if match is None:
            continue
        said = words(match.group("text"))
        overlap = len(asked & set(said)) / (1 + len(asked))
        found.append((overlap, -position, match.group("source") or "", match.group("text")))
    found.sort(key=lambda row: (-row[0], -row[1]))
    return [(overlap, source, line) for overlap, _, source, line in found]


def lexical_script(prompt: Prompt) -> str:
    """Fill the prompt's schema from the lines that overlap most with its question."""
    text = prompt.turns[-1].text
    lines = ranked_lines(text)
    query = _QUERY.search(text)
    asked = set(words(query.group("text"))) if query else set()
    best = lines[0] if lines else (0.0, "", "")
    fresh = " ".join(word for word in best[2].split() if not set(words(word)) <= asked) or "unknown"
    if prompt.schema is None:
        return fresh
    return json.dumps(_fill(prompt.schema, "", fresh, best, lines), ensure_ascii=False)


def skimming_script(prompt: Prompt) -> str:
    """Answer as `lexical_script` does from the claims among the packets; packets of other types are not read.

    A second receiver that differs in what a packet is worth to it, for comparisons of receivers.
    """
    *before, last = prompt.turns
    matches = [(line, _LINE.match(line)) for line in last.text.split("\n")]
    read = [line for line, match in matches if match is None or match["type"] in (None, "Claim")]
    return lexical_script(msgspec.structs.replace(prompt, turns=(*before, Turn(last.role, "\n".join(read)))))


def _fill(schema: dict[str, Any], name: str, fresh: str, best: tuple[float, str, str], lines: list[Any]) -> Any:
    """Return a value of `schema`; `name` is the field being filled."""
    if "anyOf" in schema:
        labels = [option.get("properties", {}).get("label", {}).get("const") for option in schema["anyOf"]]
        if all(labels):
            return _fill(_verdict(schema["anyOf"], best), name, fresh, best, lines)
        wanted = [option for option in schema["anyOf"] if best[1] and best[1] in json.dumps(option, ensure_ascii=False)]
        return _fill((wanted or schema["anyOf"])[0], name, fresh, best, lines)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return _choose(schema["enum"], name, best)
    kind = schema.get("type")
    if kind == "object":
        needed = set(schema.get("required", ()))
        filled = {}
        for key, value in schema.get("properties", {}).items():
            # An entry that may be left out is named after a source; it is given when a line of that source has to do with the question.
            own = [line for line in lines if line[1] == key and line[0] > 0]
            if key in needed or own:
                filled[key] = _fill(value, key, fresh, best if key in needed else own[0], lines)
        return filled
    if kind == "array":
        if schema.get("maxItems") == 0 or not lines or best[0] <= 0:
            return []
        return [_fill(schema["items"], name, fresh, best, lines)]
    if kind == "integer":
        shown = re.search(r"\[S(\d+)\]", best[2])
        return int(shown.group(1)) if shown else 0
    if name == "uncertainty":
        return "none stated"
    if name == "request":
        return "none"
    return fresh if name == "answer" else best[2] or "none"


def _verdict(options: list[Any], best: tuple[float, str, str]) -> Any:
    """Pick a verdict: the label by the rule of `_choose`, then the report that shares most words with the best line."""
    labels = [option["properties"]["label"]["const"] for option in options]
    label = _choose(list(dict.fromkeys(labels)), "label", best)
    fitting = [option for option, own in zip(options, labels, strict=True) if own == label]
    said = [str(option["properties"].get("report", {}).get("const", "")) for option in fitting]
    return fitting[said.index(_choose(said, "report", best))]


def _choose(options: list[Any], name: str, best: tuple[float, str, str]) -> Any:
    """Pick an option: the label by a rule on the best line, anything else by words shared with that line."""
    if name == "label":
        if best[0] < 0.4:
            return "NOT_ENOUGH_INFO" if "NOT_ENOUGH_INFO" in options else options[-1]
        return "CONTRADICT" if best[0] < 0.7 and "CONTRADICT" in options else options[0]
    target = set(words(f"{best[1]} {best[2]}"))
    return max(options, key=lambda option: (len(target & set(words(str(option)))), -options.index(option)))


class ScriptedReceiver:
    """A deterministic receiver for tests and the smoke profile.

    Parameters
    ----------
    script : callable, optional
        Maps a `Prompt` to the reply's text; an exception it raises becomes an error reply. Default `lexical_script`.
    name : str
        Short name for tables; part of the fingerprint.
    sure : callable, optional
        Maps a `Prompt` to the probability that the script gives its own reply, for `score`; None, also as its answer, leaves
        scores to a fixed rule.

    Notes
    -----
    A token is a whitespace-separated word. At temperature above 0 the sample index is appended to free text, so that
    k samples are k distinct, repeatable replies; a reply bound by a schema stays as it is, and valid. `calls` counts the
    prompts answered, for tests of caching and resuming.
    """

    def __init__(
        self,
        script: Callable[[Prompt], str] | None = None,
        name: str = "scripted",
        sure: Callable[[Prompt], float | None] | None = None,
    ) -> None:
        self.script = script or lexical_script
        self.sure = sure
        self.name = name
        self.fingerprint = f"scripted:{name}:1"
        self.calls = 0

    def reply(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        samples: int = 1,
    ) -> list[Reply]:
        """Answer each prompt by the script; see `Receiver.reply`."""
        replies = []
        for prompt in prompts:
            for sample in range(samples):
                self.calls += 1
                replies.append(self._one(prompt, sample if temperature > 0 else 0, max_tokens, stop))
        return replies

    def _one(self, prompt: Prompt, sample: int, max_tokens: int, stop: Sequence[str]) -> Reply:
        asked = sum(self.count_tokens([turn.text for turn in prompt.turns]))
        try:
            text = self.script(prompt)
        except Exception as problem:  # noqa: BLE001 - a test's script may raise anything, as a backend may
            return Reply(text="", prompt_tokens=asked, finish="error", error=f"{type(problem).__name__}: {problem}")
        if sample and prompt.schema is None:
            text = f"{text} #{sample}"
        cut = min((text.find(mark) for mark in stop if mark and mark in text), default=len(text))
        text = text[:cut]
        pieces = re.findall(r"\s*\S+", text)
        finish = "length" if len(pieces) > max_tokens else "stop"
        text = "".join(pieces[:max_tokens])
        tokens = tuple(seed_of("token", piece) % 50_000 for piece in pieces[:max_tokens])
        return Reply(text=text, token_ids=tokens, prompt_tokens=asked, new_tokens=len(tokens), finish=finish)

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        """Score options: those in the script's reply come first, by how sure it is. Shape (n_prompts, n_options)."""
        rows = options_per_prompt(len(prompts), options)
        scores = np.zeros((len(prompts), len(rows[0]) if rows else 0))
        for i, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
            text = self.script(prompt)
            own = self.sure(prompt) if self.sure else None
            said = [option.lower() in text.lower() for option in row]
            # What a sure reply leaves is shared by the options that it does not hold.
            rest = -6.0 if own is None else math.log((1 - own) / max(1, len(row) - sum(said)))
            for j, option in enumerate(row):
                noise = int(digest(text_key(prompt), option)[:6], 16) / 16**6
                best = -1.0 if own is None else math.log(own)
                scores[i, j] = (best if said[j] else rest) - 0.01 * noise
        return scores

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count whitespace-separated words."""
        return [len(text.split()) for text in texts]

    def prompt_key(self, prompt: Prompt) -> str:
        """Name the prompt by its text and schema."""
        return text_key(prompt)
