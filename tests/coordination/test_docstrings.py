"""The examples in the docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ["alternation", "crossing", "decoders", "laws", "propagation", "protocol"]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"lib.coordination.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
