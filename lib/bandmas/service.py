"""How long the receiver takes: measured live, or told by a model that was fitted on measured calls.

Context
-------
Under load the receiver's time decides queues and misses. A scheduler may know how long calls took on calibration
tasks; it may not know how long the call it prepares will take, let alone what the reply will say.

Intuition
---------
A call reads the delivered text and writes a reply, so its time is about b0 + b1 (context tokens) + b2 (new tokens):
three numbers by least squares (specification, 7.1). Before the reply exists its length is taken as the calibration
mean; that is the scheduler's s_hat. Live service calls the receiver for each new packet set, one prompt at a time,
and takes the clock's word. A packet set that was timed once keeps its time: policies that send the same packets wait
equally long for the answer, and no difference between them is the clock's noise.

How to read the result
----------------------
`replayed` runs repeat exactly and can be made for any number of arrivals; `live` ones hold for the machine and the
minute they ran in. Neither batches: the receiver is one slot.

Not covered: batching receivers, the time of the network (`lib.bandmas.queueing`), what replies are worth.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from lib.bandmas.replay import Render
from lib.bandmas.results import WARM_UP, ContextKey
from lib.bandmas.traffic import Traffic, all_tasks
from lib.messages.prompts import receiver_prompt
from lib.models.receiver import Prompt, Receiver, Reply
from lib.seeds import seed_of


class Service(Protocol):
    """Tells how long the receiver works on one task."""

    def seconds(self, key: ContextKey, context_tokens: int) -> float:
        """Return the seconds of the call that answers these packets of this task, whose contents hold `context_tokens`."""
        ...


class ServiceModel(msgspec.Struct, frozen=True):
    """Service time as a linear function of what is read and written.

    Parameters
    ----------
    base : b0, seconds
    per_context_token, per_new_token : b1 and b2, seconds a token
    new_tokens : mean length of the calibration replies; stands in where a reply's length is unknown
    floor : seconds; no prediction falls below the shortest call that was measured
    residuals : measured minus predicted seconds of the calibration calls
    """

    base: float
    per_context_token: float
    per_new_token: float
    new_tokens: float
    floor: float = 0.0
    residuals: tuple[float, ...] = ()

    def seconds(self, context_tokens: float, new_tokens: float | None = None) -> float:
        """Return b0 + b1 ctx + b2 out in seconds; without `new_tokens` this is s_hat, what is known before the reply.

        >>> ServiceModel(0.4, 0.001, 0.01, new_tokens=20).seconds(100)
        0.7
        """
        written = self.new_tokens if new_tokens is None else new_tokens
        return max(self.floor, self.base + self.per_context_token * context_tokens + self.per_new_token * written)


def fit_service(context_tokens: ArrayLike, new_tokens: ArrayLike, seconds: ArrayLike) -> ServiceModel:
    """Fit the service model on measured calls by least squares.

    Parameters
    ----------
    context_tokens, new_tokens, seconds : (n_calls,) of successful calibration calls, all policies together

    Raises
    ------
    ValueError
        If there is no call, or a value is missing or negative.

    Notes
    -----
    A column that does not vary explains nothing and gets the coefficient 0; its mean effect is in `base`.
    """
    columns = [np.asarray(values, dtype=float) for values in (context_tokens, new_tokens, seconds)]
    if len({len(values) for values in columns}) != 1 or not len(columns[0]):
        raise ValueError("fit_service needs at least one measured call, with both token counts and seconds for each")
    if not all(np.isfinite(values).all() and values.min() >= 0 for values in columns):
        raise ValueError("fit_service: a token count or time is missing or negative; leave failed calls out")
    X, y = np.column_stack(columns[:2]), columns[2]  # (n_calls, 2) tokens, (n_calls,) seconds
    centre = X.mean(axis=0)
    slopes = np.linalg.lstsq(X - centre, y - y.mean(), rcond=None)[0]
    base = float(y.mean() - centre @ slopes)
    residuals = y - base - X @ slopes
    return ServiceModel(
        base=base,
        per_context_token=float(slopes[0]),
        per_new_token=float(slopes[1]),
        new_tokens=float(centre[1]),
        floor=float(y.min()),
        residuals=tuple(residuals.tolist()),
    )


class ContextAnswers:
    """Answers of a receiver to packet sets, each asked once.

    Parameters
    ----------
    receiver : answers prompts; behind a store for replayed service, bare for live service
    traffics : tasks and packets by workload
    render, max_tokens : the prompt and the reply's token cap, the same for all policies

    Attributes
    ----------
    replies : (task id, packet ids in order) -> reply
    """

    def __init__(
        self,
        receiver: Receiver,
        traffics: Mapping[str, Traffic],
        *,
        render: Render = receiver_prompt,
        max_tokens: int = 256,
    ) -> None:
        self.receiver = receiver
        self.render = render
        self.max_tokens = max_tokens
        self.replies: dict[ContextKey, Reply] = {}
        self._tasks = all_tasks(traffics)
        self._packets = {
            packet.packet_id: packet
            for traffic in traffics.values()
            for cut in traffic.packets.values()
            for packet in cut
        }

    def prompt(self, key: ContextKey) -> Prompt:
        """Return what the receiver is asked."""
        return self.render(self._tasks[key[0]], [self._packets[packet_id] for packet_id in key[1]])

    def ask(self, keys: Iterable[ContextKey]) -> None:
        """Answer the packet sets that have no answer yet, in one receiver call."""
        new = [key for key in dict.fromkeys(keys) if key not in self.replies]
        prompts = [self.prompt(key) for key in new]
        answers = self.receiver.reply(prompts, max_tokens=self.max_tokens) if prompts else []
        self.replies.update(zip(new, answers, strict=True))

    def reply(self, key: ContextKey) -> Reply:
        """Return the answer to one packet set."""
        if key not in self.replies:
            self.ask([key])
        return self.replies[key]


class ReplayedService:
    """Service times of the fitted model.

    Parameters
    ----------
    model : fitted on calibration calls, or assumed
    answers : tell how long each reply is, and ask the receiver where a packet set is new; None takes the calibration
        mean for every reply
    residual_seed : adds a calibration residual to every packet set, drawn by this seed and the set's name; None adds
        nothing
    """

    def __init__(
        self, model: ServiceModel, answers: ContextAnswers | None = None, *, residual_seed: int | None = None
    ) -> None:
        self.model = model
        self.answers = answers
        self.residual_seed = residual_seed
        self._known: dict[ContextKey, float] = {}

    def seconds(self, key: ContextKey, context_tokens: int) -> float:
        """Return the modelled seconds; see `Service.seconds`."""
        if key not in self._known:
            written = None if self.answers is None else self.answers.reply(key).new_tokens
            self._known[key] = max(self.model.floor, self.model.seconds(context_tokens, written) + self._residual(key))
        return self._known[key]

    def _residual(self, key: ContextKey) -> float:
        if self.residual_seed is None or not self.model.residuals:
            return 0.0
        return self.model.residuals[seed_of("load-residual", self.residual_seed, *key) % len(self.model.residuals)]


class LiveService:
    """Service times by the clock: the receiver is called for each new packet set, alone, after warm-up calls.

    Parameters
    ----------
    answers : over the *bare* receiver; one behind a store would be timed on reading
    warm_up : calls that are made and discarded before the first is timed
    clock : monotonic seconds

    Attributes
    ----------
    timed : (task id, packet ids) -> seconds, in the order of the calls

    Raises
    ------
    ValueError
        If the receiver is stored.
    """

    def __init__(
        self, answers: ContextAnswers, *, warm_up: int = WARM_UP, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        if hasattr(answers.receiver, "store"):
            raise ValueError(
                "LiveService needs the bare receiver: a stored reply takes no time; pass the one inside it"
            )
        self.answers = answers
        self.clock = clock
        self.timed: dict[ContextKey, float] = {}
        self._warm_up = warm_up

    def seconds(self, key: ContextKey, context_tokens: int) -> float:
        """Return the measured seconds of this packet set's first call; see `Service.seconds`."""
        if key not in self.timed:
            prompt, cap = self.answers.prompt(key), self.answers.max_tokens
            while self._warm_up > 0:
                self.answers.receiver.reply([prompt], max_tokens=cap)
                self._warm_up -= 1
            start = self.clock()
            reply = self.answers.receiver.reply([prompt], max_tokens=cap)[0]
            self.timed[key] = self.clock() - start
            self.answers.replies[key] = reply
        return self.timed[key]
