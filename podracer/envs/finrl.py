"""FinRL's daily trading rule, for comparison with results that were made with it (NumPy only).

It is FinRL's `StockTradingEnv` as published (Liu et al. 2020, arXiv:2011.09607): an order trades at the
close it has just seen, in whole shares of at most hmax; sells first, the largest first, then buys, the
largest first, each as far as the cash that is left goes; above a turbulence threshold everything is sold
and nothing bought. Where orders are equal the ticker that comes first is served first. Three of its
results are not reproduced: cash below 0 (its array environment leaves the fee out of what it can
afford), the last reward paid twice, and turbulence unset on the first day.

Use it for parity only: who decides at a close cannot trade at that close.

Shapes: D sessions, A assets, E environments, K indicators.
"""

from typing import NamedTuple

import numpy as np

from podracer.envs import rule
from podracer.envs.backends import Accounts, Decision, table_rows
from podracer.envs.settings import CostSettings, EnvSettings
from podracer.envs.tables import PriceTables, price_tables
from podracer.envs.trading import TradingEnv
from podracer.errors import ConfigError, MarketDataError
from podracer.market.market import UNITS_PER_DOLLAR, Market

REWARD_SCALE = 1e-4


class FinrlBackend:
    """The order book of FinRL's rule as a backend of `TradingEnv`; takes decisions of kind shares."""

    def __init__(self, turbulence_D: np.ndarray | None = None, threshold: float = np.inf) -> None:
        """Take the index and the level at and above which everything is sold; none if None."""
        self._turbulence_D = turbulence_D
        self._threshold = threshold

    def __call__(
        self, row_B: np.ndarray, decision: Decision, accounts: Accounts, tables: PriceTables
    ) -> rule.Fill:
        """Advance every block by one session."""
        block = len(accounts.cash_E) // len(row_B)
        row = table_rows(tables, row_B, block)
        largest_E = decision.scale_E.astype(np.float32)
        # FinRL truncates the float32 product.
        orders_AE = np.trunc(decision.wanted_AE * largest_E).astype(np.float64)
        held_AE = accounts.lots_AE.astype(np.float64)
        value_before_E = rule.equity(accounts.cash_E, held_AE, row.fill)
        if self._turbulence_D is not None:
            is_turbulent_B = self._turbulence_D[row_B] >= self._threshold
            orders_AE = np.where(np.repeat(is_turbulent_B, block), -held_AE, orders_AE)
        dropped_E = ((orders_AE != 0.0) & ~row.fillable).sum(0)
        orders_AE = np.where(row.fillable, orders_AE, 0.0)
        sold_AE = np.minimum(np.maximum(-orders_AE, 0.0), held_AE)
        cash_E = accounts.cash_E + (sold_AE * row.sell).sum(0)
        bought_AE, cash_E = _buy_largest_first(cash_E, np.maximum(orders_AE, 0.0), row.buy)
        lots_AE = (held_AE - sold_AE + bought_AE).astype(accounts.lots_AE.dtype)
        return rule.Fill(cash_E, lots_AE, None, value_before_E, dropped_E, 0 * dropped_E)


