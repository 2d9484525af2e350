"""Chains small enough to follow by hand.

Context
-------
The worked example of the bottleneck (paper, section 2.4). A file out of four needs an action: files 0 and 1 are to be
edited, 2 and 3 to be read. The target is the pair, and only both right counts.

Intuition
---------
Three things go wrong, one at each station. The sender has one name for files 2 and 3. The receiver mistakes file 0 for
1 and back with probability `confusion`. And where it decoded 0 or 1, it picks the right action only with probability
`conversion`.

How to read the result
----------------------
`losses` puts each fault at its station; `rates` says what a scorer of artifacts and actions would report. A correct
artifact with a wrong action is closure, not content.

Not covered: anything larger.
"""

from __future__ import annotations

import numpy as np

from lib.coordination.bottleneck import Losses, bottleneck_losses
from lib.coordination.laws import Law, zero_one

FILES, ACTIONS = 4, 2
ACTION_OF = np.array([0, 0, 1, 1])  # 0 edit, 1 read
MERGING = np.array([[0], [1], [2], [2]])  # (n_s, n_x) message: one name for files 2 and 3


def file_law() -> Law:
    """Return the law of (s, x, z): a file at random, an empty local view, z = file * 2 + action."""
    p = np.zeros((FILES, 1, FILES * ACTIONS))
    p[np.arange(FILES), 0, np.arange(FILES) * ACTIONS + ACTION_OF] = 1 / FILES
    return Law(("s", "x", "z"), p)


def absorption(confusion: float) -> np.ndarray:
    """Return the receiver's kernel (1, 3, 3): messages 0 and 1 are mistaken for each other."""
    kept = 1 - confusion
    return np.array([[[kept, confusion, 0.0], [confusion, kept, 0.0], [0.0, 0.0, 1.0]]])


def output(conversion: float) -> np.ndarray:
    """Return the receiver's output (3, 8): the file as decoded, its action right with `conversion`; 2 stands for 2 and 3."""
    head = np.zeros((3, FILES * ACTIONS))
    for file in (0, 1):
        head[file, file * ACTIONS + ACTION_OF[file]] = conversion
        head[file, file * ACTIONS + 1 - ACTION_OF[file]] = 1 - conversion
    head[2, 2 * ACTIONS + ACTION_OF[2]] = 1.0
    return head


def losses(confusion: float = 0.2, conversion: float = 0.5) -> Losses:
    """Return the three losses of the example; both parameters are probabilities."""
    return bottleneck_losses(file_law(), MERGING, absorption(confusion), output(conversion), zero_one(FILES * ACTIONS))


def rates(confusion: float = 0.2, conversion: float = 0.5) -> dict[str, float]:
    """Return ``hit_artifact``, ``hit_joint`` and ``action_given_artifact`` of the example."""
    chain = file_law().with_variable("m", ("s", "x"), MERGING).with_variable("w", ("x", "m"), absorption(confusion))
    pairs = np.einsum("wz,wq->qz", chain.marginal("w", "z"), output(conversion))  # (prediction, target)
    files = pairs.reshape(FILES, ACTIONS, FILES, ACTIONS)
    artifact, joint = float(np.einsum("fafb->", files)), float(np.trace(pairs))
    return {"hit_artifact": artifact, "hit_joint": joint, "action_given_artifact": joint / artifact}
