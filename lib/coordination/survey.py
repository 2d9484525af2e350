"""What is measured at a step before an action is chosen: two candidate messages, and a probe of every action.

Context
-------
Section 3.2 of the paper. The sender writes a compressed message and one derived anew. Each action is then probed on the receiver
that would carry it out, with what it would be shown; `lib.coordination.selector` chooses among them.

Intuition
---------
The probe without a message is the same for all actions that one receiver carries out, and without a stronger receiver
``escalate`` shows what ``compress`` does. Equal prompts are asked once, so a step takes at most 2 + 4 probes, where the
paper's public code makes 5 + 4.

How to read the result
----------------------
`Survey.signals` has a row a step and action. All steps go together: two calls of the sender, and one of each receiver a kind
of question. A message whose sender failed is not probed, so its gain is null and it is never sent.

Not covered: choosing, and the gate that comes before all of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import pandas as pd

from lib.coordination.actions import ACTIONS, Action, ToolTable, action_signals, expected_cost
from lib.coordination.arms import DECISION_TOKENS, Exposure
from lib.coordination.budget import deliver
from lib.coordination.exchange import Encoding, Mode, Parser, Sent
from lib.coordination.instructed import REFRESH, Instructed
from lib.coordination.probes import Probe, Signal, gain, probe
from lib.coordination.sending import known_total, send_messages
from lib.models.receiver import Receiver
from lib.tasks.steps import Step

GATE = 0.80  # accuracy without a message from which a regime is left alone (paper's public code)
_MESSAGES: tuple[Action, ...] = ("compress", "escalate", "refresh")
_Asked = tuple[str, Action | None]  # step and action; None is the probe without a message


class Settings(msgspec.Struct, frozen=True):
    """How messages are written, shown and probed.

    Attributes
    ----------
    budget : of a message, in the receiver's tokens
    encoding, mode, constrained, parser, max_tokens : as in `lib.coordination.arms.run_arms`
    signal, probe_tokens : as in `lib.coordination.probes.probe`
    gate : a regime whose accuracy without a message is at least this is skipped; None for no gate
    """

    budget: int = 128
    encoding: Encoding = "json"
    mode: Mode = "payload"
    constrained: bool = True
    parser: Parser = "robust"
    max_tokens: int = DECISION_TOKENS
    signal: Signal = "first_token"
    probe_tokens: int = 1
    gate: float | None = GATE


class Candidates(NamedTuple):
    """Both messages of every step, by step id."""

    compress: dict[str, Sent]
    refresh: dict[str, Sent]


class Survey(NamedTuple):
    """What was measured before choosing: signals (columns `SIGNALS`), candidates, and each step's probes."""

    signals: pd.DataFrame
    candidates: Candidates
    probe_calls: dict[str, int]
    probe_tokens: dict[str, int | None]


def survey_steps(
    steps: Sequence[Step],
    *,
    receiver: Receiver,
    sender: Receiver,
    strong: Receiver | None = None,
    table: ToolTable | None = None,
    settings: Settings | None = None,
) -> Survey:
    """Write both candidates of every step and probe every action, without a gate and without choosing.

    Calibration runs this over its own instances; nothing is asked where there are no steps.
    """
    table, settings = table or ToolTable(), settings or Settings()
    candidates = write_candidates(sender, steps, settings)
    shown = _exposures(steps, candidates, receiver, settings)
    readers = {"receiver": receiver, **({"strong": strong} if strong else {})}
    asked: dict[str, dict[_Asked, Exposure]] = {name: {} for name in readers}
    for (step_id, action), exposure in shown.items():
        reader = "strong" if strong and action == "escalate" else "receiver"
        asked[reader][step_id, None] = Exposure(exposure.step, "none")
        asked[reader][step_id, action] = exposure
    found = {name: _probe_all(readers[name], asked[name], settings) for name in readers}
    gains: dict[tuple[str, Action], float | None] = {}
    for name, exposures in asked.items():
        for step_id, asked_for in exposures:
            if asked_for is not None:
                gains[step_id, asked_for] = gain(found[name][step_id, None], found[name][step_id, asked_for])
    views = receiver.count_tokens([step.local_view for step in steps])
    contexts = receiver.count_tokens([step.context for step in steps])
    costs = {
        step.id: expected_cost(view, context, settings.budget)
        for step, view, context in zip(steps, views, contexts, strict=True)
    }
    calls, tokens = _probe_bill(steps, asked, found)
    return Survey(action_signals(steps, gains, costs, table), candidates, calls, tokens)


