"""Financial turbulence: how unusual a day's returns are, given the year before.

Source: Kritzman and Li 2010, "Skulls, Financial Turbulence, and Risk Management".
Shapes: D sessions, A assets, T trailing window.
"""

from itertools import pairwise

import numpy as np

CHUNK_DAYS = 512


def turbulence(returns_DA: np.ndarray, window: int = 252) -> np.ndarray:
    """Return the squared Mahalanobis distance (D,) of each day's returns to the trailing window.

    The window ends the day before. Only names with every return of the window and of the day take
    part; the covariance (ddof 1) is inverted by pseudo-inverse. NaN while fewer than two names do.
    """
    num_days = len(returns_DA)
    distance_D = np.full(num_days, np.nan)
    if num_days <= window:
        return distance_D
    complete_DA = np.zeros(returns_DA.shape, dtype=bool)
    counts_DA = np.cumsum(np.isfinite(returns_DA), axis=0)
    complete_DA[window] = counts_DA[window] == window + 1
    complete_DA[window + 1 :] = counts_DA[window + 1 :] - counts_DA[: -window - 1] == window + 1
    changes = np.flatnonzero(np.any(complete_DA[1:] != complete_DA[:-1], axis=1)) + 1
    edges = np.unique(np.concatenate([[window], changes[changes > window], [num_days]]))
    for first, last in pairwise(edges):
        names = np.flatnonzero(complete_DA[first])
        if len(names) < 2:
            continue
        for start in range(first, last, CHUNK_DAYS):
            stop = min(start + CHUNK_DAYS, last)
            distance_D[start:stop] = _distances(returns_DA[start - window : stop, names], window)
    return distance_D


def _distances(returns_DA: np.ndarray, window: int) -> np.ndarray:
    history_DAT = np.lib.stride_tricks.sliding_window_view(returns_DA[:-1], window, axis=0)
    mean_DA = history_DAT.mean(2)
    centred_DAT = history_DAT - mean_DA[:, :, None]
    covariance_DAA = centred_DAT @ centred_DAT.transpose(0, 2, 1) / (window - 1)
    surprise_DA = returns_DA[window:] - mean_DA
    inverse_DAA = np.linalg.pinv(covariance_DAA, hermitian=True)
    return np.einsum("da,dab,db->d", surprise_DA, inverse_DAA, surprise_DA)
