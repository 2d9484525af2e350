"""What one message is worth to its receiver: gain minus tax.

Context
-------
Proposition 1 of the paper (section 2.2). A receiver class C reads the message or does without; a deployed protocol
does something, seldom the best of its class, with the message and without. Four risks say it all: the best of the
class with and without the message, the deployed one with and without it.

Intuition
---------
*Gain* A = R_0 - R_C is what the message could do for the best decoder of the class. It is never negative, since a
decoder may ignore the message. *Tax* tau is how much further from its class's best the deployed receiver is with the
message than without: parsing, distraction, a format it was not made for. *Utility* is what is observed, the fall of
the deployed risk. Write both gaps out and the class terms cancel: U = A - tau. So a message helps if and only if its
gain exceeds its tax, and a helpful message may be a mediocre one that costs nothing to read.

How to read the result
----------------------
`OneStep` holds the four risks; gain, tax and utility follow from them. All are in units of the loss, for 0-1 loss
error rates. The tax may be negative: a message can also bring a receiver nearer to its class's best.

Not covered: estimating the risks from runs; costs of tokens and later steps (`lib.coordination.protocol`).
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from lib.coordination.decoders import class_risk, silent_risk
from lib.coordination.laws import Law, map_risk

SAME = 1e-9  # risks nearer than this are the same


class OneStep(msgspec.Struct, frozen=True):
    """The four risks of one step, in units of the loss.

    Parameters
    ----------
    silent_best : R_0, best of the class's message-ignoring maps
    message_best : R_C, best of the class with the message
    silent_deployed : R(rho0), the deployed receiver without a message
    message_deployed : R(rho), the deployed receiver with it
    """

    silent_best: float
    message_best: float
    silent_deployed: float
    message_deployed: float

    @property
    def gain(self) -> float:
        """A = R_0 - R_C >= 0."""
        return self.silent_best - self.message_best

    @property
    def tax(self) -> float:
        """tau = [R(rho) - R_C] - [R(rho0) - R_0], of any sign."""
        return (self.message_deployed - self.message_best) - (self.silent_deployed - self.silent_best)

    @property
    def utility(self) -> float:
        """U = R(rho0) - R(rho); equals gain minus tax."""
        return self.silent_deployed - self.message_deployed


def one_step(law: Law, decoders: np.ndarray, deployed: ArrayLike, silent: ArrayLike, loss: np.ndarray) -> OneStep:
    """Return the risks of one step with a message.

    Parameters
    ----------
    law : has ``x``, ``m`` and ``z``
    decoders : (n_decoders, n_x, n_m) the receiver's class C, see `lib.coordination.decoders`
    deployed : (n_x, n_m) predictions of the deployed receiver, or (n_x, n_m, n_predictions) probabilities
    silent : (n_x,) or (n_x, n_predictions), the same without a message
    loss : (n_predictions, n_z) >= 0

    Raises
    ------
    ValueError
        If the class has no message-ignoring map, or a table does not fit the law.
    """
    return OneStep(
        silent_best=silent_risk(law, decoders, loss),
        message_best=class_risk(law, decoders, loss),
        silent_deployed=map_risk(law, ("x",), silent, loss),
        message_deployed=map_risk(law, ("x", "m"), deployed, loss),
    )


def need_same_silence(first: OneStep, second: OneStep) -> None:
    """Check that two steps are measured from the same silence, so that their difference is that of their messages.

    Raises
    ------
    ValueError
        Naming the risk that differs.
    """
    for field in ("silent_best", "silent_deployed"):
        one, two = getattr(first, field), getattr(second, field)
        if abs(one - two) > SAME:
            raise ValueError(f"{field} differs, {one:.6g} and {two:.6g}: compare steps of one receiver without message")
