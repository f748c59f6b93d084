"""What a price cell must not be: the vectorised rules of the gate.

Each rule marks cells of a whole panel at once and says what a quarantine of its cells takes away.
Shapes: D bars, A assets.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd

from podracer.market import splits
from podracer.market.raw import PRICES, knows_actions

Level = Literal["stop", "quarantine", "warn", "off"]
Scope = Literal["price", "trade", "ticker"]

BAR_SLACK = 1e-6
STALE_BARS = 5
SPARSE_SHARE, SPARSE_BARS = 0.2, 60
LARGEST_DIVIDEND = 0.5
LARGE_MOVE = 0.5
LARGE_MADS = 12.0
UNIT_ERROR = 5.0
FACTOR_SLACK = 0.005


@dataclass(frozen=True)
class Grid:
    """A universe's values by bar and ticker.

    Attributes:
        fields: float64 (D, A) for each value column; NaN where there is no row or no number.
        row_DA: a row exists, be it good or bad.
        masked_DA: prices that an earlier rule took away.
    """

    dates_D: np.ndarray
    tickers: tuple[str, ...]
    fields: dict[str, np.ndarray]
    row_DA: np.ndarray
    masked_DA: np.ndarray

    @property
    def close_DA(self) -> np.ndarray:
        """Closes."""
        return self.fields["close"]

    @property
    def inside_DA(self) -> np.ndarray:
        """Cells from a ticker's first to its last price."""
        has_DA = np.isfinite(self.close_DA)
        begun_DA = np.logical_or.accumulate(has_DA, axis=0)
        left_DA = np.logical_or.accumulate(has_DA[::-1], axis=0)[::-1]
        inside_DA: np.ndarray = begun_DA & left_DA
        return inside_DA

    @cached_property
    def split_jumps(self) -> tuple[np.ndarray, np.ndarray]:
        """Ratios of split-like jumps (D, A): those that are explained, and those that are not."""
        opens_DA = self.fields.get("open")
        found_DA = splits.split_like(opens_DA, self.close_DA)
        if knows_actions(self.fields):
            # What adjusts the prices must explain their jumps.
            split_DA = splits.carried(self.fields).get("split", np.zeros(found_DA.shape))
            explained_DA = splits.missed(split_DA, opens_DA, self.close_DA)
            found_DA = np.where(explained_DA, split_DA, found_DA)
        else:
            factor = pd.DataFrame(self.fields["adj_close"] / self.close_DA).ffill()
            step_DA = (factor / factor.shift()).to_numpy()
            safe_DA = np.where(found_DA > 0, found_DA, 1.0)
            explained_DA = np.abs(np.log(step_DA / safe_DA)) < 2 * splits.TOLERANCE
        return np.where(explained_DA, found_DA, 0.0), np.where(explained_DA, 0.0, found_DA)


@dataclass(frozen=True)
class Rule:
    """One rule of the gate.

    Attributes:
        name: key of its level in the settings.
        default: level where the settings do not say.
        scope: what quarantine takes away: the cell's prices, only its trading, or the ticker.
        find: marks the cells that break it; the result may also be numbers, 0 where all is well.
        expected: what a cell should be, for messages.
        column: which value of a cell to show.
        needs: columns without which there is nothing to judge.
        without: columns with which another rule judges better.
    """

    name: str
    default: Level
    scope: Scope
    find: Callable[[Grid], np.ndarray]
    expected: str
    column: str = "close"
    needs: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()

    def applies(self, grid: Grid) -> bool:
        """Whether the prices have the columns that the rule is about."""
        return self.needs <= grid.fields.keys() and self.without.isdisjoint(grid.fields)


def _prices(grid: Grid) -> list[np.ndarray]:
    return [grid.fields[name] for name in (*PRICES, "adj_close") if name in grid.fields]


def bad_price(grid: Grid) -> np.ndarray:
    """Mark rows of which some, not all, prices are missing, or one is not positive and finite."""
    prices = _prices(grid)
    is_bad_DA = np.any([~(np.isfinite(p) & (p > 0)) for p in prices], axis=0)
    is_empty_DA = np.all([np.isnan(p) for p in prices], axis=0)
    return grid.row_DA & is_bad_DA & ~is_empty_DA


def inconsistent_bar(grid: Grid) -> np.ndarray:
    """Mark bars whose high is not the highest or whose low is not the lowest of their prices."""
    bar = [grid.fields[name] for name in PRICES if name in grid.fields]
    none_DA = np.zeros(grid.row_DA.shape, dtype=bool)
    above_DA = below_DA = none_DA
    if "high" in grid.fields:
        above_DA = np.fmax.reduce(bar) > grid.fields["high"] * (1 + BAR_SLACK)
    if "low" in grid.fields:
        below_DA = np.fmin.reduce(bar) < grid.fields["low"] * (1 - BAR_SLACK)
    return above_DA | below_DA


