"""A vectorised trading environment: many accounts on one market, some on different sessions.

Shapes: D sessions, A assets, E environments in B blocks; a block of E / B environments shares its
session.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from podracer.envs import kernel, rule
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import PriceTables
from podracer.errors import PodracerError
from podracer.market.market import UNITS_PER_DOLLAR


class Decision(NamedTuple):
    """What an agent wants after a close.

    Attributes:
        target_AE: wanted fraction of equity in each asset, float32, each column summing to <= 1;
            the rest is cash.
        speed_E: fraction of the way to the target to trade now, float64 in [0, 1]; 0 trades nothing.
        band_E: gaps below this fraction of equity are left alone, float64.
    """

    target_AE: np.ndarray
    speed_E: np.ndarray
    band_E: np.ndarray


class Step(NamedTuple):
    """What one session brought; money in units of 1e-6 dollars.

    Attributes:
        reward_E: ln(equity at this close / equity at the one before), after costs. Trainers credit
            from fill to fill instead, see `podracer.envs.rewards`.
        terminated_E: ruin.
        truncated_E: the window has ended, the account has not: bootstrap the value.
        value_before_E: the account at the fill prices, before this step's orders.
        equity_E: the account at the close after the fill.
        traded_E: notional bought and sold.
        cost_E: fees paid.
        dropped_E: orders that met an untradable session.
    """

    reward_E: np.ndarray
    terminated_E: np.ndarray
    truncated_E: np.ndarray
    value_before_E: np.ndarray
    equity_E: np.ndarray
    traded_E: np.ndarray
    cost_E: np.ndarray
    dropped_E: np.ndarray


@dataclass
class Accounts:
    """The state of E accounts: cash in money units (float64) and shares (int32)."""

    cash_E: np.ndarray
    shares_AE: np.ndarray


Backend = Callable[[np.ndarray, Decision, Accounts, PriceTables], rule.Fill]


def reference_backend(
    session_B: np.ndarray, decision: Decision, accounts: Accounts, tables: PriceTables
) -> rule.Fill:
    """Advance every block by the NumPy reference."""
    block = len(accounts.cash_E) // len(session_B)
    fills = []
    for b, t in enumerate(session_B):
        envs = slice(b * block, (b + 1) * block)
        orders = rule.size_orders(
            accounts.cash_E[envs],
            accounts.shares_AE[:, envs],
            tables.close_DA[t],
            tables.visible_DA[t],
            decision.target_AE[:, envs],
            decision.speed_E[envs],
            decision.band_E[envs],
        )
        fills.append(
            rule.fill(
                accounts.cash_E[envs],
                accounts.shares_AE[:, envs],
                orders,
                tables.fill_DA[t],
                tables.buy_DA[t],
                tables.sell_DA[t],
                tables.fillable_DA[t],
                tables.exit_DA[t],
            )
        )
    return rule.Fill(*(np.concatenate(parts, axis=-1) for parts in zip(*fills, strict=True)))


def numba_backend(
    session_B: np.ndarray, decision: Decision, accounts: Accounts, tables: PriceTables
) -> rule.Fill:
    """Advance every block by the compiled kernel, in place."""
    num_envs = len(accounts.cash_E)
    value_before_E, traded_E, cost_E = (np.empty(num_envs) for _ in range(3))
    dropped_E = np.empty(num_envs, dtype=np.int32)
    kernel.step(
        session_B,
        decision.target_AE,
        decision.speed_E,
        decision.band_E,
        accounts.cash_E,
        accounts.shares_AE,
        tables.close_DA,
        tables.fill_DA,
        tables.buy_DA,
        tables.sell_DA,
        tables.fillable_DA,
        tables.visible_DA,
        tables.exit_DA,
        value_before_E,
        traded_E,
        cost_E,
        dropped_E,
    )
    return rule.Fill(
        accounts.cash_E, accounts.shares_AE, value_before_E, traded_E, cost_E, dropped_E
    )


def _log_growth(equity_E: np.ndarray, before_E: np.ndarray) -> np.ndarray:
    """Return ln(equity / before); -inf for an account that lost everything, 0 from then on."""
    with np.errstate(divide="ignore"):
        growth_E: np.ndarray = np.log(
            np.divide(equity_E, before_E, out=np.ones_like(equity_E), where=before_E > 0)
        )
    return growth_E


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
        self._block_size = block_size
        self._backend = backend
        self._accounts = Accounts(
            np.zeros(self.num_envs), np.zeros((tables.num_assets, self.num_envs), dtype=np.int32)
        )
        self._equity_E = np.zeros(self.num_envs)

    @property
    def cash_E(self) -> np.ndarray:
        """Cash, money units."""
        return self._accounts.cash_E

    @property
    def shares_AE(self) -> np.ndarray:
        """Shares held, int32."""
        return self._accounts.shares_AE

    @property
    def equity_E(self) -> np.ndarray:
        """Cash plus holdings at the close of each block's session, money units."""
        return self._equity_E

    def weights_AE(self) -> np.ndarray:
        """Return each holding as a fraction of equity, float64."""
        held_AE = self.shares_AE * self._per_env(self.tables.close_DA)
        weights_AE: np.ndarray = held_AE / np.where(self._equity_E > 0, self._equity_E, 1.0)
        return weights_AE

    def next_fill_value_E(self) -> np.ndarray:
        """Return the accounts at the prices of the next fill: what the last decision has become."""
        fill_AE = self._per_env(self.tables.fill_DA)
        value_E: np.ndarray = self.cash_E + (self.shares_AE * fill_AE).sum(0)
        return value_E

    def reset(self, session_B: np.ndarray, weights_AE: np.ndarray | None = None) -> None:
        """Open every account with the initial cash, or with holdings of the given weights.

        Args:
            session_B: the session at whose close each block first acts.
            weights_AE: initial holdings as fractions of the initial cash, rounded down to whole
                shares and given without a fee; all cash if None.
        """
        if (session_B < 0).any() or (session_B >= self.stop - 1).any():
            raise ValueError(
                f"sessions must lie in [0, {self.stop - 1}), an order needs a session to fill in; "
                f"got {session_B.min()} … {session_B.max()}"
            )
        self.session_B = session_B.astype(np.int64)
        capital = np.round(self.settings.initial_cash * UNITS_PER_DOLLAR)
        shares_AE = np.zeros((self.tables.num_assets, self.num_envs))
        price_AE = self._per_env(self.tables.close_DA)
        if weights_AE is not None:
            shares_AE = np.floor(weights_AE * capital / np.where(price_AE > 0, price_AE, np.inf))
        self._accounts = Accounts(
            capital - (shares_AE * price_AE).sum(0), shares_AE.astype(np.int32)
        )
        self._equity_E = self._checked(np.full(self.num_envs, capital))

    def step(self, decision: Decision) -> Step:
        """Advance every account by one session.

        Raises:
            ValueError: if an account's window has ended, or the decision's shapes are not the
                environment's.
            PodracerError: if an account outgrows exact money.
        """
        self._check(decision)
        fill = self._backend(self.session_B, decision, self._accounts, self.tables)
        self._accounts = Accounts(fill.cash_E, fill.shares_AE)
        self.session_B = self.session_B + 1
        before_E = self._equity_E
        self._equity_E = self._checked(
            kernel.equity(self.session_B, fill.cash_E, fill.shares_AE, self.tables.close_DA)
        )
        ruin = self.settings.ruin_fraction * self.settings.initial_cash * UNITS_PER_DOLLAR
        return Step(
            reward_E=_log_growth(self._equity_E, before_E),
            terminated_E=self._equity_E <= ruin,
            truncated_E=np.repeat(self.session_B >= self.stop - 1, self._block_size),
            value_before_E=fill.value_before_E,
            equity_E=self._equity_E,
            traded_E=fill.traded_E,
            cost_E=fill.cost_E,
            dropped_E=fill.dropped_E,
        )

    def _per_env(self, table_DA: np.ndarray) -> np.ndarray:
        """Return the row of each environment's session as (A, E)."""
        return np.repeat(table_DA[self.session_B].T, self._block_size, axis=1)

    def _check(self, decision: Decision) -> None:
        if (self.session_B >= self.stop - 1).any():
            raise ValueError("an episode has ended (truncated); reset the environment first")
        expected = (self.tables.num_assets, self.num_envs)
        if decision.target_AE.shape != expected:
            raise ValueError(f"target_AE must be {expected}, got {decision.target_AE.shape}")

    def _checked(self, equity_E: np.ndarray) -> np.ndarray:
        largest = equity_E.max()
        cheapest_A = self.tables.close_DA[self.session_B]
        cheapest = cheapest_A[cheapest_A > 0].min()
        if largest >= 2**52 or self.tables.num_assets * largest >= 2**53:
            raise PodracerError(
                f"an account of {largest / UNITS_PER_DOLLAR:,.0f} dollars over "
                f"{self.tables.num_assets} assets leaves the range of exact money. "
                f"Lower env.initial_cash."
            )
        if largest / cheapest >= 2**31:
            raise PodracerError(
                f"an account of {largest / UNITS_PER_DOLLAR:,.0f} dollars could hold more than 2^31 "
                f"shares at {cheapest / UNITS_PER_DOLLAR} dollars. Lower env.initial_cash."
            )
        return equity_E
