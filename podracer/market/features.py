"""Features: what an agent may know after a close.

Two groups. *Asset* features are standardised across the universe on each session and feed the shared
per-asset head. *Market* features are one column for each (feature, ticker) pair plus some that
belong to the whole market; they are standardised with the training window's mean and deviation and
feed whatever network looks at everything at once.

Every value of session t uses rows <= t. A feature names the columns that it needs.
Shapes: D sessions, A assets, K asset features, F market features.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pandas as pd
import talib
from pandas.core.window.rolling import Rolling

from podracer.errors import ConfigError
from podracer.market.prices import PricePanel
from podracer.market.sessions import session_ends
from podracer.market.turbulence import turbulence

Compute = Callable[[PricePanel], np.ndarray]


@dataclass(frozen=True)
class Feature:
    """One feature: its formula, the rows that it looks back on, and the columns it needs.

    `compute` returns (D, A), or (D,) where `scope` is "market"; a value before the warm-up is NaN.
    Where bars are shorter than a session, a feature of the `session` clock is computed on the last
    bars of sessions, and is known from then until the next session has ended.
    """

    name: str
    lookback: int
    compute: Compute
    scope: Literal["asset", "market"] = "asset"
    needs: frozenset[str] = field(default_factory=frozenset)
    clock: Literal["bar", "session"] = "bar"


def log_returns(close_DA: np.ndarray, bars: int = 1) -> np.ndarray:
    """Return ln(p_t / p_{t-bars}); NaN in the first `bars` rows and next to a missing price."""
    returns_DA = np.full(close_DA.shape, np.nan)
    returns_DA[bars:] = np.log(close_DA[bars:] / close_DA[:-bars])
    return returns_DA


def universe_returns(close_DA: np.ndarray) -> np.ndarray:
    """Return the mean log return (D,) of the names that have one; NaN where none has."""
    returns_DA = log_returns(close_DA)
    counts_D = np.isfinite(returns_DA).sum(1)
    return np.nansum(returns_DA, axis=1) / np.where(counts_D > 0, counts_D, np.nan)


def standardise_across_universe(values_DA: np.ndarray) -> np.ndarray:
    """Return each session's z-scores over the names that have a value, NaN elsewhere.

    A session on which all names agree gives zeros.
    """
    has_DA = np.isfinite(values_DA)
    counts_D1 = np.maximum(has_DA.sum(1, keepdims=True), 1)
    centred_DA = np.where(has_DA, values_DA, 0.0)
    centred_DA = np.where(has_DA, centred_DA - centred_DA.sum(1, keepdims=True) / counts_D1, 0.0)
    std_D1 = np.sqrt(np.square(centred_DA).sum(1, keepdims=True) / counts_D1)
    scores_DA = centred_DA / np.where(std_D1 > 1e-12, std_D1, np.inf)
    return np.where(has_DA, scores_DA, np.nan)


def _turbulence(panel: PricePanel) -> np.ndarray:
    return turbulence(log_returns(panel.fields["close"]))


def _momentum_12_1(panel: PricePanel) -> np.ndarray:
    """Return over the last 252 sessions without the last 21 (Jegadeesh and Titman 1993)."""
    close_DA = panel.fields["close"]
    momentum_DA = np.full(close_DA.shape, np.nan)
    momentum_DA[252:] = np.log(close_DA[231:-21] / close_DA[:-252])
    return momentum_DA


def _rolling(values_DA: np.ndarray, window: int) -> "Rolling[pd.DataFrame]":
    return pd.DataFrame(values_DA).rolling(window)


def _volatility(window: int) -> Compute:
    return lambda panel: _rolling(log_returns(panel.fields["close"]), window).std().to_numpy()


def _beta_and_residual(close_DA: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Regress each name on the universe's mean return; return beta and residual deviation."""
    returns = pd.DataFrame(log_returns(close_DA))
    market = pd.Series(universe_returns(close_DA))
    market_variance_D1 = market.rolling(window).var().to_numpy()[:, None]
    covariance_DA = returns.rolling(window).cov(market).to_numpy()
    beta_DA = covariance_DA / market_variance_D1
    residual_DA = returns.rolling(window).var().to_numpy() - beta_DA * covariance_DA
    return beta_DA, np.sqrt(np.maximum(residual_DA, 0.0))


def _high_52_weeks(panel: PricePanel) -> np.ndarray:
    """ln(close / highest close of 252 sessions), 0 at the high (George and Hwang 2004)."""
    close_DA = panel.fields["close"]
    return np.log(close_DA / _rolling(close_DA, 252).max().to_numpy())


def _each_ticker(
    panel: PricePanel, indicator: Callable[..., np.ndarray], *names: str
) -> np.ndarray:
    """Apply a TA-Lib indicator to each unbroken run of prices: after one NaN its RSI is wrong for ever."""
    columns = [panel.fields[n] for n in names]
    close_DA = panel.fields["close"]
    values_DA = np.full_like(close_DA, np.nan)
    for a in range(len(panel.tickers)):
        has_D = np.all([np.isfinite(c[:, a]) for c in columns], axis=0)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], has_D, [False]])))
        for first, last in edges.reshape(-1, 2):
            run = slice(first, last)
            values_DA[run, a] = indicator(*(np.ascontiguousarray(c[run, a]) for c in columns))
    return values_DA


def _macd(panel: PricePanel) -> np.ndarray:
    close_DA = panel.fields["close"]
    return _each_ticker(panel, lambda close: talib.MACD(close, 12, 26, 9)[0], "close") / close_DA


