"""Carry, error and repair estimated from runs that the law itself made, and what runs cannot settle."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.coordination.propagation import propagate
from lib.coordination.propagation_fit import fit_propagation, gap_table
from lib.seeds import generator

WORKED = {"base": (0.2, (1, 1, 1)), "late": (0.5, (1, 1, 1)), "free": (0.5, (0, 0, 0))}


def runs_of(
    given_runs: dict[str, tuple[float, tuple[int, ...]]], carry: float = 0.8, error: float = 0.05, repair: float = 0.1
) -> pd.DataFrame:
    rows = []
    for run, (start, mended) in given_runs.items():
        count = len(mended)
        path = propagate(start, [carry] * count, [error] * count, [repair * one for one in mended])
        rows += [
            (run, step, residual, step > 0 and bool(mended[step - 1])) for step, residual in enumerate(path.residual)
        ]
    return pd.DataFrame(rows, columns=["run", "step", "residual", "repaired"])


def test_the_worked_law_is_found_through_its_clipped_steps() -> None:
    found = fit_propagation(runs_of(WORKED))
    assert (found.carry, found.error, found.repair) == pytest.approx((0.8, 0.05, 0.1), abs=1e-6)
    assert found.rmse < 1e-9 and found.steps == 9 and found.clipped_share == pytest.approx(1 / 9)


def test_the_worked_gap() -> None:
    runs = runs_of(WORKED)
    table = gap_table(runs, fit_propagation(runs), base="base", perturbed="late")
    assert table["predicted"].tolist() == pytest.approx([0.3, 0.24, 0.192, 0.134], abs=1e-6)
    assert table["measured"].tolist() == pytest.approx(table["predicted"].tolist(), abs=1e-6)
    assert table["regime"].tolist() == ["start", "carry", "carry", "clipped"]


@settings(max_examples=4, deadline=None)
@given(st.floats(0.3, 0.95), st.floats(0.02, 0.1), st.floats(0.03, 0.2))
def test_any_law_that_leaves_traces_is_found(carry: float, error: float, repair: float) -> None:
    given_runs = {"a": (0.9, (0, 1, 0, 0)), "b": (0.6, (0, 0, 0, 0)), "c": (0.8, (1, 0, 0, 0))}
    found = fit_propagation(runs_of(given_runs, carry, error, repair))
    assert (found.carry, found.error, found.repair) == pytest.approx((carry, error, repair), abs=1e-5)


def test_noise_moves_it_little_and_is_the_rmse() -> None:
    runs = runs_of({name: (start, mended * 3) for name, (start, mended) in WORKED.items()})
    noise = generator("propagation noise").normal(0, 0.01, len(runs)) * (runs["step"] > 0)
    found = fit_propagation(runs.assign(residual=(runs["residual"] + noise).clip(0, 1)))
    assert found.carry == pytest.approx(0.8, abs=0.05) and 0.003 < found.rmse < 0.02


def test_what_the_runs_do_not_settle_is_null() -> None:
    unrepaired = fit_propagation(runs_of({"free": (0.5, (0, 0, 0))}))
    assert unrepaired.repair is None and unrepaired.carry == pytest.approx(0.8, abs=1e-6)
    still = pd.DataFrame(
        [("a", step, 0.0, False) for step in range(4)], columns=["run", "step", "residual", "repaired"]
    )
    nothing = fit_propagation(still)
    assert (nothing.carry, nothing.error, nothing.repair) == (None, None, None)
    with pytest.raises(ValueError, match="did not settle carry and error"):
        gap_table(still, nothing, base="a", perturbed="a")


def test_the_order_of_rows_and_names_does_not_matter() -> None:
    runs = runs_of(WORKED)
    found = fit_propagation(runs.sample(frac=1, random_state=3))
    assert found.carry == pytest.approx(fit_propagation(runs).carry) and np.isfinite(found.rmse)


def test_runs_with_holes_are_refused() -> None:
    runs = runs_of(WORKED)
    with pytest.raises(ValueError, match="every run needs the same steps"):
        fit_propagation(runs.iloc[:-1])
    with pytest.raises(ValueError, match="no run 'other'; there are base, free, late"):
        gap_table(runs, fit_propagation(runs), base="base", perturbed="other")
    with pytest.raises(ValueError, match="runs lacks the columns"):
        fit_propagation(runs.drop(columns="repaired"))