def missing(grid: Grid) -> np.ndarray:
    """Mark bars inside a ticker's span on which it has no price."""
    return grid.inside_DA & ~np.isfinite(grid.close_DA) & ~grid.masked_DA


def sparse(grid: Grid) -> np.ndarray:
    """Mark the bar at which a ticker has lacked more than a fifth of its bars so far."""
    holes_DA, inside_DA = missing(grid), grid.inside_DA
    bars_DA = np.cumsum(inside_DA, axis=0)
    share_DA = np.cumsum(holes_DA, axis=0) / np.maximum(bars_DA, 1)
    is_sparse_DA = inside_DA & (share_DA > SPARSE_SHARE) & (bars_DA >= SPARSE_BARS)
    return is_sparse_DA & (np.cumsum(is_sparse_DA, axis=0) == 1)


def bad_action(grid: Grid) -> np.ndarray:
    """Return dividends and splits that cannot be: negative, infinite, or above half the price."""
    wrong_DA = np.zeros(grid.row_DA.shape)
    last_DA = splits.last_close(grid.close_DA)
    if "dividend" in grid.fields:
        paid_DA = np.where(np.isnan(grid.fields["dividend"]), 0.0, grid.fields["dividend"])
        is_wrong_DA = ~np.isfinite(paid_DA) | (paid_DA < 0) | (paid_DA > LARGEST_DIVIDEND * last_DA)
        wrong_DA = np.where(is_wrong_DA, paid_DA, wrong_DA)
    if "split" in grid.fields:
        split_DA = np.where(np.isnan(grid.fields["split"]), 0.0, grid.fields["split"])
        wrong_DA = np.where(~np.isfinite(split_DA) | (split_DA < 0), split_DA, wrong_DA)
    return wrong_DA


def bad_volume(grid: Grid) -> np.ndarray:
    """Mark bars with a price whose volume is negative or not a number."""
    volume_DA = grid.fields["volume"]
    return np.isfinite(grid.close_DA) & ~(np.isfinite(volume_DA) & (volume_DA >= 0))


def zero_volume(grid: Grid) -> np.ndarray:
    """Mark bars on which nothing was traded."""
    return np.isfinite(grid.close_DA) & (grid.fields["volume"] == 0)


def unit_error(grid: Grid) -> np.ndarray:
    """Mark a price five times or a fifth of both neighbours, which agree with each other.

    The bar after is needed to tell; a live run meets the same bar as an `extreme_move` first.
    """
    log_DA = np.log(np.where(grid.close_DA > 0, grid.close_DA, np.nan))
    spike_DA = np.zeros(log_DA.shape, dtype=bool)
    there_DA, back_DA = log_DA[1:-1] - log_DA[:-2], log_DA[2:] - log_DA[1:-1]
    is_far_DA = np.minimum(np.abs(there_DA), np.abs(back_DA)) > np.log(UNIT_ERROR)
    spike_DA[1:-1] = is_far_DA & (np.abs(there_DA + back_DA) < np.log(UNIT_ERROR) / 2)
    return spike_DA


def extreme_move(grid: Grid) -> np.ndarray:
    """Return the ratio of closes that rose to five times or fell to a fifth, and that no split explains.

    Seen from one side only, at the first or the last bar say, a wrong unit, a split of an unusual
    ratio and a real crash look alike: a person must say which it is.
    """
    close = pd.DataFrame(grid.close_DA).ffill()
    ratio_DA = (close / close.shift()).to_numpy()
    is_extreme_DA = np.isfinite(ratio_DA) & (np.abs(np.log(ratio_DA)) > np.log(UNIT_ERROR))
    return np.where(is_extreme_DA & (grid.split_jumps[0] == 0), ratio_DA, 0.0)


def announced_split(grid: Grid) -> np.ndarray:
    """Return the ratio of each split-like jump that the actions or the adjusted close explain."""
    return grid.split_jumps[0]


def unexplained_split(grid: Grid) -> np.ndarray:
    """Return the ratio of each split-like jump to an open that nothing explains."""
    return grid.split_jumps[1]


def split_like_close(grid: Grid) -> np.ndarray:
    """Return the ratio of each split-like jump between closes, where there are no opens.

    A day's own move is in it: AMD rose by half on one day of April 2016 without any split.
    """
    return grid.split_jumps[1]


