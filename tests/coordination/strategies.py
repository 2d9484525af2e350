"""Laws, kernels, losses and decoder classes as Hypothesis names them: small whole weights, so zeros and ties are common.

A table comes from one drawn seed: hundreds of drawn cells would be slow and mostly equal.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from lib.coordination.decoders import silent_maps
from lib.coordination.laws import Law

X, M, Z = 2, 3, 3

generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@st.composite
def kernels(draw: st.DrawFn, *sizes: int) -> np.ndarray:
    """Conditional probabilities of shape `sizes`, many of them 0; a row without weight puts all on its first value."""
    weights = draw(generators).choice([0.0, 0.0, 0.0, 1.0, 2.0, 8.0], sizes)
    weights[..., 0] += weights.sum(axis=-1) == 0
    return weights / weights.sum(axis=-1, keepdims=True)


@st.composite
def sources(draw: st.DrawFn, n_s: int = 4, n_x: int = X, n_z: int = Z) -> Law:
    """A law of (s, x, z)."""
    return Law(("s", "x", "z"), draw(kernels(n_s * n_x * n_z)).reshape(n_s, n_x, n_z))


@st.composite
def spoken(draw: st.DrawFn, n_m: int = M) -> Law:
    """A law of (s, x, z, m): a message made of what sender and receiver see."""
    law = draw(sources())
    return law.with_variable("m", ("s", "x"), draw(kernels(*law.size("s", "x"), n_m)))


@st.composite
def classes(draw: st.DrawFn, n_x: int = X, n_m: int = M, n_predictions: int = Z) -> np.ndarray:
    """A decoder class of at most 60 maps of its own, with all message-ignoring maps in it."""
    own = draw(generators).integers(0, n_predictions, (draw(st.integers(1, 60)), n_x, n_m))
    return np.concatenate([own, silent_maps(n_x, n_m, n_predictions)])


@st.composite
def losses(draw: st.DrawFn, n_predictions: int = Z, n_z: int = Z) -> np.ndarray:
    """0-1 loss, or any loss of whole numbers from 0 to 5."""
    if n_predictions == n_z and draw(st.booleans()):
        return 1.0 - np.eye(n_z)
    return draw(generators).integers(0, 6, (n_predictions, n_z)).astype(float)
