"""The growth of equal weights from one session to the next: what some rewards are measured against.

Shapes: D sessions, A assets.
"""

import numpy as np

from podracer.envs.tables import PriceTables


def fill_growth(tables: PriceTables) -> np.ndarray:
    """Return the growth (D,) of one dollar in equal parts from the fill of t to the fill of t + 1.

    Over the assets that can be filled at both; 1 where none can, and on the last session.
    """
    return _growth(tables.fill_DA, tables.fillable_DA)


def close_growth(tables: PriceTables) -> np.ndarray:
    """Return the same from the close of t to the close of t + 1."""
    return _growth(tables.close_DA, tables.visible_DA)


def _growth(price_DA: np.ndarray, has_DA: np.ndarray) -> np.ndarray:
    ratio_DA = price_DA[1:] / np.where(price_DA[:-1] > 0, price_DA[:-1], np.inf)
    both_DA = has_DA[1:] & has_DA[:-1]
    counts_D = both_DA.sum(1)
    growth_D = np.where(both_DA, ratio_DA, 0.0).sum(1) / np.maximum(counts_D, 1)
    return np.append(np.where(counts_D > 0, growth_D, 1.0), 1.0)
