"""A vectorised trading environment: many accounts on one market, some on different sessions.

It keeps the accounts and moves them by the trading rule; rewards, terminations and observations are
functors on top (see `podracer.envs.functors`).

Shapes: D sessions, A assets, E environments in B blocks; a block of E / B environments shares its
session.
"""

from typing import NamedTuple

import numpy as np

from podracer.envs import kernel
from podracer.envs.backends import Accounts, Backend, Decision, numba_backend
from podracer.envs.costs import CostBreakdown, Trade
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import PriceTables
from podracer.errors import PodracerError
from podracer.market.market import UNITS_PER_DOLLAR

MOST_LOTS = {"whole": 2**31, "fractional": 2**52}


class Step(NamedTuple):
    """What one session brought; money in units of 1e-6 dollars.

    Attributes:
        truncated_E: the window has ended, the account has not: bootstrap the value.
        value_before_E: the account at the fill prices, before this step's orders.
        equity_E: the account at the close after the fill.
        dropped_E: orders that met a session on which their asset did not trade.
        cut_E: orders that the volume cap cut.
    """

    truncated_E: np.ndarray
    value_before_E: np.ndarray
    equity_E: np.ndarray
    dropped_E: np.ndarray
    cut_E: np.ndarray


class TradingEnv:
    """E accounts that trade one market, block by block on its own session.

    An agent acts after the close of session t on what was known then; its orders are sized at that
    close and fill at the next one (see `EnvSettings.fill`). The episode of a block ends when the
    session before `stop` is reached: no later order could be filled inside the window. A finished
    environment must be reset; stepping it is refused.
    """

    def __init__(
        self,
        tables: PriceTables,
        settings: EnvSettings,
        stop: int,
        num_blocks: int = 1,
        block_size: int = 1,
        backend: Backend = numba_backend,
    ) -> None:
        self.tables = tables
        self.settings = settings
        self.stop = stop
        self.num_envs = num_blocks * block_size
        self.session_B = np.zeros(num_blocks, dtype=np.int64)
        self.scenario_B = np.zeros(num_blocks, dtype=np.int64)
        self._block_size = block_size
        self._backend = backend
        self.initial_value = float(np.round(settings.initial_cash * UNITS_PER_DOLLAR))
        shape = (tables.num_assets, self.num_envs)
        self._accounts = Accounts(
            np.zeros(self.num_envs),
            np.zeros(shape, dtype=np.float64 if tables.is_fractional else np.int32),
            np.zeros(shape) if tables.carries else None,
        )
        self._trade = Trade(tables, self.session_B, self._accounts, self._accounts)
        self._equity_E = np.zeros(self.num_envs)

    @property
    def cash_E(self) -> np.ndarray:
        """Cash, money units."""
        return self._accounts.cash_E

    @property
    def lots_AE(self) -> np.ndarray:
        """Whole shares (int32), or millionths of one (float64)."""
        return self._accounts.lots_AE

    @property
    def equity_E(self) -> np.ndarray:
        """Cash plus holdings at the close of each block's session, money units."""
        return self._equity_E

    @property
    def row_B(self) -> np.ndarray:
        """Each block's row of the price tables."""
        return self.session_B + self.scenario_B * self.tables.num_sessions

    def weights_AE(self) -> np.ndarray:
        """Return each holding as a fraction of equity, float64."""
        held_AE = self.lots_AE * self._per_env(self.tables.close_DA)
        weights_AE: np.ndarray = held_AE / np.where(self._equity_E > 0, self._equity_E, 1.0)
        return weights_AE

    def next_fill_value_E(self) -> np.ndarray:
        """Return the accounts at the prices of the next fill: what the last decision has become."""
        fill_AE = self._per_env(self.tables.fill_DA)
        cash_E = self.cash_E
        if self.tables.interest_D is not None:
            rate_E = np.repeat(self.tables.interest_D[self.row_B], self._block_size)
            cash_E = cash_E + np.floor(cash_E * rate_E)
        value_E: np.ndarray = cash_E + (self.lots_AE * fill_AE).sum(0)
        return value_E

    @property
    def trade(self) -> Trade:
        """The last step; nothing was traded since a reset."""
        return self._trade

    def costs(self) -> CostBreakdown:
        """Return where the money of the last step went."""
        return self.trade.costs()

    def reset(
        self,
        session_B: np.ndarray,
        weights_AE: np.ndarray | None = None,
        scenario_B: np.ndarray | None = None,
        only_E: np.ndarray | None = None,
    ) -> None:
        """Open accounts with the initial cash, or with holdings of the given weights.

        Args:
            session_B: the session at whose close each block first acts.
            weights_AE: initial holdings as fractions of the initial cash, rounded down to whole
                lots and given without a cost; all cash if None.
            scenario_B: the cost scenario of each block; the first if None.
            only_E: accounts to open anew; the others go on. All if None.

        Raises:
            ValueError: if an order decided on a session has no later session to fill in.
        """
        if (session_B < 0).any() or (session_B >= self.stop - 1).any():
            raise ValueError(
                f"sessions must lie in [0, {self.stop - 1}), an order needs a session to fill in; "
                f"got {session_B.min()} … {session_B.max()}"
            )
        self.session_B = session_B.astype(np.int64)
        if scenario_B is not None:
            self.scenario_B = scenario_B.astype(np.int64)
        is_new_E = np.ones(self.num_envs, dtype=bool) if only_E is None else only_E
        price_AE = self._per_env(self.tables.close_DA)
        lots_AE = np.zeros(self.lots_AE.shape)
        if weights_AE is not None:
            worth_AE = weights_AE * self.initial_value
            lots_AE = np.floor(worth_AE / np.where(price_AE > 0, price_AE, np.inf))
        cash_E = self.initial_value - np.ceil((lots_AE * price_AE).sum(0))
        pending_AE = self._accounts.pending_AE
        self._accounts = Accounts(
            np.where(is_new_E, cash_E, self.cash_E),
            np.where(is_new_E, lots_AE, self.lots_AE).astype(self.lots_AE.dtype),
            None if pending_AE is None else np.where(is_new_E, 0.0, pending_AE),
        )
        self._trade = Trade(self.tables, self.row_B, self._accounts, self._accounts)
        self._equity_E = self._checked(np.where(is_new_E, self.initial_value, self._equity_E))

    def step(self, decision: Decision) -> Step:
        """Advance every account by one session.

        Raises:
            ValueError: if an account's window has ended, or the decision's shapes are not the
                environment's.
            PodracerError: if an account outgrows exact money.
        """
        self._check(decision)
        before, row_B = self._accounts, self.row_B
        fill = self._backend(row_B, decision, before, self.tables)
        self._accounts = Accounts(fill.cash_E, fill.lots_AE, fill.pending_AE)
        self._trade = Trade(self.tables, row_B, before, self._accounts)
        self.session_B = self.session_B + 1
        self._equity_E = self._checked(
            kernel.equity(self.row_B, fill.cash_E, fill.lots_AE, self.tables.close_DA)
        )
        return Step(
            truncated_E=np.repeat(self.session_B >= self.stop - 1, self._block_size),
            value_before_E=fill.value_before_E,
            equity_E=self._equity_E,
            dropped_E=fill.dropped_E,
            cut_E=fill.cut_E,
        )

    def _per_env(self, table_DA: np.ndarray) -> np.ndarray:
        """Return the row of each environment's session as (A, E)."""
        return np.repeat(table_DA[self.row_B].T, self._block_size, axis=1)

    def _check(self, decision: Decision) -> None:
        if (self.session_B >= self.stop - 1).any():
            raise ValueError("an episode has ended (truncated); reset the environment first")
        expected = (self.tables.num_assets, self.num_envs)
        if decision.wanted_AE.shape != expected:
            raise ValueError(f"wanted_AE must be {expected}, got {decision.wanted_AE.shape}")

    def _checked(self, equity_E: np.ndarray) -> np.ndarray:
        largest = equity_E.max()
        cheapest_A = self.tables.close_DA[self.row_B]
        cheapest = cheapest_A[cheapest_A > 0].min()
        if largest >= 2**52 or self.tables.num_assets * largest >= 2**53:
            raise PodracerError(
                f"an account of {largest / UNITS_PER_DOLLAR:,.0f} dollars over "
                f"{self.tables.num_assets} assets leaves the range of exact money. "
                f"Lower env.initial_cash."
            )
        if largest / cheapest >= MOST_LOTS[self.settings.shares]:
            price = cheapest * self.tables.lots_per_share / UNITS_PER_DOLLAR
            most = int(MOST_LOTS[self.settings.shares] / self.tables.lots_per_share)
            raise PodracerError(
                f"an account of {largest / UNITS_PER_DOLLAR:,.0f} dollars could hold more than {most:,} "
                f"shares at {price} dollars. Lower env.initial_cash."
            )
        return equity_E
