"""The trading rule as a readable NumPy reference; `kernel.py` is its fast twin, equal bit for bit.

Money is counted in whole units of 1e-6 dollars held in float64, shares in int32. Sums of whole
numbers below 2^53 do not depend on their order, and the floor of a quotient of whole numbers below
2^52 is exact, so cash can be spent to the last unit and never overspent.

Shapes: A assets, E environments.
"""

from typing import NamedTuple

import numpy as np


class Orders(NamedTuple):
    """Whole shares wanted, positive to buy, negative to sell."""

    wanted_AE: np.ndarray


class Fill(NamedTuple):
    """The account after a fill; money in units.

    Attributes:
        value_before_E: the account at the fill prices, before the orders.
        traded_E: notional bought and sold, at the fill prices.
        cost_E: what the fees took.
        dropped_E: orders that met a session on which their asset did not trade.
    """

    cash_E: np.ndarray
    shares_AE: np.ndarray
    value_before_E: np.ndarray
    traded_E: np.ndarray
    cost_E: np.ndarray
    dropped_E: np.ndarray


def equity(cash_E: np.ndarray, shares_AE: np.ndarray, price_A: np.ndarray) -> np.ndarray:
    """Return cash plus holdings at the given prices."""
    return cash_E + (shares_AE * price_A[:, None]).sum(0)


def size_orders(
    cash_E: np.ndarray,
    shares_AE: np.ndarray,
    close_A: np.ndarray,
    visible_A: np.ndarray,
    target_AE: np.ndarray,
    speed_E: np.ndarray,
    band_E: np.ndarray,
) -> Orders:
    """Size orders at a close: move each position the fraction `speed` of the way to its target.

    Args:
        cash_E: money units.
        shares_AE: int32.
        close_A: prices at the close that the agent has seen.
        visible_A: which assets trade at that close.
        target_AE: wanted fraction of equity in each asset, float32, each column summing to <= 1.
        speed_E: fraction of the gap to trade, in [0, 1].
        band_E: gaps below this fraction of equity are left alone.

    Returns:
        Whole shares, rounded towards zero; none for an asset that does not trade.
    """
    equity_E = equity(cash_E, shares_AE, close_A)
    price_A1 = np.where(visible_A, close_A, 1.0)[:, None]
    gap_AE = target_AE.astype(np.float64) * equity_E - shares_AE * close_A[:, None]
    wanted_AE = np.trunc(speed_E * gap_AE / price_A1)
    trade_AE = (np.abs(gap_AE) >= band_E * equity_E) & visible_A[:, None]
    return Orders(np.where(trade_AE, wanted_AE, 0.0))


def fill(
    cash_E: np.ndarray,
    shares_AE: np.ndarray,
    orders: Orders,
    fill_A: np.ndarray,
    buy_A: np.ndarray,
    sell_A: np.ndarray,
    fillable_A: np.ndarray,
    exit_A: np.ndarray,
) -> Fill:
    """Fill orders: sells first; if cash is short all buys are scaled by the same factor.

    Each buy is first clipped to what cash alone could pay for. No loop over assets, so the result
    does not depend on their order. A holding in `exit_A` is sold whatever was ordered: its asset
    has had its last price.
    """
    held_AE = shares_AE.astype(np.float64)
    value_before_E = cash_E + (held_AE * fill_A[:, None]).sum(0)
    wanted_AE = np.where(fillable_A[:, None], orders.wanted_AE, 0.0)
    wanted_AE = np.where(exit_A[:, None], -held_AE, wanted_AE)
    sold_AE = np.minimum(np.maximum(-wanted_AE, 0.0), held_AE)
    cash_E = cash_E + (sold_AE * sell_A[:, None]).sum(0)

    price_A1 = np.where(fillable_A & ~exit_A, buy_A, 1.0)[:, None]
    affordable_AE = np.floor(cash_E / price_A1)
    wished_AE = np.minimum(np.maximum(wanted_AE, 0.0), affordable_AE)
    needed_E = (wished_AE * price_A1).sum(0)
    share_E = np.where(needed_E > cash_E, cash_E / np.where(needed_E > 0.0, needed_E, 1.0), 1.0)
    bought_AE = np.floor(wished_AE * share_E)
    cash_E = cash_E - (bought_AE * price_A1).sum(0)

    fee_A1 = (buy_A - fill_A)[:, None]
    traded_AE = sold_AE + bought_AE
    return Fill(
        cash_E=cash_E,
        shares_AE=(held_AE - sold_AE + bought_AE).astype(np.int32),
        value_before_E=value_before_E,
        traded_E=(traded_AE * fill_A[:, None]).sum(0),
        cost_E=(traded_AE * fee_A1).sum(0),
        dropped_E=((orders.wanted_AE != 0.0) & ~fillable_A[:, None]).sum(0).astype(np.int32),
    )
