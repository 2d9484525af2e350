"""A receiver that needs help to a known degree, and a sender that helps and distracts it.

Context
-------
The setting of the sender threshold (paper, section 2.5), as a law that can be worked by hand. The target is one of four
answers. The local view shows it, or shows nothing. The burden beta is the error of a receiver that guesses where it sees
nothing.

Intuition
---------
A message names the right answer with some accuracy. Where the receiver sees nothing it follows the message: there
accuracy is gain. Where it sees the answer it needs no message and pays for reading one: with some probability it is
distracted and answers wrong. A stronger sender that is more accurate and more distracting therefore harms a receiver
that knows, and helps one that does not.

How to read the result
----------------------
A = beta - seen_nothing (1 - accuracy) and tau = (1 - seen_nothing) distraction, with seen_nothing = 4 beta / 3; both in
error rates. The threshold between two senders follows from these two lines.

Not covered: receivers that distrust a message; burdens above 3/4, which mean a worse guess than chance.
"""

from __future__ import annotations

import itertools

import numpy as np

from lib.coordination.gain import OneStep, one_step
from lib.coordination.laws import Law, zero_one

ANSWERS = 4
MOST = 1 - 1 / ANSWERS  # the burden of a receiver that never sees anything
_NOTHING = ANSWERS  # the view that shows nothing


def burdened_step(burden: float, accuracy: float, distraction: float) -> OneStep:
    """Return the step of a receiver with this burden and this sender.

    Parameters
    ----------
    burden : beta, its error without a message, 0 to 3/4
    accuracy : probability that the message names the right answer
    distraction : probability that a receiver that sees the answer gives another one because of the message

    Raises
    ------
    ValueError
        If the burden is out of range.
    """
    if not 0 <= burden <= MOST:
        raise ValueError(f"burden must lie between 0 and {MOST:g}, not {burden!r}")
    unseen = burden / MOST
    view = (1 - unseen) * np.eye(ANSWERS, ANSWERS + 1)
    view[:, _NOTHING] = unseen
    law = Law(("s",), np.full(ANSWERS, 1 / ANSWERS))
    law = law.with_variable("x", ("s",), view).with_variable("z", ("s",), np.arange(ANSWERS))
    law = law.with_variable("m", ("s",), _mistaking(1 - accuracy))
    deployed = np.repeat(np.eye(ANSWERS)[None], ANSWERS + 1, axis=0)  # (n_x, n_m, n_predictions): follow the message
    deployed[:ANSWERS] = _mistaking(distraction)[:, None, :]  # but trust the view where it shows something
    silent = np.array([*range(ANSWERS), 0])
    return one_step(law, _receiver_class(), deployed, silent, zero_one(ANSWERS))


def _receiver_class() -> np.ndarray:
    """Return all maps that trust the view where it shows an answer, and the map that always follows the message."""
    seen = np.repeat(np.arange(ANSWERS)[:, None], ANSWERS, axis=1)  # (n_x without the last, n_m)
    unseen = itertools.product(range(ANSWERS), repeat=ANSWERS)
    trusting = [np.vstack([seen, row]) for row in unseen]
    return np.array([*trusting, np.tile(np.arange(ANSWERS), (ANSWERS + 1, 1))])


def _mistaking(share: float) -> np.ndarray:
    """Return the kernel that keeps an answer or, with probability `share`, takes another at random."""
    others = np.ones((ANSWERS, ANSWERS)) - np.eye(ANSWERS)
    return (1 - share) * np.eye(ANSWERS) + share * others / (ANSWERS - 1)