def _rsi(panel: PricePanel) -> np.ndarray:
    return _each_ticker(panel, lambda close: talib.RSI(close, 30), "close") / 50.0 - 1.0


def _bollinger_position(panel: PricePanel) -> np.ndarray:
    """(close - mean) / (2 deviations) over 20 sessions; 0 where the price did not move."""

    def position(close: np.ndarray) -> np.ndarray:
        mean = talib.SMA(close, 20)
        deviation = talib.STDDEV(close, 20)
        return (close - mean) / np.where(deviation > 0, 2.0 * deviation, np.inf)

    return _each_ticker(panel, position, "close")


def _sma_distance(window: int) -> Compute:
    def distance(close: np.ndarray) -> np.ndarray:
        return np.log(close / talib.SMA(close, window))

    return lambda panel: _each_ticker(panel, distance, "close")


def _cci(panel: PricePanel) -> np.ndarray:
    return (
        _each_ticker(panel, lambda h, lo, c: talib.CCI(h, lo, c, 30), "high", "low", "close") / 100
    )


def _dx(panel: PricePanel) -> np.ndarray:
    return (
        _each_ticker(panel, lambda h, lo, c: talib.DX(h, lo, c, 30), "high", "low", "close") / 100
    )


def _atr(panel: PricePanel) -> np.ndarray:
    """Average true range of 14 sessions as a fraction of the close."""
    range_DA = _each_ticker(panel, lambda h, lo, c: talib.ATR(h, lo, c, 14), "high", "low", "close")
    return range_DA / panel.fields["close"]


def _dollar_volume(panel: PricePanel) -> np.ndarray:
    """ln(1 + traded dollars) of the day, on the prices and volumes as they were printed."""
    return np.log1p(panel.fields["dollar_volume"])


def _log_return(bars: int) -> Feature:
    return Feature(
        f"log_return_{bars}", bars, lambda panel: log_returns(panel.fields["close"], bars)
    )


OHLC = frozenset({"high", "low"})
ASSET_FEATURES = {
    name: Feature(name, lookback, compute, clock="session")
    for name, lookback, compute in (
        ("momentum_12_1", 252, _momentum_12_1),
        ("reversal_1m", 21, lambda panel: -log_returns(panel.fields["close"], 21)),
        ("volatility_60", 60, _volatility(60)),
        ("beta_252", 252, lambda panel: _beta_and_residual(panel.fields["close"], 252)[0]),
        ("high_52w_distance", 251, _high_52_weeks),
        (
            "idiosyncratic_volatility_252",
            252,
            lambda panel: _beta_and_residual(panel.fields["close"], 252)[1],
        ),
    )
}
MARKET_FEATURES = {
    f.name: f
    for f in (
        _log_return(1),
        _log_return(5),
        _log_return(20),
        _log_return(60),
        Feature("macd", 33, _macd),
        Feature("rsi_30", 30, _rsi),
        Feature("bollinger_position", 19, _bollinger_position),
        Feature("sma_30_distance", 29, _sma_distance(30)),
        Feature("sma_60_distance", 59, _sma_distance(60)),
        Feature("realised_volatility_20", 20, _volatility(20)),
        Feature("turbulence", 253, _turbulence, "market", clock="session"),
        Feature("cci_30", 29, _cci, needs=OHLC),
        Feature("dx_30", 30, _dx, needs=OHLC),
        Feature("atr_14", 14, _atr, needs=OHLC),
        Feature("dollar_volume", 0, _dollar_volume, needs=frozenset({"volume"})),
    )
}


def warmup_bars(chosen: Sequence[Feature], dates_D: np.ndarray) -> int:
    """Return the first bar on which all features have a value, at least; D if there is none."""
    ends = np.flatnonzero(session_ends(dates_D))
    rows = [f.lookback for f in chosen if f.clock == "bar"]
    for lookback in (f.lookback for f in chosen if f.clock == "session"):
        rows.append(int(ends[lookback]) if lookback < len(ends) else len(dates_D))
    return max(rows)


def compute(feature: Feature, panel: PricePanel) -> np.ndarray:
    """Compute a feature on its own clock; returns one row a bar."""
    if feature.clock == "bar" or panel.starts_D is None:
        return feature.compute(panel)
    ends_D = session_ends(panel.dates_D)
    fields = {name: values_DA[ends_D] for name, values_DA in panel.fields.items()}
    sessions = replace(
        panel, dates_D=panel.dates_D[ends_D], fields=fields, tradable_DA=panel.tradable_DA[ends_D]
    )
    values = feature.compute(sessions)
    ended_D = np.cumsum(ends_D) - 1
    known = values[np.maximum(ended_D, 0)]
    known[ended_D < 0] = np.nan
    return known


def choose(
    names: tuple[str, ...], registry: dict[str, Feature], panel: PricePanel, key: str
) -> list[Feature]:
    """Return the named features.

    Raises:
        ConfigError: if a name is unknown or a feature needs a column that the prices lack.
    """
    for name in names:
        if name not in registry:
            raise ConfigError(
                f"{key}: there is no feature {name!r}. Choose among {', '.join(registry)}."
            )
        if lacking := registry[name].needs - panel.fields.keys():
            raise ConfigError(
                f"{key}: {name} needs the column {', '.join(sorted(lacking))}, which this dataset "
                f"does not have. Remove the feature or choose a dataset with that column."
            )
    return [registry[name] for name in names]
