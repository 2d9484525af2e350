"""Which roles have something to say to each other: the graph through which G-Designer's network mixes agents.

Context
-------
G-Designer encodes each agent from its role and the question, and lets features flow between agents along a fixed graph
of roles (its code has one list of role pairs a domain; these lists are written anew here). The graph is input only:
whether two agents talk is what the network decides.

Intuition
---------
A critic concerns everybody; a mathematician and an economist share more than a lawyer and a programmer. A complete
graph would be no use: mixing along it averages all roles, and every agent looks the same.

How to read the result
----------------------
Row i, column j of `role_graph` is 1 where agent i's role is listed as feeding agent j's. Agents of one role get the
same rows and columns.

Not covered: what a role is told to do (`lib.moc.roles`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

RolePair = tuple[str, str]  # (feeds, is fed)

_KIN = {
    "mathematician": ("economist", "programmer"),
    "psychologist": ("doctor", "lawyer"),
    "historian": ("lawyer", "economist"),
    "doctor": ("psychologist",),
    "lawyer": ("historian", "economist"),
    "economist": ("mathematician", "lawyer"),
    "programmer": ("mathematician",),
}
_CHOICE = (
    *(("knowledgeable expert", other) for other in ("critic", *_KIN)),
    *((specialist, "critic") for specialist in _KIN),
    *(("critic", other) for other in ("knowledgeable expert", *_KIN)),
    *((specialist, kin) for specialist, own in _KIN.items() for kin in own),
)
_MATH = (
    ("mathematical analyst", "math solver"),
    ("mathematical analyst", "programming expert"),
    ("mathematical analyst", "inspector"),
    ("math solver", "programming expert"),
    ("math solver", "inspector"),
    ("programming expert", "math solver"),
    ("programming expert", "inspector"),
    ("inspector", "math solver"),
)
_CODE = (
    ("project manager", "algorithm designer"),
    ("project manager", "programming expert"),
    ("project manager", "test analyst"),
    ("algorithm designer", "programming expert"),
    ("algorithm designer", "test analyst"),
    ("programming expert", "test analyst"),
    ("programming expert", "bug fixer"),
    ("test analyst", "programming expert"),
    ("test analyst", "bug fixer"),
    ("bug fixer", "programming expert"),
)
ROLE_PAIRS: dict[str, tuple[RolePair, ...]] = {"choice": _CHOICE, "math": _MATH, "code": _CODE}


def role_graph(roles: Sequence[str], pairs: Iterable[RolePair]) -> np.ndarray:
    """Return who may feed whom by role.

    Parameters
    ----------
    roles : (n,) role of each agent; upper and lower case are one
    pairs : roles of which the first feeds the second, such as ``ROLE_PAIRS["math"]``

    Returns
    -------
    (n, n) int8 with an empty diagonal

    Raises
    ------
    ValueError
        For a role that no pair names.

    Examples
    --------
    >>> role_graph(["Math solver", "Inspector", "Math solver"], ROLE_PAIRS["math"])
    array([[0, 1, 0],
           [1, 0, 1],
           [0, 1, 0]], dtype=int8)
    """
    feeds = {(tail.casefold(), head.casefold()) for tail, head in pairs}
    own, known = [role.casefold() for role in roles], {role for pair in feeds for role in pair}
    for role in roles:
        if role.casefold() not in known:
            raise ValueError(f"roles: no pair names {role!r}; known are {', '.join(sorted(known))}, or add a pair")
    matrix = np.array([[(tail, head) in feeds for head in own] for tail in own], dtype=np.int8).reshape(len(own), -1)
    np.fill_diagonal(matrix, 0)
    return matrix
