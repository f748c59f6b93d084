"""The growth of equal weights from one session to the next: what some rewards are measured against.

Shapes: D sessions, A assets.
"""

import numpy as np

from podracer.envs.tables import PriceTables


def fill_growth(tables: PriceTables) -> np.ndarray:
    """Return the growth (D,) of one dollar in equal parts from the fill of t to the fill of t + 1.

    Over the assets that can be held at t: a pause is held through, so that its jump counts when trading
    goes on; an asset that ends is held to the price at which it is closed. 1 where there is none, and on
    the last session.
    """
    return _growth(tables.fill_DA, tables.fill_DA, tables)


def close_growth(tables: PriceTables) -> np.ndarray:
    """Return the same from the close of t to the close of t + 1."""
    # Between these closes an asset that ends becomes what it is closed at.
    after_DA = np.vstack([tables.close_DA[:1], np.where(tables.exit_DA, tables.fill_DA, 0.0)[:-1]])
    return _growth(tables.close_DA, np.where(after_DA > 0, after_DA, tables.close_DA), tables)


def _growth(from_DA: np.ndarray, to_DA: np.ndarray, tables: PriceTables) -> np.ndarray:
    ends_DA = np.cumsum(tables.exit_DA, axis=0) > 0
    can_hold_DA = (from_DA > 0) & ~ends_DA
    if to_DA is not from_DA:  # at the close of an exit's decision it is still held
        can_hold_DA |= (from_DA > 0) & tables.exit_DA
    ratio_DA = to_DA[1:] / np.where(from_DA[:-1] > 0, from_DA[:-1], np.inf)
    counts_D = can_hold_DA[:-1].sum(1)
    growth_D = np.where(can_hold_DA[:-1], ratio_DA, 0.0).sum(1) / np.maximum(counts_D, 1)
    return np.append(np.where(counts_D > 0, growth_D, 1.0), 1.0)
