"""The only evaluator: pods, baselines, tournament and backtest all call `rollout`.

Shapes: R daily returns of the window, A assets, E policies.
"""

from dataclasses import dataclass

import numpy as np

from podracer.envs.policies import Policy
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import price_tables
from podracer.envs.trading import Backend, TradingEnv, numba_backend
from podracer.market.market import UNITS_PER_DOLLAR, Market
from podracer.market.windows import Window


@dataclass(frozen=True)
class Rollout:
    """What E policies did over a window.

    Attributes:
        dates_R: the sessions of the returns; the first is the one after the window's start.
        returns_RE: simple daily returns, net of costs, the first from the initial cash.
        equity_RE: dollars at each close.
        weights_RAE: holdings at each close as fractions of equity, float32.
        turnover_RE: notional traded as a fraction of the equity before.
        cost_RE: dollars of fees.
        dropped_E: orders that met a session on which their asset did not trade.
    """

    dates_R: np.ndarray
    returns_RE: np.ndarray
    equity_RE: np.ndarray
    weights_RAE: np.ndarray
    turnover_RE: np.ndarray
    cost_RE: np.ndarray
    dropped_E: np.ndarray

    @property
    def has_traded_E(self) -> np.ndarray:
        """Whether a policy bought or sold anything."""
        traded_E: np.ndarray = self.turnover_RE.sum(0) > 0
        return traded_E


def rollout(
    policy: Policy,
    market: Market,
    window: Window,
    settings: EnvSettings,
    backend: Backend = numba_backend,
) -> Rollout:
    """Run deterministic policies over a window, each from the initial cash, costs on.

    A ruined account holds on: it is what its holder would have seen.
    """
    tables = price_tables(market, settings)
    env = TradingEnv(tables, settings, window.stop, 1, policy.num_policies, backend)
    env.reset(np.array([window.start]))
    num_returns, num_policies = window.num_returns, policy.num_policies
    equity_RE = np.empty((num_returns + 1, num_policies))
    traded_RE, cost_RE = np.empty((2, num_returns, num_policies))
    weights_RAE = np.empty((num_returns, market.num_assets, num_policies), dtype=np.float32)
    dropped_E = np.zeros(num_policies, dtype=np.int64)
    equity_RE[0] = env.equity_E
    weights_AE = env.weights_AE()
    for r in range(num_returns):
        step = env.step(policy.decide(window.start + r, weights_AE))
        weights_AE = env.weights_AE()
        equity_RE[r + 1], traded_RE[r], cost_RE[r] = step.equity_E, step.traded_E, step.cost_E
        weights_RAE[r] = weights_AE
        dropped_E += step.dropped_E
    return Rollout(
        dates_R=window.return_dates(market.dates_D),
        returns_RE=equity_RE[1:] / equity_RE[:-1] - 1.0,
        equity_RE=equity_RE[1:] / UNITS_PER_DOLLAR,
        weights_RAE=weights_RAE,
        turnover_RE=traded_RE / equity_RE[:-1],
        cost_RE=cost_RE / UNITS_PER_DOLLAR,
        dropped_E=dropped_E,
    )
