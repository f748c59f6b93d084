"""The backtest: champion, leader and baselines over the lockbox, and over all windows for the picture.

Shapes: R daily returns, A assets, S series.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from podracer.agents import checkpoint
from podracer.agents.parameters import Parameters, initial_weights
from podracer.backtest.baselines import BENCHMARK, baselines
from podracer.envs.agent_policies import PopulationPolicy
from podracer.envs.costs import TERMS
from podracer.envs.frozen_agents import FrozenAgents
from podracer.envs.observation import observe
from podracer.envs.policies import Policy, SideBySide
from podracer.envs.rollout import Rollout, joined, rollout
from podracer.envs.settings import EnvSettings
from podracer.evaluation.metrics import SESSIONS_A_YEAR, Metric, relative_metrics, summary
from podracer.evaluation.statistics import bootstrap_indices, sharpe_differences
from podracer.market.market import Market
from podracer.market.sessions import session_ends
from podracer.market.windows import Window, Windows

ENTRY_SESSIONS = 20
CHAMPION, LEADER, UNTRAINED, INDEX = "champion", "leader", "untrained agent", "index (price only)"


@dataclass(frozen=True)
class SeriesResult:
    """One policy in the lockbox."""

    metrics: dict[str, Metric]
    relative: dict[str, Metric]
    turnover_a_year: float | None
    cost_a_year: float | None


@dataclass(frozen=True)
class CostTable:
    """What trading cost the champion and the benchmark in the lockbox.

    Attributes:
        terms: dollars of each of `podracer.envs.costs.TERMS`, champion then benchmark.
        total: dollars.
        per_traded: total over the notional traded, a fraction.
        interest: dollars earned on cash.
        dropped: orders that met a session on which their asset did not trade.
        cut: orders that the volume cap cut.
        unaffordable: buys of which not one share could be paid.
    """

    terms: dict[str, tuple[float, float]]
    total: tuple[float, float]
    per_traded: tuple[float | None, float | None]
    interest: tuple[float, float]
    dropped: tuple[int, int]
    cut: tuple[int, int]
    unaffordable: tuple[int, int]


@dataclass(frozen=True)
class BacktestResult:
    """Everything a report shows; it computes no metric of its own.

    Attributes:
        names: the series, champion first; the index is last and has no costs or holdings.
        spans: first and last session of each window.
        dates_R: sessions of the lockbox's returns.
        returns_RS: daily net returns in the lockbox, every series from the initial cash.
        weights_RA: the champion's holdings there.
        whole_dates: sessions from the start of training on.
        whole_returns: daily net returns over them, for the picture only: the champion has seen the
            training and selection windows.
        sharpe_difference: champion minus benchmark in the lockbox, as observed, and the 5 % and 95 %
            quantiles of its bootstrap; None where a Sharpe ratio is undefined.
        settled_difference: the same as observed without the first `ENTRY_SESSIONS`, in which the
            champion moves in at its own speed while equal weight is invested at once.
        costs: where the money went.
        closings: the champion's holdings whose ticker ended: ticker, date, dollars.
    """

    names: tuple[str, ...]
    tickers: tuple[str, ...]
    windows: Windows
    spans: dict[str, tuple[np.datetime64, np.datetime64]]
    dates_R: np.ndarray
    returns_RS: np.ndarray
    weights_RA: np.ndarray
    whole_dates: np.ndarray
    whole_returns: np.ndarray
    series: dict[str, SeriesResult]
    sharpe_difference: tuple[float | None, float | None, float | None]
    settled_difference: float | None
    costs: CostTable
    closings: tuple[tuple[str, str, float], ...]

    def returns_of(self, name: str) -> np.ndarray:
        """Return one series' daily returns in the lockbox."""
        series_R: np.ndarray = self.returns_RS[:, self.names.index(name)]
        return series_R


def backtest(
    market: Market,
    windows: Windows,
    env: EnvSettings,
    champion: FrozenAgents,
    leader: FrozenAgents,
    seed: int,
) -> BacktestResult:
    """Run everything over the lockbox, opened here.

    Raises:
        CheckpointError: if the agents belong to another market.
    """
    # Two threads sum in another order than one, and are slower on networks of this size.
    torch.set_num_threads(1)
    lockbox = windows.lockbox
    whole = whole_window(market, windows)
    agents: dict[str, Policy] = {
        CHAMPION: champion.policy(market),
        LEADER: leader.policy(market),
        UNTRAINED: _untrained(market, champion, seed),
    }
    inside, names = _run(market, lockbox, env, agents)
    overall, _ = _run(market, whole, env, agents)
    benchmark = names.index(BENCHMARK)
    benchmark_R = inside.returns_RE[:, benchmark]
    returns_RS, whole_returns = inside.returns_RE, overall.returns_RE
    series = {
        name: _series(inside, i, benchmark_R, is_benchmark=name == BENCHMARK)
        for i, name in enumerate(names)
    }
    if market.index_D is not None:
        names = (*names, INDEX)
        index_R = _index_returns(market, lockbox)
        returns_RS = np.column_stack([returns_RS, index_R])
        whole_returns = np.column_stack([whole_returns, _index_returns(market, whole)])
        relative = relative_metrics(index_R, benchmark_R)
        series[INDEX] = SeriesResult(summary(index_R), relative, None, None)
    indices_SR = bootstrap_indices(lockbox.num_returns, market.hash, lockbox.name)
    difference = sharpe_differences(inside.returns_RE[:, :1], benchmark_R, indices_SR)[:, 0]
    low, high = (_defined(q) for q in np.quantile(difference, [0.05, 0.95]))
    champion_R = inside.returns_RE[:, 0]
    return BacktestResult(
        names=names,
        tickers=market.tickers,
        windows=windows,
        spans={w.name: (market.dates_D[w.start], market.dates_D[w.stop - 1]) for w in windows},
        dates_R=inside.dates_R,
        returns_RS=returns_RS,
        weights_RA=inside.weights_RAE[:, :, 0],
        whole_dates=overall.dates_R,
        whole_returns=whole_returns,
        series=series,
        sharpe_difference=(_lead(champion_R, benchmark_R), low, high),
        settled_difference=_lead(champion_R[ENTRY_SESSIONS:], benchmark_R[ENTRY_SESSIONS:]),
        costs=_cost_table(inside, np.array([0, benchmark])),
        closings=_closings(market, inside),
    )


