"""The examples in the docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        *("lib.bandmas.adaptive", "lib.bandmas.admission", "lib.bandmas.edge_masks", "lib.bandmas.features"),
        *("lib.bandmas.fusion", "lib.bandmas.interactions", "lib.bandmas.published", "lib.bandmas.queueing"),
        *("lib.bandmas.scores", "lib.bandmas.service", "lib.bandmas.shapley", "lib.bandmas.shrinkage"),
        "lib.bandmas.zero_extension",
    ],
)
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
