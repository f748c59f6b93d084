"""The only evaluator: pods, baselines, tournament and backtest all call `rollout`.

Shapes: R daily returns of the window, A assets, E policies.
"""

from dataclasses import dataclass

import numpy as np

from podracer.envs import rule
from podracer.envs.backends import Backend, Decision, numba_backend, table_rows
from podracer.envs.costs import TERMS, Trade
from podracer.envs.policies import Policy
from podracer.envs.settings import EnvSettings
from podracer.envs.tables import PriceTables, price_tables
from podracer.envs.trading import TradingEnv
from podracer.market.market import UNITS_PER_DOLLAR, Market
from podracer.market.windows import Window


@dataclass(frozen=True)
class Closing:
    """A holding that was closed because its asset has had its last price.

    Attributes:
        date: the session after that price.
        asset: position in the universe.
        dollars_E: what each policy got for it.
    """

    date: np.datetime64
    asset: int
    dollars_E: np.ndarray


@dataclass(frozen=True)
class Rollout:
    """What E policies did over a window.

    Attributes:
        dates_R: the sessions of the returns; the first is the one after the window's start.
        returns_RE: simple daily returns, net of costs, the first from the initial cash.
        equity_RE: dollars at the close of each session.
        weights_RAE: holdings at that close as fractions of equity, float32.
        turnover_RE: notional traded as a fraction of the equity of the session before.
        cost_RE: dollars of costs.
        traded_E: dollars bought and sold over the whole window.
        costs_CE: dollars of each of `podracer.envs.costs.TERMS`, over the whole window.
        interest_E: dollars of interest on cash.
        dropped_E: orders that met a session on which their asset did not trade.
        cut_E: orders that the volume cap cut.
        unaffordable_E: buys that were wanted, and not one share of which could be paid.
        closings: holdings whose asset ended inside the window.
    """

    dates_R: np.ndarray
    returns_RE: np.ndarray
    equity_RE: np.ndarray
    weights_RAE: np.ndarray
    turnover_RE: np.ndarray
    cost_RE: np.ndarray
    traded_E: np.ndarray
    costs_CE: np.ndarray
    interest_E: np.ndarray
    dropped_E: np.ndarray
    cut_E: np.ndarray
    unaffordable_E: np.ndarray
    closings: tuple[Closing, ...]

    @property
    def has_traded_E(self) -> np.ndarray:
        """Whether a policy bought or sold anything."""
        has_traded_E: np.ndarray = self.traded_E > 0
        return has_traded_E


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
    traded_RE, cost_RE = np.zeros((2, num_returns, num_policies))
    weights_RAE = np.empty((num_returns, market.num_assets, num_policies), dtype=np.float32)
    costs_CE, interest_E = np.zeros((len(TERMS), num_policies)), np.zeros(num_policies)
    dropped_E, cut_E, unaffordable_E = np.zeros((3, num_policies), dtype=np.int64)
    equity_RE[0] = env.equity_E
    weights_AE = env.weights_AE()
    closings: list[Closing] = []
    dates = market.dates_D[window.start : window.stop]
    # The day that a fill belongs to; a day's equity and weights are those of its last bar.
    day_of = np.cumsum(dates[1:] != dates[:-1]) - 1
    for t, r in zip(range(window.start, window.stop - 1), day_of, strict=True):
        closings += _closings(env, tables, market, t)
        decision = policy.decide(t, weights_AE)
        step, held_AE = env.step(decision), weights_AE
        weights_AE = env.weights_AE()
        equity_RE[r + 1] = step.equity_E
        costs = env.costs()
        traded_RE[r] += costs.traded_E
        cost_RE[r] += costs.cost_E
        costs_CE += costs.costs_CE
        interest_E += costs.interest_E
        weights_RAE[r] = weights_AE
        dropped_E += step.dropped_E
        cut_E += step.cut_E
        unaffordable_E += _unaffordable(env.trade, decision, held_AE)
    return Rollout(
        dates_R=window.return_dates(market.dates_D),
        returns_RE=_per_equity(np.diff(equity_RE, axis=0), equity_RE[:-1]),
        equity_RE=equity_RE[1:] / UNITS_PER_DOLLAR,
        weights_RAE=weights_RAE,
        turnover_RE=_per_equity(traded_RE, equity_RE[:-1]),
        cost_RE=cost_RE / UNITS_PER_DOLLAR,
        traded_E=traded_RE.sum(0) / UNITS_PER_DOLLAR,
        costs_CE=costs_CE / UNITS_PER_DOLLAR,
        interest_E=interest_E / UNITS_PER_DOLLAR,
        dropped_E=dropped_E,
        cut_E=cut_E,
        unaffordable_E=unaffordable_E,
        closings=tuple(closings),
    )


def _unaffordable(trade: Trade, decision: Decision, weights_AE: np.ndarray) -> np.ndarray:
    """Count buys of a share or more that bought none for want of cash; also of accounts below a share."""
    row = table_rows(trade.tables, trade.row_B, len(trade.after.cash_E))
    gap_AE = decision.wanted_AE.astype(np.float64)
    if decision.kind == "weights":
        gap_AE = gap_AE - weights_AE
        gap_AE = np.where(gap_AE >= decision.band_E, gap_AE, 0.0)
    share_AE = row.close * trade.tables.lots_per_share
    equity_E = rule.equity(trade.before.cash_E, trade.before.lots_AE, row.close)
    reaches_AE = gap_AE * decision.scale_E * np.maximum(equity_E, share_AE) >= share_AE
    is_wanted_AE = reaches_AE & (gap_AE > 0) & row.visible & row.fillable & ~row.exit
    is_bought_AE = trade.after.lots_AE > trade.before.lots_AE
    is_short_AE = trade.after.cash_E < row.buy * trade.tables.lots_per_share
    unaffordable_E: np.ndarray = (is_wanted_AE & ~is_bought_AE & is_short_AE).sum(0)
    return unaffordable_E


def _per_equity(values_RE: np.ndarray, before_RE: np.ndarray) -> np.ndarray:
    """Divide by the equity before; an account that has nothing left neither gains nor trades."""
    ratio_RE: np.ndarray = np.divide(
        values_RE, before_RE, out=np.zeros_like(before_RE), where=before_RE > 0
    )
    return ratio_RE


def _closings(env: TradingEnv, tables: PriceTables, market: Market, t: int) -> list[Closing]:
    """Return what the fill of session t's orders will close."""
    return [
        Closing(
            market.dates_D[t + 1],
            int(a),
            env.lots_AE[a] * tables.sell_DA[t, a] / UNITS_PER_DOLLAR,
        )
        for a in np.flatnonzero(tables.exit_DA[t])
        if env.lots_AE[a].any()
    ]
