"""The examples in the docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        *("lib.evaluation.frames", "lib.evaluation.inference", "lib.evaluation.looks", "lib.evaluation.summary"),
        *("lib.evaluation.run_summary", "lib.evaluation.tables"),
    ],
)
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
