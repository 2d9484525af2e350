"""The examples in the docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        *("lib.bandmas.admission", "lib.bandmas.features", "lib.bandmas.scores", "lib.bandmas.shrinkage"),
        *("lib.bandmas.edge_masks", "lib.bandmas.fusion", "lib.bandmas.zero_extension"),
    ],
)
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
