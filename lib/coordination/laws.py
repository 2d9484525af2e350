"""Joint laws of a few finite variables, and the risk of predicting one of them from others.

Context
-------
The paper's objects (section 2.1): what the sender sees S, the receiver's local view X, the action-sufficient target Z,
the message M made from S and X. With finite spaces all of them together are one table of probabilities, and every
expectation is a sum over it. `Law` is that table with a name on each axis.

Intuition
---------
A chain is built the way it runs: start with the law of (S, X, Z), add M by a kernel that reads S and X alone, add what
the receiver absorbs by a kernel that reads X and M alone. What a kernel does not read cannot leak into what it makes,
so conditional independence holds by construction. The Bayes risk of some variables is the loss of whoever knows them
and predicts as well as anybody can: for each of their values the best prediction, weighted.

How to read the result
----------------------
Risks are means of the loss, in its units; with `zero_one` they are error rates. Data processing: the Bayes risk never
falls when a variable is replaced by what a kernel makes of it.

Not covered: continuous variables, estimation from samples; a law here is known exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

TOLERANCE = 1e-9  # how far a sum of probabilities may be from 1


@dataclass(frozen=True, eq=False)
class Law:
    """A joint distribution.

    Parameters
    ----------
    variables : name of each axis, e.g. ``("s", "x", "z")``
    p : probabilities, one axis a variable; they sum to 1

    Raises
    ------
    ValueError
        Naming what is no distribution.
    """

    variables: tuple[str, ...]
    p: np.ndarray

    def __post_init__(self) -> None:
        p = np.array(self.p, dtype=float)
        if len(set(self.variables)) != len(self.variables) or p.ndim != len(self.variables):
            raise ValueError(f"variables {self.variables} must be distinct, one for each of the {p.ndim} axes of p")
        if not np.isfinite(p).all() or (p < 0).any() or abs(p.sum() - 1) > TOLERANCE:
            raise ValueError(f"p must be probabilities >= 0 that sum to 1; they sum to {p.sum():.12g}")
        p.setflags(write=False)
        object.__setattr__(self, "p", p)

    def size(self, *names: str) -> tuple[int, ...]:
        """Return how many values each variable has."""
        return tuple(self.p.shape[self._place(name)] for name in names)

    def marginal(self, *names: str) -> np.ndarray:
        """Return the probabilities of these variables, one axis each in the order given."""
        return np.einsum(self.p, range(self.p.ndim), [self._place(name) for name in names])

    def with_variable(self, name: str, given: Sequence[str], kernel: ArrayLike) -> Law:
        """Return the law with one more variable, last, which depends on `given` alone.

        Parameters
        ----------
        kernel : (*sizes of given, n) conditional probabilities, each row sums to 1; or (*sizes of given,) integers,
            the value itself

        Raises
        ------
        ValueError
            If the kernel has another shape or its rows are no distributions.
        """
        rows = as_kernel(kernel, self.size(*given), what=f"kernel of {name!r}")
        axes = list(range(self.p.ndim))
        joint = np.einsum(self.p, axes, rows, [*(self._place(one) for one in given), len(axes)], [*axes, len(axes)])
        return Law((*self.variables, name), joint)

    def _place(self, name: str) -> int:
        if name not in self.variables:
            raise ValueError(f"the law has no variable {name!r}; it has {', '.join(self.variables)}")
        return self.variables.index(name)


def as_kernel(table: ArrayLike, sizes: tuple[int, ...], *, n: int | None = None, what: str = "kernel") -> np.ndarray:
    """Return conditional probabilities of shape (*sizes, n) from such probabilities or from a table of values.

    Parameters
    ----------
    table : (*sizes, n) probabilities, or (*sizes,) integers from 0, each taken with certainty
    n : number of values that a table of integers may take; default its largest plus one

    Raises
    ------
    ValueError
        Naming `what` and the shape or row that does not fit.
    """
    rows = np.asarray(table)
    if rows.shape == sizes and np.issubdtype(rows.dtype, np.integer):
        count = int(rows.max(initial=0)) + 1 if n is None else n
        if rows.min(initial=0) < 0 or rows.max(initial=0) >= count:
            raise ValueError(f"{what}: values must lie in 0..{count - 1}")
        return np.eye(count)[rows]
    if rows.shape[:-1] != sizes or rows.ndim == 0 or (n is not None and rows.shape[-1] != n):
        raise ValueError(f"{what}: shape {rows.shape} is neither {sizes} of integers nor {(*sizes, n or 'n')}")
    if (rows < 0).any() or (np.abs(rows.sum(axis=-1) - 1) > TOLERANCE).any():
        raise ValueError(f"{what}: every row must be probabilities that sum to 1")
    return rows.astype(float)


def zero_one(n: int) -> np.ndarray:
    """Return the 0-1 loss of n labels, (n predictions, n targets).

    >>> zero_one(2).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return 1.0 - np.eye(n)


def bayes_risk(law: Law, given: Sequence[str], loss: np.ndarray, *, target: str = "z") -> float:
    """Return R*(given): the least expected loss of predicting `target` from the variables `given`.

    Parameters
    ----------
    loss : (n_predictions, n_target) >= 0; see `zero_one`
    """
    joint = law.marginal(*given, target)
    expected = joint.reshape(-1, joint.shape[-1]) @ checked_loss(loss, joint.shape[-1]).T  # (n_given, n_predictions)
    return float(expected.min(axis=1).sum())


def map_risk(law: Law, given: Sequence[str], rule: ArrayLike, loss: np.ndarray, *, target: str = "z") -> float:
    """Return the expected loss of predicting `target` by a fixed rule, which may draw lots.

    Parameters
    ----------
    rule : (*sizes of given,) predictions as integers, or (*sizes of given, n_predictions) probabilities
    loss : (n_predictions, n_target) >= 0
    """
    joint = law.marginal(*given, target)
    costs = checked_loss(loss, joint.shape[-1])
    rows = as_kernel(rule, law.size(*given), n=len(costs), what="rule")
    return float(np.einsum("kz,kq,qz->", _flat(joint), _flat(rows), costs))


def checked_loss(loss: np.ndarray, n_target: int) -> np.ndarray:
    """Return the loss as an array of shape (n_predictions, n_target); `ValueError` where it is none."""
    costs = np.asarray(loss, dtype=float)
    if costs.ndim != 2 or costs.shape[1] != n_target or not np.isfinite(costs).all() or (costs < 0).any():
        raise ValueError(f"loss must be (n_predictions, {n_target}) finite numbers >= 0, not shape {costs.shape}")
    return costs


def _flat(table: np.ndarray) -> np.ndarray:
    return table.reshape(-1, table.shape[-1])
