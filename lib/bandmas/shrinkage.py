"""Predict a packet's replay effect from its metadata, by means shrunk along a hierarchy of cells.

Context
-------
Replay effects exist for profile tasks only; a scheduler needs a value for packets it has never replayed. The BANDMAS
paper estimates it from pre-outcome metadata with empirical-Bayes-style shrinkage of strength alpha = 6 (eq. 7).

Intuition
---------
A cell that holds n labelled packets with mean effect m says (n m + alpha p) / (n + alpha), where p is what broader
cells say. With few packets the cell repeats its prior, with many it speaks for itself, and an unseen cell *is* its
prior. The order is global mean m0 -> type y, route r -> (type, route) from the mean of both, (type, marker) from the
type -> pi, the mean of these two -> the most specific cell (type, route, marker, size bin, turn). With
``levels="chain"`` size and turn come one by one instead: pi -> (type, size) -> (type, turn) -> the most specific
cell.

How to read the result
----------------------
`predict` gives the expected RCE of each packet, in [-1, 1]. `trace` gives, for the same packets, the support count,
the mean and the estimate at every level, so that any score can be followed back to the packets behind it. Many
packets share a cell: ties are frequent, and packet ids break them.

Not covered: interactions between packets, uncertainty of the estimate, tuning of alpha (it is fixed beforehand).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from lib.bandmas.features import FEATURES, TURN_CAP
from lib.messages.corpus import write_whole

FORMAT = 1
# Which features name a cell of each level; the size bin and the capped turn are derived from wire bytes and turn.
_CELLS: dict[str, tuple[str, ...]] = {
    "type": ("type",),
    "route": ("route",),
    "type_route": ("type", "route"),
    "type_marker": ("type", "marker"),
    "type_size": ("type", "size"),
    "type_turn": ("type", "turn"),
    "leaf": ("type", "route", "marker", "size", "turn"),
}
LEVELS: dict[str, tuple[str, ...]] = {
    "leaf": ("type", "route", "type_route", "type_marker", "leaf"),
    "chain": ("type", "route", "type_route", "type_marker", "type_size", "type_turn", "leaf"),
}


class PredictorError(ValueError):
    """A predictor that cannot be fitted, used or loaded; the text names the column or the file and field."""


class _State(msgspec.Struct, forbid_unknown_fields=True):
    """A fitted predictor as JSON; cells are sorted lists of [key, n, mean]."""

    format: int
    alpha: float
    levels: str
    size_bins: int
    rows: int
    mean: float
    edges: list[float]
    cells: dict[str, list[tuple[list[str | int], int, float]]]


def shrink(n: Any, mean: Any, prior: Any, alpha: float) -> Any:
    """Return (n mean + alpha prior) / (n + alpha), elementwise; the prior where n = 0 (paper, eq. 7).

    >>> round(float(shrink(12, 0.11, 0.05, 6.0)), 12)
    0.09
    """
    n, mean, prior = np.asarray(n, float), np.asarray(mean, float), np.asarray(prior, float)
    weight = np.divide(n, n + alpha, out=np.zeros(np.broadcast(n, prior).shape), where=n > 0)
    return (weight * np.where(n > 0, mean, 0.0) + (1 - weight) * prior)[()]


class ShrinkagePredictor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Hierarchical shrinkage of mean replay effects; a scikit-learn regressor.

    Parameters
    ----------
    alpha : shrinkage strength, in packets; 0 leaves every seen cell at its own mean
    levels : ``leaf`` (size and turn enter the most specific cell alone) or ``chain`` (as levels of their own)
    size_bins : number of quantile bins of wire bytes, learned in `fit`; right-closed

    Attributes
    ----------
    mean_ : global mean effect m0
    edges_ : (size_bins - 1,) inner bin edges, bytes
    cells_ : level -> cell key -> (n, mean)
    n_rows_ : packets fitted on
    """

    def __init__(self, alpha: float = 6.0, levels: str = "leaf", size_bins: int = 4) -> None:
        self.alpha = alpha
        self.levels = levels
        self.size_bins = size_bins

    def fit(self, X: pd.DataFrame, y: Sequence[float] | np.ndarray | pd.Series) -> ShrinkagePredictor:
        """Learn bin edges and cell means from labelled packets.

        Parameters
        ----------
        X : (n_packets,) rows with the columns ``type``, ``route``, ``marker``, ``wire_bytes``, ``turn``; others are
            ignored
        y : (n_packets,) replay effects; no missing values
        """
        self._check_params()
        frame, values = _checked(X), np.asarray(y, dtype=float)
        if values.shape != (len(frame),):
            raise PredictorError(f"y has shape {values.shape} for {len(frame)} packets")
        if not len(values):
            raise PredictorError("no packets to fit on: replay at least one profile task")
        if not np.isfinite(values).all():
            raise PredictorError(
                f"y: {int((~np.isfinite(values)).sum())} missing or infinite effects; drop these packets first"
            )
        self.n_features_in_ = len(FEATURES)
        self.feature_names_in_ = np.array(FEATURES, dtype=object)
        self.n_rows_ = len(values)
        steps = np.arange(1, self.size_bins) / self.size_bins
        self.edges_ = np.quantile(frame["wire_bytes"].to_numpy(float), steps)
        # Exactly rounded sums make the fit independent of the order of the rows, to the last bit.
        self.mean_ = math.fsum(values) / len(values)
        keys = self._keys(frame)
        self.cells_: dict[str, dict[tuple[Any, ...], tuple[int, float]]] = {}
        for level in LEVELS[self.levels]:
            groups: dict[tuple[Any, ...], list[float]] = {}
            for key, value in zip(keys[level], values, strict=True):
                groups.setdefault(key, []).append(float(value))
            self.cells_[level] = {key: (len(group), math.fsum(group) / len(group)) for key, group in groups.items()}
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        """Return the predicted replay effect of each packet, shape (n_packets,)."""
        return self.trace(X)["score"].to_numpy(float)

    def trace(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return support, mean and estimate of every level for each packet, rows as in `X`.

        Returns
        -------
        DataFrame with ``m0``; for each level L of ``type``, ``route``, ``type_route``, ``type_marker``,
        (``type_size``, ``type_turn`` with chain,) ``leaf``: ``n_L`` (packets), ``mean_L`` (NaN if unseen) and ``m_L``
        (estimate); ``pi``; and ``score``, which is ``m_leaf``.
        """
        check_is_fitted(self, "cells_")
        frame = _checked(X)
        keys = self._keys(frame)
        out: dict[str, np.ndarray] = {"m0": np.full(len(frame), self.mean_)}

        def estimate(level: str, prior: np.ndarray) -> np.ndarray:
            found = [self.cells_[level].get(key, (0, math.nan)) for key in keys[level]]
            out[f"n_{level}"] = np.array([n for n, _ in found], dtype=np.int64)
            out[f"mean_{level}"] = np.array([mean for _, mean in found], dtype=float)
            out[f"m_{level}"] = np.asarray(
                shrink(out[f"n_{level}"], out[f"mean_{level}"], prior, self.alpha), dtype=float
            )
            return out[f"m_{level}"]

        by_type, by_route = estimate("type", out["m0"]), estimate("route", out["m0"])
        by_type_route = estimate("type_route", (by_type + by_route) / 2)
        by_type_marker = estimate("type_marker", by_type)
        out["pi"] = prior = (by_type_route + by_type_marker) / 2
        if self.levels == "chain":
            prior = estimate("type_turn", estimate("type_size", prior))
        out["score"] = estimate("leaf", prior)
        return pd.DataFrame(out, index=X.index)

    def save(self, path: Path | str) -> Path:
        """Write the fitted state as JSON, whole or not at all, and return the path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, self._json())
        return path

    @classmethod
    def load(cls, path: Path | str) -> ShrinkagePredictor:
        """Read a predictor written by `save`; it predicts and fingerprints as the saved one."""
        path = Path(path)
        try:
            state = msgspec.json.decode(path.read_bytes(), type=_State)
        except FileNotFoundError:
            raise PredictorError(f"{path}: no such file; fit and save the predictor first") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PredictorError(f"{path}: not a saved predictor ({error}); fit and save it again") from None
        if state.format != FORMAT:
            raise PredictorError(
                f"{path}: predictor format {state.format}, this library reads {FORMAT}; fit and save it again"
            )
        predictor = cls(alpha=state.alpha, levels=state.levels, size_bins=state.size_bins)
        predictor._check_params()
        if set(state.cells) != set(LEVELS[state.levels]) or len(state.edges) != state.size_bins - 1:
            raise PredictorError(
                f"{path}: field 'cells' or 'edges' does not fit levels {state.levels!r}; fit and save it again"
            )
        predictor.n_features_in_ = len(FEATURES)
        predictor.feature_names_in_ = np.array(FEATURES, dtype=object)
        predictor.n_rows_, predictor.mean_, predictor.edges_ = state.rows, state.mean, np.array(state.edges)
        predictor.cells_ = {
            level: {tuple(key): (n, mean) for key, n, mean in cells} for level, cells in state.cells.items()
        }
        return predictor

    def fingerprint(self) -> str:
        """Return the SHA-256 of the fitted state, hexadecimal: recorded before final traffic is packetized."""
        return hashlib.sha256(self._json()).hexdigest()

    def _json(self) -> bytes:
        check_is_fitted(self, "cells_")
        state = {
            "format": FORMAT,
            "alpha": float(self.alpha),
            "levels": self.levels,
            "size_bins": int(self.size_bins),
            "rows": self.n_rows_,
            "mean": self.mean_,
            "edges": [float(edge) for edge in self.edges_],
            "cells": {
                level: [[list(key), n, mean] for key, (n, mean) in sorted(cells.items())]
                for level, cells in sorted(self.cells_.items())
            },
        }
        return (json.dumps(state, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode("utf-8")

    def _check_params(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise PredictorError(f"alpha must be a finite number >= 0, not {self.alpha!r}")
        if self.levels not in LEVELS:
            raise PredictorError(f"levels must be one of {', '.join(LEVELS)}, not {self.levels!r}")
        if self.size_bins < 1:
            raise PredictorError(f"size_bins must be at least 1, not {self.size_bins!r}")

    def _keys(self, frame: pd.DataFrame) -> dict[str, list[tuple[Any, ...]]]:
        """Return the cell key of every row at every level in use."""
        columns: dict[str, list[Any]] = {name: frame[name].tolist() for name in ("type", "route", "marker")}
        # side="left" puts a packet as large as an edge below it: bins are right-closed.
        columns["size"] = np.searchsorted(self.edges_, frame["wire_bytes"].to_numpy(float), side="left").tolist()
        columns["turn"] = np.minimum(frame["turn"].to_numpy(), TURN_CAP).astype(int).tolist()
        return {
            level: list(zip(*(columns[name] for name in _CELLS[level]), strict=True)) for level in LEVELS[self.levels]
        }


def _checked(X: pd.DataFrame) -> pd.DataFrame:
    if not isinstance(X, pd.DataFrame):
        raise PredictorError(f"X must be a DataFrame of packet features, not {type(X).__name__}")
    missing = [name for name in FEATURES if name not in X.columns]
    if missing:
        raise PredictorError(f"X lacks the columns {missing}; make it with packet_features()")
    frame = X[list(FEATURES)]
    for name in FEATURES:
        if frame[name].isna().any():
            raise PredictorError(
                f"X: column '{name}' has missing values; every packet has all its features before any outcome"
            )
    return frame
