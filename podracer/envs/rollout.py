"""The only evaluator: pods, baselines, tournament and backtest all call `rollout`.

Shapes: R daily returns of the window, A assets, E policies.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from podracer.envs.backends import Backend, numba_backend
from podracer.envs.cost_book import CostBook
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
    book = CostBook(num_returns, num_policies)
    weights_RAE = np.empty((num_returns, market.num_assets, num_policies), dtype=np.float32)
    dropped_E, cut_E = np.zeros((2, num_policies), dtype=np.int64)
    equity_RE[0] = env.equity_E
    weights_AE = env.weights_AE()
    closings: list[Closing] = []
    dates = market.dates_D[window.start : window.stop]
    # The day that a fill belongs to; a day's equity and weights are those of its last bar.
    day_of = np.cumsum(dates[1:] != dates[:-1]) - 1
    for t, r in zip(range(window.start, window.stop - 1), day_of, strict=True):
        closings += _closings(env, tables, market, t)
        decision = policy.decide(t, weights_AE)
        step = env.step(decision)
        book.note(r, env.trade, decision, weights_AE)
        weights_AE = env.weights_AE()
        equity_RE[r + 1] = step.equity_E
        weights_RAE[r] = weights_AE
        dropped_E += step.dropped_E
        cut_E += step.cut_E
    book.close()
    return Rollout(
        dates_R=window.return_dates(market.dates_D),
        returns_RE=_per_equity(np.diff(equity_RE, axis=0), equity_RE[:-1]),
        equity_RE=equity_RE[1:] / UNITS_PER_DOLLAR,
        weights_RAE=weights_RAE,
        turnover_RE=_per_equity(book.traded_RE, equity_RE[:-1]),
        cost_RE=book.cost_RE / UNITS_PER_DOLLAR,
        traded_E=book.traded_RE.sum(0) / UNITS_PER_DOLLAR,
        costs_CE=book.costs_CE / UNITS_PER_DOLLAR,
        interest_E=book.interest_E / UNITS_PER_DOLLAR,
        dropped_E=dropped_E,
        cut_E=cut_E,
        unaffordable_E=book.unaffordable_E,
        closings=tuple(closings),
    )


def joined(parts: Sequence[Rollout]) -> Rollout:
    """Return rollouts over the same window side by side."""
    dates_R = parts[0].dates_R
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts], axis=-1)
        for name in (f.name for f in fields(Rollout))
        if name not in ("dates_R", "closings")
    }
    sizes = [part.returns_RE.shape[1] for part in parts]
    dollars: dict[tuple[np.datetime64, int], list[np.ndarray]] = {}
    for number, part in enumerate(parts):
        for closing in part.closings:
            key = closing.date, closing.asset
            each = dollars.setdefault(key, [np.zeros(size) for size in sizes])
            each[number] = closing.dollars_E
    closings = tuple(Closing(*key, np.concatenate(each)) for key, each in sorted(dollars.items()))
    return Rollout(dates_R=dates_R, closings=closings, **arrays)


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