def large_move(grid: Grid) -> np.ndarray:
    """Return the returns between closes beyond 50 % or 12 median absolute deviations.

    Adjusted closes are judged where there are any. A move is named, never rescaled: GameStop did
    rise by 135 % on a day of January 2021.
    """
    close = pd.DataFrame(grid.fields.get("adj_close", grid.close_DA)).ffill()
    returns_DA = np.log((close / close.shift()).to_numpy())
    if "split" in grid.fields:
        returns_DA = np.where(grid.fields["split"] > 0, np.nan, returns_DA)
    size_DA = np.abs(returns_DA)
    moves_DA = np.where(size_DA > 0, size_DA, np.nan)
    with np.errstate(all="ignore"):
        typical_A = pd.DataFrame(moves_DA).median().to_numpy()
    threshold_A = np.fmin(np.log(1 + LARGE_MOVE), LARGE_MADS * typical_A)
    return np.where(size_DA > threshold_A, np.expm1(returns_DA), 0.0)


def stale(grid: Grid) -> np.ndarray:
    """Return the length so far of each run of five or more equal closes, from its fifth bar on."""
    close_DA = grid.close_DA
    same_DA = np.zeros(close_DA.shape, dtype=bool)
    same_DA[1:] = close_DA[1:] == close_DA[:-1]
    counts_DA = np.cumsum(same_DA, axis=0)
    before_DA = np.maximum.accumulate(np.where(same_DA, 0, counts_DA), axis=0)
    run_DA = counts_DA - before_DA + 1
    return np.where(run_DA >= STALE_BARS, run_DA, 0)


def flat_bar(grid: Grid) -> np.ndarray:
    """Mark bars whose four prices are one."""
    return (grid.fields["high"] == grid.fields["low"]) & np.isfinite(grid.close_DA)


def falling_factor(grid: Grid) -> np.ndarray:
    """Mark bars on which adjusted close over close falls, as only a reverse split makes it."""
    factor = pd.DataFrame(grid.fields["adj_close"] / grid.close_DA).ffill()
    is_split_DA = splits.split_like(grid.fields.get("open"), grid.close_DA) > 0
    return ((factor / factor.shift()).to_numpy() < 1 - FACTOR_SLACK) & ~is_split_DA


def late_start(grid: Grid) -> np.ndarray:
    """Mark the first price of a ticker that starts after the others."""
    return _late(np.isfinite(grid.close_DA))


def early_end(grid: Grid) -> np.ndarray:
    """Mark the last price of a ticker that ends before the others."""
    return _late(np.isfinite(grid.close_DA)[::-1])[::-1]


def _late(has_DA: np.ndarray) -> np.ndarray:
    first_DA = has_DA & (np.cumsum(has_DA, axis=0) == 1)
    first_DA[0] = False
    return first_DA


OPEN, VOLUME = frozenset({"open"}), frozenset({"volume"})
RULES = (
    Rule("bad_price", "quarantine", "price", bad_price, "positive prices"),
    Rule(
        "bad_action",
        "stop",
        "price",
        bad_action,
        "a dividend below half the price, a positive split",
    ),
    Rule("inconsistent_bar", "stop", "price", inconsistent_bar, "low <= open, close <= high"),
    Rule("unit_error", "quarantine", "price", unit_error, "a price on the scale of its neighbours"),
    Rule(
        "bad_volume", "quarantine", "trade", bad_volume, "a volume of 0 or more", "volume", VOLUME
    ),
    Rule("zero_volume", "quarantine", "trade", zero_volume, "a traded volume", "volume", VOLUME),
    Rule("missing", "warn", "price", missing, "a price on every session of its span"),
    Rule("sparse", "quarantine", "ticker", sparse, "four fifths of the sessions of its span"),
    Rule("announced_split", "warn", "ticker", announced_split, "a split that the prices know"),
    Rule(
        "unexplained_split",
        "quarantine",
        "ticker",
        unexplained_split,
        "a split that is announced",
        needs=OPEN,
    ),
    Rule(
        "extreme_move",
        "stop",
        "ticker",
        extreme_move,
        "a close within a fifth and five times the last",
    ),
    Rule(
        "split_like_close", "warn", "ticker", split_like_close, "no jump like a split", without=OPEN
    ),
    Rule("large_move", "warn", "price", large_move, "a move within 50 % and 12 median moves"),
    Rule(
        "falling_factor",
        "warn",
        "ticker",
        falling_factor,
        "an adjustment that rises",
        "adj_close",
        frozenset({"adj_close"}),
    ),
    Rule("stale", "warn", "trade", stale, "a close that moves within five bars"),
    Rule("flat_bar", "warn", "trade", flat_bar, "a high above the low", needs=frozenset(PRICES)),
    Rule("late_start", "warn", "price", late_start, "prices from the first session on"),
    Rule("early_end", "warn", "price", early_end, "prices up to the last session"),
)
