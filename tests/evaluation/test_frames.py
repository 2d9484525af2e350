"""Tests of lib/evaluation/frames.py: missing columns are named, and bins hold about as many rows each."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.evaluation.frames import filled_bins, need_columns


def test_missing_columns_are_named_beside_those_that_are_there() -> None:
    need_columns(pd.DataFrame({"a": [], "b": []}), ["b"])
    with pytest.raises(ValueError, match=r"lacks the columns \['c', 'd'\]; it has \['a', 'b'\]"):
        need_columns(pd.DataFrame({"a": [], "b": []}), ["c", "b", "d"])


@given(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5, 0.8]) | st.floats(-1, 1), max_size=60), st.integers(1, 6))
def test_every_value_has_one_bin_and_equal_values_share_it(values: list[float], bins: int) -> None:
    column = pd.Series(values, dtype=float)
    found = filled_bins(column, bins)
    assert len(found) == len(column) and found.notna().all() and found.nunique() <= bins
    assert (found.groupby(column).nunique() == 1).all()


def test_bins_are_equally_filled_and_few_values_are_bins() -> None:
    assert filled_bins(pd.Series(range(60)), 6).value_counts().tolist() == [10] * 6
    assert filled_bins(pd.Series([0.1] * 9 + [0.2]), 2).tolist() == [0.1] * 9 + [0.2]
