"""What became of each step: disjoint kinds, both conversions, null where nothing is counted."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.outcomes import KINDS, Outcomes, count_outcomes, outcome_kinds


def frame(rows: list[tuple[bool, bool, bool]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["valid", "hit_artifact", "hit_action"])


ROWS = {
    "invalid": (False, False, False),
    "artifact_wrong": (True, False, True),
    "action_wrong": (True, True, False),
    "hit": (True, True, True),
}


def test_published_conversion_and_its_other_reading() -> None:
    """545 of 1,000 valid right artifacts convert: a wrong-action rate of 0.455; unreadable replies lower the conversion."""
    outcomes = Outcomes(invalid=1000, artifact_wrong=300, action_wrong=455, hit=545)
    assert outcomes.conversion == pytest.approx(0.545)
    assert outcomes.wrong_action_rate == pytest.approx(0.455)
    assert outcomes.conversion_with_invalid == pytest.approx(0.2725)
    assert outcomes.steps == 2300


@given(st.lists(st.sampled_from(KINDS), max_size=30))
def test_every_step_has_one_kind(kinds: list[str]) -> None:
    steps = frame([ROWS[kind] for kind in kinds])
    assert outcome_kinds(steps).tolist() == kinds
    outcomes = count_outcomes(steps)
    assert outcomes == Outcomes(*(kinds.count(kind) for kind in KINDS)) and outcomes.steps == len(kinds)
    if outcomes.conversion is not None:
        assert outcomes.conversion + outcomes.wrong_action_rate == pytest.approx(1)
        assert outcomes.conversion_with_invalid <= outcomes.conversion


def test_a_wrong_artifact_is_content_whatever_the_action() -> None:
    steps = frame([(True, False, False), (True, False, True)])
    assert outcome_kinds(steps).tolist() == ["artifact_wrong", "artifact_wrong"]
    outcomes = count_outcomes(steps)
    assert (
        outcomes.conversion is None and outcomes.wrong_action_rate is None and outcomes.conversion_with_invalid is None
    )


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"lack the columns \['hit_action'\]"):
        outcome_kinds(frame([]).drop(columns="hit_action"))
    with pytest.raises(ValueError, match="score it as all misses"):
        outcome_kinds(frame([(False, True, False)]))
