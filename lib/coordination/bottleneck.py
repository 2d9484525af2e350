"""Where loss remains once a message has been sent: what was not written, not taken in, not acted on.

Context
-------
Section 2.4 and appendix B.3 of the paper. The chain is (S, X) -> M -> W -> output: the sender writes M, the receiver
absorbs it together with its view into W, its output is made from W alone. W must carry whatever of X is used later.

Intuition
---------
Ask an unbounded reader at each station. Its risk can only grow along the chain, so the total loss above the sender's
own Bayes risk falls into three parts, none negative: *externalization* (the message omits it), *absorption* (the
receiver lost it while reading), *action closure* (it was there and the wrong thing was done). Replay one fixed message
with two receivers and the first part is the same number in both: it cancels from their difference.

How to read the result
----------------------
The parts sum to ``total``, in units of the loss. `class_losses` is the variant that can be estimated, with the best of
a bounded probe class in place of an unbounded reader. Its first part may be negative when the probes read the message
more easily than raw context: the sign is reported, not clipped.

Not covered: records of real runs (`lib.coordination.outcomes`), receivers whose output sees more than W.
"""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from lib.coordination.laws import Law, bayes_risk, map_risk


class Losses(msgspec.Struct, frozen=True):
    """Loss after the message, by where it arose, in units of the loss.

    Parameters
    ----------
    externalization : L_ext, what the message leaves out
    absorption : L_abs, what the receiver loses while reading
    closure : L_clo, what it fails to turn into the right output
    """

    externalization: float
    absorption: float
    closure: float

    @property
    def total(self) -> float:
        """All of it: the deployed risk minus the best that the sender's knowledge allows."""
        return self.externalization + self.absorption + self.closure


def bottleneck_losses(law: Law, sender: ArrayLike, absorb: ArrayLike, head: ArrayLike, loss: np.ndarray) -> Losses:
    """Return the three losses of a chain.

    Parameters
    ----------
    law : has ``s``, ``x`` and ``z``
    sender : (n_s, n_x) messages, or (n_s, n_x, n_m) probabilities
    absorb : (n_x, n_m) or (n_x, n_m, n_w), what the receiver makes of view and message
    head : (n_w,) or (n_w, n_predictions), its output
    loss : (n_predictions, n_z) >= 0

    Returns
    -------
    Losses
        All three are >= 0, by data processing.
    """
    chain = law.with_variable("m", ("s", "x"), sender).with_variable("w", ("x", "m"), absorb)
    stations = [bayes_risk(chain, given, loss) for given in (("x", "s"), ("x", "m"), ("w",))]
    return _between([*stations, map_risk(chain, ("w",), head, loss)])


def class_losses(raw_probe: float, message_probe: float, receiver_best: float, deployed: float) -> Losses:
    """Return the losses relative to bounded classes.

    Parameters
    ----------
    raw_probe, message_probe : least risk of the probe class P on raw context and on the message
    receiver_best : least risk of the receiver class C on the message
    deployed : risk of the deployed receiver

    Returns
    -------
    Losses
        Externalization of any sign; absorption is >= 0 if P contains C, closure if the deployed map is in C.
    """
    return _between([raw_probe, message_probe, receiver_best, deployed])


def replay_difference(first: Losses, second: Losses) -> float:
    """Return total_1 - total_2 of two receivers of the same message, from absorption and closure alone.

    Raises
    ------
    ValueError
        If externalization differs: then the message was not the same.
    """
    if abs(first.externalization - second.externalization) > 1e-9:
        raise ValueError(
            f"externalization differs, {first.externalization:.6g} and {second.externalization:.6g}: "
            "replay the same message with both receivers"
        )
    return (first.absorption + first.closure) - (second.absorption + second.closure)


def _between(risks: list[float]) -> Losses:
    return Losses(*(after - before for before, after in itertools.pairwise(risks)))
