"""Reader agents: one source each, one message each.

Each reader gets the question and its own source and answers in strict JSON; the four fields are cut to their word limits and become a
`Message`. All readers of all tasks are asked in one receiver call. A reply that cannot be used gives a rule-made message from the
source, flagged `fallback` and counted. Readers never see gold: a `Task` has no field for it.

Not covered: several rounds of talk; readers with more than one source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from lib.messages.corpus import Corpus, freeze
from lib.messages.message import FIELDS, Message, MessageError, limited_fields
from lib.messages.prompts import QUOTE_WORDS, clean_field, prompts_hash, quotations, reader_prompt
from lib.messages.shortlist import Shortlist
from lib.models.receiver import Receiver, Reply
from lib.seeds import digest
from lib.tasks.task import Source, Task, Workload

ROLES = {"verification": "verifier", "bridge": "answerer", "fanout": "aggregator"}
MAX_TOKENS = 160
_WORD = re.compile(r"\w+")


def fallback_fields(task: Task, source: Source) -> dict[str, str]:
    """Return the four fields of a rule-made message: the first sentence with most words of the question, quoted.

    Used when a reader's reply is unusable (BANDMAS, section IV-B: source-grounded fallback content).
    """
    asked = {word.lower() for word in _WORD.findall(task.query)}
    if not source.sentences:
        return {"claim": "none", "evidence": "none", "uncertainty": "none stated", "request": "none"}
    overlaps = [len(asked & {word.lower() for word in _WORD.findall(sentence)}) for sentence in source.sentences]
    best = max(range(len(overlaps)), key=lambda index: (overlaps[index], -index))
    sentence = clean_field(source.sentences[best])
    quote = f"[S{best}] " + " ".join(sentence.split()[:QUOTE_WORDS])
    return {"claim": sentence, "evidence": quote, "uncertainty": "none stated", "request": "none"}


def message_of(task: Task, slot: int, reply: Reply) -> Message:
    """Return the message of reader `slot`, from its reply or by rule."""
    source = task.sources[slot]
    fields, fallback = _parsed(reply, source), False
    if fields is None:
        fields, fallback = fallback_fields(task, source), True
    try:
        return _message(task, slot, fields, fallback, reply)
    except MessageError:
        # A reply may hold what no message can (a lone surrogate); the source's own text is the way out.
        return _message(task, slot, fallback_fields(task, source), True, reply)


def _message(task: Task, slot: int, fields: dict[str, str], fallback: bool, reply: Reply) -> Message:
    return Message(
        task_id=task.id,
        slot=slot,
        turn=slot,
        sender=f"reader_{slot}",
        receiver=ROLES[task.kind],
        source_id=task.sources[slot].id,
        **limited_fields(fields),
        fallback=fallback,
        prompt_tokens=reply.prompt_tokens,
        new_tokens=reply.new_tokens,
    )


def _parsed(reply: Reply, source: Source) -> dict[str, str] | None:
    """Return the four strings of a reply, or None when it is not an object of four strings."""
    if reply.finish == "error":
        return None
    try:
        value = json.loads(reply.text)
    except (ValueError, RecursionError):  # thousands of brackets are no reply either
        return None
    if not isinstance(value, dict) or not all(isinstance(value.get(field), str) for field in FIELDS):
        return None
    quotes = quotations(source)
    return {**{field: value[field] for field in FIELDS}, "evidence": quotes.get(value["evidence"], value["evidence"])}


def produce(
    receiver: Receiver,
    workload: Workload,
    tasks: Sequence[Task] | None = None,
    shortlist: Shortlist | None = None,
) -> Corpus:
    """Let readers write the messages of `tasks` (default: all of the workload) and freeze them.

    With a `shortlist`, each reader quotes one of the sentences that it names. The manifest records the hashes of prompts and
    sources, the model, the shortlist and the decoding.
    """
    chosen = list(workload.tasks if tasks is None else tasks)
    readers = [(task, slot) for task in chosen for slot in range(len(task.sources))]
    prompts = []
    for task, slot in readers:
        source = task.sources[slot]
        quotable = shortlist.choose(task, source) if shortlist and source.sentences else None
        prompts.append(reader_prompt(task, source, quotable))
    replies = receiver.reply(prompts, max_tokens=MAX_TOKENS)
    messages = [message_of(task, slot, reply) for (task, slot), reply in zip(readers, replies, strict=True)]
    sources = [
        [task.id, task.query, [[source.id, source.title, list(source.sentences)] for source in task.sources]]
        for task in chosen
    ]
    origin = {
        "prompts_sha256": prompts_hash(),
        "sources_sha256": digest(sources),
        "model": receiver.name,
        "model_fingerprint": receiver.fingerprint,
        "decoding": {"temperature": 0.0, "max_tokens": MAX_TOKENS, "shortlist": shortlist.name if shortlist else None},
    }
    return freeze(workload.name, workload.version, messages, origin)
