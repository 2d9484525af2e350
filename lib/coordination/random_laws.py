"""Random laws, receivers and protocols, on which a statement can be tried until it breaks or one stops doubting it.

Context
-------
A statement of the theory holds for every finite law. The notebook tries it on many that nobody chose.

Intuition
---------
Probabilities are drawn from Dirichlet distributions that put most weight on few values, so that targets can be
predicted and messages say something. A receiver class is a random handful of maps plus all that ignore the message.
What is deployed is the best of the class, mixed with another map of it: a receiver that falls short by chance, and with
a message by up to twice as much as without.

How to read the result
----------------------
One row a problem, all quantities of the statement in columns. Agreement on random laws is evidence, not proof: it finds
wrong signs and forgotten terms, not what needs a rare law. The tests add searched-for laws with zeros and ties.

Not covered: laws of practice; how often random messages help says nothing about real ones.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib.coordination.compression import Compression, compare_compression
from lib.coordination.decoders import class_risk, decoder_risks, product_maps, silent_maps
from lib.coordination.gain import OneStep, one_step
from lib.coordination.ideal_cases import additive_loss, part_laws
from lib.coordination.laws import Law, zero_one
from lib.seeds import generator

STATES, VIEWS, SYMBOLS, TARGETS = 4, 2, 3, 3  # sizes of S, X, M and Z
OWN_MAPS = 100  # decoders of a random class beside those that ignore the message
WEIGHT = 0.15  # of the Dirichlet distributions: below 1, most weight on few values
SHORTFALL = {"silence": 0.25, "message": 0.5}  # largest share of another map in what is deployed


def random_kernel(rng: np.random.Generator, *sizes: int) -> np.ndarray:
    """Return conditional probabilities of shape `sizes`; each row along the last axis sums to 1."""
    return rng.dirichlet(np.full(sizes[-1], WEIGHT), sizes[:-1])


def random_law(rng: np.random.Generator, n_targets: int = TARGETS) -> Law:
    """Return a random law of (s, x, z): what sender and receiver see is flat Dirichlet, the target depends on both."""
    seen = rng.dirichlet(np.ones(STATES * VIEWS)).reshape(STATES, VIEWS)
    return Law(("s", "x"), seen).with_variable("z", ("s", "x"), random_kernel(rng, STATES, VIEWS, n_targets))


def random_class(
    rng: np.random.Generator, n_symbols: int = SYMBOLS, n_predictions: int = TARGETS, own: int = OWN_MAPS
) -> np.ndarray:
    """Return `own` random maps and every message-ignoring one, (n_decoders, n_x, n_m)."""
    drawn = rng.integers(0, n_predictions, (own, VIEWS, n_symbols))
    return np.concatenate([drawn, silent_maps(VIEWS, n_symbols, n_predictions)])


def random_compression(rng: np.random.Generator) -> Compression:
    """Return a random short message against the raw context, for one receiver."""
    law, loss = random_law(rng), zero_one(TARGETS)
    short = law.with_variable("m", ("s", "x"), random_kernel(rng, STATES, VIEWS, SYMBOLS))
    whole = law.with_variable("m", ("s",), np.arange(STATES))
    silence = _falls_short(rng, silent_maps(VIEWS, SYMBOLS, TARGETS), short, "silence")[:, 0]
    steps: list[OneStep] = []
    for seen in (short, whole):
        decoders = random_class(rng, *seen.size("m"))
        steps.append(one_step(seen, decoders, _falls_short(rng, decoders, seen, "message"), silence, loss))
    return compare_compression(short, steps[0], steps[1], loss)


def compression_draws(draws: int, *names: object) -> pd.DataFrame:
    """Return random steps and comparisons, one row a draw.

    Parameters
    ----------
    draws : random problems
    names : name the draws, see `lib.seeds`

    Returns
    -------
    DataFrame: of the short message ``gain``, ``tax``, ``utility``; against raw context ``advantage``, ``tax_saved``,
    ``gap``, ``omitted``, ``mismatch``. 0-1 loss, so all are differences of error rates.
    """
    rng = generator("compression draws", *names)
    rows = []
    for _ in range(draws):
        one = random_compression(rng)
        step = {name: getattr(one.compressed, name) for name in ("gain", "tax", "utility")}
        against = {name: getattr(one, name) for name in ("advantage", "tax_saved", "gap", "omitted", "mismatch")}
        rows.append(step | against)
    return pd.DataFrame(rows)


def additive_draws(draws: int, *names: object) -> pd.DataFrame:
    """Return how far the best risk on a pair of bits is from the sum of its parts' best risks, one row a random law.

    Parameters
    ----------
    draws, names : as in `compression_draws`

    Returns
    -------
    DataFrame of differences whole - sum: ``product`` (additive loss, product class), ``joint`` (0-1 loss on the pair,
    same class) and ``tied`` (additive loss, a random tenth of the product class, which ties the parts together)
    """
    rng, bits = generator("additive draws", *names), zero_one(2)
    rows = []
    for _ in range(draws):
        law = random_law(rng, n_targets=4)
        law = law.with_variable("m", ("s", "x"), random_kernel(rng, STATES, VIEWS, SYMBOLS))
        first, second = (random_class(rng, n_predictions=2, own=10) for _ in range(2))
        whole = product_maps(first, second, 2)
        tied = whole[rng.permutation(len(whole))[: len(whole) // 10]]
        apart = sum(class_risk(part, own, bits) for part, own in zip(part_laws(law, 2), (first, second), strict=True))
        loss = additive_loss(bits, bits)
        risks = (class_risk(law, whole, loss), class_risk(law, whole, zero_one(4)), class_risk(law, tied, loss))
        rows.append([risk - apart for risk in risks])
    return pd.DataFrame(rows, columns=["product", "joint", "tied"])


def information_law(*names: object) -> Law:
    """Return a random law of (s, x, z, m), for the idealised cases."""
    rng = generator("information law", *names)
    return random_law(rng).with_variable("m", ("s", "x"), random_kernel(rng, STATES, VIEWS, SYMBOLS))


def _falls_short(rng: np.random.Generator, decoders: np.ndarray, law: Law, when: str) -> np.ndarray:
    """Return the class's best map mixed with another of the class, (n_x, n_m, n_predictions) probabilities."""
    best = decoders[decoder_risks(law, decoders, zero_one(TARGETS)).round(12).argmin()]  # the first of equal ones
    other = decoders[rng.integers(len(decoders))]
    share = rng.uniform(0, SHORTFALL[when])
    return (1 - share) * np.eye(TARGETS)[best] + share * np.eye(TARGETS)[other]
