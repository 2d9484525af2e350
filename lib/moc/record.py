"""What a team leaves behind: every message with where it came from, what it cost and whether it failed.

A failed agent has a message of status ``failed`` with the reason, and none of its successors hears of it; it is never an
empty message, which would look like one that was pruned. Tokens are those of the receiver's tokenizer; where a backend did
not tell them they were counted again without the chat frame, and the message says so. Bytes are UTF-8.

Not covered: grading (`lib.tasks.questions`), tables (`lib.moc.accounting`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from lib.moc.consolidate import Consolidation
from lib.moc.dag import Dag

Status = Literal["ok", "failed"]


class Delivery(msgspec.Struct, frozen=True):
    """One text that an agent was shown.

    Parameters
    ----------
    sources : agents whose messages it is; several where they were merged
    hop : hops from the source, the smallest where merged
    bytes, tokens : size of the text as shown, without its header
    """

    sources: tuple[int, ...]
    hop: int
    bytes: int
    tokens: int


class AgentMessage(msgspec.Struct, frozen=True):
    """What one agent said in one run.

    Parameters
    ----------
    question_id, agent, role : who; the decision agent is ``"decision"``
    wave : 0-based wave of the run in which the agent was asked: the longest path that leads to it
    parents : direct predecessors, in the order of sigma; all workers for the decision agent
    hops : (agent, hop) of every message it was to be shown, far to near, before any merging
    failed_sources : agents within K hops that failed and were therefore left out
    text : what it sent; empty when failed
    reach : K of this agent; 0 where it hears nobody because there is no graph
    status, error : ``ok``, or ``failed`` with the reason
    tries : calls that were made; 0 where a predecessor's code was sent on without asking
    prompt_tokens, new_tokens : of all tries; None where unknown
    tokens_estimated : the backend did not tell a count, so it was counted again from the texts
    text_tokens, sent_bytes : size of `text`
    received_tokens, received_bytes : size of the whole block of messages in its prompt, lead-in and headers included
    deliveries : the texts in that block, in order
    seconds : the receiver's share of work for it; nan for a stored reply
    finish : how the reply ended, see `lib.models.receiver.Reply`
    prompt_key : the receiver's name of the exact input; empty where nothing was asked
    own_text : what the agent itself said, where a tamper replaced it
    reused_from : the predecessor whose passing code was sent on
    computed : what its program printed, where it was run; it stands in `text` as the answer
    examples : (passed, run) of the question's own examples on its code, where they were run
    """

    question_id: str
    agent: int | str
    role: str
    wave: int
    parents: tuple[int, ...]
    hops: tuple[tuple[int, int], ...]
    text: str
    status: Status
    error: str | None = None
    reach: int = 0
    failed_sources: tuple[int, ...] = ()
    tries: int = 1
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    tokens_estimated: bool = False
    text_tokens: int = 0
    sent_bytes: int = 0
    received_tokens: int = 0
    received_bytes: int = 0
    deliveries: tuple[Delivery, ...] = ()
    seconds: float = 0.0
    finish: str = "stop"
    prompt_key: str = ""
    own_text: str | None = None
    reused_from: int | None = None
    computed: str | None = None
    examples: tuple[int, int] | None = None

    @property
    def ok(self) -> bool:
        """Whether there is a message."""
        return self.status == "ok"


class TeamRun(msgspec.Struct, frozen=True):
    """One question answered in one arm.

    Parameters
    ----------
    question_id, arm, k : what was run; k is 0 for a single agent
    dag : the graph; None for a single agent
    messages : of the workers, by agent index; empty for a single agent
    decision : the reply that is graded
    consolidations : (target agent, what Phi did for it), where anything was merged
    """

    question_id: str
    arm: str
    k: int
    dag: Dag | None
    messages: tuple[AgentMessage, ...]
    decision: AgentMessage
    consolidations: tuple[tuple[int, Consolidation], ...] = ()

    @property
    def failed_agents(self) -> tuple[int, ...]:
        """Workers without a message."""
        return tuple(index for index, message in enumerate(self.messages) if not message.ok)
