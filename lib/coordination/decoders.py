"""Classes of decoders: what a bounded receiver could do with its view and the message.

Context
-------
The paper's receiver is bounded (section 2.1): a fixed model behind a fixed prompt and parser can realise some maps from
(local view, message) to a prediction and not others. Here such a class C is a finite list of maps.

Intuition
---------
Rename the symbols of a message and nothing is lost to somebody who may use any map. A bounded class is different: it
may hold the map that reads the old symbols and lack the one that reads the new. So the best risk within the class
depends on the surface of a message, not only on its information.

How to read the result
----------------------
A class is an integer array (n_decoders, n_x, n_m) of predictions. Its message-ignoring maps are those that are constant
in m; the risk with them alone is R_0, what the receiver could do in silence. A class must hold at least one of them;
with all of them (`silent_maps`), R_0 is the Bayes risk of the local view.

Not covered: randomised decoders (they never beat the best of a finite class), infinite classes
(`lib.coordination.ideal_cases` treats the unrestricted one).
"""

from __future__ import annotations

import itertools

import numpy as np

from lib.coordination.laws import Law, checked_loss

MOST = 200_000  # maps of a class that is written out


def decoder_risks(law: Law, decoders: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """Return the expected loss of every decoder of a class.

    Parameters
    ----------
    law : has ``x``, ``m`` and ``z``
    decoders : (n_decoders, n_x, n_m) predictions
    loss : (n_predictions, n_z) >= 0

    Returns
    -------
    (n_decoders,) risks, in units of the loss

    Raises
    ------
    ValueError
        If the maps do not fit the law or predict what the loss does not know.
    """
    joint = law.marginal("x", "m", "z")
    expected = joint @ checked_loss(loss, joint.shape[-1]).T  # (n_x, n_m, n_predictions)
    maps = np.asarray(decoders)
    if maps.ndim != 3 or maps.shape[1:] != joint.shape[:2] or len(maps) == 0:
        raise ValueError(f"decoders have shape {maps.shape}; the law asks for (n_decoders, *{joint.shape[:2]})")
    if not np.issubdtype(maps.dtype, np.integer) or maps.min() < 0 or maps.max() >= expected.shape[-1]:
        raise ValueError(f"decoders must be integers in 0..{expected.shape[-1] - 1}, the predictions of the loss")
    views, symbols = np.indices(joint.shape[:2])
    return np.asarray(expected[views, symbols, maps].sum(axis=(1, 2)))


def ignores_message(decoders: np.ndarray) -> np.ndarray:
    """Return which decoders are constant in the message, (n_decoders,) booleans."""
    maps = np.asarray(decoders)
    return (maps == maps[:, :, :1]).all(axis=(1, 2))


def class_risk(law: Law, decoders: np.ndarray, loss: np.ndarray) -> float:
    """Return R_C, the least risk within the class."""
    return float(decoder_risks(law, decoders, loss).min())


def silent_risk(law: Law, decoders: np.ndarray, loss: np.ndarray) -> float:
    """Return R_0, the least risk of the class's message-ignoring maps.

    Raises
    ------
    ValueError
        If the class has none: then nobody could say what the message adds.
    """
    ignoring = np.asarray(decoders)[ignores_message(decoders)]
    if len(ignoring) == 0:
        raise ValueError("decoders: no map ignores the message; add silent_maps(...) to the class")
    return class_risk(law, ignoring, loss)


def silent_maps(n_x: int, n_m: int, n_predictions: int) -> np.ndarray:
    """Return all maps that ignore the message, (n_predictions^n_x, n_x, n_m).

    >>> silent_maps(1, 3, 2).tolist()
    [[[0, 0, 0]], [[1, 1, 1]]]
    """
    return np.repeat(every_map(n_x, 1, n_predictions), n_m, axis=2)


def every_map(n_x: int, n_m: int, n_predictions: int) -> np.ndarray:
    """Return the unrestricted class, (n_predictions^(n_x n_m), n_x, n_m).

    Raises
    ------
    ValueError
        If there are more than 200,000 maps.
    """
    if n_predictions ** (n_x * n_m) > MOST:
        raise ValueError(f"{n_predictions}^{n_x * n_m} maps are more than {MOST:,}; take smaller spaces")
    rows = list(itertools.product(range(n_predictions), repeat=n_x * n_m))
    return np.array(rows).reshape(-1, n_x, n_m)


def threshold_maps(n_m: int) -> np.ndarray:
    """Return the threshold class on a scalar message 0..n_m - 1: 1 from a cut on, or 1 below it.

    Returns
    -------
    (2 (n_m + 1), 1, n_m) predictions of a label 0 or 1; there is one local view. The cuts beyond both ends are the
    message-ignoring maps.
    """
    upward = (np.arange(n_m)[None, :] >= np.arange(n_m + 1)[:, None]).astype(int)  # (n_m + 1 cuts, n_m)
    return np.concatenate([upward, 1 - upward])[:, None, :]


def product_maps(first: np.ndarray, second: np.ndarray, n_second: int) -> np.ndarray:
    """Return C_a x C_b: every pair of a map for one part of the target and a map for the other.

    Parameters
    ----------
    first, second : (n_a, n_x, n_m) and (n_b, n_x, n_m) predictions of the parts
    n_second : number of predictions of the second part; a pair (a, b) is the prediction ``a * n_second + b``

    Returns
    -------
    (n_a n_b, n_x, n_m)
    """
    pairs = np.asarray(first)[:, None] * n_second + np.asarray(second)[None, :]
    return pairs.reshape(-1, *np.asarray(first).shape[1:])