def _buy_largest_first(
    cash_E: np.ndarray, wanted_AE: np.ndarray, buy_AE: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Spend cash on one order after the other; returns what was bought, and the cash left."""
    bought_AE = np.zeros_like(wanted_AE)
    each_E = np.arange(len(cash_E))
    for first_E in np.argsort(-wanted_AE, axis=0, kind="stable"):
        price_E = buy_AE[first_E, each_E]
        affordable_E = np.floor(cash_E / np.where(price_E > 0, price_E, np.inf))
        bought_E = np.minimum(wanted_AE[first_E, each_E], affordable_E)
        bought_AE[first_E, each_E] = bought_E
        cash_E = cash_E - bought_E * price_E
    return bought_AE, cash_E


def _only_what_it_knows(settings: EnvSettings) -> EnvSettings:
    """Return the settings of FinRL's rule; refuse what it does not have.

    Raises:
        ConfigError: if there are costs beyond a commission, interest, or fractional shares.
    """
    plain = EnvSettings(
        initial_cash=settings.initial_cash,
        fill="same_close",
        costs=CostSettings(commission_bps=settings.costs.commission_bps),
        action=settings.action.model_copy(update={"mode": "shares"}),
    )
    for key in ("costs", "shares", "cash_rate", "delisting_haircut"):
        if getattr(settings, key) != getattr(plain, key):
            raise ConfigError(
                f"env.{key}: FinRL's rule knows whole shares and a commission in basis points only. "
                f"Leave it at its default."
            )
    return plain


class FinrlStep(NamedTuple):
    """What a step brought.

    Attributes:
        state_EO: see `FinrlEnv`.
        reward_E: change of the account in dollars times 1e-4.
        is_last: the data has ended.
    """

    state_EO: np.ndarray
    reward_E: np.ndarray
    is_last: bool


class FinrlEnv:
    """E accounts under FinRL's rule, with its raw state.

    The state is cash, closes, shares held, and a block of A for each indicator: 1 + 2 A + K A columns
    (181 for 30 stocks and 4 indicators, 301 for 8), in dollars and unscaled.
    """

    def __init__(
        self,
        market: Market,
        indicators_DAK: np.ndarray,
        settings: EnvSettings,
        num_envs: int = 1,
        turbulence_D: np.ndarray | None = None,
        threshold: float = np.inf,
    ) -> None:
        """Open the accounts.

        Args:
            market: every price must be there, as in FinRL.
            indicators_DAK: raw.
            settings: initial cash, commission, and `action.max_trade_shares` (hmax).
            num_envs: E.
            turbulence_D: of each session, known at its close.
            threshold: at and above which everything is sold.

        Raises:
            MarketDataError: if a price is missing.
            ConfigError: if the settings ask for what FinRL's rule does not have.
        """
        if not np.asarray(market.tradable_DA).all():
            raise MarketDataError(
                f"{market.meta['name']}: FinRL's rule needs every price of every ticker. "
                f"Choose tickers or dates without holes."
            )
        same_close = _only_what_it_knows(settings)
        tables = price_tables(market, same_close)
        self.hmax = float(settings.action.max_trade_shares)
        self._indicators_DAK = indicators_DAK
        self._env = TradingEnv(
            tables,
            same_close,
            tables.num_sessions,
            1,
            num_envs,
            FinrlBackend(turbulence_D, threshold),
        )

    @property
    def shares_AE(self) -> np.ndarray:
        """Shares held."""
        return self._env.lots_AE

    @property
    def equity_E(self) -> np.ndarray:
        """Dollars at the current close."""
        return self._env.equity_E / UNITS_PER_DOLLAR

    @property
    def cash_E(self) -> np.ndarray:
        """Dollars."""
        return self._env.cash_E / UNITS_PER_DOLLAR

    def reset(self, session: int = 0) -> np.ndarray:
        """Begin on a session, all in cash; returns the state."""
        self._env.reset(np.array([session]))
        return self._state()

    def step(self, action_EA: np.ndarray) -> FinrlStep:
        """Trade at the current close, then move on to the next.

        Args:
            action_EA: fractions of hmax in [-1, 1], float32.
        """
        num_envs = self._env.num_envs
        wanted_AE = np.ascontiguousarray(np.asarray(action_EA, dtype=np.float32).T)
        before_E = self._env.equity_E
        step = self._env.step(
            Decision(wanted_AE, np.full(num_envs, self.hmax), np.zeros(num_envs), "shares")
        )
        reward_E = (step.equity_E - before_E) / UNITS_PER_DOLLAR * REWARD_SCALE
        return FinrlStep(self._state(), reward_E, bool(step.truncated_E[0]))

    def _state(self) -> np.ndarray:
        t = self._env.session_B[0]
        num_envs = self._env.num_envs
        close_A = self._env.tables.close_DA[t] / UNITS_PER_DOLLAR
        indicators = self._indicators_DAK[t].T.ravel()
        return np.column_stack(
            [
                self.cash_E,
                np.tile(close_A, (num_envs, 1)),
                self.shares_AE.T,
                np.tile(indicators, (num_envs, 1)),
            ]
        )
