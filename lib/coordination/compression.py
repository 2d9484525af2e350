"""When a short message beats the raw context it was made from.

Context
-------
Section 2.3 and appendix B.1 of the paper. The same receiver gets either a compressed message M_c or everything the
sender sees. Both are steps of `lib.coordination.gain` from the same silence.

Intuition
---------
Subtract two utilities and the silent risks cancel: U_c - U_raw = (tax saved) - Gamma. The representation gap Gamma is
how much worse the best decoder of the class does on the compressed message. It has two parts. *Omitted information*
is what even an unbounded reader misses, never negative. *Decoder mismatch* is what only this bounded class loses (or
wins) on the new surface, of any sign: `lib.coordination.alternation` shows a message that omits nothing and is
unreadable.

How to read the result
----------------------
Compression wins exactly when the tax saved exceeds Gamma. If all one knows is Gamma <= kappa, a saving above kappa is
enough. A message that omits nothing, is no harder for the class and no more taxed never loses.

Not covered: how long a message may be; costs in tokens (`lib.coordination.protocol`).
"""

from __future__ import annotations

import msgspec
import numpy as np

from lib.coordination.gain import OneStep, need_same_silence
from lib.coordination.laws import Law, bayes_risk


class Compression(msgspec.Struct, frozen=True):
    """A compressed message against raw context, for one receiver.

    Parameters
    ----------
    compressed, raw : the two steps
    message_bayes : R*(X, M_c), Bayes risk of local view and compressed message
    sender_bayes : R*(X, S), Bayes risk of local view and all that the sender sees
    """

    compressed: OneStep
    raw: OneStep
    message_bayes: float
    sender_bayes: float

    @property
    def advantage(self) -> float:
        """U_c - U_raw; equals ``tax_saved - gap``."""
        return self.compressed.utility - self.raw.utility

    @property
    def tax_saved(self) -> float:
        """tau_raw - tau_c."""
        return self.raw.tax - self.compressed.tax

    @property
    def gap(self) -> float:
        """Gamma = R_C(M_c) - R_C(raw); equals ``omitted + mismatch``."""
        return self.compressed.message_best - self.raw.message_best

    @property
    def omitted(self) -> float:
        """R*(X, M_c) - R*(X, S) >= 0: information that the message leaves out."""
        return self.message_bayes - self.sender_bayes

    @property
    def mismatch(self) -> float:
        """What the class loses beyond Bayes on the message, minus the same on raw context; of any sign."""
        on_message = self.compressed.message_best - self.message_bayes
        return on_message - (self.raw.message_best - self.sender_bayes)

    def surely_wins(self, kappa: float) -> bool:
        """Tell whether the sufficient condition holds: the gap is at most `kappa` and the tax saved exceeds it."""
        return self.gap <= kappa < self.tax_saved


def compare_compression(law: Law, compressed: OneStep, raw: OneStep, loss: np.ndarray) -> Compression:
    """Return the comparison of a compressed message with raw context.

    Parameters
    ----------
    law : has ``s``, ``x``, ``z`` and the compressed message as ``m``
    compressed, raw : the steps with either, of the same receiver and from the same silence
    loss : (n_predictions, n_z) >= 0

    Raises
    ------
    ValueError
        If the steps start from different silence.
    """
    need_same_silence(compressed, raw)
    return Compression(compressed, raw, bayes_risk(law, ("x", "m"), loss), bayes_risk(law, ("x", "s"), loss))
