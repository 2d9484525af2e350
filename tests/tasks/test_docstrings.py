"""The examples in the docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["choices", "numbers", "subsets"])
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"lib.tasks.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
