"""Share splits: which jumps look like one, and whether the prices before an announced one are adjusted.

Shapes: D bars, A assets.
"""

import numpy as np
import pandas as pd

RATIOS = np.array([1.5, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 50, 100])
TOLERANCE = 0.02
UNUSUAL = 8.0
TRAILING, RECENT = 60, 5
# A spin-off of a few percent cannot be told from a day's move: the source is believed.
SMALLEST_JUDGED = np.log(1.25)


def last_close(close_DA: np.ndarray) -> np.ndarray:
    """Return the last close before each bar."""
    last_DA: np.ndarray = pd.DataFrame(close_DA).ffill().shift().to_numpy()
    return last_DA


def overnight_ratios(open_DA: np.ndarray | None, close_DA: np.ndarray) -> np.ndarray:
    """Return each open over the last close before it; closes stand in where there are no opens.

    A split takes place between a close and the next open. Between two closes lies a day's own move,
    which hides two of the three splits in the classic4 set at the same tolerance.
    """
    ratio_DA: np.ndarray = (close_DA if open_DA is None else open_DA) / last_close(close_DA)
    return ratio_DA


def split_like(open_DA: np.ndarray | None, close_DA: np.ndarray) -> np.ndarray:
    """Return the split ratio (new shares for an old one) that a jump looks like, 0 where it does not.

    A jump looks like a split if it is within 2 % of a usual ratio or its inverse, above eight times
    the median move of the 60 bars before, and above twice the largest, overnight or daily, of the five
    bars before: on 29 January 2021 GameStop opened at 1.96 times its last close, in a week of such
    moves. A doubling is the ratio 0.5: a reverse split.
    """
    ratio_DA = overnight_ratios(open_DA, close_DA)
    safe_DA = np.where(np.isfinite(ratio_DA) & (ratio_DA > 0), ratio_DA, 1.0)
    log_DA = np.log(safe_DA)
    # Jumps in ascending order, so that the nearest is found by bisection.
    jumps = np.log(np.concatenate([1.0 / RATIOS[::-1], RATIOS]))
    nearest_DA = np.exp(-jumps)[np.searchsorted((jumps[1:] + jumps[:-1]) / 2, log_DA)]
    is_near_DA = np.abs(safe_DA * nearest_DA - 1.0) <= TOLERANCE
    moves = pd.DataFrame(np.abs(log_DA))
    typical_DA = moves.shift().rolling(TRAILING, min_periods=1).median().fillna(0.0).to_numpy()
    daily = np.abs(np.log(pd.DataFrame(close_DA).ffill().pct_change(fill_method=None) + 1.0))
    largest = pd.DataFrame(np.fmax(moves, daily)).shift().rolling(RECENT, min_periods=1).max()
    recent_DA = largest.fillna(0.0).to_numpy()
    is_unusual_DA = moves.to_numpy() > np.maximum(UNUSUAL * typical_DA, 2.0 * recent_DA)
    return np.where(is_near_DA & is_unusual_DA, nearest_DA, 0.0)


def missed(split_DA: np.ndarray, open_DA: np.ndarray | None, close_DA: np.ndarray) -> np.ndarray:
    """Return which announced splits the prices before them do not know yet.

    Sources differ, and Yahoo itself is late at times, so each split is judged by its prices: they
    are unadjusted if the jump is nearer to 1 / ratio than to none. Judging adjusted prices again
    finds nothing, so a split is never adjusted twice.
    """
    ratio_DA = overnight_ratios(open_DA, close_DA)
    is_split_DA = np.isfinite(split_DA) & (split_DA > 0) & (split_DA != 1.0)
    log_split_DA = np.log(np.where(is_split_DA, split_DA, 1.0))
    log_jump_DA = np.log(np.where(np.isfinite(ratio_DA) & (ratio_DA > 0), ratio_DA, 1.0))
    unadjusted_DA: np.ndarray = np.abs(log_jump_DA + log_split_DA) < np.abs(log_jump_DA)
    return is_split_DA & unadjusted_DA & (np.abs(log_split_DA) >= SMALLEST_JUDGED)


def carried(fields: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the actions, those of a bar without a price moved to the ticker's next bar with one.

    Dividends add up; a split of 0 is none, two splits multiply.
    """
    has_DA = np.isfinite(fields["close"])
    moved: dict[str, np.ndarray] = {}
    for name in ("dividend", "split"):
        if name not in fields:
            continue
        values_DA = np.nan_to_num(fields[name])
        for d, a in np.argwhere((values_DA != 0) & ~has_DA):
            later = np.flatnonzero(has_DA[d:, a])
            if len(later):
                there = d + later[0]
                known = values_DA[there, a]
                value = values_DA[d, a]
                if name == "dividend":
                    values_DA[there, a] = known + value
                else:
                    values_DA[there, a] = (known or 1.0) * value
            values_DA[d, a] = 0.0
        moved[name] = values_DA
    return moved
