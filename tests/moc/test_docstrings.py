"""The examples in the docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        *("lib.moc.arms", "lib.moc.dag", "lib.moc.flow", "lib.moc.graph_encoder", "lib.moc.prompts"),
        *("lib.moc.role_graph", "lib.moc.roles", "lib.moc.vote"),
    ],
)
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