def _closings(market: Market, inside: Rollout) -> tuple[tuple[str, str, float], ...]:
    """Return the champion's holdings whose ticker ended."""
    return tuple(
        (market.tickers[c.asset], str(c.date), float(c.dollars_E[0]))
        for c in inside.closings
        if c.dollars_E[0] > 0
    )


def _cost_table(inside: Rollout, chosen: np.ndarray) -> CostTable:
    first, second = chosen

    def pair(values_E: np.ndarray) -> tuple[Any, Any]:
        return values_E[first].item(), values_E[second].item()

    traded_E = inside.traded_E
    total_E = inside.costs_CE.sum(0)
    rates = [float(total_E[e] / traded_E[e]) if traded_E[e] > 0 else None for e in chosen]
    return CostTable(
        terms={term: pair(inside.costs_CE[c]) for c, term in enumerate(TERMS)},
        total=pair(total_E),
        per_traded=(rates[0], rates[1]),
        interest=pair(inside.interest_E),
        dropped=pair(inside.dropped_E),
        cut=pair(inside.cut_E),
        unaffordable=pair(inside.unaffordable_E),
    )


def _lead(returns_R: np.ndarray, benchmark_R: np.ndarray) -> float | None:
    """Return the difference of the annual Sharpe ratios; None where one is undefined."""
    each_row_once = np.arange(len(returns_R))[None]
    return _defined(sharpe_differences(returns_R[:, None], benchmark_R, each_row_once)[0, 0])


def _defined(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def whole_window(market: Market, windows: Windows) -> Window:
    """Return all bars from the start of training to the end of the lockbox."""
    start, stop = windows.train.start, windows.lockbox.stop
    return Window("whole", start, stop, len(np.unique(market.dates_D[start:stop])))


def _run(
    market: Market, window: Window, env: EnvSettings, agents: dict[str, Policy]
) -> tuple[Rollout, tuple[str, ...]]:
    yardsticks = baselines(market, window.start)
    result = joined(
        [
            rollout(SideBySide(list(agents.values())), market, window, env),
            rollout(SideBySide(list(yardsticks.values())), market, window, env.patient),
        ]
    )
    return result, (*agents, *yardsticks)


def _untrained(market: Market, champion: FrozenAgents, seed: int) -> PopulationPolicy:
    """Return a new agent of the champion's kind, with its mean gain and speed."""
    generator = checkpoint.generator(seed, "untrained", "weights")
    trained = champion.acting
    weights_W = initial_weights(trained.weights.layout, generator, 0.5)
    acting = trained._replace(
        weights=Parameters(weights_W[None], trained.weights.layout),
        gain_P=trained.gain_P.mean()[None],
        speed_P=trained.speed_P.mean()[None],
    )
    observations = observe(market, champion.scaler, champion.settings)
    return PopulationPolicy(acting, observations)


def _series(inside: Rollout, i: int, benchmark_R: np.ndarray, is_benchmark: bool) -> SeriesResult:
    returns_R = inside.returns_RE[:, i]
    years = len(returns_R) / SESSIONS_A_YEAR
    itself = Metric(None, "this is the benchmark")
    relative = relative_metrics(returns_R, benchmark_R)
    return SeriesResult(
        metrics=summary(returns_R),
        relative=dict.fromkeys(relative, itself) if is_benchmark else relative,
        # One-way: half of what was bought and sold.
        turnover_a_year=float(inside.turnover_RE[:, i].sum() / 2 / years),
        cost_a_year=float((inside.cost_RE[:, i] / _equity_before(inside, i)).sum() / years),
    )


def _equity_before(inside: Rollout, i: int) -> np.ndarray:
    before_R: np.ndarray = inside.equity_RE[:, i] / (1.0 + inside.returns_RE[:, i])
    return before_R


def _index_returns(market: Market, window: Window) -> np.ndarray:
    if market.index_D is None:
        raise ValueError("the market has no index")
    rows = np.flatnonzero(session_ends(market.dates_D))
    rows = rows[(rows >= window.start) & (rows < window.stop)]
    level_R = np.asarray(market.index_D[rows])
    returns_R: np.ndarray = level_R[1:] / level_R[:-1] - 1.0
    return returns_R
