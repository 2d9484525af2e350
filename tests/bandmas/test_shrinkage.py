"""Shrinkage predictor: the specification's worked values, its limits, and the estimator contract."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GroupKFold, cross_val_predict

from lib.bandmas.shrinkage import LEVELS, PredictorError, ShrinkagePredictor, shrink

CELL = {"type": "claim", "route": "r0", "marker": "plain", "wire_bytes": 200, "turn": 0}


def table(rows: list[dict[str, object]]) -> tuple[pd.DataFrame, np.ndarray]:
    """Return features and effects of rows that differ from `CELL` and carry a value."""
    frame = pd.DataFrame([{**CELL, **row} for row in rows])
    return frame.drop(columns="rce"), frame["rce"].to_numpy(float)


def worked() -> tuple[pd.DataFrame, np.ndarray]:
    """Twenty packets whose cells have the supports and means of the worked example (spec 5.4).

    leaf: 2 of mean .30; (y, r): 3 of .20; (y, m): 4 of .16; y: 12 of .11; r: 6 of .02; all: 20 of .05.
    """
    groups = [
        (2, {}, 0.60),
        (1, {"marker": "null"}, 0.0),
        (2, {"route": "r1"}, 0.04),
        (7, {"route": "r1", "marker": "null"}, 0.68),
        (3, {"type": "request"}, -0.48),
        (5, {"type": "request", "route": "r1"}, 0.16),
    ]
    return table([{**change, "rce": total / count} for count, change, total in groups for _ in range(count)])


def random_table(seed: int, rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "type": rng.choice(["claim", "evidence", "request"], rows),
            "route": rng.choice(["r0", "r1", "r2"], rows),
            "marker": rng.choice(["null", "plain"], rows),
            "wire_bytes": rng.integers(150, 400, rows),
            "turn": rng.integers(0, 6, rows),
        }
    )
    return frame, rng.uniform(-1, 1, rows)


def test_worked_values_of_the_specification() -> None:
    X, y = worked()
    row = ShrinkagePredictor().fit(X, y).trace(X).iloc[0]
    expected = {
        "m0": 0.05,
        "m_type": 0.09,
        "m_route": 0.035,
        "m_type_route": 0.108333,
        "m_type_marker": 0.118,
        "pi": 0.1131667,
        "score": 0.159875,
    }
    assert {name: pytest.approx(row[name], abs=5e-7) for name in expected} == expected
    assert [row[f"n_{level}"] for level in LEVELS["leaf"]] == [12, 6, 3, 4, 2]
    assert [row[f"mean_{level}"] for level in LEVELS["leaf"]] == pytest.approx([0.11, 0.02, 0.20, 0.16, 0.30])


@pytest.mark.parametrize(
    ("n", "mean", "prior", "expected"),
    [
        (12, 0.11, 0.05, 0.09),
        (6, 0.02, 0.05, 0.035),
        (3, 0.20, 0.0625, 0.1083333),
        (4, 0.16, 0.09, 0.118),
        (0, np.nan, 0.7, 0.7),
    ],
)
def test_shrink_by_hand(n: int, mean: float, prior: float, expected: float) -> None:
    assert shrink(n, mean, prior, 6.0) == pytest.approx(expected, abs=5e-8)


@given(st.integers(0, 10_000), st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 100))
def test_shrunk_mean_lies_between_prior_and_mean(n: int, mean: float, prior: float, alpha: float) -> None:
    value = shrink(n, mean, prior, alpha)
    assert min(mean, prior) - 1e-12 <= value <= max(mean, prior) + 1e-12


def test_many_packets_reach_their_mean_and_alpha_zero_is_the_mean() -> None:
    assert shrink(10**9, 0.3, -0.9, 6.0) == pytest.approx(0.3, abs=1e-7)
    assert shrink(1, 0.3, -0.9, 0.0) == 0.3
    assert shrink(0, np.nan, -0.9, 0.0) == -0.9
    X, y = random_table(1, 60)
    leaf = ShrinkagePredictor(alpha=0.0).fit(X, y).trace(X)
    assert np.allclose(leaf["score"], leaf["mean_leaf"])


def test_unseen_cells_return_their_priors() -> None:
    X, y = worked()
    fitted = ShrinkagePredictor().fit(X, y)
    new = pd.DataFrame(
        [
            {**CELL, "type": "sentence", "route": "r9"},  # unseen type and route: m0
            {**CELL, "type": "sentence"},  # unseen type: half way between m0 and the route
            {**CELL, "wire_bytes": 999},  # unseen leaf: pi
        ]
    )
    trace = fitted.trace(new)
    assert trace["score"].iloc[0] == trace["m0"].iloc[0] == pytest.approx(0.05)
    assert trace["score"].iloc[1] == pytest.approx(((0.05 + 0.035) / 2 + 0.05) / 2)
    assert trace["score"].iloc[2] == trace["pi"].iloc[2] == pytest.approx(0.1131667, abs=5e-8)
    assert trace[["n_type", "n_leaf"]].to_numpy().tolist() == [[0, 0], [0, 0], [12, 0]]
    assert np.isnan(trace["mean_leaf"]).all()


def test_chain_puts_size_and_turn_between_pi_and_leaf() -> None:
    X, y = worked()
    leaf = ShrinkagePredictor().fit(X, y).trace(X).iloc[0]
    chain = ShrinkagePredictor(levels="chain").fit(X, y).trace(X).iloc[0]
    assert chain["pi"] == leaf["pi"]
    # All packets share size and turn here, so both cells hold the 12 claims of mean .11.
    size = (12 * 0.11 + 6 * leaf["pi"]) / 18
    turn = (12 * 0.11 + 6 * size) / 18
    assert chain["m_type_size"] == pytest.approx(size)
    assert chain["m_type_turn"] == pytest.approx(turn)
    assert chain["score"] == pytest.approx((2 * 0.30 + 6 * turn) / 8)


def test_size_bins_are_quartiles_closed_on_the_right() -> None:
    X, y = table([{"wire_bytes": size, "rce": 0.0} for size in (100, 200, 300, 400, 500)])
    fitted = ShrinkagePredictor(alpha=0.0).fit(X, y)
    assert fitted.edges_.tolist() == [200, 300, 400]
    sizes = [
        key[3]
        for key in fitted._keys(pd.DataFrame([{**CELL, "wire_bytes": b} for b in (1, 200, 201, 300, 400, 401, 9999)]))[
            "leaf"
        ]
    ]
    assert sizes == [0, 0, 1, 1, 2, 3, 3]


def test_edges_stay_frozen_when_predicting() -> None:
    X, y = random_table(2, 80)
    fitted = ShrinkagePredictor().fit(X, y)
    alone = [fitted.predict(X.iloc[[i]])[0] for i in range(len(X))]
    assert alone == fitted.predict(X).tolist()


def test_late_turns_share_a_cell() -> None:
    X, y = table([{"turn": 3, "rce": 1.0}, {"turn": 9, "rce": 0.0}, {"turn": 2, "rce": -1.0}])
    trace = ShrinkagePredictor().fit(X, y).trace(X)
    assert trace["n_leaf"].tolist() == [2, 2, 1]


@given(st.integers(0, 50), st.permutations(range(30)), st.sampled_from(["leaf", "chain"]))
def test_fit_does_not_depend_on_row_order(seed: int, order: list[int], levels: str) -> None:
    X, y = random_table(seed, 30)
    first = ShrinkagePredictor(levels=levels).fit(X, y)
    second = ShrinkagePredictor(levels=levels).fit(X.iloc[order], y[order])
    assert first.fingerprint() == second.fingerprint()


@given(st.integers(0, 1000), st.floats(0, 50), st.sampled_from(["leaf", "chain"]))
def test_predictions_stay_within_the_effects(seed: int, alpha: float, levels: str) -> None:
    X, y = random_table(seed, 25)
    new, _ = random_table(seed + 1, 25)
    scores = ShrinkagePredictor(alpha=alpha, levels=levels).fit(X, y).predict(new)
    assert scores.min() >= y.min() - 1e-9
    assert scores.max() <= y.max() + 1e-9


def test_it_is_a_scikit_learn_estimator() -> None:
    X, y = random_table(3, 90)
    estimator = ShrinkagePredictor(alpha=2.0, levels="chain")
    assert estimator.get_params() == {"alpha": 2.0, "levels": "chain", "size_bins": 4}
    copy = clone(estimator).set_params(alpha=3.0)
    assert (copy.alpha, estimator.alpha) == (3.0, 2.0)
    with pytest.raises(NotFittedError):
        copy.predict(X)
    with pytest.raises(NotFittedError):
        copy.fingerprint()
    assert copy.fit(X, y) is copy
    assert copy.feature_names_in_.tolist() == ["type", "route", "marker", "wire_bytes", "turn"]
    folds = cross_val_predict(estimator, X, y, groups=np.arange(90) % 9, cv=GroupKFold(5))
    assert folds.shape == (90,)
    assert np.isfinite(copy.score(X, y))


@pytest.mark.parametrize("levels", ["leaf", "chain"])
def test_save_and_load_keep_predictions_and_fingerprint(tmp_path: Path, levels: str) -> None:
    X, y = random_table(4, 50)
    fitted = ShrinkagePredictor(alpha=5.5, levels=levels).fit(X, y)
    path = fitted.save(tmp_path / "deep" / "predictor.json")
    loaded = ShrinkagePredictor.load(path)
    assert loaded.predict(X).tolist() == fitted.predict(X).tolist()
    assert loaded.fingerprint() == fitted.fingerprint()
    assert loaded.get_params() == fitted.get_params()
    before = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == before


def test_fingerprint_changes_with_data_and_parameters() -> None:
    X, y = random_table(5, 50)
    prints = {
        ShrinkagePredictor().fit(X, y).fingerprint(),
        ShrinkagePredictor(alpha=5.0).fit(X, y).fingerprint(),
        ShrinkagePredictor(levels="chain").fit(X, y).fingerprint(),
        ShrinkagePredictor().fit(X, np.append(y[:-1], y[-1] + 1e-12)).fingerprint(),
    }
    assert len(prints) == 4


def test_damaged_files_are_named(tmp_path: Path) -> None:
    X, y = random_table(6, 20)
    path = ShrinkagePredictor().fit(X, y).save(tmp_path / "p.json")
    text = path.read_text(encoding="utf-8")
    with pytest.raises(PredictorError, match=r"none\.json: no such file"):
        ShrinkagePredictor.load(tmp_path / "none.json")
    path.write_text(text[:-30], encoding="utf-8")
    with pytest.raises(PredictorError, match=r"p\.json: not a saved predictor"):
        ShrinkagePredictor.load(path)
    state = json.loads(text)
    for change, message in (
        ({"format": 2}, "predictor format 2"),
        ({"levels": "tree"}, "levels must be one of leaf, chain"),
        ({"levels": "chain"}, "field 'cells' or 'edges'"),
        ({"mean": "x"}, r"`\$\.mean`"),
    ):
        path.write_text(json.dumps({**state, **change}), encoding="utf-8")
        with pytest.raises(PredictorError, match=message):
            ShrinkagePredictor.load(path)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": np.inf}, "alpha"),
        ({"levels": "x"}, "levels"),
        ({"size_bins": 0}, "size_bins"),
    ],
)
def test_bad_parameters_are_named(params: dict[str, object], message: str) -> None:
    with pytest.raises(PredictorError, match=message):
        ShrinkagePredictor(**params).fit(*worked())


def test_bad_input_is_named() -> None:
    X, y = worked()
    with pytest.raises(PredictorError, match=r"lacks the columns \['marker'\]"):
        ShrinkagePredictor().fit(X.drop(columns="marker"), y)
    with pytest.raises(PredictorError, match="1 missing or infinite effects"):
        ShrinkagePredictor().fit(X, np.append(y[:-1], np.nan))
    with pytest.raises(PredictorError, match="y has shape"):
        ShrinkagePredictor().fit(X, y[:-1])
    with pytest.raises(PredictorError, match="no packets"):
        ShrinkagePredictor().fit(X.iloc[:0], y[:0])
    with pytest.raises(PredictorError, match="column 'type' has missing"):
        ShrinkagePredictor().fit(X, y).predict(X.assign(type=None))
    with pytest.raises(PredictorError, match="must be a DataFrame"):
        ShrinkagePredictor().fit(X.to_numpy(), y)
