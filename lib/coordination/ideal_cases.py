"""Two idealised receivers whose gain has a closed form: one that splits its task, one without bounds.

Context
-------
Appendix B.7 of the paper. (i) The target has an artifact and an action part; if the loss adds over parts and the class
is a product, risk and gain add too. (ii) Under log loss, an unrestricted receiver without slack gains exactly the
conditional mutual information I(Z; M | X). (iii) That information has a variational lower bound with bounded critics.

Intuition
---------
(i) A product class lets each part choose its best map without regard to the other, and an additive loss never asks
whether both were right at once. Each condition is needed: with 0-1 loss on the pair, or a class that ties the parts
together, the sum is wrong. (ii) The best log-loss prediction is the posterior, so risks are entropies, and what the
message takes away is mutual information. (iii) Any critic T(x, m, z) gives E_P[T] - log E_Q[e^T] <= I, where Q lets
view, message and target keep their laws but breaks the tie between message and target given the view. The best
critic is log dP/dQ; one that may not exceed a bound is this, shifted and clipped.

How to read the result
----------------------
Information is in nats. A bound on the gain certifies a tax: tau = A - U >= bound - U for whatever utility was measured.

Not covered: fitting a critic to samples; then the bound holds only up to sampling error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import rel_entr, xlogy

from lib.coordination.laws import Law


def additive_loss(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return l((a, b), (z_a, z_b)) = l_a(a, z_a) + l_b(b, z_b).

    Parameters
    ----------
    first, second : (n_a, n_za) and (n_b, n_zb) losses of the parts

    Returns
    -------
    (n_a n_b, n_za n_zb); a pair (a, b) is the row ``a * n_b + b``, targets likewise
    """
    one, two = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    whole = one[:, None, :, None] + two[None, :, None, :]
    return whole.reshape(len(one) * len(two), -1)


def part_laws(law: Law, n_second: int) -> tuple[Law, Law]:
    """Return the laws of (x, m, z) with either part of the target alone; z of `law` is ``z_a * n_second + z_b``."""
    joint = law.marginal("x", "m", "z")
    split = joint.reshape(*joint.shape[:2], -1, n_second)
    return Law(("x", "m", "z"), split.sum(axis=3)), Law(("x", "m", "z"), split.sum(axis=2))


def log_loss_gain(law: Law) -> float:
    """Return the gain of an unrestricted receiver under log loss, H(Z | X) - H(Z | X, M), in nats."""
    return _log_risk(law.marginal("x", "z")) - _log_risk(law.marginal("x", "m", "z"))


def message_information(law: Law) -> float:
    """Return I(Z; M | X) in nats, as the divergence of P from Q."""
    return float(rel_entr(law.marginal("x", "m", "z"), broken_tie(law)).sum())


def broken_tie(law: Law) -> np.ndarray:
    """Return Q = P_X P_{M|X} P_{Z|X}, (n_x, n_m, n_z): message and target independent given the view."""
    p = law.marginal("x", "m", "z")
    view = p.sum(axis=(1, 2))  # (n_x,)
    joint = p.sum(axis=2)[:, :, None] * p.sum(axis=1)[:, None, :]
    return np.divide(joint, view[:, None, None], out=np.zeros_like(joint), where=view[:, None, None] > 0)


def variational_bound(law: Law, critic: ArrayLike) -> float:
    """Return E_P[T] - log E_Q[e^T], which no critic lifts above I(Z; M | X) (Donsker and Varadhan).

    Parameters
    ----------
    critic : (n_x, n_m, n_z) T, finite
    """
    values = np.asarray(critic, dtype=float)
    p = law.marginal("x", "m", "z")
    if values.shape != p.shape or not np.isfinite(values).all():
        raise ValueError(f"critic must be finite, of shape {p.shape}, not {values.shape}")
    return float((p * values).sum() - np.log((broken_tie(law) * np.exp(values)).sum()))


def best_critic(law: Law, bound: float) -> np.ndarray:
    """Return the critic with |T| <= bound that makes the variational bound largest.

    The bound is concave in T and its stationary point is T = log dP/dQ + c with c = log E_Q[e^T]; where T may not go
    that far it stays at the limit. The constant c is the one root of a falling function on [-bound, bound].

    Parameters
    ----------
    bound : B > 0, in nats

    Returns
    -------
    (n_x, n_m, n_z)
    """
    if not bound > 0:
        raise ValueError(f"bound must be above 0 nats, not {bound!r}")
    p, q = law.marginal("x", "m", "z"), broken_tie(law)
    tied = p > 0  # elsewhere the ratio is 0, and its logarithm below any limit
    ratio = np.log(np.divide(p, q, out=np.ones_like(p), where=tied), out=np.zeros_like(p), where=tied)
    ratio = np.where(tied, ratio, -np.inf)

    def surplus(shift: float) -> float:
        clipped = np.clip(ratio + shift, -bound, bound)
        return float(np.log((q * np.exp(clipped)).sum())) - shift

    ends = surplus(-bound), surplus(bound)
    shift = -bound if ends[0] <= 0 else bound if ends[1] >= 0 else brentq(surplus, -bound, bound, xtol=1e-14)
    return np.clip(ratio + shift, -bound, bound)


def tax_certificate(bound: float, utility: float) -> float:
    """Return bound - U, which the tax is at least, for any lower bound on the gain: tau = A - U."""
    return bound - utility


def _log_risk(joint: np.ndarray) -> float:
    """Return the least log loss of predicting the last axis from the others: a conditional entropy, in nats."""
    given = joint.sum(axis=-1)
    return float(xlogy(given, given).sum() - xlogy(joint, joint).sum())
