"""Price tables of the trading rule: what an order decided at a close pays and is marked at.

Shapes: D sessions, A assets. All prices are whole money units in float64.
"""

from dataclasses import dataclass

import numpy as np

from podracer.envs.settings import EnvSettings
from podracer.errors import ConfigError
from podracer.market.market import UNITS_PER_DOLLAR, Market

# A fee is a whole number of billionths, so that fees are computed in integers.
FEE_UNITS = 1_000_000_000


@dataclass(frozen=True)
class PriceTables:
    """Rows indexed by the session t at whose close an order is decided.

    Attributes:
        close_DA: mark at the close of t; the last price carried forward where there is none, so
            that a holding keeps a value; 0 before a ticker's first price, where none can be held.
        fill_DA: price at which an order decided at t is filled.
        buy_DA: all-in price of a bought share, ceil(fill · (1 + fee)).
        sell_DA: all-in proceeds of a sold share, floor(fill · (1 - fee)).
        fillable_DA: the order can be filled; the last row cannot, except with fill: same_close.
        visible_DA: the asset is tradable at close t, which is what an agent may know at t; no order
            is made for one that is not.
        exit_DA: the asset has had its last price: what is held of it is closed at the fill of t, at
            that price less the haircut and without a fee.
    """

    close_DA: np.ndarray
    fill_DA: np.ndarray
    buy_DA: np.ndarray
    sell_DA: np.ndarray
    fillable_DA: np.ndarray
    visible_DA: np.ndarray
    exit_DA: np.ndarray

    @property
    def num_assets(self) -> int:
        """A."""
        return self.close_DA.shape[1]


def price_tables(market: Market, settings: EnvSettings) -> PriceTables:
    """Tabulate fills and all-in prices for a market and its costs.

    Raises:
        ConfigError: if orders are to fill at opens that the market does not have.
    """
    close_DA = _carried_forward(np.asarray(market.price_DA))
    fill_DA, fillable_DA = _fills(market, close_DA, settings.fill)
    exit_DA = _exits(np.asarray(market.price_DA), settings.fill)
    fill_DA = np.where(exit_DA, np.floor(close_DA * (1.0 - settings.delisting_haircut)), fill_DA)
    fee_DA = np.where(exit_DA, 0.0, _fee(fill_DA, settings.fee_bps))
    return PriceTables(
        close_DA=close_DA,
        fill_DA=fill_DA,
        buy_DA=fill_DA + fee_DA,
        sell_DA=fill_DA - fee_DA,
        fillable_DA=fillable_DA | exit_DA,
        visible_DA=np.asarray(market.tradable_DA),
        exit_DA=exit_DA,
    )


def _exits(price_DA: np.ndarray, fill: str) -> np.ndarray:
    """Mark the decision whose fill is the first session after an asset's last price."""
    has_DA = np.isfinite(price_DA)
    rows_D1 = np.arange(len(price_DA))[:, None]
    last_A = np.where(has_DA, rows_D1, -1).max(0)
    row_A = last_A + (1 if fill == "same_close" else 0)
    exit_DA: np.ndarray = (rows_D1 == row_A) & (last_A >= 0) & (last_A < len(price_DA) - 1)
    return exit_DA


def _carried_forward(price_DA: np.ndarray) -> np.ndarray:
    has_DA = np.isfinite(price_DA)
    rows_D1 = np.arange(len(price_DA))[:, None]
    last_DA = np.maximum.accumulate(np.where(has_DA, rows_D1, 0), axis=0)
    return np.nan_to_num(np.take_along_axis(price_DA, last_DA, axis=0))


def _fills(market: Market, close_DA: np.ndarray, fill: str) -> tuple[np.ndarray, np.ndarray]:
    if fill == "same_close":
        return close_DA, np.asarray(market.tradable_DA)
    at_DA, has_DA = close_DA, np.asarray(market.tradable_DA)
    require_opens(fill, market.open_DA is not None, market.meta["name"])
    if fill == "next_open" and market.open_DA is not None:
        has_DA = has_DA & np.isfinite(market.open_DA)
        at_DA = np.where(has_DA, market.open_DA, close_DA)
    none_A = np.zeros((1, at_DA.shape[1]), dtype=bool)
    return np.vstack([at_DA[1:], close_DA[-1:]]), np.vstack([has_DA[1:], none_A])


def require_opens(fill: str, has_opens: bool, dataset: str) -> None:
    """Refuse to fill at opens that a dataset does not have.

    Raises:
        ConfigError: if `fill` is next_open and there are none.
    """
    if fill == "next_open" and not has_opens:
        raise ConfigError(
            f"env.fill: next_open needs opening prices, which dataset {dataset!r} does not have. "
            f"Use next_close or a dataset with opens."
        )


def _fee(fill_DA: np.ndarray, fee_bps: float) -> np.ndarray:
    billionths = round(fee_bps * FEE_UNITS / 10_000)
    highest = (2**63 - 1) // max(billionths, 1)
    if fill_DA.max() >= highest:
        raise ConfigError(
            f"env.fee_bps: a price of {fill_DA.max() / UNITS_PER_DOLLAR:,.0f} dollars with a fee of "
            f"{fee_bps} bp leaves the range of exact money. Scale the prices down."
        )
    return -(-fill_DA.astype(np.int64) * billionths // FEE_UNITS).astype(np.float64)
