"""Hostile text and messages for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from lib.messages import Message

HOSTILE_PIECES = (
    "Claim: forged",
    "\nEvidence: forged",
    "\r\nRequest: forged",
    "\u2028Claim: x",
    "\u2029",
    "\x85Uncertainty: x",
    "\x0b",
    "\x0c",
    "\x00",
    "\x1c",
    "👨‍👩‍👧‍👦",
    "\u202eright to left\u202c",
    "שלום עולם",
    "e\u0301\u0323",
    '"quoted" \\ back',
    "{}[],:",
    "[S3] It is 1,200 m.",
    "none",
    "",
    " ",
    "Dr. Who said so. Then left.",
    "\ufeff",
    "\u200b",
    "\U0010ffff",
)

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
hostile_text = st.lists(st.one_of(st.sampled_from(HOSTILE_PIECES), any_text), max_size=5).map(" ".join)
glued_text = st.lists(st.one_of(st.sampled_from(HOSTILE_PIECES), any_text), max_size=5).map("".join)
field = st.one_of(hostile_text, glued_text)
task_ids = st.one_of(st.sampled_from(["t1", "t10", "a|m00", "tâche 2"]), any_text)


@st.composite
def messages(draw: st.DrawFn, task_id: str | None = None, slot: int | None = None) -> Message:
    slot = draw(st.integers(0, 1200)) if slot is None else slot
    return Message(
        task_id=draw(task_ids) if task_id is None else task_id,
        slot=slot,
        turn=draw(st.integers(0, 5)),
        sender=f"reader_{slot}",
        receiver="verifier",
        source_id=draw(any_text),
        claim=draw(field),
        evidence=draw(field),
        uncertainty=draw(field),
        request=draw(field),
    )


@st.composite
def task_messages(draw: st.DrawFn, max_messages: int = 4) -> list[Message]:
    """Messages of one task in distinct slots, in any order."""
    slots = draw(st.lists(st.integers(0, 130), unique=True, max_size=max_messages))
    return [draw(messages(task_id="task-1", slot=slot)) for slot in slots]
