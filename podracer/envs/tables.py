"""Price tables of the trading rule: what an order decided at a close pays and is marked at.

Shapes: D sessions, A assets, S cost scenarios. Prices are money units a *lot*: a whole share, for
which they are whole numbers, or a millionth of one.
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import numpy as np

from podracer.envs.rule import ALWAYS, Row
from podracer.envs.settings import EnvSettings
from podracer.errors import ConfigError
from podracer.market.market import UNITS_PER_DOLLAR, Market

# A rate is a whole number of billionths, so that fees are computed in integers.
RATE_UNITS = 1_000_000_000
LOTS_PER_FRACTIONAL_SHARE = 1_000_000
SESSIONS_A_YEAR = 252
PROPORTIONAL = ("commission_bps", "half_spread_bps", "slippage_bps")


@dataclass(frozen=True)
class PriceTables:
    """Rows indexed by the session t at whose close an order is decided.

    With S > 1 cost scenarios the tables of scenario s follow from row s · D on.

    Attributes:
        close_DA: mark at the close of t; the last price carried forward where there is none, so
            that a holding keeps a value; 0 before a ticker's first price, where none can be held.
        fill_DA: price at which an order decided at t is filled.
        buy_DA: all-in price of a bought lot: fill, commission, half-spread and slippage.
        sell_DA: all-in proceeds of a sold lot.
        fillable_DA: the order can be filled; the last row cannot, except with fill: same_close.
        visible_DA: the asset is tradable at close t, which is what an agent may know at t; no order
            is made for one that is not.
        exit_DA: the asset has had its last price: what is held of it is closed at the fill of t, at
            that price less the haircut and without a cost.
        cap_DA: most lots that one order can fill, inf where it is an exit; None without a limit.
        impact_DA: an order of q lots pays impact · q^1.5; None without impact.
        per_lot_D: commission a lot, on top; None without one.
        minimum_D: the least that it comes to for an order.
        interest_D: interest on cash from t to t + 1, as a fraction; None without interest.
        lots_per_share: 1, or a million with fractional shares.
        rates_S3: billionths of notional for commission, half-spread and slippage.
        num_sessions: D.
        carries: the rest of an order that the cap cuts stays at work.
    """

    close_DA: np.ndarray
    fill_DA: np.ndarray
    buy_DA: np.ndarray
    sell_DA: np.ndarray
    fillable_DA: np.ndarray
    visible_DA: np.ndarray
    exit_DA: np.ndarray
    cap_DA: np.ndarray | None
    impact_DA: np.ndarray | None
    per_lot_D: np.ndarray | None
    minimum_D: np.ndarray | None
    interest_D: np.ndarray | None
    lots_per_share: int
    rates_S3: np.ndarray
    num_sessions: int
    carries: bool

    @property
    def num_assets(self) -> int:
        """A."""
        return self.close_DA.shape[1]

    @property
    def is_fractional(self) -> bool:
        """Whether millionths of a share are traded."""
        return self.lots_per_share > 1

    @cached_property
    def rows(self) -> Row:
        """The tables as the rule takes them, with a row for each session."""
        return Row(
            self.close_DA,
            self.fill_DA,
            self.buy_DA,
            self.sell_DA,
            self.fillable_DA,
            self.visible_DA,
            self.exit_DA,
            self.cap_DA,
            self.impact_DA,
            self.per_lot_D,
            self.minimum_D,
            self.interest_D,
        )

    @cached_property
    def extras(self) -> tuple[np.ndarray, ...] | None:
        """All that is more than a proportional cost: cap, impact, per_lot, minimum, interest.

        None if there is none of it; else a table that nothing needs says so by its numbers.
        """
        given = self.rows[ALWAYS:]
        if all(table is None for table in given) and not self.is_fractional:
            return None
        nothing_DA = np.zeros(self.close_DA.shape)
        neutral = (nothing_DA + np.inf, nothing_DA, *(np.zeros(len(nothing_DA)),) * 3)
        return tuple(
            none if table is None else table for table, none in zip(given, neutral, strict=True)
        )


def price_tables(
    market: Market, settings: EnvSettings, cost_scales: tuple[float, ...] = (1.0,)
) -> PriceTables:
    """Tabulate fills and all-in prices for a market and its costs.

    Args:
        market: prices.
        settings: costs and fills.
        cost_scales: one scenario for each, in which all costs are multiplied by it.

    Raises:
        ConfigError: if the fill or a cost needs prices, volumes or shares that the market does not
            have.
    """
    prices = Prices(
        market.meta["name"],
        market.open_DA is not None,
        market.volume_DA is not None,
        market.meta.get("adjusted", False),
    )
    require_prices(settings, prices)
    scenarios = [_scenario(market, settings, scale) for scale in cost_scales]
    return scenarios[0] if len(scenarios) == 1 else _stacked(scenarios)


def _stacked(scenarios: list[PriceTables]) -> PriceTables:
    def joined(name: str) -> np.ndarray | None:
        parts = [getattr(s, name) for s in scenarios]
        return None if parts[0] is None else np.concatenate(parts)

    first = scenarios[0]
    names = [f.name for f in fields(PriceTables) if f.name.endswith(("_DA", "_D", "_S3"))]
    return PriceTables(
        **{name: joined(name) for name in names},  # type: ignore[arg-type]
        lots_per_share=first.lots_per_share,
        num_sessions=first.num_sessions,
        carries=first.carries,
    )


class Prices(NamedTuple):
    """What a dataset has, of what fills and costs may need."""

    name: str
    has_opens: bool
    has_volumes: bool
    is_adjusted: bool


def require_prices(settings: EnvSettings, prices: Prices) -> None:
    """Refuse fills and costs that a dataset cannot have.

    Raises:
        ConfigError: if they need opens, volumes, or shares as they were traded, which it does not have.
    """
    costs = settings.costs
    if settings.fill == "next_open" and not prices.has_opens:
        raise ConfigError(
            f"env.fill: next_open needs opening prices, which dataset {prices.name!r} does not have. "
            f"Use next_close or a dataset with opens."
        )
    if costs.reads_volume and not prices.has_volumes:
        key = "impact_bps" if costs.impact_bps else "volume_cap"
        raise ConfigError(
            f"env.costs.{key}: market impact and volume caps need volumes, which dataset "
            f"{prices.name!r} does not have. Set it to {'0' if costs.impact_bps else 'null'} or use a "
            f"dataset with volumes."
        )
    per_share = max(costs.commission_per_share, costs.commission_minimum) > 0
    if prices.is_adjusted and (per_share or settings.action.mode == "shares"):
        key = "costs.commission_per_share" if per_share else "action.mode"
        raise ConfigError(
            f"env.{key}: the prices of dataset {prices.name!r} are adjusted for splits and dividends, "
            f"so that a share of the past is not one that was traded. Use "
            f"{'costs.commission_bps' if per_share else 'mode weights or notional'}."
        )


def _scenario(market: Market, settings: EnvSettings, scale: float) -> PriceTables:
    costs = settings.costs
    lots = LOTS_PER_FRACTIONAL_SHARE if settings.shares == "fractional" else 1
    close_DA = _carried_forward(np.asarray(market.price_DA))
    fill_DA, fillable_DA = _fills(market, close_DA, settings.fill)
    exit_DA = _exits(np.asarray(market.price_DA), settings.fill)
    fill_DA = np.where(exit_DA, np.floor(close_DA * (1.0 - settings.delisting_haircut)), fill_DA)
    rates_3 = np.array(
        [round(getattr(costs, k) * scale * RATE_UNITS / 10_000) for k in PROPORTIONAL]
    )
    fee_DA = np.where(exit_DA, 0.0, sum(fees(fill_DA, rates_3, lots > 1)))
    cap_DA, impact_DA = _volume_tables(market, settings, scale, fill_DA, exit_DA, lots)
    num_sessions = len(close_DA)
    per_lot_D = minimum_D = None
    if costs.commission_per_share or costs.commission_minimum:
        units = scale * UNITS_PER_DOLLAR
        per_lot_D = np.full(num_sessions, costs.commission_per_share * units / lots)
        minimum_D = np.full(num_sessions, costs.commission_minimum * units)
    return PriceTables(
        close_DA=close_DA / lots,
        fill_DA=fill_DA / lots,
        buy_DA=(fill_DA + fee_DA) / lots,
        sell_DA=(fill_DA - fee_DA) / lots,
        fillable_DA=fillable_DA | exit_DA,
        visible_DA=np.asarray(market.tradable_DA),
        exit_DA=exit_DA,
        cap_DA=cap_DA,
        impact_DA=impact_DA,
        per_lot_D=per_lot_D,
        minimum_D=minimum_D,
        interest_D=_interest(market.dates_D, settings.cash_rate),
        lots_per_share=lots,
        rates_S3=rates_3[None],
        num_sessions=num_sessions,
        carries=costs.carries,
    )


def fees(price: np.ndarray, rates_3: np.ndarray, is_fractional: bool) -> list[np.ndarray]:
    """Return commission, half-spread and slippage on prices, each rounded up to a whole unit.

    With fractional shares the rounding is the order's, not the share's.

    Raises:
        ConfigError: if a price times a rate leaves the range of exact money.
    """
    highest = (2**63 - 1) // max(int(rates_3.max()), 1)
    if price.size and price.max() >= highest:
        raise ConfigError(
            f"env.costs: a price of {price.max() / UNITS_PER_DOLLAR:,.0f} dollars with a cost of "
            f"{rates_3.max() * 10_000 / RATE_UNITS:g} bp leaves the range of exact money. "
            f"Scale the prices down."
        )
    if is_fractional:
        return [price * (rate / RATE_UNITS) for rate in rates_3]
    whole = price.astype(np.int64)
    return [(-(-whole * rate // RATE_UNITS)).astype(np.float64) for rate in rates_3.tolist()]


def _volume_tables(
    market: Market,
    settings: EnvSettings,
    scale: float,
    fill_DA: np.ndarray,
    exit_DA: np.ndarray,
    lots: int,
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return cap and impact from the volume of the session that fills; no volume fills nothing."""
    costs = settings.costs
    if market.volume_DA is None or not costs.reads_volume:
        return None, None
    shares_DA = np.nan_to_num(np.asarray(market.volume_DA))
    if settings.fill != "same_close":
        shares_DA = np.vstack([shares_DA[1:], np.zeros((1, shares_DA.shape[1]))])
    cap = 1.0 if costs.volume_cap is None else costs.volume_cap
    # The product of whole numbers is exact below 2^53, so that 10 % of 1,000 shares are 100.
    cap_DA = np.floor(shares_DA * round(cap * 1_000_000) / (1_000_000 // lots))
    cap_DA = np.where(exit_DA, np.inf, cap_DA)
    if not costs.impact_bps:
        return cap_DA, None
    volume_DA = np.where(shares_DA > 0, shares_DA * lots, np.inf)
    impact_DA = (costs.impact_bps * scale / 10_000) * (fill_DA / lots) / np.sqrt(volume_DA)
    return cap_DA, np.where(exit_DA, 0.0, impact_DA)


def _interest(dates_D: np.ndarray, rate: float) -> np.ndarray | None:
    """Return the interest of each step; bars of one session earn none between them."""
    if not rate:
        return None
    ends_D = np.append(dates_D[1:] != dates_D[:-1], False)
    return np.where(ends_D, (1.0 + rate) ** (1.0 / SESSIONS_A_YEAR) - 1.0, 0.0)


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
    if fill == "next_open" and market.open_DA is not None:
        has_DA = has_DA & np.isfinite(market.open_DA)
        at_DA = np.where(has_DA, market.open_DA, close_DA)
    none_A = np.zeros((1, at_DA.shape[1]), dtype=bool)
    return np.vstack([at_DA[1:], close_DA[-1:]]), np.vstack([has_DA[1:], none_A])
