"""Which messages say nearly the same, and which of them are merged together.

Context
-------
The merging of messages (`lib.moc.consolidate`; Algorithm 1 of the MOC paper) compares their texts by the cosine of their
embeddings (eq. 12). One iteration does not merge the closest pair alone but every pair whose similarity is within
epsilon of the closest, as long as no message is in two pairs.

Intuition
---------
The threshold moves with the messages: there is always a closest pair, so there is always something to merge, however little
the texts have in common. Epsilon decides how many merges share one round of calls, not whether there is one.

How to read the result
----------------------
`disjoint_pairs` lists pairs (u, v) of positions with u < v, closest first. No further pair above the threshold could be added.

Not covered: what a similarity means. Texts longer than the embedder's own limit are compared by their beginning.
"""

from __future__ import annotations

import numpy as np

DIGITS = 12  # similarities are compared after rounding, so that equal ones tie


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Return the rows scaled to length 1, float64, shape (n, d).

    A row of zeros, or one that holds a value that is not finite, becomes zeros: its similarity with everything is 0.
    """
    vectors = np.asarray(vectors, dtype=np.float64)
    usable = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
    largest = np.abs(usable).max(axis=1, keepdims=True, initial=0.0)
    # Dividing by the largest entry first keeps the squares of very long and very short vectors representable.
    scaled = np.divide(usable, largest, out=np.zeros_like(usable), where=largest > 0)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.divide(scaled, length, out=np.zeros_like(scaled), where=length > 0)


def cosine(units: np.ndarray) -> np.ndarray:
    """Return the cosine of every two unit rows (S of the paper), shape (n, n), rounded to `DIGITS`."""
    return np.round(units @ units.T, DIGITS)


def disjoint_pairs(similarity: np.ndarray, epsilon: float) -> tuple[tuple[int, int], ...]:
    """Return the pairs that one iteration merges (Algorithm 1, the two lines that form P).

    Candidates are the pairs u < v within `epsilon` of the closest one. They are taken greedily, closest first, equal ones by
    (u, v), and each message once, which makes the set maximal.

    Parameters
    ----------
    similarity : ndarray, shape (n, n)
        Symmetric; its diagonal is ignored.
    epsilon : float
        Slack on the similarity, at least 0.

    Returns
    -------
    tuple of (u, v), closest first; empty only for fewer than two messages.

    Raises
    ------
    ValueError
        For a matrix that is not square or holds a value that is not finite, or a negative epsilon.

    >>> similar = np.array([[1, 0.95, 0.5, 0.3], [0.95, 1, 0.93, 0.4], [0.5, 0.93, 1, 0.88], [0.3, 0.4, 0.88, 1]])
    >>> disjoint_pairs(similar, 0.1), disjoint_pairs(similar, 0.01)
    (((0, 1), (2, 3)), ((0, 1),))
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon: a slack is at least 0, not {epsilon}")
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(f"similarity: shape {similarity.shape} is not square")
    if not np.isfinite(similarity).all():
        raise ValueError(
            "similarity: a value is not finite; make it from unit_rows, which turns such embeddings to zero"
        )
    if len(similarity) < 2:
        return ()
    first, second = np.triu_indices(len(similarity), k=1)
    values = np.round(similarity[first, second], DIGITS)
    candidates = np.flatnonzero(values >= np.round(values.max() - epsilon, DIGITS))
    taken: set[int] = set()
    pairs = []
    # triu_indices runs through (u, v) in ascending order, so a stable sort keeps that order among equals.
    for index in candidates[np.argsort(-values[candidates], kind="stable")]:
        u, v = int(first[index]), int(second[index])
        if u not in taken and v not in taken:
            taken.update((u, v))
            pairs.append((u, v))
    return tuple(pairs)
