"""Tests of lib/evaluation/looks.py: every policy and packet type can be told apart, also by colour-blind readers."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from lib.evaluation.looks import POLICY_NAMES, in_order, long_name, look_of, short_name, type_look, types_in_order

TYPES = ("claim", "evidence", "uncertainty", "request", "sentence", "message")
# Complete loss of one kind of cone, on linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "tritanopia": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}
XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
WHITE = np.array([0.9505, 1.0, 1.0888])


def seen(colour: object, sight: str) -> np.ndarray:
    """Return a colour in CIELAB, where a distance of 2 is just visible, as seen with `sight`."""
    rgb = np.array(to_rgb(colour))  # type: ignore[arg-type]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(np.array(SIGHT[sight]) @ linear, 0, 1) / WHITE
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_black_and_white_are_a_hundred_apart() -> None:
    for sight in SIGHT:
        assert np.linalg.norm(seen("white", sight) - seen("black", sight)) == pytest.approx(100, abs=0.2)


@pytest.mark.parametrize("sight", SIGHT)
def test_policies_can_be_told_apart_by_colour(sight: str) -> None:
    for one, other in itertools.combinations(POLICY_NAMES, 2):
        apart = np.linalg.norm(seen(look_of(one)[0], sight) - seen(look_of(other)[0], sight))
        assert apart > 10, (one, other)
    # These stand in one figure and have lines that cross.
    for one, other in itertools.combinations(("full", "causal", "adaptive"), 2):
        assert np.linalg.norm(seen(look_of(one)[0], sight) - seen(look_of(other)[0], sight)) > 20, (one, other)


def test_policies_and_types_have_markers_of_their_own() -> None:
    for looks in ([look_of(policy) for policy in POLICY_NAMES], [type_look(kind) for kind in TYPES]):
        assert len({marker for _, marker in looks}) == len({colour for colour, _ in looks}) == len(looks)
    assert look_of("something new") == look_of("something else") not in [look_of(policy) for policy in POLICY_NAMES]
    assert type_look("something new") == type_look("something else") not in [type_look(kind) for kind in TYPES]


def test_names_are_whole_and_differ() -> None:
    assert [long_name(policy) for policy in POLICY_NAMES] == list(POLICY_NAMES.values())
    assert len({short_name(policy) for policy in POLICY_NAMES}) == len(POLICY_NAMES)
    assert short_name("adaptive") == "Causal, adaptive"


def test_known_names_come_first_in_their_order() -> None:
    assert in_order(pd.Series(["new", "adaptive", "causal", "new", "full"])) == ["full", "causal", "adaptive", "new"]
    assert types_in_order(pd.Series(["z", "request", "claim", "a"])) == ["claim", "request", "z", "a"]