def choosing_overhead(survey: Survey) -> dict[tuple[str, Action], float]:
    """Return what choosing an action costs beyond carrying it out: all probes, and the candidates that it does not send.

    Returns
    -------
    dict of (step id, action) to tokens; nan where a model does not tell
    """
    written = [
        {step_id: known_total([sent.input_tokens, sent.output_tokens]) for step_id, sent in messages.items()}
        for messages in survey.candidates
    ]
    overhead: dict[tuple[str, Action], float] = {}
    for step_id, probes in survey.probe_tokens.items():
        first, anew = (one[step_id] for one in written)
        unsent: dict[Action, list[int | None]] = {action: [first, anew] for action in ACTIONS}
        unsent |= {"compress": [anew], "escalate": [anew], "refresh": [first]}
        for action, left in unsent.items():
            total = known_total([probes, *left])
            overhead[step_id, action] = float("nan") if total is None else float(total)
    return overhead


def write_candidates(sender: Receiver, steps: Sequence[Step], settings: Settings) -> Candidates:
    """Return the compressed and the refreshed message of every step: one sender call each, none for no steps."""
    if not steps:
        return Candidates({}, {})
    budget, encoding = settings.budget, settings.encoding
    first, anew = (
        send_messages(writer, steps, budget, encoding, mode=settings.mode, constrained=settings.constrained)
        for writer in (sender, Instructed(sender, REFRESH))
    )
    return Candidates(first, anew)


def _exposures(
    steps: Sequence[Step], candidates: Candidates, receiver: Receiver, settings: Settings
) -> dict[tuple[str, Action], Exposure]:
    """Return what each action would show; a message whose sender failed shows nothing and has no entry."""
    shown: dict[tuple[str, Action], Exposure] = {}
    for step in steps:
        shown[step.id, "raw"] = Exposure(step, "context")
        for action in _MESSAGES:
            sent = (candidates.refresh if action == "refresh" else candidates.compress)[step.id]
            if sent.error is None:
                text = deliver(sent.text, settings.budget, receiver).text
                shown[step.id, action] = Exposure(step, "message", text)
    return shown


def _probe_all(reader: Receiver, asked: Mapping[_Asked, Exposure], settings: Settings) -> dict[_Asked, Probe]:
    if not asked:
        return {}
    probed = probe(reader, list(asked.values()), signal=settings.signal, tokens=settings.probe_tokens)
    return dict(zip(asked, probed.probes, strict=True))


def _probe_bill(
    steps: Sequence[Step],
    asked: Mapping[str, Mapping[_Asked, Exposure]],
    found: Mapping[str, Mapping[_Asked, Probe]],
) -> tuple[dict[str, int], dict[str, int | None]]:
    """Return distinct probes and their tokens by step: what is shown twice to one reader is paid once."""
    paid: dict[str, dict[tuple[str, str, str], int | None]] = {step.id: {} for step in steps}
    for reader, exposures in asked.items():
        for key, exposure in exposures.items():
            paid[key[0]][reader, exposure.shown, exposure.text] = found[reader][key].tokens
    calls = {step_id: len(bill) for step_id, bill in paid.items()}
    return calls, {step_id: known_total(list(bill.values())) for step_id, bill in paid.items()}
