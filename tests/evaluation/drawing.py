"""Draw a figure as a run would, twice: without a warning, with equal bytes, and without markup from its labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from lib.evaluation.figures import save_figure

SMALLEST = 5000  # bytes; a page without a drawing is smaller


def draws_equally_twice(draw: Callable[[], Figure], folder: Path, name: str) -> None:
    """Save the figure to two folders, with warnings as errors, and compare the files."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (save_figure(draw(), folder / part, name) for part in "ab")
    for ending in ("png", "svg"):
        assert one[ending].read_bytes() == two[ending].read_bytes()
        assert one[ending].stat().st_size > SMALLEST
    assert "<b>" not in one["svg"].read_text(encoding="utf-8")
