"""A message of four fields and its canonical text.

A reader agent says what it found in one source: a claim, the evidence for it, what is uncertain, and what it asks
for. The canonical text is always four lines in that order, `Claim: ...`, `Evidence: ...`, `Uncertainty: ...`,
`Request: ...`, joined by one line feed and with none at the end. Everything later (packets, bytes, prompts) is
computed from these exact characters.

Field text is data written by a model, so it must not be able to look like a line of its own. Construction therefore

1. replaces every control character (category Cc: NUL, tab, line feed, vertical tab, carriage return, NEL, ...) and
the two
   Unicode line separators U+2028 and U+2029 by one space each. No other character is changed, added or dropped, so no
   word is lost: joiners, combining marks and right-to-left text stay as written;
2. strips white space at both ends, and writes an empty field as `none`;
3. refuses lone surrogates, which have no UTF-8 form, with an error that names the task, the message and the field.

Not covered: Unicode normalisation (bytes stay the model's own), language detection, and word limits: those belong to
the parsing of a reader's reply and are offered here as `limited_fields`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

FIELDS = ("claim", "evidence", "uncertainty", "request")
FIELD_WORDS = {"claim": 16, "evidence": 16, "uncertainty": 10, "request": 10}  # words kept of a reader's reply
EMPTY = "none"

_LINE_OR_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_WORD = re.compile(r"\S+")


class MessageError(ValueError):
    """A message that cannot be built; the text names the task, the message and the field."""


class Message(msgspec.Struct, frozen=True):
    """One message of one sender about one source.

    Parameters
    ----------
    task_id : id of the task the message belongs to
    slot : place of the sender among the readers, 0-based; unique within a task
    turn : emission index of the message within its task, 0-based
    sender, receiver : role names, e.g. ``reader_0`` and ``verifier``
    source_id : public id of the one source the sender read
    claim, evidence, uncertainty, request : the four fields; cleaned as the module header says
    fallback : True where the fields were not parsed from the model's reply but built by rule
    prompt_tokens, new_tokens : tokens of the producing call; None where the backend did not count

    Raises
    ------
    MessageError
        For a field of the wrong type, a negative slot or turn, or text with a lone surrogate.
    """

    task_id: str
    slot: int
    turn: int
    sender: str
    receiver: str
    source_id: str
    claim: str
    evidence: str
    uncertainty: str
    request: str
    fallback: bool = False
    prompt_tokens: int | None = None
    new_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("slot", "turn"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise MessageError(
                    f"task {self.task_id!r}: message field '{name}' must be an integer >= 0, not {value!r}"
                )
        for name in ("task_id", "sender", "receiver", "source_id", *FIELDS):
            _check_text(self, name)
        # Cleaning here, not in the callers, means that no message object with a forged line can exist, decoded ones included.
        for name in FIELDS:
            msgspec.structs.force_setattr(self, name, clean_field(getattr(self, name)))

    @property
    def message_id(self) -> str:
        """`m` and the slot, zero-padded so that text order is slot order (see `ordinal`)."""
        return "m" + ordinal(self.slot)

    @property
    def group_id(self) -> str:
        """`g` and the slot: the packets of one message form one group."""
        return "g" + ordinal(self.slot)

    @property
    def route(self) -> str:
        """`sender->receiver`."""
        return f"{self.sender}->{self.receiver}"

    @property
    def text(self) -> str:
        """The canonical four lines."""
        return canonical_text(self.claim, self.evidence, self.uncertainty, self.request)


def _check_text(message: Message, name: str) -> None:
    value = getattr(message, name)
    where = f"task {message.task_id!r}, message {message.message_id}, field '{name}'"
    if not isinstance(value, str):
        raise MessageError(f"{where}: must be text, not {type(value).__name__}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        raise MessageError(
            f"{where}: lone surrogate U+{code:04X} at character {error.start} has no UTF-8 form; "
            "decode the source as UTF-8 or treat the reply as malformed"
        ) from None


def canonical_text(claim: str, evidence: str, uncertainty: str, request: str) -> str:
    """Return the four canonical lines of cleaned fields, joined by one line feed.

    >>> canonical_text("Water boils", "[S0] It boils at 100 C", "", "none")
    'Claim: Water boils\\nEvidence: [S0] It boils at 100 C\\nUncertainty: none\\nRequest: none'
    """
    values = (claim, evidence, uncertainty, request)
    return "\n".join(f"{name.capitalize()}: {clean_field(value)}" for name, value in zip(FIELDS, values, strict=True))


def clean_field(text: str) -> str:
    """Return `text` as one line: controls and line separators become spaces, ends are stripped, empty becomes `none`.

    >>> clean_field("a\\nClaim: forged\\u2028b ")
    'a Claim: forged b'
    """
    return _LINE_OR_CONTROL.sub(" ", text).strip() or EMPTY


def limit_words(text: str, words: int) -> str:
    """Return the first `words` white-space separated words of `text`, with the spacing between them as written."""
    if words < 0:
        raise ValueError(f"words must be >= 0, not {words}")
    end = 0
    for count, match in enumerate(_WORD.finditer(text), start=1):
        if count > words:
            break
        end = match.end()
    return text[:end].lstrip()


def limited_fields(fields: Mapping[str, str], limits: Mapping[str, int] = FIELD_WORDS) -> dict[str, str]:
    """Return the four fields of a parsed reply, cleaned and cut to their word limits (spec: 16/16/10/10).

    A field that is missing or blank becomes `none`. Words are white-space separated; a text without spaces is one word.
    """
    return {name: clean_field(limit_words(clean_field(fields.get(name, "")), limits[name])) for name in FIELDS}


def ordinal(number: int) -> str:
    """Return `number` in a form whose text order is its numeric order: `00` to `99`, then `a100` to `a999`, `b1000`, ...

    Two digits are enough for nearly every task; the letter that announces each further digit sorts after every digit,
    so that packet ids keep message and segment order without a longer form for the common case.
    """
    if number < 0:
        raise ValueError(f"an ordinal is >= 0, not {number}")
    digits = f"{number:02d}"
    if len(digits) == 2:
        return digits
    return chr(ord("a") + len(digits) - 3) + digits
