"""Scaling of the market features, fitted on the training window only.

Shapes: D sessions, F market features.
"""

from dataclasses import dataclass

import numpy as np

from podracer.market.windows import Window

LARGEST_SCORE = 10.0


@dataclass(frozen=True)
class Scaler:
    """Mean and deviation of each market feature over the training window."""

    mean_F: np.ndarray
    std_F: np.ndarray

    def apply(self, values_DF: np.ndarray) -> np.ndarray:
        """Return z-scores clipped to ±10; a missing value or a constant column gives 0."""
        scores_DF = (values_DF - self.mean_F) / np.where(self.std_F > 1e-12, self.std_F, np.inf)
        clipped_DF = np.clip(np.nan_to_num(scores_DF), -LARGEST_SCORE, LARGEST_SCORE)
        return np.ascontiguousarray(clipped_DF, dtype=np.float32)


def fit_scaler(values_DF: np.ndarray, train: Window) -> Scaler:
    """Fit on the sessions of the training window; a column without any value gets mean 0, std 0."""
    rows_DF = np.asarray(values_DF[train.start : train.stop], dtype=np.float64)
    has_DF = np.isfinite(rows_DF)
    counts_F = np.maximum(has_DF.sum(0), 1)
    mean_F = np.where(has_DF, rows_DF, 0.0).sum(0) / counts_F
    variance_F = np.where(has_DF, np.square(rows_DF - mean_F), 0.0).sum(0) / counts_F
    return Scaler(mean_F.astype(np.float32), np.sqrt(variance_F).astype(np.float32))
